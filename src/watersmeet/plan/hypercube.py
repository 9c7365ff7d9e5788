"""Streaming HyperCube: an equality join that no hot key can hold back.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2. A key with more than its share of the rows is heavy:
its pairs are a matrix, cut into a grid of cells whose sides follow the square root of its output; a side is halved or
doubled when it is more than a factor of two off. All other keys are light and lie in ranges of order keys.

Where we go another way, and why:

- Nothing is sent or stored for a change: rows lie in runs that every task can read, and the plan of a batch says who
  reads what. So shapes follow from the batch at hand, its fresh rows included.
- Counts of suspected keys are exact (runs are sorted); the sketch only says which to suspect, and within what bounds.
- There are several workers' worth of cells for each task (`workers`), so that unequal cells can be balanced.
- The ranges of light keys are not of equal width: they even out what the cells leave uneven.
- A side that should be narrower than one part leaves its share to the other side (a key that one input has once).
- Workers are shared out by a key's part of all heavy output, or by that of this batch's where it is more: a key that
  has just come into fashion has little output to show, and all of the batch's work. A key that a batch does not bring
  keeps its grid: there is nothing to gain, and the rows would move back with the next batch. Only a side that is more
  than `IDLE_EXCESS` times as long as its part of all heavy output allows is halved.

Invariant: the sides of a key that the batch brings are within a factor of two of the desired ones; those of another
key are at most `IDLE_EXCESS` times too long. So the rows that a task has stay near N / p + sqrt(OUT / p), also where
keys take turns; tests/property/test_cube_bounds.py has the constants, which are measured and not proved.

Not guaranteed: that a change of shape pays for what it moves. Shapes are fixed first, by the rule above; costs are
compared for owners and ranges alone. Nor a constant for rows moved by row that arrives: keys that take turns with a
few rows each move more, and the results pay for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.model.cube import CubeChange, CubePlan, HeavyKey
from watersmeet.model.facts import KeyRange, Plan
from watersmeet.model.grid import GridShape
from watersmeet.plan.allot import (
    NOBODY,
    PAYBACK_BATCHES,
    Allotment,
    Lot,
    allot_anew,
    allot_rest,
    allot_sticky,
    inherited,
    moved_rows,
    task_of,
)
from watersmeet.plan.census import KeyCounts, KeysOf, Profile, Stored, count_keys, sample_work
from watersmeet.plan.frequent import Frequent, frequent
from watersmeet.plan.hash import plan_ranges

# Workers that a task stands for: with so many cells each, the last one that is placed makes little difference.
WORKERS_PER_TASK = 8
MOST_WORKERS = 2048

# A key is heavy by its work from so many workers' shares on: what is less, the ranges of light keys even out.
WORK_WORKERS = 2

# A run need not list keys of fewer rows: their pairs are soon given out.
LEAST_LISTED_ROWS = 32
# What a run lists, as shares of its rows: a key's results go with the square of its rows, so a key that gives a task
# as much to do as all others together may have far less than a task's share of the rows.
LISTED_SHARES, LABELLED_SHARE = 512, 128

# Keys counted exactly, for each worker: the heavy ones (at most two for each), and the largest of the light ones.
COUNTED_PER_WORKER = 4

# Fresh rows looked up for each task and input to see where the light work lies: an error of some 4 % a task.
SAMPLES_PER_TASK = 512

# What a change must spare the busiest task at least, as a share of a task's mean work. Of what is known by a sample:
# less may be the sample's error.
SAMPLED_GAIN = 0.1
# Of what is counted: so much for each task, and at most so much. The more tasks there are, the more rows a change moves:
# with a hundredth on 48 tasks up to fourteen moved for each that arrived, with this up to six.
SURE_GAIN_BY_TASK, SURE_GAIN = 0.005, 0.05

# Changes of shape that a plan remembers.
CHANGES_KEPT = 20

# How many times too long a side may be while its key does not come. A key that comes alone has all workers, and k keys
# of equal output that take turns should have the k-th part each, a side of the root of that: with four, up to sixteen
# of them have a side that suits both, and keep it. With less, grids would grow and shrink with every turn.
IDLE_EXCESS = 4

LIGHT = GridShape(0, 0)


def workers_of(tasks: int) -> int:
    """The p of the paper's formulas."""
    return max(tasks, min(WORKERS_PER_TASK * tasks, MOST_WORKERS))


def listing_floor(rows: int, tasks: int) -> int:
    """From how many rows on a key is listed by a run of so many rows.

    Half a worker's share at most: what is heavy in all runs together is then listed by one of them at least.
    """
    shares = max(LISTED_SHARES * math.sqrt(tasks), 2 * workers_of(tasks))
    return max(LEAST_LISTED_ROWS, math.ceil(rows / shares))


@dataclass(frozen=True, slots=True)
class Sides:
    """How many parts each input's rows of a key should be cut into; not whole numbers yet."""

    rows: float
    cols: float


def desired_sides(left: int, right: int, heavy_output: float, workers: int) -> Sides:
    """What the static HyperCube would give a key with so many rows in each input.

    >>> desired_sides(100, 100, 20_000, 8)
    Sides(rows=2.0, cols=2.0)
    """
    scale = math.sqrt(workers / heavy_output)
    return Sides(left * scale, right * scale)


def attainable(desired: Sides) -> Sides:
    """The nearest with at least one part on each side and as many cells.

    >>> attainable(Sides(12.0, 0.5))
    Sides(rows=6.0, cols=1.0)
    """
    cells = max(1.0, desired.rows * desired.cols)
    if desired.rows < 1:
        return Sides(1.0, cells)
    if desired.cols < 1:
        return Sides(cells, 1.0)
    return desired


def first_shape(wanted: Sides) -> GridShape:
    """The nearest powers of two; from four on the next above, or nearly so, so that a large key is cut finely.

    >>> first_shape(Sides(2.7, 5.2))
    GridShape(rows=2, cols=8)
    """
    return GridShape(_first(wanted.rows), _first(wanted.cols))


# As a power of two: a side that is a tenth above one may stay there.
NEARLY = 0.15


def _first(wanted: float) -> int:
    bits = math.log2(wanted)
    return 1 << (round(bits) if wanted < 4 else math.ceil(bits - NEARLY))


def next_shape(shape: GridShape, wanted: Sides) -> GridShape:
    """Halve or double a side, one at a time, while it is more than a factor of two off.

    >>> next_shape(GridShape(2, 2), Sides(1.414, 4.243))
    GridShape(rows=2, cols=4)
    """
    return GridShape(_stepped(shape.rows, wanted.rows), _stepped(shape.cols, wanted.cols))


def _stepped(parts: int, wanted: float) -> int:
    while parts > 2 * wanted and parts > 1:
        parts //= 2
    while parts < wanted / 2:
        parts *= 2
    return parts


def idle_shape(shape: GridShape, wanted: Sides) -> GridShape:
    """Halve a side while it is more than `IDLE_EXCESS` times too long.

    >>> idle_shape(GridShape(32, 8), Sides(2.0, 4.0))
    GridShape(rows=8, cols=8)
    """
    return GridShape(_shortened(shape.rows, wanted.rows), _shortened(shape.cols, wanted.cols))


def _shortened(parts: int, wanted: float) -> int:
    while parts > IDLE_EXCESS * wanted:
        parts //= 2
    return parts


def is_heavy(share: float, workers: int, was_heavy: bool) -> bool:
    """More than a worker's share makes a key heavy, less than half of it light; in between it stays what it was."""
    return share * workers > (0.5 if was_heavy else 1.0)


def plan_cube(
    before: Plan | None, left: Stored, right: Stored, keys_of: KeysOf, tasks: int, batch: int
) -> Plan:
    """The plan of a batch, from the plan before it and the runs of both inputs."""
    known = before.cube if before and before.cube else CubePlan()
    ranges = before.ranges if before and len(before.ranges) == tasks else None
    if not left.fresh_rows and not right.fresh_rows:
        return Plan(ranges or plan_ranges(tasks), cube=known if ranges else CubePlan(epoch=known.epoch))
    workers = workers_of(tasks)
    seen = frequent([*left.old, *left.new]), frequent([*right.old, *right.new])
    were_heavy = {one.key: one for one in known.heavy} if ranges else {}
    counts = count_keys(left, right, _suspects(seen, were_heavy, workers), keys_of)
    sampled = sample_work(left, right, counts.keys, SAMPLES_PER_TASK * tasks, keys_of)
    work = counts.probed + counts.emitted
    whole = sampled.total + float(work.sum())
    # By the rows, as the paper has it, and by the work of this batch: results go with the square of the rows.
    share = np.maximum((counts.left + counts.right) / (left.rows + right.rows), work / whole / WORK_WORKERS)
    mask = np.array(
        [
            is_heavy(own, workers, key in were_heavy)
            for key, own in zip(counts.keys.tolist(), share.tolist(), strict=True)
        ],
        np.bool_,
    )
    light = _put_together(sampled, Profile(counts.keys[~mask], work[~mask]))
    lots = _lots(counts.where(mask), were_heavy, workers, float(work[mask].sum()) / whole)
    released = _released(counts.where(~mask), were_heavy)
    light_old = (
        left.old_rows + right.old_rows - sum(lot.left_old + lot.right_old for lot in (*lots, *released))
    )
    sure = min(SURE_GAIN, SURE_GAIN_BY_TASK * tasks)
    doubt = (SAMPLED_GAIN * sampled.total + sure * float(work.sum())) / tasks
    chosen, moved = _best(lots, released, were_heavy, light, ranges or plan_ranges(tasks), light_old, doubt)
    heavy = tuple(_heavy_key(lot, chosen.owners[place].reshape(-1), seen) for place, lot in enumerate(lots))
    changes = _changes(heavy, released, were_heavy, moved, batch)
    changed = heavy_shapes(heavy) != heavy_shapes(known.heavy) or chosen.ranges != (
        ranges or plan_ranges(tasks)
    )
    cube = CubePlan(
        heavy=heavy,
        epoch=known.epoch + changed,
        load=round(chosen.busiest),
        mean=round(float(chosen.load.mean())),
        changes=(*known.changes, *changes)[-CHANGES_KEPT:],
    )
    return Plan(chosen.ranges, cube=cube)


def heavy_shapes(heavy: Sequence[HeavyKey]) -> list[tuple[int, GridShape, tuple[int, ...]]]:
    return [(one.key, one.shape, one.tasks) for one in heavy]


def _suspects(
    seen: tuple[Frequent, Frequent], were_heavy: dict[int, HeavyKey], workers: int
) -> npt.NDArray[np.uint64]:
    """The keys to count: those with the highest bounds, and those that were heavy."""
    listed = seen[0].bounds.keys() | seen[1].bounds.keys()
    most = COUNTED_PER_WORKER * workers
    if len(listed) > most:
        upper = {key: seen[0].of(key).upper + seen[1].of(key).upper for key in listed}
        listed = set(sorted(listed, key=lambda key: (-upper[key], key))[:most])
    return np.array(sorted(listed | were_heavy.keys()), np.uint64)


def _put_together(sampled: Profile, counted: Profile) -> Profile:
    """Where the work on light keys lies: by a sample for most, exactly for those that were counted."""
    keys = np.concatenate([sampled.keys, counted.keys])
    order = np.argsort(keys, kind="stable")
    return Profile(keys[order], np.concatenate([sampled.work, counted.work])[order])


def _lots(heavy: KeyCounts, were_heavy: dict[int, HeavyKey], workers: int, heavy_share: float) -> list[Lot]:
    """Shapes for the heavy keys, which are `heavy_share` of all work: of the workers they get as much."""
    # A key that one input lacks has rows all the same: they count as if the other had one.
    left, right = (np.maximum(rows, 1).astype(np.float64) for rows in (heavy.left, heavy.right))
    output, probed, emitted = left * right, heavy.probed, heavy.emitted
    work = probed + emitted
    all_output = float(output.sum())
    share = np.maximum(output / all_output, work / max(1.0, float(work.sum())))
    busy = max(1, round(workers * heavy_share))
    lots = []
    for place, key in enumerate(heavy.keys.tolist()):
        known = were_heavy.get(key)
        sides = int(left[place]), int(right[place])
        if known is not None and not probed[place]:
            # By all workers: what light keys have of this batch says nothing about the one that brings the key.
            shape = idle_shape(known.shape, attainable(desired_sides(*sides, all_output, workers)))
        else:
            wanted = attainable(desired_sides(*sides, float(output[place] / share[place]), busy))
            shape = first_shape(wanted) if known is None else next_shape(known.shape, wanted)
        cell_work = (
            int(heavy.left_new[place]) / shape.rows
            + int(heavy.right_new[place]) / shape.cols
            + float(emitted[place]) / shape.cells
        )
        lots.append(Lot(key, shape, cell_work, int(heavy.left_old[place]), int(heavy.right_old[place])))
    return lots


def _released(light: KeyCounts, were_heavy: dict[int, HeavyKey]) -> list[Lot]:
    """The keys that are heavy no more: all their rows go to the task in whose range they lie."""
    return [
        Lot(key, GridShape(1, 1), 0.0, int(light.left_old[place]), int(light.right_old[place]))
        for place, key in enumerate(light.keys.tolist())
        if key in were_heavy
    ]


def _best(
    lots: Sequence[Lot],
    released: Sequence[Lot],
    were_heavy: dict[int, HeavyKey],
    light: Profile,
    ranges: Sequence[KeyRange],
    light_old: int,
    doubt: float,
) -> tuple[Allotment, list[int]]:
    """Keep all, cut the ranges anew, or give out everything anew: what costs least, with what it moves.

    A change must be better by more than the `doubt`.
    """
    tasks = len(ranges)
    kept = [
        inherited(were_heavy[lot.key], lot.shape, tasks) if lot.key in were_heavy else _as_light(lot, ranges)
        for lot in lots
    ]
    options = (
        allot_sticky(lots, kept, light, tuple(ranges)),
        allot_rest(lots, kept, light, tasks),
        allot_anew(lots, kept, light, tasks),
    )
    moved = [_moved(lots, released, option, were_heavy, ranges, light_old) for option in options]
    costs = [
        option.busiest + sum(rows) / PAYBACK_BATCHES + (doubt if place else 0.0)
        for place, (option, rows) in enumerate(zip(options, moved, strict=True))
    ]
    best = costs.index(min(costs))
    return options[best], moved[best][:-1]


def _moved(
    lots: Sequence[Lot],
    released: Sequence[Lot],
    option: Allotment,
    were_heavy: dict[int, HeavyKey],
    ranges: Sequence[KeyRange],
    light_old: int,
) -> list[int]:
    keys = np.array([lot.key for lot in released], np.uint64)
    owners = task_of(keys, option.ranges).reshape(-1, 1, 1)
    after = replace(option, owners=(*option.owners, *owners))
    return moved_rows([*lots, *released], after, were_heavy, ranges, light_old)


def _as_light(lot: Lot, ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """The cells of a key that was light until now: its first one stays with the task that had it."""
    owners = np.full((lot.shape.rows, lot.shape.cols), NOBODY)
    owners[0, 0] = task_of(np.array([lot.key], np.uint64), ranges)[0]
    return owners


def _heavy_key(lot: Lot, owners: npt.NDArray[np.int64], seen: tuple[Frequent, Frequent]) -> HeavyKey:
    return HeavyKey(
        key=lot.key,
        label=_label(lot.key, seen),
        left=seen[0].of(lot.key),
        right=seen[1].of(lot.key),
        shape=lot.shape,
        tasks=tuple(owners.tolist()),
    )


def _label(key: int, seen: tuple[Frequent, Frequent]) -> str:
    return seen[0].labels.get(key) or seen[1].labels.get(key) or f"hash {key:016x}"


def _changes(
    heavy: Sequence[HeavyKey],
    released: Sequence[Lot],
    were_heavy: dict[int, HeavyKey],
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
