"""What the figures share: tables and charts of an axis, and the words for its points."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from papers.rjoin.cases import Axis, Runs
from papers.rjoin.sim.cases import Snapshot, share_of_busiest
from papers.rjoin.sim.workload import Ints
from papers.shared.exhibit import Control, Lines, Series, Table, Verdict

# The patterns of two distributions are the same if the busiest tenth's share differs by no more.
SAME_PATTERN = 0.05
# Points of a log scale that are nearer than this would write their names over each other.
_APART = 1.3
HOW = (
    "Simulated at the paper's sizes: hops and loads are counted, nothing is timed. Traffic: messages that nodes send, routed ones "
    "included; answers, which are the same for all, are not."
)
LOADS = (
    "Hits: rewritten queries and tuples that reach a node. Stored: rewritten queries and tuples at value level. Busiest tenth: its "
    "share of all hits."
)
Number = Callable[[Snapshot], float]


@dataclass(frozen=True, slots=True)
class Points:
    """The last snapshots along an axis. `text` words a point."""

    snapshots: dict[str, Snapshot]

    @classmethod
    def of(cls, cases: Axis, runs: Runs, text: Callable[[object], str] = "{:,}".format) -> Points:
        return cls({text(x): runs[case].last for x, case in cases.items()})

    def get(self, number: Number) -> list[float]:
        return [number(one) for one in self.snapshots.values()]

    def say(self, number: Number, form: str = "{:,.0f}") -> str:
        return ", ".join(f"{form.format(number(one))} at {x}" for x, one in self.snapshots.items())


def rises(values: Iterable[float]) -> bool:
    return all(after > before for before, after in itertools.pairwise(values))


def falls(values: Iterable[float]) -> bool:
    return all(after < before for before, after in itertools.pairwise(values))


def hits(one: Snapshot) -> float:
    return float(one.hits.sum())


def stored(one: Snapshot) -> float:
    return float(one.storage.sum())


def per_tuple(one: Snapshot) -> float:
    return one.per_tuple


def ric_per_tuple(one: Snapshot) -> float:
    return one.ric_per_tuple


def fullest(one: Snapshot) -> float:
    return float(one.fullest)


def pattern(one: Snapshot) -> float:
    return share_of_busiest(one.hits)


def stored_pattern(one: Snapshot) -> float:
    return share_of_busiest(one.storage)


def table_of(title: str, name: str, points: Points, note: str = LOADS) -> Table:
    return Table(
        title,
        [
            name,
            "messages a tuple",
            "of these requests",
            "queries alone",
            "hits",
            "fullest node",
            "nodes hit",
            "busiest tenth",
            "stored",
            "answers",
        ],
        [
            [
                x,
                f"{one.per_tuple:,.0f}",
                f"{one.ric_per_tuple:,.0f}",
                f"{one.alone / one.tuples:,.0f}",
                f"{hits(one):,.0f}",
                f"{one.fullest:,}",
                f"{one.working:,}",
                f"{pattern(one):.0%}",
                f"{stored(one):,.0f}",
                f"{one.answers:,}",
            ]
            for x, one in points.snapshots.items()
        ],
        note=f"Queries alone: messages a tuple that carry queries if no two share one. {note}",
    )


def ranked(loads: Ints) -> tuple[list[float], list[float]]:
    """Nodes from the busiest on, and their loads; idle ones have no place on a log scale."""
    ordered = np.sort(loads)[::-1]
    busy = ordered[ordered > 0]
    return list(range(1, len(busy) + 1)), busy.astype(float).tolist()


def spread_chart(title: str, ylabel: str, loads: Sequence[tuple[str, str, Ints]]) -> Lines:
    """`loads` are name, role and loads by node."""
    return Lines(
        title,
        "nodes, the busiest first",
        f"{ylabel} (log)",
        [Series(name, role, *ranked(found)) for name, role, found in loads],
        log_y=True,
    )


def spread_charts(figure: str, points: Points, name: str) -> list[Lines]:
    def lines(loads: Callable[[Snapshot], Ints]) -> list[tuple[str, str, Ints]]:
        return [
            (f"{name} {x}", f"line {number}", loads(one))
            for number, (x, one) in enumerate(points.snapshots.items(), 1)
        ]

    return [
        spread_chart(f"{figure}b: query processing load", "hits", lines(lambda one: one.hits)),
        spread_chart(f"{figure}c: storage load", "items stored", lines(lambda one: one.storage)),
    ]


def traffic_chart(
    figure: str, xlabel: str, x: Sequence[float], points: Points, *, log: bool = False
) -> Lines:
    names = dict(zip(x, points.snapshots, strict=True))
    shown = [at for at, after in zip(x, [*x[1:], np.inf], strict=True) if not log or after / at >= _APART]
    return Lines(
        f"{figure}a: traffic",
        xlabel + (" (log)" if log else ""),
        "messages a tuple" + (" (log)" if log else ""),
        [
            Series("RJoin, requests included", "RJoin", x, points.get(per_tuple)),
            Series("requests for rates", "requests", x, points.get(ric_per_tuple)),
        ],
        log_x=log,
        log_y=log,
        ticks=shown,
        tick_names=[names[at] for at in shown],
    )


def same_pattern(points: Points, number: Number = pattern) -> bool:
    found = points.get(number)
    return max(found) - min(found) <= SAME_PATTERN


def pattern_verdict(paper: str, points: Points, who: str, control: Points, why: str) -> Verdict:
    """Whether a load is shared out in the same way along the axis, both loads asked."""

    def told(of: Points) -> str:
        return f"the busiest tenth of the nodes has {of.say(pattern, '{:.0%}')} of all hits"

    def alike(of: Points) -> bool:
        return same_pattern(of) and same_pattern(of, stored_pattern)

    agrees = alike(points)
    return Verdict(
        paper,
        told(points),
        agrees,
        "" if agrees else why,
        controls=[Control(who, alike(control), told(control))],
    )


def grows_verdict(
    paper: str, points: Points, numbers: Mapping[str, Number], who: str, control: Points, why: str = ""
) -> Verdict:
    """Whether all these numbers grow along the axis."""

    def told(of: Points) -> str:
        return "; ".join(f"{name}: {of.say(number)}" for name, number in numbers.items())

    def grow(of: Points) -> bool:
        return all(rises(of.get(number)) for number in numbers.values())

    agrees = grow(points)
    return Verdict(
        paper,
        told(points),
        agrees,
        "" if agrees else why,
        controls=[Control(who, grow(control), told(control))],
    )


def random_for(tuples: int) -> str:
    return f"random triples, {tuples:,} tuples,"
