"""Figures 5i and 5j: data and joiners grow together, in memory and with state on disk."""

from __future__ import annotations

from papers.adaptive import paper
from papers.adaptive.model import Cluster, Outcome, simulate
from papers.adaptive.operators import DYNAMIC
from papers.adaptive.trials import Measured, Size
from papers.shared.exhibit import Chart, Exhibit, Lines, Series, Table, Verdict

_JOINS = ("EQ5", "EQ7", "B_NCI")
_CELLS = (16, 32, 64, 128)
# GB for 16 machines; it doubles with them. The paper's largest database is 640 GB.
_IN_MEMORY_GB, _ON_DISK_GB = 10, 80


def _runs(query: str, first_gb: int) -> list[Outcome]:
    return [
        simulate(DYNAMIC, query, first_gb * cells // _CELLS[0], Cluster(cells, paper.HEAP_BYTES))
        for cells in _CELLS
    ]


def _names(first_gb: int) -> list[str]:
    return [f"{first_gb * cells // _CELLS[0]} GB / {cells}" for cells in _CELLS]


def _growth(query: str) -> float:
    """Of the load, from 20 GB on 32 machines to 40 GB on 64."""
    loads = [run.max_bytes for run in _runs(query, _IN_MEMORY_GB)]
    return loads[2] / loads[1] - 1


def _tables(figure: str, unit: float, form: str) -> list[Table]:
    tables = []
    for title, first_gb in (("in memory", _IN_MEMORY_GB), ("state beyond memory", _ON_DISK_GB)):
        rows = [
            [q, *(form.format(getattr(run, figure) / unit) for run in _runs(q, first_gb))] for q in _JOINS
        ]
        tables.append(Table(f"DYNAMIC, {title}", ["query", *_names(first_gb)], rows))
    return tables


def _charts(letter: str, figure: str, unit: float, ylabel: str) -> list[Chart]:
    return [
        Lines(
            f"5{letter}: DYNAMIC, {title}",
            "data / machines",
            f"{ylabel} (log)",
            [
                Series(
                    q,
                    q,
                    list(range(len(_CELLS))),
                    [getattr(run, figure) / unit for run in _runs(q, first_gb)],
                )
                for q in _JOINS
            ],
            log_y=True,
            ticks=list(range(len(_CELLS))),
            tick_names=_names(first_gb),
        )
        for title, first_gb in (("in memory", _IN_MEMORY_GB), ("state beyond memory", _ON_DISK_GB))
    ]


_HOW = "Simulated: machines of 2 GB for state; work on state beyond that takes ten times as long (modelled, not run)."


def fig5i(measured: Measured, size: Size) -> Exhibit:
    others = {q: _growth(q) for q in _JOINS[:2]}
    time = {q: _runs(q, _IN_MEMORY_GB)[-1].seconds / _runs(q, _IN_MEMORY_GB)[0].seconds for q in _JOINS}
    return Exhibit(
        "fig5i",
        "Figure 5i: time as data and machines grow",
        _HOW,
        _tables("seconds", 1.0, "{:,.0f}"),
        [
            Verdict(
                "B_NCI's load grows by 42 % from 20 GB / 32 to 40 GB / 64",
                f"{_growth('B_NCI'):.0%}",
                abs(_growth("B_NCI") - paper.GROWTH_B_NCI) < 0.02,
            ),
            Verdict(
                "that of the other joins by 9 % at most",
                ", ".join(f"{q} {g:.1%}" for q, g in others.items()),
                max(others.values()) <= paper.GROWTH_OTHERS,
            ),
            Verdict(
                "EQ5 and EQ7 scale almost perfectly",
                ", ".join(f"{q} {t:.2f}" for q, t in time.items())
                + " times the time at 8 times the data and machines",
                max(time["EQ5"], time["EQ7"]) < 1.15,
            ),
        ],
        _charts("i", "seconds", 1.0, "seconds"),
    )


def fig5j(measured: Measured, size: Size) -> Exhibit:
    gain = {q: _runs(q, _IN_MEMORY_GB)[-1].throughput / _runs(q, _IN_MEMORY_GB)[0].throughput for q in _JOINS}
    drop = [
        memory.throughput / disk.throughput
        for q in _JOINS
        for disk, memory in zip(_runs(q, _ON_DISK_GB), _runs(q, _IN_MEMORY_GB), strict=True)
    ]
    return Exhibit(
        "fig5j",
        "Figure 5j: throughput as data and machines grow",
        _HOW,
        _tables("throughput", 1e3, "{:,.0f}"),
        [
            Verdict(
                "throughput doubles with data and machines for EQ5 and EQ7, less for B_NCI",
                ", ".join(f"{q} {g:.1f}" for q, g in gain.items()) + " times at 8 times the machines",
                min(gain["EQ5"], gain["EQ7"]) > 7 and gain["B_NCI"] < gain["EQ5"],
            ),
            Verdict(
                "on disk it drops by an order of magnitude",
                f"{min(drop):.1f} to {max(drop):.1f} times lower",
                max(drop) >= paper.OUT_OF_CORE_TIMES / 2,
                "the paper does not say how much data that was; in the model only the part beyond 2 GB is slow, and the factor of ten is set",
            ),
        ],
        _charts("j", "throughput", 1e3, "thousand rows a second"),
    )
