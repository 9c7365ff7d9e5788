"""Figures 5k and 5l: arrival that alternates between k times and 1/k times as many rows."""

from __future__ import annotations

import functools

import numpy as np

from papers.adaptive import paper
from papers.adaptive.model import ROW_S, ROWS_PER_GB, Cluster, Outcome, simulate_path
from papers.adaptive.trials import FLUCT_K, Measured, Size, fluct_trial
from papers.shared.arrival import alternating
from papers.shared.exhibit import Exhibit, Lines, Series, Table, Verdict

_CELLS, _GIGABYTES, _CHUNKS = 64, 8, 1000
_FACTORS = (2, 4, 6, 8)
# Sums of floats may pass a bound by their rounding.
_ROUNDING = 1e-9


@functools.cache
def _run(k: int) -> Outcome:
    left, right = (_GIGABYTES * rows for rows in ROWS_PER_GB["Fluct"])
    return simulate_path(alternating(left, right, k, paper.FLUCT_FIRST_ROWS // 2), Cluster(_CELLS), _CHUNKS)


def fig5k(measured: Measured, size: Size) -> Exhibit:
    run = measured[fluct_trial(FLUCT_K)]
    progress = _run(FLUCT_K).progress
    percent = 100 * progress.fraction
    spark_x = [100 * (n + 1) / len(run.reads) for n in range(len(run.reads))]
    spark_ratio = [batch.ratio for batch in run.reads]
    highest = {k: float(_run(k).progress.ratio.max()) for k in _FACTORS}
    rows = [
        [f"k = {k}", f"{highest[k]:.3f}", str(len(_run(k).progress.migrations)), "1.25"] for k in _FACTORS
    ]
    epochs = {batch.grid.epoch for batch in run.reads if batch.grid is not None}
    rows.append([f"k = {FLUCT_K}, on Spark", f"{max(spark_ratio):.3f}", str(len(epochs) - 1), "1.25"])
    total = float(progress.rows[-1])
    return Exhibit(
        "fig5k",
        "Figure 5k: load against the optimum while arrival alternates",
        f"Simulated: 8 GB, lineitem x orders, 64 machines. Measured on Spark: the same arrival at scale {size.scale:g}, 64 cells, "
        f"{size.fluct_batches} micro-batches, from the manifests.",
        [Table("largest ratio of the load to the optimal one", ["arrival", "ratio", "migrations", "paper: at most"], rows)],
        [
            Verdict(
                "the ratio never exceeds 1.25",
                f"at most {max(highest.values()):.3f} simulated, {max(spark_ratio):.3f} after any batch on Spark",
                max(*highest.values(), *spark_ratio) <= paper.RATIO_BOUND + _ROUNDING,
            )
        ],
        [
            Lines(
                f"5k: k = {FLUCT_K}, 64 joiners",
                "input processed (%, log)",
                "lineitem rows / orders rows (log)",
                [
                    Series("rows, left axis", "sizes", percent.tolist(), (progress.left_rows / np.maximum(progress.right_rows, 1)).tolist()),
                    Series("load / optimum, simulated", "ratio", percent.tolist(), progress.ratio.tolist(), right=True),
                    Series("load / optimum, Spark", "spark", spark_x, spark_ratio, right=True, dashed=True),
                ],
                ylabel_right="load / optimal load",
                shaded=[(100 * m.begin_rows / total, 100 * m.end_rows / total) for m in progress.migrations],
                shaded_name="migration",
                bound=paper.RATIO_BOUND,
                bound_name="bound: 1.25",
                log_x=True,
                log_y=True,
            )
        ],
    )  # fmt: skip


def fig5l(measured: Measured, size: Size) -> Exhibit:
    runs = {k: _run(k) for k in _FACTORS}
    linear = {k: float(np.corrcoef(r.progress.fraction, r.progress.time)[0, 1]) for k, r in runs.items()}
    moved = {k: sum(m.moved_rows for m in r.progress.migrations) / _CELLS for k, r in runs.items()}
    received = {k: _received(r) for k, r in runs.items()}
    rows = [
        [f"k = {k}", f"{runs[k].seconds:,.0f}", f"{linear[k]:.4f}", f"{received[k]:,.0f}", f"{moved[k]:,.0f}"]
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
                ],
                rows,
            )
        ],
        [
            Verdict(
                "time stays linear in the input, whatever k",
                f"correlation at least {min(linear.values()):.4f}",
                min(linear.values()) > 0.95,
            ),
            Verdict(
                "migration is amortised: a constant number of rows for each one received",
                f"at most {share:.2f} migrated for each received",
                share <= 6,
                "Lemma 4.5 allows 6",
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
