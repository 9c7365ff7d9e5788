"""Evaluate typed expressions over Arrow columns with exactly Spark's meaning.

Only expressions that Arrow reproduces bit for bit are supported (`supports`); the drivers leave the rest to Spark.
Where the two differ by default, Spark wins: NaN equals NaN and is larger than anything, -0.0 equals 0.0, integer
overflow is an error under ANSI and wraps otherwise, logic is three-valued.

We differ from Spark in one thing: conjuncts are applied one after the other, and a row that an earlier one rejects is
not evaluated by a later one. So an overflow on a rejected row may go unnoticed here. Spark's optimiser may reorder
conjuncts too and promises neither. Conjuncts that can raise come last, so that they see as few rows as possible;
distances of vectors are among them, and they are costly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import WatersmeetError
from watersmeet.kernel import vectors
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.kernel.rows import take_values
from watersmeet.kernel.vectors import Vectors
from watersmeet.model.expression import Call, Column, Expression, Literal, columns_of, conjuncts_of
from watersmeet.model.types import INTEGRAL_DIGITS, MAX_DECIMAL_DIGITS, VECTOR, SqlType

Values = Mapping[tuple[str, str], "pa.Array | Vectors"]
# Gives the values of a column at some of the rows.
Read = Callable[[Column, Indices], "pa.Array | Vectors"]


class ArithmeticOverflow(WatersmeetError, ArithmeticError):
    """An integer operation of the predicate left its type, as Spark's ARITHMETIC_OVERFLOW."""


_COMPARE: Final = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_CHECKED: Final = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}
WRAPPING: Final = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "neg": pc.negate, "abs": pc.abs}
_ARROW: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def supports(expression: Expression) -> bool:
    """Whether `evaluate` gives Spark's answer for this expression, for every value of its columns."""
    if isinstance(expression, Column):
        return _plain(expression.type)
    if isinstance(expression, Literal):
        return expression.value is not None and _plain(expression.type) and not _in_session_zone(expression)
    if expression.op in vectors.FUNCTIONS:
        return all(isinstance(arg, Column) and arg.type == VECTOR for arg in expression.args)
    return _supports_call(expression) and all(supports(arg) for arg in expression.args)


def may_raise(expression: Expression) -> bool:
    """Whether evaluating it can raise: an overflow, vectors of two lengths.

    Where Spark skips a side that does not decide (AND, OR, coalesce), a side that can raise must not be evaluated here
    on every row.
    """
    if not isinstance(expression, Call):
        return False
    raises = may_overflow(expression) or expression.op in vectors.FUNCTIONS
    return raises or any(may_raise(arg) for arg in expression.args)


def may_overflow(call: Call) -> bool:
    """Whether this operation can leave its type, whatever its arguments do."""
    return call.op in _CHECKED and call.type.integral


def _in_session_zone(literal: Literal) -> bool:
    """A TIMESTAMP without a zone means the session's zone, which only Spark knows."""
    return literal.type.name == "timestamp" and getattr(literal.value, "tzinfo", None) is None


def _supports_call(call: Call) -> bool:
    kinds = [arg.type for arg in call.args]
    if call.op in ("and", "or", "not"):
        guarded = call.op != "not" and any(may_raise(arg) for arg in call.args)
        return all(kind.name == "boolean" for kind in kinds) and not guarded
    if call.op == "is_null":
        return True
    if call.op in _COMPARE or call.op == "in":
        return all(_comparable(call.args[0], other) for other in call.args[1:])
    if call.op in _CHECKED:
        return _arithmetic(call.type, kinds) and not _rounds_decimals(call.args)
    if call.op == "coalesce":
        return all(kind == call.type for kind in kinds) and not any(map(may_raise, call.args))
    return False


def _plain(kind: SqlType) -> bool:
    return kind.name == "decimal" or (kind.name in _ARROW and kind.collation is None)


def _comparable(one: Expression, other: Expression) -> bool:
    if not (one.type.numeric and other.type.numeric):
        return one.type == other.type
    if _common_number(one.type, other.type) is None or _rounds_decimals((one, other)):
        return False
    return _exact_in_float(one, other) and _exact_in_float(other, one)


# The largest integer up to which float holds every integer.
_FLOAT_INTEGERS: Final = 1 << 24


def _exact_in_float(one: Expression, other: Expression) -> bool:
    """Spark compares a float with an integer in float or in double, by mode: both must say the same."""
    if not (one.type.name == "float" and other.type.integral):
        return True
    literal = other.value if isinstance(other, Literal) else None
    return isinstance(literal, int) and abs(literal) <= _FLOAT_INTEGERS


def _rounds_decimals(args: Sequence[Expression]) -> bool:
    """Whether a decimal column would become a double: Arrow does not round as Spark does. Literals are safe."""
    with_floats = any(arg.type.floating for arg in args)
    return with_floats and any(arg.type.name == "decimal" and not isinstance(arg, Literal) for arg in args)


def _arithmetic(result: SqlType, kinds: list[SqlType]) -> bool:
    """Integers among themselves, and whatever Spark computes in double. Decimal arithmetic is Spark's."""
    if all(kind.integral for kind in kinds):
        return result.integral
    if all(kind.name == "float" for kind in kinds):
        return result.name == "float"
    return result.name == "double" and all(kind.numeric for kind in kinds)


def _common_number(one: SqlType, other: SqlType) -> pa.DataType | None:
    """The Arrow type in which Spark compares two numbers; None where that is not certain."""
    if one == other:
        return arrow_type(one)
    if one.integral and other.integral:
        return pa.int64()
    if one.floating or other.floating:
        return pa.float64()
    digits = [_decimal_digits(kind) for kind in (one, other)]
    scale = max(s for _, s in digits)
    precision = max(p - s for p, s in digits) + scale
    return pa.decimal128(precision, scale) if precision <= MAX_DECIMAL_DIGITS else None


def _decimal_digits(kind: SqlType) -> tuple[int, int]:
    if kind.integral:
        return INTEGRAL_DIGITS[kind.name], 0
    assert kind.precision is not None and kind.scale is not None
    return kind.precision, kind.scale


def arrow_type(kind: SqlType) -> pa.DataType:
    return pa.decimal128(kind.precision, kind.scale) if kind.name == "decimal" else _ARROW[kind.name]


def filter_mask(expression: Expression, values: Values, rows: int, *, ansi: bool) -> Mask:
    """True where the predicate is true: not where it is false, and not where it is null."""

    def read(column: Column, at: Indices) -> pa.Array | Vectors:
        whole = values[column.input, column.name]
        return whole if len(at) == rows else take(whole, at)

    mask = np.zeros(rows, dtype=np.bool_)
    mask[surviving(expression, read, rows, ansi=ansi)] = True
    return mask


def surviving(expression: Expression, read: Read, rows: int, *, ansi: bool) -> Indices:
    """The rows for which the predicate is true. A column is read where the conjuncts before have left rows."""
    alive = np.arange(rows)
    for conjunct in sorted(conjuncts_of(expression), key=may_raise):
        if not len(alive):
            break
        values = {(c.input, c.name): read(c, alive) for c in dict.fromkeys(columns_of(conjunct))}
        truth = evaluate(conjunct, values, len(alive), ansi=ansi)
        alive = alive[pc.fill_null(truth, False).to_numpy(zero_copy_only=False)]
    return alive


def take(column: pa.Array, at: Indices) -> pa.Array | Vectors:
    """Some rows of a column; of vectors only their places."""
    return vectors.vectors_of(column, at) if vectors.is_vectors(column.type) else take_values(column, at)


def evaluate(expression: Expression, values: Values, rows: int, *, ansi: bool) -> pa.Array:
    """The column of values that a supported expression takes."""
    result = _evaluate(expression, values, ansi)
    return pa.repeat(result, rows) if isinstance(result, pa.Scalar) else result


def _evaluate(expression: Expression, values: Values, ansi: bool) -> pa.Array | pa.Scalar:
    if isinstance(expression, Column):
        return values[expression.input, expression.name]
    if isinstance(expression, Literal):
        return pa.scalar(expression.value, arrow_type(expression.type))
    if expression.op in vectors.FUNCTIONS:
        return _measured(expression, values)
    args = _operands(expression, values, ansi)
    kinds = [arg.type for arg in expression.args]
    op = expression.op
    if op in ("and", "or"):
        return functools.reduce(pc.and_kleene if op == "and" else pc.or_kleene, args)
    if op == "not":
        return pc.invert(args[0])
    if op == "is_null":
        return pc.is_null(args[0])
    if op == "coalesce":
        return pc.coalesce(*args)
    if op == "in":
        items = zip(args[1:], kinds[1:], strict=True)
        return functools.reduce(
            pc.or_kleene, (_compare("=", args[0], item, kinds[0], kind) for item, kind in items)
        )
    if op in _COMPARE:
        return _compare(op, args[0], args[1], kinds[0], kinds[1])
    return _compute(op, args, expression.type, ansi)


def _operands(call: Call, values: Values, ansi: bool) -> list[pa.Array | pa.Scalar]:
    """The arguments' values. Of a distance with an upper bound only the small ones need to be known."""
    bounds = {"<": 1, "<=": 1, ">": 0, ">=": 0}
    bound = call.args[bounds[call.op]] if call.op in bounds else None
    literal = bound.value if isinstance(bound, Literal) else None
    beyond = float(literal) if isinstance(literal, (int, float, Decimal)) else math.inf
    return [
        _measured(arg, values, beyond)
        if isinstance(arg, Call) and arg.op == vectors.L2_DISTANCE
        else _evaluate(arg, values, ansi)
        for arg in call.args
    ]


def _measured(call: Call, values: Values, beyond: float = math.inf) -> pa.Array:
    one, other = (_vectors(values[arg.input, arg.name]) for arg in call.args if isinstance(arg, Column))
    return vectors.measure(call.op, one, other, beyond=beyond)


def _vectors(column: pa.Array | pa.Scalar | Vectors) -> Vectors:
    if isinstance(column, Vectors):
        return column
    return vectors.vectors_of(pa.repeat(column, 1) if isinstance(column, pa.Scalar) else column)


def _compute(op: str, args: list[pa.Array | pa.Scalar], result: SqlType, ansi: bool) -> pa.Array | pa.Scalar:
    kind = arrow_type(result)
    operands = [_cast(arg, kind) for arg in args]
    if not result.integral or not ansi:
        return WRAPPING[op](*operands)
    try:
        return _CHECKED[op](*operands)
    except pa.ArrowInvalid as overflow:
        raise ArithmeticOverflow(
            f"ARITHMETIC_OVERFLOW: `{op}` in the join predicate leaves the type {result}; "
            "cast an operand to a wider type, or set spark.sql.ansi.enabled to false"
        ) from overflow


def _compare(
    op: str, one: pa.Array | pa.Scalar, other: pa.Array | pa.Scalar, one_kind: SqlType, other_kind: SqlType
) -> pa.Array | pa.Scalar:
    if one_kind != other_kind:
        common = _common_number(one_kind, other_kind)
        one, other = _cast(one, common), _cast(other, common)
    plain = _COMPARE[op](one, other)
    return _order_nan(op, plain, one, other) if pa.types.is_floating(one.type) else plain


def _order_nan(
    op: str, plain: pa.Array | pa.Scalar, one: pa.Array | pa.Scalar, other: pa.Array | pa.Scalar
) -> pa.Array | pa.Scalar:
    """IEEE says false to every comparison with NaN but `<>`; Spark puts NaN above all and equal to itself."""
    nan_one, nan_other = pc.is_nan(one), pc.is_nan(other)
    if op in ("=", "<>"):
        both = pc.and_(nan_one, nan_other)
        return pc.or_(plain, both) if op == "=" else pc.and_(plain, pc.invert(both))
    larger, smaller = (nan_other, nan_one) if op in ("<", "<=") else (nan_one, nan_other)
    return pc.or_(plain, larger if op in ("<=", ">=") else pc.and_(larger, pc.invert(smaller)))


def _cast(value: pa.Array | pa.Scalar, kind: pa.DataType) -> pa.Array | pa.Scalar:
    if value.type == kind:
        return value
    if isinstance(value, pa.Scalar) and isinstance(value.as_py(), Decimal) and pa.types.is_floating(kind):
        return pa.scalar(float(value.as_py()), kind)
    return pc.cast(value, kind, safe=False)


def same_value(one: pa.Array, other: pa.Array | pa.Scalar) -> pa.Array:
    """Equality of key columns of one SQL type, or with one value: NaN equals NaN, integers of any width compare."""
    if pa.types.is_floating(one.type) or pa.types.is_floating(other.type):
        wide = [column.cast(pa.float64()) for column in (one, other)]
        return _order_nan("=", pc.equal(*wide), *wide)
    return pc.equal(one, other)


def all_same(column: pa.Array, value: pa.Scalar) -> bool:
    """Whether all values of a key column equal one value."""
    return bool(pc.all(pc.fill_null(same_value(column, value), False)).as_py())
