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
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernel.keys import Indices

Addresses = list[tuple[int, int]]

# The numbers are the same on Linux and macOS.
NORMAL, RANDOM, WILL_NEED = 0, 1, 3

_PAGE = mmap.PAGESIZE
# Linux cuts a request off at what it reads ahead by itself, without a word: 128 KB by default.
_MOST_BYTES = 128 << 10


def advise(content: pa.Buffer, advice: int) -> None:
    """Say how all pages of a mapped file will be read."""
    _advise(content.address, content.address + content.size, advice)


def addresses_of(columns: Sequence[pa.Array], starts: Indices, stops: Indices) -> Addresses:
    """Where some rows of a mapped file lie: ascending whole pages, in pieces that one request reads.

    `starts` are the first rows of stretches, and `stops` their ends.
    """
    filled = starts < stops
    found = [one for column in columns for one in _stretches(column, starts[filled], stops[filled])]
    if not found:
        return []
    low, high = (np.concatenate(mine) for mine in zip(*found, strict=True))
    low, high = low // _PAGE, -(-high // _PAGE)
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    # What begins behind the end of all before it begins a new stretch.
    begins = np.flatnonzero(np.append(True, low[1:] > high[:-1]))
    ends = np.append(begins[1:], len(low)) - 1
    whole = zip((low[begins] * _PAGE).tolist(), (high[ends] * _PAGE).tolist(), strict=True)
    return [
        (one, min(one + _MOST_BYTES, end)) for start, end in whole for one in range(start, end, _MOST_BYTES)
    ]


def read_ahead(addresses: Addresses) -> None:
    """Have some bytes read from the disk, if they are not in memory. If they are, that takes a microsecond or two each."""
    for low, high in addresses:
        _advise(low, high, WILL_NEED)


def _stretches(column: pa.Array, starts: Indices, stops: Indices) -> Iterator[tuple[Indices, Indices]]:
    """The addresses of some values, as first bytes and ends. Those of nested types are left out."""
    buffers = column.buffers()
    if len(buffers) < 2 or buffers[1] is None or not len(starts):
        return
    starts, stops = starts + column.offset, stops + column.offset
    kind, base = column.type, buffers[1].address
    if _has_offsets(kind):
        width = 8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 4
        yield base + starts * width, base + (stops + 1) * width
        if buffers[2] is not None:
            offsets = np.frombuffer(buffers[1], np.dtype(f"<i{width}"))
            low, high = (offsets[places].astype(np.int64) for places in (starts, stops))
            yield buffers[2].address + low, buffers[2].address + high
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        yield base + starts * kind.bit_width // 8, base - (-stops * kind.bit_width // 8)


def _has_offsets(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
        )
    )


def _advise(start: int, stop: int, advice: int) -> None:
    """Advise on whole pages, those at the ends too. A refusal costs time only."""
    madvise = _madvise()
    if madvise is not None and start < stop:
        low = start - start % _PAGE
        madvise(low, stop - low, advice)


@cache
def _madvise() -> Any:
    try:
        found = ctypes.CDLL(None).madvise
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found
