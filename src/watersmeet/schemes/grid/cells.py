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

If the tasks do not divide the cells, a cell at the border of two tasks is cut between them, along the side that it has
more sections of. Each of its pairs has one section on that side, so it is still met once. The paper gives whole cells
to joiners; then some of 200 tasks would have six of 1,024 cells where the mean is 5.12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from watersmeet.schemes.grid.facts import GridPlan, gather_bits
from watersmeet.schemes.scheme import SectionRange

# A border of tasks that is nearer than this to a border of cells, as a share of a cell, is moved there: the other input's
# rows of a cell that is cut are read by both tasks, which a sliver does not pay for.
SLIVER = 1 / 8


@dataclass(frozen=True, slots=True)
class CellShare:
    """The sections that `cells` cells, from number `cell` on, read of each input. Ranges ascend and do not touch.

    One cell may be cut: then `start` and `stop` say which of its `GridPlan.parts` equal pieces these are. `stored` are
    the rows that their group keeps, to be joined with the other input's fresh rows. `all` are the same rows or columns
    in every group.
    """

    cell: int
    cells: int
    group: int
    left_stored: tuple[SectionRange, ...]
    left_all: tuple[SectionRange, ...]
    right_stored: tuple[SectionRange, ...]
    right_all: tuple[SectionRange, ...]
    start: int
    stop: int


def shares_of_task(plan: GridPlan, tasks: int, task: int) -> tuple[CellShare, ...]:
    """The share of one task in as few pieces as possible: blocks of cells, and at its ends parts of a cell.

    Shares are equal and consecutive. A cell stays with its tasks under any mapping. After growth its four successors
    are there, or next to them.
    """
    start, stop = _border(plan, tasks, task), _border(plan, tasks, task + 1)
    first, last = -(-start // plan.parts), stop // plan.parts
    if last < first:
        return _cut(plan, last, start, stop)
    return (
        *_cut(plan, first - 1, start, first * plan.parts),
        *(share_of(plan, cell, count) for cell, count in _blocks(plan, first, last)),
        *_cut(plan, last, last * plan.parts, stop),
    )


def _border(plan: GridPlan, tasks: int, task: int) -> int:
    """Where a task's share begins, counted in pieces of cells. There are `plan.parts` pieces in a cell."""
    border = plan.cells * plan.parts * task // tasks
    whole = (border + plan.parts // 2) // plan.parts * plan.parts
    sliver = SLIVER * min(plan.parts, plan.cells * plan.parts / tasks)
    return whole if abs(border - whole) <= sliver else border


def _cut(plan: GridPlan, cell: int, start: int, stop: int) -> tuple[CellShare, ...]:
    """The pieces of one cell between two borders, counted in pieces of all cells; nothing if there are none."""
    if start == stop:
        return ()
    share = share_of(plan, cell, 1, start - cell * plan.parts, stop - cell * plan.parts)
    return (share,) if share.left_stored and share.right_stored else ()


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


def share_of(plan: GridPlan, cell: int, cells: int, start: int = 0, stop: int | None = None) -> CellShare:
    """The share of an aligned block of cells, all of one group; of a single cell optionally some pieces only."""
    number, inner = _locate(plan, cell)
    group = plan.groups[number]
    stop = plan.parts if stop is None else stop
    left = _parts(group.row_bits, inner, cells, plan.parts)
    right = _parts(group.col_bits, inner, cells, plan.parts)
    if (start, stop) != (0, plan.parts):
        (row,), (col,) = left, right
        if row.high - row.low >= col.high - col.low:
            left = _piece(row, start, stop, plan.parts)
        else:
            right = _piece(col, start, stop, plan.parts)
    return CellShare(
        cell=cell,
        cells=cells,
        group=number,
        left_stored=_sections(left, plan.parts, [number]),
        left_all=_sections(left, plan.parts, range(len(plan.groups))),
        right_stored=_sections(right, plan.parts, [number]),
        right_all=_sections(right, plan.parts, range(len(plan.groups))),
        start=start,
        stop=stop,
    )


def _piece(side: SectionRange, start: int, stop: int, parts: int) -> list[SectionRange]:
    """The sections of one side between two of `parts` borders; none if all of them are elsewhere."""
    width = side.high - side.low
    low, high = (side.low + width * border // parts for border in (start, stop))
    return [SectionRange(low, high)] if low < high else []


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
