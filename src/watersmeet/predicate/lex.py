"""Text to lexemes, by the lexical rules of Spark SQL.

Two passes. The first cuts the text into pieces (words, numbers, strings, signs). The second folds literals, dotted
names and the types of casts into one lexeme each:

    l . k = DATE '2026-01-31'   ->   name(l.k)  symbol(=)  literal(2026-01-31)
    CAST(l.k AS decimal(9,2))   ->   call(cast) ( name(l.k) , type(decimal(9,2)) )

The parser then sees only operators, brackets, function names and opaque operands. No keyword of any SQL dialect can
be read into a column name (`l.date`, `r.end`) or a literal. We do not use sqlglot's tokenizer: it drops comments,
swallows words (`ORDER BY`, `SHOW ...`), decodes strings by its own rules and gives no position in its errors.

Invariant: the pieces and the white space between them are the whole text, in order. Nothing can hide from the checks
that follow, and every error has a position.
Not accepted, although Spark does: unquoted names that are not ASCII, and comments.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Literal
from watersmeet.model.types import BOOLEAN, MAX_DECIMAL_DIGITS, VOID, SqlType, parse_type
from watersmeet.predicate.literals import (
    UNIT_WORDS,
    LiteralError,
    brief,
    hex_literal,
    interval_literal,
    interval_text,
    number_literal,
    string_literal,
    typed_literal,
    unquoted,
)

# People write predicates; a longer text is a mistake or an attack. The limits keep every refusal fast.
MAX_CHARS: Final = 64 * 1024
# A piece takes about 30 microseconds from here to the typed tree, so the slowest text takes a quarter of a second.
MAX_PIECES: Final = 8_000

_PIECE: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>--|/\*)
  | (?P<HEX>[xX]'[^']*')
  | (?P<STRING>[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<QUOTED>`(?:[^`]|``)*`)
  | (?P<NUMBER>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYdDfF]|[bB][dD])?(?![A-Za-z0-9_]))
  | (?P<WORD>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<SYMBOL><=>|<>|<=|>=|==|!=|=>|->|\|\||[.,()\[\]+\-*/%=<>!])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_FORBIDDEN: Final[dict[str, tuple[str, str]]] = {
    ";": ("a predicate is one expression: no second statement", "leave out the semicolon"),
    ":": (
        "':' is not allowed: no parameters, no paths, no '::'",
        "write the value itself, or CAST(x AS type)",
    ),
    **dict.fromkeys("?$@{}", ("a predicate has no parameters", "write the value itself")),
    **dict.fromkeys("&|^~", ("bitwise operators are not allowed", "compute the column before the join")),
    **dict.fromkeys("'\"", ("the string is not closed", "end it with the quote it began with")),
    "`": ("the quoted name is not closed", "end it with a backtick"),
}


def words(text: str) -> frozenset[str]:
    """A set of words, for the tables of this package."""
    return frozenset(text.split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name nearest to a misspelt one, as a hint; empty if none is near."""
    names = list(known)
    close = difflib.get_close_matches(brief(name.lower()), [other.lower() for other in names], n=1)
    return next((f"did you mean {other}? " for other in names if [other.lower()] == close), "")


# The groups of `_PIECE` that are kept, and the end of the text.
PieceKind = Enum("PieceKind", "HEX STRING QUOTED NUMBER WORD SYMBOL END")
_KINDS: Final = {kind.name: kind for kind in PieceKind}
# NUL, and surrogates that are not in pairs.
_IMPOSSIBLE: Final = re.compile("[\0\ud800-\udfff]")


class Piece(NamedTuple):
    """One word, number, string or sign; `end` is exclusive.

    `word` is the upper-case word, or '' for anything that is not an unquoted word.
    """

    kind: PieceKind
    text: str
    start: int
    end: int
    word: str = ""

    @property
    def is_name(self) -> bool:
        return self.kind in (PieceKind.WORD, PieceKind.QUOTED)

    @property
    def name(self) -> str:
        """The text of a name, without its backticks."""
        return self.text[1:-1].replace("``", "`") if self.kind is PieceKind.QUOTED else self.text


def pieces_of(text: object) -> list[Piece]:
    """Cut a text into pieces; refuse what no predicate may contain.

    >>> [piece.text for piece in pieces_of("l.k = 'a b'")]
    ['l', '.', 'k', '=', "'a b'"]
    """
    checked = _checked(text)
    pieces: list[Piece] = []
    at = 0
    while at < len(checked):
        match = _PIECE.match(checked, at)
        if match is None:
            raise _bad_character(checked, at)
        if match["comment"]:
            raise PredicateError("comments are not allowed", checked, at, "leave the comment out")
        end = match.end()
        if not match["space"]:
            kind, found = _KINDS[str(match.lastgroup)], match.group()
            pieces.append(Piece(kind, found, at, end, found.upper() if kind is PieceKind.WORD else ""))
        at = end
    if len(pieces) > MAX_PIECES:
        raise PredicateError(f"the text is too long: {len(pieces)} words and signs, at most {MAX_PIECES}")
    return pieces


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise PredicateError(f"expected Spark SQL text, got {type(text).__name__}", hint="give a str")
    if len(text) > MAX_CHARS:
        raise PredicateError(f"the text is too long: {len(text)} characters, at most {MAX_CHARS}")
    if not text.strip():
        raise PredicateError("the text is empty", hint="give an expression such as l.k = r.k")
    found = _IMPOSSIBLE.search(text)
    if found is None:
        return text
    if found.group() == "\0":
        raise PredicateError("a NUL character is not allowed", text.replace("\0", " "), found.start())
    raise PredicateError(f"an unpaired surrogate is not allowed at character {found.start()}")


def _bad_character(text: str, at: int) -> PredicateError:
    char = text[at]
    if text.startswith("&&", at):
        return PredicateError("&& is not allowed", text, at, "write AND")
    if char in _FORBIDDEN:
        problem, hint = _FORBIDDEN[char]
    elif char.isdigit() and char.isascii():
        problem, hint = "neither a number nor a name", "quote a name that begins with a digit in backticks"
    else:
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        problem = f"the character {shown} is not allowed outside quotes"
        hint = "quote a name that has other characters in backticks: `l`.`größe`"
    return PredicateError(problem, text, at, hint)


# Words that are operators or belong to one. Any other word is a name, a function, or refused by the grammar.
GRAMMAR_WORDS: Final = words(
    "AND OR NOT BETWEEN IN IS LIKE ILIKE RLIKE REGEXP CASE WHEN THEN ELSE END DIV DISTINCT FROM"
)
_CASTS: Final = ("CAST", "TRY_CAST")
_CONSTANTS: Final = {
    "NULL": Literal(None, VOID),
    "TRUE": Literal(True, BOOLEAN),
    "FALSE": Literal(False, BOOLEAN),
}
_TYPED: Final = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ")
_AMOUNTS: Final = (PieceKind.NUMBER, PieceKind.STRING)
_TYPE_PIECES: Final = (PieceKind.WORD, PieceKind.NUMBER, PieceKind.SYMBOL)
_VALUE_ENDS: Final = (")", "]", "END", *_CONSTANTS)

_CAST_TYPE: Final = re.compile(
    r"(?:tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|boolean|string|binary|date"
    r"|timestamp|timestamp_ntz|timestamp_ltz|(?:decimal|dec|numeric)(?:\([0-9]{1,2}(?:,[0-9]{1,2})?\))?)"
)


# `CALL` is the name of a function, `FIELD` a name after a dot, `TYPE` the type of a cast.
Kind = Enum("Kind", "LITERAL TYPE NAME CALL FIELD WORD SYMBOL END")


@dataclass(frozen=True, slots=True)
class NamePart:
    """One part of a dotted name."""

    text: str
    start: int


# A literal, the type of a cast or the parts of a name.
LexemeValue = Literal | SqlType | tuple[NamePart, ...] | None


@dataclass(frozen=True, slots=True)
class Lexeme:
    """One unit that the grammar sees."""

    kind: Kind
    text: str
    start: int
    end: int
    value: LexemeValue = None

    @property
    def ends_value(self) -> bool:
        operand = self.kind in (Kind.LITERAL, Kind.TYPE, Kind.NAME, Kind.FIELD)
        return operand or self.text in _VALUE_ENDS


def lexemes_of(pieces: list[Piece], text: str) -> list[Lexeme]:
    """Fold pieces of a text into lexemes."""
    return _Folder(pieces, text).run()


class _Folder:
    """One pass over the pieces; `open` holds, for each open bracket, the function that it belongs to."""

    def __init__(self, pieces: list[Piece], text: str):
        self.pieces, self.text = pieces, text
        self.at = 0
        self.done: list[Lexeme] = []
        self.open: list[str] = []
        self.end = Piece(PieceKind.END, "", len(text), len(text))

    def run(self) -> list[Lexeme]:
        while self.at < len(self.pieces):
            piece = self.take()
            try:
                self.fold(piece)
            except LiteralError as bad:
                raise self.refused(bad.problem, piece.start, bad.hint) from None
        return self.done

    def take(self) -> Piece:
        self.at += 1
        return self.pieces[self.at - 1]

    def peek(self, ahead: int = 0) -> Piece:
        """A piece that is not taken yet."""
        index = self.at + ahead
        return self.pieces[index] if index < len(self.pieces) else self.end

    def add(self, kind: Kind, text: str, start: int, value: LexemeValue = None) -> None:
        """Add a lexeme that ends with the last piece taken."""
        self.done.append(Lexeme(kind, text, start, self.pieces[self.at - 1].end, value))

    def add_operand(self, kind: Kind, first: Piece, value: LexemeValue) -> None:
        """Add a literal or a name, with its text as the user wrote it."""
        self.add(kind, self.text[first.start : self.pieces[self.at - 1].end], first.start, value)

    def refused(self, problem: str, position: int, hint: str = "") -> PredicateError:
        return PredicateError(problem, self.text, position, hint)

    def fold(self, piece: Piece) -> None:
        if piece.kind is PieceKind.SYMBOL:
            self.symbol(piece)
        elif piece.kind is PieceKind.QUOTED or (piece.kind is PieceKind.WORD and self.peek().text == "."):
            self.name(piece)
        elif piece.kind is PieceKind.WORD:
            self.word(piece)
        elif piece.kind is PieceKind.STRING:
            strings = [piece.text]
            while self.peek().kind is PieceKind.STRING:
                strings.append(self.take().text)
            self.add_operand(Kind.LITERAL, piece, string_literal(strings))
        else:
            read = hex_literal if piece.kind is PieceKind.HEX else number_literal
            self.add_operand(Kind.LITERAL, piece, read(piece.text))

    def symbol(self, piece: Piece) -> None:
        """A minus before a number is part of the number, as in Spark: -2147483648 is an int."""
        before = self.done[-1] if self.done else None
        after_value = before is not None and before.ends_value
        if piece.text == "-" and not after_value and self.peek().kind is PieceKind.NUMBER:
            self.add_operand(Kind.LITERAL, piece, number_literal("-" + self.take().text))
            return
        if piece.text == "(":
            self.open.append(before.text.upper() if before and before.kind is Kind.CALL else "")
        elif piece.text == ")" and self.open:
            self.open.pop()
        self.add(Kind.SYMBOL, piece.text, piece.start)
        if piece.text == "." and after_value and self.peek().is_name:
            field = self.take()
            self.add(Kind.FIELD, field.name, field.start)

    def name(self, first: Piece) -> None:
        parts = [NamePart(first.name, first.start)]
        while self.peek().text == "." and self.peek(1).is_name:
            self.take()
            part = self.take()
            parts.append(NamePart(part.name, part.start))
        if self.peek().text == "(":
            shown = brief(".".join(part.text for part in parts))
            raise self.refused(f"{shown} is not a function", first.start, "call a function by its plain name")
        if self.peek().text == "." and self.peek(1).text == "*":
            place = self.peek(1).start
            raise self.refused("a star is not allowed here", place, "name the columns one by one")
        self.add_operand(Kind.NAME, first, tuple(parts))

    def word(self, piece: Piece) -> None:
        word, following = piece.word, self.peek()
        if word in _TYPED and following.kind is PieceKind.STRING:
            self.add_operand(Kind.LITERAL, piece, typed_literal(word, self.take().text))
        elif word == "INTERVAL" and (following.kind in _AMOUNTS or following.text == "-"):
            interval = self.interval(piece)
            self.add_operand(Kind.LITERAL, piece, interval)
        elif word in _CONSTANTS and not self.after_is():
            self.add_operand(Kind.LITERAL, piece, _CONSTANTS[word])
        elif word == "AS" and self.open and self.open[-1] in _CASTS:
            self.cast_type(piece)
        elif word in GRAMMAR_WORDS or word in _CONSTANTS:
            self.add(Kind.WORD, word, piece.start)
        elif following.text == "(":
            self.add(Kind.CALL, piece.text.lower(), piece.start)
        else:
            self.add_operand(Kind.NAME, piece, (NamePart(piece.text, piece.start),))

    def after_is(self) -> bool:
        before = [lexeme.text if lexeme.kind is Kind.WORD else "" for lexeme in self.done[-2:]]
        return before[-1:] == ["IS"] or before == ["IS", "NOT"]

    def interval(self, first: Piece) -> Literal:
        """The interval after the word INTERVAL: one string with its units, or amounts and units."""
        if self.peek().kind is PieceKind.STRING and self.peek(1).word not in UNIT_WORDS:
            return interval_text(unquoted(self.take().text))
        parts: list[tuple[str, str]] = []
        while True:
            negative = self.peek().text == "-"
            amount, unit = self.peek(negative), self.peek(negative + 1)
            if amount.kind not in _AMOUNTS or unit.word not in UNIT_WORDS:
                break
            self.at += negative + 2
            parts.append((_amount(amount, negative), unit.text))
        if not parts:
            raise self.refused("not an interval", first.start, "write INTERVAL 5 MINUTES")
        return interval_literal(parts)

    def cast_type(self, word: Piece) -> None:
        """`AS type` becomes `, type`, so that a cast is an ordinary call with two arguments."""
        self.add(Kind.SYMBOL, ",", word.start)
        place, depth, spelled = self.peek().start, 0, ""
        while self.peek().kind in _TYPE_PIECES and (depth or self.peek().text != ")"):
            sign = self.take().text
            depth += (sign == "(") - (sign == ")")
            spelled += sign.lower()
        if not _CAST_TYPE.fullmatch(spelled):
            problem = f"cannot cast to {brief(spelled) or 'nothing'}"
            raise self.refused(problem, place, "cast to a simple type: bigint, string")
        type_ = parse_type(spelled)
        digits, scale = type_.precision or 0, type_.scale or 0
        if type_.name == "decimal" and not (scale <= digits and 1 <= digits <= MAX_DECIMAL_DIGITS):
            hint = "a decimal has 1 to 38 digits, and no larger scale"
            raise self.refused(f"Spark has no {type_}", place, hint)
        self.add(Kind.TYPE, spelled, place, type_)


def _amount(piece: Piece, negative: bool) -> str:
    """An amount of an interval with its sign; two minus signs cancel."""
    amount = piece.text if piece.kind is PieceKind.NUMBER else unquoted(piece.text).strip()
    if not negative:
        return amount
    return amount[1:] if amount.startswith("-") else "-" + amount
