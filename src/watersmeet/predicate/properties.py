"""What can be said of an expression's value without its data: its length, its time zone, the clock.

Growth. `repeat(x, 2000000000)` asks for gigabytes for every row: it kills the executor, and every replay of the batch
kills the next one. The predicate's own numbers are known before the query starts, so such a call is refused. A count
that is a column is not known: `repeat(x, least(n, 100))` bounds it, `repeat(x, coalesce(n, 2000000000))` can be as
large as its literal.

Time zone. A `timestamp` is a moment. The session's zone decides which day, hour or text it is, and which moment a
date, a text or a `timestamp_ntz` means. A join computes the keys of a row, and whether it passes the conditions on
its input alone, once. These must not change their meaning between two starts (`plan/compatible.py`). The rule lists
what is certainly free of the zone; any other call that takes or gives a `timestamp` counts as dependent. A wrong
"yes" refuses a harmless change of zone; a wrong "no" would mix rows of two meanings.

Clock. Spark turns text such as 'now', 'today' and '12:30:00' into a moment by reading the clock, so the answer would
change between two runs of one batch. Not caught: a column whose rows say '12:30:00', cast to a timestamp.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from watersmeet.model.expression import Call, Expression, Literal, columns_of
from watersmeet.model.types import BOOLEAN, TIMESTAMP, VOID, SqlType
from watersmeet.predicate.lex import words
from watersmeet.predicate.literals import MICROS, micros_of
from watersmeet.predicate.type_rules import UNKNOWN, parts_of

# Characters that a text may get for each one of a column, or from nothing: more than any key or comparison needs. Spark
# sends ten thousand rows at a time: with texts of ten characters they become 1 GB at most, which an executor can hold.
MOST_GROWTH: Final = 10_000

# Replacements of up to this many characters count as one. They escape or spell out single characters, often in a long
# chain. A character is rarely replaced twice, so the product over a chain would refuse harmless predicates.
SHORT_REPLACEMENT: Final = 100

_PADS: Final = ("lpad", "rpad")
_REPLACES: Final = ("replace", "regexp_replace")
AMPLIFIERS: Final = frozenset({"repeat", *_PADS, *_REPLACES})
# Functions that give one of their arguments, and which ones.
_CHOOSES: Final = {
    "greatest": slice(None),
    "coalesce": slice(None),
    "nvl2": slice(1, None),
    "nullif": slice(1),
}


def growth(expression: Expression) -> int:
    """An upper bound of the characters of the value, if each column that it reads has one character.

    >>> from watersmeet.model.types import INT, STRING
    >>> growth(Call("repeat", (Literal("ab", STRING), Literal(300, INT)), STRING))
    600
    """
    if isinstance(expression, Literal):
        return len(expression.value) if isinstance(expression.value, (str, bytes)) else 1
    if not isinstance(expression, Call):
        return 1
    grown = [growth(arg) for arg in expression.args]
    if expression.op == "repeat" or expression.op in _PADS:
        asked = whole_number(expression.args[1])
        # Where only a column says the count, it counts as one.
        count = 1 if asked is None else asked
        return grown[0] * max(0, count) if expression.op == "repeat" else max(grown[0], count)
    if expression.op in _REPLACES:
        # Each character may be replaced, and the places between them.
        longest = max(grown[2:], default=1)
        return grown[0] * (longest if longest > SHORT_REPLACEMENT else 1)
    return max(1, sum(grown))


def whole_number(expression: Expression) -> int | None:
    """The largest number that the literals of an expression ask for; None if they say nothing.

    Columns are unknown: they neither add to a sum nor raise a bound.

    >>> from watersmeet.model.expression import Column
    >>> from watersmeet.model.types import INT
    >>> n, most = Column("l", "n", INT), Literal(100, INT)
    >>> [whole_number(Call(op, (n, most), INT)) for op in ("least", "coalesce", "+", "%")]
    [100, 100, 100, None]
    """
    if isinstance(expression, Literal):
        return _as_integer(expression.value)
    if not isinstance(expression, Call):
        return None
    parts = [whole_number(arg) for arg in expression.args]
    if expression.op == "case":
        # Condition, value, condition, value, else.
        return max(_known([*parts[1::2], parts[-1]]), default=None)
    if expression.op in _CHOOSES:
        return max(_known(parts[_CHOOSES[expression.op]]), default=None)
    known = _known(parts)
    return _computed(expression.op, parts, known) if known else None


def _known(parts: list[int | None]) -> list[int]:
    return [part for part in parts if part is not None]


def _computed(op: str, parts: list[int | None], known: list[int]) -> int | None:
    match op:
        case "least":
            return min(known)
        case "+":
            return sum(known)
        case "-":
            return (parts[0] or 0) - (parts[1] or 0)
        case "*":
            return math.prod(known)
        case "div" | "/":
            return _quotient(parts[0], parts[1])
        case "neg":
            return -known[0]
        case "abs":
            return abs(known[0])
        case "cast" | "try_cast" | "ceil" | "floor" | "round" | "bround":
            return parts[0]
        case _:
            return None


def _quotient(number: int | None, divisor: int | None) -> int | None:
    """Towards zero, as Spark divides. A column that divides may be one."""
    if number is None or divisor == 0:
        return None
    if divisor is None:
        return number
    return abs(number) // abs(divisor) * (1 if (number < 0) == (divisor < 0) else -1)


def _as_integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


# Only look at the moment itself, or at whether there is one.
_FREE: Final = words("is_null and or not field hash xxhash64 size")
# Free where all values have one type; where Spark casts one to another, the zone may decide what it becomes.
_FREE_IN_ONE_TYPE: Final = words("= <=> <> < <= > >= in coalesce case nullif nvl2 greatest least")
# From and to the epoch.
_TO_EPOCH: Final = words("unix_seconds unix_millis unix_micros unix_timestamp cast try_cast")
_FROM_EPOCH: Final = words("timestamp_seconds timestamp_millis timestamp_micros cast try_cast")
# Go through a timestamp even if neither their argument nor their result is one.
_THROUGH_TIMESTAMP: Final = words("from_unixtime unix_timestamp date_format months_between")
_CLOCK_FIELDS: Final = words("hour minute second")
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
    if call.op in _TO_EPOCH and kinds == [TIMESTAMP]:
        return not (call.type.numeric or call.type == TIMESTAMP)
    if call.op in _FROM_EPOCH and call.type == TIMESTAMP:
        return not kinds[0].numeric
    if call.op in ("+", "-") and call.type == TIMESTAMP:
        # A date becomes a timestamp at midnight of the zone, so the interval alone decides nothing.
        return TIMESTAMP not in kinds or not any(map(_shorter_than_a_day, call.args))
    return True


def _holds_timestamp(kind: SqlType) -> bool:
    return kind == TIMESTAMP or any(map(_holds_timestamp, parts_of(kind)))


def _shorter_than_a_day(expression: Expression) -> bool:
    """Spark adds the whole days of an interval on the wall clock, and the rest to the moment."""
    micros = micros_of(expression)
    return micros is not None and abs(micros) < MICROS["day"]


_UTC: Final = r"(?:Etc/)?(?:UTC|GMT|UCT|Zulu|Universal|Greenwich)|Z"
_OFFSET: Final = re.compile(rf"(?:{_UTC})|(?:UTC|GMT|UT)?(?P<offset>[+-]\d{{1,2}}(?::\d{{2}}){{0,2}})")


def normal_zone(name: str) -> str:
    """One spelling for a zone: names of UTC are one zone, and so are spellings of one offset.

    >>> [normal_zone(name) for name in ("Etc/UTC", "GMT", "+00:00", "UTC+5:30", "+05:30", "Europe/Berlin")]
    ['UTC', 'UTC', 'UTC', '+05:30', '+05:30', 'Europe/Berlin']
    """
    found = _OFFSET.fullmatch(name)
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


# Fewer names than `normal_zone` knows: what is stored is sorted by a band, and the choice of a band depends on this.
_FIXED_ZONE: Final = re.compile(r"(Etc/)?(UTC|GMT|Z)|(UTC|GMT)?[+-]\d{1,2}(:\d{2}){0,2}")


def is_fixed_zone(name: str) -> bool:
    """Whether a time zone of Spark certainly never changes its offset, so that a day has 24 hours.

    >>> [is_fixed_zone(name) for name in ("UTC", "+05:30", "Europe/Berlin", "")]
    [True, True, False, False]
    """
    return _FIXED_ZONE.fullmatch(name) is not None


_CLOCK_TEXT: Final = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)\b|T?[0-9]{1,2}:)", re.IGNORECASE)


def reads_clock(expression: Expression) -> bool:
    """Whether Spark would read the clock if it had to turn this value into a moment."""
    if isinstance(expression, Literal):
        return isinstance(expression.value, str) and bool(_CLOCK_TEXT.match(expression.value))
    constant = next(columns_of(expression), None) is None
    return constant and (expression.type.stringlike or expression.type == UNKNOWN)
