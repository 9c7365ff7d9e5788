"""The grid planner by small tables: mappings, decisions, growth, what moves, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from watersmeet.errors import UsageError
from watersmeet.kernel.keys import mix, sections_of
from watersmeet.log.codec import from_plain, to_plain
from watersmeet.model.facts import SchemePlan
from watersmeet.schemes.grid.cells import SectionRange, share_of, shares_of_task
from watersmeet.schemes.grid.facts import Amount, GridGroup, GridPlan, GridShape, Relocation
from watersmeet.schemes.grid.policy import (
    MAX_PARTS,
    GridPolicy,
    advance,
    decompose,
    dynamic,
    fixed,
    optimal_mapping,
    start_grid,
)
from watersmeet.schemes.grid.relocation import StoredSections, count_relocation, relocation_per_cell


def rows(count: int) -> Amount:
    """Rows of one byte each."""
    return Amount(count, count)


def shapes(plan: GridPlan) -> list[tuple[int, int]]:
    return [(shape.rows, shape.cols) for shape in plan.shapes]


@pytest.mark.parametrize(
    "cells, left, right, expected",
    [
        pytest.param(64, 1, 64, (1, 64), id="the paper's figure 2"),
        pytest.param(64, 64, 1, (64, 1), id="and its mirror"),
        pytest.param(64, 5, 5, (8, 8), id="equal inputs make a square"),
        pytest.param(8, 5, 5, (2, 4), id="an odd power of two is as square as it can be"),
        pytest.param(16, 1, 1000, (1, 16), id="further apart than cells: the end of the line"),
        pytest.param(16, 0, 0, (4, 4), id="nothing known"),
        pytest.param(1, 3, 9, (1, 1), id="one cell"),
    ],
)
def test_the_best_mapping(cells, left, right, expected):
    shape = optimal_mapping(cells, left, right)
    assert (shape.rows, shape.cols) == expected


def test_a_tie_stays_where_it_is():
    # (2, 4) and (4, 2) are equally good for equal inputs.
    assert optimal_mapping(8, 5, 5, current=GridShape(4, 2)) == GridShape(4, 2)


def test_a_side_is_no_longer_than_the_parts():
    assert optimal_mapping(16, 1, 1000, widest=8) == GridShape(2, 8)


@pytest.mark.parametrize("cells, groups", [(1, (1,)), (20, (16, 4)), (64, (64,)), (63, (32, 16, 8, 4, 2, 1))])
def test_any_number_of_cells_in_groups(cells, groups):
    assert decompose(cells) == groups


@pytest.mark.parametrize(
    "policy, expected",
    [
        pytest.param(dynamic(), (4, 4), id="dynamic begins square"),
        pytest.param(GridPolicy(False), (4, 4), id="without sizes it is square"),
        pytest.param(GridPolicy(False, expected=(10, 1000)), (1, 16), id="it may be told the sizes"),
        pytest.param(fixed(8, 2), (8, 2), id="the user's own"),
    ],
)
def test_where_a_policy_begins(policy, expected):
    assert shapes(start_grid(16, policy)) == [expected]


@pytest.mark.parametrize("policy", [GridPolicy(False), GridPolicy(False, expected=(10, 1000)), fixed(8, 2)])
def test_a_static_mapping_stays(policy):
    plan = start_grid(16, policy)
    after, event = advance(plan, rows(1), rows(10_000), policy)
    assert after.groups == plan.groups and after.epoch == 0 and event is None
    assert after.right == rows(10_000)


def script(
    cells: int, policy: GridPolicy, *batches: tuple[int, int]
) -> tuple[GridPlan, list[Relocation | None]]:
    plan, events = start_grid(cells, policy), []
    for left, right in batches:
        plan, event = advance(plan, rows(left), rows(right), policy)
        events.append(event)
    return plan, events


def test_the_first_batch_goes_straight_to_the_optimum():
    plan, [event] = script(64, dynamic(), (1, 64))
    assert shapes(plan) == [(1, 64)]
    assert event is not None and event.reason == "first" and event.epoch == plan.epoch == 1
    # Nothing was stored before, so nothing moves.
    assert (event.kept, event.moved, event.discarded) == (Amount(), Amount(), Amount())


def test_a_decision_waits_until_an_input_has_doubled():
    plan, _ = script(16, dynamic(), (100, 100), (0, 99))
    assert shapes(plan) == [(4, 4)] and plan.right == plan.decided_right + rows(99)
    plan, event = advance(plan, rows(0), rows(1), dynamic())
    # Due, but 100 : 200 is a tie between (4, 4) and (2, 8): staying is free.
    assert event is None and plan.right == plan.decided_right
    plan, event = advance(plan, rows(0), rows(200), dynamic())
    assert shapes(plan) == [(2, 8)] and event is not None and event.reason == "migrate"


def test_a_smaller_epsilon_decides_earlier():
    eager, patient = dynamic(epsilon=0.25), dynamic()
    batches = [(100, 190), (0, 50)]
    assert shapes(script(16, eager, *batches)[0]) == [(2, 8)]
    assert shapes(script(16, patient, *batches)[0]) == [(4, 4)]


def test_nothing_moves_before_the_minimum():
    policy = dynamic(min_rows=500)
    plan, events = script(64, policy, (1, 200), (1, 200))
    assert shapes(plan) == [(8, 8)] and events == [None, None]
    plan, event = advance(plan, rows(1), rows(200), policy)
    assert shapes(plan) == [(1, 64)]
    assert event is not None and event.reason == "first" and event.moved.rows > 0


def test_sizes_count_in_bytes():
    policy = dynamic()
    plan, _ = advance(start_grid(16, policy), Amount(100, 100), Amount(100, 1600), policy)
    assert shapes(plan) == [(1, 16)]


def test_rows_of_an_input_that_hardly_has_any_are_padded():
    """1 : 1000 in 4 cells counts as 250 : 1000, so one row more is no doubling."""
    plan, _ = script(4, dynamic(), (1, 1000))
    decided = plan.decided_left
    plan, event = advance(plan, rows(1), rows(0), dynamic())
    assert event is None and plan.decided_left == decided
    plan, _ = advance(plan, rows(498), rows(0), dynamic())
    assert plan.decided_left == rows(500)


def test_growth_splits_every_cell_in_four():
    policy = dynamic(capacity_bytes=100, max_cells=64)
    plan, [first] = script(4, policy, (50, 50))
    assert shapes(plan) == [(2, 2)] and first is None
    plan, event = advance(plan, rows(50), rows(50), policy)
    assert shapes(plan) == [(4, 4)] and event is not None and event.reason == "grow"
    assert plan.max_load <= 50


def test_growth_ends_at_the_cells_allowed():
    policy = dynamic(capacity_bytes=10, max_cells=20)
    plan, [event] = script(5, policy, (10_000, 10_000))
    assert plan.cells == 20 and plan.parts == 16
    assert event is not None and event.reason == "grow"


def test_growth_counts_new_cells_as_empty():
    policy = dynamic(capacity_bytes=120, max_cells=4)
    plan, _ = script(1, policy, (24, 24))
    plan, event = advance(plan, rows(100), rows(100), policy)
    assert event is not None and event.reason == "grow" and not event.exact
    # Before: one cell with 24 and 24. After: four with half of each; one of them was there, three are new.
    assert (event.kept.rows, event.moved.rows, event.discarded.rows) == (24, 72, 24)


def test_a_step_of_the_paper_s_figure_3():
    """From (8, 2) to (4, 4): every cell keeps its eighth of the left, gains another, drops half of its right."""
    before = start_grid(16, fixed(8, 2))
    after = GridPlan(1, 8, (before.groups[0].reshaped(GridShape(4, 4)),))
    left, right = np.full(8, 10), np.full(8, 10)
    stored = StoredSections(left, 3 * left, right, 5 * right)
    per_cell = relocation_per_cell(before, after, left, right)
    assert per_cell.tolist() == [[10 + 20, 10, 20]] * 16
    amounts = count_relocation(before, after, stored)
    assert amounts.moved == Amount(160, 480)
    assert amounts.discarded == Amount(320, 1600)
    assert amounts.kept == Amount(160 + 320, 480 + 1600)


def test_a_step_back_undoes_a_step():
    group = GridGroup((5, 4, 3), (2, 1, 0))
    assert group.reshaped(GridShape(1, 64)).reshaped(GridShape(8, 8)) == group
    assert group.reshaped(GridShape(64, 1)).reshaped(GridShape(8, 8)) == group


def test_what_a_cell_reads():
    # 5 cells: a group of (2, 2) and one of (1, 1), four parts each; cell 2 is row 1, column 0.
    plan = start_grid(5, dynamic())
    share = share_of(plan, 2, 1)
    assert (share.group, share.cells) == (0, 1)
    assert share.left_stored == (SectionRange(2, 4),)
    assert share.left_all == (SectionRange(2, 4), SectionRange(6, 8))
    assert share.right_stored == (SectionRange(0, 2),)
    assert share.right_all == (SectionRange(0, 2), SectionRange(4, 6))


def test_one_task_reads_everything_once():
    [share] = shares_of_task(start_grid(64, dynamic()), 1, 0)
    assert share.left_stored == share.right_all == (SectionRange(0, 64),)


def test_sections_follow_the_sizes_of_the_groups_and_use_all_parts():
    hashes = mix(np.arange(1, 200_001, dtype=np.uint64))
    counts = np.bincount(sections_of(hashes, (16, 4), 16), minlength=32).reshape(2, 16)
    expected = np.array([[160_000 / 16], [40_000 / 16]])
    assert np.all(np.abs(counts - expected) < 6 * np.sqrt(expected))


def test_growth_leaves_every_row_in_its_section():
    hashes = mix(np.arange(1, 10_001, dtype=np.uint64))
    before, after = sections_of(hashes, (8, 2, 1), 64), sections_of(hashes, (128, 32, 16), 64)
    assert np.array_equal(before, after)


def test_section_numbers_are_as_narrow_as_they_can_be():
    hashes = np.array([2**64 - 1, 0], dtype=np.uint64)
    assert sections_of(hashes, (4,), 1 << 16).tolist() == [65535, 0]
    assert sections_of(hashes, (4,), 1 << 16).dtype == np.uint16
    assert sections_of(hashes, (2, 1), 1 << 16).tolist() == [131071, 0]
    assert sections_of(hashes, (1,), 1).tolist() == [0, 0]


def test_plans_and_events_survive_json():
    plan, [_, event] = script(21, dynamic(), (10, 10), (0, 500))
    # A plan says itself which class it is.
    for kind, fact in ((SchemePlan, plan), (type(event), event)):
        assert from_plain(kind, json.loads(json.dumps(to_plain(fact)))) == fact


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: start_grid(0, dynamic()), "cells is 0"),
        (lambda: start_grid(-4, dynamic()), "cells is -4"),
        (lambda: fixed(3, 5), "powers of two"),
        (lambda: fixed(0, 4), "powers of two"),
        (lambda: start_grid(8, fixed(4, 4)), "has 16 cells, not 8"),
        (lambda: dynamic(epsilon=0), "epsilon is 0"),
        (lambda: dynamic(epsilon=1.5), "epsilon is 1.5"),
        (lambda: dynamic(epsilon=float("nan")), "epsilon is nan"),
        (lambda: dynamic(min_rows=-1), "min_rows is -1"),
        (lambda: dynamic(capacity_bytes=0), "capacity_bytes is 0"),
        (lambda: GridPolicy(False, expected=(-1, 5)), "expected sizes"),
        (lambda: start_grid(2 * MAX_PARTS, dynamic()), "too fine"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
