"""How the hypercube's planner shares out: tasks, ranges and cells against a slow model."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.schemes.hypercube.allot import (
    CHEAP,
    MOST_LIGHT,
    NOBODY,
    Allotment,
    Lot,
    _cut,
    _relieved,
    _room,
    allot_anew,
    allot_relieved,
    allot_rest,
    allot_sticky,
    light_load,
    task_of,
)
from watersmeet.schemes.hypercube.census import (
    Profile,
)
from watersmeet.schemes.hypercube.choose import inherited, moved_rows
from watersmeet.schemes.hypercube.facts import Bounds, HeavyKey, Shape

MANY = settings(max_examples=max(200, settings().max_examples))

NO_LIGHT = Profile(np.zeros(0, np.uint64), np.zeros(0))


def ranges_at(bounds: list[int]) -> tuple[KeyRange, ...]:
    return tuple(itertools.starmap(KeyRange, itertools.pairwise([0, *sorted(bounds), KEY_SPACE])))


bounds_at = st.sampled_from([0, 1, 7, 1 << 62, 1 << 63, KEY_SPACE - 1, KEY_SPACE]) | st.integers(0, KEY_SPACE)


@MANY
@given(st.lists(bounds_at, max_size=6), st.lists(bounds_at.filter(lambda b: b < KEY_SPACE), max_size=8))
def test_a_key_belongs_to_the_task_in_whose_range_it_lies(bounds, keys):
    ranges = ranges_at(bounds)
    found = task_of(np.array(keys, np.uint64), ranges).tolist()
    assert found == [next(t for t, r in enumerate(ranges) if r.low <= key < r.high) for key in keys]


loads = st.lists(st.floats(0, 1e6) | st.integers(0, 10).map(float), min_size=1, max_size=12).map(np.array)


@MANY
@given(loads, st.floats(0, 1e7) | st.integers(0, 30).map(float))
def test_light_work_fills_the_tasks_like_water(load, light):
    """Against bisection of the level. No task takes more than twice an equal share."""
    room = _room(load, light)
    most = MOST_LIGHT * light / len(load)
    low, high = 0.0, float(load.max()) + light + 1
    for _ in range(200):
        level = (low + high) / 2
        low, high = (level, high) if np.clip(level - load, 0, most).sum() < light else (low, level)
    assert room == pytest.approx(np.clip(low - load, 0, most), abs=1e-6 * (1 + load.max() + light))
    assert room.sum() == pytest.approx(light, abs=1e-6 * (1 + load.max() + light))


@MANY
@given(
    st.lists(st.tuples(st.integers(0, KEY_SPACE - 1), st.floats(0.5, 100)), max_size=60),
    st.lists(st.just(0.0) | st.floats(0.01, 100), min_size=1, max_size=8),
)
def test_ranges_cover_the_keys_once_and_hold_what_there_is_room_for(points, room):
    points = sorted(dict(points).items())
    light = Profile(np.array([k for k, _ in points], np.uint64), np.array([w for _, w in points]))
    # Without work there is no room for it.
    ranges = _cut(light, np.array(room) * bool(points))
    assert len(ranges) == len(room)
    assert ranges[0].low == 0 and ranges[-1].high == KEY_SPACE
    assert all(one.high == other.low for one, other in itertools.pairwise(ranges))
    assert all(one.low <= one.high for one in ranges)
    if points and sum(room):
        wanted = np.cumsum(room) * light.total / sum(room)
        # A bound is off by half of the key that lies across it, at most.
        largest = float(light.work.max())
        assert np.all(np.abs(np.cumsum(light_load(light, ranges)) - wanted) <= largest / 2 + 1e-6)


# Shapes of two or three sides, all alike; the work of a cell.
some_lots = st.integers(2, 3).flatmap(
    lambda inputs: st.lists(
        st.tuples(st.tuples(*[st.integers(1, 4)] * inputs), st.floats(1, 100)), min_size=1, max_size=5
    )
)


@MANY
@given(some_lots, st.integers(1, 8), st.floats(0, 3))
def test_light_keys_even_out_what_the_cells_leave_uneven(drawn, tasks, factor):
    """No task ends above the level that the light work would rise to as water, but for the keys across its two bounds."""
    lots = [Lot(place, shape, work, (0,) * len(shape)) for place, (shape, work) in enumerate(drawn)]
    kept = [np.full(lot.shape, NOBODY) for lot in lots]
    cells = sum(lot.cell_work * math.prod(lot.shape) for lot in lots)
    count = 2_000
    keys = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(KEY_SPACE // (count + 2))
    light = Profile(keys, np.full(count, cells * factor / count))
    found = allot_anew(lots, kept, light, tasks)
    held = np.zeros(tasks)
    for lot, owners in zip(lots, found.owners, strict=True):
        held += np.bincount(owners.reshape(-1), minlength=tasks) * lot.cell_work
    most, low, high = MOST_LIGHT * light.total / tasks, 0.0, held.max() + light.total
    for _ in range(100):
        level = (low + high) / 2
        low, high = (level, high) if np.clip(level - held, 0, most).sum() < light.total else (low, level)
    total = held + light_load(light, found.ranges)
    across = 2 * float(light.work.max()) + 1e-6 * cells
    assert np.all(total <= np.maximum(held, level) + across)


def test_work_that_is_lost_in_rounding_is_cut_evenly():
    light = Profile(np.array([5, 6], np.uint64), np.array([1.0, 1.0]))
    with np.errstate(all="raise"):
        ranges = _cut(light, _room(np.array([1e18, 1e18, 1e18]), 2.0))
    assert ranges == ranges_at([KEY_SPACE // 3, KEY_SPACE * 2 // 3])


powers = st.integers(0, 3).map(lambda bits: 1 << bits)


@st.composite
def heavy_keys(draw, key: int, tasks: int, inputs: int) -> HeavyKey:
    shape = tuple(draw(powers) for _ in range(inputs))
    owners = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, tasks, math.prod(shape))
    return HeavyKey(key, "", (Bounds(0, 0),) * inputs, shape, tuple(owners.tolist()))


@st.composite
def allotments(draw):
    """Lots with owners, their plans before (or none: they were light), ranges before and after."""
    tasks, inputs = draw(st.integers(1, 6)), draw(st.integers(2, 3))
    lots, owners, before = [], [], {}
    for key in range(1, draw(st.integers(0, 4)) + 1):
        now = draw(heavy_keys(key << 60, tasks, inputs))
        if draw(st.booleans()):
            before[now.key] = draw(heavy_keys(now.key, tasks, inputs))
        # Rows that every cut divides evenly.
        rows = tuple(64 * draw(st.integers(0, 5)) for _ in range(inputs))
        lots.append(Lot(now.key, now.shape, 1.0, rows))
        owners.append(np.array(now.tasks).reshape(now.shape))
    bounds = st.lists(st.integers(0, 16), min_size=tasks - 1, max_size=tasks - 1)
    old, new = (ranges_at([b * KEY_SPACE // 16 for b in draw(bounds)]) for _ in range(2))
    return lots, Allotment(tuple(owners), new, np.zeros(tasks), np.zeros(tasks)), before, old


def reads(shape: Shape, owners, side: int, rows: int, task: int) -> set[int]:
    """Numbers of the rows of a key that a task reads of one input."""
    mine = {cell[side] for cell in np.argwhere(np.array(owners).reshape(shape) == task)}
    return {row for row in range(rows) if row * shape[side] // rows in mine}


@MANY
@given(allotments(), st.integers(0, 3))
def test_moved_rows_are_those_that_a_task_reads_and_did_not(drawn, sixteenths):
    lots, after, before, old = drawn
    light = task_of(np.array([lot.key for lot in lots], np.uint64), old)
    had_owners = [
        before[lot.key].owners if lot.key in before else np.full((1,) * len(lot.shape), task)
        for lot, task in zip(lots, light, strict=True)
    ]
    moved = moved_rows(lots, after, had_owners, old, 1600 * sixteenths)
    whole = sum(moved)
    assert moved_rows(lots, after, had_owners, old, 1600 * sixteenths, whole) is None
    assert moved_rows(lots, after, had_owners, old, 1600 * sixteenths, whole + 1) == moved
    for lot, owners, found in zip(lots, after.owners, moved, strict=False):
        known = before.get(lot.key)
        was = known.shape if known else (1,) * len(lot.shape)
        had = known.tasks if known else [next(t for t, r in enumerate(old) if r.low <= lot.key < r.high)]
        expected = sum(
            len(reads(lot.shape, owners, side, rows, task) - reads(was, had, side, rows, task))
            for task in range(len(old))
            for side, rows in enumerate(lot.old_rows)
        )
        assert found == expected
    gained = sum(
        (new.low <= point < new.high) and not (was.low <= point < was.high)
        for new, was in zip(after.ranges, old, strict=True)
        for point in [KEY_SPACE // 16 * step for step in range(16)]
    )
    assert moved[-1] == 100 * sixteenths * gained


@MANY
@given(st.integers(1, 5), st.integers(0, KEY_SPACE - 1), st.integers(2, 3), st.data())
def test_of_a_split_cell_one_part_is_inherited_and_of_joined_ones_one_owner_stays(tasks, key, inputs, data):
    before = data.draw(heavy_keys(key, 7, inputs))
    had, shape = before.shape, tuple(data.draw(powers) for _ in range(inputs))
    cells = math.prod(had)
    # Every old cell under a number of its own.
    numbered = replace(before, tasks=tuple(range(cells)))
    places = inherited(numbered, numbered.owners, shape, cells)
    assert places.shape == shape
    stayed = places[places != NOBODY].tolist()
    assert len(stayed) == len(set(stayed)) == math.prod(map(min, shape, had))
    for cell, place in np.ndenumerate(places):
        if place != NOBODY:
            # The old cell and the new one lie over each other.
            for at, old_at, of, old_of in zip(cell, np.unravel_index(place, had), shape, had, strict=True):
                assert at * old_of // of == old_at or old_at * of // old_of == at
    owners = np.append(before.tasks, NOBODY)[places]
    assert (
        inherited(before, before.owners, shape, tasks).tolist()
        == np.where(owners < tasks, owners, NOBODY).tolist()
    )
    if all(side >= old for side, old in zip(shape, had, strict=True)):
        filled = np.where(places == NOBODY, cells, places).reshape(-1)
        grown = replace(numbered, shape=shape, tasks=tuple(filled.tolist()))
        assert inherited(grown, grown.owners, had, cells).reshape(-1).tolist() == list(numbered.tasks)


@st.composite
def half_owned(draw):
    tasks, inputs = draw(st.integers(1, 6)), draw(st.integers(2, 3))
    lots, kept = [], []
    for key in range(draw(st.integers(0, 4))):
        one = draw(heavy_keys(key, tasks + 3, inputs))
        owners = np.array(one.tasks).reshape(one.shape)
        lots.append(Lot(key, one.shape, draw(st.just(0.0) | st.floats(0.1, 50)), (0,) * inputs))
        kept.append(np.where(owners < tasks, owners, NOBODY))
    keys = np.sort(np.random.default_rng(draw(st.integers(0, 99))).integers(0, KEY_SPACE, 40, np.uint64))
    return lots, kept, Profile(keys, np.full(40, draw(st.floats(0.1, 10)))), tasks


@MANY
@given(half_owned())
def test_every_cell_has_an_owner_who_keeps_it_and_the_load_is_theirs(drawn):
    lots, kept, light, tasks = drawn
    even = ranges_at([KEY_SPACE * task // tasks for task in range(1, tasks)])
    sticky = allot_sticky(lots, kept, light, even)
    options = [
        (sticky, kept),
        (allot_rest(sticky, light), kept),
        (allot_relieved(lots, kept, light, even), _relieved(lots, kept, light.total, tasks)),
        (
            allot_anew(lots, kept, light, tasks),
            [
                np.full_like(owners, NOBODY) if lot.cell_work else owners
                for lot, owners in zip(lots, kept, strict=True)
            ],
        ),
    ]
    for option, had in options:
        load = light_load(light, option.ranges)
        for lot, owners, known in zip(lots, option.owners, had, strict=True):
            assert np.all((owners >= 0) & (owners < tasks))
            assert np.all(owners[known != NOBODY] == known[known != NOBODY])
            load += np.bincount(owners.reshape(-1), minlength=tasks) * lot.cell_work
            if not lot.cell_work:
                given_out = np.bincount(owners[known == NOBODY], minlength=tasks)
                assert given_out.max() <= given_out.min() + 1
        assert option.load == pytest.approx(load)
        assert option.busiest == max(option.load)
    assert options[0][0].ranges == even
    # Given out anew, no task has more of the heavy work than an equal share and a cell. Relieved, a task that keeps its
    # cells has no more than an equal share of all work and a cell.
    cell = max((lot.cell_work for lot in lots), default=0.0)
    for (option, _), mean in ((options[3], None), (options[2], options[2][0].load.mean())):
        heavy = option.load - light_load(light, option.ranges)
        assert heavy.max() <= (heavy.mean() if mean is None else mean) + cell + 1e-6


@MANY
@given(half_owned())
def test_only_tasks_above_the_mean_are_relieved_and_of_no_more_than_that(drawn):
    lots, kept, light, tasks = drawn
    before, after = (
        sum(
            (
                np.bincount(owners[owners != NOBODY], minlength=tasks) * lot.cell_work
                for lot, owners in zip(lots, held, strict=True)
            ),
            np.zeros(tasks),
        )
        for held in (kept, _relieved(lots, kept, light.total, tasks))
    )
    mean = (light.total + sum(lot.cell_work * lot.cells for lot in lots)) / tasks
    cell = max((lot.cell_work for lot in lots), default=0.0)
    busy = before > mean
    assert np.array_equal(before[~busy], after[~busy])
    assert np.all(np.abs(after[busy] - mean) <= cell / 2 + 1e-6)


@MANY
@given(
    st.lists(st.tuples(st.integers(1, 16), st.floats(1, 100), st.floats(1, 100)), max_size=6),
    st.integers(1, 8),
)
def test_no_task_reads_far_more_rows_of_heavy_keys_than_others(drawn, tasks):
    """Cheap keys go by their rows; of the others a task with its share of the work has at most two shares of the rows."""
    lots = [
        Lot(key, (cells, 1), work, (0, 0), cell_rows=rows) for key, (cells, work, rows) in enumerate(drawn)
    ]
    found = allot_anew(lots, [np.full(lot.shape, NOBODY) for lot in lots], NO_LIGHT, tasks)
    reads = sum(
        (
            np.bincount(owners.reshape(-1), minlength=tasks) * lot.cell_rows
            for lot, owners in zip(lots, found.owners, strict=True)
        ),
        np.zeros(tasks),
    )
    row_of_work = max((lot.cell_work for lot in lots), default=0.0) / max(1e-9, found.load.mean())
    largest = max((lot.cell_rows for lot in lots), default=0.0)
    share = reads.mean()
    assert reads.max() <= (1 + 1 / CHEAP * (1 + row_of_work)) * share + largest + 1e-6


def test_rows_of_a_cell_move_with_its_owner():
    lot = Lot(5, (1, 1), 1.0, (10, 10))
    same = Allotment((np.array([[0]]),), ranges_at([1 << 63]), np.zeros(2), np.zeros(2))
    known = HeavyKey(5, "", (Bounds(0, 0),) * 2, (1, 1), (0,))
    assert moved_rows([lot], same, [known.owners], same.ranges, 100) == [0, 0]
    other = replace(same, owners=(np.array([[1]]),))
    assert moved_rows([lot], other, [known.owners], same.ranges, 100) == [20, 0]
