"""Map DataFrames to the operator's input, and its output to a DataFrame."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from watersmeet.engine.build import BuiltJoin
from watersmeet.engine.compile import HASHED, ROW, Compiled, HashedKeys
from watersmeet.engine.file_way import choose_file_way
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.together import InputSlots, Slots, share_tasks
from watersmeet.errors import PredicateError, UsageError
from watersmeet.model.expression import Column as Selectable
from watersmeet.model.expression import Selected
from watersmeet.model.types import Schema, SqlType, parse_type
from watersmeet.predicate.write import quoted
from watersmeet.spark.file_frames import FileFrame
from watersmeet.spark.tasks import DESCRIPTOR_SCHEMA, IngestTask, IngestTogether, JoinTask


def ingested(frame: DataFrame | FileFrame, name: str, compiled: Compiled, spec: JoinSpec) -> DataFrame:
    """Ingest an input: its descriptors, one copy for every join task."""
    if isinstance(frame, FileFrame):
        way = choose_file_way(compiled, name, schema_of(name, frame), ansi=frame.ansi)
        if way.straight:
            return frame.descriptors(spec, way)
        frame = frame.rows(way.columns, spec)
    return stored_rows(_arriving(frame, name, compiled), name, spec)


def stored_rows(arriving: DataFrame, name: str, spec: JoinSpec) -> DataFrame:
    """Store the rows of an input in a task for each partition: its descriptors."""
    columns = tuple(arriving.columns)
    if any("." in column or "`" in column for column in columns):
        # PySpark hands the columns to the function by their names, and would read such a name as a path into a struct.
        plain = arriving.toDF(*(f"c{number}" for number in range(len(columns))))
        return plain.mapInArrow(IngestTask(spec, name, columns), DESCRIPTOR_SCHEMA)
    return arriving.mapInArrow(IngestTask(spec, name), DESCRIPTOR_SCHEMA)


def ingested_inputs(
    frames: Mapping[str, DataFrame | FileFrame], compiled: Compiled, spec: JoinSpec
) -> list[DataFrame]:
    """Ingest all inputs: their descriptors. Streams that Spark reads share tasks if they are many."""
    read = {name: frame for name, frame in frames.items() if not isinstance(frame, FileFrame)}
    if not spec.streaming or not share_tasks(len(read), spec.settings.tasks):
        return [ingested(frame, name, compiled, spec) for name, frame in frames.items()]
    others = [ingested(frame, name, compiled, spec) for name, frame in frames.items() if name not in read]
    arriving = {name: _arriving(frame, name, compiled) for name, frame in read.items()}
    return [stored_together(arriving, spec), *others]


def stored_together(arriving: Mapping[str, DataFrame], spec: JoinSpec) -> DataFrame:
    """Store the rows of all inputs in as many tasks as the join has at most (engine/together.py): their descriptors."""
    slots = Slots.assign(
        {name: [(f.name, f.dataType) for f in frame.schema.fields] for name, frame in arriving.items()}
    )
    numbered = [
        _in_slots(arriving[of.input], number, of, slots.types) for number, of in enumerate(slots.inputs)
    ]
    together = functools.reduce(DataFrame.unionAll, numbered).coalesce(spec.settings.tasks)
    return together.mapInArrow(IngestTogether(spec, slots.inputs), DESCRIPTOR_SCHEMA)


def _in_slots(frame: DataFrame, number: int, of: InputSlots, types: Sequence[DataType]) -> DataFrame:
    filled = {slot: F.col(quoted(column)) for column, slot in zip(of.columns, of.slots, strict=True)}
    return frame.select(
        F.lit(number).alias("input"),
        *(filled.get(slot, F.lit(None).cast(kind)).alias(f"c{slot}") for slot, kind in enumerate(types)),
    )


def joined(descriptors: DataFrame, built: BuiltJoin, schemas: Mapping[str, StructType], on: str) -> DataFrame:
    """The results: the selected columns, or a struct for each input. `schemas` has the inputs in order."""
    placed = descriptors.repartitionById(built.operator_spec.settings.tasks, F.col("task"))
    return results_of(placed, built, schemas, on, JoinTask)


def results_of(
    source: DataFrame,
    built: BuiltJoin,
    schemas: Mapping[str, StructType],
    on: str,
    task: Callable[[JoinSpec], Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]],
) -> DataFrame:
    """What tasks of a join make of the partitions of `source`, with the columns of its results."""
    spec = built.operator_spec
    direct = _named(built.compiled, built.selected)
    if direct is not None:
        return source.mapInArrow(task(replace(spec, join=direct.join)), _flat_schema(schemas, direct))
    flat = source.mapInArrow(task(spec), _flat_schema(schemas, built.compiled))
    return _shape(flat, built.compiled, schemas, built.selected, on)


def schema_of(name: str, frame: DataFrame | FileFrame) -> Schema:
    fields = frame.schema.fields
    twice = {f.name for f in fields if sum(g.name.lower() == f.name.lower() for g in fields) > 1}
    if twice:
        raise UsageError(f"input {name} has several columns named {', '.join(sorted(twice))}: rename them")
    return {f.name: parse_type(f.dataType.simpleString()) for f in fields}


def _arriving(frame: DataFrame, name: str, compiled: Compiled) -> DataFrame:
    """The needed columns, and keys that are expressions, computed by Spark from the user's own text."""
    plain = [F.col(quoted(column)) for column in compiled.arriving[name]]
    computed = {key.name: F.expr(key.sql) for key in compiled.computed if key.input == name}
    for keys in compiled.hashed:
        if keys.input == name:
            computed[HASHED] = _hash(keys)
    if not plain and not computed:
        # Arrow batches without columns arrive without rows.
        computed = {ROW: F.lit(True)}
    guard = compiled.guard(name)
    if not computed and guard is None:
        return frame.select(*plain)
    whole = frame.select(F.struct(*(F.col(quoted(f.name)) for f in frame.schema.fields)).alias(name))
    if guard is not None:
        whole = whole.where(F.expr(guard.sql))
    nested = [F.col(f"{quoted(name)}.{quoted(column)}").alias(column) for column in compiled.arriving[name]]
    return whole.select(*nested, *(value.alias(column) for column, value in computed.items()))


def _hash(keys: HashedKeys) -> Column:
    """Spark's hash of nested keys, null if any of them is null."""
    values = [F.expr(sql) for sql in keys.sql]
    normal = [_normalised(value, kind) for value, kind in zip(values, keys.types, strict=True)]
    present = values[0].isNotNull()
    for value in values[1:]:
        present = present & value.isNotNull()
    return F.when(present, F.xxhash64(*normal))


def _normalised(value: Column, kind: SqlType) -> Column:
    """Normalise floats inside a key as SQL compares them: one NaN, no -0.0."""
    if kind.floating:
        zero = F.lit(0.0).cast(kind.name)
        return (
            F.when(F.isnan(value), F.lit(float("nan")).cast(kind.name))
            .when(value == zero, zero)
            .otherwise(value)
        )
    if kind.name == "array" and kind.element is not None:
        element = kind.element
        return F.transform(value, lambda item: _normalised(item, element))
    if kind.name == "struct":
        return F.struct(*(_normalised(value.getField(f.name), f.type).alias(f.name) for f in kind.fields))
    return value


def _flat_schema(schemas: Mapping[str, StructType], compiled: Compiled) -> StructType:
    return StructType(
        [
            StructField(c.name, field.dataType, field.nullable)
            for c in compiled.join.output
            for field in [schemas[c.input][c.column]]
        ]
    )


def _named(compiled: Compiled, selected: Sequence[Selected] | None) -> Compiled | None:
    """The join with its columns renamed as selected; None unless they are plain columns and Spark has nothing to check.

    Its rows are then the result as they come. A projection after the join costs as much per row as reading it.
    """
    if selected is None or compiled.spark_checks:
        return None
    wanted = [(column.input, column.name) for item in selected for column in item.columns]
    plain = all(isinstance(item.expression, Selectable) for item in selected)
    names = {item.name.lower() for item in selected}
    if (
        not plain
        or wanted != [(c.input, c.column) for c in compiled.join.output]
        or len(names) < len(selected)
    ):
        return None
    output = tuple(
        replace(column, name=item.name) for column, item in zip(compiled.join.output, selected, strict=True)
    )
    return replace(compiled, join=replace(compiled.join, output=output))


def _shape(
    flat: DataFrame,
    compiled: Compiled,
    inputs: Iterable[str],
    selected: Sequence[Selected] | None,
    on: str,
) -> DataFrame:
    """Build structs named like the inputs, apply Spark's own check of the predicate, and select the columns."""
    structs = []
    for name in inputs:
        columns = [c for c in compiled.join.output if c.input == name]
        if columns:
            structs.append(F.struct(*(F.col(c.name).alias(c.column) for c in columns)).alias(name))
    shaped = flat.select(*structs)
    try:
        if compiled.spark_checks:
            shaped = shaped.where(F.expr(on))
        if selected is not None:
            shaped = shaped.select(*(F.expr(item.text).alias(item.name) for item in selected))
    except AnalysisException as error:
        raise refused(error, on) from error
    return shaped


def refused(error: AnalysisException, on: str) -> PredicateError:
    return PredicateError(f"Spark refuses the join: {error.getMessage()}", on)
