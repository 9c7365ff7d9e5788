"""Assign cells of heavy keys and ranges of light keys to tasks.

Cells go to the least loaded task, several in a row while it has room, so that a task reads few parts of a key. Cells
with many rows and little work go by their rows instead. The light keys then even out the load: a task's hash range is
as wide as its remaining room allows. `choose.py` decides which of these allotments a batch takes.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.schemes.balance import cut_evenly, even_ranges, ranges_between
from watersmeet.schemes.hypercube.census import Profile
from watersmeet.schemes.hypercube.facts import Owners, Shape

Load = npt.NDArray[np.float64]

# Most light rows of a task, in equal shares. If the cells leave one task with little work, but with more room than all
# light work, it would otherwise read every light row. With two shares each, at least half of the tasks read them.
MOST_LIGHT = 2.0

# A key is cheap with less than this part of the mean work for a row: its cells are given out by their rows. A task with
# its share of the work, but not on cheap keys, then reads at most twice its share of the rows.
CHEAP = 0.5

# Bounds of ranges are shifted where a task has more than this times the mean. A full cut would even out the rest, but
# shifts every bound by what all ranges before it are off.
EASED = 1.05

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Lot:
    """A heavy key to be allotted: its shape, the work of one of its cells, and each input's rows of earlier batches.

    `rows` are those of all batches, and `cell_rows` those that one of its cells reads. `works` has the work of each
    cell, the last axis running fastest, where cells differ much; `cell_work` is the mean then.
    """

    key: int
    shape: Shape
    cell_work: float
    old_rows: tuple[int, ...]
    cell_rows: float = 0.0
    rows: tuple[int, ...] = ()
    works: Load | None = None
    cells: int = field(init=False)

    def __post_init__(self) -> None:
        # Once: every allotment that is tried asks for it several times.
        object.__setattr__(self, "cells", math.prod(self.shape))

    @property
    def work_of_cells(self) -> Load:
        return np.full(self.cells, self.cell_work) if self.works is None else self.works


@dataclass(frozen=True, slots=True)
class Allotment:
    """Owners of the cells of each lot, with an axis for each input, ranges of light keys, and the work of each task.

    `cells` is the work of each task without that on light keys.
    """

    owners: tuple[Owners, ...]
    ranges: tuple[KeyRange, ...]
    load: Load
    cells: Load

    @property
    def busiest(self) -> float:
        return float(self.load.max())


def allot_anew(lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, tasks: int) -> Allotment:
    """Allot everything afresh. Only cells without work stay, because moving them gains nothing."""
    freed = [
        np.full(owners.shape, NOBODY) if lot.cell_work else owners
        for lot, owners in zip(lots, kept, strict=True)
    ]
    owners, load = _fill(lots, freed, tasks)
    return _with_cut(tuple(owners), load, light)


def allot_rest(sticky: Allotment, light: Profile) -> Allotment:
    """Keep the cells as they are allotted, also those that had no owner, and cut the ranges afresh."""
    return _with_cut(sticky.owners, sticky.cells, light)


def _with_cut(owners: tuple[Owners, ...], load: Load, light: Profile) -> Allotment:
    ranges = _cut(light, _room(load, light.total))
    return Allotment(owners, ranges, load + light_load(light, ranges), load)


def allot_relieved(
    lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, ranges: Sequence[KeyRange]
) -> Allotment:
    """Take cells from tasks with more work than the mean, and shift the bounds of ranges no further than needed.

    Most rows stay where they are, unlike afresh.
    """
    tasks = len(ranges)
    owners, load = _fill(lots, _relieved(lots, kept, light.total, tasks), tasks)
    eased = _eased(light, load, ranges)
    return Allotment(tuple(owners), eased, load + light_load(light, eased), load)


def allot_sticky(
    lots: Sequence[Lot], kept: Sequence[Owners], light: Profile, ranges: tuple[KeyRange, ...]
) -> Allotment:
    """Keep cells and ranges, and assign only cells without an owner."""
    owners, load = _fill(lots, kept, len(ranges))
    return Allotment(tuple(owners), ranges, load + light_load(light, ranges), load)


def light_load(light: Profile, ranges: Sequence[KeyRange]) -> Load:
    # Keys ascend, so each task has those between two places.
    places = light.keys.searchsorted(_ends(ranges))
    sizes = np.append(places, len(light.keys))
    sizes[1:] -= places
    tasks = np.arange(len(sizes)).repeat(sizes)
    return np.bincount(tasks, light.work, len(ranges)).astype(np.float64)


def task_of(keys: npt.NDArray[np.uint64], ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """The task whose range holds each key."""
    return _ends(ranges).searchsorted(keys, side="right")


def _ends(ranges: Sequence[KeyRange]) -> npt.NDArray[np.uint64]:
    """The ends of all ranges but the last. By ends, an empty range gets no key.

    Those behind the last key are left out, since 64 bits do not hold them.
    """
    return np.array([range_.high for range_ in ranges[:-1] if range_.high < KEY_SPACE], np.uint64)


def _fill(lots: Sequence[Lot], kept: Sequence[Owners], tasks: int) -> tuple[list[Owners], Load]:
    """Give cells without an owner to tasks, so that all have as much work, and none far more rows than the others.

    Cells with little work for their rows come first, and go to the tasks that read the least. If they went by their
    work, one task would have room for all rows of such a key. The others follow, heaviest first, to the least loaded
    task: their work bounds their rows. Cells without work go to all tasks evenly.
    """
    every = _all_cells(kept)
    load = _per_task(every, _works(lots), tasks)
    nobodys = (every == NOBODY).nonzero()[0]
    if not len(nobodys):
        return list(kept), load
    work, rows = ([lot.cell_work for lot in lots], [lot.cell_rows for lot in lots])
    begin = [0, *itertools.accumulate([owners.size for owners in kept])]
    free = [nobodys[low:high] for low, high in itertools.pairwise(nobodys.searchsorted(begin).tolist())]
    for place in [place for place, cells in enumerate(free) if len(cells) and not work[place]]:
        # They do not change any load, so the least loaded task would get them all.
        count = len(free[place])
        every[free[place]] = (lots[place].key % tasks + np.arange(count) * tasks // count) % tasks
    cheap = _cheap(lots)
    reads = _per_task(
        _all_cells([kept[place] for place in cheap]),
        np.repeat([rows[place] for place in cheap], [lots[place].cells for place in cheap]),
        tasks,
    )
    fair_rows = sum(rows[place] * lots[place].cells for place in cheap) / tasks
    fair = sum(lot.cell_work * lot.cells for lot in lots) / tasks
    for place in [*cheap, *sorted(set(range(len(lots))) - set(cheap), key=lambda at: -work[at])]:
        if not len(free[place]) or not work[place]:
            continue
        works = lots[place].works
        if place in cheap:
            takers = _takers(reads, rows[place], len(free[place]), fair_rows)
            reads += np.bincount(takers, minlength=tasks) * rows[place]
        elif works is None:
            takers = _takers(load, work[place], len(free[place]), fair)
        else:
            takers = _takers_of_unequal(load, works[free[place] - begin[place]], fair)
        own = np.full(len(takers), work[place]) if works is None else works[free[place] - begin[place]]
        load += np.bincount(takers, own, tasks)
        every[free[place]] = takers
    return in_shapes(every, [owners.shape for owners in kept]), load


def _relieved(lots: Sequence[Lot], kept: Sequence[Owners], light: float, tasks: int) -> list[Owners]:
    """The owners without the cells that make a task's work exceed the mean."""
    work = _works(lots)
    every = _all_cells(kept)
    load = _per_task(every, work, tasks)
    mean = (light + sum(lot.cell_work * lot.cells for lot in lots)) / tasks
    sizes = [owners.size for owners in kept]
    worth = np.repeat([lot.cell_rows / lot.cell_work if lot.cell_work else math.inf for lot in lots], sizes)
    over = np.append(load - mean, 0.0)[every]
    freed = ((over > 0) & (work > 0)).nonzero()[0]
    freed = freed[np.lexsort((worth[freed], every[freed]))]
    taken = np.cumsum(work[freed])
    # Those of a task follow each other.
    owner = every[freed]
    begins = np.ones(len(freed), np.bool_)
    np.not_equal(owner[1:], owner[:-1], out=begins[1:])
    before = (taken - work[freed])[begins][begins.cumsum() - 1]
    # The nearest to the mean: the last cell is taken if more than half of it is above.
    every[freed[taken - before - work[freed] / 2 < over[freed]]] = NOBODY
    return in_shapes(every, [owners.shape for owners in kept])


def _cheap(lots: Sequence[Lot]) -> list[int]:
    """The lots with less than `CHEAP` of the mean work for a row, those with most rows in a cell first."""
    busy = [lot for lot in lots if lot.cell_work]
    work, rows = (
        sum(lot.cell_work * lot.cells for lot in busy),
        sum(lot.cell_rows * lot.cells for lot in busy),
    )
    cheap = [
        place
        for place, lot in enumerate(lots)
        if lot.cell_work and lot.cell_work * rows < CHEAP * work * lot.cell_rows
    ]
    return sorted(cheap, key=lambda place: -lots[place].cell_rows)


def _works(lots: Sequence[Lot]) -> Load:
    """The work of every cell of all lots."""
    if all(lot.works is None for lot in lots):
        return np.repeat([lot.cell_work for lot in lots], [lot.cells for lot in lots])
    return np.concatenate([lot.work_of_cells for lot in lots])


def _all_cells(owners: Sequence[Owners]) -> Owners:
    """The owners of all cells of some keys, one key after the other."""
    return np.concatenate([one.reshape(-1) for one in owners]) if owners else np.zeros(0, np.int64)


def in_shapes(every: Owners, shapes: Sequence[Shape]) -> list[Owners]:
    """The owners of all cells, key by key, as grids of these shapes."""
    ends = itertools.accumulate(map(math.prod, shapes), initial=0)
    return [
        every[low:high].reshape(shape)
        for shape, (low, high) in zip(shapes, itertools.pairwise(ends), strict=True)
    ]


def _per_task(every: Owners, amounts: Load, tasks: int) -> Load:
    """The amount of each cell that has an owner, added up by task."""
    owned = (every != NOBODY).nonzero()[0]
    # Of no cells at all it would count integers.
    return np.bincount(every[owned], amounts[owned], tasks).astype(np.float64)


def _takers(load: Load, work: float, cells: int, fair: float) -> Owners:
    """Who takes each of some equal cells: the least loaded task first, several in a row up to its fair share."""
    order = load.argsort(kind="stable")
    takers: list[int] = []
    # Few tasks take all cells of most keys.
    for task, has in zip(order.tolist(), load[order].tolist(), strict=True):
        room = math.floor((fair - has) / work + 0.5)
        if room < 1 or len(takers) == cells:
            break
        takers += [task] * min(room, cells - len(takers))
    if len(takers) < cells:
        # All are at about their share. At most half of the tasks take one more.
        load = load + np.bincount(np.array(takers, np.int64), minlength=len(load)) * work
        for _ in range(cells - len(takers)):
            takers.append(int(load.argmin()))
            load[takers[-1]] += work
    return np.array(takers, np.int64)


def _takers_of_unequal(load: Load, works: Load, fair: float) -> Owners:
    """The same for cells of unequal work."""
    load, reached = load.copy(), works.cumsum()
    halfway = (reached - works / 2).tolist()
    takers = np.full(len(works), NOBODY)
    first, taken = 0, 0.0
    order = load.argsort(kind="stable")
    for task, has in zip(order.tolist(), load[order].tolist(), strict=True):
        if first == len(works):
            break
        # Up to the cell that would be above its share by more than a half.
        end = bisect.bisect_right(halfway, taken + fair - has)
        if end > first:
            takers[first:end] = task
            load[task] += reached[end - 1] - taken
            first, taken = end, float(reached[end - 1])
    for cell in range(first, len(works)):
        takers[cell] = load.argmin()
        load[takers[cell]] += works[cell]
    return takers


def _room(load: Load, light: float) -> Load:
    """The light work of each task, so that all loads are as even as possible.

    No task takes more than `MOST_LIGHT` times an equal share.
    """
    most = MOST_LIGHT * light / len(load)
    # As in filling with water: a task takes from its own height on, and stops where it has taken the most.
    heights = np.concatenate([load, load + most])
    order = heights.argsort(kind="stable")
    heights = heights[order]
    taking = np.where(order < len(load), 1, -1).cumsum()
    held = np.zeros(len(heights))
    ((heights[1:] - heights[:-1]) * taking[:-1]).cumsum(out=held[1:])
    under = int(held.searchsorted(light)) - 1 if light else 0
    level = heights[under] + (light - held[under]) / max(1, taking[under])
    return np.minimum(np.maximum(level - load, 0.0), most)


def _cut(light: Profile, room: Load) -> tuple[KeyRange, ...]:
    """Adjacent ranges, each with about the work that its task has room for."""
    # Also if the work is too little to raise any level.
    if not room.any():
        return even_ranges(len(room))
    places = cut_evenly(light.work, room).tolist()
    bounds = [int(light.keys[place]) if place < len(light.keys) else KEY_SPACE for place in places]
    return ranges_between(itertools.accumulate(bounds, max))


def _eased(light: Profile, load: Load, ranges: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """The ranges, with their bounds shifted so that no task has much more than the mean, if the light work allows."""
    reached = np.zeros(len(light.work) + 1)
    light.work.cumsum(out=reached[1:])
    total = light.total
    most = np.maximum(_room(load, total), EASED * (load.sum() + total) / len(load) - load).tolist()
    ends = np.array([min(range_.high, KEY_SPACE - 1) for range_ in ranges[:-1]], np.uint64)
    had = reached[light.keys.searchsorted(ends)].tolist()
    # From the left, what is too much goes on to the next range. From the right, what is then too much goes back.
    wanted, end = [], 0.0
    for before, room in zip(had, most, strict=False):
        end = min(before, end + room)
        wanted.append(end)
    end = total
    for task in range(len(had) - 1, -1, -1):
        end = wanted[task] = max(wanted[task], end - most[task + 1])
    places = (reached[1:] - light.work / 2).searchsorted(wanted).tolist()
    bounds = [
        range_.high if now == before else int(light.keys[place]) if place < len(light.keys) else KEY_SPACE
        for range_, before, now, place in zip(ranges, had, wanted, places, strict=False)
    ]
    return ranges_between(itertools.accumulate(bounds, max))
