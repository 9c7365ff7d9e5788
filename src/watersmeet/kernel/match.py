"""Joins of sorted runs that find their candidates by binary search: equality of keys, and bands of a value.

For inputs L and R with fresh rows l, r and history L', R' a batch owes

    l x R'   +   L' x r   +   l x r

and nothing else: every pair of rows meets in the batch in which the later of the two arrives, so each result comes
out exactly once (the delta rule of incremental view maintenance). Both sides are sorted by order key, and the
shorter one is looked up in the longer, so the cost of a batch follows its new rows and its results, not the history.

*Equality*: rows with equal order keys are candidates. Where a key has many rows on both sides and nothing is left to
test, no pair is looked at by itself: all rows meet as a block (`emit.cross`).

*Band*: order keys are the order words of a value, so the partners of a row are one stretch of the other side. A band
that is exact is not tested again; for one that is a superset the conjuncts that it came from are in the residual. We
differ from Spark where a difference leaves its type: under ANSI that is an error there, here a pair is decided by the
whole numbers. Without ANSI such a difference is never made a band.

Memory: small slices are put together into pieces of about `piece_rows`, larger ones are only viewed, candidates are
expanded `output_rows` at a time (model/limits.py). History is only viewed, but for that of a single key if it fits
a piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.emit import (
    Candidates,
    Emission,
    OutputColumn,
    Picked,
    cross,
    rows_crossed,
    rows_together,
)
from watersmeet.kernel.evaluate import same_value
from watersmeet.kernel.keys import Indices, Keys, Mask, encode_floats, partners, prefix_ranges, shift
from watersmeet.kernel.rows import (
    Keyed,
    Merged,
    Places,
    Sorted,
    cut,
    grouped,
    mean_row_bytes,
    merge_order,
    position,
    take_rows,
)
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import SqlType

Bound = int | float | None
_LOWEST_FLOAT = encode_floats(np.array([-np.inf]))


@dataclass(frozen=True, slots=True)
class Side:
    """One input as a task sees it: slices of the batch's runs and of all older ones.

    A kernel that compares all pairs (theta.py) does not look at keys: its slices need not be sorted.
    """

    name: str
    fresh: Sequence[Keyed]
    history: Sequence[Keyed]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Sorted keys over rows of one input that may still lie in another order: `order` maps a key's place to its row."""

    input: str
    keys: Keys
    rows: pa.RecordBatch
    order: Indices | Places | None = None

    def picked(self, at: Indices) -> Picked:
        """The rows at some places of the keys."""
        return Picked(self.rows, at if self.order is None else self.order[at].astype(np.int64, copy=False))

    def between(self, start: int, stop: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of the rows whose keys lie together."""
        rows = self.rows.select(list(columns))
        if self.order is None:
            return rows.slice(start, stop - start)
        return take_rows(rows, self.order[start:stop].astype(np.int64, copy=False))


def keyed_rows(name: str, slice_: Keyed) -> KeyedRows:
    """View one slice as a piece."""
    return KeyedRows(name, slice_.keys, slice_.rows, slice_.order if isinstance(slice_, Merged) else None)


def owed_pieces(
    left: Side, right: Side, limits: Limits, *, sort: bool = True
) -> Iterator[tuple[KeyedRows, KeyedRows]]:
    """What a batch owes: fresh x history, history x fresh and fresh x fresh, as pairs of pieces.

    Without `sort` the keys of a piece are in no order, and its rows are in the order of its keys.
    """
    left_fresh, right_fresh = _Fresh(left, limits, sort), _Fresh(right, limits, sort)
    left_old, right_old = (
        [keyed_rows(side.name, s) for s in side.history if len(s)] for side in (left, right)
    )
    yield from ((new, old) for new in left_fresh for old in right_old)
    yield from ((old, new) for new in right_fresh for old in left_old)
    yield from ((one, other) for one in left_fresh for other in right_fresh)


class _Fresh:
    """A side's fresh pieces, to be walked several times: kept where they are small, else put together again."""

    def __init__(self, side: Side, limits: Limits, sort: bool):
        self.side, self.limits, self.sort = side, limits, sort
        self.kept = list(self._made()) if fit_a_piece(side.fresh, limits) else None

    def __iter__(self) -> Iterator[KeyedRows]:
        return self._made() if self.kept is None else iter(self.kept)

    def _made(self) -> Iterator[KeyedRows]:
        return pieces(self.side.name, self.side.fresh, self.limits, sort=self.sort)


def pieces(name: str, slices: Sequence[Keyed], limits: Limits, *, sort: bool = True) -> Iterator[KeyedRows]:
    """Put small slices together into pieces of bounded size; a slice that is larger by itself stays a view."""
    filled, most_rows, most_bytes = filter(len, slices), limits.piece_rows, limits.piece_bytes
    for held in grouped(filled, len, lambda s: s.nbytes, most_rows, most_bytes):
        if len(held) == 1:
            yield keyed_rows(name, held[0])
        elif sort:
            yield _merged(name, held)
        else:
            keys = np.concatenate([s.keys for s in held])
            yield KeyedRows(name, keys, pa.concat_batches([s.rows for s in held]))


def _merged(name: str, held: Sequence[Keyed]) -> KeyedRows:
    """Several slices as one piece. Their rows are copied behind each other, only the keys are sorted."""
    keys, order = merge_order([s.keys for s in held])
    # Rows without a key in the slice are not worth copying.
    fewer = [s.rewritten() if isinstance(s, Merged) and len(s) < s.rows.num_rows else s for s in held]
    if any(isinstance(s, Merged) for s in fewer):
        before = itertools.accumulate((s.rows.num_rows for s in fewer[:-1]), initial=0)
        places = [
            (s.order if isinstance(s, Merged) else np.arange(len(s))) + np.int64(first)
            for s, first in zip(fewer, before, strict=True)
        ]
        order = np.concatenate(places)[order]
    return KeyedRows(name, keys, pa.concat_batches([s.rows for s in fewer]), order)


def fit_a_piece(slices: Sequence[Keyed], limits: Limits) -> bool:
    rows, size = sum(map(len, slices)), sum(s.nbytes for s in slices)
    return rows <= limits.piece_rows and size <= limits.piece_bytes


def expand(found: Indices, start: Indices, count: Indices, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Unroll (needle, first match, number of matches) into pairs, cut at multiples of `limit`."""
    reached = np.cumsum(count)
    total = int(reached[-1]) if len(reached) else 0
    if total == len(found):
        for low in range(0, total, limit):
            yield found[low : low + limit], start[low : low + limit]
        return
    shifted = start - (reached - count)
    for low in range(0, total, limit):
        high = min(low + limit, total)
        first, last = np.searchsorted(reached, [low, high - 1], side="right")
        here = slice(int(first), int(last) + 1)
        share = np.diff(np.minimum(reached[here], high), prepend=low)
        yield np.repeat(found[here], share), np.repeat(shifted[here], share) + np.arange(low, high)


def _candidates(one: KeyedRows, one_at: Indices, other: KeyedRows, other_at: Indices) -> Candidates:
    return {one.input: one.picked(one_at), other.input: other.picked(other_at)}


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """Pairs of rows with equal order keys for which `residual` is true; the columns of `output` come out.

    `verify` lists the key columns, the first input's first, to compare where the order key is only a hash.
    """

    verify: tuple[tuple[str, ...], ...]
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True

    def results(
        self, sides: tuple[Side, ...], within: int | None, limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[pa.RecordBatch]:
        """All results that the fresh rows of two sides owe, in bounded batches.

        With `within`, only pairs whose window times are at most that far apart come out.
        """
        left, right = sides
        verify = tuple(((left.name, one), (right.name, other)) for one, other in self.verify)
        emission = Emission(self.output, self.residual, self.ansi, verify, within, limits=limits)
        if _one_key(left, right):
            # A side's history is met by the other's fresh rows, if there are any.
            left, right = (
                _history_at_once(left, limits) if any(map(len, right.fresh)) else left,
                _history_at_once(right, limits) if any(map(len, left.fresh)) else right,
            )
        for left_part, right_part in _cut_fresh(left, right, limits):
            for one, other in owed_pieces(left_part, right_part, limits):
                needles, sought = (one, other) if len(one.keys) <= len(other.keys) else (other, one)
                yield from _meet(needles, sought, emission)


class Matches(NamedTuple):
    """Needles that are found: their places, where the rows equal to each begin, and how many rows these are.

    Needles and the rows that they are sought in are sorted, so the equals of a needle lie together.
    """

    found: Indices
    start: Indices
    rows: Indices


def _one_key(left: Side, right: Side) -> bool:
    """Whether all rows share one order key, as in the cells of a heavy key."""
    slices = [s for side in (left, right) for s in (*side.fresh, *side.history) if len(s)]
    return bool(slices) and all(s.keys[0] == slices[0].keys[0] == s.keys[-1] for s in slices)


def _history_at_once(side: Side, limits: Limits) -> Side:
    """Rows of one key need no order: those of many small runs are met as one slice, if they fit a piece."""
    if len(side.history) < 2 or not fit_a_piece(side.history, limits):
        return side
    keys = np.concatenate([s.keys for s in side.history])
    slices = [s.rewritten() if isinstance(s, Merged) else s for s in side.history]
    return replace(side, history=[Sorted(keys, pa.concat_batches([s.rows for s in slices]))])


def _cut_fresh(left: Side, right: Side, limits: Limits) -> Iterator[tuple[Side, Side]]:
    """The two sides, one key range after the other, so that the fresh rows of a range fit a piece."""
    fresh = (*left.fresh, *right.fresh)
    widest = max((mean_row_bytes(s.rows) for s in fresh), default=1)
    limit = max(1, min(2 * limits.piece_rows, 2 * limits.piece_bytes // widest))
    if sum(map(len, fresh)) <= limit:
        yield left, right
        return
    for range_ in cut([fresh], [1], limit):
        yield _between(left, range_), _between(right, range_)


def _between(side: Side, range_: KeyRange) -> Side:
    return Side(side.name, [s.between(range_) for s in side.fresh], [s.between(range_) for s in side.history])


def _meet(needles: KeyedRows, sought: KeyedRows, emission: Emission) -> Iterator[pa.RecordBatch]:
    """All results of two pieces, the shorter one first: heavy keys as blocks, the rest by position."""
    matches, limits = matches_of(needles.keys, sought.keys), emission.limits
    if not len(matches.found):
        return
    crossed = np.zeros(len(matches.found), np.bool_)
    for block in () if emission.tests_pairs else _blocks(matches, limits.heavy_pairs):
        sides = _rows_of_block(needles, sought, matches, block, emission)
        limit = rows_crossed(limits, *sides.values())
        if limit and _share_a_key(sides, emission):
            crossed[block] = True
            yield from cross(sides, emission.output, limit, limits.least_tiled_rows)
    if crossed.any():
        matches = Matches(*(part[~crossed] for part in matches))
    for needles_at, sought_at in expand(*matches, rows_together(limits, needles.rows, sought.rows)):
        yield from emission.results(_candidates(needles, needles_at, sought, sought_at))


def _blocks(matches: Matches, least_pairs: int) -> list[slice]:
    """Where needles of one key have many pairs together: all of them meet the same rows."""
    if int(matches.rows.sum()) < least_pairs:
        return []
    begin = np.flatnonzero(np.diff(matches.start, prepend=-1))
    end = np.append(begin[1:], len(matches.start))
    many = np.flatnonzero((end - begin) * matches.rows[begin] >= least_pairs)
    return [slice(int(begin[at]), int(end[at])) for at in many]


def _rows_of_block(
    needles: KeyedRows, sought: KeyedRows, matches: Matches, block: slice, emission: Emission
) -> dict[str, pa.RecordBatch]:
    """The rows of a key on both sides; neighbours among the needles are neighbours in the piece too."""
    first, start, count = (int(part[block.start]) for part in matches)
    found = (needles, first, block.stop - block.start), (sought, start, count)
    return {
        piece.input: piece.between(low, low + rows, list(dict.fromkeys(emission.read.get(piece.input, ()))))
        for piece, low, rows in found
    }


def _share_a_key(sides: dict[str, pa.RecordBatch], emission: Emission) -> bool:
    """Whether rows of one hash also have one key; decided without looking at the pairs."""
    return all(
        all_same(sides[one].column(key), sides[other].column(also)[0])
        and all_same(sides[other].column(also), sides[one].column(key)[0])
        for (one, key), (other, also) in emission.verify
    )


def all_same(column: pa.Array, value: pa.Scalar) -> bool:
    """Whether all values of a key column equal one value."""
    return bool(pc.all(pc.fill_null(same_value(column, value), False)).as_py())


def equal_pairs(left: Keys, right: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(left) > len(right):
        for right_at, left_at in equal_pairs(right, left, limit):
            yield left_at, right_at
        return
    yield from expand(*matches_of(left, right), limit)


def matches_of(left: Keys, right: Keys) -> Matches:
    """Where each key of `left`, the shorter side, is found in `right`. Both are sorted."""
    if not len(left):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(left, right)
    needles = left[likely]
    start = np.searchsorted(right, needles)
    same = np.flatnonzero(right[np.minimum(start, len(right) - 1)] == needles)
    found, start = likely[same], start[same]
    return Matches(found, start, np.searchsorted(right, needles[same], side="right") - start)


def matches_of_prefixes(prefixes: Keys, right: Keys) -> Matches:
    """Where `right` has keys that begin with each prefix, which is half an order key. Both are sorted."""
    if not len(prefixes) or not len(right):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(prefixes, right)
    first, last = prefix_ranges(prefixes[likely])
    start = np.searchsorted(right, first)
    at = np.minimum(start, len(right) - 1)
    same = np.flatnonzero((right[at] >= first) & (right[at] <= last))
    found, start = likely[same], start[same]
    return Matches(found, start, np.searchsorted(right, last[same], side="right") - start)


# Looking at a table of the leading bits costs about a tenth of a binary search, filling it as much for each key
# of the longer side: it pays up to this many times the shorter side (four times as fast at equal length).
_TABLE_RATIO = 4
# Slots for each key, as a power of two: an absent key passes with a probability of about 1/16.
_TABLE_SLOT_BITS = 4


def _likely(left: Keys, right: Keys) -> Indices:
    """Where `left` has keys that share their leading bits with some key of `right`: all that can be equal.

    Most keys of a batch are in none of the small runs; order keys are mixed, so leading bits tell them apart.
    """
    if len(right) > _TABLE_RATIO * len(left):
        return np.arange(len(left))
    # No more than half of the bits: of a prefix the others are not known.
    shift = np.uint64(max(32, 64 - len(right).bit_length() - _TABLE_SLOT_BITS))
    taken = np.zeros(1 << (64 - int(shift)), np.bool_)
    # Signed indices of their own size are used as they are: numpy would copy unsigned ones.
    taken[(right >> shift).view(np.int64)] = True
    return np.flatnonzero(taken.take((left >> shift).view(np.int64)))


@dataclass(frozen=True, slots=True)
class BandJoin:
    """Pairs with `low <= left - right <= high`, as in `model.expression.Band`, for which `residual` is true."""

    type: SqlType
    low: Bound
    high: Bound
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True

    def results(
        self, sides: tuple[Side, ...], within: int | None, limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[pa.RecordBatch]:
        """As `EquiJoin.results`."""
        left, right = sides
        # Float bounds are widened, so they may hold values even if low > high.
        if isinstance(self.low, int) and isinstance(self.high, int) and self.low > self.high:
            return
        emission = Emission(self.output, self.residual, self.ansi, within=within, limits=limits)
        for one, other in owed_pieces(left, right, limits):
            limit = rows_together(limits, one.rows, other.rows)
            for one_at, other_at in close_pairs(one.keys, other.keys, self, limit, limits.piece_rows):
                yield from emission.results(_candidates(one, one_at, other, other_at))


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


def right_range(left: KeyRange, join: BandJoin) -> KeyRange:
    """The words of the right side that may be partners of a left word in this range.

    >>> right_range(KeyRange(100, 200), BandJoin(SqlType("int"), -5, 7, None, ()))
    KeyRange(low=93, high=205)
    """
    return _facing(left, join.low, join.high, join.type)


@dataclass(frozen=True, slots=True)
class BandFacing:
    """Which order words can be partners under a band, for the planner (`schemes.scheme.Facing`)."""

    type: SqlType
    low: Bound
    high: Bound

    @classmethod
    def of(cls, join: BandJoin) -> BandFacing:
        return cls(join.type, join.low, join.high)

    def __call__(self, left: KeyRange) -> KeyRange:
        """As `right_range`."""
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
    bits = int(last - first).bit_length() - len(hay).bit_length() - _TABLE_SLOT_BITS
    if len(hay) > _TABLE_RATIO * len(all_) or bits < 0 or high - low >= 1 << bits:
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
