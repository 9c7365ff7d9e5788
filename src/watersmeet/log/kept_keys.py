"""Keep the merged keys of a run's sections between batches (log/runs.py says what they are for)."""

from __future__ import annotations

from watersmeet.kernel.rows import MERGED_ROW_BYTES, MergedKeys
from watersmeet.model.facts import KeyRange

# A run, the wanted sections, and the range of keys.
_Wanted = tuple[str, tuple[range, ...] | None, KeyRange]


class KeptKeys:
    """Merged keys of sections, by what was wanted, within a limit of bytes.

    Those that this batch or the one before used are never given up for others. If they were, tasks that take turns in
    one process would merge everything anew in every batch.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._kept: dict[_Wanted, MergedKeys] = {}
        self._used: dict[_Wanted, int] = {}
        self._bytes = 0
        self._batch = 0
        # The last batch in which keys were given up: once in a batch is enough.
        self._swept = -1
        self._alive: frozenset[str] = frozenset()

    def get(self, wanted: _Wanted) -> MergedKeys | None:
        found = self._kept.get(wanted)
        if found is not None:
            self._used[wanted] = self._batch
        return found

    def has_room(self, rows: int) -> bool:
        """Whether the keys of some more rows may be kept. Gives up those that were not used of late."""
        need = rows * MERGED_ROW_BYTES
        if self._bytes + need > self._limit and self._swept != self._batch:
            self._swept = self._batch
            for wanted in [one for one, batch in self._used.items() if batch < self._batch - 1]:
                self._drop(wanted)
        return self._bytes + need <= self._limit

    def keep(self, wanted: _Wanted, merged: MergedKeys) -> MergedKeys:
        self._kept[wanted], self._used[wanted] = merged, self._batch
        self._bytes += merged.nbytes
        return merged

    def forget_all_but(self, alive: frozenset[str]) -> None:
        if alive == self._alive:
            return
        # Every batch with rows has other runs.
        self._batch, self._alive = self._batch + 1, alive
        for wanted in [one for one in self._kept if one[0] not in alive]:
            self._drop(wanted)

    def _drop(self, wanted: _Wanted) -> None:
        self._bytes -= self._kept.pop(wanted).nbytes
        del self._used[wanted]
