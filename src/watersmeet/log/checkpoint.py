"""Read Spark's checkpoint: which query it belongs to and which batch comes next.

Only file names, the `metadata` file and the number of sources in the last file of `offsets` are read. A batch is planned
once its number is in `offsets` and done once it is in `commits`. Spark repeats a planned batch that is not done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from watersmeet.errors import StateError
from watersmeet.log.files import open_files
from watersmeet.log.storage import Files


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A query's checkpoint. `query` is None before the first start, `sources` as long as no batch was planned."""

    query: str | None
    next_batch: int
    sources: int | None = None

    @property
    def fresh(self) -> bool:
        """Whether no batch is done yet, so that there can be no state to continue."""
        return self.next_batch == 0


def read_checkpoint(place: str) -> Checkpoint:
    """Read the checkpoint in a directory."""
    files = open_files(place)
    try:
        content = files.read("metadata")
    except FileNotFoundError:
        return Checkpoint(None, 0)
    try:
        query = str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"the checkpoint {files.place} has a damaged metadata file: restore it, or start with a new checkpoint"
        ) from error
    planned, done = _last(files, "offsets"), _last(files, "commits")
    sources = _sources(files.read(f"offsets/{planned}")) if planned >= 0 else None
    return Checkpoint(query, planned if planned > done else done + 1, sources)


def _sources(offsets: bytes) -> int | None:
    """How many sources a file of offsets is of: a line for each behind the version and the settings."""
    version, *lines = offsets.decode().splitlines() or [""]
    return len(lines) - 1 if version == "v1" and lines else None


def _last(files: Files, folder: str) -> int:
    return max((int(info.name) for info in files.entries(folder) if info.name.isdigit()), default=-1)
