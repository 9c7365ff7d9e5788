"""Streaming HyperCube: an equality join that no hot key can slow down.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2. A key with more than its share of the rows is heavy:
its pairs are a matrix, cut into a grid of cells whose sides follow the square root of its output. A side is halved or
doubled when it is more than a factor of two off. All other keys are light and lie in ranges of order keys.

Differences from the paper, and why:

- A change sends and stores nothing: every task can read every run, and the plan of a batch says who reads what. So
  shapes follow from the present batch, its fresh rows included.
- Counts of suspected keys are exact (runs are sorted). A key is suspected if runs list enough rows of it, or if it is
  large in a sample: a key that is new, or that has a few rows in each of many small runs, is in no list. A plan passes
  the keys with most work on to the next (`suspects.py`).
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

Most of a plan's time is the overhead of calls on short arrays. So sums that several steps need are kept, and methods
of arrays are called rather than the functions of numpy that wrap them.

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
from watersmeet.schemes.hypercube.census import Profile, Stored, among
from watersmeet.schemes.hypercube.choose import choose_allotment
from watersmeet.schemes.hypercube.facts import LIGHT, Bounds, CubeChange, CubePlan, HeavyKey, Owners, Shape
from watersmeet.schemes.hypercube.hot_keys import Frequent, frequent, hot_keys_of, workers_of
from watersmeet.schemes.hypercube.sample import sample_work
from watersmeet.schemes.hypercube.shape import is_heavy
from watersmeet.schemes.hypercube.suspects import (
    WORK_WORKERS,
    Effort,
    choose_effort,
    choose_watched,
    count_suspects,
    settle,
)
from watersmeet.schemes.scheme import KeysOf

# What a change must save the busiest task at least, as a share of a task's mean work. For sampled work: less may be
# the sample's error.
SAMPLED_GAIN = 0.03

# For counted work: a share for each task, and a maximum. The more tasks there are, the more rows a change moves. With a
# hundredth on 48 tasks up to fourteen rows moved for each that arrived, with this up to six.
SURE_GAIN_BY_TASK, SURE_GAIN = 0.005, 0.05

# No better allotment is sought if it would have to cut the ranges to within this part of the largest light key: a cut
# cannot divide a key. Under Zipf 0.5 on 48 tasks no change that was sought below that paid for the rows it moves.
CUT_OFF_BY = 1 / 3

# Changes of shape that a plan remembers.
CHANGES_KEPT = 20


def plan_cube(
    before: CubePlan | None,
    stored: Mapping[str, Stored],
    keys_of: KeysOf,
    tasks: int,
    batch: int,
    effort: Effort | None = None,
) -> CubePlan:
    """Plan a batch, from the plan before it and the runs of each input. How much is looked at follows from both."""
    inputs, runs = tuple(stored), tuple(stored.values())
    known = before or CubePlan(inputs, ())
    ranges = known.ranges if len(known.ranges) == tasks else None
    if not any(one.fresh_rows for one in runs):
        return known if ranges else CubePlan(inputs, even_ranges(tasks), epoch=known.epoch)
    workers = workers_of(tasks)
    seen = [frequent([*one.old, *one.new]) for one in runs]
    were_heavy = {one.key: one for one in known.heavy} if ranges else {}
    all_rows = sum(one.rows for one in runs)
    settled = settle(known.watched, runs)
    effort = effort or choose_effort(settled, runs)
    sample = sample_work(runs, *effort.draws(tasks), tasks, keys_of, effort.met_by_chance, effort.few_keys)
    heavy_before = np.array(sorted(were_heavy), np.uint64)
    counts = count_suspects(runs, sample, seen, settled, heavy_before, tasks, effort, keys_of)
    sampled = sample.without(counts)
    work = counts.probed + counts.emitted
    sampled_work, counted_work = sampled.total, float(work.sum())
    whole = sampled_work + counted_work
    # By the rows, as in the paper, and by the work of this batch: results follow the product of the rows.
    share = np.maximum(counts.total.sum(axis=0) / all_rows, work / whole / WORK_WORKERS)
    mask = is_heavy(share, workers, among(counts.keys, heavy_before))
    heavy_at, light_at = mask.nonzero()[0], (~mask).nonzero()[0]
    light = _put_together(sampled, Profile(counts.keys[light_at], work[light_at]))
    lots = cut_heavy(counts.at(heavy_at), were_heavy, tasks, float(work[heavy_at].sum()) / whole, all_rows)
    lots = with_unequal_cells(lots, runs, keys_of)
    released = released_keys(counts.at(light_at), were_heavy)
    light_old = sum(one.old_rows for one in runs) - sum(sum(lot.old_rows) for lot in (*lots, *released))
    sure = min(SURE_GAIN, SURE_GAIN_BY_TASK * tasks)
    doubt = (SAMPLED_GAIN * sampled_work + sure * counted_work) / tasks
    had = ranges or even_ranges(tasks)
    enough = 1 + max(sure, CUT_OFF_BY * float(light.work.max(initial=0.0)) * tasks / whole)
    chosen, moved = choose_allotment(lots, released, were_heavy, light, had, light_old, doubt, enough)
    heavy = _heavy_keys(lots, chosen.owners, were_heavy, seen, runs)
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
        watched=choose_watched(counts, work, mask, whole, runs, tasks, effort),
    )


def heavy_shapes(heavy: Sequence[HeavyKey]) -> list[tuple[int, Shape, tuple[int, ...]]]:
    return [(one.key, one.shape, one.tasks) for one in heavy]


def _put_together(sampled: Profile, counted: Profile) -> Profile:
    """The work on light keys: sampled for most, exact for those that were counted."""
    keys = np.concatenate([sampled.keys, counted.keys])
    order = keys.argsort(kind="stable")
    return Profile(keys[order], np.concatenate([sampled.work, counted.work])[order])


def _heavy_keys(
    lots: Sequence[Lot],
    owners: Sequence[Owners],
    were_heavy: Mapping[int, HeavyKey],
    seen: Sequence[Frequent],
    runs: Sequence[Stored],
) -> tuple[HeavyKey, ...]:
    if not lots:
        return ()
    keys = [lot.key for lot in lots]
    sought = np.array(keys, np.uint64)
    bounds = [map(Bounds, *(bound.tolist() for bound in one.of(sought))) for one in seen]
    labels = _labels(keys, were_heavy, seen, runs)
    return tuple(
        [
            HeavyKey(lot.key, label, rows, lot.shape, tuple(owned.reshape(-1).tolist()))
            for lot, label, rows, owned in zip(lots, labels, zip(*bounds, strict=True), owners, strict=True)
        ]
    )


def _labels(
    keys: Sequence[int],
    were_heavy: Mapping[int, HeavyKey],
    seen: Sequence[Frequent],
    runs: Sequence[Stored],
) -> list[str]:
    """Each key as text, or as its hash if no run names it."""
    known = {key: were_heavy[key].label for key in keys if key in were_heavy}
    unnamed = {key for key, label in known.items() if label == f"hash {key:016x}"}
    if unnamed:
        # Old runs have been asked before.
        known |= {
            key: label
            for one in runs
            for run in one.new
            for key, label in zip(hot_keys_of(run).keys, hot_keys_of(run).labels, strict=True)
            if label and key in unnamed
        }
    if len(known) < len(keys):
        rest = [key for key in keys if key not in known]
        named = zip(*(one.labels(np.array(rest, np.uint64)) for one in seen), strict=True)
        known |= {
            key: next(filter(None, labels), f"hash {key:016x}")
            for key, labels in zip(rest, named, strict=True)
        }
    return [known[key] for key in keys]


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
