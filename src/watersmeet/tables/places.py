"""The place of a table's files: its filesystem, and whether a table format keeps its log there.

Delta, Iceberg and Hudi leave deleted and replaced rows in Parquet files that no longer count; only the log says which
files and rows belong to the table. Reading the files beside the log would return deleted rows, so a directory with a
log is never read as plain Parquet. The log is recognised by its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.tables.spec import Address

# Hadoop's names of schemes, and Arrow's.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}

# Folders of partitions that are looked at. A table has its log above them, unless it is one partition of something
# larger; there may be thousands, and each costs requests to an object store.
_PARTITIONS = 8

_METADATA_SUFFIX = ".metadata.json"


class LogFormat(StrEnum):
    DELTA = "Delta"
    ICEBERG = "Iceberg"
    HUDI = "Hudi"

    @property
    def a_table(self) -> str:
        return f"{'an' if self is LogFormat.ICEBERG else 'a'} {self} table"


_FOLDERS = {"_delta_log": LogFormat.DELTA, ".hoodie": LogFormat.HUDI, "metadata": LogFormat.ICEBERG}


def place_of(address: Address) -> tuple[fs.FileSystem, str]:
    """The filesystem of a table, and the path of its file or directory on it."""
    uri = address.uri
    if not address.scheme and uri.startswith("file:"):
        uri = "/" + uri.removeprefix("file:").lstrip("/")
    if not address.scheme:
        return fs.LocalFileSystem(), str(Path(uri).absolute())
    try:
        filesystem, base = fs.FileSystem.from_uri(plain_uri(address))
    except (pa.ArrowInvalid, OSError) as error:
        # Not `from error`, which may hold the whole URI.
        raise TableError(f"table {address!r} cannot be opened: {address.scrub(str(error))}") from None
    return filesystem, base.rstrip("/")


def plain_uri(address: Address) -> str:
    """The URI of a table with the scheme that Arrow knows. It may hold a credential: not for messages."""
    return _SCHEMES.get(address.scheme, address.scheme) + address.uri[len(address.scheme) :]


@contextmanager
def reading(address: Address, what: str) -> Iterator[None]:
    """Turn what Arrow raises while a place or file is read into a TableError that names it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{what} cannot be read: {address.scrub(str(error))}. Check that it is reachable; if a file was "
            "damaged or replaced, restore it. Then start the query again"
        ) from error


@dataclass(frozen=True, slots=True)
class TableLog:
    """A log that was found: its format, and the directory of its table."""

    format: LogFormat
    table: str


def log_in(filesystem: fs.FileSystem, base: str) -> TableLog | None:
    """The log that makes a directory a table."""
    folders = filesystem.get_file_info([f"{base}/{name}" for name in _FOLDERS])
    for info, kind in zip(folders, _FOLDERS.values(), strict=True):
        is_folder = info.type == fs.FileType.Directory
        if is_folder and (kind != LogFormat.ICEBERG or _has_metadata(filesystem, info.path)):
            return TableLog(kind, base)
    return None


def log_above(filesystem: fs.FileSystem, paths: Iterable[str]) -> TableLog | None:
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


def log_of(path: str) -> TableLog | None:
    """The log that a file or folder is part of, by its path below some directory.

    >>> log_of("sales/_delta_log/00000000000000000000.json")
    TableLog(format=<LogFormat.DELTA: 'Delta'>, table='sales')
    """
    folders = path.split("/")
    for place, folder in enumerate(folders):
        kind = _FOLDERS.get(folder)
        # `metadata` alone is a common name.
        if kind is not None and (kind != LogFormat.ICEBERG or is_metadata(folders[-1])):
            return TableLog(kind, "/".join(folders[:place]))
    return None


def is_metadata(name: str) -> bool:
    """Whether a file is Iceberg's metadata. Compressed it is `x.gz.metadata.json` or `x.metadata.json.gz`."""
    return name.removesuffix(".gz").endswith(_METADATA_SUFFIX)


def _has_metadata(filesystem: fs.FileSystem, folder: str) -> bool:
    listed = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return any(is_metadata(info.base_name) for info in listed)
