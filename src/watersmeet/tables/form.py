"""The sorted copy of a table: pages of rows in Arrow's own layout, mapped, ready to be joined.

A part is an Arrow IPC stream, uncompressed, with a record batch for each page; the catalogue has the place and the
checksum of each. Pages ascend by key; within a page rows ascend by the hash of the key, which is stored first, so
that a page is joined as it lies in the file. Nothing is copied, and a column that is not asked for is not touched.

A page's bytes are verified before they are first parsed in a process. A table of a hundred gigabytes on a state
behind `pyarrow.fs` is fetched part by part, as pages are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from watersmeet.errors import TableError
from watersmeet.kernel.rows import ORDER
from watersmeet.log.cache import CacheFull
from watersmeet.log.files import Files, Storage, open_files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import Catalogue, open_catalogue
from watersmeet.tables.spec import Table

if TYPE_CHECKING:
    from watersmeet.tables.source import Source

FORM = "form"


@dataclass(frozen=True, slots=True)
class FormSource:
    """`place` and `cache` are those of the state; `origin` is None for a DataFrame, which is taken as it was."""

    place: Storage | str
    folder: str
    version: str
    origin: Table | None = None
    cache: str | None = None

    def open(self) -> OpenForm:
        files = open_files(self.place, cache=self.cache)
        return OpenForm(self, files, open_catalogue(files, self.folder))


class OpenForm:
    def __init__(self, source: FormSource, files: Files, catalogue: Catalogue):
        self.schema: pa.Schema = catalogue.schema
        self.index: PageIndex = catalogue.index
        self.version = source.version
        self._source = source
        self._files = files
        self._paths = catalogue.facts.parts
        self._label = catalogue.facts.label
        self._stored = form_schema(catalogue.schema)
        self._part, self._start, self._bytes, self._checksum = (
            catalogue.places.column(name).to_numpy() for name in PLACE_COLUMNS
        )
        self._open: dict[int, pa.Buffer] = {}
        self._is_verified = np.zeros(len(self.index), np.bool_)

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        content = self._content(page)
        if not self._is_verified[page]:
            content = self._verify(page, content)
            self._is_verified[page] = True
        return pa.ipc.read_record_batch(content, self._stored).select([ORDER, *columns])

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for page in pages:
            yield page, self.read(page, columns)

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> None:
        return None

    def newest(self, *, make: bool = True) -> Source | None:
        # Preparing needs the sources, so it is above them.
        from watersmeet.tables.prepare import newest_files

        if self._source.origin is None:
            return None
        return newest_files(
            self._source.origin, self._files, self._source.folder, self._source.cache, make=make
        )

    def close(self) -> None:
        self._open.clear()

    def _content(self, page: int) -> pa.Buffer:
        part = int(self._part[page])
        whole = self._open.get(part)
        if whole is None:
            try:
                whole = self._open[part] = self._mapped(self._paths[part])
            except FileNotFoundError as error:
                raise self._damaged(page, "is missing") from error
        start = int(self._start[page])
        # Beyond the end of a truncated file there is nothing; the checksum then says so.
        return whole.slice(min(start, whole.size), max(min(int(self._bytes[page]), whole.size - start), 0))

    def _mapped(self, path: str) -> pa.Buffer:
        try:
            return self._files.map(path)
        except CacheFull:
            # Parts that were dropped from the cache take up space as long as they are mapped here.
            self._open.clear()
        return self._files.map(path)

    def _verify(self, page: int, content: pa.Buffer) -> pa.Buffer:
        if self._is_whole(page, content):
            return content
        part = int(self._part[page])
        self._open.pop(part, None)
        if self._files.forget_copy(self._paths[part]):
            content = self._content(page)
        if not self._is_whole(page, content):
            raise self._damaged(page, "is damaged: its checksum is not the one written")
        return content

    def _is_whole(self, page: int, content: pa.Buffer) -> bool:
        return bool(xxhash.xxh3_64_intdigest(content) == self._checksum[page])

    def _damaged(self, page: int, problem: str) -> TableError:
        path = self._paths[int(self._part[page])]
        return TableError(
            f"{self._label}: page {page}, in {path} of {self._files.place}, {problem}. Restore the file from a copy, "
            f"or remove the folder {self._source.folder} and start the query from a new `wm.join`: the table is "
            "prepared anew"
        )


# Where a page of a sorted copy is: number of the part, first byte, bytes, checksum.
PLACE_COLUMNS = ("part", "start", "bytes", "checksum")


def form_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a page: the hash of the key, then those of the table."""
    return pa.schema([pa.field(ORDER, pa.uint64(), nullable=False), *schema])
