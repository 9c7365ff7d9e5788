"""Values of every type are weighed exactly, and no gathered batch outgrows its bound because of one of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import life
from watersmeet.engine import ingest
from watersmeet.engine.spec import Settings
from watersmeet.errors import UsageError
from watersmeet.kernel import emit
from watersmeet.kernel.band import BandJoin
from watersmeet.kernel.bounds import bounded, split
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.keys import order_keys, words
from watersmeet.kernel.lookup import LookupJoin, open_page
from watersmeet.kernel.pages import page_orders
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted, take_rows
from watersmeet.kernel.sizes import row_bytes, varies
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.kernel.vectors import vectors_of
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import BatchId
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.pages import PageIndex
from watersmeet.model.types import INT

LEAVES = st.sampled_from([pa.int32(), pa.bool_(), pa.string(), pa.large_binary(), pa.decimal128(9, 2)])


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.tuples(inner, inner).map(lambda kinds: pa.struct([("a", kinds[0]), ("b", kinds[1])])),
    )


kinds = st.recursive(LEAVES, nested, max_leaves=5)


# Far above the slack of the property, so that a value that is not weighed, or weighed for another, is noticed.
LONG = st.integers(200, 2_000)


def values_of(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_map(kind):
        entries = st.tuples(st.text("xé", max_size=4), values_of(kind.item_type))
        return st.none() | st.lists(entries, max_size=3)
    if pa.types.is_fixed_size_list(kind):
        return st.lists(values_of(kind.value_type), min_size=2, max_size=2)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({f.name: values_of(f.type) for f in kind})
    if pa.types.is_string(kind):
        return st.none() | st.text("xé", max_size=9) | LONG.map(lambda length: "é" * length)
    if pa.types.is_large_binary(kind):
        return st.none() | st.binary(max_size=9) | LONG.map(bytes)
    return st.none() | (st.booleans() if pa.types.is_boolean(kind) else st.integers(0, 99))


def weight(kind: pa.DataType, value: Any) -> int:
    """What one value takes, by walking it; its own offset included, which is left out of a whole row."""
    if pa.types.is_map(kind):
        return 4 + sum(4 + len(k.encode()) + weight(kind.item_type, v) for k, v in value or ())
    if pa.types.is_fixed_size_list(kind):
        return sum(weight(kind.value_type, v) for v in value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        own = 4 if pa.types.is_list(kind) else 8
        return own + sum(weight(kind.value_type, v) for v in value or ())
    if pa.types.is_struct(kind):
        return sum(weight(f.type, value[f.name]) for f in kind)
    if pa.types.is_string(kind):
        return 4 + len((value or "").encode())
    if pa.types.is_large_binary(kind):
        return 8 + len(value or b"")
    # Booleans share bytes, validity is eight to a byte: a mean of at most two bytes more stands for both.
    return {pa.int32(): 4, pa.bool_(): 1}.get(kind, 17)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, list[object]]:
    """A slice of a column of any type, and the values in it."""
    kind = draw(kinds)
    values = draw(st.lists(values_of(kind), min_size=1, max_size=12))
    first = draw(st.integers(0, len(values) - 1))
    return pa.array(values, kind).slice(first), values[first:]


@given(columns(), st.data())
def test_a_row_weighs_as_much_as_its_values(drawn, data):
    column, values = drawn
    places = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20))
    found = row_bytes([column], np.array(places, np.int64))
    if not varies(column.type):
        assert found is None
        return
    expected = [weight(column.type, values[place]) for place in places]
    assert len(found) == len(expected)
    slack = 2 * 40  # of means of fixed widths, for at most 40 of them in a value drawn here
    assert all(want - slack <= got <= want + slack for got, want in zip(found, expected, strict=True))


def test_offsets_are_weighed_to_the_byte():
    kind = pa.struct([("s", pa.string()), ("l", pa.list_(pa.list_(pa.int64())))])
    column = pa.array(
        [{"s": "x" * 7, "l": [[1], [2, 3]]}, {"s": None, "l": None}, {"s": "y", "l": [[]]}], kind
    )
    expected = [7 + (2 * 4 + 3 * 8), 0, 1 + 4]
    assert row_bytes([column], np.array([0, 1, 2, 0])).tolist() == [*expected, expected[0]]
    assert row_bytes([column.slice(1)], np.array([1])).tolist() == expected[2:]


def test_a_slice_of_fixed_size_lists_is_weighed_to_the_byte():
    column = pa.array([["a" * 900, "b"], ["cc", "ddd"], ["", "e" * 70]], pa.list_(pa.string(), 2))
    expected = [901 + 2 * 4, 5 + 2 * 4, 70 + 2 * 4]
    assert row_bytes([column], np.array([0, 1, 2])).tolist() == expected
    assert row_bytes([column.slice(1)], np.array([1, 0])).tolist() == [expected[2], expected[1]]


BOUND = 50_000
HUGE = 40_000
# More partners than rows, so that the pairs of one row lie together, and means hide a huge value among them.
SMALL, PARTNERS_ROWS = 100, 250

# One huge value of each type, and an ordinary one.
SHAPES = {
    "list": (pa.list_(pa.int64()), [1] * (HUGE // 8), [1]),
    "large-list": (pa.large_list(pa.int32()), [1] * (HUGE // 4), [1]),
    "list-of-texts": (pa.list_(pa.string()), ["x" * 100] * (HUGE // 104), ["y"]),
    "two-texts": (pa.list_(pa.string(), 2), ["x" * HUGE, "y"], ["z", "z"]),
    "struct": (
        pa.struct([("n", pa.int64()), ("s", pa.string())]),
        {"n": 1, "s": "x" * HUGE},
        {"n": 1, "s": "x"},
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [(f"{n:90}", n) for n in range(HUGE // 102)], [("a", 1)]),
    "deep": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.string())))])),
        [{"m": [("k", ["x" * 1_000] * 8)]}] * (HUGE // 8_060),
        [{"m": [("k", ["x"])]}],
    ),
    "text": (pa.string(), "x" * HUGE, "x"),
    "large-binary": (pa.large_binary(), b"x" * HUGE, b"x"),
}


def rows_of(shape: str) -> pa.RecordBatch:
    """Many small rows of one key and a huge one among them."""
    kind, huge, small = SHAPES[shape]
    values = [small] * SMALL + [huge] + [small] * SMALL
    keys = pa.array([7] * len(values), pa.int32())
    return pa.record_batch({"k": keys, "id": np.arange(len(values)), "v": pa.array(values, kind)})


OUTPUT = (OutputColumn("l", "id", "a"), OutputColumn("l", "v", "v"), OutputColumn("r", "id", "b"))
PARTNERS = pa.record_batch({"k": pa.array([7] * PARTNERS_ROWS, pa.int32()), "id": np.arange(PARTNERS_ROWS)})


def by_hash(rows: pa.RecordBatch) -> Sorted:
    return Sorted(order_keys([rows.column("k")]), rows)


def by_value(rows: pa.RecordBatch) -> Sorted:
    return Sorted(words(rows.column("k")), rows)


def equality(rows: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    join = EquiJoin((("k", "k"),), None, OUTPUT)
    return join.results((Side("l", [by_hash(rows)], []), Side("r", [], [by_hash(PARTNERS)])), None, limits)


def close(rows: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    join = BandJoin(INT, -1, 1, None, OUTPUT)
    return join.results((Side("l", [by_value(rows)], []), Side("r", [], [by_value(PARTNERS)])), None, limits)


def every_pair(rows: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    join = ThetaJoin(None, OUTPUT)
    return join.results((Side("l", [by_hash(rows)], []), Side("r", [], [by_hash(PARTNERS)])), None, limits)


def by_function(rows: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    def holds(left: pa.RecordBatch, right: pa.RecordBatch) -> np.ndarray:
        assert left.num_rows == 1 or left.nbytes <= 1.2 * BOUND
        return np.ones(left.num_rows, np.bool_)

    join = ThetaJoin(None, OUTPUT, condition=holds, columns=(("k", "v"), ("k",)))
    return join.results((Side("l", [by_hash(rows)], []), Side("r", [], [by_hash(PARTNERS)])), None, limits)


def looked_up(rows: pa.RecordBatch, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The huge value is in the table, and each stream row finds it."""
    first = last = pa.record_batch({"k": pa.array([7], pa.int32())})
    index = PageIndex(("k",), first, last, np.array([rows.num_rows]), np.array([rows.nbytes]))
    orders = page_orders(index, PARTNERS.select(["k"]), np.arange(PARTNERS_ROWS, dtype=np.uint64))
    output = tuple(OutputColumn({"l": "t", "r": "s"}[c.input], c.column, c.name) for c in OUTPUT)
    join = LookupJoin((("k", "k"),), None, output, ("s", "t"))
    return join.results(Sorted(orders, PARTNERS), [open_page(0, rows, ["k"])], rows.schema, limits)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("join", [equality, close, every_pair, by_function, looked_up])
def test_one_huge_value_of_any_type_does_not_make_a_huge_batch(join, shape):
    found: Counter[tuple[int, int]] = Counter()
    for batch in join(rows_of(shape), Limits(output_bytes=BOUND)):
        assert batch.nbytes <= 1.2 * BOUND
        found.update(zip(batch["a"].to_pylist(), batch["b"].to_pylist(), strict=True))
    assert found == Counter((a, b) for a in range(2 * SMALL + 1) for b in range(PARTNERS_ROWS))


@pytest.mark.parametrize("join", [equality, close, every_pair, looked_up])
def test_a_value_that_exceeds_the_bound_is_alone(join):
    batches = join(rows_of("struct"), Limits(output_bytes=HUGE // 2))
    sizes = Counter(batch.num_rows for batch in batches if batch.nbytes >= HUGE)
    assert sizes == {1: PARTNERS_ROWS}


def test_wide_keys_are_compared_in_bounded_parts(monkeypatch):
    """They need not come out to be gathered; the mean of a piece with one wide key says nothing."""
    seen: list[int] = []
    same = emit.same_value

    def weighed(one: pa.Array, other: pa.Array) -> pa.Array:
        seen.append(one.nbytes + other.nbytes)
        return same(one, other)

    monkeypatch.setattr(emit, "same_value", weighed)
    wide = pa.record_batch({"k": ["x" * 20_000] + ["y"] * 400, "id": np.arange(401)})
    left = Sorted(np.zeros(401, np.uint64), wide)
    output = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))
    join = EquiJoin((("k", "k"),), None, output)
    sides = Side("l", [left.slice(0, 20)], []), Side("r", [], [left])
    batches = list(join.results(sides, None, Limits(output_bytes=BOUND)))
    assert sum(batch.num_rows for batch in batches) == 1 + 19 * 400
    assert max(seen) <= 1.2 * BOUND


def test_a_struct_matched_1500_times_does_not_overflow():
    """2.2 GB of results, more than the 32-bit offsets of one array: batches are looked at as they come."""
    kind = pa.struct([("s", pa.string())])
    small = [{"s": "x"}] * 2_000
    rows = pa.record_batch({"v": pa.array([*small, {"s": "x" * 1_500_000}], kind)})
    partners = pa.record_batch({"id": np.arange(1_500)})
    keys = np.arange(2_001, dtype=np.uint64)
    left, right = Sorted(keys, rows), Sorted(np.full(1_500, 2_000, np.uint64), partners)
    output = (OutputColumn("l", "v", "v"), OutputColumn("r", "id", "b"))
    found = 0
    for batch in EquiJoin((), None, output).results((Side("l", [left], []), Side("r", [], [right])), None):
        assert batch.nbytes <= 1.1 * DEFAULT_LIMITS.output_bytes
        found += batch.num_rows
    assert found == 1_500


def test_vectors_with_null_elements_are_copied_once_each():
    column = pa.array([[1.0, None], [2.0, 3.0], None], pa.list_(pa.float32()))
    found = vectors_of(column, np.array([1, 0, 1, 2, 1]))
    assert len(found.values) <= 4
    assert found.nulls.tolist() == [False, True, False, True, False]
    assert [found.values[s : s + n].tolist() for s, n in zip(found.starts, found.lengths, strict=True)][
        ::2
    ] == [[2.0, 3.0]] * 3


slices_of_rows = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=15), min_size=1, max_size=4
)


@given(slices_of_rows, st.integers(1, 30), st.integers(20, 300))
def test_merged_pieces_hold_each_row_once_within_rows_and_bytes(drawn, rows, size):
    """A piece is sorted; a key is in several pieces only if it fills them."""
    slices, expected = [], Counter()
    for number, content in enumerate(drawn):
        content.sort()
        values = [[f"{number}.{place}".ljust(length, "x")] for place, (_, length) in enumerate(content)]
        keys = np.array([key for key, _ in content], np.uint64)
        slices.append(Sorted(keys, pa.record_batch({"v": pa.array(values, pa.list_(pa.string()))})))
        expected.update((key, value[0]) for (key, _), value in zip(content, values, strict=True))
    pieces = list(bounded(slices, rows, size))
    found = Counter(
        (key, value[0])
        for p in pieces
        for key, value in zip(p.keys.tolist(), p.rows["v"].to_pylist(), strict=True)
    )
    assert found == expected
    for piece in pieces:
        assert len(piece)
        assert np.all(piece.keys[:-1] <= piece.keys[1:])
        assert len(piece) <= 2 * rows
        largest = max((len(s.rows) and s.rows.nbytes for s in slices), default=0)
        assert piece.rows.nbytes <= 2 * size + 60 or piece.rows.nbytes <= largest


def test_values_of_few_wide_rows_are_not_concatenated_beyond_the_bound():
    """The mean row is small, so that a limit of rows would put the wide ones together: 20 MB here, 2 GiB elsewhere."""
    kind = pa.struct([("s", pa.string())])

    def run() -> Sorted:
        values = [{"s": "x"}] * 10_000 + [{"s": "x" * 1_000_000}] * 5
        return Sorted(np.arange(10_005, dtype=np.uint64), pa.record_batch({"v": pa.array(values, kind)}))

    pieces = list(bounded([run() for _ in range(4)], 500_000, 1 << 20))
    assert sum(map(len, pieces)) == 4 * 10_005
    # Five keys of four rows of a megabyte each: they are given out one by one.
    assert max(piece.rows.nbytes for piece in pieces) <= 2 << 20


def test_a_large_batch_is_ingested_as_several_runs(tmp_path):
    """One batch of six megabytes becomes runs of a megabyte; a row that exceeds it has its own."""
    schema = pa.schema({"k": pa.int64(), "v": pa.struct([("s", pa.string())])})
    texts = ["x" * 100_000] * 30 + ["y" * 2_000_000] + ["z" * 100_000] * 10
    rows = pa.table({"k": np.arange(41), "v": [{"s": text} for text in texts]}, schema=schema)
    state, run_bytes = str(tmp_path), 1 << 20
    join = LocalJoin(
        {"l": schema, "r": schema},
        on="l.k = r.k",
        select=["l.v"],
        state=state,
        settings=Settings(state=state, tasks=2, run_bytes=run_bytes),
    )
    [batch] = rows.to_batches()
    runs = life.ingest(join, BatchId(join.query, join.run, 0), "l", [batch]).runs
    assert [run.rows for run in runs] == [10, 10, 10, 1, 10]
    assert all(run.bytes <= 1.1 * run_bytes or run.rows == 1 for run in runs)
    found = join.batch(l=rows, r=rows)
    assert Counter(value["s"] for value in found["v"].to_pylist()) == Counter(texts)


def test_small_batches_are_not_cut_however_small_a_run_may_be(tmp_path):
    schema = pa.schema({"k": pa.int64(), "v": pa.string()})
    rows = pa.table({"k": range(40), "v": ["x"] * 40}, schema=schema)
    settings = Settings(state=str(tmp_path), tasks=2, run_bytes=1)
    join = LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), settings=settings)
    assert [
        run.rows for run in life.ingest(join, BatchId(join.query, join.run, 0), "l", rows.to_batches()).runs
    ] == [40]


@pytest.fixture
def gigabytes() -> Iterator[pa.Buffer]:
    """3 GiB of zeros that take no memory and no disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse"
        with path.open("wb") as file:
            file.truncate(3 << 30)
        with pa.memory_map(str(path)) as mapped:
            yield mapped.read_buffer()


def large_texts(data: pa.Buffer, ends: list[int]) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, *ends], np.int64))
    return pa.record_batch({"v": pa.Array.from_buffers(pa.large_string(), len(ends), [None, offsets, data])})


def test_values_that_lie_behind_2_gib_of_others_are_stored(gigabytes):
    """Spark sends 64-bit offsets on request; the state has 32 bits."""
    batch = large_texts(gigabytes, [1 << 30, (2 << 30) + 5, (2 << 30) + 15])
    parts = list(split([batch], 64 << 20))
    assert [part.num_rows for part in parts] == [1, 1, 1]
    stored = ingest.canonical_rows(parts[2]).column(0)
    assert stored.type == pa.string()
    assert stored.to_pylist() == ["\0" * 10]


def test_a_value_above_2_gib_is_refused_by_name(gigabytes):
    batch = large_texts(gigabytes, [(2 << 30) + 5])
    with pytest.raises(UsageError, match=r"column v has a value of about 21474836\d\d bytes.*select="):
        ingest.canonical_rows(batch)


def test_sorting_wide_nested_rows_keeps_them():
    rows = rows_of("deep")
    order = np.arange(rows.num_rows)[::-1].copy()
    assert take_rows(rows, order).column("v").to_pylist() == rows.column("v").to_pylist()[::-1]
