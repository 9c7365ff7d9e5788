"""Where the pages of a database's table begin: every n-th key, by one walk over the database's index on it.

All bounds that the walk finds ascend in our order, or the table is refused: a key would be sought where it is not. A
page has the rows or bytes asked for, or as many as its reads call for (tables/tuning.py). A key that fills several pages
is in one, since a range of keys cannot cut it. An empty table has one page, whose bound says nothing: the first page also
holds all keys below its bound and the last one all above, so rows that come later are found.

Pages are cut anew when they no longer fit (`is_outgrown`): the table has twice or half the rows, by the same estimate as
then, or much of it came at one end of the key order, as it does where keys ascend in time and old rows are removed.

Not guaranteed: bounds for rows that come while the walk goes on, which are merely in larger pages; and that growth in
the middle is seen where the database estimates its size badly (a view).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.kernel.lookup import open_page
from watersmeet.kernel.pages import find_disorder
from watersmeet.kernel.rows import take_rows
from watersmeet.model.pages import PageIndex
from watersmeet.tables.columns import conform, normal_keys
from watersmeet.tables.session import Session
from watersmeet.tables.spec import Table
from watersmeet.tables.sql import Relation
from watersmeet.tables.tuning import PROBE_BYTES, pages_together

_LOG = logging.getLogger(__name__)

# The smallest page that is thought of; how many of them make one is measured.
SMALL_PAGE_BYTES = 64 << 10
# Rows looked at to know how wide they are: one first, then more by this factor, since a row may have megabytes.
_SAMPLE_ROWS, _SAMPLE_GROWTH = 1_000, 8

# A table that has so many times the rows that it had, or so small a part of them, gets new pages.
_GROWN = 2
# So does one whose first or last page has grown by this factor, and to this part of the table: a walk looks at all
# keys, so a batch of new rows must not be enough for one.
_END_GROWN, _END_PART = 4, 1 / 16


@dataclass(frozen=True, slots=True)
class Cut:
    """When pages were cut: the table's rows as the database estimated them, and how many a page was to have.

    Of an empty table nothing is known, and both are 0.
    """

    estimated_rows: int
    page_rows: int

    def to_places(self, pages: int) -> pa.RecordBatch:
        """For the catalogue, which has columns with a value for each page."""
        return pa.RecordBatch.from_pydict(
            {"estimated_rows": [self.estimated_rows] * pages, "page_rows": [self.page_rows] * pages}
        )

    @classmethod
    def from_places(cls, places: pa.RecordBatch) -> Cut:
        return cls(places.column("estimated_rows")[0].as_py(), places.column("page_rows")[0].as_py())


def most_at_end(cut: Cut, end_rows: int, estimated_rows: int) -> int:
    """The rows that the first or last page may have, which had `end_rows`.

    >>> most_at_end(Cut(40_000, 100), 100, 40_000), most_at_end(Cut(400, 100), 100, 400)
    (2500, 400)
    """
    return max(_END_GROWN * max(cut.page_rows, end_rows), int(_END_PART * estimated_rows))


def has_other_size(cut: Cut, estimated_rows: int) -> bool:
    """Whether a table has grown or shrunk so that other pages would be better.

    >>> [has_other_size(Cut(1_000, 100), rows) for rows in (500, 501, 1_999, 2_000)]
    [True, False, False, True]
    >>> has_other_size(Cut(10, 100), 99), has_other_size(Cut(0, 0), 1)
    (False, True)
    """
    if max(estimated_rows, cut.estimated_rows) <= cut.page_rows:
        return False
    return estimated_rows >= _GROWN * cut.estimated_rows or _GROWN * estimated_rows <= cut.estimated_rows


def is_outgrown(
    session: Session, relation: Relation, index: PageIndex, cut: Cut, estimated_rows: int
) -> bool:
    """Whether the table should get new pages. `index` is as it was made, `estimated_rows` as the table is now."""
    if not max(estimated_rows, cut.estimated_rows):
        return False
    if has_other_size(cut, estimated_rows):
        return True
    for page in {0, len(index) - 1}:
        most = most_at_end(cut, int(index.rows[page]), estimated_rows)
        if count_rows(session, relation, index.first, page, limit=most) >= most:
            return True
    return False


def ends_of(first: pa.RecordBatch, low: int, high: int) -> tuple[bool, bool, pa.RecordBatch | None]:
    """Whether the pages from one up to another have a lower and an upper bound, and these as one row of parameters."""
    lower, upper = low > 0, high < first.num_rows
    ends = [first.slice(at, 1) for at, wanted in ((low, lower), (high, upper)) if wanted]
    columns = [column for end in ends for column in end.columns]
    if not columns:
        return lower, upper, None
    names = [f"p{place}" for place in range(len(columns))]
    return lower, upper, pa.RecordBatch.from_arrays(columns, names=names)


def count_rows(
    session: Session, relation: Relation, first: pa.RecordBatch, page: int, limit: int | None = None
) -> int:
    """The rows of a page, counted up to a limit."""
    lower, upper, parameters = ends_of(first, page, page + 1)
    counted = session.run(relation.count_between(lower=lower, upper=upper, limit=limit), parameters)
    return int(counted.column("n")[0].as_py())


def find_pages(
    table: Table, session: Session, relation: Relation, schema: pa.Schema, estimated_rows: int
) -> tuple[PageIndex, Cut]:
    row_bytes = _row_bytes(session, relation)
    step = table.page_rows or max(1, int((table.page_bytes or SMALL_PAGE_BYTES) / row_bytes))
    first, places = _walk(table, session, relation, schema, step)
    if not len(places):
        return _one_page(table, first.schema), Cut(0, 0)
    _check_order(table, first)
    rows = np.append(np.diff(places), count_rows(session, relation, first, len(places) - 1))
    if not table.page_rows and not table.page_bytes:
        together = _measure(table, session, relation, first, rows, row_bytes)
        starts = np.arange(0, len(rows), together)
        first, rows, step = take_rows(first, starts), np.add.reduceat(rows, starts), step * together
    sizes = (rows * row_bytes).astype(np.int64)
    return PageIndex(table.keys, first, first, rows, sizes, gaps=False), Cut(estimated_rows, step)


def _row_bytes(session: Session, relation: Relation) -> float:
    rows = 1
    while True:
        sample = session.run(relation.first_rows(rows))
        found = max(1.0, sample.nbytes / max(sample.num_rows, 1))
        most = min(_SAMPLE_ROWS, int(PROBE_BYTES / found))
        if sample.num_rows < rows or rows >= most:
            return found
        rows = min(_SAMPLE_GROWTH * rows, most)


def _walk(
    table: Table, session: Session, relation: Relation, schema: pa.Schema, step: int
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Each `step`-th key, and its place."""
    found = session.run(relation.every_nth_key(step)).combine_chunks()
    keys = pa.schema([schema.field(key) for key in table.keys])
    batches = [conform(batch, keys, table.label) for batch in found.to_batches()]
    none = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in keys], schema=keys)
    first = normal_keys(pa.concat_batches([none, *batches]), table.keys)
    is_new = first_of_equals(first)
    return first.filter(pa.array(is_new)), found.column("__wm_place").to_numpy().astype(np.int64)[is_new]


def _one_page(table: Table, keys: pa.Schema) -> PageIndex:
    """Of an empty table. Its bound is what zeros mean in each type; no query asks with it."""
    bound = pa.RecordBatch.from_arrays([_zero(field.type) for field in keys], names=list(table.keys))
    none = np.zeros(1, np.int64)
    return PageIndex(table.keys, bound, bound, none, none, gaps=False)


def _zero(kind: pa.DataType) -> pa.Array:
    # As long as the widest key type, and as two offsets of text.
    zeros = pa.py_buffer(bytes(16))
    return pa.Array.from_buffers(kind, 1, [None, *[zeros] * (kind.num_buffers - 1)])


def _measure(
    table: Table,
    session: Session,
    relation: Relation,
    first: pa.RecordBatch,
    rows: npt.NDArray[np.int64],
    row_bytes: float,
) -> int:
    """How many small pages make one."""

    def read(low: int, high: int, limit: int) -> int:
        lower, upper, parameters = ends_of(first, low, high)
        names = [name for name, _ in relation.selected]
        query = relation.rows_between(names, lower=lower, upper=upper, limit=limit)
        found = session.run(query, parameters)
        for batch in found.to_batches():
            _open(batch, first.schema, table)
        return found.nbytes

    choice = pages_together(read, rows, row_bytes)
    _LOG.info(
        "%s: pages of about %d KB, since a read takes %.2f ms and %.1f ns a byte",
        table.label,
        choice.together * int(np.median(rows)) * row_bytes / 1024,
        choice.seek_ns / 1e6,
        choice.byte_ns,
    )
    return choice.together


def _open(rows: pa.RecordBatch, keys: pa.Schema, table: Table) -> None:
    """What a page costs beside its read. A value that does not fit another column is no matter here."""
    conformed = conform(rows, keys, table.label)
    for key in table.keys:
        rows = rows.set_column(rows.schema.get_field_index(key), key, conformed.column(key))
    open_page(0, rows, table.keys)


def _check_order(table: Table, first: pa.RecordBatch) -> None:
    """Refuse a key that the database has in another order than ours: rows would be sought where they are not."""
    each = np.ones(first.num_rows, np.int64)
    page = find_disorder(PageIndex(table.keys, first, first, each, each, gaps=False))
    if page is not None:
        before, behind = (tuple(row.values()) for row in first.slice(page - 1, 2).to_pylist())
        raise TableError(
            f"{table.label}: the database orders {before} before {behind}, which a join does not, so that rows of the "
            f"key {', '.join(table.keys)} would be missed: give the column one type for all its values, or take a "
            "view that casts it, with an index on that expression"
        )


def first_of_equals(keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each row whether it differs from the one before. There are no nulls, and floats are normalised."""
    is_new = np.ones(keys.num_rows, np.bool_)
    if keys.num_rows > 1:
        each = np.ones(keys.num_rows, np.int64)
        # A page of one row continues if the next one has its key.
        is_new[1:] = ~PageIndex(tuple(keys.schema.names), keys, keys, each, each).continues[:-1]
    return is_new
