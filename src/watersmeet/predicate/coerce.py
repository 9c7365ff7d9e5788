"""The type in which Spark compares two sides of an equality, and whether it compares them at all.

    integrals               the wider                     int = bigint           -> bigint
    decimals, integrals     a decimal that holds both     int = decimal(10,2)    -> decimal(12,2)
    float, double           ANSI: double with anything numeric, float only with float
                            legacy: integral = float      -> float
    date, timestamp[_ntz]   the one that holds both       date = timestamp       -> timestamp
    string, other (ANSI)    the other, but integrals as bigint, decimals and floats as double
    structs, arrays         only with the same types inside; names of fields do not matter

Measured on the analysed plans of Spark 4.3; tests/unit/test_predicate_coerce.py holds the table.
Where we refuse and Spark does not: decimals that need more than 38 digits (Spark drops digits after the
point, so that 1.4 equals 1), strings with other types in legacy mode (Spark turns bad text into NULL),
nested types that need a cast, and collations other than UTF8_BINARY (equal text with different bytes).
"""

from __future__ import annotations

from typing import Final

from watersmeet.model.types import (
    BIGINT,
    DOUBLE,
    INTEGRAL_DIGITS,
    INTEGRALS,
    MAX_DECIMAL_DIGITS,
    STRING,
    SqlType,
    decimal,
)
from watersmeet.predicate.intervals import fields_of, interval_type

# A later one holds an earlier one. timestamp is last: Spark reads an NTZ in the session's time zone.
_TEMPORAL: Final = ("date", "timestamp_ntz", "timestamp")
_TEXT_COMPARES_WITH: Final = (*_TEMPORAL, "boolean", "binary")
# `interval` is Spark's old calendar interval: a month has no fixed length.
_NEVER: Final = ("map", "variant", "interval", "unknown")
BINARY_COLLATION: Final = "UTF8_BINARY"


def common_type(left: SqlType, right: SqlType, ansi: bool) -> SqlType | None:
    """The type that both sides of `left = right` are brought to; None if there is none or digits are lost.

    >>> from watersmeet.model.types import INT
    >>> str(common_type(INT, decimal(10, 2), ansi=True))
    'decimal(12,2)'
    """
    if "void" in (left.name, right.name):
        return _beside_null(right if left.name == "void" else left)
    if left.stringlike and right.stringlike:
        return _text(left, right)
    if left.nested or right.nested:
        return left if same_shape(left, right) else None
    if left.name in _NEVER or right.name in _NEVER:
        return None
    if left == right:
        return left
    if left.numeric and right.numeric:
        return _numeric(left, right, ansi)
    if left.stringlike or right.stringlike:
        return _text_and_other(right if left.stringlike else left) if ansi else None
    return _temporal(left, right)


def _beside_null(other: SqlType) -> SqlType | None:
    return other if same_shape(other, other) or not binary_collated(other) else None


def same_shape(left: SqlType, right: SqlType) -> bool:
    """Equal but for the names of fields, with nothing inside that cannot be compared."""
    if left.name == right.name == "array" and left.element and right.element:
        return same_shape(left.element, right.element)
    if left.name == right.name == "struct" and len(left.fields) == len(right.fields):
        return all(same_shape(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True))
    return left == right and left.name not in _NEVER and binary_collated(left)


def binary_collated(type_: SqlType) -> bool:
    """Whether equal text means equal bytes, in the type and in everything inside it."""
    inside = (type_.element, type_.value, *(field.type for field in type_.fields))
    return type_.collation in (None, BINARY_COLLATION) and all(
        binary_collated(part) for part in inside if part
    )


def _text(left: SqlType, right: SqlType) -> SqlType | None:
    if binary_collated(left) and binary_collated(right):
        return STRING
    return left if left == right else None


def _numeric(left: SqlType, right: SqlType, ansi: bool) -> SqlType | None:
    if left.floating or right.floating:
        return _floating(left, right, ansi)
    if left.integral and right.integral:
        return SqlType(max(left.name, right.name, key=INTEGRALS.index))
    scale = max(left.scale or 0, right.scale or 0)
    precision = max(_whole_digits(left), _whole_digits(right)) + scale
    return decimal(precision, scale) if precision <= MAX_DECIMAL_DIGITS else None


def _floating(left: SqlType, right: SqlType, ansi: bool) -> SqlType:
    if left == right:
        return left
    if not ansi and "double" not in (left.name, right.name) and "decimal" not in (left.name, right.name):
        return SqlType("float")
    return DOUBLE


def _whole_digits(type_: SqlType) -> int:
    return INTEGRAL_DIGITS[type_.name] if type_.integral else (type_.precision or 0) - (type_.scale or 0)


def _text_and_other(other: SqlType) -> SqlType | None:
    if other.integral:
        return BIGINT
    if other.numeric:
        return DOUBLE
    return other if other.name in _TEXT_COMPARES_WITH else None


def _temporal(left: SqlType, right: SqlType) -> SqlType | None:
    if left.name in _TEMPORAL and right.name in _TEMPORAL:
        return SqlType(max(left.name, right.name, key=_TEMPORAL.index))
    one, other = fields_of(left), fields_of(right)
    if one and other and one[0] == other[0]:
        return interval_type([*one[1], *other[1]], one[0])
    return None
