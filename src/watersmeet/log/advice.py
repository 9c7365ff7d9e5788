"""Tell the kernel how the bytes of a mapped run will be read.

A page that is missing is read from the disk together with many around it: by default 128 KB, and 8 MB on some disks.
For a run that is read from end to end that is right. Of a run that was pushed in part (plan/pushes.py) the pages around
are those that must not become resident. So its mapping is read page by page, and ranges that will be read are asked for
beforehand: 20 MB took 0.74 s page by page, and 0.02 s so.

Advice changes no result. Where the system knows none, nothing is said.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

Addresses = list[tuple[int, int]]

# The numbers are the same on Linux and macOS.
NORMAL, RANDOM, WILL_NEED = 0, 1, 3

# Shorter stretches are not worth a call: their pages are read one by one.
_LEAST_BYTES = 4 * mmap.PAGESIZE
# Linux cuts a request off at what it reads ahead by itself, without a word: 128 KB by default.
_MOST_BYTES = 128 << 10


def advise(content: pa.Buffer, advice: int) -> None:
    """Say how all pages of a mapped file will be read."""
    _advise(content.address, content.address + content.size, advice)


def addresses_of(columns: Sequence[pa.Array], places: Iterable[tuple[int, int]]) -> Addresses:
    """Where some rows of a mapped file lie, in pieces that one request reads. `places` are their first rows and ends."""
    return [
        (one, min(one + _MOST_BYTES, high))
        for start, stop in places
        for column in columns
        for low, high in _stretches(column, start, stop)
        if high - low >= _LEAST_BYTES
        for one in range(low, high, _MOST_BYTES)
    ]


def read_ahead(addresses: Addresses) -> None:
    """Have some bytes read from the disk, if they are not in memory. If they are, that takes a microsecond or two each."""
    for low, high in addresses:
        _advise(low, high, WILL_NEED)


def _stretches(column: pa.Array, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The addresses of some values. Those of nested types are left out."""
    buffers = column.buffers()
    if len(buffers) < 2 or buffers[1] is None or start >= stop:
        return
    start, stop = start + column.offset, stop + column.offset
    kind = column.type
    width = 0
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width = 4
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = 8
    if width:
        offsets = np.frombuffer(buffers[1], np.int32 if width == 4 else np.int64)
        yield buffers[1].address + start * width, buffers[1].address + (stop + 1) * width
        if buffers[2] is not None:
            yield buffers[2].address + int(offsets[start]), buffers[2].address + int(offsets[stop])
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        bits = kind.bit_width
        yield buffers[1].address + start * bits // 8, buffers[1].address - (-stop * bits // 8)


def _advise(start: int, stop: int, advice: int) -> None:
    """Advise on whole pages, those at the ends too. A refusal costs time only."""
    madvise = _madvise()
    if madvise is not None and start < stop:
        low = start - start % mmap.PAGESIZE
        madvise(low, stop - low, advice)


@cache
def _madvise() -> Any:
    try:
        found = ctypes.CDLL(None).madvise
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
