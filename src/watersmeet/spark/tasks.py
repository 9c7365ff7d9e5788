"""What runs inside Spark's Python workers: thin callables around the operator.

They are pickled into the query with a `JoinSpec`, ask Spark which batch this is, and hand everything to
`engine/`. A descriptor travels to every join task as one row of JSON.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from watersmeet.engine.operator import Operator
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import WatersmeetError
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.model.facts import BatchId, Descriptor
from watersmeet.spark.garbage import keep_modules
from watersmeet.spark.sockets import acknowledge_at_once

DESCRIPTOR_SCHEMA = "task int, descriptor binary"
_DESCRIPTORS = pa.schema({"task": pa.int32(), "descriptor": pa.binary()})


@dataclass(frozen=True)
class IngestTask:
    """`mapInArrow` over one input: stores the partition and tells every join task what it stored."""

    spec: JoinSpec
    input: str

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        context = _context()
        operator = Operator(self.spec, time.time)
        descriptor = operator.ingest(_batch(self.spec, context), self.input, context.partitionId(), incoming)
        tasks = self.spec.settings.tasks
        columns = [pa.array(range(tasks), pa.int32()), pa.array([encode_checked(descriptor)] * tasks)]
        yield pa.RecordBatch.from_arrays(columns, schema=_DESCRIPTORS)


@dataclass(frozen=True)
class JoinTask:
    """`mapInArrow` over the descriptors: the results of this task's share of the batch."""

    spec: JoinSpec

    def __call__(self, descriptors: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        acknowledge_at_once()
        received = pa.Table.from_batches(descriptors, _DESCRIPTORS)
        batch = _batch(self.spec, _context())
        operator = Operator(self.spec, time.time)
        for task in self._tasks(received):
            mine = received.filter(pc.equal(received.column("task"), task))
            yield from operator.join(
                batch, task, [_decode(row) for row in mine.column("descriptor").to_pylist()]
            )

    def _tasks(self, received: pa.Table) -> list[int]:
        """The tasks that this partition stands for; the rows say it, since Spark may put several into one.

        A batch without new rows still leaves a manifest: so that after a restart a missing one is known to
        be lost, and not merely a batch that had nothing for this join.
        """
        named = sorted(set(received.column("task").to_pylist()))
        return named or [_context().partitionId() % self.spec.settings.tasks]


def _decode(content: bytes) -> Descriptor:
    return decode_checked(Descriptor, content, "a descriptor in the shuffle")


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise WatersmeetError("a Watersmeet task was called outside Spark")
    return context


def _batch(spec: JoinSpec, context: TaskContext) -> BatchId:
    """Which micro-batch this task belongs to. A batch join is a batch of its own, whatever it runs in."""
    if not spec.streaming:
        execution = context.getLocalProperty("spark.sql.execution.id") or "0"
        return BatchId(query=f"{BATCH_FOLDER}{spec.instance}-{execution}", run="batch", number=0)
    number = context.getLocalProperty("streaming.sql.batchId")
    query = context.getLocalProperty("sql.streaming.queryId")
    run = context.getLocalProperty("spark.jobGroup.id")
    if not number or not query or not run:
        raise WatersmeetError(
            "Spark did not say which micro-batch this task belongs to. If a foreachBatch function evaluates its "
            "DataFrame in a thread of its own, start that thread as pyspark.InheritableThread, or persist the "
            "DataFrame first"
        )
    return BatchId(query=query, run=run, number=int(number))
