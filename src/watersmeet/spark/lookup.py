"""A stream joined with a table, as a DataFrame transform.

    stream ── select keys and needed columns ── mapInArrow(ingest) ── repartitionById ── mapInArrow(join)
                                                                                           │
                                                                       pages of the table ─┘

The table is opened, checked and, if need be, sorted here, on the driver, before the query starts. With
`max_delay` a source without rows runs beside the stream (`spark/heartbeat.py`): without it Spark has no batch while
the stream is idle, and rows that wait would wait for the next ones.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from watersmeet.config import read_memory, read_settings, read_sql_settings, session_lookup
from watersmeet.engine.compile_lookup import CompiledLookup, TableSide, columns_needed, compile_lookup
from watersmeet.engine.kept_table import HYBRID, INDEX, MESH, TableSpec, kept_while_rows_wait
from watersmeet.engine.spec import JoinSpec, Settings
from watersmeet.engine.strategy import choose_lookup
from watersmeet.errors import UsageError
from watersmeet.log.files import open_files
from watersmeet.log.probe import probe
from watersmeet.model.expression import Selected
from watersmeet.model.lookup import TableVersion
from watersmeet.model.types import Schema, parse_type
from watersmeet.plan.pages import READ_ROWS, PagePolicy
from watersmeet.predicate import is_fixed_zone, normal_zone, parse_predicate, parse_select
from watersmeet.spark.frames import ingested, joined, schema_of
from watersmeet.spark.heartbeat import heartbeat
from watersmeet.spark.request import Request
from watersmeet.spark.table_frames import Frames, shown_progress
from watersmeet.tables.prepare import prepare
from watersmeet.tables.source import PreparedTable
from watersmeet.tables.spec import Table, read_seconds

INNER, LEFT = "inner", "left"


@dataclass(frozen=True)
class _Opened:
    source: PreparedTable
    version: TableVersion
    schema: StructType


@dataclass(frozen=True)
class PlannedLookup:
    """A join with a table, checked and ready to be built. `schemas` are those that come out, in the inputs' order."""

    stream_name: str
    stream: DataFrame
    spec: JoinSpec
    compiled: CompiledLookup
    schemas: dict[str, StructType]
    selected: tuple[Selected, ...] | None
    on: str


def join_table(inputs: Mapping[str, DataFrame | Table], request: Request) -> DataFrame:
    """Join a DataFrame, streaming or not, with a table."""
    plan = plan_lookup_join(inputs, request)
    descriptors = ingested(plan.stream, plan.stream_name, plan.compiled, plan.spec)
    if plan.spec.table and plan.spec.table.policy.max_delay_ms:
        descriptors = descriptors.unionByName(heartbeat(plan.stream.sparkSession))
    return joined(descriptors, plan.spec, plan.compiled, plan.schemas, plan.selected, plan.on)


def plan_lookup_join(inputs: Mapping[str, DataFrame | Table], request: Request) -> PlannedLookup:
    """Open and check all that a join with a table needs; the table is sorted if need be."""
    table_name = next(name for name, given in inputs.items() if isinstance(given, Table))
    stream_name = next(name for name in inputs if name != table_name)
    table, stream = cast("Table", inputs[table_name]), cast("DataFrame", inputs[stream_name])
    left = _how(request.how, table_name, stream_name)
    choice = choose_lookup(request.strategy)
    _refuse_windows(request)
    spark = stream.sparkSession
    lookup = session_lookup(spark)
    settings = read_settings(lookup, state=request.state, tasks=request.tasks, options=request.options)
    delay_ms = 0 if request.max_delay is None else int(1000 * read_seconds("max_delay", request.max_delay))
    if not stream.isStreaming:
        # There is no later batch in which rows that wait would be answered.
        delay_ms = 0
    if delay_ms:
        table = kept_while_rows_wait(table)
    probe(settings.storage)
    opened = _open(table, settings, spark)
    frames = {stream_name: stream.schema, table_name: opened.schema}
    frames = {name: frames[name] for name in inputs}
    schemas: dict[str, Schema] = {
        name: schema_of(name, stream) if name == stream_name else _schema(opened.schema) for name in inputs
    }
    sql = read_sql_settings(lookup, request.options)
    ansi, case_sensitive = sql.ansi, sql.case_sensitive
    if not isinstance(request.on, str):
        raise UsageError(
            "a table is found by its key: give the predicate as text, such as 's.product = p.id'"
        )
    predicate = parse_predicate(
        request.on,
        schemas,
        ansi=ansi,
        case_sensitive=case_sensitive,
        fixed_zone=is_fixed_zone(sql.zone),
    )
    selected = None
    if request.select is not None:
        selected = parse_select(request.select, schemas, ansi=ansi, case_sensitive=case_sensitive)
    compiled = compile_lookup(
        predicate,
        selected,
        schemas,
        TableSide(table_name, table.keys),
        left=left,
        ansi=ansi,
        zone=normal_zone(sql.zone),
    )
    memory = read_memory(lookup, request.memory, request.options)
    spec = JoinSpec(
        name=request.name or "-".join(inputs),
        instance=uuid.uuid4().hex,
        signature=compiled.signature,
        join=compiled.join,
        settings=settings,
        streaming=stream.isStreaming,
        built_ms=int(time.time() * 1000),
        table=TableSpec(
            name=table_name,
            keys=table.keys,
            columns=columns_needed(compiled.join, table.keys),
            source=opened.source,
            given=opened.version,
            policy=PagePolicy(max_delay_ms=delay_ms, worth_rows=READ_ROWS) if delay_ms else PagePolicy(),
            refresh_ms=None if table.refresh_s is None else int(1000 * table.refresh_s),
            memory=memory,
            strategy=choice,
        ),
    )
    coming_out = {**frames, table_name: _nullable(opened.schema)} if left else frames
    return PlannedLookup(stream_name, stream, spec, compiled, coming_out, selected, request.on)


def explain_lookup(strategy: str) -> str:
    """How a table would be read, and why, in one line."""
    chosen = choose_lookup(strategy)
    why = {
        HYBRID: "the table is found by its key: a batch reads the pages that hold its keys, each once",
        MESH: "it was asked for: a batch reads all pages of the table",
        INDEX: "it was asked for: every key is looked up by itself",
    }
    return f"{chosen}: {why[chosen]}"


def _how(how: str, table: str, stream: str) -> bool:
    if how not in (INNER, LEFT):
        raise UsageError(
            f'how={how!r} is not known for a table: use "inner", or "left" to keep rows of {stream} without a '
            f"partner in {table}"
        )
    return how == LEFT


def _refuse_windows(request: Request) -> None:
    given: dict[str, object] = {"within": request.within, "time": request.time, "lateness": request.lateness}
    given |= {"cells": request.cells, "mapping": request.mapping, "groups": request.groups}
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name}= is for a join of two streams: a table has no such thing, leave it out")


def _open(table: Table, settings: Settings, spark: SparkSession) -> _Opened:
    files = open_files(settings.storage)
    with shown_progress() as report:
        source = prepare(table, files, Frames(spark), report, cache=settings.cache)
    opened = source.open()
    try:
        schema = from_arrow_schema(opened.schema)
        version = TableVersion(source.folder, source.version, len(opened.index))
        return _Opened(source, version, schema)
    finally:
        opened.close()


def _schema(fields: StructType) -> Schema:
    return {field.name: parse_type(field.dataType.simpleString()) for field in fields.fields}


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType, True) for field in schema.fields])
