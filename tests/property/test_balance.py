"""The spread of order keys over runs, as plans estimate it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import _marks
from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.schemes.balance import spread_of


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


@example([0, (1 << 55) - 1, (1 << 55) - 1], 2)
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
