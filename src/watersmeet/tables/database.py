"""A table in a database: pages are ranges of keys, read by one query each.

The bounds of the pages are found once, by a walk over the database's index on the key, and stored in the state. They
say where one page ends and the next begins, and no more: page i has all keys from its first up to the next page's
first, so rows that are added, changed or removed later are found in their page without a new walk. Only a table that has
outgrown its pages (tables/cutting.py) gets new ones, at a refresh or a start, in the folder that follows the old one.

How many rows a page has is learnt from each read, so that keys of a page that has grown are looked up from then on.

Freshness: a page shows what was committed when it was read. Not guaranteed: that two pages show the same moment; and,
between refreshes, that a page is read in bounded memory for the first time since it has grown.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.log.files import Files, Storage, open_files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.ahead import one_ahead
from watersmeet.tables.catalogue import (
    Catalogue,
    drop_orphans,
    find_facts,
    folder_of,
    open_catalogue,
    publish,
    reuse,
)
from watersmeet.tables.columns import check_keys, conform, normal_keys
from watersmeet.tables.cutting import Cut, ends_of, find_pages, first_of_equals, is_outgrown
from watersmeet.tables.session import Driver, Session
from watersmeet.tables.source import NotPrepared, Progress, Report, no_report
from watersmeet.tables.spec import POSTGRESQL, SQLITE, Table
from watersmeet.tables.sql import Relation

if TYPE_CHECKING:
    from watersmeet.tables.source import Source

DATABASE = "database"


class Dialect(Driver, Protocol):
    """What differs between databases."""

    def describe(self, session: Session, table: Table) -> tuple[Relation, pa.Schema]:
        """The table's columns in canonical types, and how SQL speaks of them."""
        ...

    def check_index(self, session: Session, relation: Relation, keys: pa.Schema) -> None:
        """Refuse a table where a range of keys would be found by looking at all rows."""
        ...

    def estimate_rows(self, session: Session, relation: Relation) -> int:
        """About as many as there are now, without looking at every row of a large table if that can be."""
        ...

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

    place: Storage | str
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
        # Its rows are learnt; those of the catalogue stay what they were.
        self.index: PageIndex = dataclasses.replace(catalogue.index, rows=catalogue.index.rows.copy())
        self.version = source.version
        self._catalogue = catalogue
        self._source = source
        self._files = files
        self._dialect = dialect_of(source.origin)
        self._session = session_of(source.origin, self._dialect)

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        lower, upper, parameters = ends_of(self.index.first, page, page + 1)
        query = self._source.relation.rows_between(columns, lower=lower, upper=upper)
        result = self._session.run(query, parameters)
        self.index.rows[page] = result.num_rows
        return self._rows(result, columns)

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
        relation = self._source.relation
        rows = self._dialect.estimate_rows(self._session, relation)
        if not _is_outgrown(self._session, relation, self._catalogue, rows):
            return None
        return prepare_database(self._source.origin, self._files, no_report, self._source.cache, make=make)

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


def _distinct(keys: pa.RecordBatch, index: PageIndex) -> pa.RecordBatch:
    """Each key once, in order as an index has them, without nulls, by the table's names. Whole numbers of any width can be asked for."""
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
    # By number: a name that begins with a dot would be taken for a path.
    places = [str(place) for place in range(keyed.num_columns)]
    order = pc.sort_indices(keyed.rename_columns(places), [(place, "ascending") for place in places])
    ordered = keyed.take(order)
    return ordered.filter(pa.array(first_of_equals(ordered)))


def _is_outgrown(session: Session, relation: Relation, catalogue: Catalogue, rows: int) -> bool:
    return is_outgrown(session, relation, catalogue.index, Cut.from_places(catalogue.places), rows)


def prepare_database(
    table: Table, files: Files, report: Report, cache: str | None, *, make: bool = True
) -> DatabaseSource:
    """Look at a table of a database and find the bounds of its pages, there or in the state.

    Without `make` only in the state; NotPrepared if bounds that fit are not there.
    """
    dialect = dialect_of(table)
    session = session_of(table, dialect)
    try:
        relation, schema = dialect.describe(session, table)
        check_keys(schema, table.keys, table.label)
        dialect.check_index(session, relation, pa.schema([schema.field(key) for key in table.keys]))
        rows = dialect.estimate_rows(session, relation)
        folder = _folder(table, schema)
        # Each start comes by the same folders, and so to the pages that another one has cut.
        while find_facts(files, folder) is not None and _is_outgrown(
            session, relation, open_catalogue(files, folder), rows
        ):
            folder = folder_of(folder)
        facts = reuse(files, folder, time.time())
        if facts is None:
            if not make:
                raise NotPrepared(f"{table.label} has outgrown its pages and has no new ones yet")
            report(Progress(table.label, "finding pages", 0, None))
            index, cut = find_pages(table, session, relation, schema, rows)
            report(Progress(table.label, "finding pages", int(index.rows.sum()), int(index.rows.sum())))
            facts = publish(files, folder, DATABASE, table.label, index, schema, cut.to_places(len(index)))
        drop_orphans(files, folder, facts, time.time())
        return DatabaseSource(files.storage, folder, facts.version, table, relation, cache)
    finally:
        session.close()


def _folder(table: Table, schema: pa.Schema) -> str:
    return folder_of(
        repr(table.address), table.table, table.keys, table.page_rows, table.page_bytes, schema.to_string()
    )
