"""Figures 3 and 4: more tuples, more queries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from papers.rjoin import paper
from papers.rjoin.cases import Runs, Size, controls, fig3_case, fig3_others, fig4_cases
from papers.rjoin.sim.cases import Found, Snapshot
from papers.rjoin.sim.workload import Schema
from papers.rjoin.views import (
    HOW,
    Points,
    falls,
    fullest,
    grows_verdict,
    hits,
    pattern,
    pattern_verdict,
    per_tuple,
    random_for,
    ric_per_tuple,
    rises,
    spread_charts,
    stored,
    stored_pattern,
    table_of,
    traffic_chart,
)
from papers.shared.exhibit import Control, Exhibit, Verdict

# "Linear": what each further tuple adds stays within a quarter of its mean.
LINEAR = 0.25
# "Significantly lower": at most half.
LOWER = 0.5
# "Nicely distributed": the busiest tenth stores less than half. "Almost all": a number of nodes is met within 2 %.
NICE, NEAR_NODES = 0.5, 0.02


def fig3(runs: Runs, size: Size) -> Exhibit:
    found = runs[fig3_case(size)]
    own, tableless, random = (runs[case] for case in fig3_others(size))
    points, controls_ = _points(found), _points(random)
    x = [float(one.tuples) for one in found.snapshots]
    who = random_for(random.last.tuples)
    loads = {"hits": hits}
    return Exhibit(
        "fig3",
        "Figure 3: more tuples",
        f"{HOW} Messages a tuple are the mean over all tuples so far.",
        [
            table_of("as tuples arrive", "tuples", points),
            table_of("the same, each attribute with frequent values of its own", "tuples", _points(own)),
        ],
        [
            grows_verdict("a tuple needs more messages the more have arrived", points, {"messages": per_tuple}, who, controls_),
            _requests_verdict(found, tableless),
            _linear_verdict(found, random),
            grows_verdict("the total query processing load increases", points, loads, who, controls_),
            _more_nodes_verdict(points, controls_, who),
            _even_verdict(points, controls_, who),
            _working_verdict(found, own, random),
            _stored_verdict(points, controls_, who),
        ],
        [traffic_chart("3", "tuples", x, points, log=True), *spread_charts("3", _some(points), "tuples:")],
    )  # fmt: skip


def _points(found: Found) -> Points:
    return Points({f"{one.tuples:,}": one for one in found.snapshots})


def _some(points: Points) -> Points:
    """Every other point, the last one included: as many lines as a picture bears."""
    names = list(points.snapshots)
    chosen = names[::-1][::2][::-1]
    return Points({name: points.snapshots[name] for name in chosen})


def _requests_verdict(found: Found, tableless: Found) -> Verdict:
    def slopes(found: Found) -> tuple[float, float]:
        """How much the requests of a tuple grow with each further tuple, at first and later."""
        first, middle, last = found.snapshots[0], _third(found), found.snapshots[-1]
        return (
            (middle.ric_per_tuple - first.ric_per_tuple) / (middle.tuples - first.tuples),
            (last.ric_per_tuple - middle.ric_per_tuple) / (last.tuples - middle.tuples),
        )

    def told(found: Found) -> str:
        middle = _third(found).tuples
        early, late = slopes(found)
        return (
            f"with each tuple the requests grow by {early:,.2f} messages up to {middle:,} tuples, by {late:,.2f} after; in all "
            f"{_points(found).say(ric_per_tuple)} tuples"
        )

    def slows(found: Found) -> bool:
        early, late = slopes(found)
        return late <= LOWER * early

    return Verdict(
        "requests for rates grow fast at first, then significantly slower, as known rates are used again",
        told(found),
        slows(found),
        ""
        if slows(found)
        else "each tuple rewrites more queries than the one before, by a power of the tuples, and their values are new to some nodes",
        controls=[
            Control(
                f"nodes without candidate tables, which ask every time, {tableless.last.tuples:,} tuples,",
                slows(tableless),
                told(tableless),
            )
        ],
    )


def _third(found: Found) -> Snapshot:
    """Where the beginning ends: a third of the snapshots."""
    return found.snapshots[len(found.snapshots) // 3]


def _linear_verdict(found: Found, random: Found) -> Verdict:
    def told(found: Found) -> str:
        steps = zip(_growth(found.snapshots), found.snapshots[1:], strict=True)
        return "with each further tuple a tuple needs " + ", ".join(
            f"{growth:.1f} up to {one.tuples:,}" for growth, one in steps
        ) + " messages more"  # fmt: skip

    def linear(found: Found) -> bool:
        first, last = found.snapshots[0], found.snapshots[-1]
        mean = (last.per_tuple - first.per_tuple) / (last.tuples - first.tuples)
        return mean > 0 and all(abs(one - mean) <= LINEAR * mean for one in _growth(found.snapshots))

    return Verdict(
        "the cost of a tuple increases linearly with the tuples",
        told(found),
        linear(found),
        ""
        if linear(found)
        else "a tuple meets all earlier ones, and pairs and triples of them that have joined",
        controls=[Control(random_for(random.last.tuples), linear(random), told(random))],
    )


def _growth(snapshots: Sequence[Snapshot]) -> list[float]:
    """From one snapshot to the next: by how much the messages of a tuple grow with each further tuple."""
    return [
        (after.per_tuple - before.per_tuple) / (after.tuples - before.tuples)
        for before, after in itertools.pairwise(snapshots)
    ]


def _working(one: Snapshot) -> float:
    return float(one.working)


def _more_nodes_verdict(points: Points, control: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"nodes hit: {of.say(_working)} tuples"

    def more(of: Points) -> bool:
        found = of.get(_working)
        return found == sorted(found) and found[-1] > found[0]

    return Verdict(
        "more and more nodes take part in query processing",
        told(points),
        more(points),
        controls=[Control(who, more(control), told(control))],
    )


def _even_verdict(points: Points, control: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"the busiest tenth of the nodes has {of.say(pattern, '{:.0%}')} tuples of all hits"

    def evener(of: Points) -> bool:
        return of.get(pattern)[-1] < of.get(pattern)[0]

    return Verdict(
        "the query processing load is uneven at first, and less so as more tuples arrive",
        told(points),
        evener(points),
        ""
        if evener(points)
        else "frequent values are frequent in the rewritten queries, too: they have the same keys whatever comes, and most of what is "
        "rewritten goes there",
        controls=[Control(who, evener(control), told(control))],
    )


def expected_working(keys: int, nodes: int) -> float:
    """Nodes that are responsible for a key at all, where identifiers are hashes: a node's arc is exponentially distributed."""
    return nodes * keys / (nodes + keys)


def _working_verdict(found: Found, own: Found, random: Found) -> Verdict:
    last, keys = found.last, Schema().keys
    nodes = len(last.hits)

    def near(one: Snapshot) -> bool:
        return abs(one.working - paper.FIG3_WORKING) <= NEAR_NODES * paper.FIG3_WORKING

    return Verdict(
        f"after {paper.FIG3_TUPLES:,} tuples {paper.FIG3_WORKING} of 1,000 nodes take part in query processing",
        f"{last.working:,} of {nodes:,} after {last.tuples:,}; {last.rewriting:,} of them got rewritten queries; "
        f"{own.last.working:,} after {own.last.tuples:,} where attributes have frequent values of their own",
        near(last),
        ""
        if near(last)
        else f"there are {keys:,} keys, and nodes have one identifier each: by chance alone no more than "
        f"{expected_working(keys, nodes):,.0f} nodes are responsible for any of them",
        controls=[
            Control(random_for(random.last.tuples), near(random.last), f"{random.last.working:,}"),
        ],
    )


def _stored_verdict(points: Points, control: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"the busiest tenth of the nodes stores {of.say(stored_pattern, '{:.0%}')} tuples of all"

    def nice(of: Points) -> bool:
        return max(of.get(stored_pattern)) < NICE

    return Verdict(
        "the storage load is nicely distributed",
        told(points),
        nice(points),
        controls=[Control(who, nice(control), told(control))],
    )


def fig4(runs: Runs, size: Size) -> Exhibit:
    cases = fig4_cases(size)
    points = Points.of(cases, runs)
    random = Points.of(controls(size, cases), runs)
    who = random_for(size.controls)
    return Exhibit(
        "fig4",
        "Figure 4: more queries",
        f"{HOW} {size.tuples:,} tuples each.",
        [table_of("as queries are added", "queries", points)],
        [
            _slower_verdict(points, random, who),
            _smaller_rate_verdict(points, random, who),
            grows_verdict(
                "query processing and storage load increase", points, {"hits": hits, "stored": stored}, who, random
            ),
            pattern_verdict(
                "the pattern of distribution remains the same", points, who, random, "a node's keys decide, and they are the same"
            ),
            grows_verdict("the fullest node is hit more often", points, {"hits": fullest}, who, random),
        ],
        [
            traffic_chart("4", "queries", [float(queries) for queries in cases], points, log=True),
            *spread_charts("4", points, "queries:"),
        ],
    )  # fmt: skip


def _slower_verdict(points: Points, random: Points, who: str) -> Verdict:
    queries = [float(text.replace(",", "")) for text in points.snapshots]

    def each(of: Points, number: str = "per_tuple") -> list[float]:
        values = of.get(per_tuple) if number == "per_tuple" else of.get(lambda one: one.alone / one.tuples)
        return [1000 * value / count for value, count in zip(values, queries, strict=True)]

    def told(values: list[float]) -> str:
        return ", ".join(f"{v:,.0f} at {x}" for v, x in zip(values, points.snapshots, strict=True))

    def slower(of: Points) -> bool:
        return rises(of.get(per_tuple)) and falls(each(of))

    alone = each(points, "alone")
    return Verdict(
        "traffic increases, but slower than the queries",
        f"messages a tuple for 1,000 queries: {told(each(points))}",
        slower(points),
        controls=[
            Control(who, slower(random), told(each(random))),
            # What is left is noise: twice the queries are twice the rewritten ones.
            Control(
                "RJoin if no two rewritten queries share a message",
                falls(alone) and alone[-1] < 0.8 * alone[0],
                told(alone),
            ),
        ],
    )


def _smaller_rate_verdict(points: Points, random: Points, who: str) -> Verdict:
    def factors(of: Points) -> list[float]:
        found = of.get(per_tuple)
        doublings = [
            math.log2(float(b.replace(",", "")) / float(a.replace(",", "")))
            for a, b in zip(list(of.snapshots)[:-1], list(of.snapshots)[1:], strict=True)
        ]
        return [(b / a) ** (1 / d) for a, b, d in zip(found[:-1], found[1:], doublings, strict=True)]

    def told(of: Points) -> str:
        steps = zip(factors(of), list(of.snapshots)[1:], strict=True)
        return "twice the queries: " + ", ".join(
            f"{factor:.2f} times the messages at {x}" for factor, x in steps
        )

    return Verdict(
        "as more queries are indexed, the rate of increase is smaller",
        told(points),
        falls(factors(points)),
        "" if falls(factors(points)) else "twice the queries always cost less than twice the messages, but by about the same factor: shared messages and known rates save "
        "much the same share from some thousand queries on",
        controls=[Control(who, falls(factors(random)), told(random))],
    )  # fmt: skip
