"""Parquet files read as they are: a row group is a page.

A file that was changed since the index was made is refused. Whether a row group holds keys beyond what its statistics
say is for whoever joins it to check, as for every page that was not sorted here (`engine/kept_table.py`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import TableError
from watersmeet.log.files import Files, Storage, open_files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.ahead import one_ahead
from watersmeet.tables.catalogue import Catalogue, open_catalogue
from watersmeet.tables.columns import conform
from watersmeet.tables.parquet_files import one_batch, open_file, place_of, reading
from watersmeet.tables.row_groups import PLACE_COLUMNS
from watersmeet.tables.spec import Table

if TYPE_CHECKING:
    from watersmeet.tables.source import Source

PARQUET = "parquet"

# Open files of one table in one process; each has its footer in memory.
_OPEN_FILES = 128


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """`place` and `cache` are those of the state, where the index is; `origin` says where the files are."""

    place: Storage | str
    folder: str
    version: str
    origin: Table
    cache: str | None = None

    def open(self) -> OpenParquet:
        files = open_files(self.place, cache=self.cache)
        return OpenParquet(self, files, open_catalogue(files, self.folder))


class OpenParquet:
    def __init__(self, source: ParquetSource, files: Files, catalogue: Catalogue):
        assert source.origin.address is not None
        self.schema: pa.Schema = catalogue.schema
        self.index: PageIndex = catalogue.index
        self.version = source.version
        self._source = source
        self._files = files
        self._paths = catalogue.facts.parts
        self._label = catalogue.facts.label
        self._address = source.origin.address
        self._filesystem, _ = place_of(self._address)
        self._file, self._group, self._file_bytes, self._file_ns = (
            catalogue.places.column(name).to_numpy() for name in PLACE_COLUMNS
        )
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._turn = threading.Lock()

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        # A page may be on its way ahead of its use; readers of one file take turns.
        with self._turn:
            return self._read(page, columns)

    def _read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        what = f"{self._label}: page {page}, row group {self._group[page]} of {self._path(page)},"
        parquet = self._parquet(page, what)
        present = [column for column in columns if column in parquet.schema_arrow.names]
        with reading(self._address, what):
            # One thread: the tasks of a batch use all cores already.
            group = parquet.read_row_group(int(self._group[page]), columns=present, use_threads=False)
        schema = pa.schema([self.schema.field(column) for column in columns])
        return conform(one_batch(group, what), schema, what)

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        return one_ahead(lambda page: self.read(page, columns), pages)

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> None:
        return None

    def newest(self, *, make: bool = True) -> Source | None:
        # Preparing needs the sources, so it is above them.
        from watersmeet.tables.prepare import newest_files

        return newest_files(
            self._source.origin, self._files, self._source.folder, self._source.cache, make=make
        )

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
                found = self._open[number] = open_file(self._filesystem, self._path(page))
            if len(self._open) > _OPEN_FILES:
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
                "start that; set refresh= to have changes seen while it runs, and keep removed files until they have been"
            )
