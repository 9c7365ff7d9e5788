"""Parquet files read as they are: a row group is a page.

A row group that holds keys beyond what its statistics say is refused when it is first read with its keys, and so is
a file that was changed since the index was made. Not guaranteed: that a row group which is never read is as it says.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import TableError
from watersmeet.kernel.lookup import check_page
from watersmeet.log.files import Files, open_files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.ahead import one_ahead
from watersmeet.tables.catalogue import Catalogue, open_catalogue
from watersmeet.tables.columns import conform
from watersmeet.tables.parquet_files import open_file, place_of, unreadable
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

    place: str
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
        self._is_checked = np.zeros(len(self.index), np.bool_)
        self._turn = threading.Lock()

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        # A page may be on its way ahead of its use; readers of one file take turns.
        with self._turn:
            return self._read(page, columns)

    def _read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        what = f"{self._label}: page {page}, row group {self._group[page]} of {self._path(page)},"
        parquet = self._parquet(page, what)
        present = [column for column in columns if column in parquet.schema_arrow.names]
        try:
            # One thread: the tasks of a batch use all cores already.
            group = parquet.read_row_group(int(self._group[page]), columns=present, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self._address, what, error) from error
        schema = pa.schema([self.schema.field(column) for column in columns])
        rows = conform(_one_batch(group), schema, what)
        if not self._is_checked[page] and set(self.index.keys) <= set(columns):
            check_page(self.index, page, rows)
            self._is_checked[page] = True
        return rows

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
            try:
                found = self._open[number] = open_file(self._filesystem, self._path(page))
            except (pa.ArrowException, OSError) as error:
                raise unreadable(self._address, what, error) from error
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return found

    def _check_file(self, page: int, what: str) -> None:
        info = self._filesystem.get_file_info(self._path(page))
        seen = (info.size, info.mtime_ns or 0) if info.is_file else None
        if seen != (self._file_bytes[page], self._file_ns[page]):
            problem = "was removed" if seen is None else "was changed"
            raise TableError(
                f"{what} cannot be read: the file {problem} since the table was opened. Start the query again; set "
                "refresh= to have changes seen while it runs, and keep removed files until they have been"
            )


def _one_batch(rows: pa.Table) -> pa.RecordBatch:
    batches = rows.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
