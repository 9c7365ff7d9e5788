"""Bytes of rows: what a copy of them would take, row by row.

A mean says nothing about one huge value, so results are cut by the size of each row. Arrow stores the elements of
neighbouring values next to each other, at every level. The bytes of a stretch of values are therefore a difference
of two offsets at each leaf: the cost follows the rows asked for, not the length or nesting of the column. A size is
an upper estimate of the copy that `take` makes: values under a null count too. Types that Arrow does not store by
offsets (views, unions, run-end encoding) count by the mean of their column; Spark sends none of them. A dictionary
is shared by all copies and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as arrow

from watersmeet.kernel.keys import Indices

Sizes = npt.NDArray[np.int64]
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


def value_bytes(kind: pa.DataType) -> int | None:
    """The bytes of each value in the one buffer that holds them; None if they are stored in another way."""
    plain = arrow.is_primitive(kind) or arrow.is_decimal(kind) or arrow.is_fixed_size_binary(kind)
    return kind.bit_width // 8 if plain and kind.bit_width >= 8 else None


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
    size = value_bytes(column.type)
    if size is not None:
        return size
    return column.nbytes // len(column) + 1 if len(column) else 0
