"""Find rows by value: those whose values lie within the bounds of a band around given values.

The slices of a *value arrangement* are sorted by the order word of a value (keys.py). A bound row asks for an interval
of words. Where several bands lead to the same value, it asks for the intersection of their intervals. Two binary
searches in each slice say how many rows an interval has, and nothing is read for that.

Intervals overlap: neighbours share most of their rows, and an inequality asks for half of everything. So rows are not
gathered interval by interval. `parts_near` sweeps once over the union of all intervals, a piece of bounded size at a
time, and gives for each piece the stretch of every interval in it. Each row is copied once, however many intervals it
is in, and neither memory nor copying follows the number of candidates.

An arrangement that only locates its rows gives the order keys that they have in the first arrangement. The rows that
are found there may be too many, if others share an order key. So their words are computed again, and those outside the
piece are dropped: every row is in exactly one piece, in the stretch of exactly the intervals that its value is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.kernel.bounds import cut
from watersmeet.kernel.gather import Looked, Part, gather, look_up, pieces_of_keys, row_bytes, views
from watersmeet.kernel.keys import Indices, Keys, Mask, mix, reach, words
from watersmeet.kernel.match import Matches, expand
from watersmeet.kernel.pieces import keyed_rows
from watersmeet.kernel.rows import Keyed, position, take_rows
from watersmeet.model.facts import FULL_RANGE, KEY_SPACE, KeyRange
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.types import SqlType

_NO_OWNERS: Indices = np.zeros(0, np.int64)
_HALF = np.uint64(32)


class Intervals(NamedTuple):
    """Stretches of order words, both ends included. One that ends before it begins is empty."""

    lower: Keys
    upper: Keys

    def at(self, places: Indices) -> Intervals:
        return Intervals(self.lower[places], self.upper[places])

    def met(self, other: Intervals) -> Intervals:
        """What each interval shares with the one at the same place."""
        return Intervals(np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper))

    def hold(self, words: Keys) -> Mask:
        """Whether each interval holds the word at its place."""
        return (self.lower <= words) & (words <= self.upper)

    def distinct(self) -> tuple[Intervals, Indices]:
        """The distinct intervals, ascending, and which of them each one is."""
        order = np.lexsort(self[::-1])
        lower, upper = self.at(order)
        first = np.append(True, (lower[1:] != lower[:-1]) | (upper[1:] != upper[:-1]))[: len(order)]
        which = np.empty(len(order), np.int64)
        which[order] = np.cumsum(first) - 1
        return Intervals(lower[first], upper[first]), which


@dataclass(frozen=True, slots=True)
class BandBounds:
    """`low <= one - other <= high` for a value of each of two inputs, as in `model.expression.Band`."""

    type: SqlType
    low: int | float | None
    high: int | float | None

    def of_other(self, words: Keys) -> Intervals:
        """Where the words of the other input may lie, for each word of the one."""
        low, high = (None if bound is None else -bound for bound in (self.high, self.low))
        return Intervals(*reach(words, low, high, self.type))

    def of_one(self, words: Keys) -> Intervals:
        """Where the words of the one input may lie, for each word of the other."""
        return Intervals(*reach(words, self.low, self.high, self.type))


def look_up_near(near: Intervals, slices: Iterable[Keyed]) -> list[Looked]:
    """Where some slices, sorted by value, have rows in these intervals."""
    return [Looked(s, False, _matches(near, s.keys)) for s in slices if len(s)]


def _matches(near: Intervals, keys: Keys) -> Matches:
    start = np.searchsorted(keys, near.lower)
    # Most intervals of a narrow band have no row in a small slice: only of the others the end is looked up.
    found = np.flatnonzero(keys[np.minimum(start, len(keys) - 1)] <= near.upper)
    found = found[(start[found] < len(keys)) & (near.lower[found] <= near.upper[found])]
    start = start[found]
    return Matches(found, start, np.searchsorted(keys, near.upper[found], side="right") - start)


@dataclass(frozen=True, slots=True)
class Primary:
    """Where the rows of an arrangement are that only locates them, and the column whose words it is sorted by."""

    slices: Sequence[Keyed]
    column: str


def parts_near(
    name: str,
    looked: Sequence[Looked],
    near: Intervals,
    columns: Sequence[str],
    limits: Limits,
    located: Primary | None = None,
) -> Iterator[Part]:
    """All rows in some of the intervals, in parts by interval. Every row is in one part."""
    read_from = [one.slice for one in looked] if located is None else located.slices
    most = max(1, min(limits.piece_rows, limits.piece_bytes // row_bytes(read_from, columns)))
    unions = [_union(one.slice, one.at) for one in looked if len(one.at.found)]
    for range_ in _ranges(unions, most):
        here = [stretches for one in unions if (stretches := one.between(range_)).rows]
        if not here:
            continue
        if located is None:
            for batch, of_rows in _copied(name, here, columns, most):
                yield _part(name, batch, of_rows, near)
            continue
        for locators in distinct_locators(here, most):
            for batch in fetched(name, locators, located.slices, columns, limits):
                of_rows = words(batch.column(located.column))
                inside = _inside(of_rows, range_)
                if not inside.all():
                    batch, of_rows = take_rows(batch, np.flatnonzero(inside)), of_rows[inside]
                yield _part(name, batch, of_rows, near)


def _part(name: str, rows: pa.RecordBatch, of_rows: Keys, near: Intervals) -> Part:
    order = np.argsort(of_rows, kind="stable")
    ascending = of_rows[order]
    start = np.searchsorted(ascending, near.lower)
    count = np.searchsorted(ascending, near.upper, side="right") - start
    # A row may be in several intervals: it has no owner.
    return Part(name, rows, order, _NO_OWNERS, start, np.maximum(count, 0))


def _inside(words_: Keys, range_: KeyRange) -> Mask:
    below_end = np.True_ if range_.high >= KEY_SPACE else words_ < np.uint64(range_.high)
    return (words_ >= np.uint64(range_.low)) & below_end


@dataclass(frozen=True, slots=True)
class Stretches:
    """Disjoint, ascending stretches of a slice's rows: where each begins, and where it ends."""

    slice: Keyed
    start: Indices
    end: Indices

    @property
    def rows(self) -> int:
        return int((self.end - self.start).sum())

    @property
    def span(self) -> Keyed:
        """The slice from the first stretch to the last."""
        return self.slice.slice(int(self.start[0]), int(self.end[-1]))

    def between(self, range_: KeyRange) -> Stretches:
        if range_ == FULL_RANGE:
            return self
        low, high = (position(self.slice.keys, bound) for bound in (range_.low, range_.high))
        start, end = np.clip(self.start, low, high), np.clip(self.end, low, high)
        keep = start < end
        return Stretches(self.slice, start[keep], end[keep])

    def places(self, most: int) -> Iterator[Indices]:
        """The places of all rows, at most `most` at a time."""
        for _, places in expand(np.arange(len(self.start)), self.start, self.end - self.start, most):
            yield places


def stretches_of(one: Looked, first: int, end: int) -> Stretches:
    """Where a slice has the rows of some keys, which are those of no other key."""
    at = one.between(first, end)
    return Stretches(one.slice, at.start, at.start + at.rows)


def _union(slice_: Keyed, at: Matches) -> Stretches:
    """The rows of a slice that are in some interval."""
    order = np.argsort(at.start, kind="stable")
    start, end = at.start[order], np.maximum.accumulate((at.start + at.rows)[order])
    begin = np.flatnonzero(np.append(True, start[1:] > end[:-1]))
    return Stretches(slice_, start[begin], end[np.append(begin[1:], len(start)) - 1])


def _ranges(unions: Sequence[Stretches], most: int) -> Iterator[KeyRange]:
    """Ranges of words that hold about `most` rows of the unions at most, or one word."""
    if sum(one.rows for one in unions) <= most:
        yield FULL_RANGE
    else:
        yield from cut([[one.span for one in unions]], [1], most)


def _copied(
    name: str, here: Sequence[Stretches], columns: Sequence[str], most: int
) -> Iterator[tuple[pa.RecordBatch, Keys]]:
    """The rows of some stretches and their words: together, or slice by slice if they are too many."""
    together = sum(one.rows for one in here) <= 2 * most
    taken = (
        (_taken(name, one.slice, places, columns), one.slice.keys[places])
        for one in here
        for places in one.places(2 * most)
    )
    if not together:
        yield from taken
        return
    batches, keys = zip(*taken, strict=True)
    yield (batches[0] if len(batches) == 1 else pa.concat_batches(batches)), np.concatenate(keys)


def _taken(name: str, slice_: Keyed, places: Indices, columns: Sequence[str]) -> pa.RecordBatch:
    picked = keyed_rows(name, slice_).picked(places)
    return take_rows(picked.rows.select(list(columns)), picked.at)


def distinct_locators(here: Sequence[Stretches], most: int) -> Iterator[Keys]:
    """The distinct locators of some rows, ascending, at most about 2 * `most` at a time; no locator comes twice.

    Where they are too many, each pass takes those whose hash falls to it: equal locators fall to one pass.
    """
    rows = sum(one.rows for one in here)
    passes = 1 if rows <= 2 * most else -(-rows // most)
    for turn in range(passes):
        found = []
        for one in here:
            for places in one.places(2 * most):
                locators = _taken("", one.slice, places, [LOCATOR]).column(0).to_numpy().view(np.uint64)
                if passes > 1:
                    locators = locators[(mix(locators) >> _HALF) * np.uint64(passes) >> _HALF == turn]
                found.append(np.unique(locators))
        if sum(map(len, found)):
            yield found[0] if len(found) == 1 else np.unique(np.concatenate(found))


def fetched(
    name: str, locators: Keys, slices: Sequence[Keyed], columns: Sequence[str], limits: Limits
) -> Iterator[pa.RecordBatch]:
    """The rows that some distinct locators lead to, each once, in pieces of bounded size."""
    looked = look_up(locators, slices)
    rows = np.zeros(len(locators), np.int64)
    for one in looked:
        rows[one.at.found] += one.at.rows
    # An arrangement may still locate rows that another one has evicted.
    there = rows > 0
    looked, rows = [one.only(there) for one in looked], rows[there]
    size = rows * row_bytes(slices, columns)
    for first, end in pieces_of_keys(rows, size, limits):
        if end - first == 1 and (rows[first] > limits.piece_rows or size[first] > limits.piece_bytes):
            yield from (part.rows for _, part in views(name, looked, first, {name: list(columns)}, limits))
        else:
            yield gather(name, looked, first, end, columns).rows
