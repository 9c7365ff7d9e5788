"""How the tasks of a band join share its work: every pair once, and evenly.

Work is fresh rows looked up plus pairs, counted exactly over the keys themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.band_helpers import BandStream, unevenness
from tests.property.test_cube_bounds import inputs
from watersmeet.model.limits import Limits
from watersmeet.schemes.range.plan import unshared

# Every pair once

BANDS = [(-1, 1), (0, 0), (-50, 50), (3, 9), (None, -1), (None, 0), (0, None), (None, None)]

# Few values, so that most of them are hot; some far away.
values = st.integers(0, 12) | st.sampled_from([0, 0, 0, 7, 7, 500, -(2**63), 2**63 - 1])
side = st.lists(values, max_size=40) | st.tuples(values, st.integers(0, 60)).map(
    lambda one: [one[0]] * one[1]
)
batch = st.tuples(side, side, st.integers(1, 9), st.integers(1, 5), st.booleans())


# Also what is hardly any work is shared, so that a few rows are enough.
CUT_ANYTHING = Limits(least_cut_work=0)


def check_pairs(band: tuple[int | None, int | None], window: int | None, script: list) -> int:
    """Live through a script. The number of tasks changes from batch to batch, as after a restart."""
    stream, shared = BandStream(*band, window=window, limits=CUT_ANYTHING), 0
    for left, right, tasks, partitions, merged in script:
        stream.tasks, stream.partitions = tasks, partitions
        plan = stream.add(left, right)
        shared += len(plan.shared)
        assert stream.pairs() == stream.owed()
        if merged and window is None:
            stream.merge()
    return shared


@given(st.sampled_from(BANDS), st.sampled_from([None, None, 0, 2]), st.lists(batch, min_size=1, max_size=4))
def test_each_pair_is_in_one_share_of_one_task(band, window, script):
    check_pairs(band, window, script)


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

# Busiest / mean, what is demanded of the equality join too: of each batch that has enough work for a ratio, as in the
# benchmark (bench/balance.py), and over the whole run, where batches with little work count too.
MOST_UNEVEN = 1.25
# Rows and pairs for each task, on average. With 100 the busiest of 200 tasks is a quarter above the mean by chance alone.
LEAST_UNITS = 1_000
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


def foreign_keys(alpha: float, swapped: bool = False) -> Callable[[np.random.Generator], Batches]:
    """Each value once in one input, and skewed in the other. Most hot values come without a partner at first."""

    def draw(rng: np.random.Generator) -> Batches:
        for keys in np.split(rng.permutation(30_000), 3):
            references = zipf(rng, alpha, 10_000, 30_000)
            yield (references, keys) if swapped else (keys, references)

    return draw


def two_values(rng: np.random.Generator) -> Batches:
    for _ in range(3):
        yield np.where(rng.random(1_500) < 0.9, 1, 2), np.where(rng.random(1_500) < 0.3, 1, 2)


def one_side(swapped: bool) -> Callable[[np.random.Generator], Batches]:
    """Half of the rows of one input have the same value, and no partner."""

    def draw(rng: np.random.Generator) -> Batches:
        for _ in range(3):
            hot, even = rng.integers(5, 10**6, (2, 20_000))
            hot[::2] = 1
            yield (even, hot) if swapped else (hot, even)

    return draw


def lonely_rows(swapped: bool) -> Callable[[np.random.Generator], Batches]:
    """Values with a small share of the work each, and many rows far away."""

    def draw(rng: np.random.Generator) -> Batches:
        for _ in range(3):
            some = np.concatenate([np.arange(4_000) % 200, rng.integers(10**6, 10**9, 8_000)])
            yield (np.arange(4_000) % 200, some) if swapped else (some, np.arange(4_000) % 200)

    return draw


def few_copies(rng: np.random.Generator) -> Batches:
    """Values that have too few rows to be sampled twice, and most of the pairs."""
    for _ in range(3):
        rows = np.concatenate([np.repeat(np.arange(120), 15), rng.integers(10**6, 10**9, 20_000)])
        yield rows, rng.permutation(rows)


def mixed(rng: np.random.Generator) -> Batches:
    for _ in range(3):
        left, right = (
            np.concatenate(
                [
                    *(np.full(int(2_000 * rng.uniform(0, 0.5)), key) for key in (3, 4, 11, 20)),
                    rng.integers(100, 10**6, 2_000),
                ]
            )
            for _ in "lr"
        )
        yield left, right


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
    **{f"foreign keys on the right, Zipf {alpha:g}": foreign_keys(alpha) for alpha in (0, 1, 2)},
    **{f"foreign keys on the left, Zipf {alpha:g}": foreign_keys(alpha, True) for alpha in (0, 1, 2)},
    "two values": two_values,
    "one side on the left": one_side(False),
    "one side on the right": one_side(True),
    "lonely rows on the left": lonely_rows(False),
    "lonely rows on the right": lonely_rows(True),
    "few copies": few_copies,
    "mixed": mixed,
}


def check_even(name: str, band: tuple[int | None, int | None], tasks: int, partitions: int) -> None:
    """Live through all batches of a distribution."""
    stream = BandStream(*band, tasks=tasks, partitions=partitions)
    whole = np.zeros(tasks, np.int64)
    for left, right in DISTRIBUTIONS[name](np.random.default_rng(7)):
        stream.add(left, right)
        work = stream.work()
        whole += work
        if work.mean() >= LEAST_UNITS:
            assert unevenness(work) <= MOST_UNEVEN
    assert unevenness(whole) <= MOST_UNEVEN


@pytest.mark.parametrize("tasks", [2, 16, 48, 200])
@pytest.mark.parametrize("band", [(-1, 1), (-50, 50), (None, -1)], ids=["narrow", "wide", "inequality"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_no_task_has_a_quarter_more_to_do_than_the_mean(name, band, tasks):
    check_even(name, band, tasks, 1)


@pytest.mark.parametrize("tasks", [16, 48])
@pytest.mark.parametrize("band", [(-1, 1), (None, -1)], ids=["narrow", "inequality"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_many_small_runs_are_shared_as_evenly_as_one(name, band, tasks):
    check_even(name, band, tasks, 32)


@pytest.mark.parametrize("tasks", [2, 16, 48, 200])
@pytest.mark.parametrize("swapped", [False, True], ids=["left", "right"])
def test_a_single_row_with_most_of_the_pairs_is_shared(swapped, tasks):
    """One row has 20,000 partners. It is hot in neither input; whatever has many rows is cut by position."""
    rng = np.random.default_rng(0)
    stream = BandStream(-1, 1, tasks=tasks)
    for _ in range(3):
        one, many = np.append(rng.integers(100, 100_000, 500), 8), np.full(20_000, 7)
        stream.add(*((many, one) if swapped else (one, many)))
        assert unevenness(stream.work()) <= MOST_UNEVEN


def test_hot_right_values_beside_few_left_rows_are_not_looked_up_by_one_task():
    """Hardly a left row is close to the right rows: a task that looked them all up would have twice the mean."""
    rng = np.random.default_rng(0)
    stream = BandStream(-1, 1, tasks=2)
    for _ in range(3):
        left, right = rng.integers(200, 4_000, 2)
        stream.add(zipf(rng, 0.0, left, 100_000), zipf(rng, 2.0, right, 100_000))
        assert unevenness(stream.work()) <= MOST_UNEVEN


# A piece of work below `least_cut_work` (64 rows and pairs) is not cut, and rows without partners below LEAST_VOID_ROWS
# (64) are not set aside. A task may have one at each end, and the left rows of a cut piece are looked up on both sides.
# In a batch of some hundred rows, that is much: the worst of 4,500 drawn batches had 189 more, where the mean was 74.
# No batch with a mean of 1,000 needed any.
ALLOWED_ROWS = 256


@settings(max_examples=max(100, settings().max_examples))
@given(
    st.data(),
    st.sampled_from([2, 16, 48, 200]),
    st.sampled_from([(-1, 1), (-50, 50), (None, -1), (0, None)]),
    st.integers(1, 4),
    st.booleans(),
)
def test_every_skew_of_the_equality_join_is_balanced(data, tasks, band, batches, swapped):
    left, right = data.draw(inputs(tasks))
    if swapped:
        left, right = right, left
    stream = BandStream(*band, tasks=tasks)
    for batch in range(batches):
        stream.add(left[batch::batches], right[batch::batches])
        work = stream.work()
        assert work.max() <= MOST_UNEVEN * work.mean() + ALLOWED_ROWS


# Voids


def around(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows on both sides of 50,000, far from it."""
    return np.concatenate([rng.integers(0, 1_000, rows), rng.integers(100_000, 101_000, rows)])


@pytest.mark.parametrize("tasks", [2, 16])
@pytest.mark.parametrize("band", [(-1, 1), (-50, 50)], ids=["narrow", "wide"])
@pytest.mark.parametrize("lonely", ["one left value", "left values", "one right value", "right values"])
def test_many_rows_that_nothing_is_close_to_are_not_looked_up(lonely, band, tasks):
    rng = np.random.default_rng(1)
    stream = BandStream(*band, tasks=tasks)
    for _ in range(2):
        left, right = around(rng, 200), around(rng, 200)
        alone = np.full(20_000, 50_000) if "one" in lonely else rng.integers(40_000, 60_000, 20_000)
        plan = stream.add(
            *((np.append(left, alone), right) if "left" in lonely else (left, np.append(right, alone)))
        )
        assert [one for one in plan.shared if one.is_void]
        rows = stream.work().sum() - stream.pairs().total()
        # Fresh rows that face two tasks are looked up by both. Of the lonely ones, few are.
        assert rows <= 2 * (len(left) + len(right)) + 500
        assert stream.work().max() <= MOST_UNEVEN * stream.work().mean() + ALLOWED_ROWS
        assert stream.pairs() == stream.owed()


@pytest.mark.parametrize(
    ("band", "far"), [((None, -1), 0), ((1, None), 10**6)], ids=["below, for less", "above, for greater"]
)
def test_right_rows_beyond_all_left_ones_are_not_looked_up(band, far):
    rng = np.random.default_rng(1)
    stream = BandStream(*band, tasks=4)
    left, right = rng.integers(1_000, 2_000, 300), rng.integers(1_000, 2_000, 300)
    stream.add(left, np.append(right, np.full(20_000, far)))
    assert stream.work().sum() - stream.pairs().total() <= 4 * (len(left) + len(right))
    assert unevenness(stream.work()) <= MOST_UNEVEN
    assert stream.pairs() == stream.owed()


def test_a_void_is_measured_by_the_work_that_remains():
    """Beside 200,000 rows that cost nothing, voids of 1,000 seem small. They have most of the work that is left."""
    rng = np.random.default_rng(1)
    stream = BandStream(-1, 1, tasks=16)
    places = np.arange(1, 9) * 100_000
    left = np.concatenate([np.arange(200) + place for place in places])
    right = np.concatenate([left, *(np.full(1_000, place + 50_000) for place in places), np.zeros(200_000)])
    stream.add(rng.permutation(left), rng.permutation(right))
    assert unevenness(stream.work()) <= MOST_UNEVEN


def test_a_plan_follows_from_the_rows_alone():
    rng = np.random.default_rng(2)
    left, right = rng.permutation(9_000), zipf(rng, 1.5, 9_000, 9_000)
    plans = [BandStream(-1, 1, tasks=16, partitions=3).add(left, right) for _ in range(2)]
    assert plans[0] == plans[1] and plans[0].shared


@pytest.mark.parametrize("tasks", [16, 48, 200])
def test_values_with_a_thousandth_of_the_rows_and_many_pairs_are_found(tasks):
    """The most frequent of 100,000 values has 300 rows of 200,000 in each input, and more pairs than one of 16 tasks."""
    rng = np.random.default_rng(4)
    values = rng.permutation(100_000)
    stream = BandStream(-1, 1, tasks=tasks)
    for _ in range(2):
        stream.add(*(values[zipf(rng, 0.5, 200_000, 100_000)] for _ in "lr"))
        assert unevenness(stream.work()) <= MOST_UNEVEN


@pytest.mark.parametrize("tasks", [2, 16])
def test_few_partners_are_estimated_from_all_rows_nearby(tasks):
    """One row's partners say little if a row has one or none. Batch by batch, a tenth more than the mean is too much."""
    stream = BandStream(-10, 10, tasks=tasks)
    busiest = mean = 0.0
    for left, right in sparse(np.random.default_rng(3)):
        assert not stream.add(left, right).shared
        busiest, mean = busiest + stream.work().max(), mean + stream.work().mean()
    assert busiest <= 1.1 * mean


@pytest.mark.parametrize("tasks", [16, 48])
@pytest.mark.parametrize(("values", "copies"), [(300, 8), (80, 20)])
def test_partners_of_rows_far_apart_do_not_follow_from_rows_close_to_each_other(values, copies, tasks):
    """Each of the others has one partner, far more than their density says: the same row of the other input."""
    rng = np.random.default_rng(5)
    stream = BandStream(-1, 1, tasks=tasks)
    rows = np.concatenate([np.repeat(np.arange(values), copies), rng.integers(10**6, 10**9, 10_000)])
    left, right = rng.permutation(rows), rng.permutation(rows)
    for batch in range(3):
        stream.add(left[batch::3], right[batch::3])
        assert unevenness(stream.work()) <= MOST_UNEVEN


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
