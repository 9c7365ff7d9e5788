"""Who joins what in a batch: one strategy for each way to share out a join.

    hash      equal ranges of mixed keys; keys that are equal meet in one task
    cube      ranges of light keys, balanced for the batch, and grids of cells for the heavy ones
    biclique  units that each store a part of one input and meet the fresh rows of the other
    range     ranges of the left input's values, balanced for the batch; for bands
    grid      cells of the join matrix over sections of the runs; for any condition, blind to content

A strategy is what was asked for, or what `auto` took, fixed for the length of a query; what it decides for a batch
follows from the plan before, the history and the fresh runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.model.cube import BicliquePlan
from watersmeet.model.facts import Layout, Plan, Relocated, Run
from watersmeet.model.grid import GridPlan, Relocation
from watersmeet.plan.census import KeysOf, Stored
from watersmeet.plan.grid import GridPolicy, advance, reshape, start_grid
from watersmeet.plan.hash import plan_ranges
from watersmeet.plan.hypercube import plan_cube
from watersmeet.plan.ranges import Facing, plan_band_ranges
from watersmeet.plan.relocation import StoredSections
from watersmeet.plan.window import amount_of

# Changes of shape that a manifest remembers.
RELOCATIONS_KEPT = 20


@dataclass(frozen=True, slots=True)
class HashStrategy:
    """Nothing to choose."""


@dataclass(frozen=True, slots=True)
class CubeStrategy:
    """Nothing to choose either: all follows from the rows."""


@dataclass(frozen=True, slots=True)
class BicliqueStrategy:
    plan: BicliquePlan


@dataclass(frozen=True, slots=True)
class RangeStrategy:
    """`facing` says which right words can be partners of a range of left words."""

    facing: Facing


@dataclass(frozen=True, slots=True)
class GridStrategy:
    cells: int
    policy: GridPolicy

    @property
    def layout(self) -> Layout:
        plan = start_grid(self.cells, self.policy)
        return Layout(plan.group_cells, plan.parts)


Strategy = HashStrategy | CubeStrategy | BicliqueStrategy | RangeStrategy | GridStrategy


def place_batch(
    strategy: Strategy,
    before: Plan | None,
    history: Sequence[Run],
    fresh: Sequence[Run],
    inputs: tuple[str, str],
    tasks: int,
    batch: int,
    keys_of: KeysOf,
) -> Plan:
    """The plan of a batch, without assignments of merges. `keys_of` gives the sorted order keys of a run."""
    old, new = ([_of(runs, name) for name in inputs] for runs in (history, fresh))
    if isinstance(strategy, HashStrategy):
        return Plan(plan_ranges(tasks))
    if isinstance(strategy, CubeStrategy):
        left, right = (Stored(*runs) for runs in zip(old, new, strict=True))
        return plan_cube(before, left, right, keys_of, tasks, batch)
    if isinstance(strategy, BicliqueStrategy):
        return Plan((), biclique=strategy.plan)
    if isinstance(strategy, RangeStrategy):
        return Plan(plan_band_ranges((old[0], new[0]), (old[1], new[1]), strategy.facing, tasks))
    grid = start_grid(strategy.cells, strategy.policy)
    events: list[Relocation] = []
    if before and before.grid:
        stored = _stored(before.grid, old[0], old[1])
        wanted = before.grid.shapes if strategy.policy.adapts else grid.shapes
        grid, asked = reshape(before.grid, wanted, stored)
        events += [asked] if asked else []
    plan, event = advance(
        grid, amount_of(new[0]), amount_of(new[1]), strategy.policy, _stored(grid, old[0], old[1])
    )
    events += [event] if event else []
    known = before.relocations if before else ()
    relocations = (*known, *(Relocated(batch, event) for event in events))[-RELOCATIONS_KEPT:]
    return Plan((), grid=plan, relocations=relocations)


def _of(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run.input == name]


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
