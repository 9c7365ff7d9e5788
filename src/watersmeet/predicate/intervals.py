"""INTERVAL literals: `INTERVAL 5 MINUTES`, `INTERVAL '5' MINUTE`, `INTERVAL 1 DAY 2 HOURS`, `INTERVAL '5 minutes'`.

The value is what Spark stores: microseconds for a day-time interval, months for a year-month interval.
The type names the widest and the narrowest unit that was written (`interval day to hour`).
Not read: the form `'1 02:30' DAY TO MINUTE`, intervals whose number is a column, and mixes of months and days
(Spark refuses the last by default).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from watersmeet.model.expression import Literal
from watersmeet.model.types import SqlType
from watersmeet.predicate.lex import brief
from watersmeet.predicate.literals import LiteralError

DAY_TIME: Final = ("day", "hour", "minute", "second")
YEAR_MONTH: Final = ("year", "month")

MICROS: Final = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_MONTHS: Final = {"year": 12, "month": 1}

# A unit as written, the field of the type that it counts to, and how many microseconds or months it is.
_UNITS: Final[dict[str, tuple[str, int]]] = {
    **{name: (name, size) for name, size in MICROS.items()},
    **{name: (name, size) for name, size in _MONTHS.items()},
    "week": ("day", 7 * MICROS["day"]),
    "millisecond": ("second", 1_000),
    "microsecond": ("second", 1),
}
UNIT_WORDS: Final = frozenset(word for name in _UNITS for word in (name.upper(), name.upper() + "S"))

_AMOUNT: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,6})?", re.ASCII)
_HINT: Final = "write INTERVAL 5 MINUTES or INTERVAL 1 DAY 2 HOURS"
_MAX_VALUE: Final = {DAY_TIME: 2**63 - 1, YEAR_MONTH: 2**31 - 1}


def interval_literal(parts: list[tuple[str, str]]) -> Literal:
    """Sum (amount, unit) pairs.

    >>> interval_literal([("1", "DAY"), ("2", "HOURS")]).value == 26 * MICROS["hour"]
    True
    """
    total = 0
    fields: list[str] = []
    for amount, word in parts:
        field, size = _unit(word)
        fields.append(field)
        total += _scaled(amount, size, field)
    return _typed(total, fields)


def interval_text(text: str) -> Literal:
    """Read `'1 day 2 hours'`."""
    words = text.split()
    if not words or len(words) % 2:
        raise LiteralError(f"{brief(text)!r} is not an interval", _HINT)
    return interval_literal(list(zip(words[::2], words[1::2], strict=True)))


def _unit(word: str) -> tuple[str, int]:
    unit = word.lower().removesuffix("s")
    if unit not in _UNITS:
        raise LiteralError(f"{brief(word)} is not a unit of time", _HINT)
    return _UNITS[unit]


def _scaled(amount: str, size: int, field: str) -> int:
    if not _AMOUNT.fullmatch(amount) or ("." in amount and (field, size) != ("second", MICROS["second"])):
        raise LiteralError(f"{brief(amount)!r} is not a whole number of units", _HINT)
    return int(Decimal(amount) * size)


def _typed(total: int, fields: list[str]) -> Literal:
    family = YEAR_MONTH if fields[0] in YEAR_MONTH else DAY_TIME
    if not set(fields) <= set(family):
        raise LiteralError(
            "months and days do not mix in an interval", "add two intervals, one after the other"
        )
    if abs(total) > _MAX_VALUE[family]:
        raise LiteralError("the interval is too long")
    return Literal(total, interval_type(fields, family))


def interval_type(fields: list[str], family: tuple[str, ...]) -> SqlType:
    positions = sorted(family.index(field) for field in fields)
    first, last = family[positions[0]], family[positions[-1]]
    return SqlType(f"interval {first}" if first == last else f"interval {first} to {last}")


def fields_of(type_: SqlType) -> tuple[tuple[str, ...], list[str]] | None:
    """The family and the outer fields of an interval type; None for other types.

    >>> fields_of(SqlType("interval day to hour"))
    (('day', 'hour', 'minute', 'second'), ['day', 'hour'])
    """
    head, _, rest = type_.name.partition(" ")
    fields = rest.split(" to ")
    for family in (DAY_TIME, YEAR_MONTH):
        if head == "interval" and set(fields) <= set(family):
            return family, fields
    return None
