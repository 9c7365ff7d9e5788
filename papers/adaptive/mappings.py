"""Figures 5g and 5h: load and time as the optimal mapping comes closer to the square."""

from __future__ import annotations

from papers.adaptive.model import MB, Cluster, Outcome, simulate_rows
from papers.adaptive.operators import DYNAMIC, STATICMID, STATICOPT, static
from papers.adaptive.trials import Measured, Size
from papers.shared.exhibit import Control, Exhibit, Lines, Series, Table, Verdict

_CELLS, _RIGHT_ROWS = 64, 60_000_000
_SHAPES = ((1, 64), (2, 32), (4, 16), (8, 8))
_ORDER = (STATICMID, DYNAMIC, STATICOPT)
_NAMES = [f"({n}, {m})" for n, m in _SHAPES]
# The mapping is there "at early stages": before this share of the input has come, and the load is then STATICOPT's.
_EARLY, _OPTIMAL = 0.1, 1.01


def _runs(operator: str) -> list[Outcome]:
    """The smaller input grows until the shape is the best one; 60M rows of the other, few results."""
    cluster = Cluster(_CELLS)
    return [simulate_rows(operator, _RIGHT_ROWS * n // m, _RIGHT_ROWS, 0.0, cluster) for n, m in _SHAPES]


def _exhibit(
    name: str, title: str, ylabel: str, figure: str, unit: float, verdicts: list[Verdict]
) -> Exhibit:
    values = {o: [float(getattr(run, figure)) / unit for run in _runs(o)] for o in _ORDER}
    rows = [[shape, *(f"{values[o][n]:,.0f}" for o in _ORDER)] for n, shape in enumerate(_NAMES)]
    lines = [Series(o, o, list(range(len(_SHAPES))), values[o]) for o in _ORDER]
    return Exhibit(
        name,
        title,
        "Simulated: 64 machines, 60 million rows of the larger input, the smaller one as large as the mapping wants it.",
        [Table(ylabel, ["optimal mapping", *_ORDER], rows)],
        verdicts,
        [
            Lines(
                title.replace("Figure ", ""),
                "optimal mapping",
                ylabel,
                lines,
                ticks=list(range(len(_SHAPES))),
                tick_names=_NAMES,
            )
        ],
    )


def _gaps(figure: str, operator: str) -> list[float]:
    """How many times as much STATICMID has as another."""
    pairs = zip(_runs(STATICMID), _runs(operator), strict=True)
    return [getattr(mid, figure) / getattr(other, figure) for mid, other in pairs]


def _closes(gaps: list[float]) -> bool:
    return gaps == sorted(gaps, reverse=True) and abs(gaps[-1] - 1) < 0.05


def _gap_verdict(what: str, figure: str) -> Verdict:
    gaps, static_gaps = _gaps(figure, DYNAMIC), _gaps(figure, STATICOPT)
    return Verdict(
        f"the gap in {what} to STATICMID closes as the optimum comes closer to the square",
        f"STATICMID / DYNAMIC: {_list(gaps)}",
        _closes(gaps),
        controls=[static(STATICOPT, _closes(static_gaps), f"STATICMID / STATICOPT: {_list(static_gaps)}")],
    )


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _early_verdict() -> Verdict:
    settled = [
        run.progress.migrations[-1].end_rows / run.rows if run.progress.migrations else 0.0
        for run in _runs(DYNAMIC)
    ]
    worst = {
        o: max(a.max_bytes / b.max_bytes for a, b in zip(_runs(o), _runs(STATICOPT), strict=True))
        for o in (DYNAMIC, STATICMID)
    }
    return Verdict(
        "DYNAMIC takes the optimal mapping early",
        f"its last migration ends after at most {max(settled):.1%} of the input, and its final load is at most "
        f"{worst[DYNAMIC]:.3f} times STATICOPT's",
        max(settled) <= _EARLY and worst[DYNAMIC] < _OPTIMAL,
        controls=[static(STATICMID, worst[STATICMID] < _OPTIMAL, f"{worst[STATICMID]:.2f} times STATICOPT's load")],
    )  # fmt: skip


def fig5g(measured: Measured, size: Size) -> Exhibit:
    return _exhibit(
        "fig5g",
        "Figure 5g: load by optimal mapping",
        "MB on the fullest machine",
        "max_bytes",
        MB,
        [_gap_verdict("load", "max_bytes"), _early_verdict()],
    )


def fig5h(measured: Measured, size: Size) -> Exhibit:
    slower = _runs(DYNAMIC)[-1].seconds / _runs(STATICOPT)[-1].seconds
    verdicts = [
        _gap_verdict("time", "seconds"),
        Verdict(
            "where the square is optimal, DYNAMIC is slightly slower: adapting costs a little",
            f"{slower:.3f} times STATICOPT's time",
            None,
            "the model has no cost of statistics, so that a grid that does not migrate costs nothing: nothing else could come out",
            controls=[Control("no policy at all", False, "it has no cost of adapting either")],
        ),
    ]
    return _exhibit("fig5h", "Figure 5h: time by optimal mapping", "seconds", "seconds", 1.0, verdicts)
