"""Every task joins one range of the left input's values: for bands and inequalities.

A pair belongs to the task whose range holds the left row. From the right input a task reads the possible partners.
Close values stay together, so few rows are read twice, and the work of a batch follows the rows that are close to each
other. The bounds are chosen again for each batch, to balance the pairs of its fresh rows.

Balance is not guaranteed if one value holds more than a task's share of the work. Use the grid for that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import KEY_SPACE, KeyRange, Order, Run, SchemePlan
from watersmeet.schemes.balance import Spread, cut_evenly, ranges_between, spread_of
from watersmeet.schemes.scheme import (
    BatchFacts,
    Facing,
    Scheme,
    SchemeRequest,
    Share,
    Slice,
    by_input,
    check_ranges,
    share_of,
)

# Elementary ranges for each task. Bounds lie between them.
_GRAINS = 32


@dataclass(frozen=True, slots=True)
class RangePlan(SchemePlan):
    """The range of left order keys of each task."""

    kind: ClassVar[str] = "range"
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class Range(Scheme[RangePlan]):
    name: ClassVar[str] = "range"
    plan_type = RangePlan

    orders = (Order.VALUE,)
    needs = "an inequality or a band between the two inputs, such as abs(l.x - r.x) <= 5, and no equality"

    facing: Facing

    @classmethod
    def make(cls, request: SchemeRequest) -> Range:
        assert request.facing is not None
        return cls(request.facing)

    def plan(self, facts: BatchFacts) -> RangePlan:
        old, new = (by_input(runs, facts.inputs) for runs in (facts.reachable, facts.fresh))
        left, right = ((old[name], new[name]) for name in facts.inputs)
        return RangePlan(plan_band_ranges(left, right, self.facing, facts.tasks))

    def shares(self, plan: RangePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        left, right = inputs
        mine = plan.ranges[task]
        yield share_of(left, Slice(mine)), share_of(right, Slice(self.facing(mine)))

    def check(self, plan: RangePlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)


def plan_band_ranges(
    left: tuple[Sequence[Run], Sequence[Run]],
    right: tuple[Sequence[Run], Sequence[Run]],
    facing: Facing,
    tasks: int,
) -> tuple[KeyRange, ...]:
    """Choose a range of left order keys for each task, from the history and the fresh runs of both inputs."""
    if tasks == 1:
        return (KeyRange(0, KEY_SPACE),)
    left_old, left_new, right_old, right_new = (spread_of(runs) for runs in (*left, *right))
    everything = spread_of([*left[0], *left[1]])
    grains = [0, *everything.bounds(_GRAINS * tasks), KEY_SPACE]
    work = [
        _work(KeyRange(low, high), left_old, left_new, right_old, right_new, facing)
        for low, high in itertools.pairwise(grains)
    ]
    places = cut_evenly(np.array(work), np.ones(tasks)).tolist() if sum(work) else [0] * (tasks - 1)
    return ranges_between(grains[place] for place in places)


def _work(
    grain: KeyRange, left_old: Spread, left_new: Spread, right_old: Spread, right_new: Spread, facing: Facing
) -> float:
    """Fresh rows read and pairs emitted, with every left row assumed in the middle of its grain."""
    middle = (grain.low + grain.high) // 2
    partners = facing(KeyRange(middle, middle + 1))
    old = right_old.between(partners.low, partners.high)
    new = right_new.between(partners.low, partners.high)
    fresh_left = left_new.between(grain.low, grain.high)
    pairs = fresh_left * (old + new) + left_old.between(grain.low, grain.high) * new
    return fresh_left + right_new.between(grain.low, grain.high) + pairs
