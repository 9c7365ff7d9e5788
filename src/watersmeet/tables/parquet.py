"""Parquet tables: their files at one moment, read as a whole or in place, row group by row group.

A table is one file, or all files below a directory except those whose names begin with `_` or `.`, as in Spark.
Folders such as `day=2024-05-01` give a column. Files may differ in columns and in the width of numbers. A directory
that contains a table with a log of its own (`tables/places.py`) is refused, since some of its files may hold deleted
rows; below a folder whose name begins with `_` or `.` nothing is read, so a log there does no harm.

The fingerprint of a table changes when a file is added, removed or rewritten: paths, sizes and times of change. A file
of the same size, rewritten within the resolution of the filesystem's clock, may go unnoticed.

Files are used in place, a row group as a page, if no two row groups overlap in the key. They may touch, where one key
fills several; which file they are in, and the order of their rows, does not matter. Their bounds come from the
statistics where these can be trusted: for one key column that is not a float. Statistics leave out NaN, and those of
several columns do not tell their common order; there the key columns are read, once. A file that was changed since is
refused. The engine checks whether a row group holds keys beyond its statistics, as for every page that was not sorted
here (`engine/kept_table.py`).
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from watersmeet.errors import TableError
from watersmeet.kernel.pages import find_disorder
from watersmeet.kernel.rows import take_rows
from watersmeet.log.codec import checksum
from watersmeet.log.storage import Files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import Catalogue, copy_folder
from watersmeet.tables.columns import bounds, conform, key_order, no_rows, select_fields, table_schema
from watersmeet.tables.places import log_of, place_of, reading
from watersmeet.tables.source import OpenTable, PreparedTable
from watersmeet.tables.spec import Address

if TYPE_CHECKING:
    import pyarrow.dataset as ds

# Rows decoded at a time: some megabytes at usual widths.
_BATCH_ROWS = 32_768
# Decoded batches that wait for the reader, for each file and of files: the defaults hold a gigabyte of wide rows.
_BATCHES_AHEAD, _FILES_AHEAD = 4, 2

# Dates before 1677 and after 2262 do not fit the nanoseconds that Arrow would take for Spark's old timestamps.
_INT96_UNIT = "us"


# A larger row group costs more to decode than the few rows that a batch has for it are worth.
MOST_BYTES = 16 << 20
# Below this mean, opening a row group costs more than decoding it.
FEWEST_ROWS = 256
# Footers and key columns read at the same time: remote files answer slowly, but many at once.
_READERS = 8
# Open files of one table in one process; each has its footer in memory.
_OPEN_FILES = 128

# The place of a page: the numbers of the file and of the row group in it, and the file's size and time of change.
_PLACES = pa.schema({name: pa.int64() for name in ("file", "group", "file_bytes", "file_ns")})

Ends = tuple[pa.RecordBatch, pa.RecordBatch]


class Snapshot(Protocol):
    """All rows of a table of files at one moment, in any order: Parquet files, a Delta version, an Iceberg snapshot."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the rows may have changed. Without credentials."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns in canonical types."""
        ...

    def rows(self) -> int | None:
        """The number of rows; None where only reading them would tell."""
        ...

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        """All rows in the types of the schema. `label` names the table in messages."""
        ...


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
                "rewrite the file that is named, or point to the files of one table only. Files of another format may be "
                "passed as a DataFrame that Spark reads"
            ) from error

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns in canonical types.

        Spark's old timestamps (INT96) are moments in time, but Arrow takes them for local ones.
        """
        fields = table_schema(self.dataset.schema)
        with self.open(0) as parquet:
            moments = int96_columns(parquet)
        utc = pa.timestamp("us", "UTC")
        return pa.schema([field.with_type(utc) if field.name in moments else field for field in fields])

    @property
    def is_partitioned(self) -> bool:
        """Whether some columns are in the folders' names instead of in the files."""
        return any("=" in folder for file in self.files for folder in file.path.split("/")[:-1])

    @contextmanager
    def open(self, file: int, what: str | None = None) -> Iterator[pq.ParquetFile]:
        """One file, by number; `what` names what is read of it in messages."""
        with (
            reading(self.address, what or self.files[file].path),
            open_parquet(self.filesystem, self.paths[file]) as parquet,
        ):
            yield parquet

    def rows(self) -> int:
        with reading(self.address, f"table {self.address!r}"):
            return self.dataset.count_rows()

    def batches(self, label: str) -> Iterator[pa.RecordBatch]:
        """All rows in canonical types."""
        import pyarrow.dataset as ds

        # Arrow holds what it reads in advance of a file until the file is done, which may be all of it. That saves
        # requests to an object store, and nothing on a disk.
        ahead = not isinstance(self.filesystem, fs.LocalFileSystem)
        scanner = self.dataset.scanner(
            batch_size=_BATCH_ROWS,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
            fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=ahead),
        )
        with reading(self.address, label):
            for batch in scanner.to_batches():
                yield conform(batch, self.schema, label)


def open_parquet(filesystem: fs.FileSystem, path: str, *, ahead: bool = False) -> pq.ParquetFile:
    """Open a file that closes with its reader. `ahead` fetches all columns of a row group at once."""
    return pq.ParquetFile(
        path, filesystem=filesystem, pre_buffer=ahead, coerce_int96_timestamp_unit=_INT96_UNIT
    )


def int96_columns(parquet: pq.ParquetFile) -> set[str]:
    """The columns that hold Spark's old timestamps."""
    columns = (parquet.schema.column(place) for place in range(len(parquet.schema.names)))
    return {column.path for column in columns if column.physical_type == "INT96"}


def _one_batch(rows: pa.Table, what: str) -> pa.RecordBatch:
    """The rows of a row group as one batch."""
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise TableError(
            f"{what} cannot be read in one piece: a column holds more than 2 GB. Write the table with smaller row "
            "groups, or set in_place=False: it is then sorted once, into the state"
        )
    return batches[0] if batches else no_rows(rows.schema)


def find_files(address: Address) -> ParquetFiles:
    """All files of a table; a TableError if there is none."""
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
                f"table {address!r} is a directory that contains the {log.format} table {log.table or '.'}: pass the "
                "path of that table. If it does not belong to this one, move it elsewhere"
            )
        if info.is_file and info.size and not _is_below_hidden(path):
            yield DataFile(path, info.size, info.mtime_ns or 0)


def _is_below_hidden(path: str) -> bool:
    return any(_is_hidden(part) for part in path.split("/"))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@dataclass(frozen=True, slots=True)
class InPlace:
    """The index over the row groups of a table, and where each is."""

    index: PageIndex
    places: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group, with the statistics of the first key column if there are any."""

    file: int
    number: int
    rows: int
    bytes: int
    raw_bytes: int
    statistics: Any


def plan_in_place(found: ParquetFiles, keys: Sequence[str], *, insist: bool) -> InPlace | str:
    """The index to use the files in place, or the reason why not. With `insist` any size of row groups will do."""
    if found.is_partitioned:
        return "some of its columns are in the names of its folders"
    with ThreadPoolExecutor(_READERS) as pool:
        listed = pool.map(lambda file: list(_groups(found, file, keys[0])), range(len(found.files)))
        groups = [group for group in itertools.chain.from_iterable(listed) if group.rows]
        reason = None if insist else _unsuited(groups)
        if reason:
            return reason
        ends = list(pool.map(lambda group: _ends(found, group, keys), groups))
    pages = [(group, pair) for group, pair in zip(groups, ends, strict=True) if pair is not None]
    index, ordered = _index(keys, found.schema, pages)
    wrong = find_disorder(index)
    if wrong is not None:
        return f"the keys of {_name(found, ordered[wrong - 1])} and {_name(found, ordered[wrong])} overlap"
    return InPlace(index, _places(found, ordered))


def _groups(found: ParquetFiles, file: int, key: str) -> Iterator[_RowGroup]:
    """The row groups of a file, from its footer."""
    with found.open(file) as parquet:
        footer = parquet.metadata
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        yield _RowGroup(
            file,
            number,
            group.num_rows,
            sum(column.total_compressed_size for column in columns),
            sum(column.total_uncompressed_size for column in columns),
            next((column.statistics for column in columns if column.path_in_schema == key), None),
        )


def _unsuited(groups: Sequence[_RowGroup]) -> str | None:
    largest = max((group.raw_bytes for group in groups), default=0)
    if largest > MOST_BYTES:
        return f"its largest row group has {largest >> 20} MB"
    if len(groups) > 1 and sum(group.rows for group in groups) < FEWEST_ROWS * len(groups):
        return f"its row groups have fewer than {FEWEST_ROWS} rows"
    return None


def _ends(found: ParquetFiles, group: _RowGroup, keys: Sequence[str]) -> Ends | None:
    """The smallest and the largest key of a row group; None if it has none."""
    kind = found.schema.field(keys[0]).type
    trusted = len(keys) == 1 and not pa.types.is_floating(kind)
    if trusted and group.statistics is not None and group.statistics.has_min_max:
        try:
            low, high = (
                pa.RecordBatch.from_arrays([pa.array([value], kind)], names=list(keys))
                for value in (group.statistics.min, group.statistics.max)
            )
            return low, high
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            # Python cannot express the bound, such as a year beyond 9999: read the keys themselves.
            pass
    label = _name(found, group)
    with found.open(group.file, label) as parquet:
        rows = parquet.read_row_group(group.number, columns=list(keys))
    return bounds(conform(_one_batch(rows, label), select_fields(found.schema, keys), label), keys)


def _index(
    keys: Sequence[str], schema: pa.Schema, pages: Sequence[tuple[_RowGroup, Ends]]
) -> tuple[PageIndex, list[_RowGroup]]:
    """The index, with the row groups in the order of their keys."""
    none = no_rows(select_fields(schema, keys))
    first, last = (pa.concat_batches([none, *(ends[end] for _, ends in pages)]) for end in (0, 1))
    order = key_order([*first.columns, *last.columns])
    ordered = [pages[at][0] for at in order]
    rows = np.array([group.rows for group in ordered], np.int64)
    sizes = np.array([group.bytes for group in ordered], np.int64)
    return PageIndex(tuple(keys), take_rows(first, order), take_rows(last, order), rows, sizes), ordered


def _places(found: ParquetFiles, groups: Sequence[_RowGroup]) -> pa.RecordBatch:
    files = [found.files[group.file] for group in groups]
    rows = [
        {"file": group.file, "group": group.number, "file_bytes": file.bytes, "file_ns": file.modified_ns}
        for group, file in zip(groups, files, strict=True)
    ]
    return pa.RecordBatch.from_pylist(rows, _PLACES)


def _name(found: ParquetFiles, group: _RowGroup) -> str:
    return f"row group {group.number} of {found.files[group.file].path}"


class OpenParquet(OpenTable):
    """Parquet files read in place."""

    def __init__(self, source: PreparedTable, files: Files, catalogue: Catalogue):
        super().__init__(source, files, catalogue)
        assert source.origin is not None
        assert source.origin.address is not None
        self._address = source.origin.address
        self._filesystem, _ = place_of(self._address)
        self._paths = catalogue.entry.parts
        self._file, self._group, self._file_bytes, self._file_ns = (
            catalogue.places.column(name).to_numpy() for name in _PLACES.names
        )
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self.most_open = _OPEN_FILES
        self._shares: dict[tuple[object, ...], float] = {}
        self._turn = threading.Lock()

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        # `read_many` reads ahead in a thread; readers of one file take turns.
        with self._turn:
            return self._read(page, columns)

    def _read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        what = f"{self.label}: page {page}, row group {self._group[page]} of {self._path(page)},"
        parquet = self._parquet(page, what)
        present = [column for column in columns if column in parquet.schema_arrow.names]
        with reading(self._address, what):
            # One thread: the tasks of a batch use all cores already.
            group = parquet.read_row_group(int(self._group[page]), columns=present, use_threads=False)
        return conform(_one_batch(group, what), select_fields(self.schema, columns), what)

    @property
    def copy_folder(self) -> str:
        # Asked for in place, it stays there.
        return "" if self.source.origin and self.source.origin.in_place else copy_folder(self.source.folder)

    def decoded_bytes(self, page: int, columns: Sequence[str]) -> int:
        """By the share that these columns have in the first row group of the file: others are alike.

        That is a share of what comes out: time goes with it rather than with what compression left.
        """
        file = int(self._file[page])
        share = self._shares.get((file, *columns))
        if share is None:
            with self._turn:
                footer = self._parquet(page, self.label).metadata.row_group(0)
            sizes = [footer.column(place) for place in range(footer.num_columns)]
            wanted = set(columns)
            # A nested column is stored as several, whose paths begin with its name.
            read = sum(
                one.total_uncompressed_size for one in sizes if one.path_in_schema.split(".")[0] in wanted
            )
            whole = sum(one.total_uncompressed_size for one in sizes)
            share = self._shares[(file, *columns)] = read / max(whole, 1)
        return round(share * int(self.index.bytes[page]))

    def close(self) -> None:
        with self._turn:
            while self._open:
                self._open.popitem()[1].close()

    def _path(self, page: int) -> str:
        return self._paths[int(self._file[page])]

    def _parquet(self, page: int, what: str) -> pq.ParquetFile:
        number = int(self._file[page])
        found = self._open.get(number)
        if found is None:
            self._check_file(page, what)
            with reading(self._address, what):
                found = self._open[number] = open_parquet(self._filesystem, self._path(page))
            if len(self._open) > self.most_open:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return found

    def _check_file(self, page: int, what: str) -> None:
        with reading(self._address, what):
            info = self._filesystem.get_file_info(self._path(page))
        seen = (info.size, info.mtime_ns or 0) if info.is_file else None
        if seen != (self._file_bytes[page], self._file_ns[page]):
            problem = "was removed" if seen is None else "was changed"
            raise TableError(
                f"{what} cannot be read: the file {problem} since the table was opened. Call wm.join again and "
                "start that; set refresh= to have changes seen while it runs, and keep removed files until "
                "they have been"
            )
