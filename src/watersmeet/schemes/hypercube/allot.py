"""Who gets which cells of the heavy keys and which range of the light ones, and what a new allotment moves.

Cells go to the least loaded task, several in a row while it has room, so that a task reads few parts of a key. The
light keys then fill the tasks up like water: their hash ranges are as wide as the work in them and the cells that a
task has already allow. Whether a change is worth it is judged by what it moves: the rows that some task would read
and did not read before must be less than the work that the busiest task is spared in `PAYBACK_BATCHES` batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.schemes.balance import cut_evenly, even_ranges, ranges_between
from watersmeet.schemes.hypercube.census import Profile
from watersmeet.schemes.hypercube.facts import HeavyKey, Owners, Shape

Load = npt.NDArray[np.float64]

# A change must have paid for the rows that it moves after so many batches like this one.
PAYBACK_BATCHES = 32

# Rows of light keys that a task takes at most, in equal shares. Where the cells leave one task with little, but that is
# more than all light work, it would otherwise read every light row: with twice a share each, half of the tasks do.
MOST_LIGHT = 2.0

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Lot:
    """A heavy key to be allotted: its shape, the work of one of its cells, each input's rows of earlier batches."""

    key: int
    shape: Shape
    cell_work: float
    old_rows: tuple[int, ...]

    @property
    def cells(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Allotment:
    """Owners of the cells of each lot, with an axis for each input; ranges of light keys; the work of each task."""

    owners: tuple[Owners, ...]
    ranges: tuple[KeyRange, ...]
    load: Load

    @property
    def busiest(self) -> float:
        return float(self.load.max())


def allot_anew(lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, tasks: int) -> Allotment:
    """As if nothing had been there before; only cells without work stay, for nothing is gained by moving them."""
    freed = [
        np.full_like(owners, NOBODY) if lot.cell_work else owners
        for lot, owners in zip(lots, kept, strict=True)
    ]
    return allot_rest(lots, freed, light, tasks)


def allot_rest(lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, tasks: int) -> Allotment:
    """Leave cells with the owners that they have, give away the others, and cut the ranges afresh."""
    owners, load = _fill(lots, kept, tasks)
    ranges = _cut(light, _room(load, light.total))
    return Allotment(tuple(owners), ranges, load + light_load(light, ranges))


def allot_sticky(
    lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, ranges: tuple[KeyRange, ...]
) -> Allotment:
    """Leave cells and ranges as they are; only cells without an owner are given away."""
    owners, load = _fill(lots, kept, len(ranges))
    return Allotment(tuple(owners), ranges, load + light_load(light, ranges))


def light_load(light: Profile, ranges: Sequence[KeyRange]) -> Load:
    load = np.zeros(len(ranges))
    np.add.at(load, task_of(light.keys, ranges), light.work)
    return load


def task_of(keys: npt.NDArray[np.uint64], ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """Whose range each key lies in."""
    # Ends rather than beginnings: an empty range has nothing before its end that the one before does not have.
    # Those behind the last key are left out: nothing lies there, and 64 bits do not hold them.
    ends = np.array([range_.high for range_ in ranges[:-1] if range_.high < KEY_SPACE], np.uint64)
    return np.searchsorted(ends, keys, side="right")


def inherited(before: HeavyKey, shape: Shape, tasks: int) -> Owners:
    """The owners after a change of shape: of a split cell one half stays, of two joined ones one owner does.

    Which of the two is drawn from the key. Keys are given out alike, so if it were always the first, the same few
    tasks would be left with all keys whose grids shrink.
    """
    owners = before.owners
    # Order keys are mixed, so their bits are as good as drawn: other bits for each axis.
    for axis, parts in enumerate(shape):
        draw = before.key >> (axis * (64 // len(shape)))
        owners = np.moveaxis(_resized(np.moveaxis(owners, axis, 0), parts, draw), 0, axis)
    owners = owners.copy()
    owners[owners >= tasks] = NOBODY
    return owners


def _resized(owners: Owners, parts: int, draw: int) -> Owners:
    """Halve or double the first axis. One bit of `draw` for each length, so that halving undoes doubling."""
    while len(owners) > parts:
        owners = owners[(draw // len(owners)) & 1 :: 2]
    while len(owners) < parts:
        twice = np.full((2 * len(owners), *owners.shape[1:]), NOBODY)
        twice[(draw // len(twice)) & 1 :: 2] = owners
        owners = twice
    return owners


def _fill(lots: Sequence[Lot], kept: Sequence[Owners], tasks: int) -> tuple[list[Owners], Load]:
    """Cells without an owner, the heaviest first, go to the task with the least; those without work to all alike."""
    load = np.zeros(tasks)
    for lot, owners in zip(lots, kept, strict=True):
        owned = owners[owners != NOBODY]
        load += np.bincount(owned, minlength=tasks) * lot.cell_work
    fair = sum(lot.cell_work * lot.cells for lot in lots) / tasks
    filled = [owners.copy() for owners in kept]
    for place in sorted(range(len(lots)), key=lambda at: -lots[at].cell_work):
        work, cells = lots[place].cell_work, filled[place].reshape(-1)
        free = np.flatnonzero(cells == NOBODY)
        if not work:
            # They leave every load as it is, so that the task with the least would get them all, of every such key.
            cells[free] = (
                lots[place].key % tasks + np.arange(len(free)) * tasks // max(1, len(free))
            ) % tasks
            continue
        task = NOBODY
        for cell in free.tolist():
            if task == NOBODY or load[task] + work / 2 > fair:
                task = int(load.argmin())
            cells[cell] = task
            load[task] += work
    return filled, load


def _room(load: Load, light: float) -> Load:
    """How much light work each task takes, so that all come to the same level, or as near as can be.

    No task takes more than `MOST_LIGHT` times an equal share.
    """
    most = MOST_LIGHT * light / len(load)
    # While the water rises, a task begins to take at its own height, and ends where it has taken the most.
    heights = np.concatenate([load, load + most])
    order = np.argsort(heights, kind="stable")
    heights = heights[order]
    taking = np.cumsum(np.where(order < len(load), 1, -1))
    held = np.concatenate([[0.0], np.cumsum(np.diff(heights) * taking[:-1])])
    under = int(np.searchsorted(held, light)) - 1 if light else 0
    level = heights[under] + (light - held[under]) / max(1, taking[under])
    return np.clip(level - load, 0.0, most)


def _cut(light: Profile, room: Load) -> tuple[KeyRange, ...]:
    """Ranges one after the other, each with about the work that its task has room for."""
    # Also where the work is so little that no level rises by it.
    if not room.any():
        return even_ranges(len(room))
    places = cut_evenly(light.work, room).tolist()
    bounds = [int(light.keys[place]) if place < len(light.keys) else KEY_SPACE for place in places]
    return ranges_between(itertools.accumulate(bounds, max))


def moved_rows(
    lots: Sequence[Lot],
    after: Allotment,
    heavy_before: Mapping[int, HeavyKey],
    ranges_before: Sequence[KeyRange],
    light_rows: int,
) -> list[int]:
    """Rows that some task reads and did not read before: for each lot, and at last for all light keys together.

    Light keys are spread evenly, as order keys are mixed.
    """
    moved = []
    for lot, owners in zip(lots, after.owners, strict=True):
        known = heavy_before.get(lot.key)
        if known is not None:
            had = known.owners
        else:
            task = task_of(np.array([lot.key], np.uint64), ranges_before)[0]
            had = np.full((1,) * owners.ndim, task)
        moved.append(
            sum(
                _anew(_along(had, axis), _along(owners, axis), rows, len(after.ranges))
                for axis, rows in enumerate(lot.old_rows)
            )
        )
    gained = sum(
        (new.high - new.low) - max(0, min(new.high, old.high) - max(new.low, old.low))
        for new, old in itertools.zip_longest(after.ranges, ranges_before, fillvalue=KeyRange(0, 0))
    )
    return [*moved, light_rows * gained // KEY_SPACE]


def _along(owners: Owners, axis: int) -> Owners:
    """A line for each part of one axis, with the owners of all its cells."""
    return np.moveaxis(owners, axis, 0).reshape(owners.shape[axis], -1)


def _anew(had: Owners, has: Owners, rows: int, tasks: int) -> int:
    """Rows along the first axis that tasks need under `has` and did not under `had`."""
    fine = max(len(had), len(has))
    needed, known = (_read_by(owners, fine, tasks) for owners in (has, had))
    return int(np.count_nonzero(needed & ~known)) * rows // fine


def _read_by(owners: Owners, fine: int, tasks: int) -> npt.NDArray[np.bool_]:
    """Which tasks read which of `fine` parts."""
    read = np.zeros((max(tasks, int(owners.max()) + 1), len(owners)), np.bool_)
    read[owners, np.arange(len(owners))[:, None]] = True
    return np.repeat(read[:tasks], fine // len(owners), axis=1)
