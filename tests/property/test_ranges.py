"""The spread of order keys, and ranges of a band join that are balanced by it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.match import BandJoin, right_range
from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import _marks
from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.model.types import SqlType
from watersmeet.schemes.balance import spread_of
from watersmeet.schemes.range import plan_band_ranges


def run_of(keys: np.ndarray) -> Run:
    """A run as the log would describe it, without a file."""
    keys = np.sort(keys.astype(np.uint64))
    return Run(
        "l", "p", "p", 0, len(keys), 1, int(keys[0]), int(keys[-1]), "", marks=_marks([Sorted(keys, None)])
    )


key_lists = st.lists(st.integers(0, 300) | st.integers(0, KEY_SPACE - 1), min_size=1, max_size=60)


@given(
    st.lists(key_lists, min_size=1, max_size=4), st.lists(st.integers(0, KEY_SPACE), min_size=2, max_size=8)
)
def test_a_spread_counts_every_row_once_and_in_order(runs, asked):
    spread = spread_of(run_of(np.array(keys, np.uint64)) for keys in runs)
    total = sum(map(len, runs))
    assert spread.rank(0) == 0
    assert spread.rank(KEY_SPACE) == pytest.approx(total)
    ranks = [spread.rank(key) for key in sorted(asked)]
    assert all(low <= high + 1e-6 for low, high in itertools.pairwise(ranks))


@given(key_lists, st.integers(1, 9))
def test_bounds_ascend_inside_the_keys(keys, pieces):
    bounds = spread_of([run_of(np.array(keys, np.uint64))]).bounds(pieces)
    assert len(bounds) < pieces
    assert all(low < high for low, high in itertools.pairwise(bounds))
    assert all(min(keys) < bound <= max(keys) + 1 for bound in bounds)


def test_runs_without_marks_are_even():
    hashed = Run("l", "p", "p", 0, 1000, 1, 3, KEY_SPACE - 9, "")
    assert spread_of([hashed]).bounds(4) == pytest.approx([KEY_SPACE * n // 4 for n in (1, 2, 3)])


def test_one_row_far_away_leaves_the_others_where_they_are():
    """Twenty runs of days and one of a date in the year 9999, or at the end of all keys."""
    rng = np.random.default_rng(0)
    runs = [run_of(rng.integers(18_000, 19_000, 2_000)) for _ in range(20)]
    spread = spread_of([*runs, run_of(np.array([18_500, KEY_SPACE - 1], np.uint64))])
    assert spread.rows == pytest.approx(40_002)
    assert all(18_000 < bound < 19_000 for bound in spread.bounds(8))


@given(
    st.lists(key_lists, max_size=3),
    st.lists(key_lists, max_size=3),
    st.integers(1, 7),
    st.integers(-50, 50),
    st.integers(0, 80),
)
def test_ranges_cover_every_key_once(left, right, tasks, low, width):
    join = BandJoin(SqlType("bigint"), low, low + width, None, ())
    runs = [[run_of(np.array(keys, np.uint64)) for keys in side] for side in (left, right)]
    ranges = plan_band_ranges(
        (runs[0][:1], runs[0][1:]), (runs[1][:1], runs[1][1:]), lambda one: right_range(one, join), tasks
    )
    assert len(ranges) == tasks
    assert ranges[0].low == 0
    assert ranges[-1].high == KEY_SPACE
    assert all(one.high == other.low for one, other in itertools.pairwise(ranges))


SHAPES = {
    "even": lambda rng, n: rng.integers(0, 1_000_000, n),
    "bell": lambda rng, n: (rng.normal(0, 1, n) * 1e5).astype(np.int64) + 1_000_000,
    "steep": lambda rng, n: (rng.exponential(1, n) * 1e5).astype(np.int64),
    "few values": lambda rng, n: rng.integers(0, 2500, n),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tasks", [2, 7])
@pytest.mark.parametrize(("low", "high"), [(-500, 500), (None, 0)])
def test_tasks_get_about_equal_work(shape, tasks, low, high):
    """Work is fresh rows read plus pairs met, counted exactly over the keys themselves."""
    rng = np.random.default_rng(5)
    old_left, old_right, new_left, new_right = (
        np.sort(SHAPES[shape](rng, rows)).view(np.uint64) + np.uint64(2**63)
        for rows in (20_000, 20_000, 4_000, 4_000)
    )
    join = BandJoin(SqlType("bigint"), low, high, None, ())
    ranges = plan_band_ranges(
        ([run_of(old_left)], [run_of(new_left)]),
        ([run_of(old_right)], [run_of(new_right)]),
        lambda one: right_range(one, join),
        tasks,
    )
    work = []
    for range_ in ranges:
        mine = inside(new_left, range_)
        pairs = met(mine, np.sort(np.concatenate([old_right, new_right])), low, high)
        pairs += met(inside(old_left, range_), new_right, low, high)
        work.append(len(mine) + len(inside(new_right, range_)) + pairs)
    assert max(work) <= 1.35 * sum(work) / tasks, work


def inside(keys: np.ndarray, range_: KeyRange) -> np.ndarray:
    return keys[[range_.low <= int(key) < range_.high for key in keys]]


def met(left: np.ndarray, right: np.ndarray, low: int | None, high: int | None) -> int:
    """Pairs with low <= left - right <= high; the keys are far from the ends of the key space."""
    signed, other = ((keys - np.uint64(2**63)).view(np.int64) for keys in (left, right))
    first = np.zeros(len(signed), np.int64) if high is None else np.searchsorted(other, signed - high)
    last = len(other) if low is None else np.searchsorted(other, signed - low, side="right")
    return int(np.maximum(last - first, 0).sum())
