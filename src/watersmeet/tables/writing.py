"""Write the sorted copy of a table: rows sorted by key out of core, cut into pages, written part by part.

DuckDB sorts, within a fixed memory and with a temporary directory, under neutral column names, because it does not
tell `a` from `A`. Pages are cut while its result streams in, so no more than a part is held besides. Rows without a
key are left out: nothing can match them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from watersmeet import failpoints
from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.kernel.pages import find_disorder, key_hashes
from watersmeet.kernel.rows import take_rows
from watersmeet.log.codec import checksum
from watersmeet.log.files import Files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import TableFacts, publish
from watersmeet.tables.columns import conform, normal_keys
from watersmeet.tables.form import FORM, PLACE_COLUMNS, form_schema
from watersmeet.tables.source import Progress, Report

# A page of the sorted copy; see docs/adr/006-tables.md for what other sizes cost.
PAGE_BYTES = 512 << 10
# Rows that are much wider than the mean make a page larger, up to so many times.
_WIDE = 4

# Pages are gathered up to this size before they are written as one file: few files, and little held in memory.
PART_BYTES = 64 << 20

# What DuckDB may use before it writes to its temporary directory.
SORT_BYTES = 1 << 30
# Rows that it gives out at a time.
_SORTED_ROWS = 16_384


@dataclass(slots=True)
class _Counter:
    """What came in, counted while DuckDB reads it: all of it, before the first sorted row comes out."""

    rows: int = 0
    bytes: int = 0
    null_rows: int = 0

    def page_rows(self, page_bytes: int) -> int:
        return max(1, page_bytes * self.rows // max(self.bytes, 1))


def write_form(
    files: Files,
    folder: str,
    label: str,
    rows: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    keys: Sequence[str],
    report: Report,
    *,
    rows_in_all: int | None = None,
    page_rows: int | None = None,
    page_bytes: int | None = None,
) -> TableFacts:
    """Sort rows of this schema, write the sorted copy, and publish it."""
    counter = _Counter()
    incoming = _counted(rows, keys, counter, label, rows_in_all, report)
    parts = _Parts(files, folder, form_schema(schema))
    bounds = _Bounds(tuple(keys), schema)
    written = 0
    for page in _pages(_sorted(incoming, schema, keys, label), counter, page_rows, page_bytes or PAGE_BYTES):
        bounds.add(page)
        parts.add(_hashed(page, keys, parts.schema))
        written += page.num_rows
        report(Progress(label, "writing", written, counter.rows))
    parts.finish()
    places = parts.places()
    index = bounds.index(places.column("bytes"))
    wrong = find_disorder(index)
    if wrong is not None:
        raise TableError(f"{label}: page {wrong} came out of the sort in the wrong order")
    return publish(
        files,
        folder,
        FORM,
        label,
        index,
        schema,
        places,
        null_rows=counter.null_rows,
        parts=tuple(parts.paths),
    )


def _counted(
    rows: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    counter: _Counter,
    label: str,
    rows_in_all: int | None,
    report: Report,
) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        keyed = drop_null_keys(batch, keys)
        counter.rows += keyed.num_rows
        counter.bytes += keyed.nbytes
        counter.null_rows += batch.num_rows - keyed.num_rows
        report(Progress(label, "sorting", counter.rows + counter.null_rows, rows_in_all))
        yield keyed


def _sorted(
    rows: Iterator[pa.RecordBatch], schema: pa.Schema, keys: Sequence[str], label: str
) -> Iterator[pa.RecordBatch]:
    import duckdb

    failures: list[Exception] = []
    carried = pa.schema([pa.field(f"c{n}", _carrier(f.type)) for n, f in enumerate(schema)])
    order = ", ".join(f"c{schema.get_field_index(key)}" for key in keys)
    with tempfile.TemporaryDirectory(prefix="watersmeet-sort-") as scratch:
        settings = {
            "memory_limit": f"{SORT_BYTES}B",
            "temp_directory": scratch,
            "preserve_insertion_order": "false",
            # Nothing is fetched from anywhere while a table is sorted.
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            # We report progress; DuckDB would draw a bar of its own.
            connection.execute("SET enable_progress_bar = false")
            reader = pa.RecordBatchReader.from_batches(carried, _carry_all(rows, carried, failures))
            connection.register("incoming", reader)
            try:
                result = connection.sql(f"SELECT * FROM incoming ORDER BY {order}")
                for batch in result.to_arrow_reader(_SORTED_ROWS):
                    yield conform(batch.rename_columns(schema.names), schema, label)
            except duckdb.Error as error:
                if failures:
                    raise failures[0] from None
                raise TableError(
                    f"{label} cannot be sorted: {error}. The sort needs about the table's size in free space in "
                    f"{tempfile.gettempdir()}: free some, or set TMPDIR to another directory"
                ) from error


def _carrier(arrow: pa.DataType) -> pa.DataType:
    """The type in which a column goes through DuckDB, which would turn durations into calendar intervals."""
    return pa.int64() if pa.types.is_duration(arrow) else arrow


def _carry_all(
    rows: Iterator[pa.RecordBatch], carried: pa.Schema, failures: list[Exception]
) -> Iterator[pa.RecordBatch]:
    """What goes wrong here is kept: DuckDB says of it only that its input failed."""
    try:
        for batch in rows:
            yield _carry(batch, carried)
    except Exception as error:
        failures.append(error)
        raise


def _carry(batch: pa.RecordBatch, carried: pa.Schema) -> pa.RecordBatch:
    columns = [
        column.view(field.type) if pa.types.is_duration(column.type) else column
        for column, field in zip(batch.columns, carried, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def _pages(
    rows: Iterator[pa.RecordBatch], counter: _Counter, page_rows: int | None, page_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Cut sorted rows into pages of equal numbers of rows; where rows are very wide, of fewer."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in rows:
        limit = page_rows or counter.page_rows(page_bytes)
        limit = max(1, min(limit, _WIDE * page_bytes * batch.num_rows // max(batch.nbytes, 1)))
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, max(limit - held_rows, 1))
            held.append(piece)
            held_rows += piece.num_rows
            start += piece.num_rows
            if held_rows >= limit:
                yield pa.concat_batches(held)
                held, held_rows = [], 0
    if held:
        yield pa.concat_batches(held)


def _hashed(page: pa.RecordBatch, keys: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """A page's rows by the hash of the key, the hash first."""
    hashes = key_hashes(page.select(list(keys)))
    order = np.argsort(hashes, kind="stable")
    rows = take_rows(page, order)
    return pa.RecordBatch.from_arrays([pa.array(hashes[order]), *rows.columns], schema=schema)


class _Parts:
    """Writes pages into files of bounded size; a file is named by its content, so no two can be confused."""

    def __init__(self, files: Files, folder: str, schema: pa.Schema):
        self.schema = schema
        self.paths: list[str] = []
        self._schema_bytes = schema.serialize().size
        self._files, self._folder = files, folder
        self._places: list[tuple[int, int, int, int]] = []
        self._begin()

    def add(self, page: pa.RecordBatch) -> None:
        if self._sink.tell() >= PART_BYTES:
            self.finish()
            self._begin()
        # The writer puts the schema before the first page, together with it.
        self._starts.append(self._sink.tell() or self._schema_bytes)
        self._writer.write_batch(page)
        self._ends.append(self._sink.tell())

    def finish(self) -> None:
        self._writer.close()
        content = self._sink.getvalue().to_pybytes()
        view = memoryview(content)
        self._places += [
            (len(self.paths), start, end - start, xxhash.xxh3_64_intdigest(view[start:end]))
            for start, end in zip(self._starts, self._ends, strict=True)
        ]
        path = f"{self._folder}/part-{len(self.paths):05d}-{checksum(content)}.arrows"
        self._files.publish(path, content)
        failpoints.reach("table-part-written")
        self.paths.append(path)

    def places(self) -> pa.RecordBatch:
        """Where each page is, once all parts are finished."""
        columns = zip(*self._places, strict=True) if self._places else ((),) * len(PLACE_COLUMNS)
        types = (pa.int64(), pa.int64(), pa.int64(), pa.uint64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(PLACE_COLUMNS))

    def _begin(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, self.schema)
        self._starts: list[int] = []
        self._ends: list[int] = []


class _Bounds:
    """First and last key of the pages so far."""

    def __init__(self, keys: tuple[str, ...], schema: pa.Schema):
        self._keys = keys
        self._rows: list[int] = []
        self._ends = [
            pa.RecordBatch.from_arrays([pa.array([], schema.field(key).type) for key in keys], names=keys)
        ]

    def add(self, page: pa.RecordBatch) -> None:
        # Copied: a slice would keep the whole page in memory.
        ends = page.select(list(self._keys)).take(pa.array([0, page.num_rows - 1]))
        self._ends.append(normal_keys(ends, self._keys))
        self._rows.append(page.num_rows)

    def index(self, sizes: pa.Array) -> PageIndex:
        ends = pa.concat_batches(self._ends)
        at = np.arange(len(self._rows)) * 2
        return PageIndex(
            self._keys,
            take_rows(ends, at),
            take_rows(ends, at + 1),
            np.array(self._rows, np.int64),
            sizes.to_numpy(),
        )
