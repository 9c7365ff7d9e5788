"""Joins of two inputs on a band of a value, and which keys a band lets meet.

Order keys are the order words of a value, so the partners of a row are one stretch of the other side. A band that is
exact is not tested again; for one that is a superset the conjuncts that it came from are in the residual. We differ
from Spark where a difference leaves its type: under ANSI that is an error there, here a pair is decided by the whole
numbers. Without ANSI such a difference is never made a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.kernel.emit import Emission, OutputColumn, rows_together
from watersmeet.kernel.keys import Indices, Keys, Mask, encode_floats, partners, shift
from watersmeet.kernel.match import TABLE_RATIO, TABLE_SLOT_BITS, expand
from watersmeet.kernel.pieces import Side, candidates, look_up_fresh, owed_pieces
from watersmeet.kernel.rows import position
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Tally
from watersmeet.model.types import SqlType

Bound = int | float | None
_LOWEST_FLOAT = encode_floats(np.array([-np.inf]))


@dataclass(frozen=True, slots=True)
class BandJoin:
    """Pairs with `low <= left - right <= high`, as in `model.expression.Band`, for which `residual` is true."""

    type: SqlType
    low: Bound
    high: Bound
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    on_one_key: ClassVar[bool] = False

    def results(
        self,
        sides: tuple[Side, ...],
        within: int | None,
        limits: Limits = DEFAULT_LIMITS,
        tally: Tally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As `EquiJoin.results`."""
        left, right = sides
        look_up_fresh(sides, tally)
        # Float bounds are widened, so they may hold values even if low > high.
        if isinstance(self.low, int) and isinstance(self.high, int) and self.low > self.high:
            return
        emission = Emission(self.output, self.residual, self.ansi, within=within, limits=limits)
        for one, other in owed_pieces(left, right, limits):
            limit = rows_together(limits, one.rows, other.rows)
            for one_at, other_at in close_pairs(one.keys, other.keys, self, limit, limits.piece_rows):
                yield from emission.results(candidates(one, one_at, other, other_at))


def close_pairs(
    left: Keys, right: Keys, join: BandJoin, limit: int, piece_rows: int = DEFAULT_LIMITS.piece_rows
) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs within the band, at most `limit` at a time. Both sides are sorted.

    The shorter side is looked up in the longer, `piece_rows` at a time. Seen from the other side, the bounds of a band
    are negated and exchanged.
    """
    if len(left) <= len(right):
        low, high = _negated(join.high), _negated(join.low)
        yield from _stretches(left, right, low, high, join.type, limit, piece_rows)
        return
    for right_at, left_at in _stretches(right, left, join.low, join.high, join.type, limit, piece_rows):
        yield left_at, right_at


@dataclass(frozen=True, slots=True)
class BandFacing:
    """Which order words can be partners under a band, for the planner (`schemes.scheme.Facing`)."""

    type: SqlType
    low: Bound
    high: Bound

    def __call__(self, left: KeyRange) -> KeyRange:
        """The right words that may be partners of a left word in this range.

        >>> BandFacing(SqlType("int"), -5, 7)(KeyRange(100, 200))
        KeyRange(low=93, high=205)
        """
        return _facing(left, self.low, self.high, self.type)

    def right_of(self, left: Keys) -> tuple[Keys, Keys]:
        """For each left word the first and the last right word that may be a partner.

        At the ends of the key space a word without a partner may get one, so this is for estimates.
        """
        return _reach(left, _negated(self.high), _negated(self.low), self.type)

    def left_of(self, right: Keys) -> tuple[Keys, Keys]:
        """For each right word the first and the last left word, as `right_of`."""
        return _reach(right, self.low, self.high, self.type)


def _reach(words: Keys, low: Bound, high: Bound, kind: SqlType) -> tuple[Keys, Keys]:
    """The words `low` to `high` away from each word, both included."""
    if isinstance(low, float) or isinstance(high, float):
        _, lower, upper = partners(np.maximum(words, _LOWEST_FLOAT), low, high, kind)
    else:
        lower, upper = (None if bound is None else shift(words, bound) for bound in (low, high))
    return (
        np.zeros_like(words) if lower is None else lower,
        np.full_like(words, KEY_SPACE - 1) if upper is None else upper,
    )


def _facing(range_: KeyRange, low: Bound, high: Bound, kind: SqlType) -> KeyRange:
    """The words from which some word of the range is between `low` and `high` away."""
    if range_.low >= range_.high:
        return KeyRange(range_.low, range_.low)
    if isinstance(low, float) or isinstance(high, float):
        # No value has a word below that of -infinity: it would decode to NaN.
        ends = np.maximum(np.array([range_.low, range_.high - 1], np.uint64), _LOWEST_FLOAT)
        _, lower, upper = partners(ends, _negated(high), _negated(low), kind)
        return KeyRange(
            0 if lower is None else int(lower[0]), KEY_SPACE if upper is None else int(upper[1]) + 1
        )
    first = 0 if high is None else min(max(range_.low - high, 0), KEY_SPACE)
    end = KEY_SPACE if low is None else min(max(range_.high - low, 0), KEY_SPACE)
    return KeyRange(first, max(first, end))


def _stretches(
    needles: Keys, hay: Keys, low: Bound, high: Bound, kind: SqlType, limit: int, piece_rows: int
) -> Iterator[tuple[Indices, Indices]]:
    """For each needle the places in `hay` with low <= place's value - needle's value <= high."""
    if not len(needles) or not len(hay):
        return
    meeting = _facing(KeyRange(int(hay[0]), int(hay[-1]) + 1), low, high, kind)
    begin, end = position(needles, meeting.low), position(needles, meeting.high)
    for first in range(begin, end, piece_rows):
        piece = needles[first : min(first + piece_rows, end)]
        here, lower, upper = partners(piece, low, high, kind)
        likely = _likely_near(here, lower, low, high, hay)
        if lower is not None:
            lower = lower[likely]
        if upper is not None:
            upper = upper[likely]
        start = np.zeros(len(likely), np.int64) if lower is None else np.searchsorted(hay, lower)
        # Most needles of a narrow band have no partner in this run: only for the others is the end looked up.
        found = np.flatnonzero(_reached(hay, start, upper))
        start = start[found]
        stop = len(hay) if upper is None else np.searchsorted(hay, upper[found], side="right")
        yield from expand(likely[found] + (first + here.start), start, stop - start, limit)


def _likely_near(here: slice, lower: Keys | None, low: Bound, high: Bound, hay: Keys) -> Indices:
    """Which needles may have partners: all that have, and few others if the band is narrow and the values are spread.

    As `_likely`, but values are not mixed: slots are equal stretches from the first key to the last. The partners of a
    needle lie in two neighbouring slots at most, and a slot is taken if it or the next one has a key.
    """
    all_ = np.arange(here.stop - here.start)
    if lower is None or not isinstance(low, int) or not isinstance(high, int):
        return all_
    first, last = hay[0], hay[-1]
    bits = int(last - first).bit_length() - len(hay).bit_length() - TABLE_SLOT_BITS
    if len(hay) > TABLE_RATIO * len(all_) or bits < 0 or high - low >= 1 << bits:
        return all_
    shift = np.uint64(bits)
    slots = ((hay - first) >> shift).view(np.int64)
    taken = np.zeros(int(slots[-1]) + 2, np.bool_)
    # One place further on, since no slot is before the first.
    taken[slots] = True
    taken[slots + 1] = True
    # Partners that begin below the first key are judged by the first slot.
    begin = ((np.maximum(lower, first) - first) >> shift).view(np.int64)
    return np.flatnonzero(taken[1:].take(begin, mode="clip"))


def _reached(hay: Keys, start: Indices, upper: Keys | None) -> Mask:
    inside = start < len(hay)
    return inside if upper is None else inside & (hay[np.minimum(start, len(hay) - 1)] <= upper)


def _negated(bound: Bound) -> Bound:
    return None if bound is None else -bound
