"""Checksums by section, so that a task verifies the rows that it reads and no others.

A run that is cut for the grid is one record batch, in which a section is a stretch of rows. The file lists a checksum
of each section in the metadata of its schema. A section's checksum covers all that its rows are read from, in every
column and at every level of nesting: which values are null, the offsets, the values.

All bytes outside the values are the *frame*: the schema with that list, the place of every buffer, the footer. The
manifest has the frame's checksum (`Run.frame`), so nothing is parsed unverified: the manifest vouches for the frame,
the frame for each section. The padding between buffers is in no checksum of these, and nothing reads it.

Why the list is not in the manifest: it grows with the number of tasks, for every run, and each task reads the manifest
of each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from pyarrow import types as arrow

from watersmeet.log.codec import checksum
from watersmeet.model.facts import Frame

# The list of checksums in the schema's metadata: 16 hexadecimal digits for each section.
SECTIONS = b"watersmeet.sections"
_DIGITS = 16

Bits = npt.NDArray[np.uint8]
# Gives the bytes of the rows from a first one up to an end, piece by piece.
_Cover = Callable[[int, int], Iterator[Any]]


class UncoveredType(TypeError):
    """A column whose bytes cannot be told apart by row. Spark sends none. Its run is verified whole."""


def with_checksums(schema: pa.Schema, rows: pa.RecordBatch, sizes: Sequence[int]) -> pa.Schema:
    """The schema of a run, with the checksums of its sections if all columns can be told apart by row."""
    try:
        found = "".join(_checksums(rows, [0, *accumulate(sizes)], range(len(sizes))))
    except UncoveredType:
        return schema
    return schema.with_metadata({SECTIONS: found})


def frame_of(content: pa.Buffer) -> Frame | None:
    """Where the values of a run file lie, and the checksum of all else; None if it has no checksums by section."""
    file = pa.ipc.open_file(content)
    if SECTIONS not in (file.schema.metadata or {}):
        return None
    filled = [
        (buffer.address - content.address, buffer.size)
        for column in file.get_batch(0).columns
        for buffer in column.buffers()
        if buffer is not None and buffer.size
    ]
    start, end = min(at for at, _ in filled), max(at + size for at, size in filled)
    assert 0 < start < end < content.size, "Arrow copied a buffer that it should have mapped"
    return Frame(start, end, _frame_checksum(content, start, end))


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """Where the order keys of a run file begin, and their checksum."""

    at: int
    checksum: str


def key_bytes_of(content: pa.Buffer) -> KeyBytes | None:
    """The place of the keys of a run file; None if it is cut into sections."""
    file = pa.ipc.open_file(content)
    if SECTIONS in (file.schema.metadata or {}) or file.num_record_batches != 1:
        return None
    keys = file.get_batch(0).column(0).buffers()[1]
    return KeyBytes(keys.address - content.address, checksum(keys[: 8 * file.get_batch(0).num_rows]))


def frame_is_intact(content: pa.Buffer, frame: Frame) -> bool:
    return _frame_checksum(content, frame.start, frame.end) == frame.checksum


def _frame_checksum(content: pa.Buffer, start: int, end: int) -> str:
    hashed = xxhash.xxh3_64(memoryview(content)[:start])
    hashed.update(memoryview(content)[end:])
    return str(hashed.hexdigest())


class SectionChecks:
    """The checksums of a mapped run's sections, and which sections are known to be intact.

    `starts` has the first row of each section and the end of the last. `whole` is the checksum of the file.
    """

    def __init__(
        self,
        rows: pa.RecordBatch,
        starts: Sequence[int],
        expected: str,
        content: pa.Buffer,
        whole: str,
        bytes_per_section: int,
    ):
        self._bytes_per_section = bytes_per_section
        self._rows, self._starts, self._expected = rows, starts, expected
        self._content, self._whole = content, whole
        self._unchecked = set(range(len(starts) - 1))

    def damaged(self, numbers: Sequence[int]) -> int | None:
        """The first of these sections that is damaged; None if all are intact.

        Where the whole file is checked sooner than these sections, it is. If it is damaged, they may still be intact.
        """
        left = [number for number in numbers if number in self._unchecked] if self._unchecked else ()
        if not left:
            return None
        if (
            self._content.size <= self._bytes_per_section * len(left)
            and checksum(self._content) == self._whole
        ):
            self._unchecked.clear()
            return None
        for number, found in zip(left, _checksums(self._rows, self._starts, left), strict=True):
            if found != self._expected[_DIGITS * number : _DIGITS * (number + 1)]:
                return number
            self._unchecked.discard(number)
        return None


def _checksums(rows: pa.RecordBatch, starts: Sequence[int], numbers: Iterable[int]) -> Iterator[str]:
    covers = [_cover(column) for column in rows.columns]
    for number in numbers:
        hashed = xxhash.xxh3_64()
        start, stop = starts[number], starts[number + 1]
        if start < stop:
            for cover in covers:
                for piece in cover(start, stop):
                    hashed.update(piece)
        yield str(hashed.hexdigest())


def _cover(column: pa.Array) -> _Cover:
    """How to find the bytes of some rows of a column.

    By value, so that rows have one checksum in memory, as slices of longer arrays, and in the file: offsets count from
    the first row of the section, and validity bits count only where there are nulls.
    """
    if isinstance(column, pa.ExtensionArray):
        return _cover(column.storage)
    parts = _values(column)
    bits = _bits(column.buffers()[0], column.offset) if parts and column.null_count else None

    def cover(start: int, stop: int) -> Iterator[Any]:
        if start >= stop:
            return
        if bits is not None and not (valid := bits(start, stop)).all():
            yield valid
        for part in parts:
            yield from part(start, stop)

    return cover


def _values(column: pa.Array) -> list[_Cover]:
    kind, offset = column.type, column.offset
    if arrow.is_null(kind) or not len(column):
        return []
    if arrow.is_struct(kind):
        # A field is already cut to the rows of its struct.
        return [_cover(column.field(place)) for place in range(kind.num_fields)]
    if arrow.is_fixed_size_list(kind):
        inner, size = _cover(column.values), kind.list_size
        return [lambda start, stop: inner((start + offset) * size, (stop + offset) * size)]
    if arrow.is_list(kind) or arrow.is_large_list(kind) or arrow.is_map(kind):
        wide = np.int64 if arrow.is_large_list(kind) else np.int32
        return [_by_offsets(column, wide, _cover(column.values))]
    if arrow.is_string(kind) or arrow.is_binary(kind):
        return [_by_offsets(column, np.int32, _bytes(column.buffers()[2], 1, 0))]
    if arrow.is_large_string(kind) or arrow.is_large_binary(kind):
        return [_by_offsets(column, np.int64, _bytes(column.buffers()[2], 1, 0))]
    if arrow.is_boolean(kind):
        bits = _bits(column.buffers()[1], offset)
        return [lambda start, stop: iter((bits(start, stop),))]
    if arrow.is_primitive(kind) or arrow.is_decimal(kind) or arrow.is_fixed_size_binary(kind):
        return [_bytes(column.buffers()[1], kind.byte_width, offset)]
    raise UncoveredType(str(kind))


def _bytes(buffer: pa.Buffer | None, width: int, offset: int) -> _Cover:
    content = memoryview(buffer or b"").cast("B")
    return lambda start, stop: iter((content[(start + offset) * width : (stop + offset) * width],))


def _bits(buffer: pa.Buffer, offset: int) -> Callable[[int, int], Bits]:
    """One byte for each bit of some rows: the bytes of the buffer may have bits of two sections."""
    content = np.frombuffer(buffer, np.uint8)

    def bits(start: int, stop: int) -> Bits:
        low, high = start + offset, stop + offset
        unpacked = np.unpackbits(content[low // 8 : -(-high // 8)], bitorder="little")
        return unpacked[low % 8 : low % 8 + high - low]

    return bits


def _by_offsets(column: pa.Array, wide: Any, inner: _Cover) -> _Cover:
    offsets = np.frombuffer(column.buffers()[1], wide)[column.offset :]

    def cover(start: int, stop: int) -> Iterator[Any]:
        here = offsets[start : stop + 1]
        # None are left where the offsets of an outer list are damaged.
        if not len(here):
            return
        yield here - here[0]
        yield from inner(int(here[0]), int(here[-1]))

    return cover
