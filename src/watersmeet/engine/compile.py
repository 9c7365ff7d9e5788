"""Compile a parsed predicate to a runnable join: what arrives, what is stored, what the kernel checks.

A join of two inputs has one of three kinds: equality of keys, a band of one value of each input, or any other
condition. Equality finds partners fastest, then a band. The fastest kind that the predicate allows is taken.
`engine/compile_many.py` does it for more inputs.

Three decisions are made here, once, for both drivers:

- Which columns are ingested: those of `select` (all, without one), and those that the kernel or Spark needs to
  decide a pair.
- How keys are compared: one key that fits 64 bits by its order key alone; several or wide keys by a hash and a
  comparison in the kernel; nested keys by a hash that Spark computes and a check by Spark.
- Who evaluates the residual: the kernel takes the conjuncts that it evaluates exactly as Spark does. If any other
  is left, Spark evaluates the user's own text over the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.engine.fingerprint import fingerprint
from watersmeet.engine.spec import Join
from watersmeet.errors import PredicateError, UsageError
from watersmeet.kernel.band import BandFacing, BandJoin
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.evaluate import may_raise, supports
from watersmeet.kernel.keys import fits_word
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.multi import MultiJoin
from watersmeet.kernel.theta import Condition, ThetaJoin
from watersmeet.model.expression import (
    Band,
    Call,
    Column,
    Expression,
    Guard,
    KeyClass,
    KeyPair,
    KeySide,
    Predicate,
    Selected,
    columns_of,
    conjunction,
    conjuncts_of,
)
from watersmeet.model.signature import Compared, InputSpec, JoinSignature, Order, StoredColumn
from watersmeet.model.types import INT, Schema, SqlType
from watersmeet.predicate import check_reads_every_input, key_reads_zone, reads_zone
from watersmeet.schemes.scheme import Partners

# Prefix of the columns that we add. Inputs must not use it.
RESERVED_PREFIX = "__wm_"
HASHED = f"{RESERVED_PREFIX}hash"
# The only column that arrives if nothing but the number of rows is needed of an input.
ROW = f"{RESERVED_PREFIX}row"


@dataclass(frozen=True, slots=True)
class ComputedKey:
    """A key that is not a plain column of the right type. Spark computes `sql`, or the kernel `expression`."""

    input: str
    name: str
    sql: str
    expression: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Keys that only Spark can hash: the values to hash, as SQL, and their types."""

    input: str
    sql: tuple[str, ...]
    types: tuple[SqlType, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A join as its driver needs it: the columns that arrive of each input, and what Spark still has to check."""

    signature: JoinSignature
    arriving: dict[str, tuple[str, ...]]
    computed: tuple[ComputedKey, ...]
    hashed: tuple[HashedKeys, ...]
    spark_checks: bool
    join: Join | LookupJoin
    guards: tuple[Guard, ...] = ()
    partners: Partners = field(default_factory=Partners)

    def guard(self, name: str) -> Guard | None:
        """The condition that rows of this input must pass to be stored."""
        return next((guard for guard in self.guards if guard.input == name), None)


@dataclass(frozen=True, slots=True)
class SettledKey:
    """One side of a key pair, and the arriving column that holds it."""

    column: str
    computed: ComputedKey | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A join by text: its parsed predicate, the selected columns (None for all), and the columns of its inputs.

    `ansi` and `zone` are the session's; `zone` is the normalised time zone, or empty if unknown.
    """

    predicate: Predicate
    selected: Sequence[Selected] | None
    schemas: dict[str, Schema]
    ansi: bool = True
    zone: str = ""

    def __post_init__(self) -> None:
        check_names(self.schemas)

    def output(
        self, inputs: tuple[str, ...] | None = None, *, spark_checks: bool
    ) -> tuple[OutputColumn, ...]:
        """What the kernel emits: the selected columns and, if Spark checks candidates, those of the predicate."""
        checked = self.predicate.columns if spark_checks else ()
        return output_columns(inputs or self.predicate.inputs, checked, self.selected, self.schemas)


def compile_join(asked: Asked) -> Compiled:
    """Compile a join of two inputs."""
    keys: Sequence[KeyClass]
    predicate = asked.predicate
    check_reads_every_input(predicate)
    if predicate.keys:
        keys = predicate.keys
        compiled = compile_equality(asked, keys, _conjuncts(predicate.residual))
    elif predicate.bands:
        (band,) = predicate.bands
        keys = (KeyPair((band.left, band.right), band.type),)
        compiled = _compile_band(asked, band)
    else:
        keys, compiled = (), _compile_any(asked)
    return with_zone(compiled, keys, asked.zone)


def with_zone(compiled: Compiled, keys: Sequence[KeyClass], zone: str) -> Compiled:
    """Record the time zone in the signature if what is stored depends on it."""
    sides = [(side, one.type) for one in keys for side in one.sides]
    recorded = recorded_zone(zone, sides, compiled.guards)
    return replace(compiled, signature=replace(compiled.signature, zone=recorded))


def compile_callable(
    condition: Condition, selected: Sequence[Selected] | None, schemas: dict[str, Schema]
) -> Compiled:
    """Compile a join whose condition is the user's function, which sees every column of both inputs."""
    check_names(schemas)
    if len(schemas) > 2:
        raise UsageError(
            f"a Python function decides over two inputs, and this join has {len(schemas)}: give on= as text"
        )
    left, right = schemas
    output = output_columns((left, right), (), selected, schemas)
    inputs = tuple(
        InputSpec(name, _stored(schema, schema, {}), (), order=Order.ARRIVAL)
        for name, schema in schemas.items()
    )
    join = ThetaJoin(None, output, condition=condition, columns=(tuple(schemas[left]), tuple(schemas[right])))
    # Two versions of a function cannot be compared: compare the name, and warn if the code differs.
    named = f"{getattr(condition, '__module__', '')}.{getattr(condition, '__qualname__', type(condition).__name__)}"
    signature = JoinSignature(
        inputs, f"callable {named}", (), Compared.ALL_PAIRS, code=fingerprint(condition)
    )
    arriving = {name: tuple(schema) for name, schema in schemas.items()}
    return Compiled(
        signature=signature, join=join, arriving=arriving, computed=(), hashed=(), spark_checks=False
    )


def compile_equality(asked: Asked, equal: Sequence[KeyClass], conjuncts: Sequence[Expression]) -> Compiled:
    """Compile a join of two or more inputs by keys that all of them have."""
    predicate, schemas = asked.predicate, asked.schemas
    nested = any(one.type.nested for one in equal)
    exact = is_exact(equal)
    kernel, spark = share_residual(conjuncts)
    spark_checks = nested or bool(spark)
    output = asked.output(spark_checks=spark_checks)
    keys = {name: _keys_of(equal, name) for name in predicate.inputs} if not nested else {}
    verify: tuple[tuple[str, ...], ...] = ()
    if not exact and not nested:
        lines = zip(*(keys[name] for name in predicate.inputs), strict=True)
        verify = tuple(tuple(key.column for key in line) for line in lines)
    inputs = tuple(
        input_spec(name, schemas[name], output, kernel, keys.get(name, ()), [line[place] for line in verify])
        for place, name in enumerate(predicate.inputs)
    )
    kind = EquiJoin if len(predicate.inputs) == 2 else MultiJoin
    signature = JoinSignature(
        inputs=inputs,
        predicate=predicate.canonical,
        key_types=tuple(str(one.type) for one in equal),
        compared=_compared(exact=exact, nested=nested),
        sides=sides_of(equal),
    )
    return Compiled(
        signature=signature,
        join=kind(verify=verify, residual=conjunction(kernel), output=output, ansi=asked.ansi),
        arriving={spec.name: arriving_columns(spec, schemas[spec.name]) for spec in inputs},
        computed=tuple(key.computed for name in keys for key in keys[name] if key.computed),
        hashed=_hashed(equal, predicate.inputs) if nested else (),
        spark_checks=spark_checks,
        guards=predicate.guards,
    )


def _compared(*, exact: bool, nested: bool) -> Compared:
    if exact:
        return Compared.WORD
    return Compared.SPARK_HASH if nested else Compared.HASH


def _compile_band(asked: Asked, band: Band) -> Compiled:
    predicate, schemas = asked.predicate, asked.schemas
    kernel, spark = share_residual(_conjuncts(band.residual))
    output = asked.output(spark_checks=bool(spark))
    pair = KeyPair((band.left, band.right), band.type)
    keys = {side.input: settle_key(side.input, 0, pair, side) for side in pair.sides}
    inputs = tuple(
        input_spec(name, schemas[name], output, kernel, (keys[name],), (), order=Order.VALUE)
        for name in predicate.inputs
    )
    return Compiled(
        signature=JoinSignature(
            inputs, predicate.canonical, (str(band.type),), Compared.BAND, sides=sides_of([pair])
        ),
        join=BandJoin(band.type, band.low, band.high, conjunction(kernel), output, asked.ansi),
        partners=Partners(facing=BandFacing(band.type, band.low, band.high)),
        arriving={spec.name: arriving_columns(spec, schemas[spec.name]) for spec in inputs},
        computed=tuple(key.computed for key in keys.values() if key.computed),
        hashed=(),
        spark_checks=bool(spark),
        guards=predicate.guards,
    )


def _compile_any(asked: Asked) -> Compiled:
    predicate, schemas = asked.predicate, asked.schemas
    kernel, spark = share_residual(_conjuncts(predicate.residual))
    output = asked.output(spark_checks=bool(spark))
    inputs = tuple(
        input_spec(name, schemas[name], output, kernel, (), (), order=Order.ARRIVAL)
        for name in predicate.inputs
    )
    return Compiled(
        signature=JoinSignature(inputs, predicate.canonical, (), Compared.ALL_PAIRS),
        join=ThetaJoin(conjunction(kernel), output, asked.ansi),
        arriving={spec.name: arriving_columns(spec, schemas[spec.name]) for spec in inputs},
        computed=(),
        hashed=(),
        spark_checks=bool(spark),
        guards=predicate.guards,
    )


def check_names(schemas: dict[str, Schema]) -> None:
    for name, schema in schemas.items():
        for column in schema:
            if column.startswith(RESERVED_PREFIX):
                raise PredicateError(f"input {name}: the column name {column} is reserved; rename it")


def _conjuncts(residual: Expression | None) -> list[Expression]:
    return conjuncts_of(residual) if residual is not None else []


def share_residual(conjuncts: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    """Split what is left of a predicate into the conjuncts that the kernel takes and those that it leaves to Spark.

    If any is left to Spark, conjuncts that can raise are left too: the one that is left may guard them.
    """
    kernel = [part for part in conjuncts if supports(part)]
    if len(kernel) < len(conjuncts):
        kernel = [part for part in kernel if not may_raise(part)]
    return kernel, [part for part in conjuncts if part not in kernel]


def output_columns(
    inputs: tuple[str, ...],
    checked: Iterable[Column],
    selected: Sequence[Selected] | None,
    schemas: dict[str, Schema],
) -> tuple[OutputColumn, ...]:
    """The columns that the kernel emits: the output, and what Spark still has to check."""
    if selected is None:
        wanted = [(name, column) for name in inputs for column in schemas[name]]
    else:
        used = [*(column for item in selected for column in item.columns), *checked]
        wanted = [(column.input, column.name) for column in used]
    if not wanted:
        # A batch without columns has no rows, so keep any one column.
        wanted = [(name, column) for name in inputs for column in schemas[name]][:1]
    return tuple(
        OutputColumn(name, column, f"c{place}") for place, (name, column) in enumerate(dict.fromkeys(wanted))
    )


def recorded_zone(zone: str, sides: Iterable[tuple[KeySide, SqlType]], guards: Iterable[Guard]) -> str:
    """The session's time zone if keys or guards depend on it. Both are evaluated once, when a row arrives.

    A residual is evaluated when a pair is emitted, under the zone of that start. Window times are instants.
    """
    decided = any(key_reads_zone(side.expression, type_) for side, type_ in sides)
    return zone if decided or any(reads_zone(guard.expression) for guard in guards) else ""


def sides_of(equal: Iterable[KeyClass]) -> tuple[str, ...]:
    """The SQL of the order keys, as the signature records it."""
    return tuple(" : ".join(side.sql for side in one.sides) for one in equal)


def _keys_of(equal: Iterable[KeyClass], name: str) -> tuple[SettledKey, ...]:
    return tuple(settle_key(name, number, one, one.side(name)) for number, one in enumerate(equal))


def is_exact(equal: Sequence[KeyClass]) -> bool:
    """Whether equal order keys are equal keys, so that nothing needs to be compared."""
    return len(equal) == 1 and fits_word(_stored_type(equal[0].type))


def settle_key(name: str, number: int, pair: KeyClass, side: KeySide) -> SettledKey:
    """Use a plain column as it is if the kernel can widen it, otherwise have the key computed."""
    own = side.expression.type
    widens = (
        (own.integral and pair.type.integral) or (own.floating and pair.type.floating) or own == pair.type
    )
    stored = _stored_type(pair.type)
    if isinstance(side.expression, Column) and widens and stored == pair.type:
        return SettledKey(side.expression.name, None)
    column = f"{RESERVED_PREFIX}key{number}"
    sql = side.sql if own == pair.type else f"CAST({side.sql} AS {pair.type})"
    if stored != pair.type:
        sql = f"CAST({sql} AS {stored})"
    expression = side.expression if own == pair.type else Call("cast", (side.expression,), pair.type)
    return SettledKey(column, ComputedKey(name, column, sql, expression, stored))


def _stored_type(kind: SqlType) -> SqlType:
    """The type in which a key is stored: its own, or one that Arrow compares as Spark compares the key."""
    if kind.name.startswith(("interval year", "interval month")):
        return INT
    return kind


def input_spec(
    name: str,
    schema: Schema,
    output: Iterable[OutputColumn],
    kernel: Iterable[Expression],
    keys: tuple[SettledKey, ...],
    verified: Sequence[str],
    order: Order = Order.HASH,
) -> InputSpec:
    used = [c.column for c in output if c.input == name]
    used += [c.name for part in kernel for c in columns_of(part) if c.input == name]
    computed = {key.column: str(key.computed.type) for key in keys if key.computed}
    stored = _stored([*used, *verified], schema, computed)
    hashed = HASHED if order == Order.HASH and not keys else None
    return InputSpec(name, stored, tuple(key.column for key in keys), hashed, order)


def _stored(used: Iterable[str], schema: Schema, computed: dict[str, str]) -> tuple[StoredColumn, ...]:
    return tuple(
        StoredColumn(column, computed[column] if column in computed else str(schema[column]))
        for column in dict.fromkeys(used)
    )


def arriving_columns(spec: InputSpec, schema: Schema) -> tuple[str, ...]:
    """The plain columns to read from the input, in the input's order."""
    needed = {*(column.name for column in spec.stored), *spec.keys}
    return tuple(column for column in schema if column in needed)


def _hashed(equal: Sequence[KeyClass], inputs: Sequence[str]) -> tuple[HashedKeys, ...]:
    hashed = []
    for name in inputs:
        sides = [(one.type, one.side(name)) for one in equal]
        # Nested types need no cast: only their field names differ. Other values are hashed in the compared type.
        sql = tuple(side.sql if kind.nested else f"CAST({side.sql} AS {kind})" for kind, side in sides)
        types = tuple(side.expression.type if kind.nested else kind for kind, side in sides)
        hashed.append(HashedKeys(name, sql, types))
    return tuple(hashed)
