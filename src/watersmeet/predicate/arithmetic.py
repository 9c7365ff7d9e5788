"""Types of arithmetic results, as Spark's analyser gives them (DecimalPrecision, ANSI and legacy).

Checked against Spark 4.3 for every pair of numeric types; see tests/unit/test_predicate_types.py.
Where Spark's answer depends on more than the types, the result is `unknown`, which is never an error.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from watersmeet.model.expression import Expression, Literal
from watersmeet.model.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INTEGRAL_DIGITS,
    INTEGRALS,
    MAX_DECIMAL_DIGITS,
    TIMESTAMP,
    SqlType,
    decimal,
)
from watersmeet.predicate.coerce import common_type
from watersmeet.predicate.intervals import DAY_TIME, YEAR_MONTH, fields_of, interval_type

UNKNOWN: Final = SqlType("unknown")

# Spark keeps at least this many digits after the point when a decimal result must be cut to 38 digits.
MIN_ADJUSTED_SCALE: Final = 6

_TEMPORAL: Final = ("date", "timestamp", "timestamp_ntz")


def result_type(op: str, left: Expression, right: Expression, ansi: bool) -> SqlType:
    """The type of `left op right`.

    >>> from watersmeet.model.types import INT
    >>> str(result_type("/", Literal(7, INT), Literal(2, INT), True))
    'double'
    """
    if left.type.numeric and right.type.numeric:
        return _numeric(op, left, right, ansi)
    if op in ("+", "-"):
        return _moved_in_time(op, left.type, right.type)
    return _scaled_interval(op, left.type, right.type)


def widest(types: list[SqlType], ansi: bool) -> SqlType:
    """The type that Spark brings the branches of CASE or the arguments of coalesce to."""
    kinds = {type_.stringlike for type_ in types if type_.name != "void"}
    if len(kinds) > 1 or UNKNOWN in types:
        return UNKNOWN
    return reduce(lambda left, right: common_type(left, right, ansi) or UNKNOWN, types)


def _numeric(op: str, left: Expression, right: Expression, ansi: bool) -> SqlType:
    if op == "div":
        return BIGINT
    if left.type.floating or right.type.floating:
        return DOUBLE if op == "/" else common_type(left.type, right.type, ansi) or UNKNOWN
    if left.type.integral and right.type.integral:
        wider = max(left.type.name, right.type.name, key=INTEGRALS.index)
        return DOUBLE if op == "/" else SqlType(wider)
    return _decimal_result(op, _as_decimal(left), _as_decimal(right))


def _as_decimal(expression: Expression) -> tuple[int, int]:
    """Precision and scale; an integral literal counts its own digits, not those of its type."""
    type_ = expression.type
    if type_.name == "decimal":
        return type_.precision or 0, type_.scale or 0
    if isinstance(expression, Literal) and isinstance(expression.value, int):
        return len(str(abs(expression.value))), 0
    return INTEGRAL_DIGITS[type_.name], 0


def _decimal_result(op: str, left: tuple[int, int], right: tuple[int, int]) -> SqlType:
    (p1, s1), (p2, s2) = left, right
    if op in ("+", "-"):
        scale = max(s1, s2)
        return _adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return _adjusted(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(MIN_ADJUSTED_SCALE, s1 + p2 + 1)
        return _adjusted(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return _adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def _adjusted(precision: int, scale: int) -> SqlType:
    if precision <= MAX_DECIMAL_DIGITS:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_DECIMAL_DIGITS, max(MAX_DECIMAL_DIGITS - whole, min(scale, MIN_ADJUSTED_SCALE)))


def _moved_in_time(op: str, left: SqlType, right: SqlType) -> SqlType:
    if op == "-" and left.name in _TEMPORAL and right.name in _TEMPORAL:
        return SqlType("interval day" if left == right == DATE else "interval day to second")
    if left.name in _TEMPORAL:
        return _shifted(left, right)
    if op == "+" and right.name in _TEMPORAL:
        return _shifted(right, left)
    return _interval_sum(left, right)


def _shifted(moment: SqlType, by: SqlType) -> SqlType:
    if moment == DATE and by.name in ("int", "smallint", "tinyint"):
        return DATE
    span = fields_of(by)
    if span is None:
        return UNKNOWN
    if moment == DATE and span[0] == DAY_TIME and span[1] != ["day"]:
        return TIMESTAMP
    return moment


def _interval_sum(left: SqlType, right: SqlType) -> SqlType:
    one, other = fields_of(left), fields_of(right)
    if one is None or other is None or one[0] != other[0]:
        return UNKNOWN
    return interval_type([*one[1], *other[1]], one[0])


def _scaled_interval(op: str, left: SqlType, right: SqlType) -> SqlType:
    span = fields_of(left) if right.numeric else fields_of(right) if op == "*" and left.numeric else None
    if span is None or op not in ("*", "/"):
        return UNKNOWN
    return interval_type(
        [YEAR_MONTH[0], YEAR_MONTH[-1]] if span[0] == YEAR_MONTH else ["day", "second"], span[0]
    )
