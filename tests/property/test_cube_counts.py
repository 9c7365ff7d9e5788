"""What the hypercube's planner knows of keys, and how it shares out: each against a plain count or a slow model."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.cube_helpers import Shelf, Stream, count_keys, order
from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.model.limits import Limits
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
    KeyCounts,
    Profile,
    Stored,
    count_by_run,
)
from watersmeet.schemes.hypercube.choose import inherited, moved_rows
from watersmeet.schemes.hypercube.facts import Bounds, HeavyKey, Shape
from watersmeet.schemes.hypercube.hot_keys import (
    frequent,
    hot_keys,
    hot_keys_of,
    listing_floor,
    most_frequent,
    workers_of,
)
from watersmeet.schemes.hypercube.sample import draw_rows, sample_work

MANY = settings(max_examples=max(200, settings().max_examples))

NO_LIGHT = Profile(np.zeros(0, np.uint64), np.zeros(0))
small_keys = st.lists(st.integers(0, 12), min_size=1, max_size=80)


# Hot keys and their bounds


@MANY
@given(small_keys, st.integers(1, 30))
def test_hot_keys_are_those_of_a_plain_count(values, floor):
    keys = np.sort(np.array(values, np.uint64))
    begin, rows = hot_keys(keys, floor)
    counted = {key: count for key, count in Counter(values).items() if count >= floor}
    assert dict(zip(keys[begin].tolist(), rows.tolist(), strict=True)) == counted
    assert np.array_equal(begin, np.searchsorted(keys, keys[begin]))


@MANY
@given(small_keys, st.integers(1, 30), st.integers(0, 5))
def test_of_too_many_hot_keys_the_largest_are_listed_and_the_floor_bounds_the_others(values, floor, most):
    keys = np.sort(np.array(values, np.uint64))
    begin, rows, raised = most_frequent(keys, floor, most)
    counted = Counter(values)
    listed = dict(zip(keys[begin].tolist(), rows.tolist(), strict=True))
    assert len(listed) <= most
    assert listed == {key: count for key, count in counted.items() if count >= raised}
    if len([count for count in counted.values() if count >= floor]) <= most:
        assert raised == floor
    else:
        # No lower floor would do.
        assert len([count for count in counted.values() if count >= raised - 1]) > most


# Of a run: its keys, and the floor of its list (0: of an older format, without one).
listed_run = st.tuples(small_keys, st.integers(0, 20))


@MANY
@given(st.lists(listed_run, max_size=6), st.sampled_from([1, 2, 100]))
def test_bounds_hold_for_every_key_listed_or_not(runs, most):
    shelf = Shelf(Limits(most_listed_keys=most))
    stored = [
        shelf.store("l", n, np.array(keys, np.uint64), 2, floor) for n, (keys, floor) in enumerate(runs)
    ]
    found = frequent(stored)
    true = Counter(key for keys, _ in runs for key in keys)
    assert found.keys.tolist() == sorted({key for run in stored for key in hot_keys_of(run).keys})
    lower, upper = found.of(np.arange(14, dtype=np.uint64))
    for key in range(14):
        assert lower[key] <= true[key] <= upper[key]
        # No run adds to the doubt whose keys all lie before this one, or behind it.
        slack = sum(
            hot_keys_of(run).floor - 1 if floor else run.rows
            for run, (keys, floor) in zip(stored, runs, strict=True)
            if key not in hot_keys_of(run).keys and min(keys) <= key <= max(keys)
        )
        assert upper[key] - lower[key] == slack


@MANY
@given(st.sampled_from([1, 2, 3, 8, 16]), st.integers(0, 2**32), st.integers(1, 5), st.floats(0.3, 4))
def test_what_is_heavy_in_all_runs_together_is_listed_by_one(tasks, seed, runs, share):
    """By 3.2: a key with more than N / p rows. Small runs list no key of fewer than 32 rows, and may hide as many."""
    rng = np.random.default_rng(seed)
    shelf = Shelf()
    stored = []
    count = 0
    for batch in range(runs):
        rows = int(rng.integers(1, 6000))
        hot = min(rows, int(rows * share / workers_of(tasks) * rng.uniform(0, 2)))
        count += hot
        keys = np.concatenate([np.full(hot, 7), rng.integers(100, 10**9, rows - hot)]).astype(np.uint64)
        stored.append(shelf.store("l", batch, keys, tasks))
    hidden = sum(max(31, run.rows / (2 * workers_of(tasks))) for run in stored)
    if count > hidden:
        assert 7 in frequent(stored).keys
    rows = sum(run.rows for run in stored)
    if all(run.rows >= 64 * workers_of(tasks) for run in stored) and count > rows / workers_of(tasks):
        assert 7 in frequent(stored).keys


@pytest.mark.parametrize("tasks", [1, 2, 16, 48, 500, 5000])
def test_the_floor_of_a_list_is_half_a_worker_or_less(tasks):
    for rows in (1, 10**3, 10**6, 10**9):
        assert listing_floor(rows, tasks) <= max(32, -(-rows // (2 * workers_of(tasks))))


# Counts and samples


def stored(shelf: Shelf, batches, tasks: int = 2) -> list[Run]:
    return [shelf.store("l", n, np.array(keys, np.uint64), tasks) for n, keys in enumerate(batches)]


some_runs = st.lists(small_keys, max_size=3)


# Old and fresh runs of two or three inputs.
some_inputs = st.lists(st.tuples(some_runs, some_runs), min_size=2, max_size=3)


def brute_work(old: list[Counter], new: list[Counter], key: int) -> tuple[int, int]:
    """Fresh rows of a key, and its combinations with a fresh row, by going through all of them."""
    rows = [[False] * o[key] + [True] * n[key] for o, n in zip(old, new, strict=True)]
    return sum(map(sum, rows)), sum(map(any, itertools.product(*rows)))


@MANY
@given(some_inputs, st.sets(st.integers(0, 14)))
def test_counts_and_a_full_sample_give_the_work_of_every_key(inputs, known):
    shelf = Shelf()
    sides = [Stored(stored(shelf, old), stored(shelf, new)) for old, new in inputs]
    keys = np.array(sorted(known), np.uint64)
    counts = count_keys(sides, keys, shelf.of)
    old, new = ([Counter(itertools.chain(*one[age])) for one in inputs] for age in (0, 1))
    probed, emitted = ({key: brute_work(old, new, key)[at] for key in range(15)} for at in (0, 1))
    assert counts.probed.tolist() == [probed[key] for key in sorted(known)]
    assert counts.emitted.tolist() == [emitted[key] for key in sorted(known)]
    assert counts.total.tolist() == [
        [o[key] + n[key] for key in sorted(known)] for o, n in zip(old, new, strict=True)
    ]
    # With as many samples as rows nothing is guessed.
    sample = sample_work(sides, 1000, 1000, 2, shelf.of)
    profile = sample.without(counts)
    found: Counter = Counter()
    for key, own in zip(profile.keys.tolist(), profile.work.tolist(), strict=True):
        found[key] += own
    work = {key: probed[key] + emitted[key] for key in range(15)}
    assert {k: found[k] for k in range(15) if k not in known} == pytest.approx(
        {k: work[k] for k in range(15) if k not in known}
    )
    assert not found.keys() & known
    assert np.all(profile.keys[:-1] <= profile.keys[1:])
    # No key with a fresh row escapes suspicion that has its share of the work. Sums of fractions may be off by a bit.
    suspects = set(sample.busy(0.1 * sample.total, 0, 0.0, keys[:0])[0].tolist())
    surely, perhaps = (
        {key for key in range(15) if probed[key] and work[key] >= share * sum(work.values())}
        for share in (0.1 + 1e-9, 0.1 - 1e-9)
    )
    assert surely <= suspects <= perhaps


@MANY
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4))
def test_results_of_a_key_are_its_combinations_with_a_fresh_row(rows):
    old, new = (np.array([[one[age]] for one in rows]) for age in (0, 1))
    ages = [[False] * o + [True] * n for o, n in rows]
    counts = KeyCounts(np.array([7], np.uint64), new=new, old=old)
    assert counts.emitted.tolist() == [sum(map(any, itertools.product(*ages)))]


# Order keys as a hash gives them, and those at both ends, next to which there is no other.
edge_keys = st.sampled_from([0, 1, KEY_SPACE - 2, KEY_SPACE - 1])
order_keys = st.integers(0, 300).map(lambda value: int(order([value])[0])) | edge_keys


@MANY
@given(st.lists(order_keys, max_size=200), st.sets(order_keys), st.integers(1, 40), st.booleans())
def test_rows_are_counted_alike_in_small_and_in_large_runs(values, sought, runs, by_range):
    shelf = Shelf()
    every = np.array(sorted(values) if by_range else values, np.uint64)
    parts = np.array_split(every, runs) if by_range else [every[n::runs] for n in range(runs)]
    stored = [shelf.store("l", n, part, 2) for n, part in enumerate(parts) if len(part)]
    keys = np.array(sorted(sought), np.uint64)
    counted = Counter(values)
    for rows in (0, 2, 1 << 20):
        [[found]] = count_keys([Stored([], stored)], keys, shelf.of, rows).new[None]
        if len(keys):
            by_run = count_by_run(stored, keys, shelf.of, rows)
            own = [Counter(shelf.of(run).tolist()) for run in stored]
            assert by_run.tolist() == [[one[key] for key in keys.tolist()] for one in own]
        assert found.tolist() == [counted[key] for key in keys.tolist()]


@pytest.mark.parametrize("runs", [1, 7, 100, 1000, 3000])
@pytest.mark.parametrize("samples", [500, 768, 2000])
def test_a_sample_sees_all_of_the_key_space_however_many_runs_there_are(runs, samples):
    """Runs are sorted: what takes every n-th row of each sees the same quantiles of all, or nothing of small ones."""
    shelf = Shelf()
    values = np.arange(24_000)
    new = [shelf.store("l", n, order(values[n::runs]), 2) for n in range(runs)]
    drawn, weight = draw_rows(new, samples, shelf.of)
    keys, hits = np.unique(drawn, return_counts=True)
    assert len(keys) == samples
    assert hits.sum() * weight == pytest.approx(24_000)
    tenths = np.bincount((keys >> np.uint64(32)).astype(np.int64) * 10 >> 32, minlength=10) * weight
    assert np.all(np.abs(tenths - 2400) < 5 * 2400 / np.sqrt(samples / 10))


@pytest.mark.parametrize("stretches", [89, 100, 144, 233, 288, 377, 512])
def test_a_key_that_begins_every_run_is_drawn_as_often_as_any_other(stretches):
    """Runs may be as long as a whole number of stretches. A place that moved by a fixed step would hit the same rows."""
    runs, stretch, first = 40, 20, 8
    shelf = Shelf()
    keys = np.maximum(np.arange(stretches * stretch) - first + 1, 0).astype(np.uint64)
    stored = [shelf.store("l", n, keys, 2) for n in range(runs)]
    drawn, weight = draw_rows(stored, runs * stretches, shelf.of)
    assert weight == stretch
    # Sixteen, and three times the root of what chance makes of it.
    assert 6 <= np.count_nonzero(drawn == 0) <= 26


small_batches = st.lists(
    st.tuples(st.integers(0, 2**32), st.integers(0, 400), st.booleans()), min_size=2, max_size=6
)


@settings(max_examples=50)
@given(st.integers(1, 4), st.sampled_from([None, None, 2]), small_batches, st.integers(2, 3))
def test_watched_keys_have_the_rows_that_all_runs_hold_of_them(tasks, window, script, inputs):
    """They are added up from plan to plan, and must be counted again once rows have left with a window."""
    stream = Stream(tasks, window=window, partitions=2, inputs=("l", "r", "s")[:inputs])
    for seed, rows, merge in script:
        if merge and window is None:
            stream.merge()
        rng = np.random.default_rng(seed)
        stream.add(*(order(rng.geometric(0.1, rows)) for _ in range(inputs)))
        watched = stream.cube.watched
        if not rows:
            continue
        runs = list(stream.runs.values())
        keys = np.array(watched.keys, np.uint64)
        assert np.all(keys[1:] > keys[:-1])
        assert watched.of_rows == tuple(sum(run.rows for run in one) for one in runs)
        assert {one.key for one in stream.cube.heavy} <= set(watched.keys)
        found = count_keys([Stored(one, []) for one in runs], keys, stream.shelf.of)
        assert np.array_equal(found.total, np.array(watched.rows).reshape(found.total.shape))


@pytest.mark.parametrize("runs", [1, 100])
def test_most_keys_are_not_looked_up_and_the_work_of_every_stretch_is_right(runs):
    """Keys of one to three rows, each of which meets five: far more keys than are looked up."""
    shelf = Shelf()
    rng = np.random.default_rng(1)
    left, right = order(rng.integers(0, 40_000, 40_000)), np.repeat(order(np.arange(40_000)), 5)
    new = [shelf.store("l", n, left[n::runs], 2) for n in range(runs)]
    old = shelf.store("r", 0, right, 2)
    looked_up = []

    def keys_of(run: Run):
        looked_up.append(run.path)
        return shelf.of(run)

    inputs = [Stored([], new), Stored([old], [])]
    sample = sample_work(inputs, 4096, 4096, 16, keys_of)
    assert len(sample.keys) < 1000
    none = np.zeros(0, np.uint64)
    profile = sample.without(count_keys(inputs, none, shelf.of))
    assert profile.total == pytest.approx(6 * 40_000, rel=0.01)
    sixteenths = np.bincount((profile.keys >> np.uint64(60)).view(np.int64), profile.work, 16)
    true = 6 * np.bincount((left >> np.uint64(60)).view(np.int64), minlength=16)
    assert sixteenths == pytest.approx(true, rel=0.02)


# Sharing out


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
    return lots, Allotment(tuple(owners), new, np.zeros(tasks)), before, old


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
    options = [
        (allot_sticky(lots, kept, light, even), kept),
        (allot_rest(lots, kept, light, tasks), kept),
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
    same = Allotment((np.array([[0]]),), ranges_at([1 << 63]), np.zeros(2))
    known = HeavyKey(5, "", (Bounds(0, 0),) * 2, (1, 1), (0,))
    assert moved_rows([lot], same, [known.owners], same.ranges, 100) == [0, 0]
    other = replace(same, owners=(np.array([[1]]),))
    assert moved_rows([lot], other, [known.owners], same.ranges, 100) == [20, 0]
