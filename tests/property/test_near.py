"""Rows found by value: every row is in one part, in the stretch of exactly the intervals that its value is in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernel import near
from watersmeet.kernel.keys import encode_floats, mix, partners, reach, words
from watersmeet.kernel.near import BandBounds, Intervals, Primary, look_up_near, parts_near
from watersmeet.kernel.rows import Sorted
from watersmeet.model.limits import Limits
from watersmeet.model.signature import LOCATOR
from watersmeet.model.types import BIGINT, SqlType

LAST = (1 << 64) - 1
DOUBLE = SqlType("double")
ends = st.sampled_from([0, 1, 2, 5, LAST - 2, LAST - 1, LAST])
offsets = st.none() | st.integers(-6, 6) | st.sampled_from([-LAST - 1, -LAST, LAST, LAST + 1])


@given(st.lists(ends | st.integers(0, 40), min_size=1, max_size=8), offsets, offsets)
@example([0, LAST], 1, None)
@example([0, LAST], None, -1)
@example([LAST], LAST + 1, None)
def test_the_interval_of_a_word_holds_exactly_its_partners(given_, low, high):
    lower, upper = reach(np.array(given_, np.uint64), low, high, BIGINT)
    for at, word in enumerate(given_):
        for partner in {0, 1, 2, 3, 20, LAST - 1, LAST, *given_}:
            wanted = (low is None or low <= partner - word) and (high is None or partner - word <= high)
            assert (int(lower[at]) <= partner <= int(upper[at])) == wanted


values = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e300, 5e-324])
distances = st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0])


@given(st.lists(values, min_size=1, max_size=6), distances, distances)
def test_float_bounds_are_those_of_the_join_of_two_inputs(given_, low, high):
    if low is None and high is None:
        return
    sorted_ = np.sort(encode_floats(np.array(given_)))
    here, lower, upper = partners(sorted_, low, high, DOUBLE)
    found = reach(sorted_, low, high, DOUBLE)
    assert here == slice(0, len(sorted_))
    assert found[0].tolist() == (lower.tolist() if lower is not None else [0] * len(sorted_))
    assert found[1].tolist() == (upper.tolist() if upper is not None else [LAST] * len(sorted_))


slices_of = st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=9), max_size=4)
intervals = st.lists(st.tuples(st.integers(-12, 12), st.integers(-3, 8)), min_size=1, max_size=8)
limits = st.builds(
    Limits, piece_rows=st.sampled_from([1, 2, 5, 100]), piece_bytes=st.sampled_from([16, 64, 1 << 20])
)


def stored(runs: list[list[int]], collide: int | None) -> tuple[list[Sorted], list[Sorted]]:
    """The slices of a value arrangement with all columns, and of a store of the same rows, by a hash of the value.

    The store has at most `collide` different order keys. The value arrangement also has the locators.
    """
    by_value: list[Sorted] = []
    store: list[Sorted] = []
    first = 0
    for run in runs:
        numbers = pa.array(run, pa.int64())
        ids = np.arange(first, first + len(run))
        first += len(run)
        locators = mix(words(numbers))
        if collide is not None:
            locators %= np.uint64(collide)
        rows = pa.RecordBatch.from_pydict({"v": numbers, "id": ids, LOCATOR: locators.view(np.int64)})
        for into, keys in ((by_value, words(numbers)), (store, locators)):
            order = np.argsort(keys, kind="stable")
            into.append(Sorted(keys[order], rows.take(pa.array(order))))
    return by_value, store


def asked(drawn: list[tuple[int, int]]) -> Intervals:
    lower, upper = (
        words(pa.array(bounds, pa.int64()))
        for bounds in zip(*((low, low + length) for low, length in drawn), strict=True)
    )
    return Intervals(lower, upper)


@example([[0, 2, 5, 9]], [(0, 9), (1, 1)], Limits(), None, False)
@given(slices_of, intervals, limits, st.none() | st.integers(1, 3), st.booleans())
def test_every_row_comes_once_for_each_interval_that_it_is_in(runs, drawn, bounds, collide, located):
    """Also where rows are only located, and rows of different values share a locator."""
    by_value, store = stored(runs, collide)
    sought, which = asked(drawn).distinct()
    looked = look_up_near(sought, by_value)
    primary = Primary(store, "v") if located else None
    found: Counter[tuple[int, int]] = Counter()
    rows_seen: Counter[int] = Counter()
    for part in parts_near("b", looked, sought, ["v", "id"], bounds, primary):
        rows_seen += Counter(part.rows.column("id").to_pylist())
        for key in range(len(sought.lower)):
            at = part.order[part.start[key] : part.start[key] + part.count[key]]
            found += Counter((key, row) for row in part.rows.column("id").take(pa.array(at)).to_pylist())
    assert max(rows_seen.values(), default=1) == 1, "a row is in two parts"
    numbers = [value for run in runs for value in run]
    wanted = Counter(
        (int(which[at]), row)
        for at in {int(one): at for at, one in enumerate(which)}.values()
        for row, value in enumerate(numbers)
        if drawn[at][0] <= value <= drawn[at][0] + drawn[at][1]
    )
    assert found == wanted
    counted = np.zeros(len(sought.lower), np.int64)
    for one in looked:
        counted[one.at.found] += one.at.rows
    assert counted.tolist() == [
        sum(n for (key, _), n in wanted.items() if key == one) for one in range(len(counted))
    ]


@pytest.mark.parametrize("located", [False, True], ids=["held", "located"])
@pytest.mark.parametrize("spread", [1, 50_000], ids=["one value", "many values"])
def test_parts_are_bounded_however_many_rows_an_interval_has(located, spread, monkeypatch):
    taken = []
    plain = near.take_rows
    monkeypatch.setattr(near, "take_rows", lambda rows, at: taken.append(len(at)) or plain(rows, at))
    numbers = np.arange(50_000) % spread
    by_value, store = [], []
    for share in np.array_split(numbers, 5):
        column = pa.array(share)
        # Rows differ in what they are located by, as they do where other keys are part of it.
        locators = mix(words(column)) + np.arange(len(share), dtype=np.uint64) * np.uint64(977)
        rows = pa.RecordBatch.from_pydict({"v": column, LOCATOR: locators.view(np.int64)})
        for into, keys in ((by_value, words(column)), (store, locators)):
            order = np.argsort(keys, kind="stable")
            into.append(Sorted(keys[order], rows.take(pa.array(order))))
    everything = Intervals(np.array([0], np.uint64), np.array([LAST], np.uint64))
    looked = look_up_near(everything, by_value)
    bounds = Limits(piece_rows=1000)
    primary = Primary(store, "v") if located else None
    sizes = [part.rows.num_rows for part in parts_near("b", looked, everything, ["v"], bounds, primary)]
    assert sum(sizes) == len(numbers)
    assert max(sizes) <= 3000 and max(taken) <= 3000
    if spread > 1:
        # By ranges of the value, each row is read once. Only the locators of one value take several passes.
        assert sum(taken) <= 1.1 * len(numbers)


def test_bounds_are_turned_for_the_other_side():
    bounds = BandBounds(BIGINT, -2, 5)
    ten = words(pa.array([10]))
    assert [int(one[0] - ten[0]) for one in bounds.of_one(ten) if one[0] >= ten[0]] == [5]
    other = bounds.of_other(ten)
    assert (int(ten[0] - other.lower[0]), int(other.upper[0] - ten[0])) == (5, 2)
