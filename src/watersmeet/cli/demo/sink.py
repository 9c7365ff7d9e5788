"""The demo's results as they come out: the files that Spark has committed, and the heaviest symbols in them.

Spark's file sink writes into the directory at once and lists what counts in `_spark_metadata`, one file for
each batch (now and then a `.compact` one that repeats all before it). Files that are not listed are half
written, or of a batch that will be repeated.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

_LOG = "_spark_metadata"
_COMPACT = ".compact"


class ResultFiles:
    """Reads each file once, however often it is asked."""

    def __init__(self, folder: Path, key: str):
        self._folder = folder
        self._key = key
        self._logs: set[str] = set()
        self._counts: Counter[str] = Counter()
        self.committed: dict[str, None] = {}

    def heaviest(self, limit: int) -> list[tuple[str, int]]:
        """The keys with the most results so far."""
        for path in self.update():
            counted = pc.value_counts(pq.read_table(path, columns=[self._key]).column(self._key))
            for item in counted:
                self._counts[item["values"].as_py()] += item["counts"].as_py()
        return self._counts.most_common(limit)

    def update(self) -> list[str]:
        """The files committed since the last time."""
        new: dict[str, None] = {}
        for log in self._new_logs():
            # The first line is the version of the format.
            for line in log.read_text().splitlines()[1:]:
                path = json.loads(line)["path"].removeprefix("file://")
                if path not in self.committed:
                    new[path] = None
            self._logs.add(log.name)
        self.committed |= new
        return list(new)

    def _new_logs(self) -> list[Path]:
        try:
            found = [p for p in (self._folder / _LOG).iterdir() if p.name.removesuffix(_COMPACT).isdigit()]
        except FileNotFoundError:
            return []
        return sorted(p for p in found if p.name not in self._logs)
