"""Figures 5g and 5h: load and time as the optimal mapping comes closer to the square."""

from __future__ import annotations

from papers.adaptive.model import MB, Cluster, Outcome, simulate_rows
from papers.adaptive.operators import DYNAMIC, STATICMID, STATICOPT
from papers.adaptive.trials import Measured, Size
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

_CELLS, _RIGHT_ROWS = 64, 60_000_000
_SHAPES = ((1, 64), (2, 32), (4, 16), (8, 8))
_ORDER = (STATICMID, DYNAMIC, STATICOPT)
_NAMES = [f"({n}, {m})" for n, m in _SHAPES]


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


def _gaps(figure: str) -> list[float]:
    mid, dynamic = _runs(STATICMID), _runs(DYNAMIC)
    return [getattr(a, figure) / getattr(b, figure) for a, b in zip(mid, dynamic, strict=True)]


def _gap_verdict(what: str, gaps: list[float]) -> Verdict:
    return Verdict(
        f"the gap in {what} to STATICMID closes as the optimum comes closer to the square",
        "STATICMID / DYNAMIC: " + ", ".join(f"{gap:.2f}" for gap in gaps),
        gaps == sorted(gaps, reverse=True) and abs(gaps[-1] - 1) < 0.05,
    )


def fig5g(measured: Measured, size: Size) -> Exhibit:
    optimal = max(a.max_bytes / b.max_bytes for a, b in zip(_runs(DYNAMIC), _runs(STATICOPT), strict=True))
    verdicts = [
        _gap_verdict("load", _gaps("max_bytes")),
        Verdict(
            "DYNAMIC takes the optimal mapping early",
            f"its final load is {optimal:.3f} times STATICOPT's or less",
            optimal < 1.01,
        ),
    ]
    return _exhibit(
        "fig5g", "Figure 5g: load by optimal mapping", "MB on the fullest machine", "max_bytes", MB, verdicts
    )


def fig5h(measured: Measured, size: Size) -> Exhibit:
    slower = _runs(DYNAMIC)[-1].seconds / _runs(STATICOPT)[-1].seconds
    verdicts = [
        _gap_verdict("time", _gaps("seconds")),
        Verdict(
            "where the square is optimal, DYNAMIC is slightly slower: adapting costs a little",
            f"{slower:.3f} times STATICOPT's time",
            1.001 <= slower < 1.1,
            "nothing is sampled or sent for statistics here, so a grid that does not migrate costs nothing",
        ),
    ]
    return _exhibit("fig5h", "Figure 5h: time by optimal mapping", "seconds", "seconds", 1.0, verdicts)
