"""One run: the operator over a generated stream, batch by batch, under a virtual clock.

The operator is that of Spark, in one process: it stores, plans, pushes, pays and merges as there. Its tasks are the
paper's machines, and they run one after the other. A batch has the rows of `step_ms` of the stream, and the clock stands
at its end. So results by time follow from the settings and the seed alone. Only seconds are measured: those of the
processor, for each task.

After the last batch comes the paper's clean-up stage: each task gives out what its groups owe. That is the stream's whole
join, or the run fails: every run proves that nothing was lost or came out twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from papers.shared.reproduction import Stopped, Watch
from papers.state.clean_up import pay_all
from papers.state.stream import Stream, Values, count_results
from watersmeet.errors import WatersmeetError
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.model.tally import Tally
from watersmeet.schemes.budget.facts import MOVED, PUSHED, Adaptation, BudgetPlan
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.budget.scheme import stretches

INPUTS = "abc"
SCHEMA = pa.schema({"k": pa.int64()})
# A stored row: eight bytes of join value, and its share of what a file has besides.
ROW_BYTES = 10
# A budget that no run reaches: the groups and their statistics are there, and nothing is pushed.
UNLIMITED_ROWS = 1 << 40
# The virtual time at which all streams begin: any that is not zero.
_BEGIN_MS = 1_000_000_000
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Case:
    """A run: a stream of some minutes in batches, machines, and how each keeps to `memory_rows` of state.

    `strategy` is "hash" for the same join without partition groups.
    """

    stream: Stream
    minutes: float
    tasks: int = 1
    memory_rows: int = UNLIMITED_ROWS
    pushing: Pushing = field(default_factory=Pushing)
    step_ms: int = 10_000
    strategy: str = "budget"

    @property
    def batches(self) -> int:
        return round(self.minutes * MINUTE_MS / self.step_ms)


@dataclass(frozen=True, slots=True)
class CaseRun:
    """What came out. Arrays have a line for each batch: its end in minutes, results of all batches so far, and of each
    task the rows and bytes that it may touch. `seconds` are those of the processor, by task.

    The last fields are the clean-up's: results and seconds by task.
    """

    minutes: np.ndarray
    results: np.ndarray
    active_rows: np.ndarray
    active_bytes: np.ndarray
    seconds: np.ndarray
    events: tuple[Adaptation, ...]
    owed: tuple[int, ...]
    owed_s: tuple[float, ...]

    @property
    def total(self) -> int:
        """The results of the normal run."""
        return int(self.results[-1])

    @property
    def full(self) -> int:
        return self.total + sum(self.owed)

    @property
    def share(self) -> float:
        return self.total / self.full

    @property
    def moves(self) -> int:
        return sum(event.what == MOVED for event in self.events)

    @property
    def pushes(self) -> int:
        return sum(event.what == PUSHED for event in self.events)

    @property
    def pushing_tasks(self) -> tuple[int, ...]:
        return tuple(sorted({event.task for event in self.events if event.what == PUSHED}))

    def minute_of(self, event: Adaptation) -> float:
        return (event.at_ms - _BEGIN_MS) / MINUTE_MS

    def first_push(self) -> float | None:
        """The minute of the first push."""
        return next((self.minute_of(event) for event in self.events if event.what == PUSHED), None)

    def at(self, minute: float) -> int:
        """Results up to a time."""
        return int(self.results[np.searchsorted(self.minutes, minute + 1e-9, side="right") - 1])

    def first_over(self, rows: int) -> float | None:
        """The minute at which a task had more than `rows` rows of active state."""
        over = np.flatnonzero(self.active_rows.max(axis=1) > rows)
        return float(self.minutes[over[0]]) if len(over) else None


class _Clock:
    """The end of the batch that runs, in seconds."""

    def __init__(self) -> None:
        self.now_ms = _BEGIN_MS

    def __call__(self) -> float:
        return self.now_ms / 1000


def run_case(case: Case, folder: Path, watch: Watch, stop: Event) -> CaseRun:
    """Run the stream, then the clean-up. `folder` must not exist."""
    clock, budget = _Clock(), case.strategy == "budget"
    join = LocalJoin(
        dict.fromkeys(INPUTS, SCHEMA),
        on="a.k = b.k AND b.k = c.k",
        select=["a.k"],
        state=str(folder),
        tasks=case.tasks,
        strategy=case.strategy,
        memory=case.memory_rows * ROW_BYTES if budget else None,
        pushing=case.pushing,
        clock=clock,
        run=uuid.uuid4().hex,
    )
    came: list[list[Values]] = []
    results, rows, sizes, seconds = [], [], [], np.zeros(case.tasks)
    events: list[Adaptation] = []
    for number in range(case.batches):
        if stop.is_set():
            raise Stopped("stopped")
        begin = number * case.step_ms
        drawn = [case.stream.draw(i, begin, begin + case.step_ms) for i in range(len(INPUTS))]
        came.append(drawn)
        clock.now_ms = _BEGIN_MS + begin + case.step_ms
        emitted, manifest = _batch(join, number, drawn, seconds)
        results.append(emitted)
        if budget:
            plan = _plan_of(manifest)
            rows.append([load.active_rows for load in plan.loads])
            sizes.append([load.active_bytes for load in plan.loads])
            events += [event for event in plan.events if event.batch == number]
        watch.batch(number + 1, case.batches)
    owed, owed_s = _clean_up(join, folder, manifest) if budget else ((0,), (0.0,))
    run = CaseRun(
        np.arange(1, case.batches + 1) * case.step_ms / MINUTE_MS,
        np.cumsum(results),
        np.array(rows),
        np.array(sizes),
        seconds,
        tuple(events),
        owed,
        owed_s,
    )
    expected = count_results([np.concatenate([drawn[i] for drawn in came]) for i in range(len(INPUTS))])
    if run.full != expected:
        raise WatersmeetError(
            f"the join has {expected:,} results; {run.total:,} came out and {sum(owed):,} were owed"
        )
    return run


def _batch(
    join: LocalJoin, number: int, drawn: Sequence[Values], seconds: np.ndarray
) -> tuple[int, Manifest]:
    """Run one batch, task by task; its results and manifest."""
    operator, batch = join.operator, BatchId(join.query, join.run, number)
    told = [
        operator.ingest(batch, name, 0, join.arriving(name, pa.table({"k": values})))
        for name, values in zip(INPUTS, drawn, strict=True)
    ]
    emitted = 0
    for task in range(join.tasks):
        began_s = time.process_time()
        manifest = operator.agree_and_merge(batch, task, told)
        emitted += _count(operator.results(manifest, task))
        seconds[task] += time.process_time() - began_s
    return emitted, manifest


def _clean_up(join: LocalJoin, folder: Path, manifest: Manifest) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """What the groups of each task owe, and the seconds that it takes to give that out."""
    spec, plan = join.operator.spec, _plan_of(manifest)
    owed, seconds = [], []
    for task in range(join.tasks):
        # A reader of its own: no task profits from what another one has opened.
        reader = RunReader(LocalFiles(folder / join.name / join.query), spec.settings.limits)
        began_s = time.process_time()
        owed.append(
            sum(
                _count(pay_all(reader, manifest, spec.kernel, range_, Tally(), spec.settings.limits))
                for range_ in stretches(plan.groups, plan.owners, task)
            )
        )
        seconds.append(time.process_time() - began_s)
    return tuple(owed), tuple(seconds)


def _plan_of(manifest: Manifest) -> BudgetPlan:
    plan = manifest.plan.scheme
    assert isinstance(plan, BudgetPlan)
    return plan


def _count(results: Iterable[pa.RecordBatch]) -> int:
    return sum(result.num_rows for result in results)
