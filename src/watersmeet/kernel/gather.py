"""Find keys in the slices of an input, and gather the rows of those that are found.

Rows of one key lie in many slices: a run holds some of them, the next run others. `look_up` finds where, by binary
search and without touching a row. `gather` then copies the rows of the found keys into one part, from which they are
bound by position. Only rows that are found are copied, at most a piece of them at a time (model/limits.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.kernel.keys import Indices, Keys, Mask
from watersmeet.kernel.match import Matches, expand, matches_of, matches_of_prefixes
from watersmeet.kernel.pieces import keyed_rows
from watersmeet.kernel.rows import Keyed, take_rows
from watersmeet.kernel.sizes import mean_row_bytes
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one input by key: those of key k are at the places from `start[k]` on, `count[k]` of them.

    `order` maps a place to a row, and `owner` a row to its key.
    """

    name: str
    rows: pa.RecordBatch
    order: Indices
    owner: Indices
    start: Indices
    count: Indices

    def of(self, key: int) -> Part:
        """The rows of one key, as a part of its own."""
        start, rows = int(self.start[key]), int(self.count[key])
        return whole_part(self.name, take_rows(self.rows, self.order[start : start + rows]))


def whole_part(name: str, rows: pa.RecordBatch) -> Part:
    """Rows that all have one key."""
    count = rows.num_rows
    return Part(
        name,
        rows,
        np.arange(count),
        np.zeros(count, np.int64),
        np.zeros(1, np.int64),
        np.full(1, count, np.int64),
    )


@dataclass(frozen=True, slots=True)
class Looked:
    """A slice of a run, and where it has the keys that are sought."""

    slice: Keyed
    fresh: bool
    at: Matches

    def only(self, mask: Mask) -> Looked:
        """For the keys that the mask keeps, numbered anew."""
        return self.renumbered(np.where(mask, np.cumsum(mask) - 1, -1))

    def renumbered(self, number: Indices) -> Looked:
        """For some of the keys, by their new numbers; -1 drops a key."""
        found = number[self.at.found]
        here = found >= 0
        return Looked(self.slice, self.fresh, Matches(found[here], self.at.start[here], self.at.rows[here]))

    def between(self, first: int, end: int) -> Matches:
        """Where the keys from `first` up to `end` are, numbered from 0."""
        low, high = np.searchsorted(self.at.found, [first, end])
        found, start, rows = (part[low:high] for part in self.at)
        return Matches(found - first, start, rows)


def look_up(keys: Keys, slices: Iterable[Keyed], *, fresh: bool = False) -> list[Looked]:
    """Where some slices have these keys, which ascend without repetition."""
    return [Looked(s, fresh, matches_of(keys, s.keys)) for s in slices if len(s) and len(keys)]


def look_up_prefixes(prefixes: Keys, slices: Iterable[Keyed]) -> list[Looked]:
    """Where some slices have keys that begin with these prefixes, which ascend without repetition."""
    return [
        Looked(s, False, matches_of_prefixes(prefixes, s.keys)) for s in slices if len(s) and len(prefixes)
    ]


def found_in(looked: Iterable[Looked], keys: int) -> Mask:
    """Which of the keys are in some slice."""
    there = np.zeros(keys, np.bool_)
    for one in looked:
        there[one.at.found] = True
    return there


def distinct(sequences: Sequence[Keys]) -> Keys:
    """The distinct keys of some sorted sequences, ascending."""
    if not sequences:
        return np.zeros(0, np.uint64)
    keys = np.sort(np.concatenate(sequences), kind="stable")
    return keys[np.diff(keys, prepend=~keys[:1]) != 0]


def numbered(keys: Keys) -> tuple[Keys, Indices]:
    """The distinct keys, ascending, and the number of each key among them.

    Rows of a run ascend by its order key, so keys often need no sort.
    """
    if not len(keys) or (keys[1:] < keys[:-1]).any():
        return np.unique(keys, return_inverse=True)
    first = np.append(True, keys[1:] != keys[:-1])
    return keys[first], np.cumsum(first) - 1


def row_bytes(slices: Iterable[Keyed], columns: Sequence[str]) -> int:
    """The mean bytes of a row in these columns, in the slice with the widest rows."""
    return max((mean_row_bytes(s.rows.select(list(columns))) for s in slices), default=1)


def pieces_of_keys(rows: Indices, size: Indices, limits: Limits) -> Iterator[tuple[int, int]]:
    """Cut the keys so that the rows of a piece fit the memory of a piece; a key that does not is alone."""
    reached = np.cumsum(np.maximum(rows / limits.piece_rows, size / limits.piece_bytes))
    first, before = 0, 0.0
    while first < len(rows):
        end = max(first + 1, int(np.searchsorted(reached, before + 1.0, side="right")))
        yield first, end
        first, before = end, float(reached[end - 1])


@dataclass(frozen=True, slots=True)
class Gathered:
    """The rows of some keys of one input, old before fresh."""

    name: str
    rows: pa.RecordBatch
    order: Indices
    owner: Indices
    start: Indices
    old: Indices
    new: Indices

    def owed(self, place: int, term: int) -> Part:
        """The rows that a term of the delta rule takes of the input at some place."""
        start, count = self.start, self.old
        if place == term:
            start, count = self.start + self.old, self.new
        elif place < term:
            count = self.old + self.new
        return Part(self.name, self.rows, self.order, self.owner, start, count)


def gather(name: str, looked: Sequence[Looked], first: int, end: int, columns: Sequence[str]) -> Gathered:
    taken, owners, fresh = [], [], []
    for one in looked:
        at = one.between(first, end)
        if not len(at.found):
            continue
        owner, places = next(expand(*at, int(at.rows.sum())))
        picked = keyed_rows(name, one.slice).picked(places)
        taken.append(take_rows(picked.rows.select(list(columns)), picked.at))
        owners.append(owner)
        fresh.append(np.full(len(owner), one.fresh))
    owner, new = np.concatenate(owners), np.concatenate(fresh)
    keys = end - first
    counts = np.bincount(2 * owner + new, minlength=2 * keys).reshape(keys, 2)
    reached = np.cumsum(counts.sum(axis=1))
    return Gathered(
        name=name,
        rows=taken[0] if len(taken) == 1 else pa.concat_batches(taken),
        order=np.argsort(2 * owner + new, kind="stable"),
        owner=owner,
        start=reached - counts.sum(axis=1),
        old=counts[:, 0],
        new=counts[:, 1],
    )


def locate(
    looked: Sequence[Looked], first: int, end: int, slices: Iterable[Keyed]
) -> tuple[Indices, list[Looked]]:
    """Follow the locators of the keys from `first` up to `end`.

    A key and one of its locators are a pair. The pairs are distinct: rows of the same keys have the same locator, and
    are found together. Returns the key of each pair, numbered from 0 and ascending, and where `slices` have its rows.
    """
    found = gather("", looked, first, end, [LOCATOR])
    sought, number = np.unique(found.rows.column(0).to_numpy().view(np.uint64), return_inverse=True)
    # A pair as one number: sorting by two columns takes twice as long.
    pair = np.sort(found.owner * len(sought) + number)
    key, of = np.divmod(pair[np.diff(pair, prepend=-1) != 0], len(sought))
    pairs = []
    for one in look_up(sought, slices):
        start, rows = np.zeros((2, len(sought)), np.int64)
        start[one.at.found], rows[one.at.found] = one.at.start, one.at.rows
        here = np.flatnonzero(rows[of])
        pairs.append(Looked(one.slice, one.fresh, Matches(here, start[of[here]], rows[of[here]])))
    return key, pairs


def views(
    name: str, looked: Sequence[Looked], key: int, read: dict[str, list[str]], limits: Limits
) -> Iterator[tuple[bool, Part]]:
    for one in looked:
        at = one.between(key, key + 1)
        if not len(at.found):
            continue
        start, rows = int(at.start[0]), int(at.rows[0])
        found = keyed_rows(name, one.slice).between(start, start + rows, read[name])
        most = max(1, min(limits.piece_rows, limits.piece_bytes // mean_row_bytes(found)))
        for low in range(0, rows, most):
            yield one.fresh, whole_part(name, found.slice(low, most))
