"""Figures 5 and 6: more skew, longer joins."""

from __future__ import annotations

from papers.rjoin.cases import Runs, Size, controls, fig5_cases, fig6_cases
from papers.rjoin.views import (
    HOW,
    Points,
    falls,
    fullest,
    grows_verdict,
    hits,
    pattern_verdict,
    per_tuple,
    random_for,
    ric_per_tuple,
    spread_charts,
    stored,
    table_of,
    traffic_chart,
)
from papers.shared.exhibit import Control, Exhibit, Verdict

# "Slightly": from the least to the most skew no more than twice. "A large portion" of the network: four fifths.
SLIGHTLY, LARGE = 2.0, 0.8


def fig5(runs: Runs, size: Size) -> Exhibit:
    points = Points.of(fig5_cases(size), runs)
    own = Points.of(fig5_cases(size, own_ranks=True), runs)
    random = Points.of(controls(size, fig5_cases(size)), runs)
    who = random_for(size.controls)
    other = "RJoin where attributes have frequent values of their own"
    work = {"hits": hits, "stored": stored, "messages a tuple": per_tuple}
    return Exhibit(
        "fig5",
        "Figure 5: more skew",
        f"{HOW} {size.queries:,} 4-way queries, {size.tuples:,} tuples each.",
        [
            table_of("as skew grows", "skew", points),
            table_of("the same, each attribute with frequent values of its own", "skew", own),
        ],
        [
            grows_verdict(
                "the more skew, the more work: all metrics increase",
                points,
                work,
                other,
                own,
                "requests become fewer faster than queries become more",
            ),
            grows_verdict("the fullest node has more load", points, {"hits": fullest}, who, random),
            _large_verdict(points, random, who),
            pattern_verdict(
                "the load of skew is shared out with the same pattern",
                points,
                other,
                own,
                "the more skew, the more of all rewritten queries have the keys of frequent values",
            ),
            _requests_verdict(points, own, other),
            _slight_verdict(points, random, who),
        ],
        [traffic_chart("5", "skew", list(size.thetas), points), *spread_charts("5", points, "skew")],
    )


def _large_verdict(points: Points, random: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"nodes hit: {of.say(lambda one: float(one.working))}"

    def large(of: Points) -> bool:
        last = list(of.snapshots.values())[-1]
        return last.working >= LARGE * len(last.hits)

    return Verdict(
        "even with much skew a large portion of the network is used",
        told(points),
        large(points),
        controls=[Control(who, large(random), told(random))],
    )


def _requests_verdict(points: Points, own: Points, other: str) -> Verdict:
    def told(of: Points) -> str:
        return f"messages of requests a tuple: {of.say(ric_per_tuple)}"

    return Verdict(
        "the cost of requests for rates decreases with skew",
        told(points),
        falls(points.get(ric_per_tuple)),
        controls=[Control(other, falls(own.get(ric_per_tuple)), told(own))],
    )


def _slight_verdict(points: Points, random: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"messages a tuple: {of.say(per_tuple)}"

    def slightly(of: Points) -> bool:
        found = of.get(per_tuple)
        return 1 < found[-1] / found[0] <= SLIGHTLY

    agrees = slightly(points)
    return Verdict(
        "the total cost slightly increases with skew",
        told(points),
        agrees,
        "" if agrees else "judged from the least to the most skew, at most twice",
        controls=[Control(who, slightly(random), told(random))],
    )


def fig6(runs: Runs, size: Size) -> Exhibit:
    points = Points.of(fig6_cases(size), runs, "{}-way".format)
    random = Points.of(controls(size, fig6_cases(size)), runs, "{}-way".format)
    who = random_for(size.controls)
    return Exhibit(
        "fig6",
        "Figure 6: longer joins",
        f"{HOW} {size.queries:,} queries, {size.tuples:,} tuples each.",
        [table_of("as joins become longer", "queries", points)],
        [
            *(
                grows_verdict(f"longer joins need more {what}", points, {what: number}, who, random)
                for what, number in (
                    ("traffic", per_tuple),
                    ("query processing", hits),
                    ("storage", stored),
                )
            ),
            pattern_verdict(
                "the extra load is shared in a similar way",
                points,
                who,
                random,
                "the longer a join, the more of its rewritten queries have been made by frequent values",
            ),
            _all_nodes_verdict(points, random, who),
        ],
        [
            traffic_chart("6", "relations of a query", [float(ways) for ways in size.ways], points),
            *spread_charts("6", points, ""),
        ],
    )


def _all_nodes_verdict(points: Points, random: Points, who: str) -> Verdict:
    def told(of: Points) -> str:
        return f"nodes hit: {of.say(lambda one: float(one.working))}"

    def as_many(of: Points) -> bool:
        found = of.get(lambda one: float(one.working))
        return min(found) >= 0.98 * max(found)

    return Verdict(
        "as many nodes share it",
        told(points),
        as_many(points),
        controls=[Control(who, as_many(random), told(random))],
    )
