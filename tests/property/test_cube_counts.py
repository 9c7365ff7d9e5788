"""What the hypercube's planner knows of keys: hot keys, counts and samples against a plain count."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.cube_helpers import Shelf, Stream, count_keys, order
from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.model.limits import Limits
from watersmeet.schemes.hypercube.census import (
    KeyCounts,
    Stored,
    count_by_run,
)
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
    assert len(sample.keys) < 2000
    none = np.zeros(0, np.uint64)
    profile = sample.without(count_keys(inputs, none, shelf.of))
    assert profile.total == pytest.approx(6 * 40_000, rel=0.01)
    sixteenths = np.bincount((profile.keys >> np.uint64(60)).view(np.int64), profile.work, 16)
    true = 6 * np.bincount((left >> np.uint64(60)).view(np.int64), minlength=16)
    assert sixteenths == pytest.approx(true, rel=0.02)
