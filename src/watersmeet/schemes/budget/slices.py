"""Which keys of a partition group to pay, if the whole group owes too much for one batch.

A group is cut by key: the lowest keys first, as many as fit. The keys that were paid leave all pushes, so the next
batch goes on behind them. A single key that does not fit is cut into cells (model/cells.py). Its rows must not move
between two batches, so it begins when

- at least two generations of it are pushed; if only one is, and other rows came since, these are pushed first;
- no pending merge moves a row of it: one that was planned before its last push does.

What a payment costs are the bytes that it touches. Rows of the current generation that fresh rows can reach count as
touched already, unless the keys are pushed again at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

import numpy as np

from watersmeet.model.cells import Block, RunRows, blocks_of, count_cells, owed_cells
from watersmeet.model.facts import Cells, KeyRange
from watersmeet.model.generations import NOT_HELD, Generations
from watersmeet.model.ranges import Ranges, intersected
from watersmeet.model.slices import Weighed, cut, weight_below
from watersmeet.schemes.budget.census import rows_by
from watersmeet.schemes.scheme import BatchFacts

# Cells that a batch looks at to find some that owe: a key of two generations owes in half of them.
MOST_CELLS = 50_000


@dataclass(frozen=True, slots=True)
class PaidKeys:
    """Keys to pay: whole `ranges`, and what that touches. If none fit, the lone `key` that is too large."""

    ranges: Ranges = ()
    bytes: float = 0.0
    key: KeyRange | None = None
    key_bytes: float = 0.0


def cut_slice(
    facts: BatchFacts, found: Generations, ranges: Ranges, most_bytes: float, *, all_: bool
) -> PaidKeys:
    """The lowest keys of ascending ranges whose payment touches at most `most_bytes`.

    With `all_` every row counts, also those that fresh rows reach.
    """
    whole = KeyRange(ranges[0].low, ranges[-1].high)
    stretches = list(_weighed(facts, found, ranges, all_=all_))
    # The keys of a run ascend over its stretches, and each stretch is weighed by itself.
    fits = cut(stretches, whole, most_bytes)
    size = weight_below(stretches, fits.high)
    if fits == whole:
        return PaidKeys(ranges, size)
    if size > 0:
        return PaidKeys(intersected(ranges, (fits,)), size)
    key = KeyRange(fits.high, fits.high + 1)
    return PaidKeys(key=key, key_bytes=weight_below(stretches, key.high))


def _weighed(facts: BatchFacts, found: Generations, ranges: Ranges, *, all_: bool) -> Iterator[Weighed]:
    reachable = {run.path for run in facts.reachable}
    for place, run in enumerate(found.runs):
        free = not all_ and run.path in reachable
        mine = [range_ for range_ in ranges if range_.overlaps(run)]
        if not mine or (free and (found.of[place] == found.current).all()):
            continue
        keys = Weighed(facts.keys_of(run), run.bytes / max(1, run.rows))
        for range_ in mine:
            for segment in found.segments_in(range_).tolist():
                of = found.of[place, segment]
                if of != NOT_HELD and not (free and of == found.current):
                    (both,) = intersected((range_,), (found.range_of(segment),))
                    yield keys.between(both)


def in_debt(facts: BatchFacts, found: Generations, ranges: Ranges) -> Ranges:
    """The parts of some ranges that have rows of two or more generations: the others owe nothing."""
    segments = [segment for range_ in ranges for segment in found.segments_in(range_).tolist()]
    rows = np.zeros((found.current + 1, len(segments)), np.int64)
    for run, of in zip(found.runs, found.of[:, segments], strict=True):
        held = np.flatnonzero(of != NOT_HELD)
        if len(held) and any(range_.overlaps(run) for range_ in ranges):
            counts = rows_by(found.lows, facts.keys_of(run))[segments]
            np.add.at(rows, (of[held], held), counts[held])
    owing = np.flatnonzero((rows > 0).sum(axis=0) > 1)
    return intersected(ranges, found.ranges_of(segments[place] for place in owing.tolist()))


def next_cells(
    facts: BatchFacts,
    found: Generations,
    key: KeyRange,
    enough_bytes: float,
    cell_bytes: float,
    most_bytes: float,
) -> tuple[Cells, float] | KeyRange | None:
    """The cells of a key to pay now, and what that touches.

    A cell that is cut now touches at most `cell_bytes`. Together they touch at most `enough_bytes`, or one cell up to
    `most_bytes`. The key itself if it must be pushed first. None if nothing can be done now.
    """
    begun = next((cells for cells in facts.paying if cells.range == key), None)
    if begun is None:
        covering = [push for push in facts.pushes if any(key.low in one for one in push.ranges)]
        if not covering:
            return None
        border = max(push.batch for push in covering)
        stretches = _stretches(facts, found, key, border)
        if len({one.generation for mine in stretches for one in mine}) < 2:
            return key if _has_current(facts, found, key) else None
        if _moves(facts, key, {one.path for mine in stretches for one in mine}):
            return None
        width = max(run.bytes / max(1, run.rows) for run in found.runs if key.overlaps(run))
        block_rows = max(1, int(cell_bytes / len(facts.inputs) / width))
        blocks = [blocks_of(mine, block_rows) for mine in stretches]
        begun = Cells(key, border, block_rows, 0, 0, count_cells(blocks))
    else:
        stretches = _stretches(facts, found, key, begun.border)
        blocks = [blocks_of(mine, begun.block_rows) for mine in stretches]
    end, size = _reach(facts, blocks, begun, enough_bytes, most_bytes)
    if end == begun.end and not begun.is_last:
        return None
    held = [one for mine in stretches for one in mine]
    runs, rows = tuple(one.path for one in held), tuple(one.rows for one in held)
    return replace(begun, first=begun.end, end=end, runs=runs, rows=rows), size


def _reach(
    facts: BatchFacts, blocks: list[list[Block]], begun: Cells, enough_bytes: float, most_bytes: float
) -> tuple[int, float]:
    """The end of the cells that fit, and what they touch."""
    row_bytes = {run.path: run.bytes / max(1, run.rows) for run in facts.history}
    scanned = min(begun.end + MOST_CELLS, begun.of)
    touched: set[Block] = set()
    size = 0.0
    for number, cell in owed_cells(blocks, begun.end, scanned):
        more = {block for block in cell if block not in touched}
        size_then = size + sum((one.stop - one.start) * row_bytes[one.path] for one in more)
        if size_then > (enough_bytes if touched else most_bytes):
            return number, size
        touched |= more
        size = size_then
    return scanned, size


def _stretches(facts: BatchFacts, found: Generations, key: KeyRange, border: int) -> list[list[RunRows]]:
    """The rows of a key that were set aside up to a border, by input."""
    (segment,) = found.segments_in(key).tolist()
    by_input: dict[str, list[RunRows]] = {name: [] for name in facts.inputs}
    for run, number in zip(found.runs, found.of[:, segment].tolist(), strict=True):
        if 0 <= number < found.current and facts.pushes[number].batch <= border and key.overlaps(run):
            rows = len(Weighed(facts.keys_of(run), 1.0).between(key).keys)
            if rows:
                by_input[run.input].append(RunRows(number, run.path, rows))
    return list(by_input.values())


def _has_current(facts: BatchFacts, found: Generations, key: KeyRange) -> bool:
    (segment,) = found.segments_in(key).tolist()
    return any(
        of == found.current
        and key.overlaps(run)
        and len(Weighed(facts.keys_of(run), 1.0).between(key).keys) > 0
        for run, of in zip(found.runs, found.of[:, segment].tolist(), strict=True)
    )


def _moves(facts: BatchFacts, key: KeyRange, paths: Set[str]) -> bool:
    """Whether a pending merge will move rows of a key from one of these runs to another."""
    for merge in facts.merges:
        stay = {
            path for left in merge.left if any(key.low in one for one in left.ranges) for path in left.runs
        }
        if any(path in paths and path not in stay for path in merge.runs):
            return True
    return False
