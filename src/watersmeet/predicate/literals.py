"""Literals, read as Spark 4 reads them: numbers with suffixes, strings, hex, DATE, TIMESTAMP.

The value and the type of a literal decide the type of the arithmetic around it, so both follow Spark's
parser exactly (`3` int, `3000000000` bigint, `3.5` decimal(2,1), `1e3` double).

- A TIMESTAMP without a zone is in the session's time zone: its value is a naive datetime. With `Z`, `UTC`
  or an offset the value is aware. Region names are refused: resolving them reads files.
- `DATE 'today'`, `TIMESTAMP 'now'` and `TIMESTAMP '12:30:00'` read the clock in Spark; they are refused.
- Backslash escapes are those of the default `spark.sql.parser.escapedStringLiterals=false`.
"""

from __future__ import annotations

import datetime
import re
import struct
from decimal import Context, Decimal
from typing import Final

from watersmeet.model.expression import Literal
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
from watersmeet.predicate.lex import brief

INTEGRAL_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_NUMBER: Final = re.compile(r"(-?)(\d*\.?\d*(?:[eE][+-]?\d+)?)([A-Za-z]*)", re.ASCII)
_SUFFIXES: Final = {
    "Y": "tinyint",
    "S": "smallint",
    "L": "bigint",
    "F": "float",
    "D": "double",
    "BD": "decimal",
}
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
    """A literal that Spark would refuse, or that we cannot read; the caller knows the place."""

    def __init__(self, problem: str, hint: str = ""):
        self.problem, self.hint = problem, hint
        super().__init__(problem)


def number_literal(text: str) -> Literal:
    """Read a number, with its sign if it has one.

    >>> number_literal("3.50").type
    SqlType(name='decimal', precision=3, scale=2, collation=None, element=None, value=None, fields=())
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise LiteralError(f"{brief(text)} is not a number")
    sign, digits, suffix = match.groups()
    kind = _SUFFIXES.get(suffix.upper(), "")
    exponent = re.search(r"[eE][+-]?(\d+)", digits)
    if exponent and (len(exponent[1]) > len(str(_MAX_EXPONENT)) or int(exponent[1]) > _MAX_EXPONENT):
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
        raise LiteralError(
            f"{brief(text)} is not a hexadecimal literal", "write two digits for each byte: X'1F'"
        )
    return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), BINARY)


def typed_literal(kind: str, quoted: str) -> Literal:
    """`DATE '...'`, `TIMESTAMP '...'`, `TIMESTAMP_LTZ '...'`, `TIMESTAMP_NTZ '...'`."""
    text = unquoted(quoted).strip()
    try:
        return _date(text) if kind == "DATE" else _timestamp(kind, text)
    except ValueError as error:
        if isinstance(error, LiteralError):
            raise
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
        raise LiteralError(
            f"{brief(text)!r} is not a {kind.lower()}",
            "write TIMESTAMP '2026-01-31 12:30:00.123' with Z, an offset such as +02:00, or no zone",
        )
    day, hour, minute, second, fraction, zone = match.groups()
    date = _date(day).value
    assert isinstance(date, datetime.date)
    micros = int((fraction or "0").ljust(6, "0"))
    clock = datetime.time(int(hour or 0), int(minute or 0), int(second or 0), micros, _zone(zone))
    return Literal(
        datetime.datetime.combine(date, clock), TIMESTAMP_NTZ if kind == "TIMESTAMP_NTZ" else TIMESTAMP
    )


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
