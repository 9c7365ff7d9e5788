"""Every pair of rows meets exactly once, under any sequence of mappings, groups and growth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernel.keys import mix, sections_of
from watersmeet.schemes.grid.cells import SLIVER, CellShare, share_of, shares_of_task
from watersmeet.schemes.grid.facts import Amount, GridPlan, GridShape
from watersmeet.schemes.grid.policy import advance, dynamic, optimal_mapping, start_grid

MANY = settings(max_examples=max(150, settings().max_examples))

MAX_GROWTH = 2


@dataclass
class Rows:
    """Rows of one input: the section of each, and the batch that brought it."""

    sections: np.ndarray
    batches: np.ndarray

    def inside(self, ranges) -> np.ndarray:
        return np.any([(r.low <= self.sections) & (self.sections < r.high) for r in ranges], axis=0)


def meet(batch: int, shares: tuple[CellShare, ...], left: Rows, right: Rows) -> np.ndarray:
    """How often each pair is joined in this batch: the rule of schemes/grid/cells.py, written down once more."""
    met = np.zeros((len(left.sections), len(right.sections)), dtype=int)
    old_left, new_left = left.batches < batch, left.batches == batch
    old_right, new_right = right.batches < batch, right.batches == batch
    for share in shares:
        stored_left, all_left = left.inside(share.left_stored), left.inside(share.left_all)
        stored_right, all_right = right.inside(share.right_stored), right.inside(share.right_all)
        met += np.outer(old_left & stored_left, new_right & all_right)
        met += np.outer(new_left & all_left, old_right & stored_right)
        met += np.outer(new_left & stored_left, new_right & all_right)
    return met


@st.composite
def plan_sequences(draw) -> list[GridPlan]:
    """Any mapping of each group in each batch, reached by steps, with growth in between."""
    cells = draw(st.integers(1, 24))
    plan = start_grid(cells, dynamic(capacity_bytes=1, max_cells=cells * 4**MAX_GROWTH))
    plans = []
    growth = 0
    for _ in range(draw(st.integers(1, 5))):
        if growth < MAX_GROWTH and draw(st.integers(0, 3)) == 0:
            plan = replace(plan, groups=tuple(group.grown() for group in plan.groups))
            growth += 1
        groups = []
        for group in plan.groups:
            rows = 1 << draw(st.integers(0, group.cells.bit_length() - 1))
            groups.append(group.reshaped(GridShape(rows, group.cells // rows)))
        plan = replace(plan, groups=tuple(groups))
        plans.append(plan)
    return plans


def rows_of(draw_batches: list[int], seed: int, plan: GridPlan) -> Rows:
    hashes = mix(np.arange(len(draw_batches), dtype=np.uint64) + np.uint64(seed << 8) + np.uint64(1))
    return Rows(sections_of(hashes, plan.group_cells, plan.parts), np.array(draw_batches, dtype=int))


batches = st.lists(st.integers(0, 4), max_size=25)


@MANY
@given(plan_sequences(), batches, batches, st.integers(0, 2**40), st.integers(1, 7))
def test_each_pair_meets_once_across_mappings_groups_and_growth(
    plans, left_batches, right_batches, seed, tasks
):
    left = rows_of([b % len(plans) for b in left_batches], seed, plans[0])
    right = rows_of([b % len(plans) for b in right_batches], seed + 1, plans[0])
    cells = [[share_of(plan, cell, 1) for cell in range(plan.cells)] for plan in plans]
    by_cell = sum(meet(b, shares, left, right) for b, shares in enumerate(cells))
    assert np.all(by_cell == 1)
    by_task = sum(
        meet(b, shares_of_task(plan, tasks, task), left, right)
        for b, plan in enumerate(plans)
        for task in range(tasks)
    )
    assert np.all(by_task == 1)


def pieces_of(plan: GridPlan, tasks: int, task: int) -> list[int]:
    """The numbers of the pieces of cells that a task has, as `CellShare.start` and `stop` count them."""
    return [
        cell * plan.parts + piece
        for share in shares_of_task(plan, tasks, task)
        for cell in range(share.cell, share.cell + share.cells)
        for piece in range(share.start, share.stop)
    ]


@given(plan_sequences(), st.integers(1, 7))
def test_the_shares_of_a_task_are_few_and_follow_each_other(plans, tasks):
    for plan in plans:
        end = 0
        for task in range(tasks):
            shares = shares_of_task(plan, tasks, task)
            pieces = pieces_of(plan, tasks, task)
            assert pieces == sorted(set(pieces)) and all(piece >= end for piece in pieces)
            end = pieces[-1] + 1 if pieces else end
            # Two blocks for each power of two in each group that the task's range cuts, one for a whole group. Two
            # cells may be cut.
            assert len(shares) <= 2 + sum(2 * cells.bit_length() for cells in plan.group_cells)


@given(st.sampled_from([(16, 3), (64, 12), (256, 48), (1024, 200), (16, 48), (64, 64)]), st.integers(0, 10))
def test_tasks_have_equal_areas_also_if_they_do_not_divide_the_cells(sizes, side):
    cells, tasks = sizes
    [group] = start_grid(cells, dynamic()).groups
    rows = min(cells, 1 << side)
    plan = replace(start_grid(cells, dynamic()), groups=(group.reshaped(GridShape(rows, cells // rows)),))
    mean = plan.parts**2 / tasks
    width = max(plan.parts // rows, plan.parts // (cells // rows))
    # A border may be off by a sliver, or by a section of the side that is cut.
    most = 2 * max(SLIVER * min(1, cells / tasks), 1 / width) * tasks / cells
    for task in range(tasks):
        area = sum(
            _width(share.left_stored) * _width(share.right_stored)
            for share in shares_of_task(plan, tasks, task)
        )
        assert abs(area / mean - 1) <= most + 1e-9


def _width(ranges) -> int:
    return sum(r.high - r.low for r in ranges)


@given(plan_sequences())
def test_cells_keep_their_tasks(plans):
    """When tasks divide the cells, a cell's four successors stay where it was."""
    first, last = plans[0], plans[-1]
    factor = last.cells // first.cells
    for cell in range(first.cells):
        grown = range(cell * factor * last.parts, (cell + 1) * factor * last.parts)
        assert set(grown) == set(pieces_of(last, first.cells, cell))


@MANY
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8),
    st.floats(0.1, 1),
    st.integers(0, 60),
    st.integers(1, 200),
)
def test_each_pair_meets_once_while_the_grid_adapts(cells, arrivals, epsilon, min_rows, capacity):
    policy = dynamic(epsilon=epsilon, min_rows=min_rows, capacity_bytes=capacity, max_cells=16 * cells)
    plan = start_grid(cells, policy)
    left_batches = [b for b, (count, _) in enumerate(arrivals) for _ in range(count)]
    right_batches = [b for b, (_, count) in enumerate(arrivals) for _ in range(count)]
    left, right = rows_of(left_batches, 1, plan), rows_of(right_batches, 2, plan)
    met = np.zeros((len(left_batches), len(right_batches)), dtype=int)
    for batch, (new_left, new_right) in enumerate(arrivals):
        before = plan
        plan, event = advance(plan, Amount(new_left, new_left), Amount(new_right, new_right), policy)
        met += meet(batch, shares_of_task(plan, 3, 0), left, right)
        met += meet(batch, shares_of_task(plan, 3, 1), left, right)
        met += meet(batch, shares_of_task(plan, 3, 2), left, right)
        assert (event is None) == (plan.groups == before.groups)
        assert plan.epoch == before.epoch + (event is not None)
    assert np.all(met == 1)


@given(st.integers(0, 10), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10))
def test_the_optimal_mapping_is_the_best_of_all(exponent, left, right, current):
    cells = 1 << exponent
    shapes = [GridShape(1 << bit, cells >> bit) for bit in range(exponent + 1)]
    loads = {s: left / s.rows + right / s.cols for s in shapes}
    held = shapes[min(current, exponent)]
    best = optimal_mapping(cells, left, right, current=held)
    assert loads[best] <= min(loads.values()) * (1 + 1e-12)
    if best != held:
        assert left * best.cols + right * best.rows < left * held.cols + right * held.rows
