"""Where a batch spends its time: Spark's progress, its event log and the notes of Python workers, put together.

Spark reports how long each step of a batch took on the driver, in the order in which it takes them. Its event log says
when each task was started and ended. A worker's notes (`timeline_daemon.py`) say what it did meanwhile.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# The steps of a batch on the driver, in order: Spark's names, and ours.
STEPS = {
    "latestOffset": "find files",
    "walCommit": "log of offsets",
    "getBatch": "plan",
    "queryPlanning": "plan",
    "addBatch": "run",
    "commitOffsets": "log of commits",
}
# The last span of a task.
GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Span:
    """Something from one moment to another, in milliseconds since its batch began."""

    label: str
    begin_ms: float
    end_ms: float
    cpu_ms: float = 0.0

    @property
    def ms(self) -> float:
        return self.end_ms - self.begin_ms


@dataclass(frozen=True, slots=True)
class Task:
    """A task of Spark: `stage` counts from 0 within its batch. `parts` are of its Python worker, without overlaps.

    `unpack_ms` is how long the executor took to decode the task, `shuffle_ms` how long it wrote what is shuffled.
    """

    stage: int
    begin_ms: float
    end_ms: float
    jvm_cpu_ms: float
    unpack_ms: float
    shuffle_ms: float
    parts: tuple[Span, ...]

    @property
    def ms(self) -> float:
        return self.end_ms - self.begin_ms

    @property
    def worker_ms(self) -> tuple[float, float]:
        """When the worker began, and when it had told the JVM that it is done: it collects garbage after that."""
        done = [part.begin_ms for part in self.parts if part.label == GARBAGE]
        return self.parts[0].begin_ms, done[-1] if done else self.parts[-1].end_ms


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: the steps on the driver one after the other, and the tasks."""

    number: int
    ms: float
    steps: tuple[Span, ...]
    tasks: tuple[Task, ...]

    @property
    def stages(self) -> list[tuple[float, float]]:
        """When each stage had its first task, and when its last one ended."""
        found = defaultdict(list)
        for task in self.tasks:
            found[task.stage].append(task)
        return [
            (min(task.begin_ms for task in tasks), max(task.end_ms for task in tasks))
            for _, tasks in sorted(found.items())
        ]


def read_batches(
    progress: Sequence[Mapping[str, Any]], events: Iterable[str], notes: Iterable[str]
) -> list[Batch]:
    """The batches of one start of a query, from its progress, the lines of the event log and those of the workers."""
    noted = {one["task"]: one["spans"] for one in map(json.loads, notes)}
    tasks = _tasks_by_batch(events, {str(one["runId"]) for one in progress})
    return [_batch(one, tasks.get(one["batchId"], []), noted) for one in progress]


def _tasks_by_batch(events: Iterable[str], runs: set[str]) -> dict[int, list[dict[str, Any]]]:
    """The task-end events of each batch."""
    batch_of_stage: dict[int, int] = {}
    found = defaultdict(list)
    for line in events:
        if '"SparkListenerJobStart"' in line:
            job = json.loads(line)
            properties = job.get("Properties", {})
            if properties.get("streaming.sql.batchId") and properties.get("spark.jobGroup.id") in runs:
                batch_of_stage |= dict.fromkeys(job["Stage IDs"], int(properties["streaming.sql.batchId"]))
        elif '"SparkListenerTaskEnd"' in line:
            task = json.loads(line)
            if task["Stage ID"] in batch_of_stage:
                found[batch_of_stage[task["Stage ID"]]].append(task)
    return found


def _batch(progress: Mapping[str, Any], events: Sequence[dict[str, Any]], noted: Mapping[int, Any]) -> Batch:
    began_ms = 1000 * datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    durations = progress["durationMs"]
    at, steps = 0.0, []
    for name, label in STEPS.items():
        steps.append(Span(label, at, at + durations.get(name, 0)))
        at = steps[-1].end_ms
    stages = {number: place for place, number in enumerate(sorted({one["Stage ID"] for one in events}))}
    tasks = [_task(one, stages[one["Stage ID"]], began_ms, noted) for one in events]
    tasks.sort(key=lambda task: (task.stage, task.begin_ms))
    return Batch(progress["batchId"], durations.get("triggerExecution", 0), tuple(steps), tuple(tasks))


def _task(event: Mapping[str, Any], stage: int, began_ms: float, noted: Mapping[int, Any]) -> Task:
    info, metrics = event["Task Info"], event.get("Task Metrics") or {}
    nanos = metrics.get("Executor CPU Time", 0) + metrics.get("Executor Deserialize CPU Time", 0)
    spans = [
        Span(label, 1000 * begin - began_ms, 1000 * end - began_ms, 1000 * cpu)
        for label, begin, end, cpu in noted.get(info["Task ID"], ())
    ]
    return Task(
        stage,
        info["Launch Time"] - began_ms,
        info["Finish Time"] - began_ms,
        nanos / 1e6,
        metrics.get("Executor Deserialize Time", 0),
        metrics.get("Shuffle Write Metrics", {}).get("Shuffle Write Time", 0) / 1e6,
        innermost(spans),
    )


def innermost(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Nested spans as spans side by side: each moment belongs to the innermost one that holds it.

    >>> [(one.label, one.ms) for one in innermost([Span("a", 0, 10, 8), Span("b", 2, 5, 3), Span("c", 3, 4, 1)])]
    [('a', 2), ('b', 1), ('c', 1), ('b', 1), ('a', 5)]
    >>> [one.cpu_ms for one in innermost([Span("a", 0, 10, 8), Span("b", 2, 5, 3)])]
    [5, 3, 0.0]
    """
    # Of two that begin together the longer one is outside.
    ordered = sorted(spans, key=lambda one: (one.begin_ms, -one.end_ms))
    inner_cpu: dict[int, float] = defaultdict(float)
    for place, span in enumerate(ordered):
        outside = [at for at in range(place) if ordered[at].end_ms >= span.end_ms]
        if outside:
            inner_cpu[outside[-1]] += span.cpu_ms
    moments = sorted({moment for one in ordered for moment in (one.begin_ms, one.end_ms)})
    found: list[Span] = []
    paid: set[int] = set()
    for begin, end in itertools.pairwise(moments):
        holding = [at for at, one in enumerate(ordered) if one.begin_ms <= begin and one.end_ms >= end]
        if not holding:
            continue
        at = holding[-1]
        # The CPU time of a span that is cut by others stands with its first piece.
        cpu = 0.0 if at in paid else max(0.0, ordered[at].cpu_ms - inner_cpu[at])
        paid.add(at)
        found.append(Span(ordered[at].label, begin, end, cpu))
    return tuple(found)


def shares_of(batches: Sequence[Batch]) -> dict[str, float]:
    """The mean milliseconds of a batch by where they go: they add up to the batch.

    A moment within `run` belongs to the driver if no task runs, and to the stage that runs otherwise.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for batch in batches:
        parts: dict[str, float] = defaultdict(float)
        for step in batch.steps:
            parts[step.label] += step.ms
        stages = batch.stages
        in_tasks = 0.0
        for number, (begin, end) in enumerate(stages):
            parts[f"stage {number + 1}"] = end - begin
            in_tasks += end - begin
        parts["driver, around the tasks"] = parts.pop("run", 0.0) - in_tasks
        parts["between the steps"] = batch.ms - sum(step.ms for step in batch.steps)
        for label, ms in parts.items():
            found[label].append(ms)
    return {label: sum(values) / len(batches) for label, values in found.items()}


def python_of(batches: Sequence[Batch]) -> dict[str, tuple[float, float]]:
    """Of all tasks of a batch together, by what workers do: mean milliseconds, and of them CPU."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for part in (part for batch in batches for task in batch.tasks for part in task.parts):
        found[part.label][0] += part.ms / len(batches)
        found[part.label][1] += part.cpu_ms / len(batches)
    return {label: (ms, cpu) for label, (ms, cpu) in found.items()}


def typical(batches: Sequence[Batch]) -> Batch:
    """The batch whose time is the median."""
    middle = statistics.median_low(batch.ms for batch in batches)
    return next(batch for batch in batches if batch.ms == middle)
