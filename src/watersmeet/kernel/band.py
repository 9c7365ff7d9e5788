"""Band join of sorted runs: pairs whose values are close, or in order.

A run is sorted by the order word of its band value (`kernel/words.py`), so the partners of a row are one
stretch of the other side: two binary searches find it, and the cost of a batch follows its new rows and its
results, not the history. The delta rule and the bounds on memory are those of `kernel/equi.py`.

The shorter side is looked up in the longer, whichever it is: the band of the left seen from the right has its
bounds negated and exchanged. Where the band is exact nothing is checked again; where it is a superset the
conjuncts that it came from are in the residual.

Where we differ from Spark: a difference that leaves its type is an error there under ANSI; here a pair gets
the answer of the whole numbers, and no error. Without ANSI such a difference is never made a band.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel import pairs
from watersmeet.kernel.pairs import Emission, Indices, OutputColumn, Side, emit, expand, output_rows
from watersmeet.kernel.sorted import Keys, position
from watersmeet.kernel.words import encode_floats, partners
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.types import SqlType

Bound = int | float | None

_LOWEST_FLOAT = encode_floats(np.array([-np.inf]))


@dataclass(frozen=True, slots=True)
class BandJoin:
    """`low <= left - right <= high` as in `model.expression.Band`; `residual` must hold too.

    `within` is how far the window times may be apart.
    """

    type: SqlType
    low: Bound
    high: Bound
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    within: int | None = None


def join_bands(left: Side, right: Side, join: BandJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    # Float bounds are wider than they say, so that they may meet all the same.
    if isinstance(join.low, int) and isinstance(join.high, int) and join.low > join.high:
        return
    names = (left.name, right.name)
    emission = Emission(join.residual, join.output, join.ansi, within=join.within)
    for one, other in pairs.owed_pieces(left, right):
        for one_at, other_at in close_pairs(one.keys, other.keys, join, output_rows(one, other)):
            yield from emit(one, one.places(one_at), other, other.places(other_at), names, emission)


def close_pairs(left: Keys, right: Keys, join: BandJoin, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs within the band, at most `limit` at a time. Both sides are sorted."""
    if len(left) <= len(right):
        yield from _stretches(left, right, _negated(join.high), _negated(join.low), join.type, limit)
        return
    for right_at, left_at in _stretches(right, left, join.low, join.high, join.type, limit):
        yield left_at, right_at


def right_range(left: KeyRange, join: BandJoin) -> KeyRange:
    """The words of the right side that may be partners of a left word in this range.

    >>> right_range(KeyRange(100, 200), BandJoin(SqlType("int"), -5, 7, None, ()))
    KeyRange(low=93, high=205)
    """
    return _facing(left, join.low, join.high, join.type)


def _facing(range_: KeyRange, low: Bound, high: Bound, kind: SqlType) -> KeyRange:
    """The words from which some word of the range is between `low` and `high` away."""
    if range_.low >= range_.high:
        return KeyRange(range_.low, range_.low)
    if isinstance(low, float) or isinstance(high, float):
        # Words below that of -infinity are no value's, and would decode to NaN.
        ends = np.maximum(np.array([range_.low, range_.high - 1], np.uint64), _LOWEST_FLOAT)
        _, lower, upper = partners(ends, _negated(high), _negated(low), kind)
        return KeyRange(
            0 if lower is None else int(lower[0]), KEY_SPACE if upper is None else int(upper[1]) + 1
        )
    first = 0 if high is None else min(max(range_.low - high, 0), KEY_SPACE)
    end = KEY_SPACE if low is None else min(max(range_.high - low, 0), KEY_SPACE)
    return KeyRange(first, max(first, end))


def _stretches(
    needles: Keys, hay: Keys, low: Bound, high: Bound, kind: SqlType, limit: int
) -> Iterator[tuple[Indices, Indices]]:
    """For each needle the places in `hay` with low <= place's value - needle's value <= high."""
    if not len(needles) or not len(hay):
        return
    meeting = _facing(KeyRange(int(hay[0]), int(hay[-1]) + 1), low, high, kind)
    begin, end = position(needles, meeting.low), position(needles, meeting.high)
    for first in range(begin, end, pairs.PIECE_ROWS):
        piece = needles[first : min(first + pairs.PIECE_ROWS, end)]
        here, lower, upper = partners(piece, low, high, kind)
        start = np.zeros(here.stop - here.start, np.int64) if lower is None else np.searchsorted(hay, lower)
        # Most needles of a narrow band have no partner in this run: only for the others is the end looked up.
        found = np.flatnonzero(_reached(hay, start, upper))
        start = start[found]
        stop = len(hay) if upper is None else np.searchsorted(hay, upper[found], side="right")
        yield from expand(found + (first + here.start), start, stop - start, limit)


def _reached(hay: Keys, start: Indices, upper: Keys | None) -> npt.NDArray[np.bool_]:
    inside = start < len(hay)
    return inside if upper is None else inside & (hay[np.minimum(start, len(hay) - 1)] <= upper)


def _negated(bound: Bound) -> Bound:
    return None if bound is None else -bound
