"""Find keys in one index of a hub: in each of its runs, or in a copy of them all that is made for one batch.

Queries of many shapes seek most rows of a batch in most indexes, and few of them are found. If the keys that were sought
in an index are many beside its entries, its runs are merged in memory: every key then costs one search instead of one
for each run, need not be sorted first, and most absent keys are told apart by a look at a table (kernel/key_table.py).
It is made after as many lookups in the runs as would have paid for it. So a batch of few rows never pays for a long
history, and one of many rows at most twice what it must.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from watersmeet.kernel.gather import numbered
from watersmeet.kernel.key_table import KeyTable, key_table
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.match import Matches, expand, matches_of
from watersmeet.kernel.rows import Keyed, merge_order
from watersmeet.model.signature import LOCATOR

# To copy an entry takes 13 to 39 ns. In the copy a key costs 80 to 220 ns less than in three to nine runs.
ENTRIES_FOR_A_KEY: Final = 4
# What an entry of a copy takes: its key, its number, and 16 to 32 slots of the table.
_ENTRY_BYTES: Final = 48
# Ten indexes of ten streams take 100 MB with 20,000 rows each. What does not fit is looked up in the runs.
MOST_COPIED_BYTES: Final = 256 << 20


@dataclass(slots=True)
class CopyRoom:
    """What copies of a batch may yet take in memory."""

    left_bytes: int = MOST_COPIED_BYTES

    def has(self, size: int) -> bool:
        """Whether a copy fits. If so, its room is taken."""
        fits = size <= self.left_bytes
        self.left_bytes -= size if fits else 0
        return fits


@dataclass(frozen=True, slots=True)
class _Copy:
    """All entries of an index in one order, and a table of their keys."""

    table: KeyTable
    keys: Keys
    numbers: Keys


class Lookups:
    """Looks keys up in the runs of one index, and counts them."""

    def __init__(self, runs: Sequence[Keyed], room: CopyRoom) -> None:
        self._runs, self._room = runs, room
        self._entries = sum(map(len, runs))
        self._sought = 0
        self._copy: _Copy | None = None

    def find(self, keys: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
        """The places of the keys that are found, in any order, and the numbers of rows; at most `limit` at a time."""
        if not len(keys) or not self._entries:
            return
        self._sought += len(keys)
        worth = self._entries <= ENTRIES_FOR_A_KEY * self._sought
        if self._copy is None and worth and self._room.has(self._entries * _ENTRY_BYTES):
            self._copy = self._copied()
        yield from self._in_runs(keys, limit) if self._copy is None else _in_copy(self._copy, keys, limit)

    def _copied(self) -> _Copy:
        keys, order = merge_order([run.keys for run in self._runs])
        numbers = np.concatenate([_numbers(run) for run in self._runs])[order]
        return _Copy(key_table([keys]), keys, numbers)

    def _in_runs(self, keys: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
        sought, key_of = numbered(keys)
        for run in self._runs:
            at = matches_of(sought, run.keys)
            if not len(at.found):
                continue
            start, rows = np.zeros(len(sought), np.int64), np.zeros(len(sought), np.int64)
            start[at.found], rows[at.found] = at.start, at.rows
            found = np.flatnonzero(rows[key_of])
            mine = key_of[found]
            yield from _entries(Matches(found, start[mine], rows[mine]), _numbers(run), limit)


def _in_copy(copy: _Copy, keys: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
    likely = copy.table.likely(keys)
    at = matches_of(keys[likely], copy.keys)
    yield from _entries(Matches(likely[at.found], at.start, at.rows), copy.numbers, limit)


def _entries(at: Matches, numbers: Keys, limit: int) -> Iterator[tuple[Indices, Keys]]:
    for place, entry in expand(*at, limit):
        yield place, numbers[entry]


def _numbers(run: Keyed) -> Keys:
    found: Keys = run.rows.column(LOCATOR).to_numpy().view(np.uint64)
    return found
