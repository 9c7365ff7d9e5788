"""Stored queries by key, as sorted runs that are merged when many are of one size.

Equal ones are one entry with a count, where a node would have as many copies. What a tuple triggers is a few slices
of each run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from papers.rjoin.sim.workload import Ints

# Runs of about one size before they are merged: each entry is then sorted a few times in all.
_FAN_IN = 6
# Longer runs stay apart: merging takes as much memory again.
_LONGEST = 8_000_000
# Eight-way joins leave tens of millions of entries: each is stored in as few bytes as it needs.
_STORED: dict[str, type[np.signedinteger[Any] | np.unsignedinteger[Any]]] = {
    "key": np.uint16,
    "query": np.uint16,
    "word": np.int64,
    "start": np.uint16,
    "count": np.int32,
}


@dataclass(frozen=True, slots=True)
class Entries:
    """Queries in flight or stored: under a key, of an input query, its word, the start of its window, and how many.

    An input query has no window yet; its start is 0.
    """

    key: Ints
    query: Ints
    word: Ints
    start: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.key)

    def take(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Entries:
        return Entries(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def packed(self) -> Entries:
        """In order of the keys, and small."""
        for field in fields(self):
            column = getattr(self, field.name)
            if len(column) and column.max() > np.iinfo(_STORED[field.name]).max:
                raise OverflowError(f"{field.name} {column.max()} does not fit into {_STORED[field.name]}")
        order = np.argsort(self.key, kind="stable")
        return Entries(*(getattr(self, f.name)[order].astype(_STORED[f.name]) for f in fields(self)))

    def wide(self) -> Entries:
        """As numbers to compute with."""
        return Entries(*(getattr(self, field.name).astype(np.int64) for field in fields(self)))


def joined(parts: Iterable[Entries]) -> Entries:
    found = list(parts)
    if len(found) == 1:
        return found[0]
    return Entries(*(np.concatenate([getattr(part, f.name) for part in found]) for f in fields(Entries)))


def merged(entries: Entries) -> Entries:
    """Equal entries as one, in order of their keys."""
    if not len(entries):
        return entries
    # Keys, queries and starts are small, so one number holds them.
    head = (entries.key << 40) | (entries.query << 20) | entries.start
    order = np.lexsort((entries.word, head))
    head, word = head[order], entries.word[order]
    first = np.flatnonzero(np.concatenate([[True], (head[1:] != head[:-1]) | (word[1:] != word[:-1])]))
    found = entries.take(order[first])
    counts = np.add.reduceat(entries.count[order], first)
    return Entries(found.key, found.query, found.word, found.start, counts)


class Store:
    def __init__(self) -> None:
        self._runs: list[Entries] = []

    def add(self, entries: Entries) -> None:
        if len(entries):
            self._runs.append(entries.packed())
            self._merge()

    def under(self, keys: Ints) -> Entries:
        """All entries under these keys, which are sorted."""
        parts = []
        wanted = keys.astype(_STORED["key"])
        for run in self._runs:
            low = np.searchsorted(run.key, wanted)
            sizes = np.searchsorted(run.key, wanted, side="right") - low
            total = int(sizes.sum())
            if total:
                ends = np.cumsum(sizes)
                parts.append(run.take(np.arange(total) + np.repeat(low - (ends - sizes), sizes)))
        return joined(parts).wide() if parts else EMPTY

    def drop(self, oldest: int) -> None:
        """Forget rewritten queries whose window began before this."""
        kept = (run.take((run.start == 0) | (run.start >= oldest)) for run in self._runs)
        self._runs = [run for run in kept if len(run)]

    def by_key(self, keys: int) -> Ints:
        """Queries with a window, by key."""
        found = np.zeros(keys, np.int64)
        for run in self._runs:
            rewritten = run.start > 0
            found += np.bincount(run.key[rewritten], run.count[rewritten], keys).astype(np.int64)
        return found

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def _merge(self) -> None:
        """Runs that are long enough stand first; the others are merged when many are of one size."""
        while len(self._runs) >= _FAN_IN:
            last = self._runs[-_FAN_IN:]
            if len(last[-1]) * _FAN_IN <= len(last[0]) or sum(map(len, last)) > _LONGEST:
                return
            self._runs[-_FAN_IN:] = [joined(last).packed()]


EMPTY = Entries(*(np.zeros(0, np.int64) for _ in fields(Entries)))
