"""Sorted slices of runs, and how to cut many of them into pieces of bounded size.

A `Sorted` is a view: order keys (contiguous, ascending) and the rows that belong to them. Slicing copies
nothing, so memory-mapped runs stay mapped files. `cut` walks several of them in step through ascending,
disjoint key ranges; that is what keeps the join and the merge within a fixed memory whatever the batch.

`take_rows` fails where what it gathers has 2 GiB or more in one column ("Take operation overflowed"), as offsets have
32 bits. It cannot where no row is asked for twice; kernels that repeat rows cut them by bytes first (`kernel/sizes.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.sizes import Sizes, all_row_bytes, cut_by_bytes
from watersmeet.model.facts import KEY_SPACE, KeyRange

Keys = npt.NDArray[np.uint64]

# The first column of every run file: the order key.
ORDER = "__wm_order"

_IN_BOUNDS = pc.TakeOptions(boundscheck=False)


@dataclass(frozen=True, slots=True)
class Sorted:
    keys: Keys
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> Sorted:
        return Sorted(self.keys[start:stop], self.rows.slice(start, stop - start))

    def between(self, range_: KeyRange) -> Sorted:
        return self.slice(position(self.keys, range_.low), position(self.keys, range_.high))

    def without(self, keys: Sequence[int]) -> list[Sorted]:
        """What lies before, between and behind the rows of some ascending keys."""
        wanted = np.array(keys, np.uint64)
        ends = [*np.searchsorted(self.keys, wanted).tolist(), len(self)]
        starts = [0, *np.searchsorted(self.keys, wanted, side="right").tolist()]
        return [self.slice(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def position(keys: Keys, bound: int) -> int:
    """How many keys are smaller than `bound`, which may be one past the largest 64-bit key."""
    return len(keys) if bound >= KEY_SPACE else int(np.searchsorted(keys, np.uint64(bound)))


def open_sorted(batch: pa.RecordBatch) -> Sorted:
    """View a run's record batch; the order key is its first column."""
    return Sorted(batch.column(0).to_numpy(), batch.select(range(1, batch.num_columns)))


def concatenate(slices: Sequence[Sorted]) -> Sorted:
    """One sorted sequence of all rows. The payload is copied twice, the keys once: keep the input small."""
    if len(slices) == 1:
        return slices[0]
    keys, order = merge_order([s.keys for s in slices])
    return Sorted(keys, take_rows(pa.concat_batches([s.rows for s in slices]), order))


def bounded(slices: Sequence[Sorted], rows: int, size: int) -> Iterator[Sorted]:
    """The rows of all slices in sorted pieces of at most twice these rows and bytes.

    A key is in one piece, or fills several by itself. Arrow cannot concatenate more than 2 GiB of values, so bytes
    are bounded even where the mean row is small.
    """
    slices = [s for s in slices if len(s)]
    if _fit(slices, rows, size):
        if slices:
            yield concatenate(slices)
        return
    ranges = _cut_bytes(slices, size) if sum(map(len, slices)) <= 2 * rows else [KeyRange(0, KEY_SPACE)]
    for range_ in ranges:
        here = [part for s in slices if len(part := s.between(range_))]
        if here and _fit(here, rows, size):
            yield concatenate(here)
        else:
            yield from (part for s in here for part in _cut_slice(s, rows, size))


def _fit(slices: Sequence[Sorted], rows: int, size: int) -> bool:
    few = sum(map(len, slices)) <= 2 * rows
    return few and (len(slices) < 2 or sum(s.rows.nbytes for s in slices) <= 2 * size)


def _cut_slice(whole: Sorted, rows: int, size: int) -> Iterator[Sorted]:
    for at in range(0, len(whole), rows):
        part = whole.slice(at, min(at + rows, len(whole)))
        if part.rows.nbytes <= size:
            yield part
            continue
        for here in cut_by_bytes(all_row_bytes(part.rows), size):
            yield part.slice(here.start, here.stop)


def _cut_bytes(slices: Sequence[Sorted], size: int) -> list[KeyRange]:
    """Key ranges, ascending and covering all keys, of about `size` bytes; a key with more has its own."""
    keys, order = merge_order([s.keys for s in slices])
    sizes: Sizes = np.concatenate([all_row_bytes(s.rows) for s in slices])[order]
    reached = np.cumsum(sizes)
    full = np.searchsorted(reached, np.arange(size, int(reached[-1]), size))
    first = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    heavy = keys[first[np.add.reduceat(sizes, first) > size]].tolist()
    bounds = {0, KEY_SPACE, *keys[full].tolist(), *heavy, *(key + 1 for key in heavy)}
    return [KeyRange(low, high) for low, high in itertools.pairwise(sorted(bounds))]


def merge_order(sequences: Sequence[Keys]) -> tuple[Keys, npt.NDArray[np.int64]]:
    """The keys of all sequences in order, and for each its place in their concatenation.

    A stable sort recognises sorted stretches and merges them: seven times faster here than a plain one.
    """
    keys = np.concatenate(sequences)
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def take_rows(rows: pa.RecordBatch, indices: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Gather rows by position; the indices are known to be in bounds, so Arrow need not look.

    All columns in one call: column by column takes twice as long where there are few rows.
    """
    if not rows.num_columns:
        return rows.slice(0, len(indices))
    return pc.call_function("take", [rows, pa.array(indices)], _IN_BOUNDS)


def taken(column: pa.Array, indices: npt.NDArray[np.int64]) -> pa.Array:
    """Values of one column by position, which is known to be in bounds: looking costs half as much again."""
    return pc.call_function("take", [column, pa.array(indices)], _IN_BOUNDS)


def cut(sequences: Sequence[Sequence[Sorted]], weights: Sequence[int], limit: int) -> Iterator[KeyRange]:
    """Key ranges, ascending and covering all keys, that hold about `limit` weighted rows or one single key.

    `weights` says how much a row of each sequence counts (bytes, or 1, or 0 to be left out). The bounds
    are drawn from the keys themselves, so a skewed distribution is cut as well as a uniform one.
    """
    total = sum(weight * len(s) for slices, weight in zip(sequences, weights, strict=True) for s in slices)
    pieces = -(-total // limit) if limit > 0 else 1
    if pieces <= 1:
        yield KeyRange(0, KEY_SPACE)
        return
    low = 0
    for bound in _quantiles(sequences, weights, pieces):
        if bound > low:
            yield KeyRange(low, bound)
            low = bound
    yield KeyRange(low, KEY_SPACE)


# Sampled keys per piece: the error of a piece's size is then a few per cent.
_SAMPLES_PER_PIECE = 64


def _quantiles(sequences: Sequence[Sequence[Sorted]], weights: Sequence[int], pieces: int) -> list[int]:
    """Bounds that cut the weighted keys into `pieces`; a key that fills a piece gets a range of its own."""
    sampled: list[Keys] = []
    mass: list[npt.NDArray[np.float64]] = []
    wanted = pieces * _SAMPLES_PER_PIECE
    rows = sum(len(s) for slices, weight in zip(sequences, weights, strict=True) for s in slices if weight)
    step = max(1, rows // wanted)
    for slices, weight in zip(sequences, weights, strict=True):
        for s in slices:
            if weight and len(s):
                keys = s.keys[::step]
                sampled.append(keys)
                mass.append(np.full(len(keys), weight * len(s) / len(keys)))
    keys = np.concatenate(sampled)
    order = np.argsort(keys)
    keys, reached = keys[order], np.cumsum(np.concatenate(mass)[order])
    targets = reached[-1] * np.arange(1, pieces) / pieces
    bounds = {int(k) for k in keys[np.searchsorted(reached, targets)]}
    counts = np.unique(keys, return_counts=True)
    # Close the range right after a key that is heavier than a piece, so that its neighbours are not dragged in.
    heavy = {int(k) + 1 for k in counts[0][counts[1] >= _SAMPLES_PER_PIECE]}
    return sorted(bounds | heavy)
