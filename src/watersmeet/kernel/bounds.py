"""Cut rows, and put them together, within bounds of rows and bytes.

`cut` walks several sorted slices in step through ascending, disjoint key ranges. This keeps the join and the merge
within a fixed memory, whatever the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.kernel.rows import Keyed, Sorted, concatenate, merge_order
from watersmeet.kernel.sizes import Sizes, all_row_bytes, cut_by_bytes
from watersmeet.model.facts import KEY_SPACE, KeyRange

Bundled = TypeVar("Bundled")


class Bundle(Generic[Bundled]):
    """Neighbours that are held until another one would exceed `most_rows` or `most_bytes`."""

    __slots__ = ("_bytes", "_rows", "held", "most_bytes", "most_rows")

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self.most_rows, self.most_bytes = most_rows, most_bytes
        self.held: list[Bundled] = []
        self._rows = self._bytes = 0

    def add(self, item: Bundled, rows: int, bytes_: int) -> list[Bundled]:
        """Hold one more. If it does not fit, those held before come out; otherwise none."""
        full: list[Bundled] = []
        if self.held and (self._rows + rows > self.most_rows or self._bytes + bytes_ > self.most_bytes):
            full, self.held = self.held, []
            self._rows = self._bytes = 0
        self.held.append(item)
        self._rows += rows
        self._bytes += bytes_
        return full


def bundled(
    items: Iterable[Bundled],
    rows_of: Callable[[Bundled], int],
    bytes_of: Callable[[Bundled], int],
    most_rows: int,
    most_bytes: int,
) -> Iterator[list[Bundled]]:
    """Neighbours in lists of at most `most_rows` rows and `most_bytes` bytes; an item that exceeds them is alone."""
    bundle: Bundle[Bundled] = Bundle(most_rows, most_bytes)
    for item in items:
        if full := bundle.add(item, rows_of(item), bytes_of(item)):
            yield full
    if bundle.held:
        yield bundle.held


def coalesce(
    batches: Iterable[pa.RecordBatch], rows: int, size: int, alone: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Concatenate neighbours up to `rows` rows and `size` bytes, and drop empty batches.

    Many small batches cost time on every border that they cross. One of at least `alone` rows comes out at once and is
    not copied. Its bytes are not asked for: Arrow takes microseconds to add them up, and the results of a heavy key are
    thousands of such batches. So nothing else is done for it here either.
    """
    bundle: Bundle[pa.RecordBatch] = Bundle(rows, size)
    for batch in batches:
        count = batch.num_rows
        if alone is not None and count >= alone:
            yield batch
        elif count and (full := bundle.add(batch, count, batch.nbytes)):
            yield _one(full)
    if bundle.held:
        yield _one(bundle.held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Arrow would copy even a single batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows, as views, in batches of at most about `size` bytes; a row that exceeds it is alone."""
    for batch in batches:
        if batch.nbytes <= size:
            yield batch
            continue
        for part in cut_by_bytes(all_row_bytes(batch), size):
            yield batch.slice(part.start, part.stop - part.start)


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


def cut(sequences: Sequence[Sequence[Keyed]], weights: Sequence[int], limit: int) -> Iterator[KeyRange]:
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


def _quantiles(sequences: Sequence[Sequence[Keyed]], weights: Sequence[int], pieces: int) -> list[int]:
    """Bounds that cut the weighted keys into `pieces`; a key that fills a piece gets a range of its own."""
    weighed = [(s, w) for slices, w in zip(sequences, weights, strict=True) for s in slices if w and len(s)]
    step = max(1, sum(len(s) for s, _ in weighed) // (pieces * _SAMPLES_PER_PIECE))
    samples = [s.keys[::step] for s, _ in weighed]
    mass = [np.full(len(keys), w * len(s) / len(keys)) for keys, (s, w) in zip(samples, weighed, strict=True)]
    keys = np.concatenate(samples)
    # Stable: sums are rounded, and tasks that share out rows on the way (late.py) must all cut alike.
    order = np.argsort(keys, kind="stable")
    keys, reached = keys[order], np.cumsum(np.concatenate(mass)[order])
    targets = reached[-1] * np.arange(1, pieces) / pieces
    bounds = {int(k) for k in keys[np.searchsorted(reached, targets)]}
    distinct, counts = np.unique(keys, return_counts=True)
    # Close the range right after a key that is heavier than a piece, so that its neighbours are not dragged in.
    heavy = {int(k) + 1 for k in distinct[counts >= _SAMPLES_PER_PIECE]}
    return sorted(bounds | heavy)
