"""The files of the demo's results that Spark has committed.

Spark's file sink writes into the directory at once and lists committed files in `_spark_metadata`, one log file for
each batch (sometimes a `.compact` one that repeats all before it). Files that are not listed are half written, or
belong to a batch that will be repeated.
"""

from __future__ import annotations

import json
from pathlib import Path

_LOG = "_spark_metadata"
_COMPACT = ".compact"


class ResultFiles:
    """The committed files. Each log file is read once."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._logs: set[str] = set()
        self.committed: dict[str, None] = {}

    def update(self) -> None:
        """Look for files committed since the last call."""
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
