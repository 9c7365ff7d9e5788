"""Compile a parsed predicate to a join with a table: which equality finds the page, and what is left to check.

A table is found by its key, so the predicate must say what each key column equals. Other conjuncts are checked on the
rows that were found. Keys are compared in the table's type: the stream's value is cast to it, because the pages are
already sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.compile import (
    Asked,
    Compiled,
    arriving_columns,
    input_spec,
    recorded_zone,
    settle_key,
    share_residual,
    sides_of,
)
from watersmeet.errors import PredicateError
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.model.expression import (
    Call,
    Column,
    Expression,
    KeyPair,
    KeySide,
    Predicate,
    columns_of,
    conjunction,
    conjuncts_of,
)
from watersmeet.model.signature import Compared, JoinSignature, Order
from watersmeet.model.types import BOOLEAN
from watersmeet.schemes.table.plan import TableScheme


@dataclass(frozen=True, slots=True)
class TableSide:
    """The table input: its name in the predicate and its key columns."""

    name: str
    keys: tuple[str, ...]


def compile_lookup(asked: Asked, table: TableSide, *, left: bool) -> Compiled:
    """Compile a join with a table. `left` keeps stream rows without a partner."""
    predicate, schemas = asked.predicate, asked.schemas
    stream = next(name for name in predicate.inputs if name != table.name)
    pairs = [_Pair(pair.side(stream), pair.side(table.name), pair) for pair in predicate.keys]
    chosen = [_pair_of(key, pairs, table, stream, predicate) for key in table.keys]
    rest = [one.condition for one in pairs if one not in chosen]
    kernel, spark = share_residual(
        [*rest, *(conjuncts_of(predicate.residual) if predicate.residual is not None else ())]
    )
    if spark and left:
        raise PredicateError(
            'how="left" keeps rows without a partner, so the join itself must evaluate the whole predicate, but only '
            'Spark can evaluate a part of this one: use how="inner", or compute that part into a column before',
            predicate.text,
        )
    output = asked.output((stream, table.name), spark_checks=bool(spark))
    keys = tuple(settle_key(stream, number, one.pair, one.stream) for number, one in enumerate(chosen))
    spec = input_spec(
        stream, schemas[stream], output, kernel, keys, [key.column for key in keys], order=Order.PAGE
    )
    spec = replace(spec, keeps_all=left)
    verify = tuple((key.column, column) for key, column in zip(keys, table.keys, strict=True))
    # A left join emits rows whether or not they pass.
    guards = () if left else tuple(guard for guard in predicate.guards if guard.input == stream)
    return Compiled(
        signature=JoinSignature(
            inputs=(spec,),
            predicate=predicate.canonical,
            key_types=tuple(str(one.pair.type) for one in chosen),
            compared=Compared.LEFT_TABLE if left else Compared.TABLE,
            scheme=TableScheme.name,
            sides=sides_of([one.pair for one in chosen]),
            zone=recorded_zone(asked.zone, [(one.stream, one.pair.type) for one in chosen], guards),
        ),
        join=LookupJoin(verify, conjunction(kernel), output, (stream, table.name), left, asked.ansi),
        arriving={stream: arriving_columns(spec, schemas[stream])},
        computed=tuple(key.computed for key in keys if key.computed),
        hashed=(),
        spark_checks=bool(spark),
        guards=guards,
    )


def columns_needed(join: LookupJoin, keys: Sequence[str]) -> tuple[str, ...]:
    """The columns to read from the table, keys first."""
    name = join.names[1]
    used = [column.column for column in join.output if column.input == name]
    if join.residual is not None:
        used += [column.name for column in columns_of(join.residual) if column.input == name]
    return tuple(dict.fromkeys([*keys, *used]))


@dataclass(frozen=True, slots=True)
class _Pair:
    stream: KeySide
    table: KeySide
    pair: KeyPair

    @property
    def condition(self) -> Expression:
        sides = (side.expression for side in self.pair.sides)
        cast = tuple(
            side if side.type == self.pair.type else Call("cast", (side,), self.pair.type) for side in sides
        )
        return Call("=", cast, BOOLEAN)


def _pair_of(key: str, pairs: Sequence[_Pair], table: TableSide, stream: str, predicate: Predicate) -> _Pair:
    """The equality that gives the value of a key column."""
    wanted = [
        one for one in pairs if isinstance(one.table.expression, Column) and one.table.expression.name == key
    ]
    if not wanted:
        raise PredicateError(
            f"the predicate does not say what the table's key equals: add {stream}.<column> = {table.name}.{key}",
            predicate.text,
            hint="a table is found by its key alone; choose other key columns with wm.table(..., key=...)",
        )
    one = wanted[0]
    own, common = one.table.expression.type, one.pair.type
    if own != common and not (own.integral and common.integral) and not (own.floating and common.floating):
        raise PredicateError(
            f"{one.stream.sql} is {one.stream.expression.type} and the key {table.name}.{key} is {own}: Spark would "
            f"compare them as {common}, but the table is not sorted by that type",
            predicate.text,
            hint=f"cast the stream's side: CAST({one.stream.sql} AS {str(own).upper()}) = {table.name}.{key}",
        )
    return one
