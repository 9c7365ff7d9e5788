"""The time of a batch on a cluster, from what its tasks did (`bench/simulate.py`) and what each thing costs.

CPU time of our Python is measured. Times of storage and of Spark are parameters: storage as its documentation and other
people's measurements have it, Spark as docs/benchmarks.md has it on two cores.

A batch takes Spark's own time, then the slowest executor of the ingest stage, then that of the join stage. A task has
several requests under way where the operator does, and otherwise does one thing at a time: it does not join while it
fetches. So what is reported is the chain of tasks that a batch waits for, cut by phase.

Where descriptors are published, task 0 plans and the others look for its manifest now and then (`log/descriptors.py`).
A task that begins with task 0 agrees at its first look after the manifest is there, or plans itself when its turn comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from bench.counted import AGREE, CLEAN, INGEST, JOIN, MERGE, NEW, PHASES, Usage
from bench.simulate import BatchUse, Cluster, TaskUse
from watersmeet.log.descriptors import Notice
from watersmeet.log.manifests import waits
from watersmeet.log.remote import AT_ONCE
from watersmeet.log.turns import PlannedBefore, patience_s
from watersmeet.model.limits import DEFAULT_LIMITS, RETAIN_BATCHES

SPARK, JVM = "Spark", "JVM"
SEGMENTS = (SPARK, JVM, *PHASES)
# Phases whose CPU time grows with the rows.
_BY_ROWS = (INGEST, JOIN, MERGE)


@dataclass(frozen=True, slots=True)
class Storage:
    """Shared storage: seconds of a request (or a round trip), bytes a second of one stream and of all together.

    Not `at_once` is the time if a task had one request under way at a time.
    """

    name: str
    request_s: float
    stream_bytes_s: float
    total_bytes_s: float
    is_file_server: bool = False
    at_once: bool = True

    def seconds(self, usage: Usage, executors: int) -> float:
        """Waiting for storage, while all executors do the same."""
        shared_s = usage.moved_bytes * executors / self.total_bytes_s
        if self.is_file_server:
            return usage.trips * self.request_s + max(usage.moved_bytes / self.stream_bytes_s, shared_s)
        waits, stream = usage.waits, usage.stream_bytes
        if not self.at_once:
            waits, stream = usage.requests, usage.moved_bytes
        return waits * self.request_s + max(stream / self.stream_bytes_s, shared_s)


# A file server over a fast network, and Amazon S3 from a machine in its region (20 ms to the first byte, 100 MB/s a
# connection; all connections together are limited by the machines' network, 10 Gbit/s each).
FILE_SERVER = Storage("file server", 0.0005, 1e9, 5e9, is_file_server=True)
OBJECT_STORE = Storage("object store", 0.02, 1e8, 64 * 1.25e9)


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """Spark's own times, by docs/benchmarks.md: bookkeeping of a batch and of its two stages, launching a task on the
    driver (an assumption), a row to Python, a result of five columns back."""

    batch_s: float = 0.3
    launch_s: float = 0.001
    row_s: float = 740e-9
    result_s: float = 50e-9


SPARK_COSTS = SparkCosts()

Times = dict[str, float]


def task_times(use: TaskUse, storage: Storage, spark: SparkCosts, cluster: Cluster) -> Times:
    """The seconds of one task by segment. Clean-up is left out: it comes once in 16 batches."""
    row_s = spark.row_s if INGEST in use.phases else spark.result_s
    found = {
        phase: usage.cpu_s + storage.seconds(usage, min(cluster.executors, cluster.tasks))
        for phase, usage in use.phases.items()
        if phase != CLEAN
    }
    return {JVM: use.rows * row_s} | found


def stage_times(uses: Sequence[TaskUse], storage: Storage, spark: SparkCosts, cluster: Cluster) -> Times:
    """The segments of the chain of tasks that ends last: each executor takes its next task when a core is free."""
    slots: dict[int, list[Times]] = {}
    planned_s = plan_seconds(uses, storage)
    for number, use in enumerate(uses):
        mine = slots.setdefault(use.executor, [{} for _ in range(cluster.cores)])
        first = min(mine, key=total)
        times = task_times(use, storage, spark, cluster)
        if planned_s and not use.to_agree and not first:
            times[AGREE] += seconds_to_agree(number, len(uses), planned_s)
        for segment, seconds in times.items():
            first[segment] = first.get(segment, 0.0) + seconds
    return max((slot for mine in slots.values() for slot in mine), key=total)


def plan_seconds(uses: Sequence[TaskUse], storage: Storage) -> float:
    """How long the task takes to publish the manifest that the others wait for; 0 if each plans itself.

    While they wait, it has the storage to itself.
    """
    return sum(
        use.waited_s
        + sum(usage.cpu_s + storage.seconds(usage, executors=1) for usage in use.to_agree.values())
        for use in uses
    )


# Any published descriptor makes a task wait for its turn.
_TOLD = (Notice("l", 0, 1, 0, 0, 0, 0, "", ""),)


def seconds_to_agree(task: int, tasks: int, planned_s: float) -> float:
    """How long a task that begins with task 0 looks for a manifest that is published after `planned_s`.

    >>> [seconds_to_agree(1, 64, planned_s) for planned_s in (0.05, 0.2, 0.4, 2.0)]
    [0.1, 0.3, 0.7, 3.2]
    """
    looked_s = 0.0
    for pause_s in waits(patience_s(task, tasks, _TOLD, PlannedBefore.ELSEWHERE)):
        looked_s += pause_s
        if looked_s >= planned_s:
            return round(looked_s, 3)
    return round(looked_s + planned_s, 3)


def batch_times(use: BatchUse, storage: Storage, spark: SparkCosts, cluster: Cluster) -> Times:
    stages = [stage_times(uses, storage, spark, cluster) for uses in (use.ingest, use.join)]
    own = spark.batch_s + spark.launch_s * (len(use.ingest) + len(use.join))
    return {SPARK: own} | {
        segment: sum(stage.get(segment, 0.0) for stage in stages) for segment in SEGMENTS if segment != SPARK
    }


def clean_seconds(uses: Sequence[BatchUse], removed_batches: int, storage: Storage) -> float:
    """A clean-up after as many batches as between two of them, in the task that does it: nobody helps.

    The simulated one removed the files of `removed_batches`. It also keeps no older manifests, which a cleaner on an
    executor that has not cleaned before reads, all that a checkpoint can be rolled back to.
    """
    cleaning = [task.phases[CLEAN] for use in uses for task in use.join if CLEAN in task.phases]
    if not cleaning:
        return 0.0
    last, usage = uses[-1], cleaning[-1]
    share = DEFAULT_LIMITS.clean_every_batches / removed_batches
    rounds = math.ceil(RETAIN_BATCHES / AT_ONCE)
    manifests = Usage(
        requests=RETAIN_BATCHES,
        waits=rounds,
        stream_bytes=last.manifest_bytes * rounds,
        trips=3 * RETAIN_BATCHES,
        fact_bytes=last.manifest_bytes * RETAIN_BATCHES,
        cpu_s=last.manifest_cpu_s * RETAIN_BATCHES,
    )
    return sum(
        (storage.seconds(part, 1) + part.cpu_s) * times for part, times in ((usage, share), (manifests, 1.0))
    )


def mean_times(
    uses: Sequence[BatchUse], removed_batches: int, storage: Storage, spark: SparkCosts, cluster: Cluster
) -> Times:
    """The mean batch. Clean-up is spread over the batches between two of them."""
    found = [batch_times(use, storage, spark, cluster) for use in uses]
    mean = {segment: sum(times[segment] for times in found) / len(found) for segment in SEGMENTS}
    cleaned = clean_seconds(uses, removed_batches, storage) / DEFAULT_LIMITS.clean_every_batches
    return mean | {CLEAN: cleaned}


def total(times: Times) -> float:
    return sum(times.values())


def fixed_cpu(uses: Sequence[BatchUse]) -> Times:
    """CPU seconds of a task with few rows, by phase: what does not grow with them."""
    found: dict[str, list[float]] = {}
    for task in (task for use in uses for task in (*use.ingest, *use.join)):
        for phase, usage in task.phases.items():
            found.setdefault(phase, []).append(usage.cpu_s)
    return {phase: median(seconds) for phase, seconds in found.items()}


def stretched(uses: Sequence[BatchUse], scale: int, fixed: Times) -> list[BatchUse]:
    """The same batches with all rows: the CPU time that grows with the rows, times `scale`."""

    def stretch(phase: str, usage: Usage) -> Usage:
        if phase not in _BY_ROWS:
            return usage
        constant = min(usage.cpu_s, fixed.get(phase, 0.0))
        return replace(usage, cpu_s=constant + (usage.cpu_s - constant) * scale)

    def of(task: TaskUse) -> TaskUse:
        return replace(task, phases={phase: stretch(phase, usage) for phase, usage in task.phases.items()})

    return [replace(use, ingest=[*map(of, use.ingest)], join=[*map(of, use.join)]) for use in uses]


def with_own_rows_only(uses: Sequence[BatchUse], tasks: int) -> list[BatchUse]:
    """What if a task fetched only its share of each new run, in one request, instead of the whole file?"""

    def of(task: TaskUse) -> TaskUse:
        if NEW not in task.phases:
            return task
        usage = task.phases[NEW]
        own = replace(
            usage, run_bytes_read=usage.run_bytes_read // tasks, stream_bytes=usage.stream_bytes / tasks
        )
        return replace(task, phases=task.phases | {NEW: own})

    return [replace(use, join=[*map(of, use.join)]) for use in uses]
