"""Every task joins a stretch of the left input's values: for bands and inequalities.

A pair belongs to the task whose range holds the left row. From the right input a task reads the possible partners.
Close values stay together, so few rows are read twice, and the work of a batch follows the rows that are close to each
other. The bounds are chosen again for each batch, to balance the pairs of its fresh rows. A value with more than a
task's share of the work is shared by several tasks (cut.py). Many rows that no row of the other input is close to are
set aside (voids.py).

Balance is estimated from a sample (grains.py). It is not guaranteed for rows that the rest of the predicate rejects:
they count as pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.figures import count
from watersmeet.model.signature import Order
from watersmeet.schemes.balance import ranges_between
from watersmeet.schemes.range.cut import cut_grains
from watersmeet.schemes.range.facts import RangePlan, SharedRange
from watersmeet.schemes.range.grains import InputRuns, count_grains
from watersmeet.schemes.range.voids import set_voids_aside
from watersmeet.schemes.scheme import (
    BatchFacts,
    Facing,
    RowPart,
    Scheme,
    SchemeRequest,
    Share,
    Shown,
    Slice,
    by_input,
    check_ranges,
    share_of,
)


@dataclass(frozen=True, slots=True)
class Range(Scheme[RangePlan]):
    name: ClassVar[str] = "range"
    plan_type = RangePlan

    orders = (Order.VALUE,)
    needs = "an inequality or a band between the two inputs, such as abs(l.x - r.x) <= 5, and no equality"

    facing: Facing

    @classmethod
    def make(cls, request: SchemeRequest) -> Range:
        assert request.partners.facing is not None
        return cls(request.partners.facing)

    def plan(self, facts: BatchFacts) -> RangePlan:
        tasks, keys_of = facts.tasks, facts.keys_of
        if tasks == 1:
            return RangePlan((KeyRange(0, KEY_SPACE),))
        old, new = (by_input(runs, facts.inputs) for runs in (facts.reachable, facts.fresh))
        left, right = (InputRuns(old[name], new[name]) for name in facts.inputs)
        grains = count_grains(left, right, self.facing, keys_of, tasks)
        if grains is None:
            return RangePlan(ranges_between(itertools.repeat(0, tasks - 1)))
        grains = set_voids_aside(grains, sum(run.rows for run in right.new), tasks)
        return cut_grains(grains, left, right, self.facing, keys_of, tasks, facts.limits.least_cut_work)

    def shares(self, plan: RangePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        left, right = inputs
        for mine in unshared(plan, task):
            yield share_of(left, Slice(mine)), share_of(right, Slice(self.facing(mine)))
        for one in plan.shared:
            for box in one.boxes:
                if box.task == task:
                    yield (
                        share_of(
                            left, Slice(one.range, part=_part(box.left_low, box.left_high, one.left_parts))
                        ),
                        share_of(
                            right,
                            Slice(
                                self.facing(one.range),
                                part=_part(box.right_low, box.right_high, one.right_parts),
                            ),
                        ),
                    )

    def check(self, plan: RangePlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)
        reached = 0
        for one in plan.shared:
            low, high = one.range.low, one.range.high
            assert reached <= low < high <= KEY_SPACE, "shared ranges must ascend and not overlap"
            reached = high
            _check_boxes(one, tasks)

    @classmethod
    def show(cls, plan: RangePlan, inputs: Sequence[str]) -> Shown:
        """A line such as: range: 2 hot values shared by 12 tasks, planned balance 1.04 (busiest / mean)."""
        boxes = [one.boxes for one in plan.shared if not one.is_void]
        hot = len(boxes)
        summary = f"range: {count(hot) if hot else 'no'} hot value{'' if hot == 1 else 's'}"
        if hot:
            summary += f" shared by {count(len({box.task for mine in boxes for box in mine}))} tasks"
        balance = f"{plan.load / plan.mean:.2f} (busiest / mean)" if plan.mean else "-"
        return Shown(f"{summary}, planned balance {balance}")


def unshared(plan: RangePlan, task: int) -> list[KeyRange]:
    """The range of a task without the shared ranges, in pieces that are not empty."""
    mine = plan.ranges[task]
    inside = [one.range for one in plan.shared if one.range.low < mine.high and mine.low < one.range.high]
    bounds = [mine.low, *(bound for range_ in inside for bound in (range_.low, range_.high)), mine.high]
    return [KeyRange(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True) if low < high]


def _part(low: int, high: int, of: int) -> RowPart | None:
    return None if high - low == of else RowPart(low, high, of)


def _check_boxes(one: SharedRange, tasks: int) -> None:
    """Raise unless the boxes cover every cell once: they lie inside, have as many cells, and do not overlap."""
    name = f"the shared range from {one.range.low}"
    for box in one.boxes:
        assert 0 <= box.task < tasks, f"a box of {name} has no task"
        assert 0 <= box.left_low < box.left_high <= one.left_parts, f"a box of {name} lies outside"
        assert 0 <= box.right_low < box.right_high <= one.right_parts, f"a box of {name} lies outside"
    cells = sum(box.cells for box in one.boxes)
    assert cells == one.left_parts * one.right_parts, f"a cell of {name} is in no box, or in two"
    sides = np.array([(box.left_low, box.left_high, box.right_low, box.right_high) for box in one.boxes])
    left_low, left_high, right_low, right_high = sides.T
    overlap = np.less.outer(left_low, left_high) & np.less.outer(right_low, right_high)
    # A box meets itself only.
    assert (overlap & overlap.T).sum() == len(one.boxes), f"a cell of {name} is in no box, or in two"
