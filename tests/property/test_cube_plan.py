"""The hypercube's plans over any history of batches: drift, reversal, keys that come and go, windows, other tasks.

The planner may look at every fresh row here instead of a sample, so that all it goes by can be counted.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.shared.zipf import rank_shares
from tests.property.cube_helpers import Keys, Stream, order
from watersmeet.model.facts import KEY_SPACE
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.hypercube.allot import (
    Lot,
    allot_anew,
    allot_relieved,
    allot_rest,
    allot_sticky,
    task_of,
)
from watersmeet.schemes.hypercube.census import Profile
from watersmeet.schemes.hypercube.choose import (
    PAYBACK_BATCHES,
    _as_light,
    choose_allotment,
    inherited,
    moved_rows,
)
from watersmeet.schemes.hypercube.facts import LIGHT, Bounds, CubePlan, HeavyKey
from watersmeet.schemes.hypercube.hot_keys import hot_keys_of, workers_of
from watersmeet.schemes.hypercube.plan import (
    CHANGES_KEPT,
)
from watersmeet.schemes.hypercube.shape import (
    attainable,
    desired_sides,
    first_shape,
    is_heavy,
    next_shape,
)
from watersmeet.schemes.hypercube.suspects import FIRST

ALL_ROWS = replace(FIRST, fresh=1 << 20, old=1 << 20, few_keys=1 << 20)

MANY = settings(max_examples=max(150, settings().max_examples))


@dataclass(frozen=True)
class Batch:
    """Rows of a few hot keys in each input, and a number of others. `merge`: all earlier runs become one before it."""

    hot: dict[int, tuple[int, ...]]
    light: tuple[int, ...]
    merge: bool = False
    tasks: int | None = None

    def keys(self, seed: int) -> list[Keys]:
        rng = np.random.default_rng(seed)
        return [
            order(
                np.concatenate(
                    [
                        *(np.full(rows[side], key) for key, rows in self.hot.items()),
                        rng.integers(100, 10_000, light),
                    ]
                )
            )
            for side, light in enumerate(self.light)
        ]


few = st.integers(0, 60) | st.integers(0, 600)


def batches(inputs: int) -> st.SearchStrategy[Batch]:
    return st.builds(
        Batch,
        st.dictionaries(st.integers(0, 5), st.tuples(*[few] * inputs), max_size=4),
        st.tuples(*[st.integers(0, 400)] * inputs),
        st.booleans(),
        st.sampled_from([None, None, None, 1, 3, 5]),
    )


@dataclass
class Known:
    """What is true of the keys before and in a batch, by counting: rows by key, of each input."""

    old: list[dict[int, int]]
    new: list[dict[int, int]]

    @classmethod
    def of(cls, stream: Stream) -> Known:
        old, new = (
            [
                count(stream.shelf.of(run) for run in runs if (run in stream.fresh) == fresh)
                for runs in stream.runs.values()
            ]
            for fresh in (False, True)
        )
        return cls(old, new)

    def rows(self, key: int) -> list[int]:
        return [old.get(key, 0) + new.get(key, 0) for old, new in zip(self.old, self.new, strict=True)]

    def work(self, key: int) -> int:
        """Fresh rows, and all combinations but those of old rows alone."""
        old = math.prod(one.get(key, 0) for one in self.old)
        return sum(one.get(key, 0) for one in self.new) + math.prod(self.rows(key)) - old

    @property
    def keys(self) -> set[int]:
        return set().union(*self.old, *self.new)

    @functools.cached_property
    def whole(self) -> tuple[int, int]:
        """All rows, and all work."""
        return sum(sum(one.values()) for one in (*self.old, *self.new)), sum(map(self.work, self.keys))

    def shares(self, key: int) -> tuple[float, float]:
        """Of all rows, and of the work of the batch."""
        return sum(self.rows(key)) / self.whole[0], self.work(key) / self.whole[1]


def count(runs) -> dict[int, int]:
    found: dict[int, int] = {}
    for keys in runs:
        for key, rows in zip(*(a.tolist() for a in np.unique(keys, return_counts=True)), strict=True):
            found[key] = found.get(key, 0) + rows
    return found


def live(tasks: int, window: int | None, inputs: int, script: list[Batch]):
    """Plan a script; gives after each batch the stream, the plan before, and what is true of the keys."""
    stream = Stream(tasks, window=window, inputs=("l", "r", "s")[:inputs], effort=ALL_ROWS)
    for seed, batch in enumerate(script):
        if batch.merge and window is None:
            stream.merge()
        if batch.tasks is not None:
            stream.tasks = batch.tasks
        before = stream.plan
        stream.add(*batch.keys(seed))
        yield stream, before


@MANY
@pytest.mark.parametrize("inputs", [2, 3])
@given(st.integers(1, 6), st.sampled_from([None, None, 1, 3]), st.data())
def test_plans_of_any_history(inputs, tasks, window, data):
    script = data.draw(st.lists(batches(inputs), min_size=1, max_size=8))
    for stream, before in live(tasks, window, inputs, script):
        plan = stream.cube
        check_cover(plan, inputs, stream.tasks)
        if stream.fresh:
            known = Known.of(stream)
            was = before if before and len(before.ranges) == stream.tasks else None
            check_heavy(stream, known, was)
            check_shapes(stream, known, was)
            check_events(plan, before, was, stream)
            # Every fresh row was looked at: what is planned is what comes, but for the rows that cells cut unevenly
            # and those that neighbouring cells read together.
            work = stream.work()
            assert plan.mean * stream.tasks >= work.sum() - stream.tasks
            assert plan.load >= plan.mean - 1
        else:
            assert before is None or len(before.ranges) != stream.tasks or plan.ranges == before.ranges


def check_cover(plan: CubePlan, inputs: int, tasks: int) -> None:
    assert len(plan.inputs) == inputs
    assert len(plan.ranges) == tasks
    assert plan.ranges[0].low == 0 and plan.ranges[-1].high == KEY_SPACE
    assert all(one.high == other.low for one, other in itertools.pairwise(plan.ranges))
    assert all(one.low <= one.high for one in plan.ranges)
    keys = [one.key for one in plan.heavy]
    assert keys == sorted(set(keys))
    for one in plan.heavy:
        assert len(one.rows) == len(one.shape) == inputs
        assert len(one.tasks) == math.prod(one.shape)
        assert all(0 <= task < tasks for task in one.tasks)
        assert all(side >= 1 and side & (side - 1) == 0 for side in one.shape)


def check_heavy(stream: Stream, known: Known, was: CubePlan | None) -> None:
    """Heavy by more than a worker's share of the rows, or two of the work; light again below half of that.

    Every key of the batch can be found so, and every one that is listed. A key that neither the batch brings nor a run
    lists has to wait.
    """
    workers = workers_of(stream.tasks)
    heavy = {one.key: one for one in stream.cube.heavy}
    were = {one.key for one in was.heavy} if was else set()
    listed = {key for run in stream.live for key in hot_keys_of(run).keys}
    brought = set().union(*known.new)
    for key in known.keys | were:
        rows, work = known.shares(key)
        share = max(rows, work / 2) * workers
        if abs(share - 1) > 1e-9 and abs(share - 0.5) > 1e-9:
            is_heavy_now = share > 1 or (share > 0.5 and key in were)
            assert is_heavy_now or key not in heavy
            if key in listed | were or (key in brought and work * workers / 2 > 1):
                assert (key in heavy) == is_heavy_now
    for key, one in heavy.items():
        for found, rows_of_input in zip(one.rows, known.rows(key), strict=True):
            assert found.lower <= rows_of_input <= found.upper


def best_sides(rows: list[int], cells: float) -> list[float]:
    """Sides in proportion to the rows, none below one, as many cells: by bisection of the proportion."""
    low, high = 0.0, max(1.0, cells)
    for _ in range(200):
        scale = (low + high) / 2
        enough = math.prod(max(1.0, scale * count) for count in rows) >= max(1.0, cells)
        low, high = (low, scale) if enough else (scale, high)
    return [max(1.0, high * count) for count in rows]


def check_shapes(stream: Stream, known: Known, was: CubePlan | None) -> None:
    """Each side is within a factor of two of the desired one that can be had, where the batch brings the key.

    Where it does not, the side stays, or is halved until it is at most four times too long.
    """
    heavy = stream.cube.heavy
    before = {one.key: one.shape for one in was.heavy} if was else {}
    rows = {one.key: [max(1, count) for count in known.rows(one.key)] for one in heavy}
    output = {key: math.prod(counts) for key, counts in rows.items()}
    work = {one.key: known.work(one.key) for one in heavy}
    whole = sum(map(known.work, known.keys))
    workers = workers_of(stream.tasks)
    busy = max(1, round(workers * sum(work.values()) / whole))
    for one in heavy:
        share = output[one.key] / sum(output.values())
        idle = one.key in before and not work[one.key]
        cells = workers * share if idle else busy * max(share, work[one.key] / max(1, sum(work.values())))
        # Or as many as there are tasks for its rows.
        cells = max(cells, stream.tasks * known.shares(one.key)[0])
        had = before.get(one.key, one.shape)
        for side, held, wanted in zip(one.shape, had, best_sides(rows[one.key], cells), strict=True):
            if idle:
                assert side <= 4 * wanted + 1e-6
                # Not halved once more than needed.
                assert side == held or (side < held and 2 * side > 4 * wanted - 1e-6)
                continue
            lower, upper = (0.5, 2.0) if one.key in before else first_limits(wanted)
            assert wanted * lower - 1e-6 <= side <= wanted * upper + 1e-6


@given(
    st.lists(st.integers(1, 10**6), min_size=2, max_size=4),
    st.floats(1, 1e6),
    st.integers(1, 4096),
)
def test_a_grid_of_any_number_of_sides_has_the_sides_that_the_rule_says(rows, others, workers):
    """`rows_i * (p / OUT)^(1/m)`; a side below one becomes one, and the others are solved again."""
    output = math.prod(rows) * others
    sides = attainable(desired_sides(rows, output, workers))
    cells = workers / others
    assert sides == pytest.approx(best_sides(rows, cells), rel=1e-6)
    assert math.prod(sides) == pytest.approx(max(1.0, cells), rel=1e-6)


def first_limits(wanted: float) -> tuple[float, float]:
    """How far the first shape may be off: the nearest power of two, from four on the next above, or one a tenth below."""
    return (math.sqrt(0.5), math.sqrt(2)) if wanted < 4 - 1e-6 else (2**-0.15 - 1e-6, 2.0)


def check_events(cube: CubePlan, before: CubePlan | None, was: CubePlan | None, stream: Stream) -> None:
    """What changed its shape is told, once; and the epoch goes up exactly when cells or ranges change."""
    known = before or CubePlan(stream.inputs, ())
    told = {change.label: change for change in cube.changes if change.batch == stream.batch - 1}
    old = {one.key: one for one in was.heavy} if was else {}
    now = {one.key: one for one in cube.heavy}
    expected = {}
    for key in old.keys() | now.keys():
        shapes = tuple(plan[key].shape if key in plan else LIGHT for plan in (old, now))
        if shapes[0] != shapes[1]:
            expected[f"hash {key:016x}"] = shapes
    if len(expected) <= CHANGES_KEPT:
        assert {label: (c.before, c.after) for label, c in told.items()} == expected
    assert len(cube.changes) <= CHANGES_KEPT
    assert all(change.moved_rows >= 0 for change in told.values())
    if was is not None:
        cells = [(one.key, one.shape, one.tasks) for one in cube.heavy]
        had = [(one.key, one.shape, one.tasks) for one in known.heavy]
        assert cube.epoch == known.epoch + (cells != had or cube.ranges != was.ranges)


@st.composite
def choices(draw):
    """Lots of a plan before, some of them with other shapes now, and light keys."""
    tasks = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    keys = np.sort(rng.integers(0, KEY_SPACE, 60, np.uint64))
    power = st.integers(0, 3).map(lambda bits: 1 << bits)
    lots, before = [], {}
    for key in keys[:: draw(st.sampled_from([10, 20, 60]))].tolist():
        shape, had = (draw(st.tuples(power, power)) for _ in range(2))
        rows = draw(st.tuples(st.integers(0, 2000), st.integers(0, 2000)))
        lots.append(
            Lot(key, shape, draw(st.just(0.0) | st.floats(1, 100)), rows, sum(rows) / math.prod(shape))
        )
        owners = rng.integers(0, tasks, math.prod(had))
        if draw(st.booleans()):
            before[key] = HeavyKey(key, "", (Bounds(0, 0),) * 2, had, tuple(owners.tolist()))
    light = Profile(keys, np.full(len(keys), draw(st.floats(0, 20))))
    return lots, before, light, even_ranges(tasks), draw(st.integers(0, 5000)), draw(st.floats(0, 100))


@MANY
@given(choices())
def test_the_cheapest_of_all_options_is_taken_though_not_all_are_counted(drawn):
    lots, before, light, ranges, light_old, doubt = drawn
    chosen, moved = choose_allotment(lots, [], before, light, ranges, light_old, doubt)
    tasks = len(ranges)
    light_tasks = task_of(np.array([lot.key for lot in lots], np.uint64), ranges).tolist()
    had = [
        before[lot.key].owners if lot.key in before else np.full((1, 1), task)
        for lot, task in zip(lots, light_tasks, strict=True)
    ]
    kept = [
        inherited(before[lot.key], before[lot.key].owners, lot.shape, tasks)
        if lot.key in before
        else _as_light(lot, task)
        for lot, task in zip(lots, light_tasks, strict=True)
    ]
    options = [allot_sticky(lots, kept, light, tuple(ranges))]
    options += [allot_relieved(lots, kept, light, ranges)]
    options += [allot_rest(options[0], light), allot_anew(lots, kept, light, tasks)]
    costs = []
    for place, option in enumerate(options):
        rows = moved_rows(lots, option, had, ranges, light_old)
        costs.append(option.busiest + sum(rows) / PAYBACK_BATCHES + doubt * bool(place))
        if all(np.array_equal(one, other) for one, other in zip(option.owners, chosen.owners, strict=True)):
            assert option.ranges != chosen.ranges or moved == rows[:-1]
    all_moved = moved_rows(lots, chosen, had, ranges, light_old)
    changed = chosen.ranges != tuple(ranges) or any(
        not np.array_equal(one, other) for one, other in zip(chosen.owners, options[0].owners, strict=True)
    )
    cost = chosen.busiest + sum(all_moved) / PAYBACK_BATCHES + doubt * changed
    assert cost == pytest.approx(min(costs)) or cost <= min(costs)


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_a_batch_without_rows_changes_nothing(tasks):
    stream = Stream(tasks)
    nothing = np.zeros(0, np.uint64)
    first = stream.add(nothing, nothing)
    assert first == CubePlan(("l", "r"), even_ranges(tasks))
    stream.add(order([7] * 500), order([7] * 500))
    kept = stream.plan
    assert stream.add(nothing, nothing) == kept


def test_a_key_that_leaves_the_window_is_light_again_and_the_change_says_what_moves():
    """A few of its rows are left, on many tasks; the one in whose range they lie reads what it had not."""
    stream = Stream(8)
    stream.add(order([7] * 600), order([7] * 600))
    stream.runs = {name: [stream.shelf.store(name, 0, order([7] * 64), 8)] for name in "lr"}
    rest = order(np.arange(100, 9100))
    before = stream.cube
    stream.add(rest, rest)
    assert not stream.cube.heavy
    [heavy] = before.heavy
    change = stream.cube.changes[-1]
    assert (change.before, change.after) == (heavy.shape, LIGHT)
    assert change.moved_rows == stream.moved_rows(before) > 0


@pytest.mark.parametrize("tasks", [2, 4])
def test_what_is_known_exactly_is_balanced_to_a_few_hundredths(tasks):
    """Nearly all work is that of counted keys: an imbalance that a sample could not tell from its error is mended."""
    stream, rng = Stream(tasks), np.random.default_rng(7)
    for _ in range(12):
        stream.add(*(order(rng.choice(10_000, 4_000, p=rank_shares(10_000, 1.2))) for _ in range(2)))
    assert stream.cube.load < 1.04 * stream.cube.mean


def test_even_keys_do_not_change_the_plan_for_what_may_be_the_samples_error():
    """All of it is sampled; the ranges of the first batch stay."""
    stream, rng = Stream(4), np.random.default_rng(7)
    for _ in range(8):
        stream.add(*(order(rng.integers(0, 50_000, 20_000)) for _ in range(2)))
    assert stream.cube.epoch == 0


def test_many_tiny_runs_can_be_planned():
    """With more rows than samples, and no run as long as the distance of two samples."""
    stream = Stream(1, partitions=2000)
    stream.add(order(np.arange(2000)), order(np.arange(2000)))
    assert stream.cube.load == stream.cube.mean == pytest.approx(6000, rel=0.15)


sides = st.tuples(st.floats(0.01, 5000), st.integers(0, 12).map(lambda bits: 1 << bits))


@MANY
@given(st.lists(sides, min_size=2, max_size=4))
def test_a_side_moves_by_powers_of_two_to_within_a_factor_of_two_and_no_further(drawn):
    desired, shape = tuple(wanted for wanted, _ in drawn), tuple(had for _, had in drawn)
    wanted = attainable(desired)
    assert min(wanted) >= 1
    assert math.prod(wanted) == pytest.approx(max(1.0, math.prod(desired)))
    for was, side, want in zip(shape, next_shape(shape, wanted), wanted, strict=True):
        assert want / 2 <= side <= 2 * want
        assert side & (side - 1) == 0
        if want / 2 <= was <= 2 * want:
            assert side == was
        # The least change that is enough.
        elif side < was:
            assert 2 * side > 2 * want
        else:
            assert side / 2 < want / 2
    for side, want in zip(first_shape(wanted), wanted, strict=True):
        lower, upper = first_limits(want)
        assert want * lower * (1 - 1e-9) <= side <= want * upper * (1 + 1e-9)


def test_the_threshold_has_a_hysteresis():
    share = np.array([0.125, 0.13, 0.25, 0.26])
    assert is_heavy(share, 4, np.zeros(4, np.bool_)).tolist() == [False, False, False, True]
    assert is_heavy(share, 4, np.ones(4, np.bool_)).tolist() == [False, True, True, True]


# The running example of 3.3: eight workers, two heavy keys.


def test_the_running_example():
    before = {"b1": (100, 100), "b2": (50, 200)}
    output = sum(left * right for left, right in before.values())
    assert output == 20_000
    assert desired_sides(before["b1"], output, 8) == (2.0, 2.0)
    assert desired_sides(before["b2"], output, 8) == (1.0, 4.0)
    after = {"b1": (100, 300), "b2": (50, 200)}
    output = sum(left * right for left, right in after.values())
    assert output == 40_000
    b1, b2 = (desired_sides(after[key], output, 8) for key in ("b1", "b2"))
    assert b1 == pytest.approx((1.414, 4.243), abs=1e-3)
    assert b2 == pytest.approx((0.707, 2.828), abs=1e-3)
    assert next_shape((2, 2), attainable(b1)) == (2, 4)
    assert next_shape((1, 4), attainable(b2)) == (1, 4)


def test_the_running_example_as_batches():
    """One task has eight workers. All rows of the example in one batch, and then those that make S(b1) grow."""
    stream = Stream(1)
    stream.add(order([1] * 100 + [2] * 50), order([1] * 100 + [2] * 200))
    shapes = {one.key: one.shape for one in stream.cube.heavy}
    b1, b2 = (int(key) for key in order([1, 2]))
    assert shapes == {b1: (2, 2), b2: (1, 4)}
    stream.add(order([]), order([1] * 200))
    shapes = {one.key: one.shape for one in stream.cube.heavy}
    assert shapes[b1][1] == 4 and shapes[b2] == (1, 4)
