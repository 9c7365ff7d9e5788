"""The spread of order keys, and how the tasks of a band join share its work: every pair once, and evenly.

Work is fresh rows looked up plus pairs, counted exactly over the keys themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.band_helpers import BandStream, unevenness
from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import _marks
from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.schemes.balance import spread_of
from watersmeet.schemes.range.plan import unshared


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


# Every pair once

BANDS = [(-1, 1), (0, 0), (-50, 50), (3, 9), (None, -1), (None, 0), (0, None), (None, None)]

# Few values, so that most of them are hot; some far away.
values = st.integers(0, 12) | st.sampled_from([0, 0, 0, 7, 7, 500, -(2**63), 2**63 - 1])
side = st.lists(values, max_size=40) | st.tuples(values, st.integers(0, 60)).map(
    lambda one: [one[0]] * one[1]
)
batch = st.tuples(side, side, st.integers(1, 9), st.integers(1, 5), st.booleans())


@pytest.fixture
def cut_anything(monkeypatch):
    """Also what is hardly any work is shared, so that a few rows are enough."""
    monkeypatch.setattr("watersmeet.schemes.range.cut.LEAST_CUT_WORK", 0)


def check_pairs(band: tuple[int | None, int | None], window: int | None, script: list) -> int:
    """Live through a script. The number of tasks changes from batch to batch, as after a restart."""
    stream, shared = BandStream(*band, window=window), 0
    for left, right, tasks, partitions, merged in script:
        stream.tasks, stream.partitions = tasks, partitions
        plan = stream.add(left, right)
        shared += len(plan.shared)
        assert stream.pairs() == stream.owed()
        if merged and window is None:
            stream.merge()
    return shared


@pytest.mark.usefixtures("cut_anything")
@given(st.sampled_from(BANDS), st.sampled_from([None, None, 0, 2]), st.lists(batch, min_size=1, max_size=4))
def test_each_pair_is_in_one_share_of_one_task(band, window, script):
    check_pairs(band, window, script)


@pytest.mark.usefixtures("cut_anything")
@given(st.integers(0, 2**32), st.sampled_from(BANDS), st.sampled_from([2, 16, 48]))
@settings(max_examples=30)
def test_each_pair_is_in_one_share_of_one_task_where_values_are_hot(seed, band, tasks):
    rng = np.random.default_rng(seed)
    script = [
        (
            *(zipf(rng, 1.5, int(rng.integers(0, 150)), 20) for _ in "lr"),
            tasks,
            int(rng.integers(1, 20)),
            False,
        )
        for _ in range(3)
    ]
    check_pairs(band, None, script)


def test_left_and_right_rows_are_cut():
    """So that the properties above say something about boxes of all kinds."""
    many = BandStream(-1, 1, tasks=16, partitions=4)
    (one,) = many.add([7] * 400, [7] * 400).shared
    assert one.right_parts == 1 and len(one.boxes) == 16
    few = BandStream(-1, 1, tasks=16, partitions=4)
    (one,) = few.add([7] * 3, [7] * 4_000).shared
    assert one.right_parts > 16
    assert any(box.left_high - box.left_low < one.left_parts for box in one.boxes)
    assert any(box.right_high - box.right_low > 1 for box in one.boxes)
    for stream in (many, few):
        assert stream.pairs() == stream.owed()


# Even work

# Busiest / mean over a whole run: what is demanded of the equality join too.
MOST_UNEVEN = 1.25
KEYS = 2_500
Batches = Iterator[tuple[np.ndarray, np.ndarray]]


def zipf(rng: np.random.Generator, alpha: float, rows: int, keys: int = KEYS) -> np.ndarray:
    weights = np.arange(1, keys + 1) ** -float(alpha)
    return np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(rows)), keys - 1)


def skewed(alpha: float, left: int = 4_000, right: int = 4_000) -> Callable[[np.random.Generator], Batches]:
    def draw(rng: np.random.Generator) -> Batches:
        for _ in range(3):
            yield zipf(rng, alpha, left), zipf(rng, alpha, right)

    return draw


def scattered(rng: np.random.Generator) -> Batches:
    """Hot values lie anywhere among the others."""
    values = rng.permutation(KEYS)
    for _ in range(3):
        yield values[zipf(rng, 1.0, 4_000)], values[zipf(rng, 1.0, 4_000)]


def one_value(rng: np.random.Generator) -> Batches:
    for _ in range(3):
        yield np.full(1_000, 7), np.full(1_000, 7)


def few_left_rows(rng: np.random.Generator) -> Batches:
    for _ in range(3):
        yield np.full(60, 7), np.full(60 * 64, 7)


def in_turn(rng: np.random.Generator) -> Batches:
    for number in range(5):
        hot = 100 + number % 3 * 700
        left, right = (np.where(rng.random(4_000) < 0.7, hot, rng.integers(0, KEYS, 4_000)) for _ in "lr")
        yield left, right


def hot_from_the_middle(rng: np.random.Generator) -> Batches:
    for number in range(4):
        hot = rng.random((2, 4_000)) < (0.5 if number >= 2 else 0.0)
        left, right = (np.where(mask, 1_234, rng.integers(0, KEYS, 4_000)) for mask in hot)
        yield left, right


def hot_on_the_right(rng: np.random.Generator) -> Batches:
    """No left value has many rows, and few of them have most of the pairs."""
    for _ in range(3):
        yield rng.integers(0, KEYS, 4_000), zipf(rng, 1.0, 4_000)


def hot_on_the_left(rng: np.random.Generator) -> Batches:
    for _ in range(3):
        yield zipf(rng, 1.0, 4_000), rng.integers(0, KEYS, 4_000)


def sparse(rng: np.random.Generator) -> Batches:
    """A pair now and then: where each is cannot be sampled, how dense they are can."""
    for _ in range(4):
        yield rng.integers(0, 4_000_000, 10_000), rng.integers(0, 4_000_000, 10_000)


DISTRIBUTIONS = {
    **{f"Zipf {alpha:g}": skewed(alpha) for alpha in np.arange(0, 2.25, 0.25)},
    "Zipf 1, scattered": scattered,
    "one value": one_value,
    "values in turn": in_turn,
    "hot from the middle": hot_from_the_middle,
    "1:64, Zipf 0": skewed(0, 600, 64 * 600),
    "1:64, Zipf 1": skewed(1, 125, 64 * 125),
    "64:1, Zipf 0": skewed(0, 64 * 600, 600),
    "64:1, Zipf 1": skewed(1, 64 * 125, 125),
    "1:64, one value": few_left_rows,
    "hot on the right": hot_on_the_right,
    "hot on the left": hot_on_the_left,
}


def run_uneven(name: str, band: tuple[int | None, int | None], tasks: int, partitions: int) -> float:
    """Busiest / mean over all batches of a distribution."""
    stream = BandStream(*band, tasks=tasks, partitions=partitions)
    work = np.zeros(tasks, np.int64)
    for left, right in DISTRIBUTIONS[name](np.random.default_rng(7)):
        stream.add(left, right)
        work += stream.work()
    return unevenness(work)


@pytest.mark.parametrize("tasks", [2, 16, 48, 200])
@pytest.mark.parametrize("band", [(-1, 1), (-50, 50), (None, -1)], ids=["narrow", "wide", "inequality"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_no_task_has_a_quarter_more_to_do_than_the_mean(name, band, tasks):
    assert run_uneven(name, band, tasks, 1) <= MOST_UNEVEN


@pytest.mark.parametrize("tasks", [16, 48])
@pytest.mark.parametrize("band", [(-1, 1), (None, -1)], ids=["narrow", "inequality"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_many_small_runs_are_shared_as_evenly_as_one(name, band, tasks):
    assert run_uneven(name, band, tasks, 32) <= MOST_UNEVEN


@pytest.mark.xfail(
    reason="a left row with most of the pairs is not shared unless its value is hot on the left too"
)
def test_a_single_left_row_with_most_of_the_pairs_is_shared():
    rng = np.random.default_rng(0)
    stream = BandStream(-1, 1, tasks=2)
    uneven = []
    for _ in range(3):
        left, right = rng.integers(200, 4_000, 2)
        stream.add(zipf(rng, 0.0, left, 100_000), zipf(rng, 2.0, right, 100_000))
        uneven.append(stream.work().max() / stream.work().mean())
    assert max(uneven) <= 1.35


@pytest.mark.parametrize("tasks", [2, 16])
def test_few_partners_are_estimated_from_all_rows_nearby(tasks):
    """One row's partners say little if a row has one or none. Batch by batch, a tenth more than the mean is too much."""
    stream = BandStream(-10, 10, tasks=tasks)
    busiest = mean = 0.0
    for left, right in sparse(np.random.default_rng(3)):
        assert not stream.add(left, right).shared
        busiest, mean = busiest + stream.work().max(), mean + stream.work().mean()
    assert busiest <= 1.1 * mean


SHAPES = {
    "even": lambda rng, n: rng.integers(0, 1_000_000, n),
    "bell": lambda rng, n: (rng.normal(0, 1, n) * 1e5).astype(np.int64) + 1_000_000,
    "steep": lambda rng, n: (rng.exponential(1, n) * 1e5).astype(np.int64),
    "few values": lambda rng, n: rng.integers(0, 2500, n),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tasks", [2, 7])
@pytest.mark.parametrize("band", [(-500, 500), (None, 0)])
def test_where_nothing_is_hot_each_task_has_one_range(shape, tasks, band):
    rng = np.random.default_rng(5)
    stream = BandStream(*band, tasks=tasks)
    for rows in (20_000, 4_000):
        plan = stream.add(SHAPES[shape](rng, rows), SHAPES[shape](rng, rows))
        assert not plan.shared
        assert all(len(unshared(plan, task)) == 1 for task in range(tasks))
        assert unevenness(stream.work()) <= 1.1


def test_batches_without_pairs_are_planned():
    stream = BandStream(-1, 1, tasks=5)
    for left, right in ([], []), ([], [1] * 50), ([], []), ([5], []), ([], [5] * 900), ([1] * 900, []):
        stream.add(left, right)
        assert stream.pairs() == stream.owed()
