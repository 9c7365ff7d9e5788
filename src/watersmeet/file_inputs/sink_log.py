"""Read which files of a directory count, if Spark's file sink writes it.

A batch of the sink that failed leaves files behind, and its next attempt writes the same rows to others. Only the log
in `_spark_metadata` says which files count, so such a directory is listed from its log, as Spark's own readers do.

The log has a file for each batch, `0`, `1`, ...; every tenth, `9.compact`, repeats all that came before. The first line
is a version, each other line a file as JSON. A batch is read once: later calls read only what was added.
"""

from __future__ import annotations

import json
import re
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from watersmeet.errors import FileError

SINK_LOG = "_spark_metadata"

_VERSION = "v1"
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_BATCH = re.compile(r"([0-9]+)(\.compact)?")


class SinkLog:
    """The names that a sink's log has, added to from call to call."""

    def __init__(self, filesystem: fs.FileSystem, base: str):
        self._filesystem = filesystem
        self._base = base
        self._read = -1
        self._names: set[str] = set()

    def names(self) -> set[str]:
        """The names of all files that count."""
        for batch, name in self._unread():
            self._add(name)
            self._read = batch
        return self._names

    def _unread(self) -> list[tuple[int, str]]:
        """The batches to read, in order: from the last compact one on, or from where the last call ended."""
        chosen = fs.FileSelector(f"{self._base}/{SINK_LOG}", allow_not_found=True)
        names = [info.base_name for info in self._filesystem.get_file_info(chosen) if info.is_file]
        found = sorted(
            (int(match[1]), match[2] is not None, name)
            for name in names
            if (match := _BATCH.fullmatch(name)) and int(match[1]) > self._read
        )
        compact = max((batch for batch, whole, _ in found if whole), default=-1)
        # A compact batch may stand beside the plain one of the same number, which it repeats.
        return [
            (batch, name) for batch, whole, name in found if batch > compact or (batch == compact and whole)
        ]

    def _add(self, name: str) -> None:
        path = f"{self._base}/{SINK_LOG}/{name}"
        with self._filesystem.open_input_stream(path, compression=None) as source:
            version, *lines = source.read().decode().splitlines() or [""]
        if version != _VERSION:
            raise FileError(
                f"the log of Spark's file sink has the version {version!r} in {path}, and {_VERSION} is "
                "known: read the "
                "directory as a DataFrame, with spark.readStream"
            )
        for fact in map(json.loads, filter(None, lines)):
            self._apply(fact, path)

    def _apply(self, fact: dict[str, object], path: str) -> None:
        written = str(fact["path"])
        plain = unquote(urlsplit(written).path) if _URI.match(written) else written
        parent, _, name = plain.rpartition("/")
        if parent.rpartition("/")[2] != self._base.rpartition("/")[2]:
            raise FileError(
                f"{path} names {written}, which is in a folder of its own: a sink with partitionBy wrote it. Read the "
                "directory as a DataFrame, with spark.readStream"
            )
        if fact.get("action", "add") == "delete":
            self._names.discard(name)
        else:
            self._names.add(name)
