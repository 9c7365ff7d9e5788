"""The kernel of many inputs against nested loops: every combination with a fresh row comes out exactly once."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel import multi
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.equal import EquiJoin
from watersmeet.kernel.keys import order_keys
from watersmeet.kernel.multi import MultiJoin
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.model.expression import Call, Column
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import BIGINT, BOOLEAN
from watersmeet.model.window import AT

# A row: its key, a number for residuals, a window time.
Row = tuple[int, int, int]
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(0, 9)), max_size=7)
sides = st.tuples(st.lists(rows, max_size=2), st.lists(rows, max_size=2))
inputs = st.lists(sides, min_size=2, max_size=4)
limits = st.builds(
    Limits,
    piece_rows=st.sampled_from([1, 4, 50]),
    output_rows=st.sampled_from([5, 7]),
    heavy_pairs=st.sampled_from([1, 6, DEFAULT_LIMITS.heavy_pairs]),
    least_crossed_rows=st.just(1),
    least_tiled_rows=st.sampled_from([1, 256]),
)


def run_of(given_rows: list[Row], first: int, hashes: int | None = None) -> Sorted:
    keys = pa.array([key for key, _, _ in given_rows], pa.int64())
    order = order_keys([keys])
    if hashes is not None:
        # Few hashes, so that different keys share one.
        order = np.array([key % hashes for key, _, _ in given_rows], np.uint64)
    by_order = np.argsort(order, kind="stable")
    columns = {
        "k": keys,
        "t": keys.cast(pa.string()),
        "x": pa.array([x for _, x, _ in given_rows], pa.int64()),
        AT: pa.array([at for _, _, at in given_rows], pa.int64()),
        "id": pa.array(range(first, first + len(given_rows)), pa.int64()),
    }
    return Sorted(order[by_order], pa.RecordBatch.from_pydict(columns).take(pa.array(by_order)))


def sides_of(drawn, hashes: int | None = None) -> tuple[tuple[Side, ...], list[list[tuple[bool, Row]]]]:
    """The sides, and for each input its rows by id, each with whether it is fresh."""
    found, everything = [], []
    for number, (old, new) in enumerate(drawn):
        listed: list[tuple[bool, Row]] = []
        slices: dict[bool, list[Sorted]] = {False: [], True: []}
        for fresh, runs in ((False, old), (True, new)):
            for run in runs:
                if run:
                    slices[fresh].append(run_of(run, len(listed), hashes))
                    listed += [(fresh, row) for row in run]
        found.append(Side(f"i{number}", slices[True], slices[False]))
        everything.append(listed)
    return tuple(found), everything


def owed(everything, holds) -> Counter:
    return Counter(
        tuple(at for at, _ in combination)
        for combination in itertools.product(*(list(enumerate(listed)) for listed in everything))
        if any(fresh for _, (fresh, _) in combination)
        and len({row[0] for _, (_, row) in combination}) == 1
        and holds([row for _, (_, row) in combination])
    )


def ids(batches) -> Counter:
    return Counter(row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True))


def output(count: int) -> tuple[OutputColumn, ...]:
    return tuple(OutputColumn(f"i{place}", "id", f"c{place}") for place in range(count))


@given(inputs, limits)
def test_each_combination_with_a_fresh_row_comes_out_once(drawn, bounds):
    given_sides, everything = sides_of(drawn)
    batches = list(MultiJoin((), None, output(len(drawn))).results(given_sides, None, bounds))
    assert ids(batches) == owed(everything, lambda _: True)
    assert all(0 < b.num_rows <= bounds.output_rows for b in batches)


@given(inputs, limits, st.sampled_from(["k", "t"]))
def test_rows_that_share_a_hash_are_told_apart(drawn, bounds, column):
    given_sides, everything = sides_of(drawn, hashes=2)
    join = MultiJoin(((column,) * len(drawn),), None, output(len(drawn)))
    assert ids(join.results(given_sides, None, bounds)) == owed(everything, lambda _: True)


@given(inputs, limits, st.integers(0, 5))
def test_all_times_of_a_result_lie_within_the_window(drawn, bounds, width):
    given_sides, everything = sides_of(drawn)
    found = ids(MultiJoin((), None, output(len(drawn))).results(given_sides, width, bounds))
    assert found == owed(everything, lambda rows: max(r[2] for r in rows) - min(r[2] for r in rows) <= width)


@given(inputs, limits, st.data())
def test_conditions_over_any_inputs_are_tested(drawn, bounds, data):
    places = st.integers(0, len(drawn) - 1)
    pairs = data.draw(st.lists(st.tuples(places, places), min_size=1, max_size=3))
    # Some are sums, which may overflow: they are tested early and, exactly, at the last input.
    shifts = [data.draw(st.none() | st.integers(-2, 2)) for _ in pairs]

    def side(place: int, shift: int | None):
        column = Column(f"i{place}", "x", BIGINT)
        return column if shift is None else Call("+", (column, _literal(shift)), BIGINT)

    parts = tuple(
        Call("<=", (side(one, shift), Column(f"i{other}", "x", BIGINT)), BOOLEAN)
        for (one, other), shift in zip(pairs, shifts, strict=True)
    )
    residual = parts[0] if len(parts) == 1 else Call("and", parts, BOOLEAN)

    def holds(found: list[Row]) -> bool:
        return all(
            found[one][1] + (shift or 0) <= found[other][1]
            for (one, other), shift in zip(pairs, shifts, strict=True)
        )

    given_sides, everything = sides_of(drawn)
    join = MultiJoin((), residual, output(len(drawn)))
    assert ids(join.results(given_sides, None, bounds)) == owed(everything, holds)


def _literal(value: int):
    from watersmeet.model.expression import Literal

    return Literal(value, BIGINT)


@given(st.lists(sides, min_size=2, max_size=2), limits)
def test_two_inputs_are_joined_as_by_the_kernel_for_two(drawn, bounds):
    given_sides, _ = sides_of(drawn)
    of_two = EquiJoin((), None, output(2)).results(given_sides, None, bounds)
    of_many = MultiJoin((), None, output(2)).results(given_sides, None, bounds)
    assert ids(of_many) == ids(of_two)


@given(inputs, st.sets(st.integers(0, 3), max_size=2))
def test_an_input_may_have_no_column_in_the_result(drawn, left_out):
    given_sides, everything = sides_of(drawn)
    chosen = [place for place in range(len(drawn)) if place not in left_out] or [0]
    wanted = tuple(OutputColumn(f"i{place}", "id", f"c{place}") for place in chosen)
    bounds = Limits(heavy_pairs=2, least_crossed_rows=1, output_rows=7)
    expected: Counter = Counter()
    for combination, times in owed(everything, lambda _: True).items():
        expected[tuple(combination[place] for place in chosen)] += times
    assert ids(MultiJoin((), None, wanted).results(given_sides, None, bounds)) == expected


def test_a_key_that_one_input_lacks_is_dropped_before_anything_is_gathered(monkeypatch):
    gathered = []

    def gather(name, looked, first, end, columns, plain=multi.gather):
        found = plain(name, looked, first, end, columns)
        gathered.append((name, found.rows.num_rows))
        return found

    monkeypatch.setattr(multi, "gather", gather)
    many = [(1, 0, 0)] * 200
    drawn = [([], [[*many, (2, 0, 0)]]), ([[*many]], []), ([[(2, 0, 0), (3, 0, 0)]], [])]
    given_sides, _ = sides_of(drawn)
    assert not ids(MultiJoin((), None, output(3)).results(given_sides, None))
    assert not gathered


@pytest.mark.parametrize("heavy_pairs", [1, 10**9])
def test_texts_of_any_size_come_out_in_bounded_batches(heavy_pairs):
    text = pa.array(["x" * 1000] * 20)
    rows_ = pa.RecordBatch.from_pydict({"k": pa.array([1] * 20), "t": text})
    slices = [Sorted(np.zeros(20, np.uint64), rows_)]
    given_sides = tuple(Side(f"i{place}", slices, ()) for place in range(3))
    columns = tuple(OutputColumn(f"i{place}", "t", f"c{place}") for place in range(3))
    bounds = Limits(heavy_pairs=heavy_pairs, output_bytes=100_000, output_rows=4096, least_crossed_rows=1)
    batches = list(MultiJoin((), None, columns).results(given_sides, None, bounds))
    assert sum(b.num_rows for b in batches) == 8000
    assert all(b.get_total_buffer_size() < 1_000_000 and b.num_rows <= 34 for b in batches)
