"""Keep at most a number of bytes of some files in memory: a limit for a process, where no control group can be made.

After a batch the pages of the files that are in memory are counted (mincore). If they are more than the limit, stretches of
four megabytes are dropped in random order until they are not: from the process's own mappings (madvise, MADV_DONTNEED) and from
the page cache (posix_fadvise). What a real limit would do besides, inside a batch, is not done. Both are in favour of the
join that reads more: it may fill memory while a batch runs, and a page of it is as likely to stay as one that is needed.

Linux only. The files must be ours, and mapped for reading only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PAGE = mmap.PAGESIZE
# The kernel drops what it keeps together as a whole or not at all: that is up to two megabytes, aligned.
STRETCH_BYTES = 4 << 20
# Takes the pages out of the mapping. They are of files that nobody writes to, so they are read again when they are needed.
_DONTNEED = 4
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass
class Residency:
    """The files below a folder, of which at most `limit_bytes` stay in memory."""

    folder: Path
    limit_bytes: int
    seed: int = 1
    dropped_bytes: int = 0
    _synced: set[str] = field(default_factory=set)

    def enforce(self) -> int:
        """Drop what is too much; the bytes in memory before that."""
        files = [Path(root) / name for root, _, names in os.walk(self.folder) for name in names]
        stretches = [one for path in files for one in self._resident(path)]
        before = sum(size for _, _, size in stretches)
        excess = before - self.limit_bytes
        if excess <= 0:
            return before
        random.Random(self.seed).shuffle(stretches)
        self.seed += 1
        mappings = _own_mappings(self.folder)
        for path, start, size in stretches:
            if excess <= 0:
                break
            self._drop(path, start, mappings.get(str(path), []))
            excess -= size
            self.dropped_bytes += size
        return before

    def _resident(self, path: Path) -> Iterator[tuple[Path, int, int]]:
        """The stretches of a file that are in memory: where each begins, and its bytes there."""
        try:
            pages = resident_pages(path)
        except FileNotFoundError:
            return
        step = STRETCH_BYTES // PAGE
        held = np.frombuffer(pages, np.uint8) & 1
        counts = np.add.reduceat(held.astype(np.int64), np.arange(0, len(held), step)) if len(held) else held
        for number in np.flatnonzero(counts).tolist():
            yield path, number * STRETCH_BYTES, int(counts[number]) * PAGE

    def _drop(self, path: Path, start: int, mappings: list[tuple[int, int]]) -> None:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            if str(path) not in self._synced:
                # A page that is not written yet cannot be dropped.
                os.fdatasync(handle)
                self._synced.add(str(path))
            for address, size in mappings:
                length = min(STRETCH_BYTES, size - start)
                if length > 0:
                    _LIBC.madvise(address + start, length, _DONTNEED)
            os.posix_fadvise(handle, start, STRETCH_BYTES, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def resident_pages(path: Path) -> bytes:
    """A byte for each page of a file; its lowest bit says whether the page is in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        if not size:
            return b""
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), f"{path} cannot be mapped")
        try:
            pages = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
            if _LIBC.mincore(address, size, pages):
                raise OSError(ctypes.get_errno(), f"mincore of {path} failed")
            return pages.raw
        finally:
            _LIBC.munmap(address, size)
    finally:
        os.close(handle)


def _own_mappings(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """Where this process has whole files of a folder mapped: address and bytes."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(str(folder)) and int(fields[2], 16) == 0:
            start, end = (int(one, 16) for one in fields[0].split("-"))
            found[fields[5]].append((start, end - start))
    return found
