"""The files of a Parquet table: found, named, and read as one.

A table is one file, or all files below a directory but those whose names begin with `_` or `.`, as Spark takes them;
folders such as `day=2024-05-01` give a column. Files may differ in columns and in the width of numbers. A directory
that contains a table with a log of its own (`tables/logs.py`) is refused: some of its files may be deleted rows.
Below a folder whose name begins with `_` or `.` nothing is read, so a log there does no harm.

Its fingerprint changes when a file is added, removed or rewritten: paths, sizes and times of change. Not guaranteed:
that a file of the same size, rewritten within the resolution of the filesystem's clock, is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.log.codec import checksum
from watersmeet.tables.address import Address
from watersmeet.tables.columns import conform, table_type
from watersmeet.tables.logs import log_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

# Hadoop says s3a where everybody else says s3.
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}

# Rows decoded at a time: some megabytes at usual widths.
_BATCH_ROWS = 32_768
# Decoded batches that wait for the reader, for each file and of files: the defaults hold a gigabyte of wide rows.
_BATCHES_AHEAD, _FILES_AHEAD = 4, 2

# Dates before 1677 and after 2262 do not fit the nanoseconds that Arrow would take for Spark's old timestamps.
_INT96_UNIT = "us"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file as it was found; `path` is below the table's directory, or the file's own name."""

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True)
class ParquetFiles:
    """The files of a table at one moment, in order of their paths."""

    address: Address
    filesystem: fs.FileSystem
    base: str
    files: tuple[DataFile, ...]

    @property
    def fingerprint(self) -> str:
        return checksum(repr((repr(self.address), self.files)).encode())

    @property
    def paths(self) -> list[str]:
        return [f"{self.base}/{file.path}" for file in self.files]

    @cached_property
    def dataset(self) -> ds.FileSystemDataset:
        # It loads pandas, 0.3 s of every worker's start, and a worker reads pages only.
        import pyarrow.dataset as ds

        parquet = ds.ParquetFileFormat(coerce_int96_timestamp_unit=_INT96_UNIT)
        options = ds.FileSystemFactoryOptions(
            partitioning=ds.HivePartitioning.discover(), partition_base_dir=self.base
        )
        try:
            factory = ds.FileSystemDatasetFactory(self.filesystem, self.paths, parquet, options)
            return factory.finish(factory.inspect(promote_options="permissive", fragments=None))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
            raise TableError(
                f"table {self.address!r} cannot be read as Parquet: {self.address.scrub(str(error))}. Remove or "
                "rewrite the file that is named, or point to the files of one table only"
            ) from error

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns in canonical types.

        Spark's old timestamps (INT96) are moments in time, but Arrow takes them for local ones.
        """
        columns = self.dataset.schema
        with reading(self.address, self.files[0].path), open_parquet(self, 0) as parquet:
            physical = parquet.schema
        moments = {
            column.path
            for column in (physical.column(place) for place in range(len(physical.names)))
            if column.physical_type == "INT96"
        }
        return pa.schema(
            [
                pa.field(f.name, pa.timestamp("us", "UTC") if f.name in moments else table_type(f.type))
                for f in columns
            ]
        )

    @property
    def is_partitioned(self) -> bool:
        """Whether some columns are in the folders' names instead of in the files."""
        return any("=" in folder for file in self.files for folder in file.path.split("/")[:-1])

    def rows(self) -> int:
        with reading(self.address, f"table {self.address!r}"):
            return self.dataset.count_rows()

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        """All rows in canonical types."""
        scanner = self.dataset.scanner(
            batch_size=_BATCH_ROWS, batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD
        )
        with reading(self.address, label):
            for batch in scanner.to_batches():
                yield conform(batch, self.schema, label)


def open_parquet(found: ParquetFiles, file: int) -> pq.ParquetFile:
    return open_file(found.filesystem, found.paths[file])


def open_file(filesystem: fs.FileSystem, path: str) -> pq.ParquetFile:
    """A file that closes with the reader."""
    return pq.ParquetFile(
        path, filesystem=filesystem, pre_buffer=False, coerce_int96_timestamp_unit=_INT96_UNIT
    )


@contextmanager
def reading(address: Address, what: str) -> Iterator[None]:
    """Where a place or a file may fail: what Arrow then raises comes out as a TableError that says what was read."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{what} cannot be read: {address.scrub(str(error))}. Check that it is reachable; if a file was "
            "damaged or replaced, put it right. Then start the query again"
        ) from error


def one_batch(rows: pa.Table, what: str) -> pa.RecordBatch:
    """A row group as it was read, in one piece."""
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise TableError(
            f"{what} cannot be read in one piece: a column holds more than 2 GB. Write the table with smaller row "
            "groups, or set in_place=False: it is then sorted once, into the state"
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)


def find_files(address: Address) -> ParquetFiles:
    """All files of a table, or a TableError if there is none."""
    filesystem, base = place_of(address)
    with reading(address, f"table {address!r}"):
        info = filesystem.get_file_info(base)
    if info.type == fs.FileType.NotFound:
        raise TableError(f"table {address!r} is not there: check the path, and that this machine can see it")
    if info.is_file:
        parent, _, name = base.rpartition("/")
        return ParquetFiles(address, filesystem, parent, (DataFile(name, info.size, info.mtime_ns or 0),))
    with reading(address, f"table {address!r}"):
        found = sorted(_data_files(address, filesystem, base), key=lambda file: file.path)
    if not found:
        raise TableError(
            f"table {address!r} is a directory without Parquet files: check the path (names that begin with _ or . "
            "are passed over)"
        )
    return ParquetFiles(address, filesystem, base, tuple(found))


def _data_files(address: Address, filesystem: fs.FileSystem, base: str) -> Iterator[DataFile]:
    for info in filesystem.get_file_info(fs.FileSelector(base, recursive=True)):
        path = info.path.removeprefix(base).lstrip("/")
        log = log_of(path)
        if log is not None and not _is_below_hidden(log.table):
            raise TableError(
                f"table {address!r} is a directory that contains the {log.kind} table {log.table or '.'}: pass the "
                "path of that table. If it does not belong to this one, move it elsewhere"
            )
        if info.is_file and info.size and not _is_below_hidden(path):
            yield DataFile(path, info.size, info.mtime_ns or 0)


def _is_below_hidden(path: str) -> bool:
    return any(_is_hidden(part) for part in path.split("/"))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def place_of(address: Address) -> tuple[fs.FileSystem, str]:
    """The filesystem of a table, and the path of its file or directory there."""
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
