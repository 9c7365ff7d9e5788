"""A table in a database: pages are ranges of keys, read by one query each.

The bounds of the pages are found once, by a walk over the database's index on the key, and stored in the state. They
say where one page ends and the next begins, and no more: page i has all keys from its first up to the next page's
first, so rows that are added, changed or removed later are found in their page without a new walk. Only when the
table has grown or shrunk by a factor of two are pages cut anew.

Freshness: a page shows what was committed when it was read. Not guaranteed: that two pages show the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.kernel.order import drop_null_keys
from watersmeet.kernel.pages import find_disorder
from watersmeet.kernel.sorted import take_rows
from watersmeet.log.files import Files, open_files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.ahead import one_ahead
from watersmeet.tables.catalogue import Catalogue, find_facts, folder_of, open_catalogue, publish, reuse
from watersmeet.tables.columns import check_keys, conform, normal_keys
from watersmeet.tables.session import Driver, Session
from watersmeet.tables.source import NotPrepared, Progress, Report, no_report
from watersmeet.tables.spec import POSTGRESQL, SQLITE, Table
from watersmeet.tables.sql import Relation
from watersmeet.tables.tuning import pages_together

if TYPE_CHECKING:
    from watersmeet.tables.source import Source

DATABASE = "database"

# The smallest page that is thought of; how many of them make one is measured.
SMALL_PAGE_BYTES = 64 << 10
# Rows looked at to know how wide they are.
_SAMPLE_ROWS = 1_000


class Dialect(Driver, Protocol):
    """What differs between databases."""

    def describe(self, session: Session, table: Table) -> tuple[Relation, pa.Schema]:
        """The table's columns in canonical types, and how SQL speaks of them."""
        ...

    def check_index(self, session: Session, relation: Relation, keys: pa.Schema) -> None:
        """Refuse a table where a range of keys would be found by looking at all rows."""
        ...

    def estimate_rows(self, session: Session, relation: Relation) -> int: ...

    def lookups(
        self, relation: Relation, keys: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Queries that together give the rows with these keys, each with its parameters."""
        ...


def dialect_of(table: Table) -> Dialect:
    from watersmeet.tables.postgresql import PostgreSQL
    from watersmeet.tables.sqlite import SQLite

    assert table.address is not None
    scheme = table.address.scheme
    if scheme in SQLITE:
        return SQLite()
    if scheme in POSTGRESQL:
        return PostgreSQL()
    raise TableError(
        f"{table.label}: {scheme or 'a path'} is no database that is known; the URI begins with sqlite:// or "
        "postgresql://"
    )


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """`place` and `cache` are those of the state, where the index is; `origin` says how to reach the database."""

    place: str
    folder: str
    version: str
    origin: Table
    relation: Relation
    cache: str | None = None

    def open(self) -> OpenDatabase:
        files = open_files(self.place, cache=self.cache)
        return OpenDatabase(self, files, open_catalogue(files, self.folder))


class OpenDatabase:
    def __init__(self, source: DatabaseSource, files: Files, catalogue: Catalogue):
        self.schema: pa.Schema = catalogue.schema
        self.index: PageIndex = catalogue.index
        self.version = source.version
        self._source = source
        self._files = files
        self._dialect = dialect_of(source.origin)
        self._session = session_of(source.origin, self._dialect)

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        lower, upper = page > 0, page + 1 < len(self.index)
        query = self._source.relation.rows_between(columns, lower=lower, upper=upper)
        ends = [self.index.first.slice(at, 1) for at, wanted in ((page, lower), (page + 1, upper)) if wanted]
        return self._rows(self._session.run(query, _parameters(ends)), columns)

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        return one_ahead(lambda page: self.read(page, columns), pages)

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        wanted = _distinct(keys, self.index)
        found = [
            self._rows(self._session.run(query, parameters), columns)
            for query, parameters in self._dialect.lookups(self._source.relation, wanted, columns)
        ]
        return pa.concat_batches([self._none(columns), *found])

    def newest(self, *, make: bool = True) -> Source | None:
        rows = self._dialect.estimate_rows(self._session, self._source.relation)
        newer = _folder(self._source.origin, self.schema, rows)
        if newer == self._source.folder:
            return None
        if not make and find_facts(self._files, newer) is None:
            raise NotPrepared(f"{self._source.origin.label} has changed in size and has no new pages yet")
        return prepare_database(self._source.origin, self._files, no_report, self._source.cache)

    def close(self) -> None:
        self._session.close()

    def _rows(self, result: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
        schema = self._none(columns).schema
        if not columns:
            return pa.RecordBatch.from_pydict({"1": result.column(0).combine_chunks()}).select([])
        batches = [conform(batch, schema, self._source.origin.label) for batch in result.to_batches()]
        return pa.concat_batches([self._none(columns), *batches])

    def _none(self, columns: Sequence[str]) -> pa.RecordBatch:
        schema = pa.schema([self.schema.field(column) for column in columns])
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def session_of(table: Table, dialect: Dialect) -> Session:
    assert table.address is not None
    return Session(dialect, table.address, table.label, table.patience_s)


def _parameters(rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The values of some single rows as one row of parameters."""
    columns = [column for row in rows for column in row.columns]
    if not columns:
        return None
    return pa.RecordBatch.from_arrays(columns, names=[f"p{place}" for place in range(len(columns))])


def _distinct(keys: pa.RecordBatch, index: PageIndex) -> pa.RecordBatch:
    """Each key once, without nulls, by the table's names. Whole numbers of any width can be asked for."""
    columns = [
        column.cast(pa.int64())
        if pa.types.is_integer(column.type)
        else column.cast(pa.float64())
        if pa.types.is_floating(column.type)
        else column.cast(kind)
        for column, kind in zip(keys.columns, index.first.schema.types, strict=True)
    ]
    named = pa.RecordBatch.from_arrays(columns, names=list(index.keys))
    keyed = normal_keys(drop_null_keys(named, index.keys), index.keys)
    unique = pa.Table.from_batches([keyed]).group_by(list(index.keys)).aggregate([]).combine_chunks()
    return unique.to_batches()[0] if unique.num_rows else keyed.slice(0, 0)


def _folder(table: Table, schema: pa.Schema, rows: int) -> str:
    """Named by the size too, in powers of two: a table that has outgrown its pages gets new ones."""
    return folder_of(
        repr(table.address),
        table.table,
        table.keys,
        table.page_rows,
        table.page_bytes,
        schema.to_string(),
        rows.bit_length(),
    )


def prepare_database(table: Table, files: Files, report: Report, cache: str | None) -> DatabaseSource:
    """Look at a table of a database and find the bounds of its pages, there or in the state."""
    dialect = dialect_of(table)
    session = session_of(table, dialect)
    try:
        relation, schema = dialect.describe(session, table)
        check_keys(schema, table.keys, table.label)
        dialect.check_index(session, relation, pa.schema([schema.field(key) for key in table.keys]))
        folder = _folder(table, schema, dialect.estimate_rows(session, relation))
        facts = reuse(files, folder, time.time())
        if facts is None:
            report(Progress(table.label, "finding pages", 0, None))
            index = _find_pages(table, session, relation, schema)
            report(Progress(table.label, "finding pages", int(index.rows.sum()), int(index.rows.sum())))
            places = pa.RecordBatch.from_pydict({})
            facts = publish(files, folder, DATABASE, table.label, index, schema, places)
        return DatabaseSource(files.place, folder, facts.version, table, relation, cache)
    finally:
        session.close()


def _find_pages(table: Table, session: Session, relation: Relation, schema: pa.Schema) -> PageIndex:
    sample = session.run(relation.first_rows(_SAMPLE_ROWS))
    row_bytes = max(1.0, sample.nbytes / max(sample.num_rows, 1))
    step = table.page_rows or max(1, int((table.page_bytes or SMALL_PAGE_BYTES) / row_bytes))
    first, places = _walk(table, session, relation, schema, step)
    if not table.page_rows and not table.page_bytes:
        together = pages_together(
            lambda low, high: _read_between(session, relation, first, low, high), len(places), step
        )
        first, places, step = (
            take_rows(first, np.arange(0, len(places), together)),
            places[::together],
            step * together,
        )
    # What is behind the last bound is not counted; a page's worth is as good a guess as any.
    rows = np.diff(np.append(places, places[-1] + step)) if len(places) else places
    sizes = (rows * row_bytes).astype(np.int64)
    index = PageIndex(table.keys, first, first, rows, sizes, gaps=False)
    _check_order(table, index)
    return index


def _walk(
    table: Table, session: Session, relation: Relation, schema: pa.Schema, step: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Each `step`-th key, and its place."""
    found = session.run(relation.every_nth_key(step)).combine_chunks()
    keys = pa.schema([schema.field(key) for key in table.keys])
    batches = [conform(batch, keys, table.label) for batch in found.to_batches()]
    none = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in keys], schema=keys)
    first = normal_keys(pa.concat_batches([none, *batches]), table.keys)
    places = found.column("__wm_place").to_numpy().astype(np.int64)
    # A key that fills several pages is in one: a range of keys cannot cut it.
    is_new = np.ones(len(places), np.bool_)
    if len(places) > 1:
        is_new[1:] = ~_same_as_before(first)
    return first.filter(pa.array(is_new)), places[is_new]


def _read_between(session: Session, relation: Relation, first: pa.RecordBatch, low: int, high: int) -> int:
    upper = high < first.num_rows
    query = relation.rows_between([name for name, _ in relation.selected], lower=True, upper=upper)
    ends = [first.slice(at, 1) for at in ((low, high) if upper else (low,))]
    return session.run(query, _parameters(ends)).nbytes


def _check_order(table: Table, index: PageIndex) -> None:
    """Refuse a key that the database has in another order than ours: rows would be sought where they are not."""
    page = find_disorder(index)
    if page is not None:
        before, behind = (tuple(row.values()) for row in index.first.slice(page - 1, 2).to_pylist())
        raise TableError(
            f"{table.label}: the database orders {before} before {behind}, which a join does not, so that rows of the "
            f"key {', '.join(table.keys)} would be missed: give the column one type for all its values, or take a "
            "view that casts it, with an index on that expression"
        )


def _same_as_before(keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each row but the first whether it equals the one before: then a page of it alone would continue."""
    each = np.ones(keys.num_rows, np.int64)
    return PageIndex(tuple(keys.schema.names), keys, keys, each, each).continues[:-1]
