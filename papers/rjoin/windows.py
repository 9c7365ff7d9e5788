"""Figures 7 and 8: sliding windows."""

from __future__ import annotations

import numpy as np

from papers.rjoin.cases import Runs, Size, fig7_cases, fig7_controls
from papers.rjoin.sim.cases import Found
from papers.rjoin.sim.workload import Ints
from papers.rjoin.views import (
    HOW,
    Points,
    grows_verdict,
    hits,
    pattern_verdict,
    per_tuple,
    random_for,
    spread_charts,
    stored,
    table_of,
    traffic_chart,
)
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

# "A constant cost": the second half of the tuples costs no more than this many times the first.
CONSTANT = 1.3
_WINDOW = (
    "A window is counted in tuples: one is published at each unit of time. The rule is the published one, which depends on the order "
    "of evaluation, so answers under a window are not those of an exact one."
)


def _text(window: object) -> str:
    return f"W={window:,}" if window else "none"


def fig7(runs: Runs, size: Size) -> Exhibit:
    points = Points.of(fig7_cases(size), runs, _text)
    random = Points.of(fig7_controls(size), runs, _text)
    who = random_for(size.controls)
    x = [float(window or size.tuples) for window in fig7_cases(size)]
    return Exhibit(
        "fig7",
        "Figure 7: windows",
        f"{HOW} {size.queries:,} 4-way queries, {size.tuples:,} tuples each. {_WINDOW}",
        [table_of("as windows grow", "window", points), _kept_table(points)],
        [
            grows_verdict("larger windows need more traffic", points, {"messages a tuple": per_tuple}, who, random),
            pattern_verdict(
                "the load is shared out with the same pattern at all window sizes",
                points,
                who,
                random,
                "the larger the window, the more of the load are queries that several rows have rewritten, and these gather at frequent values",
            ),
            grows_verdict(
                "with small windows nodes have less data to store",
                points,
                {"kept in the end": lambda one: float(one.kept.sum())},
                who,
                random,
            ),
        ],
        [traffic_chart("7", "window in tuples", x, points, log=True), *spread_charts("7", points, "")],
    )  # fmt: skip


def _kept_table(points: Points) -> Table:
    return Table(
        "storage load in the end",
        ["window", "stored since the start", "kept in the end", "kept"],
        [
            [x, f"{stored(one):,.0f}", f"{one.kept.sum():,}", f"{one.kept.sum() / stored(one):.1%}"]
            for x, one in points.snapshots.items()
        ],
        note="Kept: rewritten queries whose window has not passed, and all tuples.",
    )


def fig8(runs: Runs, size: Size) -> Exhibit:
    cases = fig7_cases(size)
    points = Points.of(cases, runs, _text)
    random = Points.of(fig7_controls(size), runs, _text)
    who = random_for(size.controls)
    return Exhibit(
        "fig8",
        "Figure 8: load as tuples arrive, by window",
        f"{HOW} The runs of Figure 7: all load so far, after each tuple. {_WINDOW}",
        [_halves_table({_text(window): runs[case] for window, case in cases.items()})],
        [
            grows_verdict("larger windows create more query processing load", points, {"hits": hits}, who, random),
            grows_verdict("larger windows create more storage load", points, {"stored": stored}, who, random),
            _constant_verdict(runs[cases[size.windows[0]]], runs[cases[0]], size.windows[0]),
        ],
        [
            _chart("8a: query processing load so far", "hits (log)", {_text(w): runs[c].hits for w, c in cases.items()}),
            _chart("8b: storage load so far", "items stored (log)", {_text(w): runs[c].stored for w, c in cases.items()}),
        ],
    )  # fmt: skip


def _halves(totals: Ints) -> float:
    """The load of the second half of the tuples, divided by that of the first."""
    middle = totals[len(totals) // 2 - 1]
    return float((totals[-1] - middle) / middle)


def _halves_table(found: dict[str, Found]) -> Table:
    return Table(
        "load of the second half of the tuples, first half = 1",
        ["window", "hits", "stored"],
        [[x, f"{_halves(one.hits):.2f}", f"{_halves(one.stored):.2f}"] for x, one in found.items()],
    )


def _constant_verdict(smallest: Found, unbounded: Found, window: int) -> Verdict:
    def told(found: Found) -> str:
        return f"the second half of the tuples makes {_halves(found.hits):.2f} times the hits of the first"

    def constant(found: Found) -> bool:
        return _halves(found.hits) <= CONSTANT

    return Verdict(
        "windows keep the cost of handling tuples steady (section 5)",
        f"W={window}: {told(smallest)}",
        constant(smallest),
        controls=[Control("no window", constant(unbounded), told(unbounded))],
    )


def _chart(title: str, ylabel: str, totals: dict[str, Ints]) -> Lines:
    def every(values: Ints) -> list[float]:
        return values[:: max(1, len(values) // 200)].astype(np.float64).tolist()

    return Lines(
        title,
        "tuples",
        ylabel,
        [
            Series(name, f"line {number}", every(np.arange(1, len(found) + 1)), every(found))
            for number, (name, found) in enumerate(totals.items(), 1)
        ],
        log_y=True,
    )
