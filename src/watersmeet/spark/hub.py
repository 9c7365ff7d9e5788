"""A hub as a DataFrame transform: streams and commands in, the answers of all queries out.

    stream R ── columns, time of the batch ── mapInArrow(ingest) ─┐
    stream S ── columns, time of the batch ── mapInArrow(ingest) ─┼─ repartitionById ── mapInArrow(answer)
    commands ── op, id, sql ───────────────── mapInArrow(ingest) ─┘

The time of a batch is Spark's own, which the offset log keeps: a replay finds the same one again.
"""

from __future__ import annotations

import functools
import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.config import read_session, session_conf
from watersmeet.engine.hub_operator import HubOperator, HubSpec
from watersmeet.engine.inputs import check_names
from watersmeet.errors import UsageError
from watersmeet.hub.stored import COMMAND_COLUMNS
from watersmeet.log.descriptors import decode_told
from watersmeet.log.probe import probe
from watersmeet.spark.frames import quoted, schema_of
from watersmeet.spark.micro_batch import micro_batch
from watersmeet.spark.tasks import DESCRIPTOR_SCHEMA, raise_refusal, task_context, to_all_tasks
from watersmeet.spark.worker import acknowledge_at_once, keep_modules

# The arriving column with the time of the batch. It is not stored.
_NOW: Final = "__wm_now"
_OUT: Final = "query string, event string, batch bigint, oldest timestamp, newest timestamp, answer string, message string"


def hub_answers(
    streams: Mapping[str, DataFrame],
    queries: Mapping[str, str] | None = None,
    commands: DataFrame | None = None,
    *,
    state: str | None = None,
    name: str = "hub",
    tasks: int | None = None,
    times: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> DataFrame:
    """The answers of many queries over some streams, and what becomes of commands, as one streaming DataFrame.

    `queries` are given at the start, by id. `commands` is a streaming DataFrame with the columns `op` (add, remove),
    `id` and `sql`. `times` names the column with the publication time of a stream's rows. Without one it is the time
    of their batch.
    """
    _check(streams, commands, times or {})
    first = next(iter(streams.values()))
    settings = read_session(session_conf(first.sparkSession), state=state, tasks=tasks, options=options)
    operator = settings.operator()
    probe(operator.storage)
    spec = HubSpec(
        name,
        uuid.uuid4().hex,
        {stream: schema_of(stream, frame) for stream, frame in streams.items()},
        operator,
        dict(times or {}),
        tuple((queries or {}).items()),
        int(time.time() * 1000),
        settings.sql.ansi,
        settings.sql.case_sensitive,
    )
    told = [_ingested(frame, stream, spec) for stream, frame in streams.items()]
    if commands is not None:
        plain = commands.select(*(F.col(column).cast("string").alias(column) for column in COMMAND_COLUMNS))
        told.append(plain.mapInArrow(CommandTask(spec), DESCRIPTOR_SCHEMA))
    placed = functools.reduce(DataFrame.unionByName, told).repartitionById(operator.tasks, F.col("task"))
    return placed.mapInArrow(AnswerTask(spec), _OUT)


def _check(streams: Mapping[str, DataFrame], commands: DataFrame | None, times: Mapping[str, str]) -> None:
    if not streams:
        raise UsageError('a hub needs streams by name, such as {"R": r, "S": s}')
    check_names(streams)
    for name, frame in [*streams.items(), *([("commands", commands)] if commands is not None else [])]:
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(f"{name} is a {type(frame).__name__}, not a Spark DataFrame")
        if not frame.isStreaming:
            raise UsageError(f"{name} is not streaming: a hub reads streams")
    if commands is not None:
        missing = [column for column in COMMAND_COLUMNS if column not in commands.columns]
        if missing:
            raise UsageError(f"the commands have no column {missing[0]}: they need op, id and sql")
    for name, column in times.items():
        kinds = dict(streams[name].dtypes) if name in streams else {}
        if column not in kinds:
            raise UsageError(f"time names {name}.{column}, which is not a column of a stream")
        if not kinds[column].startswith("timestamp"):
            raise UsageError(f"the time {name}.{column} is {kinds[column]}: a hub needs a timestamp")


def _ingested(frame: DataFrame, stream: str, spec: HubSpec) -> DataFrame:
    columns = [F.col(quoted(column)) for column in frame.columns]
    timed = frame.select(*columns, F.current_timestamp().alias(_NOW))
    return timed.mapInArrow(StreamTask(spec, stream), DESCRIPTOR_SCHEMA)


@dataclass(frozen=True)
class StreamTask:
    """`mapInArrow` over one stream: stores the partition and sends its descriptor to every task."""

    spec: HubSpec
    stream: str

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        context = task_context()
        raise_refusal(context)
        batch = micro_batch(context.getLocalProperty)
        first = next(incoming, None)
        at_us, rows = 0, iter(())
        if first is not None and first.num_rows:
            at_us = first.column(_NOW)[0].cast(pa.timestamp("us", "UTC")).value
            rows = (part.drop_columns([_NOW]) for part in itertools.chain([first], incoming))
        operator = HubOperator(self.spec, time.time)
        told = operator.ingest(batch, self.stream, context.partitionId(), rows, at_us)
        yield to_all_tasks(self.spec.settings.tasks, told)


@dataclass(frozen=True)
class CommandTask:
    """`mapInArrow` over the commands."""

    spec: HubSpec

    def __call__(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        context = task_context()
        raise_refusal(context)
        operator, batch = HubOperator(self.spec, time.time), micro_batch(context.getLocalProperty)
        told = operator.command(batch, context.partitionId(), incoming)
        yield to_all_tasks(self.spec.settings.tasks, told)


@dataclass(frozen=True)
class AnswerTask:
    """`mapInArrow` over the descriptors: yields this task's share of the answers."""

    spec: HubSpec

    def __call__(self, descriptors: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_modules()
        acknowledge_at_once()
        context = task_context()
        raise_refusal(context)
        schema = pa.schema({"task": pa.int32(), "descriptor": pa.binary()})
        received = pa.Table.from_batches(descriptors, schema)
        operator, batch = HubOperator(self.spec, time.time), micro_batch(context.getLocalProperty)
        named = sorted(set(received.column("task").to_pylist()))
        # Spark may stop after any answer, so all tasks merge and clean up before the first.
        agreed = []
        for task in named or [context.partitionId() % self.spec.settings.tasks]:
            mine = received.filter(pc.equal(received.column("task"), task))
            told = [decode_told(row) for row in mine.column("descriptor").to_pylist()]
            agreed.append((task, operator.agree_and_merge(batch, task, told)))
        for task, manifest in agreed:
            yield from operator.results(manifest, task)
