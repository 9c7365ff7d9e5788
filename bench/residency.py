"""Keep at most a number of bytes of some files in memory: a limit for a process, where no control group can be made.

After a batch the pages of the files that are in memory are counted (mincore). If they are more than the limit, those that
were unused for longest are dropped (posix_fadvise), as the kernel does under a limit. What the process itself used in a batch
is seen in its page table (/proc/self/pagemap): all its mappings are taken out of that after every batch (madvise,
MADV_DONTNEED), which leaves the pages in memory. Pages that were read ahead and never used go first, those of a file that
is new last.

The kernel keeps pages together in folios of up to two megabytes, and drops such a folio as a whole or not at all. So pieces of
64 KB are dropped first, as far as they go, and then whole stretches.

What a real limit would do besides, inside a batch, is not done. That is in favour of the join that reads more: it may fill
memory while a batch runs.

Linux only. The files must be ours, and mapped for reading only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
# A page fault maps what is in memory around the page, aligned.
PIECE_BYTES = 64 << 10
# The largest folio, and more: it may lie across.
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


Numbers = npt.NDArray[np.int64]


@dataclass
class Residency:
    """The files below a folder, of which at most `limit_bytes` stay in memory."""

    folder: Path
    limit_bytes: int
    dropped_bytes: int = 0
    _turn: int = 0
    # By file: the last turn in which each piece was used, 0 if it never was.
    _used: dict[Path, Numbers] = field(default_factory=dict)
    _synced: set[Path] = field(default_factory=set)

    def enforce(self) -> int:
        """Drop what is too much; the bytes in memory before that."""
        self._turn += 1
        mappings = _own_mappings(self.folder)
        held = self._held()
        self._used = {path: self._last_used(path, len(mine), mappings) for path, mine in held.items()}
        for address, size in (one for mine in mappings.values() for one in mine):
            _LIBC.madvise(address, size, _DONTNEED)
        before = now = _bytes_of(held)
        for step in (PIECE_BYTES, STRETCH_BYTES):
            if now > self.limit_bytes:
                self._drop_oldest(held, now - self.limit_bytes, step // PIECE_BYTES)
                held = self._held()
                now = _bytes_of(held)
        self.dropped_bytes += before - now
        return before

    def _held(self) -> dict[Path, Numbers]:
        """The pages in memory of each piece of each file."""
        found = {}
        for path in (Path(root) / name for root, _, names in os.walk(self.folder) for name in sorted(names)):
            try:
                pages = np.frombuffer(resident_pages(path), np.uint8) & 1
            except FileNotFoundError:
                continue
            found[path] = _by(pages.astype(np.int64), PIECE_BYTES // PAGE, np.add)
        return found

    def _last_used(self, path: Path, pieces: int, mappings: dict[str, list[tuple[int, int]]]) -> Numbers:
        used = self._used.get(path)
        if used is None or len(used) != pieces:
            return np.full(pieces, self._turn)
        for address, size in mappings.get(str(path), []):
            touched = _by(_mapped_pages(address, size), PIECE_BYTES // PAGE, np.maximum)
            used[: len(touched)][touched > 0] = self._turn
        return used

    def _drop_oldest(self, held: dict[Path, Numbers], excess: int, pieces: int) -> None:
        """Drop stretches of so many pieces, those that were unused for longest first."""
        paths = list(held)
        counts = [_by(mine, pieces, np.add) for mine in held.values()]
        used = [_by(self._used[path], pieces, np.maximum) for path in paths]
        sizes = np.concatenate(counts) * PAGE
        order = np.argsort(np.concatenate(used), kind="stable")
        order = order[sizes[order] > 0]
        chosen = np.zeros(len(sizes), bool)
        chosen[order[: int(np.searchsorted(np.cumsum(sizes[order]), excess)) + 1]] = True
        ends = np.cumsum([len(mine) for mine in counts])
        for path, mine in zip(paths, np.split(chosen, ends[:-1]), strict=True):
            # Neighbours in one call: a folio is dropped only if all of it is.
            edges = np.flatnonzero(np.diff(np.concatenate([[False], mine, [False]]))).reshape(-1, 2)
            for first, end in (edges * pieces * PIECE_BYTES).tolist():
                self._drop(path, first, end - first)

    def _drop(self, path: Path, start: int, size: int) -> None:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            if path not in self._synced:
                # A page that is not written yet cannot be dropped.
                os.fdatasync(handle)
                self._synced.add(path)
            os.posix_fadvise(handle, start, size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _by(values: Numbers, step: int, how: np.ufunc) -> Numbers:
    """Values put together by so many."""
    if not len(values):
        return values
    found: Numbers = how.reduceat(values, np.arange(0, len(values), step))
    return found


def _bytes_of(held: dict[Path, Numbers]) -> int:
    return int(sum(mine.sum() for mine in held.values())) * PAGE


def _mapped_pages(address: int, size: int) -> Numbers:
    """Which pages of a mapping are in the page table of this process: 1 or 0 each."""
    with Path("/proc/self/pagemap").open("rb", buffering=0) as table:
        table.seek(address // PAGE * 8)
        entries = np.frombuffer(table.read(-(-size // PAGE) * 8), np.uint64)
    return (entries >> np.uint64(63)).astype(np.int64)


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
