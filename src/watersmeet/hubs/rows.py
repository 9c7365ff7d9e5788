"""The rows of the streams, in arrival order, and the indexes by which they are found.

A row's *number* is its place in the history of its stream: the batch, the partition of the batch and the place in that
partition, in one 64-bit number. It is known when the row arrives, is never given twice, and ascends with the batches:
that a query counts rows of later batches only, or a step old rows only, is a comparison of numbers. An index holds the
order key of a value and the row's number. Rows with a null have no entry, as null equals nothing. The lowest bit says
that the row is late (hubs/watermarks.py).

A *position* says where a row lies in the runs that are live in this batch. It is not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices, Keys, Mask
from watersmeet.kernel.match import Matches, expand, matches_of
from watersmeet.kernel.rows import Keyed, Sorted, take_values
from watersmeet.model.signature import LOCATOR

# Eight years of a batch every second.
_BATCH_BITS = 28
_IN_BATCH_BITS = 64 - _BATCH_BITS
MOST_BATCHES = 1 << _BATCH_BITS
LAST_ROW = np.uint64((1 << 64) - 1)


@dataclass(frozen=True, slots=True)
class _Partitions:
    """Partitions of a batch, numbered from `first` on: how many there are, and how many rows each may have."""

    first: int
    count: int
    rows: int


# Spark numbers the partitions of all streams of a union together, so a batch may have thousands of them. A backlog may
# come in a few large ones. The highest bit in a batch tells the two kinds apart.
_FEW = _Partitions(0, 1 << 10, 1 << (_IN_BATCH_BITS - 2 - 10))
_MANY = _Partitions(_FEW.count, 1 << 16, 1 << (_IN_BATCH_BITS - 2 - 16))
_LATE = np.uint64(1)


def first_row(batch: Indices) -> Keys:
    """The number of the first row of each batch."""
    return np.maximum(batch, 0).astype(np.uint64) << np.uint64(_IN_BATCH_BITS)


def row_numbers(batch: int, partition: int, first: int, rows: int) -> Keys:
    """The numbers of some rows of a partition, from place `first` on."""
    kind = _FEW if partition < _FEW.count else _MANY
    place = partition - kind.first
    if batch >= MOST_BATCHES or place >= kind.count or first + rows > kind.rows:
        raise UsageError(
            f"batch {batch} has {first + rows} rows or more in partition {partition}: a hub numbers {_FEW.count} "
            f"partitions of {_FEW.rows} rows and {_MANY.count} of {_MANY.rows} in a batch, over all of its streams, and "
            f"{MOST_BATCHES} batches. Read less in a batch (maxFilesPerTrigger, maxOffsetsPerTrigger), or coalesce"
        )
    start = (batch << (_IN_BATCH_BITS - 1)) + kind.first * _FEW.rows + place * kind.rows + first
    return (np.arange(rows, dtype=np.uint64) + np.uint64(start)) << np.uint64(1)


def as_late(rows: Keys, late: Mask) -> Keys:
    """The numbers of some rows, of which these are late."""
    return np.where(late, rows | _LATE, rows)


def is_late(rows: Keys) -> Mask:
    """Which rows are late, by their numbers."""
    return (rows & _LATE).astype(np.bool_)


@dataclass(frozen=True)
class StreamRows:
    """The rows of one stream: runs by row number, and the position at which each run begins."""

    runs: tuple[Sorted, ...]
    bases: Indices

    @classmethod
    def of(cls, runs: Sequence[Sorted]) -> StreamRows:
        sizes = np.array([len(run) for run in runs], np.int64)
        return cls(tuple(runs), np.cumsum(sizes) - sizes)

    def positions(self, numbers: Keys) -> Indices:
        """Where rows lie, by their numbers; -1 for rows that are not stored any more."""
        found = np.full(len(numbers), -1, np.int64)
        for run, base in zip(self.runs, self.bases.tolist(), strict=True):
            at = np.searchsorted(run.keys, numbers)
            here = np.flatnonzero(run.keys[np.minimum(at, len(run) - 1)] == numbers)
            found[here] = base + at[here]
        return found

    def numbers(self, positions: Indices) -> Keys:
        found = np.zeros(len(positions), np.uint64)
        for run, here, at in self._by_run(positions):
            found[here] = run.keys[at]
        return found

    def last_numbers(self, end: Keys, most: int) -> Keys:
        """The numbers of the last rows before `end` that are not late, in their order."""
        found = [np.zeros(0, np.uint64)]
        for run in self.runs:
            numbers = run.keys[: np.searchsorted(run.keys, end)]
            last = numbers[-most:]
            # Late rows are rare: mostly the whole run need not be looked at.
            found.append(numbers[~is_late(numbers)][-most:] if is_late(last).any() else last)
        return np.sort(np.concatenate(found))[-most:]

    def take(self, column: str, positions: Indices) -> pa.Array:
        """The values of a column."""
        parts = list(self._by_run(positions))
        if len(parts) == 1:
            run, _, at = parts[0]
            return take_values(run.rows.column(column), at)
        taken = [take_values(run.rows.column(column), at) for run, _, at in parts]
        order = np.concatenate([here for _, here, _ in parts])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return take_values(pa.concat_arrays(taken), back)

    def _by_run(self, positions: Indices) -> Iterator[tuple[Sorted, Indices, Indices]]:
        """The runs that hold some rows, with the places in `positions` and in the run."""
        if len(self.runs) == 1 or not len(positions):
            yield self.runs[0], np.arange(len(positions)), positions
            return
        run_of = np.searchsorted(self.bases, positions, side="right") - 1
        for number in np.flatnonzero(np.bincount(run_of, minlength=len(self.runs))).tolist():
            here = np.flatnonzero(run_of == number)
            yield self.runs[number], here, positions[here] - self.bases[number]


@dataclass(frozen=True)
class Rows:
    """All rows of a batch: streams by number, indexes by the number of their attribute."""

    attributes: Attributes
    streams: Mapping[int, StreamRows]
    indexes: Mapping[int, Sequence[Keyed]]

    def take(self, attribute: int, positions: Indices) -> pa.Array:
        stream, column = self.attributes.columns[attribute]
        return self.streams[self.attributes.streams.index(stream)].take(column, positions)

    def look_up(self, attribute: int, keys: Keys) -> Hits:
        """Where an index has some keys, which ascend without repetition."""
        runs = [run for run in self.indexes.get(attribute, ()) if len(run)]
        return Hits(tuple((run, matches_of(keys, run.keys)) for run in runs), len(keys))


@dataclass(frozen=True)
class Hits:
    """Where the runs of an index have some keys."""

    found: tuple[tuple[Keyed, Matches], ...]
    keys: int

    @property
    def counts(self) -> Indices:
        """The entries of each key."""
        counts = np.zeros(self.keys, np.int64)
        for _, matches in self.found:
            counts[matches.found] += matches.rows
        return counts

    def entries(self, first: int, end: int, limit: int) -> Iterator[tuple[Indices, Keys]]:
        """The keys from `first` up to `end`, and the rows of each entry, at most `limit` at a time."""
        for run, matches in self.found:
            low, high = np.searchsorted(matches.found, [first, end])
            located = run.rows.column(LOCATOR).to_numpy().view(np.uint64)
            for key, at in expand(
                matches.found[low:high], matches.start[low:high], matches.rows[low:high], limit
            ):
                yield key, located[at]
