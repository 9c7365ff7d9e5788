"""A table in a database: pages are ranges of keys, read by one query each.

The bounds of the pages are every n-th key, found once by a walk over the database's index on the key, and stored in the
state. They only say where one page ends and the next begins: page i has all keys from its first up to the next page's
first, page 0 also all below, the last page also all above. So rows that are added, changed or removed later are found
in their page without a new walk, and an empty table has one page for all that will come. A key that fills several pages
is in one, since a range of keys cannot cut it. The bounds must ascend in the order of a join, or the table is refused:
keys would be searched for in the wrong page.

Pages are cut anew, at a refresh or a start, when they no longer fit (`_is_outgrown`): the table has twice or half the
rows, by the same estimate as then, or much of it was added at one end of the key order, as where keys ascend in time
and old rows are removed. New pages are in the folder that follows the old one. How many rows a page has is learnt from
each read, so that keys of a page that has grown are looked up from then on.

A page shows what was committed when it was read. Not guaranteed: that two pages show the same moment; that a page that
has grown since the last refresh is read in bounded memory the first time; that growth in the middle is seen where
the database estimates its size badly (a view). Rows that are added during the walk are merely in larger pages.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.kernel.pages import find_disorder
from watersmeet.kernel.rows import take_rows
from watersmeet.log.storage import Files
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import (
    Catalogue,
    PagesIn,
    drop_orphans,
    find_entry,
    folder_of,
    open_catalogue,
    publish,
    reuse,
)
from watersmeet.tables.columns import (
    check_keys,
    conform,
    first_of_equals,
    no_rows,
    normal_keys,
    select_fields,
    sort_keys,
    zero_key,
)
from watersmeet.tables.dialects import dialect_of
from watersmeet.tables.source import (
    NotPrepared,
    OpenTable,
    Phase,
    PreparedTable,
    Report,
    TableProgress,
    no_report,
)
from watersmeet.tables.spec import PAGE_BYTES, Table
from watersmeet.tables.sql import DatabaseSession, Dialect, SqlTable

# Rows read to estimate their width: one first, then more by this factor, since a row may have megabytes.
_SAMPLE_ROWS, _SAMPLE_GROWTH = 1_000, 8
_SAMPLE_BYTES = 8 << 20

# Bounds that are found for each page of the default size, and of which one is kept: the more are compared, the surer it
# is noticed that the database orders keys otherwise than a join.
_BOUNDS_PER_PAGE = 8

# A table whose number of rows has changed by this factor gets new pages.
_GROWN = 2
# So does one whose first or last page has grown by this factor, and to this part of the table: a walk reads all keys,
# so a batch of new rows must not be enough for one.
_END_GROWN, _END_PART = 4, 1 / 16


class OpenDatabase(OpenTable):
    def __init__(self, source: PreparedTable, files: Files, catalogue: Catalogue):
        super().__init__(source, files, catalogue)
        assert source.origin is not None
        assert source.relation is not None
        self._table, self._relation, self._catalogue = source.origin, source.relation, catalogue
        # The rows of its pages are learnt; those of the catalogue stay as they were.
        self.index = dataclasses.replace(catalogue.index, rows=catalogue.index.rows.copy())
        self._dialect = dialect_of(self._table)
        self._session = _session_of(self._table, self._dialect)

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        lower, upper, parameters = _ends_of(self.index.first, page)
        result = self._session.run(self._relation.rows_between(columns, lower=lower, upper=upper), parameters)
        self.index.rows[page] = result.num_rows
        return self._rows(result, columns)

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        wanted = _distinct(keys, self.index)
        found = [
            self._rows(self._session.run(query, parameters), columns)
            for query, parameters in self._dialect.lookups(self._relation, wanted, columns)
        ]
        return pa.concat_batches([no_rows(select_fields(self.schema, columns)), *found])

    def newest(self, *, make: bool = True) -> PreparedTable | None:
        rows = self._dialect.estimate_rows(self._session, self._relation)
        if not _is_outgrown(self._session, self._relation, self._catalogue, rows):
            return None
        return prepare_database(self._table, self._files, no_report, self.source.cache, make=make)

    def close(self) -> None:
        self._session.close()

    def _rows(self, result: pa.Table, columns: Sequence[str]) -> pa.RecordBatch:
        if not columns:
            return pa.RecordBatch.from_pydict({"1": result.column(0).combine_chunks()}).select([])
        return _conform_all(result, select_fields(self.schema, columns), self._table.label)


def _conform_all(result: pa.Table, schema: pa.Schema, label: str) -> pa.RecordBatch:
    """A query's result as one batch."""
    return pa.concat_batches(
        [no_rows(schema), *(conform(batch, schema, label) for batch in result.to_batches())]
    )


def _session_of(table: Table, dialect: Dialect) -> DatabaseSession:
    assert table.address is not None
    return DatabaseSession(dialect, table.address, table.label, table.patience_s)


def _distinct(keys: pa.RecordBatch, index: PageIndex) -> pa.RecordBatch:
    """Each key once, in ascending order, without nulls, by the table's names.

    Numbers keep their value, whatever the column's width: one that does not fit it matches nothing.
    """
    columns = [
        column.cast(_wide(column.type, kind))
        for column, kind in zip(keys.columns, index.first.schema.types, strict=True)
    ]
    named = pa.RecordBatch.from_arrays(columns, names=list(index.keys))
    return sort_keys(normal_keys(drop_null_keys(named, index.keys), index.keys))


def _wide(given: pa.DataType, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(given):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(given) else kind


def describe_database(table: Table) -> pa.Schema:
    """The columns of a table of a database."""
    dialect = dialect_of(table)
    session = _session_of(table, dialect)
    try:
        _, schema = dialect.describe(session, table)
        check_keys(schema, table.keys, table.label)
        return schema
    finally:
        session.close()


def prepare_database(
    table: Table, files: Files, report: Report, cache: str | None, *, make: bool = True
) -> PreparedTable:
    """Check a table of a database, and find the bounds of its pages in the state or by a walk.

    Without `make` there is no walk: if the state has no bounds that fit, NotPrepared is raised.
    """
    dialect = dialect_of(table)
    session = _session_of(table, dialect)
    try:
        relation, schema = dialect.describe(session, table)
        check_keys(schema, table.keys, table.label)
        dialect.check_index(session, relation, select_fields(schema, table.keys))
        rows = dialect.estimate_rows(session, relation)
        folder = folder_of(repr(table.address), table.table, *table.layout, schema.to_string())
        # Each start walks along the same folders, and so finds pages that another one has cut.
        while find_entry(files, folder) is not None and _is_outgrown(
            session, relation, open_catalogue(files, folder), rows
        ):
            folder = folder_of(folder)
        entry = reuse(files, folder, time.time())
        if entry is None:
            if not make:
                raise NotPrepared(f"{table.label} has outgrown its pages and has no new ones yet")
            report(TableProgress(table.label, Phase.FINDING_PAGES, 0, None))
            index, cut = _find_pages(table, session, relation, schema, rows)
            found = int(index.rows.sum())
            report(TableProgress(table.label, Phase.FINDING_PAGES, found, found))
            places = cut.to_places(len(index))
            entry = publish(files, folder, PagesIn.DATABASE, table.label, index, schema, places)
        drop_orphans(files, folder, entry, time.time())
        return PreparedTable(files.storage, folder, entry.version, table, cache, relation)
    finally:
        session.close()


@dataclass(frozen=True, slots=True)
class Cut:
    """How pages were cut: the estimated rows of the table then, and the rows of a page. Both 0 if it was empty."""

    estimated_rows: int
    page_rows: int

    def to_places(self, pages: int) -> pa.RecordBatch:
        """As the catalogue stores it: columns with a value for each page."""
        return pa.RecordBatch.from_pydict(
            {"estimated_rows": [self.estimated_rows] * pages, "page_rows": [self.page_rows] * pages}
        )

    @classmethod
    def from_places(cls, places: pa.RecordBatch) -> Cut:
        return cls(places.column("estimated_rows")[0].as_py(), places.column("page_rows")[0].as_py())


def most_at_end(cut: Cut, end_rows: int, estimated_rows: int) -> int:
    """The rows that the first or last page, which had `end_rows`, may have.

    >>> most_at_end(Cut(40_000, 100), 100, 40_000), most_at_end(Cut(400, 100), 100, 400)
    (2500, 400)
    """
    return max(_END_GROWN * max(cut.page_rows, end_rows), int(_END_PART * estimated_rows))


def has_other_size(cut: Cut, estimated_rows: int) -> bool:
    """Whether a table should get new pages, because its size has changed much.

    >>> [has_other_size(Cut(1_000, 100), rows) for rows in (500, 501, 1_999, 2_000)]
    [True, False, False, True]
    >>> has_other_size(Cut(10, 100), 99), has_other_size(Cut(0, 0), 1)
    (False, True)
    """
    if max(estimated_rows, cut.estimated_rows) <= cut.page_rows:
        return False
    return estimated_rows >= _GROWN * cut.estimated_rows or _GROWN * estimated_rows <= cut.estimated_rows


def _is_outgrown(
    session: DatabaseSession, relation: SqlTable, catalogue: Catalogue, estimated_rows: int
) -> bool:
    """Whether the table should get new pages. `estimated_rows` are those of the table now."""
    index, cut = catalogue.index, Cut.from_places(catalogue.places)
    if not max(estimated_rows, cut.estimated_rows):
        return False
    if has_other_size(cut, estimated_rows):
        return True
    for page in {0, len(index) - 1}:
        most = most_at_end(cut, int(index.rows[page]), estimated_rows)
        if _count_rows(session, relation, index.first, page, limit=most) >= most:
            return True
    return False


def _ends_of(first: pa.RecordBatch, page: int) -> tuple[bool, bool, pa.RecordBatch | None]:
    """Whether a page has a lower and an upper bound, and these as one row of parameters."""
    lower, upper = page > 0, page + 1 < first.num_rows
    ends = [first.slice(at, 1) for at, wanted in ((page, lower), (page + 1, upper)) if wanted]
    columns = [column for end in ends for column in end.columns]
    if not columns:
        return lower, upper, None
    names = [f"p{place}" for place in range(len(columns))]
    return lower, upper, pa.RecordBatch.from_arrays(columns, names=names)


def _count_rows(
    session: DatabaseSession, relation: SqlTable, first: pa.RecordBatch, page: int, limit: int | None = None
) -> int:
    """The rows of a page, counted up to a limit."""
    lower, upper, parameters = _ends_of(first, page)
    return session.count(relation.count_between(lower=lower, upper=upper, limit=limit), parameters)


def _find_pages(
    table: Table, session: DatabaseSession, relation: SqlTable, schema: pa.Schema, estimated_rows: int
) -> tuple[PageIndex, Cut]:
    row_bytes = _row_bytes(session, relation)
    page_rows = table.page_rows or max(1, int((table.page_bytes or PAGE_BYTES) / row_bytes))
    is_default = not table.page_rows and not table.page_bytes
    step = max(1, page_rows // _BOUNDS_PER_PAGE) if is_default else page_rows
    first, places = _walk(table, session, relation, schema, step)
    if not len(places):
        return _one_page(table, first.schema), Cut(0, 0)
    _check_order(table, first)
    rows = np.append(np.diff(places), _count_rows(session, relation, first, len(places) - 1))
    starts = np.arange(0, len(rows), page_rows // step)
    first, rows = take_rows(first, starts), np.add.reduceat(rows, starts)
    sizes = (rows * row_bytes).astype(np.int64)
    return PageIndex(table.keys, first, first, rows, sizes, gaps=False), Cut(estimated_rows, page_rows)


def _row_bytes(session: DatabaseSession, relation: SqlTable) -> float:
    rows = 1
    while True:
        sample = session.run(relation.first_rows(rows))
        found = max(1.0, sample.nbytes / max(sample.num_rows, 1))
        most = min(_SAMPLE_ROWS, int(_SAMPLE_BYTES / found))
        if sample.num_rows < rows or rows >= most:
            return found
        rows = min(_SAMPLE_GROWTH * rows, most)


def _walk(
    table: Table, session: DatabaseSession, relation: SqlTable, schema: pa.Schema, step: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Each `step`-th key, and its place."""
    found = session.run(relation.every_nth_key(step)).combine_chunks()
    first = normal_keys(_conform_all(found, select_fields(schema, table.keys), table.label), table.keys)
    is_new = first_of_equals(first)
    return first.filter(pa.array(is_new)), found.column("__wm_place").to_numpy().astype(np.int64)[is_new]


def _one_page(table: Table, keys: pa.Schema) -> PageIndex:
    """The page of an empty table. Its bound is zero in each type; no query uses it."""
    bound = pa.RecordBatch.from_arrays([zero_key(field.type) for field in keys], names=list(table.keys))
    none = np.zeros(1, np.int64)
    return PageIndex(table.keys, bound, bound, none, none, gaps=False)


def _check_order(table: Table, first: pa.RecordBatch) -> None:
    """Refuse a key that the database orders otherwise than a join: rows would be searched for in the wrong page."""
    each = np.ones(first.num_rows, np.int64)
    page = find_disorder(PageIndex(table.keys, first, first, each, each, gaps=False))
    if page is not None:
        before, behind = (tuple(row.values()) for row in first.slice(page - 1, 2).to_pylist())
        raise TableError(
            f"{table.label}: the database orders {before} before {behind}, which a join does not, so that rows of the "
            f"key {', '.join(table.keys)} would be missed: give the column one type for all its values, or take a "
            "view that casts it, with an index on that expression"
        )
