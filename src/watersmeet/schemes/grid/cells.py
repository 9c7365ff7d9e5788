"""The shares of the join matrix that cells and tasks read, as ranges of sections.

Source: Elseidy et al. 2014, 3.1 (mappings) and 4.2.2 (groups: a row is stored in one group and joined in all).

In a batch, the cell at row i and column j of group g joins

    old left stored in g, row i       x  fresh right of all groups, column j
    fresh left of all groups, row i   x  old right stored in g, column j
    fresh left stored in g, row i     x  fresh right of all groups, column j

Every pair of a batch meets exactly once. A pair of an old and a fresh row meets in the group that stores the old
one. Two fresh rows meet in the group that stores the left one. Two old rows met before. Inside the group the left row
lies in one row, the right one in one column, and one cell is at both. Nothing here depends on the mappings of earlier
batches, so the plan may change at every batch.

An aligned block of 2^k consecutive cells covers a set of rows times a set of columns, so one share describes it. A
task has few blocks, and reads a part once that its cells would read several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from watersmeet.schemes.grid.facts import GridPlan, gather_bits
from watersmeet.schemes.scheme import SectionRange


@dataclass(frozen=True, slots=True)
class CellShare:
    """The sections that `cells` cells, from number `cell` on, read of each input. Ranges ascend and do not touch.

    `stored` are the rows that their group keeps, to be joined with the other input's fresh rows. `all` are the same
    rows or columns in every group.
    """

    cell: int
    cells: int
    group: int
    left_stored: tuple[SectionRange, ...]
    left_all: tuple[SectionRange, ...]
    right_stored: tuple[SectionRange, ...]
    right_all: tuple[SectionRange, ...]


def cells_of_task(plan: GridPlan, tasks: int, task: int) -> range:
    """The cells of one task: equal shares of consecutive numbers.

    A cell stays with its task under any mapping. After growth its four successors are there, or next to it.
    """
    return range(plan.cells * task // tasks, plan.cells * (task + 1) // tasks)


def shares_of_task(plan: GridPlan, tasks: int, task: int) -> tuple[CellShare, ...]:
    """The cells of one task in as few shares as possible."""
    mine = cells_of_task(plan, tasks, task)
    return tuple(share_of(plan, cell, count) for cell, count in _blocks(plan, mine.start, mine.stop))


def _blocks(plan: GridPlan, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut the cells from `start` to `stop` into aligned powers of two, none across two groups."""
    base = 0
    for group in plan.groups:
        low, high = max(start, base), min(stop, base + group.cells)
        while low < high:
            inner = low - base
            count = inner & -inner or group.cells
            while low + count > high:
                count //= 2
            yield low, count
            low += count
        base += group.cells


def share_of(plan: GridPlan, cell: int, cells: int) -> CellShare:
    """The share of an aligned block of cells, all of one group."""
    number, inner = _locate(plan, cell)
    group = plan.groups[number]
    left = _parts(group.row_bits, inner, cells, plan.parts)
    right = _parts(group.col_bits, inner, cells, plan.parts)
    return CellShare(
        cell=cell,
        cells=cells,
        group=number,
        left_stored=_sections(left, plan.parts, [number]),
        left_all=_sections(left, plan.parts, range(len(plan.groups))),
        right_stored=_sections(right, plan.parts, [number]),
        right_all=_sections(right, plan.parts, range(len(plan.groups))),
    )


def _locate(plan: GridPlan, cell: int) -> tuple[int, int]:
    """The group of a cell, and its number inside it."""
    for number, group in enumerate(plan.groups):
        if cell < group.cells:
            return number, cell
        cell -= group.cells
    raise IndexError(f"the plan has only {plan.cells} cells")


def _parts(bits: Sequence[int], inner: int, cells: int, parts: int) -> list[SectionRange]:
    """The parts along one side that the block from `inner` on reads, as ranges inside a group."""
    width = parts >> len(bits)
    free = [bit for bit in bits if 1 << bit < cells]
    places = {gather_bits(inner | _scatter_bits(choice, free), bits) for choice in range(1 << len(free))}
    return [SectionRange(place * width, (place + 1) * width) for place in sorted(places)]


def _scatter_bits(choice: int, bits: Sequence[int]) -> int:
    return sum((choice >> place & 1) << bit for place, bit in enumerate(bits))


def _sections(parts: Sequence[SectionRange], width: int, groups: Iterable[int]) -> tuple[SectionRange, ...]:
    """The parts in each of the groups, with neighbours merged."""
    ranges: list[SectionRange] = []
    for group in groups:
        for part in parts:
            low, high = group * width + part.low, group * width + part.high
            if ranges and ranges[-1].high == low:
                ranges[-1] = SectionRange(ranges[-1].low, high)
            else:
                ranges.append(SectionRange(low, high))
    return tuple(ranges)
