"""SINCE: how far into the past a query reaches.

    SINCE TIMESTAMP '2026-01-31 12:00:00Z'       at the end of a text, behind its window

The query counts all rows whose publication time is at that moment or later, whenever they arrived. Others count rows of
later batches than their command. Answers of the past come out in the first batch in which the query is in force, and
later ones as their rows arrive. So what comes out is what SQL finds in all rows of the streams with that time.

A moment is refused if some row of the query's streams with that time or a later one may have left (hubs/retained.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.hubs.window import HubWindow, WindowOf, is_clause
from watersmeet.model.window import TIMESTAMP, Window, WindowKind, time_text
from watersmeet.predicate.lex import Piece, PieceKind
from watersmeet.predicate.literals import LiteralError, typed_literal

_HINT: Final = "write SINCE TIMESTAMP '2026-01-31 12:30:00Z' at the end of the text"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def cut_since(text: str, pieces: Sequence[Piece]) -> tuple[list[Piece], int | None]:
    """Cut SINCE off the end of a text: the other pieces, and the moment in microseconds, if there is one.

    >>> from watersmeet.predicate.lex import pieces_of
    >>> text = "SELECT * FROM R WINDOW 1 HOUR SINCE TIMESTAMP '1970-01-01 00:00:01Z'"
    >>> pieces, since = cut_since(text, pieces_of(text))
    >>> pieces[-1].text, since
    ('HOUR', 1000000)
    """
    depth, sources = 0, False
    for at, piece in enumerate(pieces):
        depth += {"(": 1, ")": -1}.get(piece.text, 0)
        sources |= piece.word == "FROM" and depth == 0
        if sources and depth == 0 and piece.word == "SINCE" and is_clause(pieces, at):
            return list(pieces[:at]), _read(text, piece, pieces[at + 1 :])
    return list(pieces), None


def _read(text: str, first: Piece, rest: Sequence[Piece]) -> int:
    for piece in rest[2:]:
        if piece.word == "WINDOW":
            raise PredicateError("WINDOW stands before SINCE", text, piece.start, _HINT)
    if [piece.word for piece in rest[:1]] != ["TIMESTAMP"] or len(rest) != 2 or not _is_text(rest[1]):
        raise PredicateError("this SINCE cannot be read", text, first.start, _HINT)
    try:
        value = typed_literal("TIMESTAMP", rest[1].text).value
    except LiteralError as error:
        raise PredicateError(error.problem, text, rest[0].start, error.hint or _HINT) from None
    assert isinstance(value, datetime.datetime), "a timestamp"
    if value.tzinfo is None:
        raise PredicateError("SINCE needs a moment with its time zone", text, rest[0].start, _HINT)
    return (value - _EPOCH) // datetime.timedelta(microseconds=1)


def _is_text(piece: Piece) -> bool:
    return piece.kind is PieceKind.STRING


def check_since(text: str, since: int | None, window: HubWindow | None) -> None:
    """Refuse SINCE with a window that is not over time: rows that such a window counts may be gone."""
    if since is not None and window is not None and window.of not in (WindowOf.TIME, WindowOf.TUMBLING):
        raise PredicateError("SINCE goes with windows over time only", text, 0, "give the window a time")


def problem_with_since(since: int, streams: Iterable[str], unkept: Mapping[str, int]) -> str | None:
    """Why a query over some streams cannot reach back to a moment; None if it can.

    `unkept` has the newest publication time of which a row may not be there any more, by stream.
    """
    found = [(unkept[stream], stream) for stream in streams if stream in unkept]
    if not found or since > max(found)[0]:
        return None
    newest, stream = max(found)
    return (
        f"SINCE reaches back to {moment(since)}, but all rows of {stream} are kept from {moment(newest + 1)} on only: "
        "write that or a later moment. A longer retain= of the hub keeps those that come from then on"
    )


def moment(micros: int) -> str:
    """A publication time for people, in UTC."""
    return time_text(Window(WindowKind.TIME, 1, of=TIMESTAMP), micros)
