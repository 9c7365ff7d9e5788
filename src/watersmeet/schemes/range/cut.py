"""Cut the grains of a batch into one stretch of even work for each task.

The left rows lie in one line, ordered by key. A task joins a stretch of the line. Where a bound falls into a grain with
much work, the grain is cut by the position of its rows, and the tasks on both sides *share* it. All other bounds lie
between grains. So where nothing is hot, each task has one range and nothing is shared.

    keys     ----------|====== hot ======|--------|-----------
    tasks    0         |   0  |  1  |  2 |   2    |    3

A stretch also looks up the fresh right rows that face it. Neighbours look up some of them twice, under an inequality
most of them, and each task that shares a grain looks up all that face it. So the load of a stretch is more than its
part of the line, and the bounds follow from the lowest level that all tasks can stay below.

Left rows alone may be too few to cut: a single row can have more pairs than a task should. Then the right rows that
face the grain are cut as well, and its line goes through all left rows with the first right part, then with the second,
and so on. A bound in such a grain is a right part and a place in the left rows.

Parts are places in each run, in `PARTS` steps. With many small runs equal steps do not hold equal numbers of rows. So
the rows of each run in a shared grain are counted, and a bound lies at the step that holds the work it should.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.schemes.balance import ranges_between
from watersmeet.schemes.range.facts import RangePlan, SharedRange, TaskBox
from watersmeet.schemes.range.grains import Amounts, Counts, Grains, InputRuns
from watersmeet.schemes.scheme import Facing, KeysOf

# A hot grain is cut if it has more than this part of a task's work. A bound beside a smaller one is off by less.
CUT_SHARE = 1 / 8
# Other grains have many values, and their work is less sure: to cut them may gain less than another share costs.
CUT_SHARE_OF_MANY = 1 / 4

# The right rows are cut too if one left row has more than this part of a task's work.
ROW_SHARE = 1 / 16
MOST_RIGHT_PARTS = 4096

# Steps of a cut through the left rows: more than the rows of one value that a small run has.
PARTS = 1 << 16

# The level is searched upwards from the mean in steps that double, then by halves.
_FIRST_STEP = 0.02
_HALVINGS = 6

# Where a task ends: in or before a grain, and at which part of its work.
TaskEnd = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Line:
    """The grains as lists, for bisection.

    Whole grains cost `ends[last] - starts[first]`, and nothing if all are `empty`: a share without left rows is not
    joined. A part of a grain costs that part of `cut_work`, and `reads` besides.
    """

    empty: list[bool]
    cuts: list[bool]
    cut_work: list[float]
    reads: list[float]
    starts: list[float]
    ends: list[float]
    right_parts: Counts
    mean: float

    @classmethod
    def of(cls, grains: Grains, tasks: int, least_work: int) -> _Line:
        work = grains.work
        reached = np.concatenate([[0.0], np.cumsum(work)])
        mean = float(reached[-1]) / tasks
        cuts = work > np.maximum(least_work, np.where(grains.hot, CUT_SHARE, CUT_SHARE_OF_MANY) * mean)
        facing = (grains.reads_to - grains.reads_from).astype(np.float64)
        parts = np.where(cuts, _right_parts(grains, work, facing, mean), 1)
        return cls(
            ((grains.new == 0) & (grains.old == 0)).tolist(),
            cuts.tolist(),
            # Of cut right rows a task looks up those of its parts.
            np.where(parts > 1, work + facing, work).tolist(),
            (facing / parts).tolist(),
            (reached[:-1] + grains.reads_from).tolist(),
            [-math.inf, *(reached[1:] + grains.reads_to).tolist()],
            parts,
            mean,
        )

    def load(self, begin: TaskEnd, end: TaskEnd) -> float:
        """Rows looked up and pairs of a stretch: a part of a grain, whole grains, and a part of another grain."""
        (first, done), (last, part) = begin, end
        if first == last:
            return (part - done) * self.cut_work[first] + self.reads[first] if part > done else 0.0
        load = 0.0
        if done:
            load += (1 - done) * self.cut_work[first] + self.reads[first]
            first += 1
        if first < last and not (last == first + 1 and self.empty[first]):
            load += self.ends[last] - self.starts[first]
        return load + (part * self.cut_work[last] + self.reads[last] if part else 0.0)

    def reach(self, begin: TaskEnd, level: float) -> TaskEnd:
        """The end of the longest stretch from here that stays below a level."""
        first, done = begin
        if done:
            rest = (1 - done) * self.cut_work[first] + self.reads[first]
            if rest > level:
                return first, done + max(0.0, level - self.reads[first]) / self.cut_work[first]
            level -= rest
            first += 1
        if first == len(self.cuts):
            return first, 0.0
        last = bisect.bisect_right(self.ends, level + self.starts[first]) - 1
        alone = first + 1 if self.empty[first] else first
        if last <= alone:
            last, middle = alone, 0.0
        else:
            middle = self.ends[last] - self.starts[first]
        if last == len(self.cuts) or not self.cuts[last]:
            return last, 0.0
        room = level - middle - self.reads[last]
        return last, min(1 - 1 / PARTS, max(0.0, room / self.cut_work[last]))


def _right_parts(grains: Grains, work: Amounts, facing: Amounts, mean: float) -> Counts:
    """The parts of the right rows, for each grain if it were cut: one unless that leaves too much.

    One left row with one right part should be a small part of a task's work. So should the fresh right rows that each
    of k tasks looks up, here `facing`: with b parts a task looks up new * b / k + facing / b rows, the least where both
    are equal.
    """
    most = max(1.0, ROW_SHARE * mean)
    sharing = np.maximum(1.0, work / max(1.0, mean))
    even = np.sqrt(sharing * facing / np.maximum(1, grains.new))
    wanted = np.maximum(grains.per_new / most, np.where(facing > most, even, 1.0))
    parts: Counts = np.clip(np.ceil(wanted), 1, MOST_RIGHT_PARTS).astype(np.int64)
    return parts


def cut_grains(
    grains: Grains,
    left: InputRuns,
    right: InputRuns,
    facing: Facing,
    keys_of: KeysOf,
    tasks: int,
    least_work: int,
) -> RangePlan:
    """Choose what each task joins. A grain with less than `least_work` is not cut."""
    line = _Line.of(grains, tasks, least_work)
    bounds = _bounds(line, tasks)
    loads = [line.load(*pair) for pair in itertools.pairwise([(0, 0.0), *bounds, (len(grains), 0.0)])]
    edges = [*grains.edges.tolist(), KEY_SPACE]
    shared = [
        *_shared(line, bounds, edges, left, right, facing, keys_of),
        *_voids(np.flatnonzero(grains.void).tolist(), bounds, edges),
    ]
    return RangePlan(
        ranges_between(edges[place] for place, _ in bounds),
        tuple(sorted(shared, key=lambda one: one.range.low)),
        load=round(max(loads)),
        mean=round(sum(loads) / tasks),
    )


def _bounds(line: _Line, tasks: int) -> list[TaskEnd]:
    """The ends of all stretches but the last, under the lowest level that is enough for all of them."""
    low = line.mean
    step = max(1.0, _FIRST_STEP * low)
    while (found := _filled(line, low + step, tasks)) is None:
        low += step
        step *= 2
    for _ in range(_HALVINGS):
        step /= 2
        better = _filled(line, low + step, tasks)
        if better is None:
            low += step
        else:
            found = better
    return found


def _filled(line: _Line, level: float, tasks: int) -> list[TaskEnd] | None:
    """The ends if every task takes as much as the level allows; None if the last one is left with more."""
    bounds = []
    at: TaskEnd = (0, 0.0)
    for _ in range(tasks - 1):
        at = line.reach(at, level)
        bounds.append(at)
    return bounds if line.load(at, (len(line.cuts), 0.0)) <= level else None


# --- The shared grains ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that each run has in some ranges of keys: a line for each range, a column for each run."""

    rows: Counts
    turns: Amounts

    @classmethod
    def of(cls, runs: Sequence[Run], ranges: Sequence[KeyRange], keys_of: KeysOf) -> _Rows:
        first = np.array([min(range_.low, KEY_SPACE - 1) for range_ in ranges], np.uint64)
        last = np.array([max(range_.high, 1) - 1 for range_ in ranges], np.uint64)
        rows = np.zeros((len(ranges), len(runs)), np.int64)
        for column, run in enumerate(runs):
            keys = keys_of(run)
            rows[:, column] = np.searchsorted(keys, last, side="right") - np.searchsorted(keys, first)
        # A range may be empty, and then end before it begins.
        turns = np.array([int(run.checksum or "0", 16) / KEY_SPACE for run in runs])
        return cls(np.maximum(rows, 0), turns)

    @property
    def total(self) -> Counts:
        totals: Counts = self.rows.sum(axis=1)
        return totals

    def before(self, parts: Counts, of: Counts) -> Amounts:
        """For each range the rows before part `parts` of `of`, as `RowPart` cuts them, up to the rounding of floats."""
        turns = np.floor(self.turns * of[:, None])
        rows: Amounts = np.floor((self.rows * parts[:, None] + turns) / of[:, None]).sum(axis=1)
        return rows


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The bounds that fall into a grain: the grain's range and right parts, and the rows there, for each bound."""

    ranges: tuple[KeyRange, ...]
    right_parts: Counts
    left_new: _Rows
    left_old: _Rows
    right_new: _Rows
    right_old: _Rows

    def partners(self, parts: Counts) -> tuple[Amounts, Amounts]:
        """What a fresh left row costs with the first `parts` right parts, and what a stored one does."""
        fresh = self.right_new.before(parts, self.right_parts)
        stored = self.right_old.before(parts, self.right_parts)
        return parts / self.right_parts + fresh + stored, fresh

    def work(self, parts: Counts) -> Amounts:
        """The work of all left rows with the first `parts` right parts."""
        per_new, per_old = self.partners(parts)
        return self.left_new.total * per_new + self.left_old.total * per_old

    def codes(self, done: Amounts) -> list[int]:
        """Where each grain is cut to have this part of its work done: right part * PARTS + place in the left rows."""
        wanted = done * self.work(self.right_parts)
        part = np.minimum(_last_below(self.work, wanted, self.right_parts), self.right_parts - 1)
        per_new, per_old = (
            after - before for before, after in zip(self.partners(part), self.partners(part + 1), strict=True)
        )
        rest, steps = wanted - self.work(part), np.full(len(part), PARTS)

        def reached(place: Counts) -> Amounts:
            return self.left_new.before(place, steps) * per_new + self.left_old.before(place, steps) * per_old

        place = _last_below(reached, rest, steps)
        after = np.minimum(place + 1, PARTS)
        codes: list[int] = (
            part * PARTS + np.where(reached(after) - rest < rest - reached(place), after, place)
        ).tolist()
        return codes


def _last_below(reached: Callable[[Counts], Amounts], target: Amounts, most: Counts) -> Counts:
    """For each line the largest number up to `most` at which `reached`, which ascends, is not above the target."""
    low, high = np.zeros_like(most), most
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = reached(middle) <= target
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def _shared(
    line: _Line,
    bounds: Sequence[TaskEnd],
    edges: Sequence[int],
    left: InputRuns,
    right: InputRuns,
    facing: Facing,
    keys_of: KeysOf,
) -> tuple[SharedRange, ...]:
    """The grains that a bound falls into, and who joins what of them."""
    inner = [(task, place, done) for task, (place, done) in enumerate(bounds) if done]
    if not inner:
        return ()
    ranges = tuple(KeyRange(edges[place], edges[place + 1]) for _, place, _ in inner)
    faced = tuple(map(facing, ranges))
    cuts = _Cuts(
        ranges,
        line.right_parts[[place for _, place, _ in inner]],
        _Rows.of(left.new, ranges, keys_of),
        _Rows.of(left.old if right.new else (), ranges, keys_of),
        _Rows.of(right.new, faced, keys_of),
        _Rows.of(right.old if left.new else (), faced, keys_of),
    )
    codes = cuts.codes(np.array([done for _, _, done in inner]))
    found = []
    for _, group in itertools.groupby(range(len(inner)), key=lambda at: inner[at][1]):
        at = list(group)
        parts = int(cuts.right_parts[at[0]])
        ends = itertools.accumulate([0, *(codes[one] for one in at), parts * PARTS], max)
        boxes = (
            box
            for task, (begin, end) in enumerate(itertools.pairwise(ends), inner[at[0]][0])
            for box in boxes_between(task, begin, end)
        )
        found.append(SharedRange(ranges[at[0]], PARTS, parts, tuple(boxes)))
    return tuple(found)


def _voids(places: Sequence[int], bounds: Sequence[TaskEnd], edges: Sequence[int]) -> Iterator[SharedRange]:
    """The voids, each as a share of its own, of the task whose stretch it lies in."""
    ends = [place for place, _ in bounds]
    for place in places:
        task = bisect.bisect_right(ends, place)
        yield SharedRange(KeyRange(edges[place], edges[place + 1]), 1, 1, (TaskBox(task, 0, 1, 0, 1),))


def boxes_between(task: int, begin: int, end: int) -> list[TaskBox]:
    """The cells from one number up to another, as at most three boxes. A number is a right part * PARTS + a left place.

    >>> [(box.left_low / PARTS, box.left_high / PARTS, box.right_low, box.right_high)
    ...  for box in boxes_between(0, PARTS // 2, 3 * PARTS + PARTS // 4)]
    [(0.5, 1.0, 0, 1), (0.0, 1.0, 1, 3), (0.0, 0.25, 3, 4)]
    """
    (first, low), (last, high) = divmod(begin, PARTS), divmod(end, PARTS)
    if first == last:
        return [TaskBox(task, low, high, first, first + 1)] if low < high else []
    boxes = []
    if low:
        boxes.append(TaskBox(task, low, PARTS, first, first + 1))
        first += 1
    if first < last:
        boxes.append(TaskBox(task, 0, PARTS, first, last))
    if high:
        boxes.append(TaskBox(task, 0, high, last, last + 1))
    return boxes
