"""The types that Spark gives to comparisons and arithmetic, and the type errors that are certain.

Two sides of an equality are compared in one type:

    integrals               the wider                     int = bigint           -> bigint
    decimals, integrals     a decimal that holds both     int = decimal(10,2)    -> decimal(12,2)
    float, double           ANSI: double with anything numeric, float only with float
                            legacy: integral = float      -> float
    date, timestamp[_ntz]   the one that holds both       date = timestamp       -> timestamp
    string, other (ANSI)    the other, but integrals as bigint, decimals and floats as double
    structs, arrays         only with the same types inside; names of fields do not matter

Where we refuse and Spark does not: decimals that need more than 38 digits (Spark drops digits after the point, so
that 1.4 equals 1), strings with other types in legacy mode (Spark turns bad text into NULL), nested types that need a
cast, and collations other than UTF8_BINARY (equal text with different bytes).

Arithmetic follows Spark's DecimalPrecision, ANSI and legacy. Where Spark's answer depends on more than the types, the
result is `unknown`. That is never an error: doubt passes, and Spark's analyser sees the text later.

Measured on the analysed plans of Spark 4.3, for every pair of numeric types; tests/unit/test_predicate_coerce.py and
tests/unit/test_predicate_types.py hold the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
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
    STRING,
    TIMESTAMP,
    SqlType,
    decimal,
)
from watersmeet.predicate.literals import YEAR_MONTH, fields_of, interval_type, is_day_time

UNKNOWN: Final = SqlType("unknown")

# A later one holds an earlier one. timestamp is last: Spark reads an NTZ in the session's time zone.
MOMENTS: Final = ("date", "timestamp_ntz", "timestamp")
_TEXT_COMPARES_WITH: Final = (*MOMENTS, "boolean", "binary")
# `interval` is Spark's old calendar interval: a month has no fixed length.
_NEVER_A_KEY: Final = ("map", "variant", "interval", "unknown")
_BINARY_COLLATION: Final = "UTF8_BINARY"
# Spark keeps at least this many digits after the point when a decimal result must be cut to 38 digits.
_MIN_ADJUSTED_SCALE: Final = 6


def common_type(left: SqlType, right: SqlType, ansi: bool) -> SqlType | None:
    """The type in which Spark compares `left = right`; None if there is none or digits are lost.

    >>> from watersmeet.model.types import INT
    >>> str(common_type(INT, decimal(10, 2), ansi=True))
    'decimal(12,2)'
    """
    if "void" in (left.name, right.name):
        other = right if left.name == "void" else left
        return other if same_shape(other, other) or not binary_collated(other) else None
    if left.stringlike and right.stringlike:
        if binary_collated(left) and binary_collated(right):
            return STRING
        return left if left == right else None
    if left.nested or right.nested:
        return left if same_shape(left, right) else None
    if left.name in _NEVER_A_KEY or right.name in _NEVER_A_KEY:
        return None
    if left == right:
        return left
    if left.numeric and right.numeric:
        return _common_number(left, right, ansi)
    if left.stringlike or right.stringlike:
        return _beside_text(right if left.stringlike else left) if ansi else None
    if left.name in MOMENTS and right.name in MOMENTS:
        return SqlType(max(left.name, right.name, key=MOMENTS.index))
    return _common_interval(left, right)


def same_shape(left: SqlType, right: SqlType) -> bool:
    """Whether two types are equal but for the names of fields, with nothing inside that cannot be compared."""
    if left.name == right.name == "array" and left.element and right.element:
        return same_shape(left.element, right.element)
    if left.name == right.name == "struct" and len(left.fields) == len(right.fields):
        return all(same_shape(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True))
    return left == right and left.name not in _NEVER_A_KEY and binary_collated(left)


def parts_of(type_: SqlType) -> Iterator[SqlType]:
    """The types directly inside a nested type."""
    inside = (type_.element, type_.value, *(field.type for field in type_.fields))
    return (part for part in inside if part is not None)


def binary_collated(type_: SqlType) -> bool:
    """Whether equal text means equal bytes, in the type and in everything inside it."""
    return type_.collation in (None, _BINARY_COLLATION) and all(map(binary_collated, parts_of(type_)))


def _common_number(left: SqlType, right: SqlType, ansi: bool) -> SqlType | None:
    names = (left.name, right.name)
    if left.floating or right.floating:
        legacy_float = not ansi and "double" not in names and "decimal" not in names
        return SqlType("float") if legacy_float else DOUBLE
    if left.integral and right.integral:
        return SqlType(max(names, key=INTEGRALS.index))
    scale = max(left.scale or 0, right.scale or 0)
    precision = max(_whole_digits(left), _whole_digits(right)) + scale
    return decimal(precision, scale) if precision <= MAX_DECIMAL_DIGITS else None


def _whole_digits(type_: SqlType) -> int:
    return INTEGRAL_DIGITS[type_.name] if type_.integral else (type_.precision or 0) - (type_.scale or 0)


def _beside_text(other: SqlType) -> SqlType | None:
    if other.integral:
        return BIGINT
    if other.numeric:
        return DOUBLE
    return other if other.name in _TEXT_COMPARES_WITH else None


def _common_interval(left: SqlType, right: SqlType) -> SqlType | None:
    one, other = fields_of(left), fields_of(right)
    if one is None or other is None or one[0] != other[0]:
        return None
    return interval_type([*one[1], *other[1]], one[0])


def widest(types: list[SqlType], ansi: bool) -> SqlType:
    """The type of CASE or coalesce over branches of these types."""
    kinds = {type_.stringlike for type_ in types if type_.name != "void"}
    if len(kinds) > 1 or UNKNOWN in types:
        return UNKNOWN
    return reduce(lambda left, right: common_type(left, right, ansi) or UNKNOWN, types)


def result_type(op: str, left: Expression, right: Expression, ansi: bool) -> SqlType:
    """The type of `left op right`.

    >>> from watersmeet.model.types import INT
    >>> str(result_type("/", Literal(7, INT), Literal(2, INT), True))
    'double'
    """
    if left.type.numeric and right.type.numeric:
        return _number(op, left, right, ansi)
    if op in ("+", "-"):
        return _moment_or_interval(op, left.type, right.type)
    return _scaled_interval(op, left.type, right.type)


def _number(op: str, left: Expression, right: Expression, ansi: bool) -> SqlType:
    if op == "div":
        return BIGINT
    if "decimal" in (left.type.name, right.type.name) and not (left.type.floating or right.type.floating):
        return _decimal_result(op, _as_decimal(left), _as_decimal(right))
    return DOUBLE if op == "/" else common_type(left.type, right.type, ansi) or UNKNOWN


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
        scale = max(_MIN_ADJUSTED_SCALE, s1 + p2 + 1)
        return _adjusted(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return _adjusted(min(p1 - s1, p2 - s2) + scale, scale)


def _adjusted(precision: int, scale: int) -> SqlType:
    if precision <= MAX_DECIMAL_DIGITS:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_DECIMAL_DIGITS, max(MAX_DECIMAL_DIGITS - whole, min(scale, _MIN_ADJUSTED_SCALE)))


def _moment_or_interval(op: str, left: SqlType, right: SqlType) -> SqlType:
    if op == "-" and left.name in MOMENTS and right.name in MOMENTS:
        return SqlType("interval day" if left == right == DATE else "interval day to second")
    if left.name in MOMENTS:
        return _shifted(left, right)
    if op == "+" and right.name in MOMENTS:
        return _shifted(right, left)
    return _common_interval(left, right) or UNKNOWN


def _shifted(moment: SqlType, by: SqlType) -> SqlType:
    if moment == DATE and by.name in ("int", "smallint", "tinyint"):
        return DATE
    if fields_of(by) is None:
        return UNKNOWN
    return TIMESTAMP if moment == DATE and is_day_time(by) and by.name != "interval day" else moment


def _scaled_interval(op: str, left: SqlType, right: SqlType) -> SqlType:
    span = fields_of(left) if right.numeric else fields_of(right) if op == "*" and left.numeric else None
    if span is None or op not in ("*", "/"):
        return UNKNOWN
    return interval_type(["year", "month"] if span[0] == YEAR_MONTH else ["day", "second"], span[0])


# Types that Spark treats alike when it decides whether two sides can be compared.
_Family = Enum("_Family", "NUMBER TEXT MOMENT INTERVAL BOOLEAN BINARY ARRAY STRUCT MAP")
# Spark compares text with these by a cast.
_TEXT_PARTNERS: Final = {_Family.TEXT, _Family.NUMBER, _Family.BOOLEAN, _Family.BINARY, _Family.MOMENT}
# Families of one type each, named like it. None of them takes part in arithmetic.
_SINGLE: Final = (_Family.BOOLEAN, _Family.BINARY, _Family.ARRAY, _Family.STRUCT, _Family.MAP)


def cannot_compare(left: SqlType, right: SqlType, ansi: bool) -> bool:
    """Whether Spark is sure to refuse a comparison.

    >>> from watersmeet.model.types import BOOLEAN, DATE
    >>> cannot_compare(BOOLEAN, DATE, ansi=True)
    True
    """
    if incomparable(left) or incomparable(right):
        return True
    families = {_family(left), _family(right)}
    if None in families or len(families) == 1:
        return False
    if _Family.TEXT in families:
        return not families <= _TEXT_PARTNERS
    return ansi or families != {_Family.NUMBER, _Family.BOOLEAN}


def incomparable(type_: SqlType) -> bool:
    """Whether a type, or a type inside it, has no comparison at all."""
    return type_.name in ("map", "variant") or any(map(incomparable, parts_of(type_)))


def not_boolean(type_: SqlType) -> bool:
    """Whether a value is certainly no condition. Text is none: Spark takes it beside AND in one mode, never alone."""
    return _family(type_) not in (None, _Family.BOOLEAN)


def not_arithmetic(op: str, type_: SqlType) -> bool:
    """Whether Spark is sure to refuse an operand of this type."""
    if op == "div" and type_.floating:
        return True
    family = _family(type_)
    return family in _SINGLE or (family is _Family.MOMENT and op not in ("+", "-"))


def _family(type_: SqlType) -> _Family | None:
    """None where we do not know how Spark treats the type."""
    if type_.numeric:
        return _Family.NUMBER
    if type_.stringlike:
        return _Family.TEXT
    if type_.name in MOMENTS:
        return _Family.MOMENT
    if type_.name.startswith("interval "):
        return _Family.INTERVAL
    return next((family for family in _SINGLE if family.name.lower() == type_.name), None)
