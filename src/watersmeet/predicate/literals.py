"""Literals, read as Spark 4 reads them: numbers with suffixes, strings, hex, DATE, TIMESTAMP, INTERVAL.

The value and the type of a literal decide the type of the arithmetic around it. Both follow Spark's parser exactly
(`3` int, `3000000000` bigint, `3.5` decimal(2,1), `1e3` double).

- A TIMESTAMP without a zone is in the session's time zone: its value is a naive datetime. With `Z`, `UTC` or an
  offset the value is aware. Region names are refused: resolving them reads files.
- `DATE 'today'`, `TIMESTAMP 'now'` and `TIMESTAMP '12:30:00'` read the clock in Spark; they are refused.
- Backslash escapes are those of the default `spark.sql.parser.escapedStringLiterals=false`.
- The value of an INTERVAL is what Spark stores: microseconds for a day-time interval, months for a year-month
  interval. Its type names the widest and the narrowest unit that was written (`interval day to hour`). Not read:
  `'1 02:30' DAY TO MINUTE`, an interval whose number is a column, and mixes of months and days (which Spark refuses
  too by default).
"""

from __future__ import annotations

import datetime
import re
import struct
from decimal import Context, Decimal
from typing import Final

from watersmeet.model.expression import Expression, Literal
from watersmeet.model.types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    INT,
    MAX_DECIMAL_DIGITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
    decimal,
)

# People read messages: longer words are cut.
MAX_SHOWN: Final = 60

INTEGRAL_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_NUMBER: Final = re.compile(r"(-?)(\d*\.?\d*(?:[eE][+-]?(\d+))?)([A-Za-z]*)", re.ASCII)
_SUFFIXES: Final = {
    "Y": "tinyint", "S": "smallint", "L": "bigint", "F": "float", "D": "double", "BD": "decimal"
}  # fmt: skip
# Room for every decimal of Spark; the default context of Python rounds at 28 digits.
_WIDE: Final = Context(prec=2 * MAX_DECIMAL_DIGITS)
# Longer exponents can only overflow or vanish; Python would build the digits one by one.
_MAX_EXPONENT: Final = 400

_ESCAPE: Final = r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)"
_ESCAPE_IN: Final = {quote: re.compile(f"{_ESCAPE}|{quote}{quote}", re.DOTALL) for quote in "'\""}
_ESCAPED: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

_DATE: Final = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))? ?(Z|UTC|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)


class LiteralError(ValueError):
    """A literal that Spark would refuse, or that we cannot read; the caller knows the position."""

    def __init__(self, problem: str, hint: str = ""):
        self.problem, self.hint = problem, hint
        super().__init__(problem)


def brief(text: str) -> str:
    """A text for a message: the middle of a long one is left out."""
    half = MAX_SHOWN // 2
    return text if len(text) <= MAX_SHOWN else f"{text[:half]}...{text[-half:]}"


def number_literal(text: str) -> Literal:
    """Read a number, with its sign if it has one.

    >>> number_literal("3.50").type
    SqlType(name='decimal', precision=3, scale=2, collation=None, element=None, value=None, fields=())
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise LiteralError(f"{brief(text)} is not a number")
    sign, digits, exponent, suffix = match.groups()
    kind = _SUFFIXES.get(suffix.upper(), "")
    if exponent and (len(exponent) > len(str(_MAX_EXPONENT)) or int(exponent) > _MAX_EXPONENT):
        raise LiteralError(f"the exponent of {brief(text)} is out of range")
    if kind in ("float", "double") or (exponent and not kind):
        return _floating(sign + digits, kind or "double")
    if kind in INTEGRAL_BITS:
        return _suffixed_integral(sign + digits, kind)
    if "." in digits or exponent or kind == "decimal":
        return _decimal(sign + digits)
    return _integral(sign + digits)


def _integral(text: str) -> Literal:
    if len(text) > MAX_DECIMAL_DIGITS + 1:
        return _decimal(text)
    value = int(text)
    for type_ in (INT, BIGINT):
        if _fits(value, type_.name):
            return Literal(value, type_)
    return _decimal(text)


def _suffixed_integral(text: str, kind: str) -> Literal:
    if not text.lstrip("-").isdigit() or len(text) > MAX_DECIMAL_DIGITS or not _fits(int(text), kind):
        raise LiteralError(f"{brief(text)} is not a {kind}", "leave out the suffix, or use BD for a decimal")
    return Literal(int(text), SqlType(kind))


def _fits(value: int, kind: str) -> bool:
    bound = 1 << (INTEGRAL_BITS[kind] - 1)
    return -bound <= value < bound


def _decimal(text: str) -> Literal:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    if precision > MAX_DECIMAL_DIGITS:
        raise LiteralError(f"a number of {precision} digits: Spark's decimals have {MAX_DECIMAL_DIGITS}")
    exact = value.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    return Literal(exact if exact else abs(exact), decimal(precision, scale))


def _floating(text: str, kind: str) -> Literal:
    value = float(text)
    try:
        if kind == "float":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        value = float("inf")
    if value in (float("inf"), float("-inf")):
        raise LiteralError(f"{brief(text)} is out of the range of {kind}")
    return Literal(value, DOUBLE if kind == "double" else SqlType(kind))


def string_literal(quoted: list[str]) -> Literal:
    """Read adjacent strings as one, as Spark does: `'it' 's'` is its, `'it''s'` is it's."""
    return Literal("".join(unquoted(text) for text in quoted), STRING)


def unquoted(text: str) -> str:
    """The characters that a string in quotes stands for."""
    if text[0] in "rR":
        return text[2:-1]
    decoded = _ESCAPE_IN[text[0]].sub(_unescape, text[1:-1])
    try:
        return decoded.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise LiteralError("the string has an unpaired surrogate") from None


def _unescape(match: re.Match[str]) -> str:
    body = match[1]
    if body is None:
        return match[0][0]
    if len(body) == 1:
        return _ESCAPED.get(body, body)
    if body[0] in "uU":
        code = int(body[1:], 16)
        if code > 0x10FFFF:
            raise LiteralError(f"\\{body} is no character")
        return chr(code)
    return chr(int(body, 8))


def hex_literal(text: str) -> Literal:
    digits = text[2:-1]
    if not re.fullmatch(r"[0-9A-Fa-f]*", digits):
        hint = "write two digits for each byte: X'1F'"
        raise LiteralError(f"{brief(text)} is not a hexadecimal literal", hint)
    return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), BINARY)


def typed_literal(kind: str, quoted: str) -> Literal:
    """`DATE '...'`, `TIMESTAMP '...'`, `TIMESTAMP_LTZ '...'`, `TIMESTAMP_NTZ '...'`."""
    text = unquoted(quoted).strip()
    try:
        return _date(text) if kind == "DATE" else _timestamp(kind, text)
    except LiteralError:
        raise
    except ValueError as error:
        raise LiteralError(f"{kind} {brief(text)!r}: {error}") from None


def _date(text: str) -> Literal:
    match = _DATE.fullmatch(text)
    if match is None:
        raise LiteralError(f"{brief(text)!r} is not a date", "write DATE '2026-01-31' (years 0001 to 9999)")
    year, month, day = match.groups()
    return Literal(datetime.date(int(year), int(month or 1), int(day or 1)), DATE)


def _timestamp(kind: str, text: str) -> Literal:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (kind == "TIMESTAMP_NTZ" and match[6]):
        hint = "write TIMESTAMP '2026-01-31 12:30:00.123' with Z, an offset such as +02:00, or no zone"
        raise LiteralError(f"{brief(text)!r} is not a {kind.lower()}", hint)
    day, hour, minute, second, fraction, zone = match.groups()
    date = _date(day).value
    assert isinstance(date, datetime.date)
    micros = int((fraction or "0").ljust(6, "0"))
    clock = datetime.time(int(hour or 0), int(minute or 0), int(second or 0), micros, _zone(zone))
    type_ = TIMESTAMP_NTZ if kind == "TIMESTAMP_NTZ" else TIMESTAMP
    return Literal(datetime.datetime.combine(date, clock), type_)


def _zone(text: str | None) -> datetime.timezone | None:
    if text is None:
        return None
    if text in ("Z", "UTC"):
        return datetime.timezone.utc
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 18 or minutes > 59:
        raise LiteralError(f"the offset {text} is out of range")
    offset = datetime.timedelta(hours=hours, minutes=minutes)
    return datetime.timezone(-offset if text[0] == "-" else offset)


DAY_TIME: Final = ("day", "hour", "minute", "second")
YEAR_MONTH: Final = ("year", "month")

MICROS: Final = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
MONTHS: Final = {"year": 12, "month": 1}

# A unit as written: the field of the type that it belongs to, and its length in microseconds or months.
_UNITS: Final[dict[str, tuple[str, int]]] = {
    **{name: (name, size) for name, size in (MICROS | MONTHS).items()},
    "week": ("day", 7 * MICROS["day"]),
    "millisecond": ("second", 1_000),
    "microsecond": ("second", 1),
}
UNIT_WORDS: Final = frozenset(word for name in _UNITS for word in (name.upper(), name.upper() + "S"))

_AMOUNT: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,6})?", re.ASCII)
_HINT: Final = "write INTERVAL 5 MINUTES or INTERVAL 1 DAY 2 HOURS"
_MAX_VALUE: Final = {DAY_TIME: 2**63 - 1, YEAR_MONTH: 2**31 - 1}


def interval_literal(parts: list[tuple[str, str]]) -> Literal:
    """The sum of (amount, unit) pairs.

    >>> interval_literal([("1", "DAY"), ("2", "HOURS")]).value == 26 * MICROS["hour"]
    True
    """
    total = 0
    fields: list[str] = []
    for amount, word in parts:
        field, micros_or_months = _unit(word)
        fields.append(field)
        total += _scaled(amount, field, micros_or_months)
    family = YEAR_MONTH if fields[0] in YEAR_MONTH else DAY_TIME
    if not set(fields) <= set(family):
        hint = "add two intervals, one after the other"
        raise LiteralError("months and days do not mix in an interval", hint)
    if abs(total) > _MAX_VALUE[family]:
        raise LiteralError("the interval is too long")
    return Literal(total, interval_type(fields, family))


def interval_text(text: str) -> Literal:
    """Read `1 day 2 hours`."""
    words = text.split()
    if not words or len(words) % 2:
        raise LiteralError(f"{brief(text)!r} is not an interval", _HINT)
    return interval_literal(list(zip(words[::2], words[1::2], strict=True)))


def _unit(word: str) -> tuple[str, int]:
    unit = word.lower().removesuffix("s")
    if unit not in _UNITS:
        raise LiteralError(f"{brief(word)} is not a unit of time", _HINT)
    return _UNITS[unit]


def _scaled(amount: str, field: str, size: int) -> int:
    """Only seconds may have a fraction."""
    if not _AMOUNT.fullmatch(amount) or ("." in amount and (field, size) != ("second", MICROS["second"])):
        raise LiteralError(f"{brief(amount)!r} is not a whole number of units", _HINT)
    return int(Decimal(amount) * size)


def interval_type(fields: list[str], family: tuple[str, ...]) -> SqlType:
    """The interval type from the widest to the narrowest of some fields."""
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


def is_day_time(type_: SqlType) -> bool:
    fields = fields_of(type_)
    return fields is not None and fields[0] == DAY_TIME


def micros_of(expression: Expression) -> int | None:
    """The length of a day-time interval literal; None for anything else."""
    if isinstance(expression, Literal) and isinstance(expression.value, int) and is_day_time(expression.type):
        return expression.value
    return None
