"""The callables inside Spark's Python workers, a thin layer around the operator.

They are pickled into the query with a `JoinSpec`, ask Spark which batch this is, and hand everything to `engine/`. A
descriptor, or a notice of it (`log/descriptors.py`), travels to every join task as one row.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from watersmeet.engine.batch_join import id_for_ingest, id_for_join
from watersmeet.engine.operator import Operator
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.together import InputSlots, separated
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.log.descriptors import Told, decode_told, encode_told
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.spark.micro_batch import micro_batch
from watersmeet.spark.trigger import trigger_ms
from watersmeet.spark.worker import acknowledge_at_once, keep_modules

# A setting of a query's own session: why its tasks must not run. Spark gives tasks all settings named "spark...".
REFUSAL = "spark.watersmeet.refusal"

DESCRIPTOR_SCHEMA = "task int, descriptor binary"
_DESCRIPTORS = pa.schema({"task": pa.int32(), "descriptor": pa.binary()})


@dataclass(frozen=True)
class IngestTask:
    """`mapInArrow` over one input: stores the partition and sends its descriptor to every join task.

    `columns` are the names of the arriving columns, if they come under others.
    """

    spec: JoinSpec
    input: str
    columns: tuple[str, ...] = ()

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.columns:
            incoming = (rows.rename_columns(list(self.columns)) for rows in incoming)
        return stored(self.spec, self.input, incoming)


def stored(spec: JoinSpec, name: str, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Store the rows of this task's partition of an input, and yield its descriptor, a copy for every join task."""
    keep_modules()
    context = task_context()
    raise_refusal(context)
    operator = Operator(spec, time.time)
    batch = micro_batch(context.getLocalProperty) if spec.streaming else id_for_ingest(spec.instance)
    yield to_all_tasks(spec.settings.tasks, operator.ingest(batch, name, context.partitionId(), incoming))


@dataclass(frozen=True)
class IngestTogether:
    """`mapInArrow` over the rows of several inputs, for streams: as `IngestTask` for each of them.

    There are at most as many partitions as join tasks, and their numbers follow each other. An input whose rows come in
    several turns gets numbers behind them.
    """

    spec: JoinSpec
    inputs: tuple[InputSlots, ...]

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        context = task_context()
        raise_refusal(context)
        operator, batch = Operator(self.spec, time.time), micro_batch(context.getLocalProperty)
        for name, turn, rows in separated(self.inputs, incoming):
            partition = context.partitionId() + turn * self.spec.settings.tasks
            yield to_all_tasks(self.spec.settings.tasks, operator.ingest(batch, name, partition, rows))


def to_all_tasks(tasks: int, told: Told) -> pa.RecordBatch:
    """What an ingest task tells, a copy for every join task."""
    columns = [pa.array(range(tasks), pa.int32()), pa.array([encode_told(told)] * tasks)]
    return pa.RecordBatch.from_arrays(columns, schema=_DESCRIPTORS)


@dataclass(frozen=True)
class JoinTask:
    """`mapInArrow` over the descriptors: yields the results of this task's share of the batch."""

    spec: JoinSpec

    def __call__(self, descriptors: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        acknowledge_at_once()
        raise_refusal(task_context())
        received = pa.Table.from_batches(descriptors, _DESCRIPTORS)
        operator = Operator(self.spec, time.time, trigger_ms(task_context().getLocalProperty))
        # Spark may stop after any result, so all tasks merge and clean up before the first.
        agreed = [(task, self._agree(operator, task, received)) for task in self._tasks(received)]
        for task, manifest in agreed:
            yield from operator.results(manifest, task)

    def _agree(self, operator: Operator, task: int, received: pa.Table) -> Manifest:
        mine = received.filter(pc.equal(received.column("task"), task))
        told = [decode_told(row) for row in mine.column("descriptor").to_pylist()]
        return operator.agree_and_merge(self._batch(told), task, told)

    def _batch(self, told: list[Told]) -> BatchId:
        if self.spec.streaming:
            return micro_batch(task_context().getLocalProperty)
        return id_for_join(self.spec.instance, told)

    def _tasks(self, received: pa.Table) -> list[int]:
        """The tasks of this partition. The rows name them, since Spark may put several into one partition.

        A batch without new rows still leaves a manifest. So after a restart a missing manifest is known to be lost, and
        not merely a batch that had nothing for this join.
        """
        named = sorted(set(received.column("task").to_pylist()))
        return named or [task_context().partitionId() % self.spec.settings.tasks]


def raise_refusal(context: TaskContext) -> None:
    """Raise if the session says why its tasks must not run."""
    reason = context.getLocalProperty(REFUSAL)
    if reason:
        raise ConfigError(reason)


def task_context() -> TaskContext:
    """Spark's context of this task."""
    context = TaskContext.get()
    if context is None:
        raise WatersmeetError("a Watersmeet task was called outside Spark")
    return context
