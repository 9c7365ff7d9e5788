"""Cells of the join matrix over sections of the runs: any condition, whatever the content.

Source: Elseidy et al. 2014. The left input lies along the rows of the matrix, the right one along its columns, so a
grid has two inputs. Runs are cut into sections by a hash of a row's place in the stream. `schemes/grid/policy.py`
decides the shape. `schemes/grid/cells.py` says what a cell reads and why each pair meets once.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from watersmeet.errors import UsageError
from watersmeet.model.facts import Run
from watersmeet.model.figures import count, size
from watersmeet.model.signature import Layout, Order
from watersmeet.schemes.grid.cells import shares_of_task
from watersmeet.schemes.grid.facts import Amount, GridPlan, Relocated, Relocation
from watersmeet.schemes.grid.policy import GridPolicy, advance, dynamic, fixed, reshape, start_grid
from watersmeet.schemes.grid.relocation import StoredSections
from watersmeet.schemes.scheme import (
    BatchFacts,
    InputShare,
    Scheme,
    SchemeRequest,
    SectionRange,
    Share,
    Shown,
    Slice,
    by_input,
)

# Changes of shape that a plan remembers.
RELOCATIONS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Grid(Scheme[GridPlan]):
    name: ClassVar[str] = "grid"
    plan_type = GridPlan

    orders = (Order.HASH, Order.VALUE, Order.ARRIVAL)
    arguments = ("cells", "mapping")

    cells: int
    policy: GridPolicy

    @classmethod
    def make(cls, request: SchemeRequest) -> Grid:
        cells = request.cells
        if request.mapping is not None:
            rows, cols = _mapping(request.mapping)
            return cls(_cells(rows * cols if cells is None else cells, request.tasks), fixed(rows, cols))
        return cls(_cells(cells, request.tasks), request.adapting or dynamic())

    @property
    def layout(self) -> Layout:
        plan = start_grid(self.cells, self.policy)
        return Layout(plan.group_cells, plan.parts)

    def plan(self, facts: BatchFacts) -> GridPlan:
        (left_old, right_old), (left_new, right_new) = (
            by_input(runs, facts.inputs).values() for runs in (facts.history, facts.fresh)
        )
        grid = start_grid(self.cells, self.policy)
        before = facts.plan_before(GridPlan)
        events: list[Relocation] = []
        if before is not None:
            if facts.windowed:
                before = live_grid(before, amount_of(left_old), amount_of(right_old))
            wanted = before.shapes if self.policy.adapts else grid.shapes
            grid, asked = reshape(before, wanted, _stored(before, left_old, right_old))
            events += [asked] if asked else []
        arrived = amount_of(left_new), amount_of(right_new)
        plan, event = advance(grid, *arrived, self.policy, _stored(grid, left_old, right_old))
        events += [event] if event else []
        relocations = (*plan.relocations, *(Relocated(facts.batch, event) for event in events))
        return replace(plan, relocations=relocations[-RELOCATIONS_KEPT:])

    def shares(self, plan: GridPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        left, right = inputs
        for cells in shares_of_task(plan, tasks, task):
            left_stored, right_stored = Slice(sections=cells.left_stored), Slice(sections=cells.right_stored)
            right_all = Slice(sections=cells.right_all)
            if len(plan.groups) == 1:
                yield InputShare(left, left_stored, left_stored), InputShare(right, right_all, right_stored)
                continue
            yield InputShare(left, left_stored, left_stored), InputShare(right, right_all, None)
            left_all = Slice(sections=cells.left_all)
            yield InputShare(left, left_all, None), InputShare(right, None, right_stored)

    def check(self, plan: GridPlan, tasks: int) -> None:
        """Check that every two sections meet once for each of old x fresh, fresh x old and fresh x fresh."""
        met = np.zeros((3, plan.sections, plan.sections), np.int64)
        for left, right in (
            share for task in range(tasks) for share in self.shares(plan, ("", ""), task, tasks)
        ):
            owed = ((left.history, right.fresh), (left.fresh, right.history), (left.fresh, right.fresh))
            for place, (rows, cols) in enumerate(owed):
                for row, col in itertools.product(_ranges(rows), _ranges(cols)):
                    met[place, row.low : row.high, col.low : col.high] += 1
        assert (met == 1).all(), "two sections meet in no cell, or in two"

    @classmethod
    def show(cls, plan: GridPlan, inputs: Sequence[str]) -> Shown:
        """The plan in one line, such as: grid of 4 cells, mapping (1, 4), 2.1 KB a cell; 2 changes, the last ..."""
        shapes = " + ".join(f"({shape.rows}, {shape.cols})" for shape in plan.shapes)
        text = f"grid of {count(plan.cells)} cells, mapping {shapes}, {size(round(plan.max_load))} a cell"
        if plan.relocations:
            last = plan.relocations[-1]
            kept, moved, dropped = (
                count(amount.rows) for amount in (last.event.kept, last.event.moved, last.event.discarded)
            )
            text += f"; {plan.epoch} change{'s' if plan.epoch > 1 else ''}, the last in batch {last.batch}: "
            text += f"{kept} rows kept, {moved} moved, {dropped} dropped by cells"
        return Shown(text)

    @classmethod
    def words_for_layout(cls, layout: Layout | None) -> str:
        assert layout is not None
        return f"a grid of {sum(layout.groups)} cells in {layout.parts} parts"

    @classmethod
    def refuse_layout(cls, old: Layout | None, new: Layout | None) -> str | None:
        if old is None or new is None or old.groups == new.groups:
            return None
        cells = sum(old.groups)
        return (
            f"the state was written by a grid of {cells} cells, but this one has {sum(new.groups)}: pass cells={cells} "
            "(without it their number follows the tasks), or start with a new checkpoint to begin with fresh state"
        )


def amount_of(runs: Iterable[Run]) -> Amount:
    """Rows and their bytes. A file is larger, by a header for each section."""
    found = list(runs)
    return Amount(sum(run.rows for run in found), sum(run.row_bytes for run in found))


def live_grid(grid: GridPlan, left: Amount, right: Amount) -> GridPlan:
    """The grid of the rows stored now, not of all that ever arrived: for joins under a window.

    An input that has shrunk by half since the last decision makes the next one due, as one that has doubled does. The
    last decision then counts as made on no rows.
    """
    grid = replace(grid, left=left, right=right)
    then = (grid.decided_left, grid.decided_right)
    if all(2 * now.bytes > before.bytes for now, before in zip((left, right), then, strict=True)):
        return grid
    return replace(grid, decided_left=replace(then[0], bytes=0), decided_right=replace(then[1], bytes=0))


def _ranges(rows: Slice | None) -> tuple[SectionRange, ...]:
    return (rows.sections or ()) if rows else ()


def _stored(grid: GridPlan, left: Sequence[Run], right: Sequence[Run]) -> StoredSections:
    counts = []
    for runs in (left, right):
        rows, size = np.zeros((2, grid.sections), np.int64)
        for run in runs:
            found = np.array(run.sections, np.int64)
            rows[: len(found)] += found
            size[: len(found)] += found * run.row_bytes // run.rows
        counts += [rows, size]
    return StoredSections(*counts)


# Cells for each task if the number of tasks is not a power of two. Cells at the borders of tasks are cut, and both tasks
# read the uncut side: with fewer cells that is a larger part of what a task reads.
_CELLS_PER_TASK = 4


def default_cells(tasks: int) -> int:
    """A power of two: with any other number the smallest group of cells would be the slowest.

    >>> [default_cells(tasks) for tasks in (1, 2, 3, 4, 6)]
    [1, 2, 16, 4, 32]
    """
    if tasks & (tasks - 1) == 0:
        return tasks
    return 1 << (_CELLS_PER_TASK * tasks - 1).bit_length()


def _cells(cells: int | None, tasks: int) -> int:
    if cells is None:
        return default_cells(tasks)
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 1:
        raise UsageError(f"cells={cells!r}: a grid has at least one cell")
    return cells


def _mapping(mapping: tuple[int, int]) -> tuple[int, int]:
    try:
        rows, cols = (operator.index(side) for side in mapping)
    except (TypeError, ValueError):
        raise UsageError(f"mapping={mapping!r}: give rows and columns of the grid, such as (2, 4)") from None
    return rows, cols
