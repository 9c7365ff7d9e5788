"""Typed expressions: a predicate or a selected column after names and types are resolved.

The tree is data only. `kernel/evaluate.py` computes the part that Arrow can evaluate exactly as Spark does. Everything
else is left to Spark, which reads the user's own text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from watersmeet.model.types import BOOLEAN, SqlType

Value = bool | int | float | str | bytes | Decimal | datetime.date | datetime.datetime | None


@dataclass(frozen=True, slots=True)
class Column:
    """A top-level column of one input."""

    input: str
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    type: SqlType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function: `op` is the SQL symbol or the lower-case function name.

    Operators: `= <=> <> < <= > >= and or not is_null in + - * / % neg abs cast coalesce case field`. `in` has the
    needle first; `cast` goes to `type`; `case` is condition, value, ..., else; `field` has the struct first and the
    field's name as a string literal second.
    """

    op: str
    args: tuple[Expression, ...]
    type: SqlType


Expression = Column | Literal | Call


def columns_of(expression: Expression) -> Iterator[Column]:
    """Every column that the expression reads, in reading order, with repeats."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for arg in expression.args:
            yield from columns_of(arg)


def conjuncts_of(expression: Expression) -> list[Expression]:
    """The parts of a condition that must all hold, in reading order."""
    if isinstance(expression, Call) and expression.op == "and":
        return [part for arg in expression.args for part in conjuncts_of(arg)]
    return [expression]


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """The condition that all parts hold; None if there are none."""
    if len(parts) <= 1:
        return parts[0] if parts else None
    return Call("and", tuple(parts), BOOLEAN)


def with_columns(expression: Expression, renamed: Callable[[Column], Column]) -> Expression:
    """The same expression over other columns.

    >>> total = Call("+", (Column("l", "k", BOOLEAN), Literal(1, BOOLEAN)), BOOLEAN)
    >>> with_columns(total, lambda column: Column("m", column.name, column.type)).args[0].input
    'm'
    """
    if isinstance(expression, Column):
        return renamed(expression)
    if isinstance(expression, Call):
        args = tuple(with_columns(arg, renamed) for arg in expression.args)
        return Call(expression.op, args, expression.type)
    return expression


def inputs_of(expression: Expression) -> frozenset[str]:
    return frozenset(column.input for column in columns_of(expression))


@dataclass(frozen=True, slots=True)
class KeySide:
    """One input's side of an equality or a band. `sql` is Spark SQL over a struct column named like the input."""

    input: str
    expression: Expression
    sql: str


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Sides of different inputs, in the order of the inputs, that are all equal, and the type of every comparison."""

    sides: tuple[KeySide, ...]
    type: SqlType

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(side.input for side in self.sides)

    def side(self, input_: str) -> KeySide:
        return next(side for side in self.sides if side.input == input_)


@dataclass(frozen=True, slots=True)
class KeyPair(KeyClass):
    """Two sides that must be equal, in the order of the inputs, and the type in which Spark compares them."""

    sides: tuple[KeySide, KeySide]


# The largest decimal whose unscaled value always fits 64 bits.
WORD_DIGITS = 18


def dropped_bits(precision: int) -> int:
    """The low bits of the unscaled value that a decimal's order key leaves out.

    >>> dropped_bits(18), dropped_bits(20), dropped_bits(38)
    (0, 4, 64)
    """
    return max(0, (10**precision).bit_length() + 1 - 64) if precision > WORD_DIGITS else 0


@dataclass(frozen=True, slots=True)
class Band:
    """`low <= left - right <= high`, compared in `type`. A bound of None does not apply.

    Integer bounds count steps of the order key (kernel/keys.py): units of an integer, days, microseconds, units of the
    last decimal place. Float bounds are distances between float or double values. A pair of rows satisfies the
    predicate exactly if it lies in the band and `residual` (if any) is true. `exact` says that the band decides its own
    conjuncts, so that they are not in `residual` again. `two_sided` says that both bounds apply, so that a row's number
    of partners does not grow with the spread of the history.
    """

    left: KeySide
    right: KeySide
    type: SqlType
    low: int | float | None
    high: int | float | None
    exact: bool
    residual: Expression | None

    @property
    def inputs(self) -> tuple[str, str]:
        return self.left.input, self.right.input

    @property
    def two_sided(self) -> bool:
        return self.low is not None and self.high is not None


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition of the predicate on the rows of one input alone, with its Spark SQL."""

    input: str
    expression: Expression
    sql: str


@dataclass(frozen=True, slots=True)
class Predicate:
    """A join condition, split: every key pair holds AND the residual (if any) is true.

    `bands` are another way to find pairs: one for each two inputs that an inequality joins and no key does. A band
    implies nothing that the residual does not say. A join that uses it checks `band.residual` instead.

    `guards` are the conjuncts that read one input, for each input. They are in the residual too. Rows that fail them
    need not be stored, and what they guard (a division, say) must not be computed for these rows.

    `conjuncts` are all parts of the condition as they were written, before they were split.

    `text` is the user's text, which Spark evaluates if the kernel cannot. `canonical` is equal for two texts that
    differ only in spelling (white space, letter case, brackets, order of the conjuncts).
    """

    text: str
    canonical: str
    inputs: tuple[str, ...]
    keys: tuple[KeyPair, ...]
    residual: Expression | None
    columns: tuple[Column, ...]
    bands: tuple[Band, ...] = ()
    guards: tuple[Guard, ...] = ()
    conjuncts: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Selected:
    """One output column: `text` without the alias, its name, and the columns that it reads."""

    text: str
    name: str
    expression: Expression
    columns: tuple[Column, ...]
