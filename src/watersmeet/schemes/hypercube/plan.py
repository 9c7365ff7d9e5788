"""Streaming HyperCube: an equality join that no hot key can slow down.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2. A key with more than its share of the rows is heavy:
its pairs are a matrix, cut into a grid of cells whose sides follow the square root of its output. A side is halved or
doubled when it is more than a factor of two off. All other keys are light and lie in ranges of order keys.

Differences from the paper, and why:

- A change sends and stores nothing: every task can read every run, and the plan of a batch says who reads what. So
  shapes follow from the present batch, its fresh rows included.
- Counts of suspected keys are exact (runs are sorted). A key is suspected if runs list enough rows of it, or if it is
  large in a sample: a key that is new, or that has a few rows in each of many small runs, is in no list.
- Each task has several workers' worth of cells (`workers`), so that unequal cells can be balanced.
- The ranges of light keys do not have equal width: they even out the load that the cells leave uneven.
- A side that should be narrower than one part leaves its share to the other side (a key that one input has once).
- A key has at least as many cells as its rows would fill tasks. In the paper a key without partners has no worker, and
  one task would read all its rows.
- Workers are divided by a key's part of all heavy output, or of this batch's if that is more: a key that has just
  become hot has little output so far, but all of the batch's work. A key without fresh rows keeps its grid: there is
  nothing to gain, and the rows would move back with the next batch. Only a side that is more than `IDLE_EXCESS` times
  as long as its part of all heavy output allows is halved.

Invariant: the sides of a key with fresh rows are within a factor of two of the desired ones. Those of another key are
at most `IDLE_EXCESS` times too long. So the rows of a task stay near N / p + sqrt(OUT / p), even if keys take turns.
tests/property/test_cube_bounds.py has the constants, which are measured and not proved.

A shape change is not guaranteed to pay for the rows it moves: shapes follow the rule above, and costs are compared
only for owners and ranges. The rows moved per arriving row are not bounded by a constant either: keys that take turns
with a few rows each move more, and the results pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.hypercube.allot import Lot
from watersmeet.schemes.hypercube.cells import cut_heavy, released_keys, with_unequal_cells
from watersmeet.schemes.hypercube.census import Profile, Stored, among, count_keys
from watersmeet.schemes.hypercube.choose import choose_allotment
from watersmeet.schemes.hypercube.facts import LIGHT, Bounds, CubeChange, CubePlan, HeavyKey, Owners, Shape
from watersmeet.schemes.hypercube.hot_keys import Frequent, frequent, workers_of
from watersmeet.schemes.hypercube.sample import sample_work
from watersmeet.schemes.hypercube.shape import is_heavy
from watersmeet.schemes.scheme import Keys, KeysOf

# A key is heavy by its work from this many workers' shares on. The ranges of light keys even out smaller ones.
WORK_WORKERS = 2

# Keys that are counted exactly for each task, beside those that may be heavy: the ones drawn most often.
COUNTED_PER_TASK = 4

# Only those that may have this part of a task's work. Less than that evens out between the keys of a range.
COUNTED_WORK = 1 / 64

# At most as many searches of a key in a run for them: some 20 milliseconds where there are hundreds of tasks and runs.
MOST_SEARCHES = 1 << 17

# A key is counted exactly from this part on of what makes it heavy, in the sample, which may be off by as much.
SUSPECTED = 0.5

# Fresh rows of each input that are drawn for each task, to find hot keys and to estimate the light work. A worker's share
# of the rows is 24 of them. With two thirds as many fresh and old ones, 48 tasks had busiest / mean up to 1.30 under Zipf
# 0.5 in eight partitions, with these up to 1.21.
SAMPLES_PER_TASK = 192

# The same of older rows, for each worker.
OLD_SAMPLES_PER_WORKER = 24

# Where there are few tasks: half a millisecond of look-ups.
LEAST_SAMPLES = 4096

# What a change must save the busiest task at least, as a share of a task's mean work. For sampled work: less may be
# the sample's error.
SAMPLED_GAIN = 0.03

# For counted work: a share for each task, and a maximum. The more tasks there are, the more rows a change moves. With a
# hundredth on 48 tasks up to fourteen rows moved for each that arrived, with this up to six.
SURE_GAIN_BY_TASK, SURE_GAIN = 0.005, 0.05

# Changes of shape that a plan remembers.
CHANGES_KEPT = 20


def plan_cube(
    before: CubePlan | None, stored: Mapping[str, Stored], keys_of: KeysOf, tasks: int, batch: int
) -> CubePlan:
    """Plan a batch, from the plan before it and the runs of each input."""
    inputs, runs = tuple(stored), tuple(stored.values())
    known = before or CubePlan(inputs, ())
    ranges = known.ranges if len(known.ranges) == tasks else None
    if not any(one.fresh_rows for one in runs):
        return known if ranges else CubePlan(inputs, even_ranges(tasks), epoch=known.epoch)
    workers = workers_of(tasks)
    samples = max(LEAST_SAMPLES, SAMPLES_PER_TASK * tasks)
    seen = [frequent([*one.old, *one.new]) for one in runs]
    were_heavy = {one.key: one for one in known.heavy} if ranges else {}
    all_rows = sum(one.rows for one in runs)
    old_samples = max(LEAST_SAMPLES, OLD_SAMPLES_PER_WORKER * workers)
    sample = sample_work(runs, samples, old_samples, tasks, keys_of)
    suspects = [
        sample.suspects(SUSPECTED * all_rows / workers, SUSPECTED * WORK_WORKERS / workers),
        sample.outstanding(
            min(COUNTED_PER_TASK * tasks, MOST_SEARCHES // sum(map(len, runs))), COUNTED_WORK / tasks
        ),
        _listed(seen, SUSPECTED * all_rows / workers),
        np.array(list(were_heavy), np.uint64),
    ]
    counts = count_keys(runs, np.unique(np.concatenate(suspects)), keys_of)
    sampled = sample.without(counts)
    work = counts.probed + counts.emitted
    whole = sampled.total + float(work.sum())
    # By the rows, as in the paper, and by the work of this batch: results follow the product of the rows.
    share = np.maximum(counts.total.sum(axis=0) / all_rows, work / whole / WORK_WORKERS)
    mask = is_heavy(share, workers, among(counts.keys, np.sort(suspects[-1])))
    light = _put_together(sampled, Profile(counts.keys[~mask], work[~mask]))
    lots = cut_heavy(counts.where(mask), were_heavy, tasks, float(work[mask].sum()) / whole, all_rows)
    lots = with_unequal_cells(lots, runs, keys_of)
    released = released_keys(counts.where(~mask), were_heavy)
    light_old = sum(one.old_rows for one in runs) - sum(sum(lot.old_rows) for lot in (*lots, *released))
    sure = min(SURE_GAIN, SURE_GAIN_BY_TASK * tasks)
    doubt = (SAMPLED_GAIN * sampled.total + sure * float(work.sum())) / tasks
    had = ranges or even_ranges(tasks)
    chosen, moved = choose_allotment(lots, released, were_heavy, light, had, light_old, doubt, 1 + sure)
    heavy = _heavy_keys(lots, chosen.owners, were_heavy, seen)
    changes = _changes(heavy, released, were_heavy, moved, batch)
    changed = heavy_shapes(heavy) != heavy_shapes(known.heavy) or chosen.ranges != had
    return CubePlan(
        inputs,
        chosen.ranges,
        heavy=heavy,
        epoch=known.epoch + changed,
        load=round(chosen.busiest),
        mean=round(float(chosen.load.mean())),
        changes=(*known.changes, *changes)[-CHANGES_KEPT:],
    )


def heavy_shapes(heavy: Sequence[HeavyKey]) -> list[tuple[int, Shape, tuple[int, ...]]]:
    return [(one.key, one.shape, one.tasks) for one in heavy]


def _listed(seen: Sequence[Frequent], rows: float) -> Keys:
    """The keys of which the runs of one input list its part of so many rows, in equal parts."""
    return np.concatenate([one.keys[one.listed >= rows / len(seen)] for one in seen])


def _put_together(sampled: Profile, counted: Profile) -> Profile:
    """The work on light keys: sampled for most, exact for those that were counted."""
    keys = np.concatenate([sampled.keys, counted.keys])
    order = np.argsort(keys, kind="stable")
    return Profile(keys[order], np.concatenate([sampled.work, counted.work])[order])


def _heavy_keys(
    lots: Sequence[Lot],
    owners: Sequence[Owners],
    were_heavy: Mapping[int, HeavyKey],
    seen: Sequence[Frequent],
) -> tuple[HeavyKey, ...]:
    keys = np.array([lot.key for lot in lots], np.uint64)
    bounds = [[bound.tolist() for bound in one.of(keys)] for one in seen]
    labels = _labels(keys, were_heavy, seen)
    return tuple(
        HeavyKey(
            key=lot.key,
            label=labels[lot.key],
            rows=tuple(Bounds(lower[place], upper[place]) for lower, upper in bounds),
            shape=lot.shape,
            tasks=tuple(owners[place].reshape(-1).tolist()),
        )
        for place, lot in enumerate(lots)
    )


def _labels(keys: Keys, were_heavy: Mapping[int, HeavyKey], seen: Sequence[Frequent]) -> dict[int, str]:
    """Each key as text, or as its hash if no run names it."""
    labels = {key: f"hash {key:016x}" for key in keys.tolist()}
    known = {
        key: one.label
        for key, unnamed in labels.items()
        if (one := were_heavy.get(key)) and one.label != unnamed
    }
    rest = np.array([key for key in labels if key not in known], np.uint64)
    found = zip(rest.tolist(), *(one.labels(rest) for one in seen), strict=True)
    return labels | known | {key: next(filter(None, named)) for key, *named in found if any(named)}


def _changes(
    heavy: Sequence[HeavyKey],
    released: Sequence[Lot],
    were_heavy: Mapping[int, HeavyKey],
    moved: Sequence[int],
    batch: int,
) -> list[CubeChange]:
    changes = []
    for one, rows in zip(heavy, moved[: len(heavy)], strict=True):
        before = were_heavy[one.key].shape if one.key in were_heavy else LIGHT
        if before != one.shape:
            changes.append(CubeChange(batch, one.label, before, one.shape, rows))
    for lot, rows in zip(released, moved[len(heavy) :], strict=True):
        old = were_heavy[lot.key]
        changes.append(CubeChange(batch, old.label, old.shape, LIGHT, rows))
    return changes
