"""A join of 48 tasks in one process, one task after the other: what each of them does, and how long it takes.

The operator is the one that runs on Spark, over the same files; only Spark is not there. From the seconds of single
tasks follows the time that as many workers would need at the same time: in each batch the plan, for which all wait,
and then the slowest task. Not in it: ingest, which is the same for every operator, and whatever workers cost each other. Seconds
are those of the processor: of 48 tasks the slowest counts, and on a shared machine that would be one which had to stand aside.

Results are dropped as they come. Those of a heavy key are views of the same few rows, so that they cost next to nothing
here, and some twenty times as much on Spark as all the rest, which has to be handed each of them: a worker's time is its
own seconds and, for each result, what that costs on Spark.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt

from papers.hypercube.operators import Operator
from papers.shared.arrival import Point
from papers.shared.queries import Inputs
from papers.shared.reads import last_manifest
from papers.shared.reproduction import Stopped
from papers.shared.timed import NAME, STATE
from watersmeet.errors import WatersmeetError
from watersmeet.local.join import LocalJoin, TaskWork
from watersmeet.log.descriptors import Told
from watersmeet.model.facts import BatchId
from watersmeet.model.tally import Tally
from watersmeet.schemes.hypercube.facts import CubePlan, Shape

Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """By batch the seconds of the plan; by batch and task seconds, fresh rows looked up, and results given out.

    `shapes` are the grids of the heavy keys after the last batch, if the operator has any; `handing_s` what it takes Spark
    to be handed a result.
    """

    plan_s: Figures
    seconds: Figures
    probed: Figures
    emitted: Figures
    shapes: tuple[Shape, ...]
    handing_s: float = 0.0

    @property
    def parallel_s(self) -> float:
        """The time of as many workers as tasks."""
        return float((self.plan_s + (self.seconds + self.handing_s * self.emitted).max(axis=1)).sum())

    @property
    def join_s(self) -> float:
        """The same for workers that hand their results to nobody."""
        return float((self.plan_s + self.seconds.max(axis=1)).sum())

    @property
    def balance(self) -> float:
        """The busiest task's work against the mean one's: rows looked up and results given out."""
        work = (self.probed + self.emitted).sum(axis=0)
        return float(work.max() / work.mean())

    @property
    def rows_probed(self) -> int:
        """Each row counts as often as tasks look it up."""
        return int(self.probed.sum())


def fastest(runs: Sequence[TaskRun]) -> TaskRun:
    """Of several runs of the same join each task's best time: what disturbs a run only adds to it."""
    return TaskRun(
        np.min([run.plan_s for run in runs], axis=0),
        np.min([run.seconds for run in runs], axis=0),
        runs[0].probed,
        runs[0].emitted,
        runs[0].shapes,
        runs[0].handing_s,
    )


def handing_cost(joins: Sequence[tuple[int, float]]) -> float:
    """Seconds for a result, from two joins of which one has many more: how many there are, and all seconds.

    In it are the few nanoseconds that the join itself takes for a result. WatersmeetError if the machine was so restless that
    more results took no more time.

    >>> handing_cost([(1_000_000, 1.0), (11_000_000, 1.5)])
    5e-08
    """
    (few, few_s), (many, many_s) = joins
    if many_s <= few_s:
        raise WatersmeetError(
            f"{many:,} results took {many_s:.2f} s on Spark and {few:,} results {few_s:.2f} s: the machine is too busy with other "
            "work to time anything. Run it again when it is quiet"
        )
    return (many_s - few_s) / (many - few)


def run_tasks(
    operator: Operator,
    tasks: int,
    inputs: Inputs,
    ends: Sequence[Point],
    scratch: Path,
    *,
    handing_s: float = 0.0,
    stop: Event | None = None,
    watch: Callable[[int], None] = lambda done: None,
) -> TaskRun:
    """Join all batches. WatersmeetError if not just as many results come out as there are."""
    scratch.mkdir(parents=True, exist_ok=True)
    # A place of its own: this process remembers what it has read of a state, also after its files are gone.
    state = Path(tempfile.mkdtemp(dir=scratch)) / STATE
    try:
        join = LocalJoin(
            {side: table.schema for side, table in inputs.tables.items()},
            on=inputs.query.on,
            select=list(inputs.query.select),
            state=str(state),
            name=NAME,
            **operator.arguments(tasks),
        )
        batches = []
        for number, (before, end) in enumerate(itertools.pairwise([Point(0, 0), *ends])):
            if stop is not None and stop.is_set():
                raise Stopped("stopped")
            batches.append(_run_batch(join, number, inputs, before, end))
            watch(number + 1)
        plan_s, work = zip(*batches, strict=True)
        seconds, probed, emitted = (
            np.array([[getattr(task, figure) for task in tasks] for tasks in work], np.float64)
            for figure in ("seconds", "probed", "emitted")
        )
        if (found := int(emitted.sum())) != inputs.count_results():
            raise WatersmeetError(
                f"{operator.name} gave {found:,} results of {inputs.count_results():,} in {inputs.query.name}"
            )
        cube = last_manifest(state, NAME).plan.scheme
        shapes = tuple(heavy.shape for heavy in cube.heavy) if isinstance(cube, CubePlan) else ()
        return TaskRun(np.array(plan_s), seconds, probed, emitted, shapes, handing_s)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_batch(
    join: LocalJoin, number: int, inputs: Inputs, before: Point, end: Point
) -> tuple[float, list[TaskWork]]:
    """Seconds of the plan, and the work of each task."""
    batch = BatchId(join.query, join.run, number)
    left, right = inputs.query.sides
    spans = {left: (before.left, end.left), right: (before.right, end.right)}
    descriptors = [
        join.operator.ingest(
            batch, side, 0, join.arriving(side, inputs.tables[side].slice(start, stop - start))
        )
        for side, (start, stop) in spans.items()
    ]
    # The first task to come makes the plan; run again, as Spark may run it, it finds the plan made.
    first = _run_task(join, batch, 0, descriptors)
    work = [_run_task(join, batch, task, descriptors) for task in range(join.tasks)]
    return max(0.0, first.seconds - work[0].seconds), work


def _run_task(join: LocalJoin, batch: BatchId, task: int, descriptors: Sequence[Told]) -> TaskWork:
    """As `LocalJoin.batch` does it, but without holding the results."""
    tally, emitted, started = Tally(), 0, time.process_time()
    for result in join.operator.join(batch, task, descriptors, tally):
        emitted += result.num_rows
    return TaskWork(tally.probed_rows, emitted, time.process_time() - started)
