"""The equality kernel against nested loops: every pair meets exactly once, in bounded pieces."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel import emit, equal, few
from watersmeet.kernel.band import BandJoin
from watersmeet.kernel.bounds import coalesce, cut
from watersmeet.kernel.emit import Emission, OutputColumn, Picked
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.match import equal_pairs
from watersmeet.kernel.pieces import Side, pieces
from watersmeet.kernel.rows import Sorted, concatenate
from watersmeet.kernel.theta import ThetaJoin
from watersmeet.model.expression import Call, Column
from watersmeet.model.facts import KEY_SPACE
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import BIGINT, BOOLEAN
from watersmeet.model.window import AT

A, B = OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b")
small_keys = st.lists(st.integers(0, 12), max_size=40)
slices = st.lists(small_keys, max_size=4)


def run_of(keys: list[int], start: int = 0) -> Sorted:
    """A sorted slice whose rows carry the key and a unique id."""
    order = order_keys([pa.array(keys, pa.int64())])
    by_order = np.argsort(order)
    rows = pa.RecordBatch.from_pydict(
        {
            "k": pa.array(np.array(keys, np.int64)[by_order]),
            "id": pa.array(np.arange(start, start + len(keys))[by_order]),
        }
    )
    return Sorted(order[by_order], rows)


def runs_of(lists: list[list[int]]) -> list[Sorted]:
    starts = np.cumsum([0, *map(len, lists)])
    return [run_of(keys, int(start)) for keys, start in zip(lists, starts, strict=False)]


@given(small_keys, small_keys, st.integers(1, 9))
def test_equal_pairs_are_all_pairs_of_equal_keys_once(left, right, limit):
    left, right = sorted(left), sorted(right)
    batches = list(equal_pairs(np.array(left, np.uint64), np.array(right, np.uint64), limit))
    found = Counter((int(i), int(j)) for one, other in batches for i, j in zip(one, other, strict=True))
    assert found == Counter((i, j) for i, x in enumerate(left) for j, y in enumerate(right) if x == y)
    assert all(len(one) <= limit for one, _ in batches)


@given(
    slices,
    slices,
    slices,
    slices,
    st.integers(1, 50),
    st.sampled_from([1, 5, DEFAULT_LIMITS.heavy_pairs]),
    st.sampled_from([0, 3, DEFAULT_LIMITS.small_rows]),
    st.sampled_from([0, 3, DEFAULT_LIMITS.few_rows]),
)
def test_each_pair_with_a_fresh_row_meets_once(
    old_left, new_left, old_right, new_right, piece, block, small, held
):
    lefts, rights = runs_of(old_left + new_left), runs_of(old_right + new_right)
    left = Side("l", lefts[len(old_left) :], lefts[: len(old_left)])
    right = Side("r", rights[len(old_right) :], rights[: len(old_right)])
    join = EquiJoin((), None, (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b")))
    limits = Limits(piece_rows=piece, output_rows=7, heavy_pairs=block, small_rows=small, few_rows=held)
    batches = list(join.results((left, right), None, limits))
    found = Counter(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))
    assert found == Counter(_owed(old_left, new_left, old_right, new_right))
    assert all(0 < b.num_rows <= 7 for b in batches)


# Neighbouring sections of a run as one slice

keyed_texts = st.lists(st.tuples(st.sampled_from("aabc"), st.none() | st.text(max_size=9)), max_size=25)


def text_run(rows: list[tuple[str, str | None]]) -> Sorted:
    order = np.array([ord(key) // 98 for key, _ in rows], np.uint64)
    by_order = np.argsort(order, kind="stable")
    columns = {
        "k": pa.array([key for key, _ in rows], pa.string()),
        "t": pa.array([t for _, t in rows], pa.string()),
    }
    return Sorted(order[by_order], pa.record_batch(columns).take(pa.array(by_order)))


@given(
    keyed_texts,
    keyed_texts,
    st.sampled_from([1, 4, 1_000]),
    st.sampled_from([2, 11, 1 << 20]),
    st.sampled_from([0, 5]),
)
def test_keys_that_share_a_hash_are_told_apart_also_in_blocks(left, right, block, wide, tiled):
    """Texts of any length, some of them missing; where they are wide, or keys differ, pairs go by position."""
    output = (OutputColumn("l", "k", "k"), OutputColumn("l", "t", "one"), OutputColumn("r", "t", "other"))
    limits = Limits(heavy_pairs=block, least_crossed_rows=3, least_tiled_rows=tiled, output_bytes=8 * wide)
    sides = Side("l", [text_run(left)], []), Side("r", [], [text_run(right)])
    batches = list(EquiJoin((("k", "k"),), None, output).results(sides, None, limits))
    found = Counter(row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True))
    assert found == Counter((key, one, other) for key, one in left for also, other in right if key == also)


def test_batches_of_a_block_are_bounded_by_their_widest_value(monkeypatch):
    """By position they would be cut where the wide one is met; a block says beforehand how many rows fit."""
    limits = Limits(least_crossed_rows=10, output_bytes=50_000)
    left, right = texts(1, ["x"] * 500 + ["y" * 1_000]), texts(1, ["z"] * 400)
    join = EquiJoin((), None, (OutputColumn("l", "s", "a"), OutputColumn("r", "s", "b")))
    monkeypatch.setattr(equal, "expand", lambda found, start, rows, limit: iter([]))
    batches = list(join.results((Side("l", [left], []), Side("r", [right], [])), None, limits))
    assert sum(b.num_rows for b in batches) == 501 * 400
    assert max(sum(len(v) for v in b.column(0).to_pylist()) for b in batches) <= 50_000


@pytest.mark.parametrize("rows", [(1, 60_000), (60_000, 1)])
def test_a_single_row_is_not_tiled(rows):
    """However wide it is: thousands of copies would have to be put together."""
    many = max(rows)
    wide = pa.record_batch({"id": np.arange(1), "x": [1.0], "y": [2.0]})
    sides = [wide if n == 1 else pa.record_batch({"id": np.arange(many)}) for n in rows]
    columns = [
        OutputColumn(name, c, f"{name}{c}")
        for name, side in zip("lr", sides, strict=True)
        for c in side.schema.names
    ]
    (batch,) = emit.cross(dict(zip("lr", sides, strict=True)), columns, 1 << 20)
    assert batch.num_rows == many
    long = "l" if rows[0] == many else "r"
    given_ids = sides["lr".index(long)].column("id")
    assert batch.column(f"{long}id").buffers()[1].address == given_ids.buffers()[1].address


@pytest.mark.parametrize("piece, batches", [(20, 1), (19, 5)])
def test_history_of_one_key_is_met_at_once_if_it_fits_a_piece(piece, batches):
    """Else run by run, as views: the history of a key may be larger than memory."""
    history = [run_of([7] * 4, start=4 * place) for place in range(5)]
    columns = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))
    sides = Side("l", [run_of([7] * 3)], []), Side("r", [], history)
    limits = Limits(heavy_pairs=1, piece_rows=piece, small_rows=0)
    found = list(EquiJoin((), None, columns).results(sides, None, limits))
    assert len(found) == batches
    rows = sorted(row for b in found for row in zip(*(c.to_pylist() for c in b.columns), strict=True))
    assert rows == [(i, j) for i in range(3) for j in range(20)]


@pytest.mark.parametrize("fresh", [(), ("l",), ("r",), ("l", "r")], ids=" and ".join)
def test_history_that_no_fresh_row_meets_is_not_touched(monkeypatch, fresh):
    """A heavy key that takes a rest has its history in every plan."""
    gathered = []
    met_at_once = equal._history_at_once
    monkeypatch.setattr(
        equal,
        "_history_at_once",
        lambda side, limits: gathered.append(side.name) or met_at_once(side, limits),
    )
    history = [run_of([7] * 4, start=4 * place) for place in range(2)]
    left, right = (Side(name, [run_of([7], start=8)] if name in fresh else [], history) for name in "lr")
    columns = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))
    found = sum(b.num_rows for b in EquiJoin((), None, columns).results((left, right), None))
    assert found == {0: 0, 1: 8, 2: 17}[len(fresh)]
    assert sorted(gathered) == sorted({"l", "r"} & {{"l": "r", "r": "l"}[name] for name in fresh})


def test_a_side_longer_than_a_batch_is_tiled_in_equal_parts(monkeypatch):
    """A rest of one row would be copied as often as a batch has rows."""
    widths = []
    laid_out = emit._laid_out
    monkeypatch.setattr(
        emit,
        "_laid_out",
        lambda spread, tiled, limit: widths.append(tiled.num_rows) or laid_out(spread, tiled, limit),
    )
    wide, narrow = (
        pa.record_batch({"x": np.arange(1001), "y": np.arange(1001)}),
        pa.record_batch({"z": np.arange(300)}),
    )
    columns = [OutputColumn("l", "x", "x"), OutputColumn("l", "y", "y"), OutputColumn("r", "z", "z")]
    batches = list(emit.cross({"l": wide, "r": narrow}, columns, 1000))
    assert widths == [501, 500]
    pairs_found = np.concatenate([1000 * b.column(0).to_numpy() + b.column(2).to_numpy() for b in batches])
    assert max(b.num_rows for b in batches) <= 1000
    assert np.array_equal(
        np.sort(pairs_found), np.sort((1000 * np.arange(1001)[:, None] + np.arange(300)).ravel())
    )


_SPREAD = [
    pa.array([1, 2, 3, 4, 5], pa.int64()),
    pa.array([1, None, 3, 4, None], pa.int64()),
    pa.array([True, False, True, True, False]),
    pa.array([1, 2, 3, 4, 5], pa.int8()),
    pa.array([0.5, float("nan"), -0.0, 4, 5], pa.float32()),
    pa.array([1, 2, 3, 4, 5], pa.timestamp("us", "UTC")),
    pa.array([Decimal(n) / 10 for n in range(5)], pa.decimal128(38, 1)),
    pa.array([b"abc", b"def", b"ghi", b"jkl", b"mno"], pa.binary(3)),
    pa.array([b"", b"", b"", b"", b""], pa.binary(0)),
    pa.array(["", "a", "bb", None, "a"]),
    pa.array(["x", "y", "x", None, "y"]).dictionary_encode(),
    pa.array([{"a": 1}, {"a": None}, None, {"a": 2}, {"a": 3}]),
    pa.nulls(5),
]


@pytest.mark.parametrize("values", _SPREAD, ids=lambda values: str(values.type).partition(",")[0])
@pytest.mark.parametrize("limit", [5, 14, 100])
def test_values_of_every_type_are_spread_in_a_block(values, limit):
    """From a slice, too: the values of a run begin anywhere in their file."""
    # The side with fewer rows is spread.
    spread, tiled = pa.record_batch({"v": values}).slice(1, 4), pa.record_batch({"n": np.arange(6)})
    columns = [OutputColumn("r", "n", "n"), OutputColumn("l", "v", "v")]
    batches = list(emit.cross({"l": spread, "r": tiled}, columns, limit))
    for batch in batches:
        batch.validate(full=True)
    found = pa.Table.from_batches(batches)
    assert found.schema.field("v").type == values.type
    pairs = zip(*(column.to_pylist() for column in found.columns), strict=True)
    expected = itertools.product(range(6), values.to_pylist()[1:])
    assert sorted(map(repr, pairs)) == sorted(map(repr, expected))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.decimal128(20)], ids=str)
def test_blocks_are_written_into_the_memory_of_arrow(kind):
    """That of numpy goes back to the system: new pages for each batch took longer than all else."""
    spread, tiled = (
        pa.record_batch({"v": pa.array(range(10), kind)}),
        pa.record_batch({"n": np.arange(3_000)}),
    )
    columns = [OutputColumn("r", "n", "n"), OutputColumn("l", "v", "v")]
    before = pa.total_allocated_bytes()
    (first, *_) = batches = list(emit.cross({"l": spread, "r": tiled}, columns, 3_000))
    written = sum(batch.column("v").nbytes for batch in batches)
    assert written == 30_000 * first.column("v").type.bit_width // 8
    assert pa.total_allocated_bytes() - before >= written


def test_a_heavy_key_is_not_paired_row_by_row(monkeypatch):
    """The one side's columns are the same memory in all batches of a block."""
    left, right = run_of([7] * 300), run_of([7] * 200, start=1000)
    monkeypatch.setattr(equal, "expand", lambda found, start, rows, limit: iter([]))
    columns = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"))
    join, sides = EquiJoin((), None, columns), (Side("l", [left], []), Side("r", [], [right]))
    assert sum(b.num_rows for b in join.results(sides, None)) == 60_000
    batches = list(join.results(sides, None, Limits(output_rows=1000)))
    assert len({b.column(0).buffers()[1].address for b in batches}) == 1
    assert {b.num_rows for b in batches} == {900, 600}


def _owed(old_left, new_left, old_right, new_right):
    def numbered(old, new):
        rows = [(k, False) for keys in old for k in keys] + [(k, True) for keys in new for k in keys]
        return list(enumerate(rows))

    for i, (x, fresh_x) in numbered(old_left, new_left):
        for j, (y, fresh_y) in numbered(old_right, new_right):
            if x == y and (fresh_x or fresh_y):
                yield i, j


@given(st.lists(small_keys, min_size=1, max_size=5), st.integers(1, 30))
def test_cut_covers_all_keys_once_in_ascending_ranges(lists, limit):
    runs = runs_of(lists)
    ranges = list(cut([runs], [1], limit))
    assert ranges[0].low == 0
    assert ranges[-1].high == KEY_SPACE
    assert all(a.high == b.low and a.low < a.high for a, b in itertools.pairwise(ranges))
    pieces = [[len(run.between(range_)) for run in runs] for range_ in ranges]
    assert [sum(column) for column in zip(*pieces, strict=True)] == [len(run) for run in runs]


@given(st.lists(small_keys, min_size=1, max_size=5))
def test_concatenate_keeps_every_row_and_sorts(lists):
    merged = concatenate(runs_of(lists))
    assert sorted(merged.rows.column("id").to_pylist()) == list(range(sum(map(len, lists))))
    assert np.all(merged.keys[:-1] <= merged.keys[1:])
    assert np.array_equal(order_keys([merged.rows.column("k")]), merged.keys)


def test_rows_without_stored_columns_are_still_counted():
    left = run_of([1, 2, 2])
    bare = Sorted(left.keys, left.rows.select([]))
    join = EquiJoin((), None, (OutputColumn("l", "id", "a"),))
    batches = list(join.results((Side("l", [left], []), Side("r", [bare, bare], [])), None))
    assert sum(b.num_rows for b in batches) == 10


def test_a_column_of_a_block_may_come_out_under_two_names():
    side = run_of([2] * 3)
    twice = (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b"), OutputColumn("l", "id", "c"))
    sides = Side("l", [side], []), Side("r", [side], [])
    (batch,) = EquiJoin((), None, twice).results(sides, None, Limits(heavy_pairs=1))
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    assert sorted(rows) == [(i, j, i) for i in range(3) for j in range(3)]


def test_a_block_may_have_columns_of_one_side_only():
    join, left = EquiJoin((), None, (OutputColumn("l", "id", "a"),)), run_of([2] * 5)
    bare = Sorted(left.keys, left.rows.select([]))
    for sides in (
        (Side("l", [left], []), Side("r", [bare], [])),
        (Side("r", [bare], []), Side("l", [left], [])),
    ):
        batches = list(join.results(sides, None, Limits(heavy_pairs=1)))
        assert sorted(i for b in batches for i in b.column(0).to_pylist()) == sorted([*range(5)] * 5)


def texts(key: int, values: list[str]) -> Sorted:
    keys = order_keys([pa.array([key] * len(values), pa.int64())])
    return Sorted(keys, pa.RecordBatch.from_pydict({"s": values}))


def test_one_huge_value_among_small_ones_does_not_make_a_huge_batch():
    left = texts(1, ["x"] * 500 + ["y" * 10_000])
    right = texts(1, ["z"] * 40)
    join = EquiJoin((), None, (OutputColumn("l", "s", "a"), OutputColumn("r", "s", "b")))
    sides = Side("l", [left], []), Side("r", [right], [])
    batches = list(coalesce(join.results(sides, None, Limits(output_bytes=50_000)), 65_536, 50_000))
    assert sum(b.num_rows for b in batches) == 501 * 40
    assert max(b.nbytes for b in batches) < 4 * 50_000


def test_small_slices_of_the_history_and_few_candidates_are_met_together():
    """Else each slice would be looked up, and its candidates be gathered, by itself."""
    history = [run_of([place, 7], start=2 * place) for place in range(20)]
    sides = Side("l", [run_of(list(range(20)), start=100)], []), Side("r", [], history)
    join = EquiJoin((), None, (OutputColumn("l", "id", "a"), OutputColumn("r", "id", "b")))

    def batches(**limits: int) -> int:
        return len(list(join.results(sides, None, Limits(**limits))))

    assert batches() == batches(small_rows=0) == batches(few_rows=0) == 1
    assert batches(small_rows=0, few_rows=0) == 20


def test_few_candidates_with_large_values_are_not_copied(monkeypatch):
    """A thousand pairs with one row of a megabyte would be a gigabyte."""
    taken, take_rows = [], few.take_rows
    monkeypatch.setattr(few, "take_rows", lambda rows, at: taken.append(len(at)) or take_rows(rows, at))
    wide, narrow = texts(1, ["y" * 10_000]), texts(1, ["z"] * 40)
    join = EquiJoin((), None, (OutputColumn("l", "s", "a"), OutputColumn("r", "s", "b")))
    sides = Side("l", [wide], []), Side("r", [narrow], [])
    batches = list(join.results(sides, None, Limits(output_bytes=50_000)))
    assert not taken
    assert sum(b.num_rows for b in batches) == 40 and max(b.nbytes for b in batches) < 2 * 50_000
    assert len(list(join.results(sides, None))) == 1 and taken


def test_a_heavy_key_in_many_slices_is_gathered_in_bounded_pieces():
    slices_ = [texts(1, ["abcdefgh"] * 20) for _ in range(30)]
    found = list(pieces("l", slices_, Limits(piece_bytes=1_000)))
    assert sum(len(piece.keys) for piece in found) == 600
    assert max(piece.rows.nbytes for piece in found) <= 1_000


def test_small_results_are_put_together_within_rows_and_bytes():
    small = [pa.RecordBatch.from_pydict({"x": [1, 2]})] * 7
    assert [b.num_rows for b in coalesce(small, 6, 300)] == [6, 6, 2]
    wide = [pa.RecordBatch.from_pydict({"x": ["a" * 200]})] * 3
    assert [b.num_rows for b in coalesce(wide, 6, 300)] == [1, 1, 1]


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 20), st.none() | st.integers(1, 15))
def test_coalesced_batches_keep_all_rows_within_the_size(sizes, rows, alone):
    starts = np.cumsum([0, *sizes])
    given_batches = [
        pa.record_batch({"i": np.arange(start, start + size)})
        for start, size in zip(starts, sizes, strict=False)
    ]
    batches = list(coalesce(given_batches, rows, 1 << 20, alone))
    assert sorted(i for b in batches for i in b.column(0).to_pylist()) == list(range(sum(sizes)))
    assert all(b.num_rows <= max(rows, *sizes) for b in batches)
    if alone is not None:
        uncopied = {id(b) for b in batches}
        assert all(id(b) in uncopied for b in given_batches if b.num_rows >= alone)


# Key, window time.
timed = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=12)
JOINS = {
    "equality": (EquiJoin((), None, (A, B)), lambda x, y: x == y),
    "band": (BandJoin(BIGINT, -1, 0, None, (A, B)), lambda x, y: x in (y - 1, y)),
    "any": (ThetaJoin(None, (A, B)), lambda x, y: True),
}


def timed_run(rows: list[tuple[int, int]]) -> Sorted:
    by_key = np.argsort([key for key, _ in rows], kind="stable")
    columns = {"id": np.arange(len(rows)), AT: np.array([at for _, at in rows], np.int64)}
    keys = np.array([key for key, _ in rows], np.uint64)[by_key]
    return Sorted(keys, pa.record_batch(columns).take(pa.array(by_key)))


@pytest.mark.parametrize("kind", JOINS)
@given(timed, timed, st.integers(0, 20))
def test_every_kernel_tests_pairs_for_the_window(kind, left, right, within):
    join, matches = JOINS[kind]
    sides = Side("l", [timed_run(left)], []), Side("r", [], [timed_run(right)])
    found = Counter(
        row
        for batch in join.results(sides, within)
        for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    )
    assert found == Counter(
        (i, j)
        for i, (x, at) in enumerate(left)
        for j, (y, other) in enumerate(right)
        if matches(x, y) and abs(at - other) <= within
    )


keyed = st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=5)


@given(keyed, keyed, keyed, st.integers(0, 4))
def test_candidates_of_three_inputs_are_tested_and_come_out_by_name(one, two, three, within):
    """Emission knows inputs by name, however many there are."""
    places = np.array(list(itertools.product(*(range(len(found)) for found in (one, two, three)))))
    picked = {
        name: Picked(
            pa.record_batch({"k": [k for k, _ in found], AT: [at for _, at in found]}), places[:, at]
        )
        for at, (name, found) in enumerate(zip("abc", (one, two, three), strict=True))
    }
    sum_of_two = Call("+", (Column("a", "k", BIGINT), Column("b", "k", BIGINT)), BIGINT)
    emission = Emission(
        (OutputColumn("c", "k", "ck"), OutputColumn("a", AT, "at")),
        residual=Call(">=", (sum_of_two, Column("c", "k", BIGINT)), BOOLEAN),
        verify=((("a", "k"), ("b", "k")),),
        within=within,
        limits=DEFAULT_LIMITS,
    )
    results = pa.Table.from_batches(emission.results(picked), pa.schema({"ck": pa.int64(), "at": pa.int64()}))
    assert list(zip(*results.to_pydict().values(), strict=True)) == [
        (c[0], a[1])
        for a, b, c in itertools.product(one, two, three)
        if a[0] == b[0] and a[0] + b[0] >= c[0] and max(a[1], b[1], c[1]) - min(a[1], b[1], c[1]) <= within
    ]
