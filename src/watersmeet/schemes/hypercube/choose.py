"""Choose between keeping an allotment and changing it, by the work it saves and the rows it moves.

A change must pay for the rows it moves: the rows that some task would read and did not read before must be less than
the work that the busiest task saves in `PAYBACK_BATCHES` batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.schemes.hypercube.allot import (
    NOBODY,
    Allotment,
    Lot,
    allot_anew,
    allot_relieved,
    allot_rest,
    allot_sticky,
    in_shapes,
    task_of,
)
from watersmeet.schemes.hypercube.census import Profile
from watersmeet.schemes.hypercube.facts import HeavyKey, Owners, Shape

# A change must have paid for the rows that it moves after this many batches like the present one.
PAYBACK_BATCHES = 32


def choose_allotment(
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
    light_tasks = _tasks_of(every, ranges)
    known = [were_heavy[lot.key] for lot in every if lot.key in were_heavy]
    owned = np.array([task for one in known for task in one.tasks], np.int64)
    grids = iter(in_shapes(owned, [one.shape for one in known]))
    had = [
        next(grids) if lot.key in were_heavy else np.full((1,) * len(lot.shape), task)
        for lot, task in zip(every, light_tasks, strict=True)
    ]
    kept = [
        inherited(were_heavy[lot.key], owners, lot.shape, tasks)
        if lot.key in were_heavy
        else _as_light(lot, task)
        for lot, owners, task in zip(lots, had, light_tasks, strict=False)
    ]

    def moved(option: Allotment, most: float) -> list[int] | None:
        owners = [
            np.full(lot.shape, task)
            for lot, task in zip(released, _tasks_of(released, option.ranges), strict=True)
        ]
        after = replace(option, owners=(*option.owners, *owners)) if owners else option
        return moved_rows(every, after, had, ranges, light_old, most)

    best = sticky = allot_sticky(lots, kept, light, tuple(ranges))
    moves = moved(best, math.inf) or []
    cost = best.busiest + sum(moves) / PAYBACK_BATCHES
    good = enough * float(best.load.mean()) + doubt
    options = [
        lambda: allot_relieved(lots, kept, light, ranges),
        lambda: allot_rest(sticky, light),
    ]
    # Without cells that have work, nothing is left to allot afresh.
    if any(lot.cell_work for lot in lots):
        options.append(lambda: allot_anew(lots, kept, light, tasks))
    for option_of in options:
        if cost <= good:
            break
        option = option_of()
        gain = cost - doubt - option.busiest
        rows = moved(option, gain * PAYBACK_BATCHES) if gain > 0 else None
        if rows is not None:
            best, moves, cost = option, rows, option.busiest + doubt + sum(rows) / PAYBACK_BATCHES
    return best, moves[:-1]


def _tasks_of(lots: Sequence[Lot], ranges: Sequence[KeyRange]) -> list[int]:
    """The task whose range holds each key."""
    tasks: list[int] = (
        task_of(np.array([lot.key for lot in lots], np.uint64), ranges).tolist() if lots else []
    )
    return tasks


def _as_light(lot: Lot, task: int) -> Owners:
    """The cells of a key that was light before: its first cell stays with the task that had it."""
    owners = np.full(lot.shape, NOBODY)
    owners.flat[0] = task
    return owners


def inherited(before: HeavyKey, owners: Owners, shape: Shape, tasks: int) -> Owners:
    """The `owners` of a key after a change of shape: a split cell keeps one half, and of two joined cells one stays.

    The key's bits decide which one. If it were always the first, the same few tasks would end with all keys whose grids
    shrink.
    """
    if shape == before.shape and max(before.tasks) < tasks:
        return owners
    # Order keys are mixed, so their bits are as good as random. Each axis uses other bits.
    for axis, parts in enumerate(shape):
        draw = before.key >> (axis * (64 // len(shape)))
        owners = np.moveaxis(_resized(np.moveaxis(owners, axis, 0), parts, draw), 0, axis)
    owners = owners.copy()
    owners[owners >= tasks] = NOBODY
    return owners


def _resized(owners: Owners, parts: int, draw: int) -> Owners:
    """Halve or double the first axis, with one bit of `draw` for each length, so that halving undoes doubling."""
    while len(owners) > parts:
        owners = owners[(draw // len(owners)) & 1 :: 2]
    while len(owners) < parts:
        twice = np.full((2 * len(owners), *owners.shape[1:]), NOBODY)
        twice[(draw // len(twice)) & 1 :: 2] = owners
        owners = twice
    return owners


def moved_rows(
    lots: Sequence[Lot],
    after: Allotment,
    had: Sequence[Owners],
    ranges_before: Sequence[KeyRange],
    light_rows: int,
    most: float = math.inf,
) -> list[int] | None:
    """Rows that some task reads and did not read before: for each lot, and last for all light keys together.

    `had` are the owners before, of a light key a single one. Light keys are assumed even, because order keys are mixed.
    None if all together are `most` or more.
    """
    gained = sum(
        (new.high - new.low) - max(0, min(new.high, old.high) - max(new.low, old.low))
        for new, old in itertools.zip_longest(after.ranges, ranges_before, fillvalue=KeyRange(0, 0))
        if new is not old
    )
    light = light_rows * gained // KEY_SPACE
    together = light
    moved = [0] * len(lots)
    changed = [place for place, owners in enumerate(after.owners) if owners is not had[place]]
    # The largest first, to know early if they are too many.
    for place in sorted(changed, key=lambda at: -sum(lots[at].old_rows)):
        if together >= most:
            return None
        before, owners = had[place], after.owners[place]
        if before.shape != owners.shape or (before != owners).any():
            moved[place] = sum(
                _anew(before, owners, axis, rows, len(after.ranges))
                for axis, rows in enumerate(lots[place].old_rows)
                if rows
            )
            together += moved[place]
    return None if together >= most else [*moved, light]


def _anew(had: Owners, has: Owners, axis: int, rows: int, tasks: int) -> int:
    """Of the `rows` along an axis, those that tasks need under `has` and did not under `had`, added up."""
    fine = max(had.shape[axis], has.shape[axis])
    needed, known = (_read_by(owners, axis, fine, tasks) for owners in (has, had))
    return int(np.count_nonzero(needed & ~known)) * rows // fine


def _read_by(owners: Owners, axis: int, fine: int, tasks: int) -> npt.NDArray[np.bool_]:
    """Which tasks read which of `fine` parts along an axis."""
    parts = owners.shape[axis]
    read = np.zeros((max(tasks, int(owners.max()) + 1), parts), np.bool_)
    part = np.arange(parts).reshape([-1 if other == axis else 1 for other in range(owners.ndim)])
    read[owners, part] = True
    return read[:tasks] if parts == fine else np.repeat(read[:tasks], fine // parts, axis=1)
