"""Figures 5k and 5l: arrival that alternates between k times and 1/k times as many rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from papers.adaptive import paper
from papers.adaptive.model import ROW_S, ROWS_PER_GB, Cluster, Outcome, simulate_path
from papers.adaptive.operators import DYNAMIC, STATICMID, static
from papers.adaptive.sim.optimum import least_load, load
from papers.adaptive.trials import FLUCT_KS, Measured, Size, fluct_trial
from papers.shared.arrival import alternating
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict
from papers.shared.reads import BatchReads

_CELLS, _GIGABYTES, _CHUNKS = 64, 8, 1000
_FACTORS = (2, 4, 6, 8)
_SQUARE = (8, 8)
# Sums of floats may pass a bound by their rounding.
_ROUNDING = 1e-9
# Time is linear in the input above this correlation; Lemma 4.5 allows this number of migrated rows for each one received.
_STRAIGHT, _MOST_MIGRATED = 0.95, 6


@functools.cache
def _run(k: int, operator: str = DYNAMIC) -> Outcome:
    left, right = (_GIGABYTES * rows for rows in ROWS_PER_GB["Fluct"])
    path = alternating(left, right, k, paper.FLUCT_FIRST_ROWS // 2)
    return simulate_path(operator, path, Cluster(_CELLS), _CHUNKS)


def _highest(operator: str) -> dict[int, float]:
    """The largest ratio to the optimum, by k."""
    return {k: float(_run(k, operator).progress.ratio.max()) for k in _FACTORS}


def _within(ratios: Iterable[float]) -> bool:
    return max(ratios) <= paper.RATIO_BOUND + _ROUNDING


def fig5k(measured: Measured, size: Size) -> Exhibit:
    reads = {k: measured.runs[fluct_trial(k)].reads for k in FLUCT_KS}
    spark = {k: max(map(ratio_of, found)) for k, found in reads.items()}
    square = {k: max(ratio_of(batch, _SQUARE) for batch in found) for k, found in reads.items()}
    highest, static_highest = _highest(DYNAMIC), _highest(STATICMID)
    simulated_rows = [
        [f"k = {k}", f"{highest[k]:.3f}", str(len(_run(k).progress.migrations)), f"{static_highest[k]:.3f}"]
        for k in _FACTORS
    ]
    spark_rows = [
        [f"k = {k}, on Spark", f"{spark[k]:.3f}", str(_epochs(found) - 1), f"{square[k]:.3f}"]
        for k, found in reads.items()
    ]
    return Exhibit(
        "fig5k",
        "Figure 5k: load against the optimum while arrival alternates",
        f"Simulated: 8 GB, lineitem x orders, 64 machines. Measured on Spark: the same arrival at scale {size.scale:g}, 64 cells, "
        f"{size.fluct_batches} micro-batches, from the manifests. The optimum is the best of all mappings, tried one by one without "
        "the planner. STATICMID on Spark: the square mapping over the same rows, not run.",
        [
            Table(
                "largest ratio of the load to the optimal one",
                ["arrival", "ratio", "migrations", "ratio of STATICMID", "paper: at most"],
                [[*row, f"{paper.RATIO_BOUND:g}"] for row in (*simulated_rows, *spark_rows)],
            )
        ],
        [
            _bound_verdict("simulated", highest, static_highest),
            _bound_verdict("on Spark after any batch", spark, square),
        ],
        [_ratio_chart(k, reads[k]) for k in FLUCT_KS],
    )


def ratio_of(batch: BatchReads, shape: tuple[int, int] | None = None) -> float:
    """The load against that of the best mapping for all that has arrived, in bytes, for one group; or that of another mapping."""
    assert batch.grid is not None and batch.shape is not None
    left, right = batch.grid.left.bytes, batch.grid.right.bytes
    return load(*(shape or batch.shape), left, right) / least_load(batch.grid.cells, left, right)


def _epochs(reads: Sequence[BatchReads]) -> int:
    return len({batch.grid.epoch for batch in reads if batch.grid is not None})


def _bound_verdict(where: str, found: Mapping[int, float], square: Mapping[int, float]) -> Verdict:
    return Verdict(
        f"the ratio never exceeds {paper.RATIO_BOUND:g}",
        f"{where}: {_by_k(found)}",
        _within(found.values()),
        controls=[static(STATICMID, _within(square.values()), _by_k(square))],
    )


def _ratio_chart(k: int, reads: Sequence[BatchReads]) -> Lines:
    progress = _run(k).progress
    percent, total = (100 * progress.fraction).tolist(), float(progress.rows[-1])
    spark_x = [100 * (n + 1) / len(reads) for n in range(len(reads))]
    sizes = (progress.left_rows / np.maximum(progress.right_rows, 1)).tolist()
    static_ratio = _run(k, STATICMID).progress
    return Lines(
        f"5k: k = {k}, 64 joiners",
        "input processed (%, log)",
        "lineitem rows / orders rows (log)",
        [
            Series("rows, left axis", "sizes", percent, sizes),
            Series("load / optimum, simulated", "ratio", percent, progress.ratio.tolist(), right=True),
            Series(
                "the same of STATICMID",
                STATICMID,
                (100 * static_ratio.fraction).tolist(),
                static_ratio.ratio.tolist(),
                right=True,
            ),
            Series(
                "load / optimum, Spark", "spark", spark_x, list(map(ratio_of, reads)), right=True, dashed=True
            ),
        ],
        ylabel_right="load / optimal load",
        shaded=[(100 * m.begin_rows / total, 100 * m.end_rows / total) for m in progress.migrations],
        shaded_name="migration",
        bound=paper.RATIO_BOUND,
        bound_name=f"bound: {paper.RATIO_BOUND:g}",
        log_x=True,
        log_y=True,
    )


def _by_k(values: Mapping[int, float], form: str = "{:.3f}") -> str:
    return ", ".join(f"{form.format(value)} with k = {k}" for k, value in values.items())


def _linear(operator: str) -> float:
    """The least correlation of time and input, over all k."""
    runs = (_run(k, operator).progress for k in _FACTORS)
    return min(float(np.corrcoef(run.fraction, run.time)[0, 1]) for run in runs)


def fig5l(measured: Measured, size: Size) -> Exhibit:
    runs = {k: _run(k) for k in _FACTORS}
    moved = {k: sum(m.moved_rows for m in r.progress.migrations) / _CELLS for k, r in runs.items()}
    received = {k: _received(r) for k, r in runs.items()}
    rows = [
        [
            f"k = {k}",
            f"{runs[k].seconds:,.0f}",
            f"{np.corrcoef(runs[k].progress.fraction, runs[k].progress.time)[0, 1]:.4f}",
            f"{received[k]:,.0f}",
            f"{moved[k]:,.0f}",
            f"{_run(k, STATICMID).seconds:,.0f}",
        ]
        for k in _FACTORS
    ]
    share = max(moved[k] / received[k] for k in _FACTORS)
    return Exhibit(
        "fig5l",
        "Figure 5l: time while arrival alternates",
        "Simulated: 8 GB, lineitem x orders, 64 machines; DYNAMIC begins to adapt after 500,000 rows.",
        [
            Table(
                "whole run",
                [
                    "arrival",
                    "seconds",
                    "correlation of time and input",
                    "rows received by a machine",
                    "rows migrated to it",
                    "seconds of STATICMID",
                ],
                rows,
            )
        ],
        [
            Verdict(
                "time stays linear in the input, whatever k",
                f"correlation at least {_linear(DYNAMIC):.4f}",
                _linear(DYNAMIC) > _STRAIGHT,
                controls=[
                    static(STATICMID, _linear(STATICMID) > _STRAIGHT, f"at least {_linear(STATICMID):.4f}")
                ],
            ),
            Verdict(
                "migration is amortised: a constant number of rows for each one received",
                f"at most {share:.2f} migrated for each received",
                share <= _MOST_MIGRATED,
                f"Lemma 4.5 allows {_MOST_MIGRATED}",
                controls=[static(STATICMID, True, "it migrates none")],
            ),
        ],
        [
            Lines(
                "5l: time by factor of fluctuation, 64 machines",
                "input processed (%)",
                "seconds",
                [
                    Series(
                        f"k = {k}", f"k={k}", (100 * r.progress.fraction).tolist(), r.progress.time.tolist()
                    )
                    for k, r in runs.items()
                ],
            )
        ],
    )


def _received(run: Outcome) -> float:
    """New rows that a machine received: all its time but that for migrated rows, which take half as long each."""
    migrated = sum(m.moved_rows for m in run.progress.migrations) / _CELLS
    return run.seconds / ROW_S - migrated / 2
