"""Stream rows that wait on pages of a table: the hash table and the queue of HYBRIDJOIN, in arrays of fixed size.

Source: Naeem, Dobbie, Weber 2010, section 4.1. There a hash table holds the rows, and a linked list their order, from
which rows leave in the middle. Here rows lie in slots that are used again. They are found by page through sorted
entries in tiers, of which each is merged into the next when it is full; and the queue keeps the pages in the order
of arrival. Nothing is removed from either: a row is gone when its page was answered after it came, which one number
for each page says, and what is gone is dropped when entries are merged or the queue is closed up.

Rows have a position in the stream, counted from 0. Stored columns are numbers without nulls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.rows import Sorted
from watersmeet.model.pages import page_range, pages_of

# Entries, gone ones included, for each row that there is room for.
_GARBAGE = 1.25

_ENTRY_BYTES, _QUEUE_BYTES, _SLOT_BYTES = 20, 12, 4


def row_bytes(schema: pa.Schema) -> int:
    """What a waiting row takes, with its entry, its two places in the queue and its slot's number."""
    columns = sum(_width(field) for field in schema)
    return columns + round(_GARBAGE * _ENTRY_BYTES) + 2 * _QUEUE_BYTES + _SLOT_BYTES


def _width(field: pa.Field) -> int:
    if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
        raise UsageError(f"column {field.name} is {field.type}: rows wait as numbers only; leave it out")
    return int(field.type.byte_width)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rows that wait on some page, ascending by order key, with their positions in the stream and their slots."""

    pending: Sorted
    positions: Indices
    slots: Indices

    def before(self, other: Waiting) -> Waiting:
        """These and those of a later page."""
        rows = pa.concat_batches([self.pending.rows, other.pending.rows])
        return Waiting(
            Sorted(np.concatenate([self.pending.keys, other.pending.keys]), rows),
            np.concatenate([self.positions, other.positions]),
            np.concatenate([self.slots, other.slots]),
        )


@dataclass(frozen=True, slots=True)
class _Entries:
    keys: Keys
    positions: Indices
    slots: npt.NDArray[np.int32]

    def at(self, here: slice | Indices | npt.NDArray[np.bool_]) -> _Entries:
        return _Entries(self.keys[here], self.positions[here], self.slots[here])


@dataclass(frozen=True, slots=True)
class Tiers:
    """How entries are kept in order.

    `tail_rows` of them wait to be sorted: looking through all takes as long as two binary searches. A tier has `fan_in`
    runs: more of them are more searches in each step, fewer more merges of each entry.
    """

    tail_rows: int = 4_096
    fan_in: int = 6


TIERS = Tiers()


class Pending:
    """At most `capacity` rows of a stream, waiting on the pages of a table."""

    def __init__(self, schema: pa.Schema, capacity: int, pages: int, tiers: Tiers = TIERS):
        if capacity < 1:
            raise UsageError("the budget holds no row beside a page: take a larger budget or smaller pages")
        for field in schema:
            _width(field)
        self.schema = schema
        self.capacity = capacity
        # All that came before this position is gone, whatever its page.
        self.floor = 0
        self.rows = 0
        self._columns = [np.empty(capacity, field.type.to_pandas_dtype()) for field in schema]
        self._free = np.arange(capacity, dtype=np.int32)[::-1].copy()
        self._answered = np.zeros(pages, np.int64)
        self._kept, tail = tiers, tiers.tail_rows
        self._tail = _Entries(np.empty(tail, np.uint64), np.empty(tail, np.int64), np.empty(tail, np.int32))
        self._tail_rows = 0
        self._tiers: list[list[_Entries]] = []
        self._stored = 0
        self._queue = np.empty(2 * capacity + tail, np.int64)
        self._queue_pages = np.empty(2 * capacity + tail, np.int32)
        self._head = self._end = 0

    @property
    def room(self) -> int:
        return self.capacity - self.rows

    def add(self, rows: pa.RecordBatch, orders: Keys, positions: Indices) -> Indices:
        """Rows in the order of arrival; there must be room for them. Returns their slots."""
        count = rows.num_rows
        slots = self._free[self.room - count : self.room].copy()
        self.rows += count
        for stored, column in zip(self._columns, rows.columns, strict=True):
            stored[slots] = column.to_numpy()
        self._enqueue(positions, pages_of(orders))
        entries = _Entries(orders, positions, slots)
        tail = self._kept.tail_rows
        for start in range(0, count, tail):
            self._append(entries.at(slice(start, start + tail)))
        return slots.astype(np.int64)

    def front(self) -> tuple[int, int] | None:
        """Page and position of the row that has waited longest."""
        while self._head < self._end:
            block = slice(self._head, min(self._head + 256, self._end))
            here = self._alive(self._queue_pages[block], self._queue[block])
            if here.any():
                self._head += int(np.argmax(here))
                return int(self._queue_pages[self._head]), int(self._queue[self._head])
            self._head = block.stop
        return None

    def waiting(self, page: int) -> Waiting:
        """All rows that wait on a page."""
        range_ = page_range(page)
        low, high = np.uint64(range_.low), np.uint64(range_.high - 1)
        tail = self._tail.at(slice(0, self._tail_rows))
        found = [tail.at((tail.keys >= low) & (tail.keys <= high))]
        for tier in self._tiers:
            for run in tier:
                start = int(run.keys.searchsorted(low))
                if start < len(run.keys) and run.keys[start] <= high:
                    found.append(run.at(slice(start, int(run.keys.searchsorted(high, side="right")))))
        oldest = max(self.floor, int(self._answered[page]))
        alive = [entries.at(entries.positions >= oldest) for entries in found]
        together = _together(alive)
        slots = together.slots.astype(np.int64)
        return Waiting(Sorted(together.keys, self.gather(slots)), together.positions, slots)

    def gather(self, slots: Indices) -> pa.RecordBatch:
        columns = [
            pa.array(column[slots], field.type)
            for column, field in zip(self._columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def answer(self, page: int, position: int) -> None:
        """The rows of a page that came before some position wait no more. Their slots are to be freed."""
        self._answered[page] = position

    def free(self, slots: Indices) -> None:
        self._free[self.room : self.room + len(slots)] = slots
        self.rows -= len(slots)

    def _alive(self, pages: npt.NDArray[np.int32] | Indices, positions: Indices) -> npt.NDArray[np.bool_]:
        return positions >= np.maximum(self._answered[pages], self.floor)

    def _enqueue(self, positions: Indices, pages: Indices) -> None:
        if self._end + len(positions) > len(self._queue):
            held = slice(self._head, self._end)
            kept = np.flatnonzero(self._alive(self._queue_pages[held], self._queue[held])) + self._head
            self._queue[: len(kept)], self._queue_pages[: len(kept)] = (
                self._queue[kept],
                self._queue_pages[kept],
            )
            self._head, self._end = 0, len(kept)
        here = slice(self._end, self._end + len(positions))
        self._queue[here], self._queue_pages[here] = positions, pages
        self._end = here.stop

    def _append(self, entries: _Entries) -> None:
        if self._tail_rows + len(entries.keys) > self._kept.tail_rows:
            self._settle()
        here = slice(self._tail_rows, self._tail_rows + len(entries.keys))
        self._tail.keys[here], self._tail.positions[here] = entries.keys, entries.positions
        self._tail.slots[here] = entries.slots
        self._tail_rows = here.stop

    def _settle(self) -> None:
        """Sort the tail into the first tier and merge tiers that are full, or all if too much in them is gone."""
        carried = self._sorted([self._tail.at(slice(0, self._tail_rows))])
        self._tail_rows = 0
        for level in range(len(self._tiers) + 1):
            if level == len(self._tiers):
                self._tiers.append([])
            self._tiers[level].append(carried)
            if len(self._tiers[level]) < self._kept.fan_in:
                break
            carried = self._sorted(self._tiers[level])
            self._tiers[level] = []
        self._stored = sum(len(run.keys) for tier in self._tiers for run in tier)
        if self._stored > _GARBAGE * self.capacity:
            everything = self._sorted([run for tier in self._tiers for run in tier])
            self._tiers = [*([] for _ in self._tiers[1:]), [everything]]

    def _sorted(self, runs: list[_Entries]) -> _Entries:
        alive = [run.at(self._alive(pages_of(run.keys), run.positions)) for run in runs]
        return _together(alive)


def _together(parts: list[_Entries]) -> _Entries:
    keys = np.concatenate([part.keys for part in parts])
    order = np.argsort(keys, kind="stable")
    return _Entries(
        keys[order],
        np.concatenate([part.positions for part in parts])[order],
        np.concatenate([part.slots for part in parts])[order],
    )
