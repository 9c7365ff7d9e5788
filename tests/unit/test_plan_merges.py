"""The merge planner: tables of small cases, and invariants over random lives of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import StateError
from watersmeet.model.facts import KEY_SPACE, KeyRange, Left, Push, Receipt, Run
from watersmeet.model.limits import DEFAULT_LIMITS
from watersmeet.plan.merges import (
    accept_receipts,
    apply_finished,
    plan_assignments,
    plan_merges,
    tier_of,
)
from watersmeet.plan.pushes import Holes, prune

FAN_IN, PART_ROWS = DEFAULT_LIMITS.fan_in, DEFAULT_LIMITS.part_rows

# No column is needed, unless a test says so.
NEEDED: dict[str, set[str]] = {"l": set(), "r": set()}


def run(name: str, rows: int, group: str | None = None, input_name: str = "l") -> Run:
    return Run(input_name, name, group or name, 0, rows, rows * 24, 0, KEY_SPACE - 1, "")


@pytest.mark.parametrize(
    ("rows", "tier"), [(0, 0), (1, 0), (1024, 0), (8191, 0), (8193, 1), (70_000, 2), (600_000, 3)]
)
def test_tiers_grow_by_the_fan_in(rows, tier):
    assert tier_of(rows) == tier


def test_a_tier_with_room_is_left_alone():
    assert plan_merges([run(f"a{i}", 1000) for i in range(FAN_IN - 1)], [], 2, 5) == ()


def test_a_full_tier_becomes_one_merge_of_exactly_its_runs():
    small = [run(f"s{i}", 1000) for i in range(FAN_IN)]
    (merge,) = plan_merges([*small, run("big", 10_000_000)], [], 2, 5)
    assert set(merge.runs) == {r.path for r in small}
    assert len(merge.parts) == 1


def test_files_of_one_group_count_as_one_sequence():
    cut = [run(f"g{i}", 1000, group="one") for i in range(FAN_IN)]
    assert plan_merges(cut, [], 2, 5) == ()


def test_inputs_are_merged_apart():
    both = [run(f"{name}{i}", 1000, input_name=name) for name in "lr" for i in range(FAN_IN)]
    assert [m.input for m in plan_merges(both, [], 2, 5)] == ["l", "r"]


def test_a_large_merge_is_cut_into_parts_of_bounded_size_that_cover_all_keys():
    (merge,) = plan_merges([run(f"a{i}", PART_ROWS) for i in range(FAN_IN)], [], 2, 5)
    assert len(merge.parts) == FAN_IN
    assert merge.parts[0].range.low == 0
    assert merge.parts[-1].range.high == KEY_SPACE
    assert all(a.range.high == b.range.low for a, b in zip(merge.parts, merge.parts[1:], strict=False))


def test_a_replayed_batch_with_other_runs_gets_another_merge_id():
    first = plan_merges([run(f"a{i}", 1000) for i in range(FAN_IN)], [], 2, 5)[0]
    second = plan_merges([run(f"b{i}", 1000) for i in range(FAN_IN)], [], 2, 5)[0]
    more_tasks = plan_merges([run(f"a{i}", 200_000) for i in range(FAN_IN)], [], 8, 5)[0]
    fewer_tasks = plan_merges([run(f"a{i}", 200_000) for i in range(FAN_IN)], [], 2, 5)[0]
    assert first.id != second.id
    assert more_tasks.id != fewer_tasks.id


def test_a_merge_counts_only_when_every_part_is_there():
    runs = [run(f"a{i}", PART_ROWS) for i in range(FAN_IN)]
    (merge,) = plan_merges(runs, [], 2, 5)
    receipts = [
        Receipt(merge.id, n, (run(f"m{n}", PART_ROWS, group=merge.id),)) for n in range(len(merge.parts))
    ]
    half = accept_receipts([merge], receipts[:3], NEEDED)
    assert apply_finished(runs, half) == (tuple(runs), half, ())
    live, pending, _ = apply_finished(runs, accept_receipts(half, receipts[3:], NEEDED))
    assert [r.path for r in live] == [f"m{n}" for n in range(len(merge.parts))]
    assert pending == ()


def test_the_first_receipt_of_a_part_stays():
    (merge,) = plan_merges([run(f"a{i}", 1000) for i in range(FAN_IN)], [], 2, 5)
    once = accept_receipts([merge], [Receipt(merge.id, 0, (run("first", 8000),))], NEEDED)
    again = accept_receipts(once, [Receipt(merge.id, 0, (run("second", 8000),))], NEEDED)
    assert again == once


def test_a_receipt_of_a_start_with_a_narrower_select_is_ignored():
    (merge,) = plan_merges([run(f"a{i}", 1000) for i in range(FAN_IN)], [], 2, 5)
    narrow = Receipt(merge.id, 0, (run("narrow", 8000),), columns=("x",))
    wide = Receipt(merge.id, 0, (run("wide", 8000),), columns=("x", "y"))
    needed = {"l": {"x", "y"}}
    assert accept_receipts([merge], [narrow], needed) == (merge,)
    assert accept_receipts([merge], [narrow, wide], needed)[0].parts[0].output == wide.output


def test_a_merge_that_lost_rows_is_never_swapped_in():
    runs = [run(f"a{i}", 1000) for i in range(FAN_IN)]
    (merge,) = plan_merges(runs, [], 2, 5)
    short = accept_receipts([merge], [Receipt(merge.id, 0, (run("m", 7999),))], NEEDED)
    with pytest.raises(StateError, match="7999 rows"):
        apply_finished(runs, short)


def test_a_batch_pays_no_more_than_its_budget_and_small_merges_go_first():
    large = plan_merges([run(f"a{i}", 4 * PART_ROWS) for i in range(FAN_IN)], [], 2, 5)
    small = plan_merges([run(f"s{i}", 1000) for i in range(FAN_IN)], [], 2, 6)
    jobs = plan_assignments([*large, *small], [], fresh_rows=0, tasks=2)
    assert jobs[0].merge == small[0].id
    assert 1 <= len([j for j in jobs if j.merge == large[0].id]) < len(large[0].parts)


def test_a_part_that_was_left_undone_goes_to_the_first_and_the_last_task_in_turn():
    pending = plan_merges([run(f"s{i}", 1000) for i in range(FAN_IN)], [], 6, 5)
    tried: tuple = ()
    asked = []
    for _ in range(5):
        tried = plan_assignments(pending, [], fresh_rows=0, tasks=6, before=tried)
        asked.append(sorted(job.task for job in tried))
    assert asked == [[0], [5], [0], [5], [0]]


def test_a_part_that_waited_for_the_budget_goes_to_one_task():
    large = plan_merges([run(f"a{i}", 4 * PART_ROWS) for i in range(FAN_IN)], [], 2, 5)
    first = plan_assignments(large, [], fresh_rows=0, tasks=2)
    done = [Receipt(job.merge, job.part, ()) for job in first]
    second = plan_assignments(accept_receipts(large, done, NEEDED), [], fresh_rows=0, tasks=2, before=first)
    assert second
    assert len({(job.merge, job.part) for job in second}) == len(second)


@given(st.lists(st.lists(st.integers(1, 300_000), max_size=4), max_size=40), st.integers(1, 6))
def test_no_row_is_lost_and_no_run_is_in_two_merges(batches, tasks):
    """A log's whole life: rows arrive, parts get done, and the live rows are always the rows that came."""
    live: tuple[Run, ...] = ()
    pending: tuple = ()
    arrived = 0
    for number, sizes in enumerate(batches):
        fresh = tuple(run(f"{number}-{i}", rows) for i, rows in enumerate(sizes))
        pending = (*pending, *plan_merges(live, pending, tasks, number))
        paths = [path for merge in pending for path in merge.runs]
        assert len(paths) == len(set(paths))
        assert set(paths) <= {r.path for r in live}
        jobs = plan_assignments(pending, live, sum(sizes), tasks)
        assert len({(j.merge, j.part) for j in jobs}) == len(jobs)
        receipts = []
        by_id = {merge.id: merge for merge in pending}
        for job in jobs:
            merge = by_id[job.merge]
            share = merge.rows // len(merge.parts)
            if job.part == 0:
                share += merge.rows % len(merge.parts)
            name = f"{job.merge}.{job.part}"
            receipts.append(Receipt(job.merge, job.part, (replace(run(name, share), group=job.merge),)))
        arrived += sum(sizes)
        live, pending, _ = apply_finished((*live, *fresh), accept_receipts(pending, receipts, NEEDED))
        assert sum(r.rows for r in live) == arrived


# --- runs that were pushed in part ------------------------------------------------------------------------------------

REWRITTEN = DEFAULT_LIMITS.min_rewrite_rows


def keyed(name: str, rows: int, group: str | None = None) -> Run:
    """A run with the keys 0, 1, 2 ... at the times 0, 1, 2 ..."""
    return replace(run(name, rows, group), high=rows - 1, times=(0, rows - 1))


def pushed(below: int, *names: str) -> Holes:
    """The keys below a bound are set aside in some runs."""
    push = Push(3, (KeyRange(0, below),), names)
    return Holes((push,), lambda one: np.arange(one.rows, dtype=np.uint64))


def test_what_is_set_aside_of_a_run_lies_within_what_it_stands_for():
    """One push names all of them."""
    holes = pushed(10, "a", "b", "c")
    whole, held, all_ = (
        replace(keyed(name, 100), held=bounds, held_rows=rows)
        for name, bounds, rows in (("a", (), 0), ("b", (4, 99), 96), ("c", (4, 9), 6))
    )
    assert [holes.of(one) for one in (whole, held)] == [(KeyRange(0, 10),), (KeyRange(4, 10),)]
    assert [holes.rows_left(one) for one in (whole, held, all_)] == [10, 6, 6]
    assert [holes.has_all(one) for one in (whole, held, all_)] == [False, False, True]


def test_a_push_names_no_run_that_stands_for_none_of_its_keys():
    (push,) = pushed(10, "a", "b").pushes
    elsewhere = replace(keyed("b", 100), held=(20, 99), held_rows=80)
    assert [one.runs for one in prune([push], [keyed("a", 100), elsewhere])] == [("a",)]
    assert prune([push], [elsewhere]) == ()


@pytest.mark.parametrize(
    ("rows", "left", "remote", "due"),
    [
        (3 * REWRITTEN, REWRITTEN + 1, True, True),
        (3 * REWRITTEN, REWRITTEN, True, False),
        (REWRITTEN, REWRITTEN, True, False),
        (REWRITTEN - 1, REWRITTEN - 2, True, False),
        (3 * REWRITTEN, REWRITTEN + 1, False, False),
    ],
    ids=["more than a third", "a third", "all", "too small", "local"],
)
def test_a_remote_run_that_was_pushed_to_a_third_is_rewritten_by_itself(rows, left, remote, due):
    found = plan_merges([keyed("a", rows)], [], 2, 5, holes=pushed(left, "a"), remote=remote)
    assert [(merge.runs, merge.rows) for merge in found] == ([(("a",), rows - left)] if due else [])
    assert all(merge.left == (Left((KeyRange(0, left),), ("a",), (left,)),) for merge in found)


def test_a_remote_sequence_is_rewritten_once_for_the_same_pushes():
    rows, left = 2 * REWRITTEN, 2 * REWRITTEN - 10
    holes = pushed(left, "a")
    (merge,) = plan_merges([keyed("a", rows)], [], 2, 5, holes=holes, remote=True)
    (part,) = merge.parts
    output = replace(keyed("b", rows - left, merge.id), low=left, high=rows - 1)
    done = replace(merge, parts=(replace(part, output=(output,)),))
    live, _, pushes = apply_finished([keyed("a", rows)], [done], holes.pushes)
    assert [one.path for one in live] == ["a", "b"]
    assert plan_merges(live, [], 2, 6, holes=replace(holes, pushes=pushes), remote=True) == ()


@pytest.mark.parametrize(
    ("owing", "due"), [(10, True), (REWRITTEN // 2 + 10, False)], ids=["few keys owe", "most keys owe"]
)
def test_an_expired_sequence_is_rewritten_while_other_keys_owe(owing, due):
    """Of keys that owe nothing is dropped: if these are most, a rewriting would be due again in the next batch."""
    runs, floors = [keyed("a", REWRITTEN)], {"l": REWRITTEN - 1}
    found = plan_merges(runs, [], 2, 5, floors, holes=pushed(owing, "another"))
    assert [(merge.runs, merge.owe) for merge in found] == ([(("a",), (KeyRange(0, owing),))] if due else [])


def test_an_expired_sequence_that_was_pushed_in_part_is_judged_by_what_a_rewriting_takes():
    rows = REWRITTEN
    runs, holes = [keyed("a", rows)], pushed(rows - 100, "a")
    (merge,) = plan_merges(runs, [], 2, 5, {"l": rows - 1}, holes=holes)
    assert merge.rows == 100
    assert plan_merges(runs, [], 2, 5, {"l": rows - 60}, holes=holes) == ()
