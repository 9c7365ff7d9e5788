"""Text to pieces, by the lexical rules of Spark SQL, for the characters that a predicate may use.

sqlglot's own tokenizer is not used: it drops comments, joins and swallows words (`ORDER BY`, `SHOW ...`),
decodes strings by rules of its own and gives no place in its errors. Here every character is accounted
for, so that nothing can hide from the checks that follow and every refusal knows its place.

Invariant: the pieces and the white space between them are the whole text, in order.
Not accepted, although Spark does: unquoted names that are not ASCII, and comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from watersmeet.errors import PredicateError

# Predicates are written by people; a longer text is a mistake or an attack. Keeps every refusal fast.
MAX_CHARS: Final = 64 * 1024
# About 30 microseconds each from here to the typed tree: the slowest text takes a quarter of a second.
MAX_PIECES: Final = 8_000

# A message is read by a person: longer words are cut.
MAX_SHOWN: Final = 60

_PIECE: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<comment>--|/\*)
  | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
  | (?P<hex>[xX]'[^']*')
  | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYdDfF]|[bB][dD])?(?![A-Za-z0-9_]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<symbol><=>|<>|<=|>=|==|!=|=>|->|\|\||[.,()\[\]+\-*/%=<>!])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_WHOLE_NAMES: Final = "quote a name that has other characters in backticks: `l`.`größe`"
_FORBIDDEN: Final = {
    ";": ("a predicate is one expression: no second statement", "leave out the semicolon"),
    "?": ("a predicate has no parameters", "write the value itself"),
    ":": (
        "':' is not allowed: no parameters, no paths, no '::'",
        "write the value itself, or CAST(x AS type)",
    ),
    "$": ("a predicate has no parameters", "write the value itself"),
    "@": ("a predicate has no parameters", "write the value itself"),
    "{": ("a predicate has no parameters", "write the value itself"),
    "}": ("a predicate has no parameters", "write the value itself"),
    "&": ("bitwise operators are not allowed", "compute the column before the join"),
    "|": ("bitwise operators are not allowed", "compute the column before the join"),
    "^": ("bitwise operators are not allowed", "compute the column before the join"),
    "~": ("bitwise operators are not allowed", "compute the column before the join"),
    "'": ("the string is not closed", "end it with the quote it began with"),
    '"': ("the string is not closed", "end it with the quote it began with"),
    "`": ("the quoted name is not closed", "end it with a backtick"),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One lexical unit: `kind` is a group of `_PIECE`; `end` is exclusive."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The upper-case word, or '' for anything that is not an unquoted word."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The text of a name, without its backticks."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def brief(text: str) -> str:
    """For messages: the middle of a long text left out."""
    half = MAX_SHOWN // 2
    return text if len(text) <= MAX_SHOWN else f"{text[:half]}...{text[-half:]}"


def words(text: str) -> frozenset[str]:
    """A set of words, for the tables of this package."""
    return frozenset(text.split())


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
        kind = str(match.lastgroup)
        if kind == "comment":
            raise PredicateError("comments are not allowed", checked, at, "leave the comment out")
        if kind != "space":
            pieces.append(Piece(kind, match.group(), at, match.end()))
        at = match.end()
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
    for at, char in enumerate(text):
        if char == "\0":
            raise PredicateError("a NUL character is not allowed", text.replace("\0", " "), at)
        if "\ud800" <= char <= "\udfff":
            raise PredicateError(f"an unpaired surrogate is not allowed at character {at}")
    return text


def _bad_character(text: str, at: int) -> PredicateError:
    char = text[at]
    if char in _FORBIDDEN:
        problem, hint = _FORBIDDEN[char]
    elif char.isdigit() and char.isascii():
        problem, hint = "neither a number nor a name", "quote a name that begins with a digit in backticks"
    else:
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        problem, hint = f"the character {shown} is not allowed outside quotes", _WHOLE_NAMES
    return PredicateError(problem, text, at, hint)
