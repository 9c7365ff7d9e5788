"""Does the value of an expression depend on the session's time zone?

A `timestamp` is a moment. The zone decides which day, hour or text it is, and which moment a date, a text or a
`timestamp_ntz` means. What a join stores of a row, its keys and whether it passed the conditions on its input alone,
is computed once, so it must not change its meaning between two starts (`plan/compatible.py`).

The rule is a list of what is certainly free of the zone; any other call that takes or gives a `timestamp` counts as
dependent. A wrong "yes" refuses a harmless change of zone, a wrong "no" would mix rows of two meanings.
"""

from __future__ import annotations

import re
from typing import Final

from watersmeet.model.expression import Call, Expression, Literal, columns_of
from watersmeet.model.types import BOOLEAN, TIMESTAMP, VOID, SqlType
from watersmeet.predicate.arithmetic import UNKNOWN
from watersmeet.predicate.intervals import DAY_TIME, MICROS, fields_of

# Only look at the moment itself, or at whether there is one.
_FREE: Final = frozenset({"is_null", "and", "or", "not", "field", "hash", "xxhash64", "size"})
# Free where all values have one type; where Spark casts one to another, the zone may decide what it becomes.
_FREE_IN_ONE_TYPE: Final = frozenset(
    {"=", "<=>", "<>", "<", "<=", ">", ">=", "in", "coalesce", "case", "nullif", "nvl2", "greatest", "least"}
)
# From and to the epoch.
_EPOCH: Final = frozenset(
    {"unix_seconds", "unix_millis", "unix_micros", "unix_timestamp", "cast", "try_cast"}
)
_FROM_EPOCH: Final = frozenset(
    {"timestamp_seconds", "timestamp_millis", "timestamp_micros", "cast", "try_cast"}
)
# Go through a timestamp even if neither their argument nor their result is one.
_THROUGH_TIMESTAMP: Final = frozenset({"from_unixtime", "unix_timestamp", "date_format", "months_between"})
_CLOCK_FIELDS: Final = frozenset({"hour", "minute", "second"})
_TEMPORAL: Final = ("date", "timestamp", "interval", "time")


def reads_zone(expression: Expression) -> bool:
    """Whether another session time zone may give the expression another value. Doubt is yes."""
    if isinstance(expression, Literal):
        return expression.type == TIMESTAMP and getattr(expression.value, "tzinfo", None) is None
    if not isinstance(expression, Call):
        return False
    return _call_reads_zone(expression) or any(map(reads_zone, expression.args))


def key_reads_zone(side: Expression, compared_as: SqlType) -> bool:
    """Whether the zone decides the value of a key's side, which Spark casts to the type of the comparison.

    >>> from watersmeet.model.expression import Column
    >>> from watersmeet.model.types import DATE
    >>> [key_reads_zone(Column("l", "t", kind), TIMESTAMP) for kind in (TIMESTAMP, DATE)]
    [False, True]
    """
    return reads_zone(side if side.type == compared_as else Call("cast", (side,), compared_as))


def _call_reads_zone(call: Call) -> bool:
    kinds = [arg.type for arg in call.args]
    if call.op in _FREE:
        return False
    if call.op in _CLOCK_FIELDS:
        return kinds[0].name != "timestamp_ntz" and not kinds[0].name.startswith("time(")
    if call.op == "to_date" and len(kinds) > 1:
        return True
    if call.type == UNKNOWN and any(c.type.name.startswith(_TEMPORAL) for c in columns_of(call)):
        return True
    if not any(map(_holds_timestamp, (*kinds, call.type))):
        return call.op in _THROUGH_TIMESTAMP
    if call.op in _FREE_IN_ONE_TYPE:
        return len({*kinds, call.type} - {BOOLEAN, VOID}) > 1
    if call.op in _EPOCH and kinds == [TIMESTAMP]:
        return not (call.type.numeric or call.type == TIMESTAMP)
    if call.op in _FROM_EPOCH and call.type == TIMESTAMP:
        return not kinds[0].numeric
    if call.op in ("+", "-") and call.type == TIMESTAMP:
        # A date becomes a timestamp at midnight of the zone, so the interval alone decides nothing.
        return TIMESTAMP not in kinds or not any(map(_shorter_than_a_day, call.args))
    return True


def _holds_timestamp(kind: SqlType | None) -> bool:
    if kind is None:
        return False
    inner = (kind.element, kind.value, *(field.type for field in kind.fields))
    return kind == TIMESTAMP or any(map(_holds_timestamp, inner))


def _shorter_than_a_day(literal: Expression) -> bool:
    """Spark adds the whole days of an interval on the wall clock, and the rest to the moment."""
    if not isinstance(literal, Literal) or not isinstance(literal.value, int):
        return False
    fields = fields_of(literal.type)
    return fields is not None and fields[0] == DAY_TIME and abs(literal.value) < MICROS["day"]


_UTC: Final = r"(?:Etc/)?(?:UTC|GMT|UCT|Zulu|Universal|Greenwich)|Z"
_FIXED: Final = re.compile(rf"(?:{_UTC})|(?:UTC|GMT|UT)?(?P<offset>[+-]\d{{1,2}}(?::\d{{2}}){{0,2}})")


def normal_zone(name: str) -> str:
    """One spelling for a zone: names of UTC are one zone, and so are spellings of one offset.

    >>> [normal_zone(name) for name in ("Etc/UTC", "GMT", "+00:00", "UTC+5:30", "+05:30", "Europe/Berlin")]
    ['UTC', 'UTC', 'UTC', '+05:30', '+05:30', 'Europe/Berlin']
    """
    found = _FIXED.fullmatch(name)
    if found is None:
        return name
    if found["offset"] is None:
        return "UTC"
    hours, *rest = found["offset"][1:].split(":")
    parts = [int(hours), *map(int, rest), 0, 0][:3]
    if not any(parts):
        return "UTC"
    shown = f"{found['offset'][0]}{parts[0]:02d}:{parts[1]:02d}"
    return f"{shown}:{parts[2]:02d}" if parts[2] else shown
