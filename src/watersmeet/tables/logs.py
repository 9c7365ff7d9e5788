"""Where tables have a log of their own: Delta, Iceberg and Hudi, told by the folder that holds it.

These formats keep deleted and replaced rows in Parquet files that no longer count; only the log says which files and
which rows belong to the table. To read the files beside the log would return deleted rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

DELTA, ICEBERG, HUDI = "Delta", "Iceberg", "Hudi"

# Folders of partitions that are looked at. A table has its log above them, unless it is one partition of something
# larger; there may be thousands, and each costs requests to an object store.
_PARTITIONS = 8

METADATA_SUFFIX = ".metadata.json"

_FOLDERS = {"_delta_log": DELTA, ".hoodie": HUDI, "metadata": ICEBERG}


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was found: its format, and the directory of its table."""

    kind: str
    table: str


def log_in(filesystem: fs.FileSystem, base: str) -> Log | None:
    """The log that makes a directory a table."""
    folders = filesystem.get_file_info([f"{base}/{name}" for name in _FOLDERS])
    for info, kind in zip(folders, _FOLDERS.values(), strict=True):
        if info.type == fs.FileType.Directory and (kind != ICEBERG or _has_metadata(filesystem, info.path)):
            return Log(kind, base)
    return None


def log_above(filesystem: fs.FileSystem, paths: Iterable[str]) -> Log | None:
    """The log of a table that one of these paths is inside.

    Folders that cannot be looked at are passed over: rights are often given for one prefix only.
    """
    for folder in _folders_above(paths):
        with suppress(OSError, pa.ArrowException):
            found = log_in(filesystem, folder)
            if found is not None:
                return found
    return None


def _folders_above(paths: Iterable[str]) -> list[str]:
    """The folders that may hold a log, the longest first.

    Of the folders that end with partitions (`day=1/hour=2`) only the first few are among them.
    """
    direct = {path.rstrip("/").rpartition("/")[0] for path in paths}
    tables = {_without_partitions(folder) for folder in direct}
    partitions = sorted(_with_parents(direct) - _with_parents(tables))[:_PARTITIONS]
    return sorted([*_with_parents(tables), *partitions], key=lambda folder: (-len(folder), folder))


def _without_partitions(folder: str) -> str:
    parent, _, name = folder.rpartition("/")
    while "=" in name:
        folder = parent
        parent, _, name = folder.rpartition("/")
    return folder


def _with_parents(folders: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for folder in folders:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def log_of(path: str) -> Log | None:
    """The log that a file or folder is part of, by its path below some directory.

    >>> log_of("sales/_delta_log/00000000000000000000.json")
    Log(kind='Delta', table='sales')
    """
    folders = path.split("/")
    for place, folder in enumerate(folders):
        kind = _FOLDERS.get(folder)
        # `metadata` alone is a common name.
        if kind is not None and (kind != ICEBERG or is_metadata(folders[-1])):
            return Log(kind, "/".join(folders[:place]))
    return None


def is_metadata(name: str) -> bool:
    """Whether a file is Iceberg's metadata. Compressed it is `x.gz.metadata.json` or `x.metadata.json.gz`."""
    return name.removesuffix(".gz").endswith(METADATA_SUFFIX)


def _has_metadata(filesystem: fs.FileSystem, folder: str) -> bool:
    listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return any(is_metadata(info.base_name) for info in listed)
