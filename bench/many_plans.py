"""The hypercube's own plan of a batch, timed on runs with real keys (`python -m bench many --only plan`)."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.many_state import SEED
from bench.report import NO_TARGET, Finding
from bench.zipf_runs import ZipfRuns
from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.schemes.hypercube.census import Stored
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.plan import plan_cube

MOST_CUBE_MS = 3.0

PLANNED_TASKS, PLANNED_ROWS = 48, 200_000
# Batches in which a plan makes the first, larger effort (`FIRST` in schemes/hypercube/suspects.py), and those after them
# that are judged. All runs of an input become one after each `MERGE_EVERY` batches.
FIRST_BATCHES, TIMED, MERGE_EVERY = 3, 15, 5
# Times that the first batches are planned, each time from nothing.
FIRST_TIMES = 5
# Batches whose rows are live in the windowed case. With each batch the oldest one leaves, so no count can be kept from
# the plan before and every batch makes the first effort.
WINDOW = 5


def cube_plans(say: Callable[[str], None], rows: int, alphas: Sequence[float]) -> list[Finding]:
    """Plan batches of 48 tasks, for keys from even to very skewed, in few or many partitions."""
    findings = []
    for partitions in (2, 8):
        for alpha in alphas:
            name = f"hypercube: plan of {PLANNED_TASKS} tasks, {partitions} partitions, Zipf {alpha:g}"
            plans = Plans(PLANNED_TASKS, partitions, rows, alpha)
            spent, plan = plans.timed(FIRST_BATCHES + TIMED)
            steady = statistics.median(spent[FIRST_BATCHES:])
            shown = f"{steady:.2f} ms ({len(plan.heavy)} heavy keys)"
            findings.append(Finding(name, f"under {MOST_CUBE_MS:.0f} ms", shown, steady < MOST_CUBE_MS))
            first = [plans.timed(FIRST_BATCHES)[0] for _ in range(FIRST_TIMES)]
            batches = [statistics.median(times) for times in zip(*first, strict=True)]
            shown = f"{', '.join(f'{ms:.2f}' for ms in batches)} ms"
            findings.append(Finding(f"{name}, each of the first batches", NO_TARGET, shown, None))
            spent, plan = plans.timed(WINDOW + TIMED, WINDOW)
            windowed = statistics.median(spent[WINDOW:])
            shown = f"{windowed:.2f} ms ({len(plan.heavy)} heavy keys)"
            findings.append(Finding(f"{name}, window of {WINDOW} batches", NO_TARGET, shown, None))
    say(
        f"the hypercube's own plan: {rows:,} rows of each input a batch, CPU time, median of {TIMED} "
        f"batches; all runs of an input become one every {MERGE_EVERY} batches, in the window none do. Keys are in memory: "
        "fetching runs is not in the time. The target is for a stream that runs: the first batches, and every batch of a "
        "window, look at more keys, since no plan before knows the history"
    )
    return findings


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans of streams with the same keys."""

    tasks: int
    partitions: int
    rows: int
    alpha: float

    def timed(self, batches: int, window: int | None = None) -> tuple[list[float], CubePlan]:
        """CPU ms of the plan of each batch, and the last plan. With a window nothing is merged: its runs leave soon."""
        shelf = ZipfRuns(self.alpha, self.tasks, SEED)
        old: dict[str, list[Run]] = {"l": [], "r": []}
        plan, spent = None, []
        for number in range(batches):
            new = {side: self._arriving(shelf, side, number) for side in old}
            gc.freeze()
            began = time.process_time()
            stored = {side: Stored(old[side], new[side]) for side in old}
            plan = plan_cube(plan, stored, shelf.keys, self.tasks, number)
            spent.append(1e3 * (time.process_time() - began))
            old = {side: [*old[side], *new[side]] for side in old}
            if window is not None:
                # With the next batch so many are live.
                old = {
                    side: [run for run in runs if run.batch > number + 1 - window]
                    for side, runs in old.items()
                }
            elif number % MERGE_EVERY == MERGE_EVERY - 1:
                old = {side: [_all_in_one(shelf, side, runs)] for side, runs in old.items()}
            shelf.forget_all_but(run.path for runs in old.values() for run in runs)
        assert plan is not None
        return spent, plan

    def _arriving(self, shelf: ZipfRuns, side: str, number: int) -> list[Run]:
        return [
            shelf.store(side, number, f"p{part:05d}", shelf.draw(self.rows // self.partitions))
            for part in range(self.partitions)
        ]


def _all_in_one(shelf: ZipfRuns, side: str, runs: Sequence[Run]) -> Run:
    keys = shelf.merged([run.path for run in runs], KeyRange(0, KEY_SPACE))
    return shelf.store(side, runs[-1].batch, "m", keys)
