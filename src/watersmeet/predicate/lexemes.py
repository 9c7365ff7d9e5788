"""Pieces to lexemes: literals, dotted names and the types of casts become one lexeme each.

The parser behind sees only operators, brackets, names of functions and opaque operands, so that no keyword
of any SQL dialect can be read into a column's name (`l.date`, `r.end`) or a literal.

    l . k = DATE '2026-01-31'   ->   name(l.k)  symbol(=)  literal(2026-01-31)
    CAST(l.k AS decimal(9,2))   ->   call(cast) ( name(l.k) , type(decimal(9,2)) )
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Literal
from watersmeet.model.types import BOOLEAN, MAX_DECIMAL_DIGITS, VOID, SqlType, parse_type
from watersmeet.predicate.intervals import UNIT_WORDS, interval_literal, interval_text
from watersmeet.predicate.lex import Piece, brief, words
from watersmeet.predicate.literals import (
    LiteralError,
    hex_literal,
    number_literal,
    string_literal,
    typed_literal,
    unquoted,
)

# Words that are operators or belong to one; any other word is a name, a function or refused by the gate.
GRAMMAR_WORDS: Final = words(
    "AND OR NOT BETWEEN IN IS LIKE ILIKE RLIKE REGEXP CASE WHEN THEN ELSE END DIV DISTINCT FROM"
)
CASTS: Final = ("CAST", "TRY_CAST")
_CONSTANTS: Final = {
    "NULL": Literal(None, VOID),
    "TRUE": Literal(True, BOOLEAN),
    "FALSE": Literal(False, BOOLEAN),
}
_TYPED: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_VALUE_ENDS: Final = (")", "]", "END", *_CONSTANTS)
_STRINGS: Final = ("string", "raw")
_NAMES: Final = ("word", "quoted")

_CAST_TYPE: Final = re.compile(
    r"(?:tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|boolean|string|binary|date"
    r"|timestamp|timestamp_ntz|timestamp_ltz|(?:decimal|dec|numeric)(?:\([0-9]{1,2}(?:,[0-9]{1,2})?\))?)"
)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a dotted name."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Name:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Lexeme:
    """`kind` is literal, type, name, call (a function's name), field (after a dot), word or symbol."""

    kind: str
    text: str
    start: int
    end: int
    value: Literal | SqlType | Name | None = None

    @property
    def ends_value(self) -> bool:
        return self.kind in ("literal", "type", "name", "field") or self.text in _VALUE_ENDS


def lexemes_of(pieces: list[Piece], text: str) -> list[Lexeme]:
    return _Folder(pieces, text).run()


class _Folder:
    """One pass over the pieces; `open` holds, for each open bracket, the function that it belongs to."""

    def __init__(self, pieces: list[Piece], text: str):
        self.pieces, self.text = pieces, text
        self.at = 0
        self.done: list[Lexeme] = []
        self.open: list[str] = []
        self.end = Piece("end", "", len(text), len(text))

    def run(self) -> list[Lexeme]:
        while self.at < len(self.pieces):
            self.step(self.pieces[self.at])
        return self.done

    def step(self, piece: Piece) -> None:
        if piece.kind in _STRINGS:
            strings = self.taken(_STRINGS)
            self.literal(piece, lambda: string_literal(strings))
        elif piece.kind == "hex":
            self.at += 1
            self.literal(piece, lambda: hex_literal(piece.text))
        elif piece.kind == "number":
            self.at += 1
            self.literal(piece, lambda: number_literal(piece.text))
        elif piece.kind == "symbol":
            self.symbol(piece)
        elif piece.kind == "quoted" or self.peek().text == ".":
            self.name(piece)
        else:
            self.plain_word(piece)

    def peek(self, ahead: int = 1) -> Piece:
        index = self.at + ahead
        return self.pieces[index] if index < len(self.pieces) else self.end

    def taken(self, kinds: tuple[str, ...]) -> list[str]:
        start = self.at
        while self.peek(0).kind in kinds:
            self.at += 1
        return [piece.text for piece in self.pieces[start : self.at]]

    def add(self, kind: str, text: str, start: int, value: Literal | SqlType | Name | None = None) -> None:
        self.done.append(Lexeme(kind, text, start, self.pieces[self.at - 1].end, value))

    def literal(self, first: Piece, read: Callable[[], Literal]) -> None:
        try:
            value = read()
        except LiteralError as bad:
            raise self.refused(bad.problem, first.start, bad.hint) from None
        self.add("literal", self.text[first.start : self.pieces[self.at - 1].end], first.start, value)

    def refused(self, problem: str, position: int, hint: str = "") -> PredicateError:
        return PredicateError(problem, self.text, position, hint)

    def symbol(self, piece: Piece) -> None:
        """A minus before a number is part of the number, as in Spark: -2147483648 is an int."""
        after_value = bool(self.done) and self.done[-1].ends_value
        if piece.text == "-" and not after_value and self.peek().kind == "number":
            number = self.peek().text
            self.at += 2
            self.literal(piece, lambda: number_literal("-" + number))
            return
        if piece.text == "." and after_value and self.peek().kind in _NAMES:
            self.field(piece)
            return
        self.brackets(piece)
        self.at += 1
        self.add("symbol", piece.text, piece.start)

    def field(self, dot: Piece) -> None:
        name = self.peek()
        self.at += 1
        self.add("symbol", ".", dot.start)
        self.at += 1
        self.add("field", name.name, name.start)

    def brackets(self, piece: Piece) -> None:
        if piece.text == "(":
            before = self.done[-1] if self.done else None
            self.open.append(before.text.upper() if before and before.kind == "call" else "")
        elif piece.text == ")" and self.open:
            self.open.pop()

    def name(self, first: Piece) -> None:
        parts = [Part(first.name, first.start)]
        self.at += 1
        while self.peek(0).text == "." and self.peek().kind in _NAMES:
            parts.append(Part(self.peek().name, self.peek().start))
            self.at += 2
        if self.peek(0).text == "(":
            shown = ".".join(part.text for part in parts)
            raise self.refused(
                f"{brief(shown)} is not a function", first.start, "call a function by its plain name"
            )
        if self.peek(0).text == "." and self.peek().text == "*":
            raise self.refused("a star is not allowed here", self.peek().start, "name the columns one by one")
        self.add(
            "name", self.text[first.start : self.pieces[self.at - 1].end], first.start, Name(tuple(parts))
        )

    def plain_word(self, piece: Piece) -> None:
        word, following = piece.word, self.peek()
        if word in _TYPED and following.kind in _STRINGS:
            self.at += 2
            self.literal(piece, lambda: typed_literal(word, following.text))
        elif word == "INTERVAL" and (following.kind in ("number", *_STRINGS) or following.text == "-"):
            self.interval(piece)
        elif word in _CONSTANTS and not self.after_is():
            self.at += 1
            self.literal(piece, lambda: _CONSTANTS[word])
        elif word == "AS" and self.open and self.open[-1] in CASTS:
            self.cast_type(piece)
        else:
            self.other_word(piece)

    def after_is(self) -> bool:
        before = [lexeme.text if lexeme.kind == "word" else "" for lexeme in self.done[-2:]]
        return before[-1:] == ["IS"] or before == ["IS", "NOT"]

    def other_word(self, piece: Piece) -> None:
        called = self.peek().text == "("
        self.at += 1
        if piece.word in GRAMMAR_WORDS or piece.word in _CONSTANTS:
            self.add("word", piece.word, piece.start)
        elif called:
            self.add("call", piece.text.lower(), piece.start)
        else:
            self.add("name", piece.text, piece.start, Name((Part(piece.text, piece.start),)))

    def interval(self, first: Piece) -> None:
        self.at += 1
        if self.peek(0).kind in _STRINGS and self.peek().word not in UNIT_WORDS:
            quoted = self.peek(0).text
            self.at += 1
            self.literal(first, lambda: interval_text(unquoted(quoted)))
            return
        parts: list[tuple[str, Piece, str]] = []
        while (part := self.interval_part()) is not None:
            parts.append(part)
        if not parts:
            raise self.refused("not an interval", first.start, "write INTERVAL 5 MINUTES")
        self.literal(first, lambda: interval_literal([(_amount(sign, p), unit) for sign, p, unit in parts]))

    def interval_part(self) -> tuple[str, Piece, str] | None:
        sign = "-" if self.peek(0).text == "-" else ""
        amount, unit = self.peek(len(sign)), self.peek(len(sign) + 1)
        if amount.kind not in ("number", *_STRINGS) or unit.word not in UNIT_WORDS:
            return None
        self.at += len(sign) + 2
        return sign, amount, unit.text

    def cast_type(self, word: Piece) -> None:
        """`AS type` becomes `, type`, so that a cast is an ordinary call with two arguments."""
        self.at += 1
        self.add("symbol", ",", word.start)
        start, depth = self.at, 0
        while self.peek(0).kind in ("word", "number", "symbol") and (depth or self.peek(0).text != ")"):
            depth += (self.peek(0).text == "(") - (self.peek(0).text == ")")
            self.at += 1
        spelled = "".join(piece.text for piece in self.pieces[start : self.at]).lower()
        place = self.pieces[start].start if start < len(self.pieces) else len(self.text)
        if not _CAST_TYPE.fullmatch(spelled):
            raise self.refused(
                f"cannot cast to {brief(spelled) or 'nothing'}",
                place,
                "cast to a simple type: bigint, string",
            )
        self.add("type", spelled, place, self.checked_type(spelled, place))

    def checked_type(self, spelled: str, place: int) -> SqlType:
        type_ = parse_type(spelled)
        digits, scale = type_.precision or 0, type_.scale or 0
        if type_.name == "decimal" and not (scale <= digits and 1 <= digits <= MAX_DECIMAL_DIGITS):
            raise self.refused(
                f"Spark has no {type_}", place, "a decimal has 1 to 38 digits, and no larger scale"
            )
        return type_


def _amount(sign: str, piece: Piece) -> str:
    amount = piece.text if piece.kind == "number" else unquoted(piece.text).strip()
    return amount[1:] if sign and amount.startswith("-") else sign + amount
