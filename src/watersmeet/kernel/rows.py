"""Sorted slices of runs, and how rows are cut and put together within bounds of rows and bytes.

A `Sorted` is a view: order keys (contiguous, ascending) and the rows that belong to them. Slicing copies nothing,
so memory-mapped runs stay mapped files. `cut` walks several of them in step through ascending, disjoint key ranges:
this keeps the join and the merge within a fixed memory, whatever the batch.

`Sections` are the rows of a run that is cut for the grid: one section behind the other, each sorted. So neighbouring
sections are one stretch of rows. `merge_sections` puts the keys of several of them in order and leaves the rows where
they lie: a `Merged` is searched once, whatever the number of its sections.

A mean says nothing about one huge value, so results are cut by the size of each row. Arrow stores the elements of
neighbouring values next to each other, at every level. The bytes of a stretch of values are therefore a difference
of two offsets at each leaf: the cost follows the rows asked for, not the length or nesting of the column. A size is
an upper estimate of the copy that `take` makes: values under a null count too. Types that Arrow does not store by
offsets (views, unions, run-end encoding) count by the mean of their column; Spark sends none of them. A dictionary
is shared by all copies and does not count.

`take_rows` fails ("Take operation overflowed") if one gathered column has 2 GiB or more, as offsets have 32 bits.
That needs repeated rows; kernels that repeat rows cut them by bytes first.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from watersmeet.kernel.keys import Indices, Keys
from watersmeet.model.facts import KEY_SPACE, KeyRange

Sizes = npt.NDArray[np.int64]
# Places of rows in a run: 32 bits, because they are kept in memory for as long as the run is read.
Places = npt.NDArray[np.int32]
Item = TypeVar("Item")
Same = TypeVar("Same", bound="Keyed")

# The first column of every run file: the order key.
ORDER = "__wm_order"

_IN_BOUNDS = pc.TakeOptions(boundscheck=False)


@dataclass(frozen=True, slots=True)
class Keyed(ABC):
    """Ascending order keys, and the rows that belong to them."""

    keys: Keys
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes of the rows that have a key here."""

    @abstractmethod
    def slice(self: Same, start: int, stop: int) -> Same: ...

    @abstractmethod
    def at(self: Same, places: Indices) -> Same:
        """Only the keys at some ascending places, and their rows."""

    def between(self: Same, range_: KeyRange) -> Same:
        return self.slice(position(self.keys, range_.low), position(self.keys, range_.high))

    def without(self: Same, keys: Sequence[int]) -> list[Same]:
        """The rows before, between and behind those of some ascending keys."""
        wanted = np.array(keys, np.uint64)
        ends = [*np.searchsorted(self.keys, wanted).tolist(), len(self)]
        starts = [0, *np.searchsorted(self.keys, wanted, side="right").tolist()]
        return [self.slice(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True, slots=True)
class Sorted(Keyed):
    """The row of a key is at the key's place."""

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes)

    def slice(self, start: int, stop: int) -> Sorted:
        return Sorted(self.keys[start:stop], self.rows.slice(start, stop - start))

    def at(self, places: Indices) -> Sorted:
        return Sorted(self.keys[places], take_rows(self.rows, places))


@dataclass(frozen=True, slots=True)
class Merged(Keyed):
    """The row of a key is where `order` says. `rows` may also hold rows that have no key here."""

    order: Places

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes) * len(self.keys) // max(1, self.rows.num_rows)

    def slice(self, start: int, stop: int) -> Merged:
        return Merged(self.keys[start:stop], self.rows, self.order[start:stop])

    def at(self, places: Indices) -> Merged:
        return Merged(self.keys[places], self.rows, self.order[places])

    def rewritten(self) -> Sorted:
        """A copy of the rows, in the order of their keys."""
        return Sorted(self.keys, take_rows(self.rows, self.order.astype(np.int64)))


@dataclass(frozen=True, slots=True)
class Sections:
    """Rows by section: `sizes` has the rows of each section, by number. The keys ascend inside a section only."""

    keys: Keys
    rows: pa.RecordBatch
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def starts(self) -> list[int]:
        """Where each section begins, and the end of the last one."""
        return [0, *itertools.accumulate(self.sizes)]

    def select(self, columns: Sequence[str]) -> Sections:
        return Sections(self.keys, self.rows.select(list(columns)), self.sizes)

    def stretch(self, start: int, stop: int) -> Sorted:
        """The rows between two places, which must lie in one section for the keys to ascend."""
        return Sorted(self.keys[start:stop], self.rows.slice(start, stop - start))

    def parts(self, numbers: Iterable[int] | None = None) -> dict[int, Sorted]:
        """Some sections, or all, by number. Empty sections are left out."""
        starts = self.starts
        wanted = range(len(self.sizes)) if numbers is None else numbers
        return {n: self.stretch(starts[n], starts[n + 1]) for n in wanted if self.sizes[n]}


def put_together(parts: Mapping[int, Sorted]) -> Sections:
    """Copy sections, given by number, behind each other."""
    numbers = sorted(parts)
    sizes = tuple(len(parts[n]) if n in parts else 0 for n in range(numbers[-1] + 1))
    keys = np.concatenate([parts[n].keys for n in numbers])
    return Sections(keys, pa.concat_batches([parts[n].rows for n in numbers]), sizes)


@dataclass(frozen=True, slots=True)
class MergedKeys:
    """The keys of some stretches of rows in order, and the place of each key's row after `first`.

    All of these rows lie between `first` and `end`. It is what a `Merged` needs to be made without sorting.
    """

    keys: Keys
    order: Places
    first: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.order.nbytes

    def over(self, rows: pa.RecordBatch) -> Merged:
        return Merged(self.keys, rows.slice(self.first, self.end - self.first), self.order)


# What merged keys take for each row: a key and a place.
MERGED_ROW_BYTES = 12


def merge_sections(keys: Keys, stretches: Sequence[tuple[int, int]]) -> MergedKeys:
    """Merge the keys of ascending stretches of rows, each sorted, none empty.

    >>> found = merge_sections(np.array([5, 9, 0, 0, 1, 7], np.uint64), [(0, 2), (4, 6)])
    >>> found.keys.tolist(), found.order.tolist()
    ([1, 5, 7, 9], [4, 0, 5, 1])
    """
    first, end = stretches[0][0], stretches[-1][1]
    if sum(stop - start for start, stop in stretches) == end - first:
        merged, order = merge_order([keys[first:end]])
        return MergedKeys(merged, order.astype(np.int32), first, end)
    places = np.concatenate([np.arange(start - first, stop - first) for start, stop in stretches])
    merged, order = merge_order([keys[start:stop] for start, stop in stretches])
    return MergedKeys(merged, places[order].astype(np.int32), first, end)


def position(keys: Keys, bound: int) -> int:
    """How many keys are smaller than `bound`, which may be one past the largest 64-bit key."""
    return len(keys) if bound >= KEY_SPACE else int(np.searchsorted(keys, np.uint64(bound)))


def open_sorted(batch: pa.RecordBatch) -> Sorted:
    """View a run's record batch; the order key is its first column."""
    return Sorted(batch.column(0).to_numpy(), batch.select(range(1, batch.num_columns)))


def open_sections(batch: pa.RecordBatch, sizes: tuple[int, ...]) -> Sections:
    """View the record batch of a run that is cut into sections."""
    whole = open_sorted(batch)
    return Sections(whole.keys, whole.rows, sizes)


def merge_order(sequences: Sequence[Keys]) -> tuple[Keys, Indices]:
    """The keys of all sequences in order, and for each its place in their concatenation.

    A stable sort recognises sorted stretches and merges them: seven times faster here than a plain one.
    """
    keys = np.concatenate(sequences)
    order = np.argsort(keys, kind="stable")
    return keys[order], order


def take_rows(rows: pa.RecordBatch, indices: Indices) -> pa.RecordBatch:
    """Gather rows by position. The indices are in bounds, so Arrow need not check.

    All columns in one call: column by column takes twice as long where there are few rows.
    """
    if not rows.num_columns:
        return rows.slice(0, len(indices))
    return pc.call_function("take", [rows, pa.array(indices)], _IN_BOUNDS)


def take_values(column: pa.Array, indices: Indices) -> pa.Array:
    """Gather values of one column by position. The indices are in bounds: checking costs half as much again."""
    return pc.call_function("take", [column, pa.array(indices)], _IN_BOUNDS)


def concatenate(slices: Sequence[Sorted]) -> Sorted:
    """One sorted sequence of all rows. The payload is copied twice, the keys once: keep the input small."""
    if len(slices) == 1:
        return slices[0]
    keys, order = merge_order([s.keys for s in slices])
    return Sorted(keys, take_rows(pa.concat_batches([s.rows for s in slices]), order))


def grouped(
    items: Iterable[Item],
    rows_of: Callable[[Item], int],
    bytes_of: Callable[[Item], int],
    most: int,
    size: int,
    alone: int | None = None,
) -> Iterator[list[Item]]:
    """Neighbours in lists of at most `most` rows and `size` bytes; an item that exceeds them is alone.

    An item of at least `alone` rows comes out at once, by itself. Its bytes are not asked for: Arrow takes microseconds
    to add them up, and the results of a heavy key are thousands of such items.
    """
    held: list[Item] = []
    held_rows = held_bytes = 0
    for item in items:
        item_rows = rows_of(item)
        if alone is not None and item_rows >= alone:
            yield [item]
            continue
        item_bytes = bytes_of(item)
        if held and (held_rows + item_rows > most or held_bytes + item_bytes > size):
            yield held
            held, held_rows, held_bytes = [], 0, 0
        held.append(item)
        held_rows += item_rows
        held_bytes += item_bytes
    if held:
        yield held


def coalesce(
    batches: Iterable[pa.RecordBatch], rows: int, size: int, alone: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Concatenate neighbours up to `rows` rows and `size` bytes, and drop empty batches.

    Many small batches cost time on every border that they cross. One of at least `alone` rows is not copied.
    """
    filled = (batch for batch in batches if batch.num_rows)
    for held in grouped(filled, lambda b: int(b.num_rows), lambda b: int(b.nbytes), rows, size, alone):
        # Arrow would copy even a single batch.
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


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
    order = np.argsort(keys)
    keys, reached = keys[order], np.cumsum(np.concatenate(mass)[order])
    targets = reached[-1] * np.arange(1, pieces) / pieces
    bounds = {int(k) for k in keys[np.searchsorted(reached, targets)]}
    distinct, counts = np.unique(keys, return_counts=True)
    # Close the range right after a key that is heavier than a piece, so that its neighbours are not dragged in.
    heavy = {int(k) + 1 for k in distinct[counts >= _SAMPLES_PER_PIECE]}
    return sorted(bounds | heavy)


# Types of which all values have one size. By number: asking Arrow takes longer than a result of few rows may.
_EVEN = frozenset(
    kind.id
    for kind in (
        *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
        *(pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1), pa.binary(1)),
        *(pa.month_day_nano_interval(), pa.dictionary(pa.int8(), pa.string())),
    )
)
_OFFSETS = {
    **dict.fromkeys((pa.string().id, pa.binary().id, pa.list_(pa.int8()).id), np.int32),
    pa.map_(pa.int8(), pa.int8()).id: np.int32,
    **dict.fromkeys((pa.large_string().id, pa.large_binary().id, pa.large_list(pa.int8()).id), np.int64),
}


def varies(kind: pa.DataType) -> bool:
    """Whether the values of this type differ in size."""
    if kind.id in _EVEN:
        return False
    if arrow.is_struct(kind) or arrow.is_fixed_size_list(kind):
        return any(varies(kind.field(place).type) for place in range(kind.num_fields))
    return True


def row_bytes(columns: Sequence[pa.Array], at: Indices) -> Sizes | None:
    """The bytes of some rows in these columns; None if all rows have one size."""
    if not any(varies(column.type) for column in columns):
        return None
    # Each row is weighed once where rows are asked for several times.
    length = len(columns[0])
    if length <= len(at):
        sizes: Sizes = _weighed(columns, np.arange(length)).take(at)
        return sizes
    return _weighed(columns, at)


def all_row_bytes(rows: pa.RecordBatch) -> Sizes:
    """The bytes of each row."""
    return _weighed(rows.columns, np.arange(rows.num_rows))


def mean_row_bytes(rows: pa.RecordBatch) -> int:
    """The mean bytes of a row, rounded up; 1 without rows."""
    return rows.nbytes // rows.num_rows + 1 if rows.num_rows else 1


def cut_by_bytes(sizes: Sizes, limit: int) -> Iterator[slice]:
    """Stretches of rows of at most `limit` bytes together; a row that exceeds it is alone.

    >>> [(part.start, part.stop) for part in cut_by_bytes(np.array([5, 5, 99, 1]), 10)]
    [(0, 2), (2, 3), (3, 4)]
    """
    reached = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = max(start + 1, int(np.searchsorted(reached, before + limit, side="right")))
        yield slice(start, stop)
        start, before = stop, int(reached[stop - 1])


def _weighed(columns: Sequence[pa.Array], at: Indices) -> Sizes:
    total, even, after = np.zeros(len(at), np.int64), 0, at + 1
    for column in columns:
        if varies(column.type):
            total += _stretch_bytes(column, at, after, single=True)
        else:
            even += _mean_bytes(column)
    total += even
    return total


def _stretch_bytes(column: pa.Array, start: Indices, stop: Indices, *, single: bool) -> Sizes | int:
    """The bytes of the values from `start` up to `stop`, for each pair of places.

    The offset of a `single` value is left out: it weighs little, and would be most of the work.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _stretch_bytes(column.storage, start, stop, single=single)
    if arrow.is_struct(kind):
        fields = (column.field(place) for place in range(kind.num_fields))
        return sum(_stretch_bytes(field, start, stop, single=single) for field in fields)
    if arrow.is_fixed_size_list(kind):
        start, stop = ((at + column.offset) * kind.list_size for at in (start, stop))
        return _stretch_bytes(column.values, start, stop, single=False)
    width = _OFFSETS.get(kind.id)
    if width is None:
        return (stop - start) * _mean_bytes(column)
    if not len(column):
        return 0
    offsets = np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column) + 1]
    first, last = offsets.take(start), offsets.take(stop)
    if kind.num_fields:
        inner = _stretch_bytes(column.values, first.astype(np.int64), last.astype(np.int64), single=False)
    else:
        inner = np.subtract(last, first, out=last)
    return inner if single else inner + (stop - start) * offsets.itemsize


def _mean_bytes(column: pa.Array) -> int:
    if arrow.is_dictionary(column.type):
        return _mean_bytes(column.indices)
    if arrow.is_primitive(column.type) and column.type.bit_width >= 8:
        return int(column.type.byte_width)
    return column.nbytes // len(column) + 1 if len(column) else 0
