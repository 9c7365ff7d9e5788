"""The hypercube as a scheme: what a run records, what a task joins under a plan, and how a plan is shown.

`plan.py` has the idea and the invariant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import KeyRange
from watersmeet.model.figures import bounds, counted
from watersmeet.model.signature import MOST_INPUTS
from watersmeet.schemes.hypercube.census import Stored
from watersmeet.schemes.hypercube.facts import CubeChange, CubePlan, HeavyKey, Shape, boxes_of
from watersmeet.schemes.hypercube.hot_keys import HotKeys, list_hot_keys
from watersmeet.schemes.hypercube.plan import plan_cube
from watersmeet.schemes.scheme import (
    BatchFacts,
    InputShare,
    NewRun,
    RowPart,
    Scheme,
    Share,
    Shown,
    Slice,
    by_input,
    check_ranges,
    share_of,
)

# A key with fewer rows than this, all inputs together, is heavy only where there is little else: in a new state almost
# every key is. Where no run lists it, its label is a hash, which tells nobody anything.
_FEW_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Hypercube(Scheme[CubePlan]):
    """Give every heavy key a grid of its own, and every task a range of the light keys."""

    name: ClassVar[str] = "hypercube"
    plan_type = CubePlan
    stats_type = HotKeys
    most_inputs = MOST_INPUTS

    def describe(self, run: NewRun, tasks: int) -> HotKeys:
        return list_hot_keys(run, tasks)

    def plan(self, facts: BatchFacts) -> CubePlan:
        old, new = (by_input(runs, facts.inputs) for runs in (facts.reachable, facts.fresh))
        stored = {name: Stored(old[name], new[name]) for name in facts.inputs}
        return plan_cube(facts.plan_before(CubePlan), stored, facts.keys_of, facts.tasks, facts.batch)

    def shares(self, plan: CubePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        mine = plan.ranges[task]
        heavy = tuple(one.key for one in plan.heavy if mine.low <= one.key < mine.high)
        # A heavy key without fresh rows has no results, so its old rows need not be left out.
        light = Slice(mine)
        yield tuple(InputShare(name, replace(light, without=heavy), light) for name in inputs)
        for one in plan.heavy:
            for box in boxes_of(one, task) if task in one.tasks else ():
                key = KeyRange(box.key, box.key + 1)
                yield tuple(
                    share_of(name, Slice(key, part=RowPart(low, high, of)))
                    for name, low, high, of in zip(inputs, box.low, box.high, box.shape, strict=True)
                )

    def check(self, plan: CubePlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)
        keys = [one.key for one in plan.heavy]
        assert keys == sorted(set(keys)), "heavy keys must ascend strictly"
        for one in plan.heavy:
            assert len(one.shape) == len(plan.inputs), f"{one.label} has a shape of {len(one.shape)} sides"
            cells = math.prod(one.shape)
            assert len(one.tasks) == cells, f"{one.label} has {cells} cells and {len(one.tasks)} owners"
            assert all(0 <= task < tasks for task in one.tasks), f"a cell of {one.label} has no task"
            met = np.zeros(one.shape, np.int64)
            for box in (box for task in range(tasks) for box in boxes_of(one, task)):
                met[tuple(map(slice, box.low, box.high))] += 1
            assert (met == 1).all(), f"a cell of {one.label} is in no box, or in two"

    @classmethod
    def show(cls, plan: CubePlan, inputs: Sequence[str]) -> Shown:
        """A table of heavy keys, and a line such as: hypercube: 3 heavy keys, planned balance 1.04, 2 changes."""
        balance = f"{plan.load / plan.mean:.2f} (busiest / mean)" if plan.mean else "-"
        listed = [one for one in plan.heavy if not _is_small(one)]
        small = {one.label for one in plan.heavy if _is_small(one)}
        summary = f"hypercube: {counted(len(plan.heavy), 'heavy key')}, planned balance {balance}"
        if plan.epoch:
            summary += f", {counted(plan.epoch, 'change')}"
        if small:
            summary += f"; {len(small)} of few rows not listed"
        heaviest = sorted(listed, key=lambda one: (-sum(rows.lower for rows in one.rows), one.key))
        return Shown(
            summary,
            columns=("heavy key", *(f"rows of {name}" for name in inputs), "grid", "tasks"),
            rows=tuple(_shown_key(one) for one in heaviest),
            events=tuple(_shown_change(one) for one in reversed(plan.changes) if one.label not in small),
        )


def _is_small(one: HeavyKey) -> bool:
    """Whether no run lists a key, and it has few rows by all that is known."""
    return not any(rows.lower for rows in one.rows) and sum(rows.upper for rows in one.rows) < _FEW_ROWS


def _shown_key(one: HeavyKey) -> tuple[str, ...]:
    rows = (bounds(of.lower, of.upper) for of in one.rows)
    return (one.label, *rows, _shown_shape(one.shape), str(len(set(one.tasks))))


def _shown_change(one: CubeChange) -> tuple[str, str, str]:
    """A change in one line, such as: batch 7: BADA-17 2 x 2 -> 4 x 2, 1,234 rows moved."""
    shapes = f"{_shown_shape(one.before)} -> {_shown_shape(one.after)}"
    return f"batch {one.batch}: ", one.label, f" {shapes}, {counted(one.moved_rows, 'row')} moved"


def _shown_shape(shape: Shape) -> str:
    """
    >>> _shown_shape((4, 2)), _shown_shape(())
    ('4 x 2', 'light')
    """
    return " x ".join(map(str, shape)) or "light"
