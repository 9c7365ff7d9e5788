"""The rows of the streams, in arrival order, and the indexes by which they are found.

A row's *number* is its place in the history of its stream: the batch, the partition of the batch and the place in that
partition, in one 64-bit number. It is known when the row arrives, is never given twice, and ascends with the batches:
that a query counts rows of later batches only, or a step old rows only, is a comparison of numbers. An index holds the
order key of a value and the row's number. Rows with a null have no entry, as null equals nothing. The lowest bit says
that the row is late (hubs/watermarks.py).

A *position* says where a row lies in the runs that are live in this batch. It is not stored.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.hubs.lookups import CopyRoom, Lookups
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices, Keys, Mask, order_keys
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

    @property
    def rows(self) -> int:
        return sum(map(len, self.runs))

    @classmethod
    def of(cls, runs: Sequence[Sorted]) -> StreamRows:
        sizes = np.array([len(run) for run in runs], np.int64)
        return cls(tuple(runs), np.cumsum(sizes) - sizes)

    @functools.cached_property
    def _in_order(self) -> tuple[Indices, Keys] | None:
        """The runs that have rows by their first number, and these numbers; None if some numbers of two runs mix."""
        filled = np.array([at for at, run in enumerate(self.runs) if len(run)], np.int64)
        first = np.array([self.runs[at].keys[0] for at in filled.tolist()], np.uint64)
        last = np.array([self.runs[at].keys[-1] for at in filled.tolist()], np.uint64)
        order = np.argsort(first)
        apart = (last[order][:-1] < first[order][1:]).all()
        return (filled[order], first[order]) if apart else None

    def positions(self, numbers: Keys) -> Indices:
        """Where rows lie, by their numbers; -1 for rows that are not stored any more."""
        found = np.full(len(numbers), -1, np.int64)
        if self._in_order is None:
            for run, base in zip(self.runs, self.bases.tolist(), strict=True):
                _place(found, np.arange(len(numbers)), numbers, run, base)
            return found
        order, first = self._in_order
        # Numbers before the first run get no place, as they are not found in it.
        at = np.maximum(np.searchsorted(first, numbers, side="right") - 1, 0)
        for place, run in enumerate(order.tolist()):
            here = np.flatnonzero(at == place) if len(order) > 1 else np.arange(len(numbers))
            if len(here):
                _place(found, here, numbers[here], self.runs[run], int(self.bases[run]))
        return found

    def copied_bytes(self, name: str) -> int:
        """What a copy of a column takes, with a key of each row."""
        return sum(int(run.rows.column(name).nbytes) for run in self.runs) + 9 * self.rows

    def column(self, name: str) -> pa.Array:
        """A copy of a column: the values of all rows, by position."""
        return pa.concat_arrays([run.rows.column(name) for run in self.runs])

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


def _place(found: Indices, here: Indices, numbers: Keys, run: Sorted, base: int) -> None:
    """Note where a run has some numbers, which are those at the places `here`."""
    if len(run):
        at = np.searchsorted(run.keys, numbers)
        same = np.flatnonzero(run.keys[np.minimum(at, len(run) - 1)] == numbers)
        found[here[same]] = base + at[same]


@dataclass
class Copies:
    """Columns of the streams and their order keys, of all runs together: made once as many values have been asked for as
    a column has."""

    room: CopyRoom
    asked: dict[int, int] = field(default_factory=dict)
    columns: dict[int, pa.Array] = field(default_factory=dict)
    keys: dict[int, tuple[Keys, Mask | None]] = field(default_factory=dict)

    def column(self, attribute: int, stored: StreamRows, name: str, asked: int) -> pa.Array | None:
        if attribute not in self.columns:
            self.asked[attribute] = self.asked.get(attribute, 0) + asked
            if self.asked[attribute] < stored.rows or not self.room.has(stored.copied_bytes(name)):
                return None
            self.columns[attribute] = stored.column(name)
        return self.columns[attribute]


@dataclass(frozen=True)
class Rows:
    """All rows of a batch: streams by number, indexes by the number of their attribute.

    The combinations that templates keep are in `kept`, by the order keys of what they wait for (hubs/kept.py).
    """

    attributes: Attributes
    streams: Mapping[int, StreamRows]
    indexes: Mapping[int, Sequence[Keyed]]
    kept: StreamRows = field(default_factory=lambda: StreamRows.of([]))
    _waiting: list[Lookups] = field(default_factory=list, compare=False)
    _lookups: dict[int, Lookups] = field(default_factory=dict, compare=False)
    _copies: Copies = field(default_factory=lambda: Copies(CopyRoom()), compare=False)

    def take(self, attribute: int, positions: Indices) -> pa.Array:
        """The values of an attribute."""
        stored, column = (
            self.streams[self.attributes.stream[attribute]],
            self.attributes.columns[attribute][1],
        )
        whole = self._copies.column(attribute, stored, column, len(positions))
        return stored.take(column, positions) if whole is None else take_values(whole, positions)

    def keys(self, attribute: int, positions: Indices) -> tuple[Keys, Mask | None]:
        """The order keys of an attribute's values, and which of them are not null; None if all are."""
        whole = self._copies.keys.get(attribute)
        if whole is None:
            values = self.take(attribute, positions)
            if attribute not in self._copies.columns:
                return _keys_of(values)
            whole = self._copies.keys[attribute] = _keys_of(self._copies.columns[attribute])
        keys, valid = whole
        return keys[positions], None if valid is None else valid[positions]

    def find(self, attribute: int, keys: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
        """Where an index has some keys: the places of the keys and the numbers of rows, at most `limit` at a time."""
        if attribute not in self._lookups:
            self._lookups[attribute] = Lookups(
                [run for run in self.indexes.get(attribute, ()) if len(run)], self._copies.room
            )
        yield from self._lookups[attribute].find(keys, limit)

    def find_kept(self, keys: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
        """Where combinations wait for some keys: the places of the keys, and those of combinations in `kept`."""
        if not self._waiting:
            runs = [
                Sorted(run.keys, pa.RecordBatch.from_arrays([_places(base, len(run))], [LOCATOR]))
                for run, base in zip(self.kept.runs, self.kept.bases.tolist(), strict=True)
            ]
            self._waiting.append(Lookups(runs, self._copies.room))
        yield from self._waiting[0].find(keys, limit)


def _places(base: int, rows: int) -> pa.Array:
    return pa.array(np.arange(base, base + rows))


def _keys_of(values: pa.Array) -> tuple[Keys, Mask | None]:
    if not values.null_count:
        return order_keys([values]), None
    valid = values.is_valid()
    mask: Mask = valid.to_numpy(zero_copy_only=False)
    keys = np.zeros(len(values), np.uint64)
    keys[mask] = order_keys([values.filter(valid)])
    return keys, mask
