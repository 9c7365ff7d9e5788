"""The hypercube's own plan of a batch, timed on runs with real keys (`python -m bench many --only plan`)."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence

from bench.many_state import SEED
from bench.report import Finding
from bench.zipf_runs import ZipfRuns
from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.schemes.hypercube.census import Stored
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.plan import plan_cube

MOST_CUBE_MS = 3.0

PLANNED_TASKS, PLANNED_ROWS = 48, 200_000
# Batches that are not timed, and those that are. All runs of an input become one after each such number of batches.
WARM_UP, TIMED, MERGE_EVERY = 3, 15, 5


def cube_plans(say: Callable[[str], None], rows: int, alphas: Sequence[float]) -> list[Finding]:
    """Plan batches of 48 tasks, for keys from even to very skewed, in few or many partitions."""
    findings = []
    for partitions in (2, 8):
        for alpha in alphas:
            spent, plan = time_cube(PLANNED_TASKS, partitions, rows, alpha)
            demand = f"hypercube: plan of {PLANNED_TASKS} tasks, {partitions} partitions, Zipf {alpha:g}"
            shown = f"{statistics.median(spent):.2f} ms ({len(plan.heavy)} heavy keys)"
            findings.append(
                Finding(
                    demand, f"under {MOST_CUBE_MS:.0f} ms", shown, statistics.median(spent) < MOST_CUBE_MS
                )
            )
    say(
        f"the hypercube's own plan: {rows:,} rows of each input a batch, CPU time, median of {TIMED} "
        f"batches; all runs of an input become one every {MERGE_EVERY} batches"
    )
    return findings


def time_cube(tasks: int, partitions: int, rows: int, alpha: float) -> tuple[list[float], CubePlan]:
    """CPU ms of each plan after the warm-up, and the last plan."""
    shelf = ZipfRuns(alpha, tasks, SEED)
    old: dict[str, list[Run]] = {"l": [], "r": []}
    plan, spent = None, []
    for number in range(WARM_UP + TIMED):
        new = {
            side: [
                shelf.store(side, number, f"p{part:05d}", shelf.draw(rows // partitions))
                for part in range(partitions)
            ]
            for side in old
        }
        gc.freeze()
        began = time.process_time()
        stored = {side: Stored(old[side], new[side]) for side in old}
        plan = plan_cube(plan, stored, shelf.keys, tasks, number)
        spent.append(1e3 * (time.process_time() - began))
        old = {side: [*old[side], *new[side]] for side in old}
        if number % MERGE_EVERY == MERGE_EVERY - 1:
            old = {side: [_all_in_one(shelf, side, runs)] for side, runs in old.items()}
            shelf.forget_all_but(run.path for runs in old.values() for run in runs)
    assert plan is not None
    return spent[WARM_UP:], plan


def _all_in_one(shelf: ZipfRuns, side: str, runs: Sequence[Run]) -> Run:
    keys = shelf.merged([run.path for run in runs], KeyRange(0, KEY_SPACE))
    return shelf.store(side, runs[-1].batch, "m", keys)
