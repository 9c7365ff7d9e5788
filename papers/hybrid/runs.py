"""Single runs: readings of a machine that always has rows to take, and of one whose rows come slowly.

A reading is a whole turn over the relation, from one read of its first page to the next, or several: a page near the
beginning of the relation has a large part of all rows waiting on it, so that a part of a turn says little. INLJ, where one
step is like the other, is read for a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from threading import Event

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from papers.hybrid.equations import CostConstants
from papers.hybrid.machines import Tally, Watched, capacity_of, make_machine
from papers.hybrid.model import Observed, equation_gain, predict
from papers.hybrid.relation import Relation
from papers.hybrid.results import HYBRIDJOIN, INLJ, Service, Slow
from papers.hybrid.steps import StepJoin
from papers.shared.reproduction import Stopped
from watersmeet.errors import WatersmeetError

# Rows that HYBRIDJOIN takes for each page while it is filled, in units of memory / pages: more than the 2 that a read answers
# at most where rows wait on every page.
_FILLING = 3
_NEARLY_FULL = 0.05
# Turns over the relation that filling may take. One does it, unless there are so few pages that a read answers most of what
# there is: such a machine is full whenever it takes rows, and never after it.
_FILLING_ROUNDS = 10
# Long beside a turn, some ten milliseconds, and short beside the times in which a shared machine gets slower or faster.
_SLICE_S, _INDEX_SLICE_S = 0.2, 0.05


class Run:
    """One algorithm over an open relation, with a budget."""

    def __init__(self, algorithm: str, relation: Relation, budget_bytes: int, stop: Event):
        self.algorithm, self.relation = algorithm, relation
        self.held_rows = capacity_of(relation, budget_bytes)
        self.readings: list[Tally] = []
        self._before = Tally()
        self._watched = Watched(make_machine(algorithm, relation, budget_bytes), relation)
        self._stop = stop

    @property
    def reads(self) -> npt.NDArray[np.int64]:
        """Of each page, since the beginning."""
        return self._watched.machine.counters.reads

    def warm_up(self, rounds: int = 2) -> None:
        """Until the machine is as it will stay: filled, and around the relation with all rows in their places.

        HYBRIDJOIN is filled little by little. If all rows came at once, all pages would be asked for at once, and it would
        take many turns over the relation until those that are seldom asked for come up at different times again.
        """
        if self.algorithm == HYBRIDJOIN:
            pages = len(self.relation.index)
            most = max(1, _FILLING * self.held_rows // pages)
            for _ in range(_FILLING_ROUNDS * pages):
                if self._watched.machine.room <= self.held_rows * _NEARLY_FULL:
                    break
                self._turn(most)
        # The first time ends with the next read of the first page, wherever the machine is.
        for _ in range(rounds):
            self.read()
        self.readings.clear()

    def read(self, least_s: float = 0.0) -> Tally:
        """Another reading."""
        self.begin()
        while not self.advance(math.inf, least_s):
            pass
        return self.end()

    def begin(self) -> None:
        self._before = self._watched.tally.copy()

    def advance(self, slice_s: float, least_s: float) -> bool:
        """Go on with the reading for about so long; True if it is at its end."""
        reads, started = self._watched.machine.counters.reads, time.perf_counter()
        while True:
            first = reads[0]
            self._turn()
            around = self.algorithm == INLJ or reads[0] != first
            if around and (self._watched.tally - self._before).seconds >= least_s:
                return True
            if time.perf_counter() - started > slice_s:
                return False

    def end(self) -> Tally:
        self.readings.append(self._watched.tally - self._before)
        return self.readings[-1]

    def service(self, rows: int, page_rows: int, constants: CostConstants) -> Service:
        """All readings together."""
        seconds = sum(reading.seconds for reading in self.readings)
        turns = sum(reading.turns for reading in self.readings)
        answered = sum(reading.answered for reading in self.readings)
        waited_s = sum(reading.waited_s for reading in self.readings)
        return Service(
            page_rows,
            self.held_rows,
            [reading.answered / reading.seconds for reading in self.readings],
            answered / turns,
            seconds / turns,
            sum(reading.reading_s for reading in self.readings) / turns,
            # The rows that INLJ has at hand are still outside: it takes one into memory at a time.
            seconds / turns if self.algorithm == INLJ else waited_s / answered,
            sum(reading.unused for reading in self.readings) / turns,
            predict(self.algorithm, constants, rows, self.held_rows, page_rows),
            equation_gain(constants, rows, self.held_rows, page_rows),
        )

    def observed(self, page_rows: int) -> Observed:
        """The last reading, for the calibration."""
        last = self.readings[-1]
        rest_s = last.stepping_s - last.reading_s
        return Observed(
            page_rows, last.answered / last.turns, last.taking_s / last.turns, rest_s / last.turns
        )

    def _turn(self, most: int | None = None) -> None:
        if self._stop.is_set():
            raise Stopped("stopped")
        self._watched.turn(most)


def read_together(runs: Sequence[Run], least_s: float) -> None:
    """A reading of each, in slices by turns, so that a machine that is slower for a while is so for all of them."""
    for run in runs:
        run.begin()
    going = [run for run in runs if run.algorithm != INLJ]
    while going:
        going = [run for run in going if not run.advance(_SLICE_S, least_s)]
        for run in runs:
            # Its steps are all alike, and a few in each round are enough.
            if run.algorithm == INLJ:
                run.advance(_INDEX_SLICE_S, math.inf)
    for run in runs:
        run.end()


def time_reads(relation: Relation, count: int, rng: np.random.Generator) -> float:
    """Mean seconds of a read of a page anywhere."""
    before = relation.reading_s
    for page in rng.integers(0, len(relation.index), count):
        relation.read(int(page))
    return (relation.reading_s - before) / count


def run_slow(
    machine: StepJoin,
    rows: pa.RecordBatch,
    at: npt.NDArray[np.float64],
    counted_rows: int,
    stop: Event,
    disk_s: float = 0.0,
) -> Slow:
    """Rows that arrive at the seconds `at` of a virtual clock, which goes on by what each step really takes the processor.

    `disk_s` is what a disk adds to each page read: it passes on the clock only. Where nothing can be done it goes on to the next arrival that changes that. The first `counted_rows` count: MESHJOIN
    answers a row only after many more have come, and has rows left in the end.
    """
    counters, now, taken, delay_s, counted = machine.counters, 0.0, 0, 0.0, 0
    steps: list[float] = []
    while True:
        if stop.is_set():
            raise Stopped("stopped")
        arrived = int(np.searchsorted(at, now, side="right"))
        before, read, started = counters.steps, counters.reads.sum(), time.process_time()
        if arrived > taken:
            taken += machine.offer(rows.slice(taken, arrived - taken))
        machine.step()
        if counters.steps == before:
            # MESHJOIN waits for all rows of a step, the others for any.
            awaited = taken + (machine.room if machine.pending_rows else 1) - 1
            if awaited >= len(at):
                break
            now = max(now, float(at[awaited]))
            continue
        now += time.process_time() - started + disk_s * int(counters.reads.sum() - read)
        steps.append(now)
        answered = counters.last[counters.last < counted_rows]
        delay_s += float((now - at[answered]).sum())
        counted += len(answered)
    if counted != min(counted_rows, len(at)):
        raise WatersmeetError(f"{counted:,} of {counted_rows:,} rows were answered")
    return Slow(delay_s / counted, (steps[-1] - steps[0]) / max(1, len(steps) - 1))
