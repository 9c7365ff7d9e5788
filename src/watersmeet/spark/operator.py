"""The operator as a DataFrame transform.

    input l ── select keys and needed columns ── mapInArrow(ingest) ─┐
    input r ── select keys and needed columns ── mapInArrow(ingest) ─┴─ repartitionById ── mapInArrow(join)

Only DataFrame methods are used, so the same plan runs in local mode, on a cluster and through Spark Connect.
What comes back from the join are flat columns; they are put into one struct for each input with `struct`,
which Spark's optimiser takes apart again when only some fields are used.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from watersmeet.config import Lookup, has_place, read_grid_policy, read_settings
from watersmeet.engine.compile import HASHED, ROW, CompiledJoin, HashedKeys, compile_callable, compile_join
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.strategy import AUTO, SPARK, Choice, check_arguments, choose, settle
from watersmeet.engine.window import add_window
from watersmeet.errors import PredicateError, UsageError
from watersmeet.kernel.theta import Condition
from watersmeet.model.expression import Column as Selectable
from watersmeet.model.expression import Selected
from watersmeet.model.facts import JoinSignature
from watersmeet.model.types import Schema, SqlType, parse_type
from watersmeet.model.window import DATE, FARTHEST, TIMESTAMP, TIMESTAMP_NTZ
from watersmeet.predicate import is_fixed_zone, parse_predicate, parse_select, parse_window
from watersmeet.predicate.window import Length
from watersmeet.spark.tasks import DESCRIPTOR_SCHEMA, IngestTask, JoinTask


@dataclass(frozen=True)
class Request:
    """What the user asks of a join; see `wm.join`."""

    on: str | Condition
    select: Sequence[str] | None = None
    strategy: str = AUTO
    state: str | None = None
    name: str | None = None
    tasks: int | None = None
    cells: int | None = None
    mapping: tuple[int, int] | None = None
    groups: int | None = None
    options: Mapping[str, object] | None = None
    within: Length | None = None
    time: Mapping[str, str] | None = None
    lateness: Length | None = None


@dataclass(frozen=True)
class ParsedJoin:
    inputs: tuple[str, ...]
    selected: tuple[Selected, ...] | None
    compiled: CompiledJoin
    choice: Choice


def join_frames(inputs: Mapping[str, DataFrame], request: Request) -> DataFrame:
    """Join two DataFrames by the strategy that was asked for, or that suits them."""
    parsed = parse_join(inputs, request)
    if parsed.choice.name == SPARK:
        check_arguments(parsed.choice, request.cells, request.mapping, request.groups)
        return _join_batches(inputs, str(request.on), parsed)
    spec, compiled = specify(inputs, parsed, request)
    ingested = [
        _arriving(frame, name, compiled).mapInArrow(IngestTask(spec, name), DESCRIPTOR_SCHEMA)
        for name, frame in inputs.items()
    ]
    descriptors = ingested[0].unionByName(ingested[1])
    placed = descriptors.repartitionById(spec.settings.tasks, F.col("task"))
    named = _named(compiled, parsed.selected)
    if named is not None:
        spec = replace(spec, join=named.join)
        return placed.mapInArrow(JoinTask(spec), _flat_schema(inputs, named))
    flat = placed.mapInArrow(JoinTask(spec), _flat_schema(inputs, compiled))
    return _shape(flat, parsed, str(request.on))


def specify(
    inputs: Mapping[str, DataFrame], parsed: ParsedJoin, request: Request
) -> tuple[JoinSpec, CompiledJoin]:
    """The join as its tasks run it."""
    first = next(iter(inputs.values()))
    lookup = _lookup(first.sparkSession)
    settings = read_settings(lookup, state=request.state, tasks=request.tasks, options=request.options)
    compiled, strategy = settle(
        parsed.choice,
        parsed.compiled,
        tasks=settings.tasks,
        cells=request.cells,
        mapping=request.mapping,
        policy=read_grid_policy(lookup, request.options),
        groups=request.groups,
    )
    spec = JoinSpec(
        name=request.name or "-".join(inputs),
        instance=uuid.uuid4().hex,
        signature=compiled.signature,
        join=compiled.join,
        settings=settings,
        streaming=first.isStreaming,
        strategy=strategy,
    )
    return spec, compiled


def parse_join(inputs: Mapping[str, DataFrame], request: Request) -> ParsedJoin:
    first = next(iter(inputs.values()))
    spark = first.sparkSession
    schemas = {name: _schema(name, frame) for name, frame in inputs.items()}
    ansi = spark.conf.get("spark.sql.ansi.enabled", "true") == "true"
    case_sensitive = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    predicate = None
    if isinstance(request.on, str):
        zone = spark.conf.get("spark.sql.session.timeZone")
        predicate = parse_predicate(
            request.on,
            schemas,
            ansi=ansi,
            case_sensitive=case_sensitive,
            fixed_zone=is_fixed_zone(zone or ""),
        )
    selected = None
    if request.select is not None:
        selected = parse_select(request.select, schemas, ansi=ansi, case_sensitive=case_sensitive)
    if predicate is not None:
        compiled = compile_join(predicate, selected, schemas, ansi=ansi)
    else:
        compiled = compile_callable(_sendable(cast("Condition", request.on)), selected, schemas)
    window = parse_window(
        request.within,
        request.time,
        request.lateness,
        schemas,
        streaming=first.isStreaming,
        case_sensitive=case_sensitive,
    )
    if window is not None:
        compiled = add_window(compiled, *window, schemas)
    known = has_place(_lookup(spark), request.state)
    choice = choose(request.strategy, compiled, streaming=first.isStreaming, has_place=known)
    return ParsedJoin(tuple(inputs), selected, compiled, choice)


def _join_batches(inputs: Mapping[str, DataFrame], on: str, parsed: ParsedJoin) -> DataFrame:
    """Join two batch DataFrames with Spark's own join, in the same shape."""
    left, right = (frame.alias(name) for name, frame in inputs.items())
    try:
        joined = left.join(right, _with_window(F.expr(on), parsed.compiled.signature))
        if parsed.selected is not None:
            return joined.select(*(F.expr(item.text).alias(item.name) for item in parsed.selected))
    except AnalysisException as error:
        raise _refused(error, on) from error
    return joined.select(*(F.struct(f"{name}.*").alias(name) for name in inputs))


def _with_window(condition: Column, signature: JoinSignature) -> Column:
    """The condition, and the window as Spark SQL: what the kernels test, on the same whole numbers."""
    window = signature.window
    if window is None:
        return condition
    left, right = (F.col(f"{spec.name}.{_quoted(spec.time or '')}") for spec in signature.inputs)
    if window.of == DATE:
        return condition & (F.abs(F.datediff(left, right)) <= window.width)
    if window.of == TIMESTAMP_NTZ:
        # Without a zone a difference is exact; with one it would be that of the local times.
        width = f"INTERVAL '{window.width // 1_000_000}.{window.width % 1_000_000:06d}' SECOND"
        return condition & (F.abs(left - right) <= F.expr(width))
    at = [F.unix_micros(time) if window.of == TIMESTAMP else time.cast("bigint") for time in (left, right)]
    near = at[0].between(-FARTHEST, FARTHEST) & at[1].between(-FARTHEST, FARTHEST)
    apart = at[0].cast("decimal(20,0)") - at[1].cast("decimal(20,0)")
    return condition & near & (F.abs(apart) <= window.width)


def _sendable(condition: Condition) -> Condition:
    """Refuse here, by name, a function that cannot reach the executors."""
    try:
        cloudpickle.dumps(condition)
    except Exception as error:
        called = getattr(condition, "__qualname__", repr(condition))
        raise UsageError(
            f"the join condition {called} cannot be sent to the executors: {error}. Let it use only what can be "
            "pickled: no session, DataFrame, lock or open file"
        ) from error
    return condition


def _schema(name: str, frame: DataFrame) -> Schema:
    fields = frame.schema.fields
    twice = {f.name for f in fields if sum(g.name.lower() == f.name.lower() for g in fields) > 1}
    if twice:
        raise UsageError(f"input {name} has several columns named {', '.join(sorted(twice))}: rename them")
    return {f.name: parse_type(f.dataType.simpleString()) for f in fields}


def _lookup(spark: SparkSession) -> Lookup:
    return lambda key: spark.conf.get(key, None)


def _arriving(frame: DataFrame, name: str, compiled: CompiledJoin) -> DataFrame:
    """The needed columns, and the keys that are expressions, computed by Spark over the user's own text."""
    plain = [F.col(_quoted(column)) for column in compiled.arriving[name]]
    computed = {key.name: F.expr(key.sql) for key in compiled.computed if key.input == name}
    for keys in compiled.hashed:
        if keys.input == name:
            computed[HASHED] = _hash(keys)
    if not plain and not computed:
        # Arrow batches without a column arrive without rows.
        computed = {ROW: F.lit(True)}
    guard = compiled.guard(name)
    if not computed and guard is None:
        return frame.select(*plain)
    whole = frame.select(F.struct(*(F.col(_quoted(f.name)) for f in frame.schema.fields)).alias(name))
    if guard is not None:
        whole = whole.where(F.expr(guard.sql))
    nested = [F.col(f"{_quoted(name)}.{_quoted(column)}").alias(column) for column in compiled.arriving[name]]
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
    """Floats inside a key as SQL compares them: one NaN, no -0.0. Other values stay as they are."""
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


def _flat_schema(inputs: Mapping[str, DataFrame], compiled: CompiledJoin) -> StructType:
    return StructType(
        [
            StructField(c.name, field.dataType, field.nullable)
            for c in compiled.join.output
            for field in [inputs[c.input].schema[c.column]]
        ]
    )


def _named(compiled: CompiledJoin, selected: Sequence[Selected] | None) -> CompiledJoin | None:
    """The join under the names that were asked for, where they are plain columns and Spark has nothing to check.

    Its rows are then the result as they come: a projection behind the join costs as much for a row as reading it.
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


def _shape(flat: DataFrame, parsed: ParsedJoin, on: str) -> DataFrame:
    """Structs named like the inputs; Spark's own check of the predicate; the selected columns."""
    structs = []
    for name in parsed.inputs:
        columns = [c for c in parsed.compiled.join.output if c.input == name]
        if columns:
            structs.append(F.struct(*(F.col(c.name).alias(c.column) for c in columns)).alias(name))
    shaped = flat.select(*structs)
    try:
        if parsed.compiled.spark_checks:
            shaped = shaped.where(F.expr(on))
        if parsed.selected is not None:
            shaped = shaped.select(*(F.expr(item.text).alias(item.name) for item in parsed.selected))
    except AnalysisException as error:
        raise _refused(error, on) from error
    return shaped


def _refused(error: AnalysisException, on: str) -> PredicateError:
    return PredicateError(f"Spark refuses the join: {error.getMessage()}", on)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
