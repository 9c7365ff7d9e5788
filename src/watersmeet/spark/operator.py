"""The operator as a DataFrame transform.

    input l ── select keys and needed columns ── mapInArrow(ingest) ─┐
    input r ── select keys and needed columns ── mapInArrow(ingest) ─┴─ repartitionById ── mapInArrow(join)
                                                                                             │
                                                                    pages of a table, if any ┘

Only DataFrame methods are used, so the same plan runs in local mode, on a cluster and through Spark Connect. The join
returns flat columns. `struct` packs them into one struct for each input, which Spark's optimiser unpacks again when
only some fields are used.

A join with tables among three or more inputs is a chain of such transforms (`engine/chain.py`): the results of a stage
are an input of a later one.

A table is opened, checked and, if needed, sorted here, on the driver, before the query starts. With `max_delay` or
`pay_within` a source without rows runs beside the streams (`spark/heartbeat.py`). Without it Spark runs no batch while
they are idle, and what waits or is owed would wait for the next rows.
"""

from __future__ import annotations

import functools
import itertools
import operator
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from watersmeet.config import read_session, session_conf
from watersmeet.engine.build import BuiltJoin, OpenedTable, build_stages
from watersmeet.engine.chain import plan_chain
from watersmeet.engine.choose import choose_lookup
from watersmeet.engine.fingerprint import warn_if_code_changed
from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.kept_table import kept_while_rows_wait
from watersmeet.engine.options import AUTO, JoinOptions
from watersmeet.engine.spec import SessionSettings
from watersmeet.engine.stages import Chain
from watersmeet.errors import PredicateError, UsageError
from watersmeet.file_inputs.spec import FileInput
from watersmeet.kernel.theta import Condition
from watersmeet.log.files import open_files
from watersmeet.log.probe import probe
from watersmeet.model.signature import JoinSignature
from watersmeet.model.types import Schema, parse_type
from watersmeet.model.window import DATE, FARTHEST, TIMESTAMP, TIMESTAMP_NTZ, Window
from watersmeet.predicate.query import read_query
from watersmeet.predicate.write import quoted
from watersmeet.schemes.table.facts import TableVersion
from watersmeet.spark.file_frames import FileFrame, OpenInputs, open_file_inputs
from watersmeet.spark.frames import ingested_inputs, joined, refused, schema_of
from watersmeet.spark.heartbeat import heartbeat
from watersmeet.spark.table_frames import Frames, shown_progress
from watersmeet.spark.trigger import watch_triggers
from watersmeet.tables.prepare import columns_of_table, prepare
from watersmeet.tables.spec import Table

Inputs = Mapping[str, DataFrame | Table | FileInput]

# An input that is not a table, once file inputs are opened.
Arriving = DataFrame | FileFrame


@dataclass(frozen=True)
class PlannedJoin:
    """A join of DataFrames and tables, checked and ready to run. `schemas` are the output schemas by input.

    `built` has the operators of the stages, in the order of the chain. `waits` says that rows wait for pages of a table,
    `pays` that debts fall due: both need batches while the streams are idle.
    """

    frames: dict[str, Arriving]
    schemas: dict[str, StructType]
    chain: Chain
    built: tuple[BuiltJoin, ...]
    waits: bool
    pays: bool


def join_inputs(inputs: Inputs | OpenInputs, options: JoinOptions) -> DataFrame:
    """Join the inputs by the requested strategy, or the one that `auto` chooses."""
    return join_planned(plan_join(inputs, options))


def join_planned(plan: PlannedJoin) -> DataFrame:
    """The results of a planned join: its stages, one after the other."""
    results: list[DataFrame] = []
    for stage, built in zip(plan.chain.stages, plan.built, strict=True):
        frames: dict[str, Arriving] = {
            name: results[stage.earlier[name]] if name in stage.earlier else plan.frames[name]
            for name in stage.schemas
            if name != stage.table
        }
        schemas = {
            name: frames[name].schema if name in stage.earlier else plan.schemas[name]
            for name in stage.schemas
        }
        waits = plan.pays if stage.table is None else plan.waits
        try:
            results.append(_join_stage(frames, schemas, built, str(stage.options.on), waits=waits))
        except PredicateError as error:
            raise stage.in_users_words(error) from error
    return _with_structs(results[-1], plan.chain.structs)


def _join_stage(
    frames: dict[str, Arriving], schemas: dict[str, StructType], built: BuiltJoin, on: str, *, waits: bool
) -> DataFrame:
    if built.spec is None:
        return _join_batches(frames, on, built)
    probe(built.spec.settings.storage)
    warn_if_code_changed(built.spec)
    streams = ingested_inputs(frames, built.compiled, built.spec)
    if waits:
        streams.append(heartbeat(next(iter(frames.values())).sparkSession))
    descriptors = functools.reduce(DataFrame.unionByName, streams)
    return joined(descriptors, built, schemas, on)


def _with_structs(flat: DataFrame, structs: Mapping[str, Mapping[str, str]] | None) -> DataFrame:
    """One struct for each input, if the last stage did not make the results as they were asked for."""
    if structs is None:
        return flat
    return flat.select(
        *(
            F.struct(*(F.col(quoted(column)).alias(field) for field, column in fields.items())).alias(name)
            for name, fields in structs.items()
        )
    )


def join_query(text: str, inputs: Inputs | None, more: Inputs, options: JoinOptions) -> DataFrame:
    """Join the inputs that a query names, by its condition and with its columns."""
    twice = [name for name in more if inputs and name in inputs]
    if twice:
        raise UsageError(f"input {twice[0]} is given twice, in inputs= and as a keyword: leave one out")
    sources = open_file_inputs({**(inputs or {}), **more})
    if not sources:
        raise UsageError(
            'wm.sql needs the inputs of the query by name, such as wm.sql("...", {"a": a, "b": b})'
        )
    check_kinds(sources)
    spark = next((frame.sparkSession for frame in sources.values() if not isinstance(frame, Table)), None)
    if spark is None:
        raise UsageError("all inputs are tables: at least one must be a DataFrame or wm.files")
    settings = settings_for(spark, options)
    schemas = {
        name: _schema(_open(given, settings, spark)[1])
        if isinstance(given, Table)
        else schema_of(name, given)
        for name, given in sources.items()
    }
    query = read_query(text, schemas, ansi=settings.sql.ansi, case_sensitive=settings.sql.case_sensitive)
    asked = replace(options, on=query.on, select=query.select)
    return join_inputs({name: sources[source] for name, source in query.inputs}, asked)


def check_kinds(inputs: OpenInputs) -> None:
    """Refuse names that SQL cannot use, and what is neither a DataFrame nor a table."""
    check_names(inputs)
    for name, frame in inputs.items():
        if not hasattr(frame, "mapInArrow") and not isinstance(frame, (Table, FileFrame)):
            raise UsageError(
                f"input {name} is a {type(frame).__name__}, not a Spark DataFrame, wm.table or wm.files"
            )


def check_inputs(inputs: Inputs | OpenInputs) -> list[str]:
    """Refuse what cannot be joined; the names of the tables."""
    if not isinstance(inputs, Mapping):
        raise UsageError(
            'join takes its inputs by name, such as wm.join({"l": left, "r": right}, on="l.k = r.k")'
        )
    check_number(inputs)
    opened = open_file_inputs(inputs)
    check_kinds(opened)
    tables = [name for name, frame in opened.items() if isinstance(frame, Table)]
    check_tables(opened, tables)
    streaming = {name: frame.isStreaming for name, frame in opened.items() if not isinstance(frame, Table)}
    if len(set(streaming.values())) > 1:
        still, moving = (
            next(name for name, is_ in streaming.items() if is_ is moves) for moves in (False, True)
        )
        raise UsageError(
            f"input {still} is not streaming and {moving} is: make it a table, wm.table({still}, key=...), or read "
            "all inputs as streams, or all as batches"
        )
    return tables


def schema_of_table(table: Table) -> Schema:
    if table.address is None:
        return schema_of(table.label, cast("DataFrame", table.source))
    return _schema(from_arrow_schema(columns_of_table(table)))


def settings_for(spark: SparkSession, options: JoinOptions) -> SessionSettings:
    return read_session(
        session_conf(spark),
        state=options.state,
        tasks=options.tasks,
        memory=options.memory,
        options=options.options,
    )


def plan_join(inputs: Inputs | OpenInputs, options: JoinOptions) -> PlannedJoin:
    """Open and check all that the join needs; a table is sorted if need be."""
    sources = open_file_inputs(inputs)
    check_inputs(sources)
    frames = {name: given for name, given in sources.items() if not isinstance(given, Table)}
    first = next(iter(frames.values()))
    settings = settings_for(first.sparkSession, options)
    if not isinstance(options.on, str):
        check_sendable(options.on)
    tables, given = {}, {}
    # In a batch join no later batch would join rows that wait.
    waiting = first.isStreaming and options.max_delay_ms > 0
    if first.isStreaming and options.defer == AUTO:
        watch_triggers(first.sparkSession)
    check_lookups(sources, options)
    for name, table in sources.items():
        if isinstance(table, Table):
            opened, fields = _open(
                kept_while_rows_wait(table) if waiting else table, settings, first.sparkSession
            )
            tables[name], given[name] = opened, fields
    schemas: dict[str, Schema] = {
        name: _schema(given[name]) if name in given else schema_of(name, frames[name]) for name in sources
    }
    keys = {name: opened.given.keys for name, opened in tables.items()}
    chain = plan_chain(options, schemas, keys, settings.sql, streaming=first.isStreaming)
    built = build_stages(
        chain,
        settings,
        instance=uuid.uuid4().hex,
        clock=time.time,
        tables=tables,
        streaming=first.isStreaming,
    )
    coming_out = {
        name: _coming_out(given[name], options) if name in given else frames[name].schema for name in sources
    }
    pays = first.isStreaming and options.pay_within is not None
    return PlannedJoin(frames, coming_out, chain, built, waiting, pays)


def check_lookups(inputs: OpenInputs, options: JoinOptions) -> None:
    """Refuse arguments that do not fit the tables among the inputs, before any table is opened."""
    tables = [name for name, given in inputs.items() if isinstance(given, Table)]
    streams = [name for name in inputs if name not in tables]
    if tables:
        options.check_chain(tables, streams)
        if len(streams) == 1:
            choose_lookup(options.strategy)


def _open(table: Table, settings: SessionSettings, spark: SparkSession) -> tuple[OpenedTable, StructType]:
    operator = settings.operator()
    probe(operator.storage)
    files = open_files(operator.storage)
    with shown_progress() as report:
        source = prepare(table, files, Frames(spark), report, cache=operator.cache)
    opened = source.open()
    try:
        version = TableVersion(source.folder, source.version, len(opened.index))
        return OpenedTable(table, source, version), from_arrow_schema(opened.schema)
    finally:
        opened.close()


def _schema(fields: StructType) -> Schema:
    return {field.name: parse_type(field.dataType.simpleString()) for field in fields.fields}


def _coming_out(table: StructType, options: JoinOptions) -> StructType:
    if not options.keeps_all:
        return table
    return StructType([StructField(field.name, field.dataType, True) for field in table.fields])


def _join_batches(inputs: Mapping[str, Arriving], on: str, built: BuiltJoin) -> DataFrame:
    """Join batch DataFrames with Spark's own joins, with the same output columns.

    Spark's optimiser moves each conjunct to the first join of the chain that has all inputs it reads.
    """
    frames = {
        name: frame.rows(frame.columns, None) if isinstance(frame, FileFrame) else frame
        for name, frame in inputs.items()
    }
    aliased = (frame.alias(name) for name, frame in frames.items())
    try:
        together = functools.reduce(DataFrame.crossJoin, aliased)
        joined = together.where(_with_window(F.expr(on), built.compiled.signature))
        if built.selected is not None:
            return joined.select(*(F.expr(item.text).alias(item.name) for item in built.selected))
    except AnalysisException as error:
        raise refused(error, on) from error
    return joined.select(*(F.struct(f"{name}.*").alias(name) for name in inputs))


def _with_window(condition: Column, signature: JoinSignature) -> Column:
    """Add the window to the condition as Spark SQL: the same test on the same integers as the kernels."""
    window = signature.window
    if window is None:
        return condition
    times = [F.col(f"{spec.name}.{quoted(spec.time or '')}") for spec in signature.inputs if not spec.of]
    close = (_close(window, one, other) for one, other in itertools.combinations(times, 2))
    return functools.reduce(operator.and_, close, condition)


def _close(window: Window, left: Column, right: Column) -> Column:
    if window.of == DATE:
        return F.abs(F.datediff(left, right)) <= window.width
    if window.of == TIMESTAMP_NTZ:
        # Without a zone a difference is exact; with one it would be that of the local times.
        width = f"INTERVAL '{window.width // 1_000_000}.{window.width % 1_000_000:06d}' SECOND"
        return F.abs(left - right) <= F.expr(width)
    at = [F.unix_micros(time) if window.of == TIMESTAMP else time.cast("bigint") for time in (left, right)]
    near = at[0].between(-FARTHEST, FARTHEST) & at[1].between(-FARTHEST, FARTHEST)
    apart = at[0].cast("decimal(20,0)") - at[1].cast("decimal(20,0)")
    return near & (F.abs(apart) <= window.width)


def check_sendable(condition: Condition) -> None:
    """Refuse, by name, a function that cannot be pickled to the executors."""
    try:
        cloudpickle.dumps(condition)
    except Exception as error:
        called = getattr(condition, "__qualname__", repr(condition))
        raise UsageError(
            f"the join condition {called} cannot be sent to the executors: {error}. Let it use only what can be "
            "pickled: no session, DataFrame, lock or open file"
        ) from error
