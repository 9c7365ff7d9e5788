"""The demo's results as they come out: the files that Spark has committed.

Spark's file sink writes into the directory at once and lists what counts in `_spark_metadata`, one file for
each batch (now and then a `.compact` one that repeats all before it). Files that are not listed are half
written, or of a batch that will be repeated.
"""

from __future__ import annotations

import json
from pathlib import Path

_LOG = "_spark_metadata"
_COMPACT = ".compact"


class ResultFiles:
    """Reads each file of the log once, however often it is asked."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._logs: set[str] = set()
        self.committed: dict[str, None] = {}

    def update(self) -> None:
        """Look for files committed since the last time."""
        for log in self._new_logs():
            # The first line is the version of the format.
            for line in log.read_text().splitlines()[1:]:
                self.committed[json.loads(line)["path"].removeprefix("file://")] = None
            self._logs.add(log.name)

    def _new_logs(self) -> list[Path]:
        try:
            found = [p for p in (self._folder / _LOG).iterdir() if p.name.removesuffix(_COMPACT).isdigit()]
        except FileNotFoundError:
            return []
        return sorted(p for p in found if p.name not in self._logs)
