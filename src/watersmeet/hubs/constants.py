"""Constants of hub queries: found in a text, checked against the column that they are compared with, kept as text.

A constant is stored in the exact text of its value, and read back as a whole Arrow column for all queries at once
(`read_column`). So it must be a value that the column's own type, or a wider one of the same kind, holds exactly. Then
comparing means the same as in Spark, whatever type the constant had in the text:

    integers                whole numbers of 64 bits                       compared as bigint
    float, double           numbers that a double holds as Spark reads it  compared as double
    decimal(p, s)           numbers with at most s digits after the point  compared as decimal(38, s)
    string, boolean, date, timestamp (with a zone), timestamp_ntz          values of the same type
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import pyarrow as pa

from watersmeet.errors import PredicateError
from watersmeet.kernel.evaluate import arrow_type
from watersmeet.model.expression import Literal
from watersmeet.model.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_DECIMAL_DIGITS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
    decimal,
)
from watersmeet.predicate.lex import Piece, PieceKind
from watersmeet.predicate.literals import (
    LiteralError,
    brief,
    hex_literal,
    number_literal,
    string_literal,
    typed_literal,
)
from watersmeet.predicate.type_rules import binary_collated

_SAME: Final = (BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ)
_TYPED: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")
_WORDS: Final = ("TRUE", "FALSE")
# A minus after one of these begins a number; after anything else it subtracts.
_BEFORE_NUMBER: Final = ("=", "==", "<", "<=", ">", ">=", "<>", "!=", "(", ",")
_BEFORE_NUMBER_WORDS: Final = ("AND", "BETWEEN", "NOT", "WHERE", "ON")
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_UTC: Final = _EPOCH.replace(tzinfo=datetime.timezone.utc)
# Beyond these, not every integer is a value of the type; a float column may be compared with an integer in float.
_EXACT_INTEGERS: Final = {"float": 1 << 24, "double": 1 << 53}


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a text: what it says, and where. One of an output column has its `exact` type."""

    literal: Literal
    start: int
    exact: bool = False

    @property
    def type(self) -> SqlType:
        """The type by which a template is checked: one for all values of a kind that are compared."""
        kind = self.literal.type
        if self.exact:
            return kind
        if kind.integral:
            return BIGINT
        return decimal(MAX_DECIMAL_DIGITS, 18) if kind.name == "decimal" else kind


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a text, with a stand-in for each constant, where each begins, and the constants."""

    words: tuple[str, ...]
    starts: tuple[int, ...]
    constants: tuple[Constant, ...]


def find_constants(text: str, pieces: Sequence[Piece]) -> Words:
    """Take the constants out of a text.

    >>> from watersmeet.predicate.lex import pieces_of
    >>> text = "SELECT r.c * 1.5 AS x FROM r WHERE r.a = -5"
    >>> found = find_constants(text, pieces_of(text))
    >>> " ".join(found.words), [constant.literal.value for constant in found.constants]
    ('SELECT r . c * ?decimal(2,1) AS x FROM r WHERE r . a = ?bigint', [Decimal('1.5'), -5])
    """
    words: list[str] = []
    starts: list[int] = []
    constants: list[Constant] = []
    at, sources = 0, _first_source(pieces)
    while at < len(pieces):
        piece = pieces[at]
        taken = _taken(pieces, at)
        starts.append(piece.start)
        if not taken:
            words.append(piece.text)
            at += 1
            continue
        try:
            literal = _literal(pieces[at : at + taken])
        except LiteralError as error:
            raise PredicateError(error.problem, text, piece.start, error.hint) from None
        constant = Constant(literal, piece.start, exact=at < sources)
        words.append(f"?{constant.type if constant.exact else constant.type.name}")
        constants.append(constant)
        at += taken
    return Words(tuple(words), tuple(starts), tuple(constants))


def _first_source(pieces: Sequence[Piece]) -> int:
    """The place of FROM: what stands before it is an output column."""
    depth = 0
    for at, piece in enumerate(pieces):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece.text, 0)
        beside = [other.text for other in (*pieces[max(0, at - 1) : at], *pieces[at + 1 : at + 2])]
        if piece.word == "FROM" and depth == 0 and "." not in beside:
            return at
    return len(pieces)


def _taken(pieces: Sequence[Piece], at: int) -> int:
    """How many pieces from this one on are a constant."""
    piece = pieces[at]
    following = pieces[at + 1] if at + 1 < len(pieces) else None
    before = pieces[at - 1] if at else None
    if piece.kind in (PieceKind.NUMBER, PieceKind.HEX):
        return 1
    if piece.kind is PieceKind.STRING:
        return _strings(pieces, at)
    if piece.text == "-" and following is not None and following.kind is PieceKind.NUMBER:
        starts = before is None or before.text in _BEFORE_NUMBER or before.word in _BEFORE_NUMBER_WORDS
        return 2 if starts else 0
    dotted = (before is not None and before.text == ".") or (following is not None and following.text == ".")
    if piece.word in _TYPED and following is not None and following.kind is PieceKind.STRING:
        return 0 if dotted else 2
    tests = before is not None and before.word in ("IS", "NOT", "AS")
    return 1 if piece.word in _WORDS and not dotted and not tests else 0


def _strings(pieces: Sequence[Piece], at: int) -> int:
    """Adjacent strings are one."""
    end = at
    while end < len(pieces) and pieces[end].kind is PieceKind.STRING:
        end += 1
    return end - at


def _literal(pieces: Sequence[Piece]) -> Literal:
    first = pieces[0]
    if first.word in _WORDS:
        return Literal(first.word == "TRUE", BOOLEAN)
    if first.word in _TYPED:
        return typed_literal(first.word, pieces[1].text)
    if first.kind is PieceKind.STRING:
        return string_literal([piece.text for piece in pieces])
    if first.kind is PieceKind.HEX:
        return hex_literal(first.text)
    return number_literal("".join(piece.text for piece in pieces))


# --- Columns and their constants ------------------------------------------------------------------------------------


def comparable(kind: SqlType) -> bool:
    """Whether a column of this type can be compared with constants."""
    if kind.stringlike:
        return kind.name == "string" and binary_collated(kind)
    return kind.numeric or kind in _SAME


def same_words(one: SqlType, other: SqlType) -> bool:
    """Whether equal values of two types have equal order keys (kernel/keys.py), without a cast."""
    if not (_keyed(one) and _keyed(other)):
        return False
    return one == other or (one.integral and other.integral) or (one.floating and other.floating)


def _keyed(kind: SqlType) -> bool:
    return comparable(kind) or kind.name == "binary"


def compared_type(column: SqlType) -> SqlType:
    """The type of all constants that a column is compared with."""
    if column.integral:
        return BIGINT
    if column.floating:
        return DOUBLE
    return decimal(MAX_DECIMAL_DIGITS, column.scale or 0) if column.name == "decimal" else column


def to_text(constant: Constant, column: SqlType, name: str, text: str) -> str:
    """The constant as it is kept; PredicateError if the column's type does not hold it exactly."""
    found = _to_text(constant.literal, column)
    if found is None:
        value = constant.literal.value
        problem = f"does not hold {constant.literal.type} {brief(repr(value))} exactly"
        if isinstance(value, datetime.datetime) and column in (TIMESTAMP, TIMESTAMP_NTZ):
            problem = f"compares with moments {'with' if column == TIMESTAMP else 'without'} a time zone only"
        raise PredicateError(
            f"{name} is {column}, which {problem}",
            text,
            constant.start,
            _HINTS.get(column.name, "write a value of the column's type"),
        )
    return found


_HINTS: Final = {
    "date": "write DATE '2026-01-31'",
    "timestamp": "write TIMESTAMP '2026-01-31 12:30:00Z', with its zone",
    "timestamp_ntz": "write TIMESTAMP_NTZ '2026-01-31 12:30:00'",
    "string": "write it in quotes",
}


def exact_text(constant: Constant, text: str) -> str:
    """A constant of an output column as it is kept; PredicateError if an answer cannot hold it."""
    if constant.type.stringlike:
        found = constant.literal.value if isinstance(constant.literal.value, str) else None
    else:
        found = _to_text(constant.literal, constant.type)
    if found is None:
        raise PredicateError(
            f"a constant of type {constant.type} is not possible in an output column",
            text,
            constant.start,
            _HINTS.get(constant.type.name, "write a number, a text, a boolean, a date or a timestamp"),
        )
    return found


def read_exact(texts: pa.Array, kind: SqlType) -> pa.Array:
    """Constants of output columns, from their texts.

    >>> read_exact(pa.array(["1.50", "-2.00"]), decimal(3, 2)).type
    Decimal128Type(decimal128(3, 2))
    """
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return read_column(texts, kind)
    return texts.cast(arrow_type(kind))


def _to_text(literal: Literal, column: SqlType) -> str | None:
    value = literal.value
    if isinstance(value, bool):
        return str(value).lower() if column == BOOLEAN else None
    if column.numeric:
        return _number_text(value, column) if isinstance(value, int | float | Decimal) else None
    if isinstance(value, str):
        return value if column == STRING else None
    if literal.type != column:
        return None
    if isinstance(value, datetime.datetime):
        if (value.tzinfo is None) != (column == TIMESTAMP_NTZ):
            return None
        # A difference, as the moment in UTC may lie outside of the years of Python.
        since = value - (_EPOCH_UTC if value.tzinfo else _EPOCH)
        return str(since // datetime.timedelta(microseconds=1))
    return value.isoformat() if isinstance(value, datetime.date) else None


def _number_text(value: int | float | Decimal, column: SqlType) -> str | None:
    if column.floating:
        if isinstance(value, int) and abs(value) > _EXACT_INTEGERS[column.name]:
            return None
        return repr(float(value))
    if isinstance(value, float):
        return None
    number = Decimal(value)
    if column.integral:
        whole = number == number.to_integral_value() and -(1 << 63) <= number < 1 << 63
        return str(int(number)) if whole else None
    scale = column.scale or 0
    # Not `quantize`: the context of Python rounds at 28 digits.
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0")
    if exponent < -scale:
        unscaled, lost = divmod(unscaled, 10 ** (-scale - exponent))
        if lost:
            return None
    else:
        unscaled *= 10 ** (exponent + scale)
    if unscaled >= 10**MAX_DECIMAL_DIGITS:
        return None
    plain = str(unscaled).rjust(scale + 1, "0")
    point = len(plain) - scale
    return ("-" if sign else "") + plain[:point] + ("." + plain[point:] if scale else "")


def read_column(texts: pa.Array, column: SqlType) -> pa.Array:
    """All constants that a column is compared with, from their texts.

    >>> read_column(pa.array(["1.50", "-2.00"]), decimal(9, 2)).to_pylist()
    [Decimal('1.50'), Decimal('-2.00')]
    """
    kind = compared_type(column)
    if kind == STRING:
        return texts.cast(pa.string())
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return texts.cast(pa.int64()).cast(pa.timestamp("us", "UTC" if kind == TIMESTAMP else None))
    if kind == BIGINT:
        return texts.cast(pa.int64())
    if kind == DOUBLE:
        return texts.cast(pa.float64())
    if kind == BOOLEAN:
        return texts.cast(pa.bool_())
    if kind == DATE:
        return texts.cast(pa.date32())
    return texts.cast(pa.decimal128(MAX_DECIMAL_DIGITS, column.scale or 0))
