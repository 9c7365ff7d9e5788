"""The window of one query: which rows may be in one answer.

    WINDOW 10 MINUTES            the newest of the answer's rows is at most that much younger than the oldest
    WINDOW TUMBLING 1 HOUR       all rows lie in one hour of the clock, counted from 1970-01-01 00:00 UTC
    WINDOW 1000 ROWS             each row is among its stream's last 1000 before the newest, or comes with it

The times of rows are their publication times, in microseconds. Idreos et al. (2008, section 5) compare the time of a
row with that of one other row of the rewritten query, so that which answers come out depends on the order in which it
was rewritten, and some are wider than the window. Here the order does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.model.closed import ClosedSet
from watersmeet.model.window import FARTHEST
from watersmeet.predicate.lex import Piece, PieceKind, words
from watersmeet.predicate.literals import LiteralError, interval_literal, is_day_time


class WindowOf(ClosedSet):
    TIME = "time"
    TUMBLING = "tumbling"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class HubWindow:
    """`width` is in microseconds, or a number of rows."""

    of: WindowOf
    width: int


_HINT: Final = "write WINDOW 10 MINUTES, WINDOW TUMBLING 1 HOUR or WINDOW 1000 ROWS"


def cut_window(text: str, pieces: Sequence[Piece]) -> tuple[list[Piece], HubWindow | None]:
    """Cut WINDOW off the end of a text. Elsewhere the word is the name of an input or of a column."""
    depth, sources = 0, False
    for at, piece in enumerate(pieces):
        depth += {"(": 1, ")": -1}.get(piece.text, 0)
        sources |= piece.word == "FROM" and depth == 0
        if sources and depth == 0 and piece.word == "WINDOW" and is_clause(pieces, at):
            return list(pieces[:at]), _read(text, piece, pieces[at + 1 :])
    return list(pieces), None


# A name stands behind these, or before these; an alias may also end the text.
_BEFORE_NAMES: Final = words("FROM JOIN AS WHERE ON AND OR NOT BETWEEN LIKE IN")
_AFTER_NAMES: Final = words(
    "WINDOW SINCE WHERE JOIN INNER ON USING AND OR NOT IS IN BETWEEN LIKE GROUP HAVING ORDER LIMIT"
)


def is_clause(pieces: Sequence[Piece], at: int) -> bool:
    """Whether a word behind FROM begins a clause, and is no name."""
    before, after = pieces[at - 1], pieces[at + 1] if at + 1 < len(pieces) else None
    if before.word in _BEFORE_NAMES or (before.kind is PieceKind.SYMBOL and before.text != ")"):
        return False
    return after is not None and after.word not in _AFTER_NAMES and after.kind is not PieceKind.SYMBOL


def _read(text: str, first: Piece, rest: Sequence[Piece]) -> HubWindow:
    tumbling = bool(rest) and rest[0].word == "TUMBLING"
    amount = rest[1:] if tumbling else rest
    if len(amount) != 2 or amount[0].kind is not PieceKind.NUMBER or not amount[0].text.isdigit():
        raise PredicateError("this window cannot be read", text, first.start, _HINT)
    number, unit = amount
    if unit.word in ("ROW", "ROWS"):
        return _rows(text, number, tumbling)
    try:
        length = interval_literal([(number.text, unit.text)])
    except LiteralError as error:
        raise PredicateError(error.problem, text, number.start, _HINT) from None
    if not is_day_time(length.type) or not isinstance(length.value, int):
        raise PredicateError("months differ in length", text, unit.start, "give the window in days")
    width, of = length.value, WindowOf.TUMBLING if tumbling else WindowOf.TIME
    if not 0 < width < FARTHEST:
        raise PredicateError(
            "a window is longer than nothing, and shorter than 70,000 years", text, number.start
        )
    return HubWindow(of, width)


def _rows(text: str, number: Piece, tumbling: bool) -> HubWindow:
    if tumbling:
        raise PredicateError(
            "a window that tumbles is not possible over rows", text, number.start, "give it a time"
        )
    # The digits first: Python reads no number of thousands of them.
    if len(number.text) > len(str(FARTHEST)) or not 0 < int(number.text) < FARTHEST:
        raise PredicateError(f"a window over rows has 1 to {FARTHEST - 1} of them", text, number.start)
    return HubWindow(WindowOf.ROWS, int(number.text))
