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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import MOST_INPUTS, KeyRange
from watersmeet.model.figures import bounds, count
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.hypercube.allot import (
    NOBODY,
    PAYBACK_BATCHES,
    Allotment,
    Lot,
    allot_anew,
    allot_relieved,
    allot_rest,
    allot_sticky,
    inherited,
    moved_rows,
    task_of,
)
from watersmeet.schemes.hypercube.census import (
    KeyCounts,
    Profile,
    Stored,
    among,
    count_by_run,
    count_keys,
    rows_of_parts,
    sample_work,
    turns_of,
    work_of_cells,
)
from watersmeet.schemes.hypercube.facts import (
    LIGHT,
    Bounds,
    CubeChange,
    CubePlan,
    HeavyKey,
    Owners,
    Shape,
    boxes_of,
)
from watersmeet.schemes.hypercube.hot_keys import Frequent, HotKeys, frequent, list_hot_keys, workers_of
from watersmeet.schemes.scheme import (
    BatchFacts,
    InputShare,
    Keys,
    KeysOf,
    NewRun,
    RowPart,
    Scheme,
    Share,
    Shown,
    Slice,
    by_input,
    check_ranges,
    share_of,
)

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

# The work of each cell is counted if they may differ by more than this part of the mean.
UNEVEN = 0.03

# What a change must save the busiest task at least, as a share of a task's mean work. For sampled work: less may be
# the sample's error.
SAMPLED_GAIN = 0.03
# For counted work: a share for each task, and a maximum. The more tasks there are, the more rows a change moves. With a
# hundredth on 48 tasks up to fourteen rows moved for each that arrived, with this up to six.
SURE_GAIN_BY_TASK, SURE_GAIN = 0.005, 0.05

# Changes of shape that a plan remembers.
CHANGES_KEPT = 20

# How many times too long a side may be while its key has no fresh rows. A key that comes alone has all workers. k keys
# of equal output that take turns should have a k-th of them each, so a side of its root. With four, up to sixteen keys
# have a side that suits both cases, and keep it. With less, grids would grow and shrink with every turn.
IDLE_EXCESS = 4

# The desired parts of each input's rows of a key; not integers yet.
Sides = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Hypercube(Scheme[CubePlan]):
    """Give every heavy key a grid of its own, and every task a range of the light keys."""

    name: ClassVar[str] = "hypercube"
    plan_type = CubePlan
    stats_type = HotKeys
    most_inputs = MOST_INPUTS

    def describe(self, run: NewRun, tasks: int) -> HotKeys:
        return list_hot_keys(run, tasks)

    def plan(self, facts: BatchFacts) -> CubePlan:
        old, new = (by_input(runs, facts.inputs) for runs in (facts.reachable, facts.fresh))
        stored = {name: Stored(old[name], new[name]) for name in facts.inputs}
        return plan_cube(facts.plan_before(CubePlan), stored, facts.keys_of, facts.tasks, facts.batch)

    def shares(self, plan: CubePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        mine = plan.ranges[task]
        heavy = tuple(one.key for one in plan.heavy if mine.low <= one.key < mine.high)
        # A heavy key without fresh rows has no results, so its old rows need not be left out.
        light = Slice(mine)
        yield tuple(InputShare(name, replace(light, without=heavy), light) for name in inputs)
        for one in plan.heavy:
            for box in boxes_of(one, task) if task in one.tasks else ():
                key = KeyRange(box.key, box.key + 1)
                yield tuple(
                    share_of(name, Slice(key, part=RowPart(low, high, of)))
                    for name, low, high, of in zip(inputs, box.low, box.high, box.shape, strict=True)
                )

    def check(self, plan: CubePlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)
        keys = [one.key for one in plan.heavy]
        assert keys == sorted(set(keys)), "heavy keys must ascend strictly"
        for one in plan.heavy:
            assert len(one.shape) == len(plan.inputs), f"{one.label} has a shape of {len(one.shape)} sides"
            cells = math.prod(one.shape)
            assert len(one.tasks) == cells, f"{one.label} has {cells} cells and {len(one.tasks)} owners"
            assert all(0 <= task < tasks for task in one.tasks), f"a cell of {one.label} has no task"
            met = np.zeros(one.shape, np.int64)
            for box in (box for task in range(tasks) for box in boxes_of(one, task)):
                met[tuple(map(slice, box.low, box.high))] += 1
            assert (met == 1).all(), f"a cell of {one.label} is in no box, or in two"

    @classmethod
    def show(cls, plan: CubePlan, inputs: Sequence[str]) -> Shown:
        """A table of heavy keys, and a line such as: hypercube: 3 heavy keys, planned balance 1.04, 2 changes."""
        keys = len(plan.heavy)
        balance = f"{plan.load / plan.mean:.2f} (busiest / mean)" if plan.mean else "-"
        summary = f"hypercube: {keys} heavy key{'' if keys == 1 else 's'}, planned balance {balance}"
        if plan.epoch:
            summary += f", {count(plan.epoch)} change{'' if plan.epoch == 1 else 's'}"
        heaviest = sorted(plan.heavy, key=lambda one: (-sum(rows.lower for rows in one.rows), one.key))
        return Shown(
            summary,
            columns=("heavy key", *(f"rows of {name}" for name in inputs), "grid", "tasks"),
            rows=tuple(_shown_key(one) for one in heaviest),
            events=tuple(_shown_change(one) for one in reversed(plan.changes)),
        )


def _shown_key(one: HeavyKey) -> tuple[str, ...]:
    rows = (bounds(of.lower, of.upper) for of in one.rows)
    return (one.label, *rows, _shown_shape(one.shape), str(len(set(one.tasks))))


def _shown_change(one: CubeChange) -> tuple[str, str, str]:
    """A change in one line, such as: batch 7: BADA-17 2 x 2 -> 4 x 2, 1,234 rows moved."""
    shapes = f"{_shown_shape(one.before)} -> {_shown_shape(one.after)}"
    return f"batch {one.batch}: ", one.label, f" {shapes}, {count(one.moved_rows)} rows moved"


def _shown_shape(shape: Shape) -> str:
    """
    >>> _shown_shape((4, 2)), _shown_shape(())
    ('4 x 2', 'light')
    """
    return " x ".join(map(str, shape)) or "light"


def desired_sides(rows: Sequence[int], heavy_output: float, workers: int) -> Sides:
    """The sides that the static HyperCube gives a key with `rows` rows in each input.

    >>> desired_sides((100, 100), 20_000, 8)
    (2.0, 2.0)
    """
    scale: float = (workers / heavy_output) ** (1 / len(rows))
    return tuple(count * scale for count in rows)


def attainable(desired: Sides) -> Sides:
    """The nearest sides with at least one part each and the same number of cells.

    >>> attainable((12.0, 0.5))
    (6.0, 1.0)
    """
    cells = max(1.0, math.prod(desired))
    sides = list(desired)
    while min(sides) < 1:
        sides = [max(1.0, side) for side in sides]
        long = [place for place, side in enumerate(sides) if side > 1]
        if not long:
            break
        scale = (cells / math.prod(sides)) ** (1 / len(long))
        sides = [side * scale if place in long else side for place, side in enumerate(sides)]
    return tuple(sides)


def first_shape(wanted: Sides) -> Shape:
    """The nearest powers of two; from four on about the next above, so that a large key is cut finely.

    >>> first_shape((2.7, 5.2))
    (2, 8)
    """
    return tuple(map(_first, wanted))


# As a power of two: a side a tenth above a power may stay there.
NEARLY = 0.15


def _first(wanted: float) -> int:
    bits = math.log2(wanted)
    return 1 << (round(bits) if wanted < 4 else math.ceil(bits - NEARLY))


def next_shape(shape: Shape, wanted: Sides) -> Shape:
    """Halve or double a side, one at a time, while it is more than a factor of two off.

    >>> next_shape((2, 2), (1.414, 4.243))
    (2, 4)
    """
    return tuple(map(_stepped, shape, wanted))


def _stepped(parts: int, wanted: float) -> int:
    while parts > 2 * wanted and parts > 1:
        parts //= 2
    while parts < wanted / 2:
        parts *= 2
    return parts


def idle_shape(shape: Shape, wanted: Sides) -> Shape:
    """Halve a side while it is more than `IDLE_EXCESS` times too long.

    >>> idle_shape((32, 8), (2.0, 4.0))
    (8, 8)
    """
    return tuple(map(_shortened, shape, wanted))


def _shortened(parts: int, wanted: float) -> int:
    while parts > IDLE_EXCESS * wanted:
        parts //= 2
    return parts


@overload
def is_heavy(share: float, workers: int, was_heavy: bool) -> bool: ...
@overload
def is_heavy(
    share: npt.NDArray[np.float64], workers: int, was_heavy: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]: ...
def is_heavy(share: Any, workers: int, was_heavy: Any) -> Any:
    """More than a worker's share makes a key heavy, less than half of it light. In between it stays as it was.

    >>> is_heavy(np.array([0.3, 0.2, 0.2]), 4, np.array([False, False, True])).tolist()
    [True, False, True]
    """
    return share * workers > 1.0 - 0.5 * was_heavy


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
    lots = _lots(counts.where(mask), were_heavy, tasks, float(work[mask].sum()) / whole, all_rows)
    lots = _with_unequal_cells(lots, runs, keys_of)
    released = _released(counts.where(~mask), were_heavy)
    light_old = sum(one.old_rows for one in runs) - sum(sum(lot.old_rows) for lot in (*lots, *released))
    sure = min(SURE_GAIN, SURE_GAIN_BY_TASK * tasks)
    doubt = (SAMPLED_GAIN * sampled.total + sure * float(work.sum())) / tasks
    had = ranges or even_ranges(tasks)
    chosen, moved = _best(lots, released, were_heavy, light, had, light_old, doubt, 1 + sure)
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


def _lots(
    heavy: KeyCounts, were_heavy: Mapping[int, HeavyKey], tasks: int, heavy_share: float, all_rows: int
) -> list[Lot]:
    """Choose shapes for the heavy keys. Their part of the workers is `heavy_share`, their part of all work."""
    workers = workers_of(tasks)
    # If one input lacks the key, count as if it had one row.
    rows = np.maximum(heavy.total, 1)
    output, probed, emitted = rows.astype(np.float64).prod(axis=0), heavy.probed, heavy.emitted
    work = probed + emitted
    share = np.maximum(output / output.sum(), work / max(1.0, float(work.sum())))
    known = [were_heavy.get(key) for key in heavy.keys.tolist()]
    idle = np.array([one is not None for one in known], np.bool_) & (probed == 0)
    # By all workers where idle: the light work of this batch says nothing about the batch that brings the key.
    cells = np.where(idle, workers * output / output.sum(), max(1, round(workers * heavy_share)) * share)
    cells = np.maximum(cells, least_cells(heavy.total.sum(axis=0), all_rows, tasks))
    lots = []
    for place, (key, sides, total, old, new) in enumerate(
        zip(*(each.T.tolist() for each in (heavy.keys, rows, heavy.total, heavy.old, heavy.new)), strict=True)
    ):
        wanted = attainable(desired_sides(sides, float(output[place] / cells[place]), 1))
        before = known[place]
        if before is None:
            shape = first_shape(wanted)
        else:
            shape = (idle_shape if idle[place] else next_shape)(before.shape, wanted)
        cell_work = float(emitted[place]) / math.prod(shape) + _rows_of_cell(new, shape)
        lots.append(Lot(key, shape, cell_work, tuple(old), _rows_of_cell(total, shape), rows=tuple(total)))
    return lots


def _with_unequal_cells(lots: Sequence[Lot], runs: Sequence[Stored], keys_of: KeysOf) -> list[Lot]:
    """Count the work of each cell where cells may differ much.

    Every run is cut by itself, at whole rows. With a row or two of a key in each of many runs, parts differ by the root
    of their rows.
    """
    uneven = [lot for lot in lots if lot.cell_work and _unevenness(lot, runs) > UNEVEN]
    if not uneven:
        return list(lots)
    keys = np.array([lot.key for lot in uneven], np.uint64)
    counted = [
        [(count_by_run(each, keys, keys_of), turns_of(each)) for each in (one.old, one.new)] for one in runs
    ]
    found = {}
    for place, lot in enumerate(uneven):
        old, new = (
            [
                rows_of_parts(sides[age][0][:, place], sides[age][1], of)
                for sides, of in zip(counted, lot.shape, strict=True)
            ]
            for age in (0, 1)
        )
        found[lot.key] = replace(lot, works=work_of_cells(old, new))
    return [found.get(lot.key, lot) for lot in lots]


def _unevenness(lot: Lot, runs: Sequence[Stored]) -> float:
    """The most that cells may differ by, as a share of their rows: half a row in each run, about."""
    return sum(
        math.sqrt(len(one.old) + len(one.new)) / 2 * of / max(1, rows)
        for one, of, rows in zip(runs, lot.shape, lot.rows, strict=True)
        if of > 1
    )


def least_cells(rows: npt.NDArray[np.int64], all_rows: int, tasks: int) -> npt.NDArray[np.float64]:
    """At least as many cells as tasks that a key's rows would fill: a key without partners has no output.

    >>> least_cells(np.array([50, 5]), 100, 8).tolist()
    [4.0, 0.4]
    """
    cells: npt.NDArray[np.float64] = rows * tasks / all_rows
    return cells


def _rows_of_cell(rows: Sequence[int], shape: Shape) -> float:
    return sum(count / parts for count, parts in zip(rows, shape, strict=True))


def _released(light: KeyCounts, were_heavy: Mapping[int, HeavyKey]) -> list[Lot]:
    """The keys that are no longer heavy: all their rows go to the task whose range holds them."""
    whole = (1,) * len(light.new)
    return [
        Lot(key, whole, 0.0, tuple(light.old[:, place].tolist()))
        for place, key in enumerate(light.keys.tolist())
        if key in were_heavy
    ]


def _best(
    lots: Sequence[Lot],
    released: Sequence[Lot],
    were_heavy: Mapping[int, HeavyKey],
    light: Profile,
    ranges: Sequence[KeyRange],
    light_old: int,
    doubt: float,
    enough: float = 1.0,
) -> tuple[Allotment, list[int]]:
    """Keep all, relieve busy tasks, cut the ranges, or allot all afresh: the cheapest, with the rows it moves.

    A change must be better by more than the `doubt`. None is sought if the best so far costs at most `enough` times the
    mean and the doubt: no allotment has less than the mean on its busiest task.
    """
    tasks = len(ranges)
    every = [*lots, *released]
    light_tasks = task_of(np.array([lot.key for lot in every], np.uint64), ranges).tolist()
    had = [
        were_heavy[lot.key].owners if lot.key in were_heavy else np.full((1,) * len(lot.shape), task)
        for lot, task in zip(every, light_tasks, strict=True)
    ]
    kept = [
        inherited(were_heavy[lot.key], owners, lot.shape, tasks)
        if lot.key in were_heavy
        else _as_light(lot, task)
        for lot, owners, task in zip(lots, had, light_tasks, strict=False)
    ]

    def moved(option: Allotment, most: float) -> list[int] | None:
        keys = np.array([lot.key for lot in released], np.uint64)
        owners = [
            np.full(lot.shape, task) for lot, task in zip(released, task_of(keys, option.ranges), strict=True)
        ]
        after = replace(option, owners=(*option.owners, *owners))
        return moved_rows(every, after, had, ranges, light_old, most)

    best = allot_sticky(lots, kept, light, tuple(ranges))
    moves = moved(best, math.inf) or []
    cost = best.busiest + sum(moves) / PAYBACK_BATCHES
    for option_of in (
        lambda: allot_relieved(lots, kept, light, ranges),
        lambda: allot_rest(lots, kept, light, tasks),
        lambda: allot_anew(lots, kept, light, tasks),
    ):
        if cost <= enough * float(best.load.mean()) + doubt:
            break
        option = option_of()
        gain = cost - doubt - option.busiest
        rows = moved(option, gain * PAYBACK_BATCHES) if gain > 0 else None
        if rows is not None:
            best, moves, cost = option, rows, option.busiest + doubt + sum(rows) / PAYBACK_BATCHES
    return best, moves[:-1]


def _as_light(lot: Lot, task: int) -> Owners:
    """The cells of a key that was light before: its first cell stays with the task that had it."""
    owners = np.full(lot.shape, NOBODY)
    owners.flat[0] = task
    return owners


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
