"""Rules broken on purpose: the properties that carry a theorem must notice.

A mutant replaces one named function or constant by a version that breaks its rule. A property that a mutant survives
says less than its name does. To add a rule: give it a property, and a mutant here that the property kills.

Each property runs with a fixed seed and without shrinking, so a mutant dies or survives every time, and in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings

from tests.property import (
    test_cube_allot,
    test_cube_bounds,
    test_cube_pairs,
    test_cube_plan,
    test_grid_bounds,
    test_grid_pairs,
    test_kernel,
    test_pages_worth,
    test_ranges,
    test_section_pairs,
)
from watersmeet.kernel import pieces
from watersmeet.kernel.pieces import KeyedRows, Side
from watersmeet.kernel.rows import Keyed, MergedKeys
from watersmeet.model.facts import Run
from watersmeet.model.limits import Limits
from watersmeet.schemes.grid import cells as grid_cells
from watersmeet.schemes.grid.facts import GridGroup, GridPlan, GridShape
from watersmeet.schemes.grid.policy import GridPolicy
from watersmeet.schemes.hypercube.facts import Box, HeavyKey, boxes_of
from watersmeet.schemes.hypercube.sample import Sample
from watersmeet.schemes.hypercube.shape import Sides
from watersmeet.schemes.range.cut import PARTS, boxes_between
from watersmeet.schemes.range.facts import TaskBox
from watersmeet.schemes.scheme import RowPart
from watersmeet.schemes.table.facts import PageCosts
from watersmeet.schemes.table.worth import Pace, bound_worth


@dataclass(frozen=True)
class Mutant:
    """`broken` maps the dotted name of a function or constant to its replacement; `killers` must all fail then."""

    name: str
    broken: dict[str, Any]
    killers: tuple[Callable[..., None], ...]
    arguments: tuple[Any, ...] = ()


def fails(check: Callable[..., None], arguments: tuple[Any, ...], patch: pytest.MonkeyPatch) -> bool:
    """Whether a test fails; one of Hypothesis as soon as it has found an example."""
    if hasattr(check, "hypothesis"):
        own = getattr(check, "_hypothesis_internal_use_settings", None) or settings()
        quick = settings(
            own,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            report_multiple_bugs=False,
        )
        # What @settings sets; applied twice it would refuse.
        patch.setattr(check, "_hypothesis_internal_use_settings", quick)
    try:
        check(*arguments)
    except AssertionError:
        return True
    return False


def cases(mutants: Sequence[Mutant]) -> list[Any]:
    """Each mutant with each of its killers."""
    return [
        pytest.param(mutant, killer, id=f"{mutant.name}: {killer.__name__.removeprefix('test_')}")
        for mutant in mutants
        for killer in mutant.killers
    ]


def is_noticed(mutant: Mutant, killer: Callable[..., None], patch: pytest.MonkeyPatch) -> bool:
    for name, replacement in mutant.broken.items():
        patch.setattr(name, replacement)
    return fails(killer, mutant.arguments, patch)


def squarest(cells: int, left_size: int, right_size: int, **_: Any) -> GridShape:
    """The mapping with the least longest side, whatever the sizes."""
    rows = 1 << (cells.bit_length() - 1) // 2
    return GridShape(rows, cells // rows)


def only_larger(cells: int, left_size: int, right_size: int, **_: Any) -> GridShape:
    """All cells along the larger input."""
    return GridShape(cells, 1) if left_size > right_size else GridShape(1, cells)


def due_at_three_times(plan: GridPlan, policy: GridPolicy) -> bool:
    now = plan.left.bytes, plan.right.bytes
    then = plan.decided_left.bytes, plan.decided_right.bytes
    return any(new - old >= 2 * policy.epsilon * old for new, old in zip(now, then, strict=True))


def reshaped_by_the_highest_bit(self: GridGroup, shape: GridShape) -> GridGroup:
    """Any other bit than the lowest gives the cells new parts of both inputs."""
    rows, cols = self.row_bits, self.col_bits
    while (1 << len(rows)) > shape.rows:
        rows, cols = rows[1:], (*cols, rows[0])
    while (1 << len(rows)) < shape.rows:
        rows, cols = (*rows, cols[0]), cols[1:]
    return GridGroup(rows, cols)


def square_cut(rows: Sequence[int], heavy_output: float, workers: int) -> Sides:
    side = (math.prod(rows) * workers / heavy_output) ** (1 / len(rows))
    return (side,) * len(rows)


def stepped_by_four(parts: int, wanted: float) -> int:
    while parts > 4 * wanted and parts > 1:
        parts //= 2
    while parts < wanted / 4:
        parts *= 2
    return parts


def nearest_power(parts: int, wanted: float) -> int:
    """No hysteresis: a side follows every change."""
    return 1 << max(0, round(math.log2(wanted)))


def equal_room(load: np.ndarray, light: float) -> np.ndarray:
    """Light keys in equal shares, whatever cells the tasks have already."""
    return np.full(len(load), light / len(load))


def in_turn(lots: Any, kept: Any, tasks: int) -> tuple[list[np.ndarray], np.ndarray]:
    """All cells without an owner to the first task, whatever it has already."""
    load = np.zeros(tasks)
    filled = [np.where(owners < 0, 0, owners) for owners in kept]
    for lot, owners in zip(lots, filled, strict=True):
        load += np.bincount(owners.reshape(-1), minlength=tasks) * lot.cell_work
    return filled, load


def without_fresh_pairs(left: Side, right: Side, limits: Limits) -> Iterator[tuple[KeyedRows, KeyedRows]]:
    """The delta rule without fresh x fresh."""
    left_fresh, right_fresh = (list(pieces.pieces(side.name, side.fresh, limits)) for side in (left, right))
    left_old, right_old = (
        [KeyedRows(side.name, s.keys, s.rows) for s in side.history if len(s)] for side in (left, right)
    )
    yield from ((new, old) for new in left_fresh for old in right_old)
    yield from ((old, new) for new in right_fresh for old in left_old)


def rows_as_they_lie(name: str, slice_: Keyed) -> KeyedRows:
    """Merged keys over rows that are taken to be in the same order."""
    return KeyedRows(name, slice_.keys, slice_.rows)


def sections_unsorted(keys: Any, stretches: Any) -> MergedKeys:
    """Sections behind each other instead of merged."""
    places = np.concatenate([np.arange(start, stop) for start, stop in stretches])
    first, end = stretches[0][0], stretches[-1][1]
    return MergedKeys(keys[places], (places - first).astype(np.int32), first, end)


def overlapping_parts(self: RowPart, run: Run, count: int) -> tuple[int, int]:
    """Both ends rounded outwards."""
    return count * self.low // self.of, -(-count * self.high // self.of)


def only_own_group(sections: Callable[..., Any]) -> Callable[..., Any]:
    """Fresh rows are read in the cell's own group only."""
    return lambda parts, width, groups: sections(parts, width, list(groups)[:1])


def patient(costs: PageCosts, pace: Pace, most_rows: int) -> int:
    """Waiting as if it were free."""
    return bound_worth(most_rows, pace)


def as_joining(costs: PageCosts, pace: Pace, most_rows: int) -> int:
    """As many rows as cost as much to join as the page, whatever waiting costs."""
    return bound_worth(
        min(max(1, most_rows), math.ceil(costs.page_us / (costs.find_us + costs.row_us))), pace
    )


def beyond_the_delay(rows: int, pace: Pace) -> int:
    """However few come within the delay."""
    return max(1, rows)


def nothing_busy(self: Sample, much_work: float, most: int, least_work: float, known: Any) -> Any:
    """A sample that finds no key with much work."""
    return self.keys[:0], self.rows[1][:, :0]


def owned_twice(heavy: HeavyKey, task: int) -> list[Box]:
    """The first cell also belongs to the task after its owner."""
    mine = boxes_of(heavy, task)
    if task in heavy.tasks and task == heavy.tasks[0] + 1:
        first = (0,) * len(heavy.shape)
        mine.append(Box(heavy.key, heavy.shape, first, tuple(low + 1 for low in first)))
    return mine


def from_the_place_before(task: int, begin: int, end: int) -> list[TaskBox]:
    """The place at which a stretch is cut is read by the tasks on both sides."""
    return boxes_between(task, begin - 1 if begin % PARTS and begin < end else begin, end)


def to_the_next_right_part(task: int, begin: int, end: int) -> list[TaskBox]:
    """The box of whole right parts reaches into the part that the task has to share."""
    return [
        replace(box, right_high=box.right_high + 1)
        if box.left_high - box.left_low == PARTS and box.right_high * PARTS < end
        else box
        for box in boxes_between(task, begin, end)
    ]


RANGE = "watersmeet.schemes.range"
# Without the check of every plan, which would notice before any pair is joined.
UNCHECKED = {f"{RANGE}.plan._check_boxes": lambda *_: None}

DECIDED = "watersmeet.schemes.grid.policy.optimal_mapping"

WORTH = "watersmeet.schemes.table.worth"

MUTANTS = [
    Mutant(
        "pages that wait as if that were free",
        {f"{WORTH}.choose_worth": patient},
        (test_pages_worth.test_no_number_of_rows_takes_less_time_by_the_equations,),
    ),
    Mutant(
        "pages that are worth what joining costs",
        {f"{WORTH}.choose_worth": as_joining},
        (test_pages_worth.test_no_number_of_rows_takes_less_time_by_the_equations,),
    ),
    Mutant(
        "pages that need more rows than can come",
        {f"{WORTH}.bound_worth": beyond_the_delay},
        (test_pages_worth.test_a_page_needs_a_row_and_no_more_than_can_come_or_wait,),
    ),
    Mutant(
        "costs that one measurement may set to anything",
        {f"{WORTH}._MOST_CHANGE": 1e9},
        (test_pages_worth.test_one_measurement_changes_no_cost_beyond_its_bounds,),
    ),
    Mutant(
        "no padding",
        {"watersmeet.schemes.grid.policy._padded": lambda left, right, cells: (cells * left, cells * right)},
        (test_grid_bounds.test_with_padding_decisions_are_logarithmic_however_far_apart,),
    ),
    Mutant(
        "a grid that ignores the load: the squarest",
        {DECIDED: squarest},
        (
            test_grid_bounds.test_theorem_4_1_the_load_is_at_most_a_quarter_above_the_optimum,
            test_grid_bounds.test_theorem_4_1_tuple_at_a_time,
            test_grid_bounds.test_with_padding_the_bound_is_1_875_however_far_apart,
        ),
    ),
    Mutant(
        "a grid that ignores by how much an input is larger",
        {DECIDED: only_larger},
        (test_grid_bounds.test_theorem_4_1_the_load_is_at_most_a_quarter_above_the_optimum,),
    ),
    Mutant(
        "a decision at three times instead of twice the size",
        {"watersmeet.schemes.grid.policy.is_due": due_at_three_times},
        (
            test_grid_bounds.test_theorem_4_1_the_load_is_at_most_a_quarter_above_the_optimum,
            test_grid_bounds.test_with_epsilon_the_bound_is_3_plus_2e_by_3_plus_e,
        ),
    ),
    Mutant(
        "a migration that does not keep what cells have",
        {"watersmeet.schemes.grid.facts.GridGroup.reshaped": reshaped_by_the_highest_bit},
        (test_grid_bounds.test_lemma_4_4_a_step_brings_each_cell_one_part_more,),
    ),
    Mutant(
        "a square cut instead of one by |R| and |S|",
        {"watersmeet.schemes.hypercube.cells.desired_sides": square_cut},
        (test_cube_bounds.test_a_heavy_key_is_cut_by_its_rows_of_both_inputs,),
    ),
    Mutant(
        "a factor of four instead of two",
        {"watersmeet.schemes.hypercube.shape._stepped": stepped_by_four},
        (test_cube_plan.test_a_side_moves_by_powers_of_two_to_within_a_factor_of_two_and_no_further,),
    ),
    Mutant(
        "sides without hysteresis",
        {"watersmeet.schemes.hypercube.shape._stepped": nearest_power},
        (test_cube_plan.test_a_side_moves_by_powers_of_two_to_within_a_factor_of_two_and_no_further,),
    ),
    Mutant(
        "idle keys keep their grids",
        {"watersmeet.schemes.hypercube.shape.IDLE_EXCESS": 1 << 30},
        (test_cube_bounds.test_many_keys_in_turn_do_not_end_up_on_every_task,),
        (16,),
    ),
    Mutant(
        "light ranges that ignore the load of the cells",
        {"watersmeet.schemes.hypercube.allot._room": equal_room},
        (test_cube_allot.test_light_keys_even_out_what_the_cells_leave_uneven,),
    ),
    Mutant(
        "cells that ignore the load of the tasks",
        {"watersmeet.schemes.hypercube.allot._fill": in_turn},
        (
            test_cube_bounds.test_a_task_reads_no_more_than_its_share_of_the_rows_and_the_root_of_its_share_of_the_results,
            test_cube_bounds.test_no_task_has_much_more_to_do_than_the_mean,
        ),
    ),
    Mutant(
        "no suspects from the sample",
        {
            "watersmeet.schemes.hypercube.sample.Sample.large": lambda self, rows: self.keys[:0],
            "watersmeet.schemes.hypercube.sample.Sample.busy": nothing_busy,
        },
        (test_cube_bounds.test_a_newly_hot_key_on_many_partitions_is_shared_out_at_once,),
        (16, 32),
    ),
    Mutant(
        "voids that are not set aside",
        {f"{RANGE}.plan.set_voids_aside": lambda grains, right_rows, tasks: grains},
        (test_ranges.test_right_rows_beyond_all_left_ones_are_not_looked_up,),
        ((None, -1), 0),
    ),
    Mutant(
        "a cell of a heavy key that two tasks read",
        {"watersmeet.schemes.hypercube.scheme.boxes_of": owned_twice},
        (test_cube_pairs.test_each_pair_meets_once_under_any_sequence_of_plans,),
    ),
    Mutant(
        "a cut of a stretch that the tasks on both sides read",
        {f"{RANGE}.cut.boxes_between": from_the_place_before, **UNCHECKED},
        (
            test_ranges.test_each_pair_is_in_one_share_of_one_task,
            test_ranges.test_each_pair_is_in_one_share_of_one_task_where_values_are_hot,
        ),
    ),
    Mutant(
        "boxes of a stretch that overlap",
        {f"{RANGE}.cut.boxes_between": to_the_next_right_part, **UNCHECKED},
        (
            test_ranges.test_each_pair_is_in_one_share_of_one_task,
            test_ranges.test_left_and_right_rows_are_cut,
        ),
    ),
    Mutant(
        "the delta rule without two fresh rows",
        {"watersmeet.kernel.equal.owed_pieces": without_fresh_pairs},
        (
            test_kernel.test_each_pair_with_a_fresh_row_meets_once,
            test_cube_pairs.test_each_pair_meets_once_under_any_sequence_of_plans,
        ),
    ),
    Mutant(
        "merged sections without the order of their rows",
        {"watersmeet.kernel.pieces.keyed_rows": rows_as_they_lie},
        (test_section_pairs.test_merged_sections_are_joined_as_one_sorted_slice,),
    ),
    Mutant(
        "sections that are not merged",
        {"tests.property.test_section_pairs.merge_sections": sections_unsorted},
        (test_section_pairs.test_merged_sections_are_joined_as_one_sorted_slice,),
    ),
    Mutant(
        "parts of a heavy key that overlap",
        {"watersmeet.schemes.scheme.RowPart.positions": overlapping_parts},
        (
            test_cube_pairs.test_each_pair_meets_once_under_any_sequence_of_plans,
            test_cube_pairs.test_planned_shares_hold_every_combination_with_a_fresh_row_once,
        ),
    ),
    Mutant(
        "fresh rows that meet their own group only",
        {"watersmeet.schemes.grid.cells._sections": only_own_group(grid_cells._sections)},
        (
            test_grid_pairs.test_each_pair_meets_once_across_mappings_groups_and_growth,
            test_grid_pairs.test_each_pair_meets_once_while_the_grid_adapts,
        ),
    ),
]


@pytest.mark.parametrize(("mutant", "killer"), cases(MUTANTS))
def test_a_broken_rule_is_noticed(mutant, killer, monkeypatch):
    assert is_noticed(mutant, killer, monkeypatch)


def test_a_rule_that_is_whole_is_not_noticed(monkeypatch):
    """So it is the mutant that fails, not the way in which it is run."""
    check = test_grid_bounds.test_with_padding_decisions_are_logarithmic_however_far_apart
    assert not fails(check, (), monkeypatch)
    assert not fails(test_cube_allot.test_work_that_is_lost_in_rounding_is_cut_evenly, (), monkeypatch)
