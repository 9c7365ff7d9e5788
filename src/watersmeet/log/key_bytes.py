"""The keys of a remote run without its rows.

A planner looks keys up in every live run, but a task joins rows of few of them. So the order keys, which are one
stretch of the file, have a checksum of their own, and a planner whose machine does not hold a run fetches these bytes
alone. Whatever is wrong with them, the run is then read as a whole: that tells a damaged copy from a damaged file.

A run that is cut into sections is not searched by planners, so its keys have no checksum of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from watersmeet.errors import StateError
from watersmeet.kernel.keys import Keys
from watersmeet.log.codec import checksum
from watersmeet.log.names import keys_copy
from watersmeet.log.storage import Files
from watersmeet.model.facts import Run

KEY_BYTES = 8


class KeyReader:
    """The keys of runs that are not on this machine, mapped from copies of their own. One for each `RunReader`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: dict[str, Keys] = {}

    def read(self, run: Run, expected: Callable[[], Iterable[Run]]) -> Keys | None:
        """The keys of a run, fetched together with those of all `expected` runs; None if they cannot be had alone."""
        if run.path not in self._open:
            self._fetch(expected())
        if run.path not in self._open:
            self._fetch([run])
        return self._open.get(run.path)

    def forget_all_but(self, alive: frozenset[str]) -> None:
        """Unmap the keys of runs that are no longer live or have left the cache: only that frees their disk space."""
        for path in [p for p in self._open if p not in alive or not self._files.has_copy(keys_copy(p))]:
            del self._open[path]

    def forget_all(self) -> None:
        self._open.clear()

    def _fetch(self, runs: Iterable[Run]) -> None:
        wanted = {run.path: run for run in runs if run.keys_checksum and run.path not in self._open}
        missing = [run for run in wanted.values() if not self._files.has_copy(run.path)]
        for run, keys in zip(missing, self._files.each(self._verified, missing), strict=True):
            if keys is not None:
                self._open[run.path] = keys

    def _verified(self, run: Run) -> Keys | None:
        try:
            content = self._files.map_keys(run.path, run.keys_at, KEY_BYTES * run.rows)
        except (FileNotFoundError, StateError):
            return None
        if content.size != KEY_BYTES * run.rows or checksum(content) != run.keys_checksum:
            self._files.forget_copy(run.path)
            return None
        return np.frombuffer(content, np.uint64)
