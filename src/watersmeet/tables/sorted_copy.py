"""The sorted copy of a table: rows sorted by key, in pages of Arrow's own layout, mapped and joined as they are.

A part is an Arrow IPC stream, uncompressed, with a record batch for each page; the catalogue has the place and the
checksum of each. Pages ascend by key; within a page rows ascend by the hash of the key, which is stored first, so
a page is joined as it lies in the file. Nothing is copied, and a column that is not asked for is not touched. A page
is verified before it is first parsed in a process. Where the state is behind `pyarrow.fs`, parts are fetched when one
of their pages is needed.

DuckDB sorts, within a fixed memory and with a temporary directory, under neutral column names, because it does not
tell `a` from `A`. Pages are cut while its result streams in, so no more than a part is held besides. Rows without a
key are left out: nothing can match them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from watersmeet import failpoints
from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.kernel.pages import find_disorder, key_hashes
from watersmeet.kernel.rows import ORDER, sorted_order, take_rows
from watersmeet.log.cache import CacheFull
from watersmeet.log.codec import checksum
from watersmeet.log.storage import Files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import Catalogue, PagesIn, TableEntry, publish
from watersmeet.tables.columns import conform, no_rows, normal_keys, select_fields
from watersmeet.tables.parquet import Snapshot
from watersmeet.tables.scratch import scratch_folder
from watersmeet.tables.source import OpenTable, Phase, PreparedTable, Report, TableProgress
from watersmeet.tables.spec import PAGE_BYTES, Table

# Rows that are much wider than the mean make a page larger, up to this factor.
_WIDE = 4

# Pages are gathered up to this size before they are written as one file: few files, and little held in memory.
PART_BYTES = 64 << 20

# The memory that DuckDB may use before it writes to its temporary directory.
SORT_BYTES = 1 << 30
# In the background of a Spark worker, whose memory is planned for batches, the sort and the parts take less: a table of
# 400 MB then takes 0.5 GB of private memory instead of 1.0, and as long.
BACKGROUND_SORT_BYTES = 128 << 20
BACKGROUND_PART_BYTES = 32 << 20
# Rows that DuckDB returns at a time.
_SORTED_ROWS = 16_384

# The place of a page.
_PLACES = pa.schema({"part": pa.int64(), "start": pa.int64(), "bytes": pa.int64(), "checksum": pa.uint64()})


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a page: the hash of the key, then those of the table."""
    return pa.schema([pa.field(ORDER, pa.uint64(), nullable=False), *schema])


class OpenSortedCopy(OpenTable):
    def __init__(self, source: PreparedTable, files: Files, catalogue: Catalogue):
        super().__init__(source, files, catalogue)
        self._paths = catalogue.entry.parts
        self._stored = _stored_schema(catalogue.schema)
        self._part, self._start, self._bytes, self._checksum = (
            catalogue.places.column(name).to_numpy() for name in _PLACES.names
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
        """Without a thread: mapped pages need none."""
        for page in pages:
            yield page, self.read(page, columns)

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
        # A truncated file ends too early, which the checksum then shows.
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
            raise self._damaged(page, "is damaged: its checksum does not match")
        return content

    def _is_whole(self, page: int, content: pa.Buffer) -> bool:
        return bool(xxhash.xxh3_64_intdigest(content) == self._checksum[page])

    def _damaged(self, page: int, problem: str) -> TableError:
        path = self._paths[int(self._part[page])]
        return TableError(
            f"{self.label}: page {page}, in {path} of {self._files.place}, {problem}. Restore the file from a copy, "
            f"or remove the folder {self.source.folder} and start the query from a new `wm.join`: the table is "
            "prepared anew"
        )


@dataclass(slots=True)
class _Counter:
    """What came in, counted while DuckDB reads it: all of it, before the first sorted row comes out."""

    rows: int = 0
    bytes: int = 0
    null_rows: int = 0

    def page_rows(self, page_bytes: int) -> int:
        return max(1, page_bytes * self.rows // max(self.bytes, 1))


def write_sorted_copy(
    files: Files,
    folder: str,
    table: Table,
    found: Snapshot,
    report: Report,
    part_bytes: int = PART_BYTES,
    *,
    threads: int | None = None,
    memory_bytes: int = SORT_BYTES,
    check: Callable[[], None] = lambda: None,
) -> TableEntry:
    """Sort the rows of a table, write them page by page into files of about `part_bytes`, and publish the result.

    `check` is called before it is published, and may refuse that. `threads` bounds those of the sort, `memory_bytes`
    the memory that it takes before it writes to a temporary directory.
    """
    counter = _Counter()
    incoming = _counted(found, table, counter, report)
    writer = _PageWriter(files, folder, table.keys, found.schema, part_bytes)
    written = 0
    for page in _pages(_sorted(incoming, found.schema, table, threads, memory_bytes), counter, table):
        writer.add(page)
        written += page.num_rows
        report(TableProgress(table.label, Phase.WRITING, written, counter.rows))
    writer.finish()
    index, places = writer.pages()
    wrong = find_disorder(index)
    if wrong is not None:
        raise TableError(f"{table.label}: page {wrong} came out of the sort in the wrong order")
    check()
    kind, nulls, parts = PagesIn.SORTED_COPY, counter.null_rows, tuple(writer.paths)
    return publish(
        files, folder, kind, table.label, index, found.schema, places, null_rows=nulls, parts=parts
    )


def _counted(found: Snapshot, table: Table, counter: _Counter, report: Report) -> Iterator[pa.RecordBatch]:
    rows_in_all = found.rows()
    for batch in found.batches(table.label):
        keyed = drop_null_keys(batch, table.keys)
        counter.rows += keyed.num_rows
        counter.bytes += keyed.nbytes
        counter.null_rows += batch.num_rows - keyed.num_rows
        report(TableProgress(table.label, Phase.SORTING, counter.rows + counter.null_rows, rows_in_all))
        yield keyed


def _sorted(
    rows: Iterator[pa.RecordBatch], schema: pa.Schema, table: Table, threads: int | None, memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    import duckdb

    failures: list[Exception] = []
    carried = pa.schema([pa.field(f"c{n}", _carrier(f.type)) for n, f in enumerate(schema)])
    order = ", ".join(f"c{schema.get_field_index(key)}" for key in table.keys)
    with scratch_folder() as scratch:
        settings: dict[str, Any] = {
            "memory_limit": f"{memory_bytes}B",
            "temp_directory": scratch,
            "preserve_insertion_order": "false",
            # A sort must not download anything.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        if threads is not None:
            settings["threads"] = threads
        with duckdb.connect(":memory:", config=settings) as connection:
            # Progress is reported here; DuckDB would draw a bar of its own.
            connection.execute("SET enable_progress_bar = false")
            reader = pa.RecordBatchReader.from_batches(carried, _carried(rows, carried, failures))
            connection.register("incoming", reader)
            try:
                result = connection.sql(f"SELECT * FROM incoming ORDER BY {order}")
                for batch in result.to_arrow_reader(_SORTED_ROWS):
                    yield conform(batch.rename_columns(schema.names), schema, table.label)
            except duckdb.Error as error:
                if failures:
                    raise failures[0] from None
                raise TableError(
                    f"{table.label} cannot be sorted: {error}. The sort needs about the table's size in free space in "
                    f"{tempfile.gettempdir()}: free some, or set TMPDIR to another directory"
                ) from error


def _carrier(arrow: pa.DataType) -> pa.DataType:
    """The type in which a column goes through DuckDB, which would turn durations into calendar intervals."""
    return pa.int64() if pa.types.is_duration(arrow) else arrow


def _carried(
    rows: Iterator[pa.RecordBatch], schema: pa.Schema, failures: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """Rows in the types of the carriers. What goes wrong is kept: DuckDB only says that its input failed."""
    try:
        for batch in rows:
            columns = [
                column.view(pa.int64()) if pa.types.is_duration(column.type) else column
                for column in batch.columns
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except Exception as error:
        failures.append(error)
        raise


def _pages(rows: Iterator[pa.RecordBatch], counter: _Counter, table: Table) -> Iterator[pa.RecordBatch]:
    """Cut sorted rows into pages of equal numbers of rows; where rows are very wide, of fewer."""
    page_bytes = table.page_bytes or PAGE_BYTES
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in rows:
        limit = table.page_rows or counter.page_rows(page_bytes)
        limit = max(1, min(limit, _WIDE * page_bytes * batch.num_rows // max(batch.nbytes, 1)))
        start = 0
        while start < batch.num_rows:
            taken = batch.slice(start, max(limit - held_rows, 1))
            held.append(taken)
            held_rows += taken.num_rows
            start += taken.num_rows
            if held_rows >= limit:
                yield pa.concat_batches(held)
                held, held_rows = [], 0
    if held:
        yield pa.concat_batches(held)


class _PageWriter:
    """Write pages into files of bounded size; keep their places and bounds. A file is named by its content, so no two
    can be confused.
    """

    def __init__(self, files: Files, folder: str, keys: tuple[str, ...], schema: pa.Schema, part_bytes: int):
        self.paths: list[str] = []
        self._files, self._folder, self._keys, self._part_bytes = files, folder, keys, part_bytes
        self._stored = _stored_schema(schema)
        self._schema_bytes = self._stored.serialize().size
        self._places: list[dict[str, int]] = []
        self._rows: list[int] = []
        self._bounds = [no_rows(select_fields(schema, keys))]
        self._begin()

    def add(self, page: pa.RecordBatch) -> None:
        """Write the rows of a page, which are sorted by key."""
        if self._sink.tell() >= self._part_bytes:
            self.finish()
            self._begin()
        # Copied: a slice would keep the whole page in memory.
        ends = page.select(list(self._keys)).take(pa.array([0, page.num_rows - 1]))
        self._bounds.append(normal_keys(ends, self._keys))
        self._rows.append(page.num_rows)
        # The writer puts the schema before the first page, together with it.
        start = self._sink.tell() or self._schema_bytes
        self._writer.write_batch(self._hashed(page))
        self._spans.append((start, self._sink.tell()))

    def _hashed(self, page: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a page sorted by the hash of their key, the hash as first column."""
        hashes = key_hashes(page.select(list(self._keys)))
        order = sorted_order(hashes)
        columns = [pa.array(hashes[order]), *take_rows(page, order).columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._stored)

    def finish(self) -> None:
        self._writer.close()
        content = self._sink.getvalue().to_pybytes()
        view = memoryview(content)
        for start, end in self._spans:
            place = (len(self.paths), start, end - start, xxhash.xxh3_64_intdigest(view[start:end]))
            self._places.append(dict(zip(_PLACES.names, place, strict=True)))
        path = f"{self._folder}/part-{len(self.paths):05d}-{checksum(content)}.arrows"
        self._files.publish(path, content)
        failpoints.reach("table-part-written")
        self.paths.append(path)

    def pages(self) -> tuple[PageIndex, pa.RecordBatch]:
        """The index and the place of each page, once all parts are finished."""
        places = pa.RecordBatch.from_pylist(self._places, _PLACES)
        bounds = pa.concat_batches(self._bounds)
        at = np.arange(len(self._rows)) * 2
        first, last = take_rows(bounds, at), take_rows(bounds, at + 1)
        sizes = places.column("bytes").to_numpy()
        return PageIndex(self._keys, first, last, np.array(self._rows, np.int64), sizes), places

    def _begin(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, self._stored)
        self._spans: list[tuple[int, int]] = []
