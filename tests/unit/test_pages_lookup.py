"""Pages as sources give them, and the join of a larger stream with a larger table against DuckDB."""

from __future__ import annotations

import re
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import TableError, UsageError
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.lookup import LookupJoin, Page, check_page, open_page
from watersmeet.kernel.pages import homes, key_hashes, needed_pages, page_orders
from watersmeet.kernel.rows import ORDER, Sorted, take_rows
from watersmeet.model.expression import Call, Column
from watersmeet.model.limits import Limits
from watersmeet.model.pages import PAGE_NUMBERS, PageIndex, page_range
from watersmeet.model.types import BIGINT, BOOLEAN


def index_of(first: list[object], last: list[object], *, gaps: bool = True) -> PageIndex:
    sizes = np.ones(len(first), np.int64)
    bounds = [pa.record_batch({"id": values}) for values in (first, last)]
    return PageIndex(("id",), bounds[0], bounds[1], sizes, sizes, gaps)


def test_a_page_in_its_form_is_taken_as_it_is():
    rows = pa.record_batch({"id": [3, 1, None, 2], "x": ["c", "a", "n", "b"]})
    opened = open_page(5, rows, ["id"])
    assert np.array_equal(opened.keys, key_hashes(opened.rows.select(["id"])))
    assert np.all(opened.keys[:-1] <= opened.keys[1:])
    assert sorted(opened.rows.column("x").to_pylist()) == ["a", "b", "c"]
    form = pa.RecordBatch.from_arrays(
        [pa.array(opened.keys), *opened.rows.columns], names=[ORDER, *opened.rows.schema.names]
    )
    again = open_page(5, form, ["id"], home=4)
    assert (again.number, again.home) == (5, 4)
    assert np.array_equal(again.keys, opened.keys)
    assert again.rows.equals(opened.rows)
    assert again.rows.column("id").buffers()[1].address == form.column("id").buffers()[1].address


def test_a_key_outside_the_bounds_of_its_page_is_an_error_that_names_both():
    index = index_of([1, 10], [8, 12])
    check_page(index, 1, pa.record_batch({"id": [12, None, 10], "x": [1, 2, 3]}))
    wrong = "page 1 of the table holds the key {'id': 9}, but its keys are said to go from {'id': 10} to {'id': 12}"
    with pytest.raises(TableError, match=re.escape(wrong)):
        check_page(index, 1, pa.record_batch({"id": [12, 9]}))


def test_a_database_may_have_new_keys_between_pages_but_not_beyond_the_next():
    index = index_of([1, 10], [8, 12], gaps=False)
    check_page(index, 0, pa.record_batch({"id": [-5, 9]}))
    check_page(index, 1, pa.record_batch({"id": [10, 99]}))
    with pytest.raises(TableError, match="'id': 10"):
        check_page(index, 0, pa.record_batch({"id": [10]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": np.ones(3, np.int64)}, "differ in length"),
        ({"keys": ("key",)}, "has bounds of"),
        ({"last": pa.record_batch({"id": [8, None]})}, "must not be null"),
        ({"last": pa.record_batch({"id": ["8", "9"]})}, "differ in type"),
    ],
)
def test_an_index_whose_parts_do_not_fit_is_refused(change, message):
    index = index_of([1, 10], [8, 12])
    parts = {name: getattr(index, name) for name in ("keys", "first", "last", "rows", "bytes")}
    with pytest.raises(ValueError, match=message):
        PageIndex(**(parts | change))


class Endless(PageIndex):
    """An index that says it has as many pages as an order key has numbers for."""

    def __len__(self) -> int:
        return PAGE_NUMBERS


def test_too_many_pages_for_an_order_key_are_refused():
    index = index_of([1, 10], [8, 12])
    endless = Endless(index.keys, index.first, index.last, index.rows, index.bytes)
    with pytest.raises(UsageError, match="take larger pages"):
        page_orders(endless, pa.record_batch({"id": [1]}), np.zeros(1, np.uint64))


def test_the_rows_of_one_key_can_be_cut_by_their_salt():
    keys = pa.record_batch({"id": np.ones(5_000, np.int64)})
    orders = page_orders(index_of([1, 10], [8, 12]), keys, np.arange(5_000, dtype=np.uint64))
    assert len(np.unique(orders)) == 256
    assert np.bincount((orders & np.uint64(255)).astype(np.int64)).max() < 60


STREAM, TABLE, PAGE_ROWS = 20_000, 30_000, 150


@pytest.fixture(scope="module")
def sides() -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Both with keys that come several times, of text that differs late; some are only on one side."""
    rng = np.random.default_rng(4)

    def keys(count: int, shift: int) -> pa.Array:
        skewed = np.floor(np.exp(rng.random(count) * np.log(9_000.0))).astype(np.int64)
        numbers = np.where(rng.random(count) < 0.5, skewed, rng.integers(1, 12_000, count)) + shift
        return pa.array([f"product-{number:06d}" for number in numbers.tolist()])

    stream = pa.record_batch({"product": keys(STREAM, 500), "n": np.arange(STREAM)})
    table = pa.record_batch({"id": keys(TABLE, 0), "m": rng.permutation(TABLE)})
    return stream, table.sort_by([("id", "ascending")])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("with_residual", [False, True])
def test_a_large_join_is_what_duckdb_says(sides, left, with_residual):
    stream, table = sides
    cuts = range(0, TABLE, PAGE_ROWS)
    ends = [min(start + PAGE_ROWS, TABLE) - 1 for start in cuts]
    bounds = [table.select(["id"]).take(pa.array(places)) for places in (list(cuts), ends)]
    sizes = np.full(len(ends), PAGE_ROWS)
    index = PageIndex(("id",), bounds[0], bounds[1], sizes, sizes)
    assert index.continues.any()
    begins = homes(index).tolist()

    def opened(number: int) -> Page:
        return open_page(number, table.slice(number * PAGE_ROWS, PAGE_ROWS), ["id"], begins[number])

    orders = page_orders(index, stream.select(["product"]), np.arange(STREAM, dtype=np.uint64))
    order = np.argsort(orders)
    pending = Sorted(orders[order], take_rows(stream, order))
    residual = Call("<", (Column("s", "n", BIGINT), Column("t", "m", BIGINT)), BOOLEAN)
    output = (OutputColumn("s", "n", "n"), OutputColumn("t", "m", "m"))
    join = LookupJoin((("product", "id"),), residual if with_residual else None, output, ("s", "t"), left)
    needed = needed_pages(index, pending.keys, pending.rows.select(["product"]))
    absent = pending.between(page_range(len(index)))
    inside = pending.slice(0, len(pending) - len(absent))
    results = list(join.results(inside, map(opened, needed.tolist()), table.schema))
    results += join.results(absent, (), table.schema)
    found = Counter(pair for b in results for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))
    kind, condition = ("LEFT" if left else "INNER"), (" AND s.n < t.m" if with_residual else "")
    with duckdb.connect() as connection:
        connection.register("s", pa.table(stream))
        connection.register("t", pa.table(table))
        expected = connection.execute(
            f"SELECT s.n, t.m FROM s {kind} JOIN t ON s.product = t.id{condition}"
        ).fetchall()
    assert len(expected) > STREAM
    assert found == Counter(expected)


def test_rows_of_one_key_are_picked_from_all_pages_that_it_fills():
    # Both stream rows meet the first page behind the home, then the second: places do not ascend.
    index = index_of([7, 7, 7], [7, 7, 7])
    pages = [
        open_page(number, pa.record_batch({"id": [7, 7], "m": [2 * number, 2 * number + 1]}), ["id"], home=0)
        for number in range(3)
    ]
    stream = pa.record_batch({"product": [7, 7], "n": [0, 1]})
    orders = page_orders(index, stream.select(["product"]), np.arange(2, dtype=np.uint64))
    order = np.argsort(orders)
    join = LookupJoin(
        (("product", "id"),),
        None,
        (OutputColumn("s", "n", "n"), OutputColumn("t", "m", "m")),
        ("s", "t"),
    )
    pending = Sorted(orders[order], take_rows(stream, order))
    batches = list(join.results(pending, pages, pages[0].rows.schema, Limits(whole_page_bytes=0)))
    found = [pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True)]
    assert sorted(found) == [(n, m) for n in range(2) for m in range(6)]
