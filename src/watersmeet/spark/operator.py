"""The operator as a DataFrame transform.

    input l ── select keys and needed columns ── mapInArrow(ingest) ─┐
    input r ── select keys and needed columns ── mapInArrow(ingest) ─┴─ repartitionById ── mapInArrow(join)

Only DataFrame methods are used, so the same plan runs in local mode, on a cluster and through Spark Connect.
What comes back from the join are flat columns; they are put into one struct for each input with `struct`,
which Spark's optimiser takes apart again when only some fields are used.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.config import has_place, read_grid_policy, read_settings, read_sql_settings, session_lookup
from watersmeet.engine.compile import CompiledJoin, compile_callable, compile_join
from watersmeet.engine.fingerprint import warn_if_code_changed
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.strategy import SPARK, Choice, check_arguments, choose, settle
from watersmeet.engine.window import add_window
from watersmeet.errors import UsageError
from watersmeet.kernel.theta import Condition
from watersmeet.log.probe import probe
from watersmeet.model.expression import Selected
from watersmeet.model.facts import JoinSignature
from watersmeet.model.window import DATE, FARTHEST, TIMESTAMP, TIMESTAMP_NTZ
from watersmeet.predicate import is_fixed_zone, normal_zone, parse_predicate, parse_select, parse_window
from watersmeet.spark.frames import ingested, joined, quoted, refused, schema_of
from watersmeet.spark.request import Request


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
    warn_if_code_changed(spec)
    left, right = (ingested(frame, name, compiled, spec) for name, frame in inputs.items())
    schemas = {name: frame.schema for name, frame in inputs.items()}
    return joined(left.unionByName(right), spec, compiled, schemas, parsed.selected, str(request.on))


def specify(
    inputs: Mapping[str, DataFrame], parsed: ParsedJoin, request: Request
) -> tuple[JoinSpec, CompiledJoin]:
    """The join as its tasks run it."""
    first = next(iter(inputs.values()))
    lookup = session_lookup(first.sparkSession)
    settings = read_settings(lookup, state=request.state, tasks=request.tasks, options=request.options)
    probe(settings.storage)
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
        built_ms=int(time.time() * 1000),
        strategy=strategy,
    )
    return spec, compiled


def parse_join(inputs: Mapping[str, DataFrame], request: Request) -> ParsedJoin:
    first = next(iter(inputs.values()))
    lookup = session_lookup(first.sparkSession)
    schemas = {name: schema_of(name, frame) for name, frame in inputs.items()}
    sql = read_sql_settings(lookup, request.options)
    ansi, case_sensitive = sql.ansi, sql.case_sensitive
    predicate = None
    if isinstance(request.on, str):
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
    if predicate is not None:
        compiled = compile_join(predicate, selected, schemas, ansi=ansi, zone=normal_zone(sql.zone))
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
    known = has_place(lookup, request.state)
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
        raise refused(error, on) from error
    return joined.select(*(F.struct(f"{name}.*").alias(name) for name in inputs))


def _with_window(condition: Column, signature: JoinSignature) -> Column:
    """The condition, and the window as Spark SQL: what the kernels test, on the same whole numbers."""
    window = signature.window
    if window is None:
        return condition
    left, right = (F.col(f"{spec.name}.{quoted(spec.time or '')}") for spec in signature.inputs)
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
