"""Pages of a table: where keys are, which pages are read for them, and their join, against nested loops."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.pages_helpers import Key, Paged, paged_tables, rank
from watersmeet.kernel import lookup
from watersmeet.kernel import pages as pages_kernel
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.lookup import LookupJoin, open_page, pages_of_rows
from watersmeet.kernel.pages import find_disorder, find_outside, locate, needed_pages, page_orders
from watersmeet.kernel.rows import Sorted, take_rows
from watersmeet.model.expression import Call, Column
from watersmeet.model.limits import Limits
from watersmeet.model.pages import PageIndex, page_range, pages_of
from watersmeet.model.types import BIGINT, BOOLEAN


def home(table: Paged, key: Key) -> int:
    """The page of a key by looking at one after the other."""
    no_page = len(table.pages)
    if any(value is None for value in key) or not no_page:
        return no_page
    if table.gaps:
        inside = (n for n, page in enumerate(table.pages) if rank(page[0]) <= rank(key) <= rank(page[-1]))
        return next(inside, no_page)
    return max(0, sum(rank(page[0]) <= rank(key) for page in table.pages) - 1)


either = paged_tables() | paged_tables(gaps=False)


@given(either)
def test_a_key_is_located_where_looking_at_every_page_finds_it(drawn):
    table, sought = drawn
    assert locate(table.index, table.batch(sought)).tolist() == [home(table, key) for key in sought]


@given(either)
def test_rows_lie_in_the_key_range_of_their_page(drawn):
    table, sought = drawn
    pending = table.pending(sought)
    assert np.all(pending.keys[:-1] <= pending.keys[1:])
    ids = pending.rows.column("id").to_pylist()
    assert pages_of(pending.keys).tolist() == [home(table, sought[place]) for place in ids]
    for page in range(len(table.pages) + 1):
        here = pending.between(page_range(page)).rows.column("id").to_pylist()
        assert sorted(here) == [place for place, key in enumerate(sought) if home(table, key) == page]


@given(either)
def test_pages_read_are_those_that_can_hold_a_key_and_all_that_do(drawn):
    table, sought = drawn
    pending = table.pending(sought)
    needed = needed_pages(table.index, pending.keys, pending.rows.select(list(table.names))).tolist()
    assert needed == sorted(set(needed))
    wanted = {rank(key) for key in sought if None not in key}
    for number, page in enumerate(table.pages):
        if any(rank(key) in wanted for key in page):
            assert number in needed
        if table.gaps and not any(rank(page[0]) <= key <= rank(page[-1]) for key in wanted):
            assert number not in needed


@given(either)
def test_an_index_comes_back_from_its_batch(drawn):
    index = drawn[0].index
    back = PageIndex.from_batch(index.to_batch())
    assert (back.keys, back.gaps, len(back)) == (index.keys, index.gaps, len(index))
    assert locate(back, index.last).tolist() == locate(index, index.last).tolist()
    assert back.rows.tolist() == index.rows.tolist()
    assert back.bytes.tolist() == index.bytes.tolist()


@given(paged_tables())
def test_a_page_continues_where_its_last_key_begins_the_next(drawn):
    table, _ = drawn
    expected = [rank(a[-1]) == rank(b[0]) for a, b in itertools.pairwise(table.pages)]
    assert table.index.continues.tolist() == [*expected, False][: len(table.pages)]


@given(either, st.data())
def test_pages_out_of_order_are_found(drawn, data):
    table, _ = drawn
    assert find_disorder(table.index) is None
    shuffled = Paged(table.types, data.draw(st.permutations(table.pages)), table.gaps)
    bounds = [(rank(page[0]), rank(page[-1])) for page in shuffled.pages]
    wrong = [
        place
        for place, (one, other) in enumerate(itertools.pairwise(bounds), start=1)
        if (one[1] > other[0] if table.gaps else one[0] >= other[0])
    ]
    assert find_disorder(shuffled.index) == (wrong[0] if wrong else None)


@given(either)
def test_a_key_that_is_not_in_the_bounds_of_a_page_is_found(drawn):
    table, sought = drawn
    for number, page in enumerate(table.pages):
        assert find_outside(table.index, number, table.batch(page)) is None
        for key in sought:
            if None in key:
                inside = True
            elif table.gaps:
                inside = rank(page[0]) <= rank(key) <= rank(page[-1])
            else:
                inside = home(table, key) == number
            found = find_outside(table.index, number, table.batch([*page, key]))
            assert found == (None if inside else len(page))


OUTPUT = (OutputColumn("s", "id", "a"), OutputColumn("t", "id", "b"))
# b <> a, over the numbers of the rows.
RESIDUAL = Call("<>", (Column("t", "id", BIGINT), Column("s", "id", BIGINT)), BOOLEAN)


@given(
    either,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([0, 1 << 20]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_each_match_comes_out_once_and_rows_without_one_with_nulls(
    drawn, left, residual, collide, group, whole, searched, shuffle
):
    table, sought = drawn
    join = LookupJoin(
        tuple((name, name) for name in table.names), RESIDUAL if residual else None, OUTPUT, ("s", "t"), left
    )
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(
                pages_kernel, "order_keys", lambda columns: order_keys(columns) & np.uint64(1 << 63)
            )
        pending, pages = table.pending(sought), table.open_pages()
        needed = needed_pages(table.index, pending.keys, pending.rows.select(list(table.names))).tolist()
        shuffle.shuffle(needed)
        schema = table.batch([], start=0).schema
        limits = Limits(
            output_rows=7,
            joined_pages=group,
            whole_page_bytes=whole,
            searched_page_rows=0 if searched else 1 << 60,
            searched_page_times=0,
        )
        batches = list(join.results(pending, (pages[number] for number in needed), schema, limits))
    found = Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))
    assert found == Counter(_owed(table, sought, left, residual))
    assert all(0 < b.num_rows <= 7 and b.schema.names == ["a", "b"] for b in batches)
    assert all(b.schema.types == [pa.int64(), pa.int64()] for b in batches)


def _owed(table, sought, left, residual):
    rows = [key for page in table.pages for key in page]
    for a, key in enumerate(sought):
        matches = [
            b
            for b, other in enumerate(rows)
            if None not in key and rank(key) == rank(other) and not (residual and a == b)
        ]
        yield from ((a, b) for b in matches)
        if left and not matches:
            yield a, None


@given(
    st.integers(1, 3),
    st.integers(1, 1_300),
    st.integers(1, 700),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_large_pages_are_searched_one_by_one_and_others_together(pages, size, waiting, repeat, left, seed):
    """By the thresholds as they are, with keys of many rows, some of which go on in the next page."""
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.integers(0, pages * size // repeat + 1, pages * size))
    table = Paged((pa.int64(),), [[(key,) for key in part.tolist()] for part in np.split(keys, pages)])
    sought = rng.integers(-1, pages * size // repeat + 2, waiting)
    pending = table.pending([(key,) for key in sought.tolist()])
    found = locate(table.index, table.batch([(key,) for key in sought.tolist()]))
    needed = needed_pages(table.index, pending.keys, pending.rows.select(["k0"])).tolist()
    join = LookupJoin((("k0", "k0"),), None, OUTPUT, ("s", "t"), left)
    with pytest.MonkeyPatch.context() as patch:
        searched = []
        by_itself = lookup._searched

        def watched(stream, bounds, group, limit):
            """Too many candidates would give the same results, later."""
            searched.append(len(group.pages))
            candidates = list(by_itself(stream, bounds, group, limit))
            placed = lookup._placed(group.pages, [page.number for page in group.pages])
            together = list(lookup._equal(stream, placed, limit))
            assert [np.concatenate(side).tolist() for side in zip(*candidates, strict=True)] == [
                np.concatenate(side).tolist() for side in zip(*together, strict=True)
            ]
            return iter(candidates)

        patch.setattr(lookup, "_searched", watched)
        opened = table.open_pages()
        batches = list(
            join.results(pending, (opened[number] for number in needed), table.batch([], start=0).schema)
        )
    got = Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))
    low, high = np.searchsorted(keys, sought), np.searchsorted(keys, sought, side="right")
    owed = Counter(
        (a, b)
        for a, (first, behind) in enumerate(zip(low.tolist(), high.tolist(), strict=True))
        for b in (range(first, behind) if first < behind else [None] if left else [])
    )
    assert got == owed
    # All pages are in one group: it is searched page by page if they have 512 rows each, four times what waits there.
    rows, there = size * len(needed), int(np.isin(found, needed).sum())
    assert searched == ([len(needed)] if needed and size >= 512 and rows >= 4 * there else [])


WIDE = pa.schema({"k": pa.int64(), "id": pa.int64(), "text": pa.string()})


def wide(keys: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int64()), pa.array(range(len(keys))), pa.array([f"{key:>1000}" for key in keys])],
        schema=WIDE,
    )


def test_the_parts_of_a_look_up_count_with_their_rows_only():
    """Of 400 keys each in a page of its own: not 400 times the whole result."""
    rows = wide(range(400))
    bounds, ones = rows.select(["k"]), np.ones(400, np.int64)
    index = PageIndex(("k",), bounds, bounds, ones, ones, gaps=False)
    parts = pages_of_rows(index, rows, ["k"])
    assert [part.number for part in parts] == list(range(400))
    taken = rows.nbytes + 8 * rows.num_rows
    assert taken <= sum(part.bytes for part in parts) <= 1.1 * taken
    assert max(part.bytes for part in parts) < 2_000


def test_a_page_counts_with_what_it_takes():
    rows = wide(range(50))
    page = open_page(0, rows, ["k"])
    assert rows.nbytes + 8 * 50 <= page.bytes <= 1.1 * rows.nbytes + 8 * 50


@pytest.mark.parametrize("left", [False, True])
def test_results_of_a_slice_are_cut_by_its_own_rows(left):
    """Rows that wait are often few of a large run, whose buffers they share."""
    keys = list(range(20))
    table = Paged((pa.int64(),), [[(key,) for key in keys]])
    rows = wide([*keys, *range(1_000, 3_000)])
    orders = page_orders(table.index, rows.select(["k"]), np.arange(rows.num_rows, dtype=np.uint64))
    whole = Sorted(np.sort(orders), take_rows(rows, np.argsort(orders)))
    pending = whole.slice(0, 20)
    page = open_page(0, wide(keys), ["k"])
    join = LookupJoin((("k", "k"),), None, (OutputColumn("s", "text", "a"), *OUTPUT[1:]), ("s", "t"), left)
    # Room for thirty pairs of rows of a kilobyte each.
    limits = Limits(output_bytes=60_000)
    assert [batch.num_rows for batch in join.results(pending, [page], WIDE, limits)] == [20]


@given(paged_tables())
def test_rows_without_a_page_come_out_with_nulls_each_once(drawn):
    table, sought = drawn
    pending = table.pending(sought).between(page_range(len(table.pages)))
    join = LookupJoin((), None, OUTPUT, ("s", "t"), left=True)
    batches = list(join.results(pending, (), table.batch([], start=0).schema))
    found = [row for batch in batches for row in batch.to_pylist()]
    absent = [n for n, key in enumerate(sought) if home(table, key) == len(table.pages)]
    assert sorted(row["a"] for row in found) == absent
    assert all(row["b"] is None for row in found)


@given(st.lists(st.integers(-128, 127), min_size=1), st.lists(st.integers(-200, 200), min_size=1))
def test_integers_of_two_widths_are_located_alike(table_keys, stream_keys):
    keys = sorted(set(table_keys))
    narrow = Paged((pa.int8(),), [[(key,)] for key in keys])
    found = locate(narrow.index, pa.record_batch({"x": pa.array(stream_keys, pa.int64())}))
    assert found.tolist() == [keys.index(key) if key in keys else len(keys) for key in stream_keys]


def test_floats_of_two_widths_are_located_alike():
    table = Paged((pa.float64(),), [[(-1.5,)], [(0.0,)], [(0.1,)], [(math.nan,)]])
    narrow = pa.record_batch({"x": pa.array([-0.0, 0.1, math.nan, -1.5], pa.float32())})
    # 0.1 as a float is another number than 0.1 as a double.
    assert locate(table.index, narrow).tolist() == [1, 4, 3, 0]


def test_a_key_of_another_kind_is_refused():
    table = Paged((pa.int64(),), [[(1,)]])
    with pytest.raises(TypeError, match="string cannot be located among pages by int64"):
        locate(table.index, pa.record_batch({"x": ["1"]}))
