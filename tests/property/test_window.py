"""Windows as pure decisions: watermarks and floors never fall, nothing that can be met is left out or evicted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from watersmeet.engine.window import TIME_SHARES, time_marks, window_times
from watersmeet.errors import StateError
from watersmeet.kernel.emit import close_times
from watersmeet.model.facts import (
    KEY_SPACE,
    BatchId,
    Descriptor,
    InputTotals,
    KeyRange,
    Manifest,
    Merge,
    MergePart,
    Plan,
    Receipt,
    Run,
)
from watersmeet.model.limits import DEFAULT_LIMITS
from watersmeet.model.signature import Compared, InputSpec, JoinSignature, StoredColumn
from watersmeet.model.window import AT, FARTHEST, Window, WindowKind
from watersmeet.plan.batch import count_arrived, plan_batch
from watersmeet.plan.merges import accept_receipts, apply_finished, plan_merges
from watersmeet.plan.window import (
    all_within,
    estimate_expired_rows,
    evict,
    floors_of,
    next_watermark,
    number_runs,
    reachable_history,
    reading_floors,
)
from watersmeet.schemes.grid.facts import Amount
from watersmeet.schemes.grid.policy import dynamic, is_due, start_grid
from watersmeet.schemes.grid.scheme import live_grid
from watersmeet.schemes.hash import Hash, HashPlan
from watersmeet.schemes.scheme import Circumstances

SIGNATURE = JoinSignature(
    (
        InputSpec("l", (StoredColumn(AT, "bigint"),), ("k",), time="t"),
        InputSpec("r", (StoredColumn(AT, "bigint"),), ("k",), time="t"),
    ),
    "l.k = r.k",
    ("bigint",),
    Compared.WORD,
)
small_times = st.lists(st.integers(-30, 30), min_size=1, max_size=6)
times = st.integers(-FARTHEST, FARTHEST)


def run(name: str, ats: Sequence[int], input_name: str = "l", rows: int | None = None) -> Run:
    marks = time_marks([np.array(ats, np.int64)])
    return Run(input_name, name, name, 0, rows or len(ats), 24 * len(ats), 0, KEY_SPACE - 1, "", times=marks)


def manifest(window: Window, history: Sequence[Run], fresh: Sequence[Run], **totals: InputTotals) -> Manifest:
    return Manifest(
        BatchId("q", "a", 1),
        0,
        "one",
        None,
        replace(SIGNATURE, window=window),
        tuple(history),
        tuple(fresh),
        (),
        Plan(HashPlan(())),
        totals,
    )


def merge(name: str, *runs: Run, floor: int | None = None) -> Merge:
    part = MergePart(KeyRange(0, KEY_SPACE), rows=sum(one.rows for one in runs))
    return Merge(name, "l", tuple(one.path for one in runs), part.rows, (part,), floor)


# --- times ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(times, times), min_size=1), st.integers(1, FARTHEST - 1))
def test_pairs_are_close_as_whole_numbers_are(pairs, width):
    left, right = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    assert close_times(left, right, width).tolist() == [abs(one - other) <= width for one, other in pairs]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_a_time_counts_if_it_is_there_and_not_too_far_out(values):
    found, valid = window_times(pa.array(values, pa.int64()))
    wanted = [value is not None and abs(value) <= FARTHEST for value in values]
    assert (wanted == [True] * len(values)) if valid is None else (valid.tolist() == wanted)
    assert [int(t) for t, good in zip(found, wanted, strict=True) if good] == [
        value for value, good in zip(values, wanted, strict=True) if good
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7], pa.int8()),
        pa.array([7], pa.date32()),
        pa.array([7], pa.timestamp("us")),
        pa.array([7], pa.timestamp("us", "UTC")),
    ],
)
def test_every_type_of_time_is_a_whole_number(column):
    assert window_times(column)[0].tolist() == [7]


@given(st.lists(st.lists(times, min_size=1, max_size=60), min_size=1, max_size=4), st.data())
def test_marks_tell_how_many_rows_are_below_a_time(parts, data):
    """To within a share, and exactly where all or none are."""
    everything = np.sort(np.concatenate([np.array(part, np.int64) for part in parts]))
    one = Run("l", "p", "p", 0, len(everything), 1, 0, 1, "", times=time_marks([everything]))
    assert (one.times[0], one.times[-1]) == (everything[0], everything[-1])
    floor = data.draw(st.sampled_from(everything.tolist()) | times)
    below = int(np.searchsorted(everything, floor))
    guess = estimate_expired_rows(one, floor)
    assert (guess == 0) == (below == 0)
    assert guess == len(everything) or below < len(everything)
    # Rows of one time may fill a share.
    same = int(np.searchsorted(everything, floor, side="right")) - below
    assert abs(guess - below) <= len(everything) / TIME_SHARES + same + 1


# --- watermarks and floors ------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("lr"), st.integers(-50, 50), st.integers(0, 20)), max_size=20))
def test_a_watermark_waits_for_both_inputs_and_never_falls(shown):
    newest: dict[str, int] = {}
    before = None
    for name, time, lateness in shown:
        newest[name] = max(time, newest.get(name, time))
        found = next_watermark(Window(WindowKind.TIME, 10, lateness), ("l", "r"), newest, before)
        assert (found is None) == (len(newest) < 2)
        if found is not None:
            reached = min(newest.values()) - lateness
            assert found == (reached if before is None else max(before, reached))
        before = found


def test_floors():
    time, rows = Window(WindowKind.TIME, 10), Window(WindowKind.ROWS, 10)
    assert floors_of(None, ("l", "r"), 5, {}) == {}
    assert floors_of(time, ("l", "r"), None, {"l": 99}) == {}
    assert floors_of(time, ("l", "r"), 5, {"l": 99}) == {"l": -5, "r": -5}
    assert floors_of(rows, ("l", "r"), None, {"l": 99, "r": 10}) == {"l": 89}


def test_rows_judged_by_another_watermark_are_refused():
    window = Window(WindowKind.TIME, 10)
    parent = replace(manifest(window, (), (), l=InputTotals(), r=InputTotals()), watermark=40)

    def plan(descriptor: Descriptor) -> Manifest:
        return plan_batch(
            BatchId("q", "a", 2),
            parent,
            [descriptor],
            [],
            signature=parent.signature,
            instance="one",
            run_seq=0,
            scheme=Hash(),
            given=Circumstances(
                tasks=2, limits=DEFAULT_LIMITS, now_ms=1, keys_of=lambda run: np.zeros(0, np.uint64)
            ),
        )

    good = Descriptor("l", 3, (run("a", [50]),), null_rows=1, late_rows=2, watermark=40)
    planned = plan(good)
    assert planned.newest == {"l": 50}
    assert planned.watermark == 40
    assert planned.totals["l"] == InputTotals(rows=1, null_rows=1, late_rows=2)
    assert planned.arrived == count_arrived([good]) == {"l": 4}
    for other in (None, 39):
        with pytest.raises(StateError, match=r"partition 3 of input l .* implies 40"):
            plan(replace(good, watermark=other))


@given(st.lists(st.tuples(st.sampled_from("lr"), st.integers(1, 5)), max_size=8), st.integers(0, 9))
def test_rows_are_numbered_without_gaps(runs, before):
    fresh = [run(str(place), range(rows), name) for place, (name, rows) in enumerate(runs)]
    numbered = number_runs(fresh, {"l": before})
    for name, first in (("l", before), ("r", 0)):
        mine = [one for one in numbered if one.input == name]
        taken = [number for one in mine for number in range(one.times[0], one.times[-1] + 1)]
        assert taken == list(range(first, first + len(taken)))
        assert all(one.base == one.times[0] for one in mine)


# --- what is evicted, and what is read ------------------------------------------------------------------------------


@given(st.lists(small_times, max_size=8), st.integers(-40, 40), st.data())
def test_runs_go_when_all_their_rows_are_expired_and_no_merge_reads_them(runs, floor, data):
    history = [run(str(place), ats) for place, ats in enumerate(runs)]
    cut = data.draw(st.integers(0, len(history)))
    pending = [merge("m", *history[:cut])] if cut else []
    kept, merges = evict(history, pending, {"l": floor})
    expired = {one.path for one, ats in zip(history, runs, strict=True) if max(ats) < floor}
    given_up = bool(pending) and expired.issuperset(pending[0].runs)
    assert merges == (() if given_up else tuple(pending))
    busy = set() if given_up or not pending else set(pending[0].runs)
    assert [one.path for one in kept] == [
        one.path for one in history if one.path not in expired or one.path in busy
    ]
    assert evict(history, pending, {"r": 99}) == (tuple(history), tuple(pending))


@given(*(st.lists(small_times, max_size=3) for _ in range(4)), st.integers(1, 40))
def test_what_is_not_read_or_not_tested_makes_no_difference(old_l, old_r, new_l, new_r, width):
    rows = {}
    live: dict[str, list[Run]] = {"old": [], "new": []}
    for age, name, runs in (
        ("old", "l", old_l),
        ("old", "r", old_r),
        ("new", "l", new_l),
        ("new", "r", new_r),
    ):
        for place, ats in enumerate(runs):
            live[age].append(run(f"{age}-{name}-{place}", ats, name))
            rows[live[age][-1].path] = ats
    facts = manifest(Window(WindowKind.TIME, width), live["old"], live["new"])
    read = {one.path for one in (*reachable_history(facts), *facts.fresh)}
    for one, other in itertools.product(facts.fresh, facts.live):
        if one.input != other.input:
            apart = [abs(a - b) for a, b in itertools.product(rows[one.path], rows[other.path])]
            if other.path not in read:
                assert min(apart) > width
            elif all_within(facts):
                assert max(apart) <= width


def test_far_runs_are_not_read_and_close_ones_need_no_test():
    window = Window(WindowKind.TIME, 10)
    far, near, fresh = run("far", [0, 5]), run("near", [10, 12]), run("new", [16, 20], "r")
    facts = manifest(window, [far, near], [fresh])
    assert reachable_history(facts) == (near,)
    assert all_within(facts)
    assert not all_within(manifest(window, [far, near], [run("new", [15, 20], "r")]))
    assert reachable_history(manifest(window, [far, near], [run("own", [16])])) == ()


def test_over_rows_the_history_is_read_from_the_floor_on():
    window = Window(WindowKind.ROWS, 10)
    history = [run("a", range(20)), run("b", range(20, 40))]
    fresh = [replace(run("c", range(5)), base=40, times=(40, 44))]
    facts = manifest(window, history, fresh, l=InputTotals(rows=45), r=InputTotals(rows=7))
    assert reading_floors(window, facts.fresh, facts.totals) == {"l": 30}
    assert [one.path for one in reachable_history(facts)] == ["b"]


# --- merges ---------------------------------------------------------------------------------------------------------


def test_a_run_that_is_mostly_expired_is_rewritten_by_itself():
    rows = DEFAULT_LIMITS.min_rewrite_rows
    worn, fine, tiny = run("worn", range(rows)), run("fine", range(rows)), run("tiny", range(rows - 1))
    (one,) = plan_merges([worn], [], 2, 5, {"l": rows // 2 + 10})
    assert (one.runs, one.floor, one.rows) == (("worn",), rows // 2 + 10, rows)
    assert plan_merges([fine], [], 2, 5, {"l": rows // 2 - 10}) == ()
    assert plan_merges([tiny], [], 2, 5, {"l": rows - 10}) == ()
    assert plan_merges([worn], [], 2, 5) == ()
    assert plan_merges([worn], [merge("m", worn)], 2, 5, {"l": rows}) == ()


def test_files_of_one_sequence_are_rewritten_together():
    rows = DEFAULT_LIMITS.min_rewrite_rows
    halves = [replace(run(name, range(rows)), group="one") for name in "ab"]
    (one,) = plan_merges(halves, [], 2, 5, {"l": rows - 1})
    assert set(one.runs) == {"a", "b"}


def test_a_full_tier_is_merged_to_the_floor_and_another_floor_is_another_merge():
    runs = [run(str(place), range(100)) for place in range(DEFAULT_LIMITS.fan_in)]
    (one,) = plan_merges(runs, [], 2, 5, {"l": 99})
    (other,) = plan_merges(runs, [], 2, 5, {"l": 98})
    assert one.floor == 99
    assert len(one.runs) == DEFAULT_LIMITS.fan_in
    assert one.id != other.id


def test_a_merge_accounts_for_every_row_that_it_drops():
    old = run("a", range(100))
    new = run("m", range(60))

    def applied(floor: int | None, dropped: int) -> tuple[Run, ...]:
        receipt = Receipt("m", 0, (new,), (), dropped)
        return apply_finished(
            [old], accept_receipts([merge("m", old, floor=floor)], [receipt], {"l": set()})
        )[0]

    assert applied(40, 40) == (new,)
    for floor, dropped in ((40, 39), (40, 0), (None, 40)):
        with pytest.raises(StateError, match="nothing was replaced"):
            applied(floor, dropped)


def test_a_merge_may_drop_all():
    old = run("a", range(10))
    done = accept_receipts([merge("m", old, floor=99)], [Receipt("m", 0, (), (), 10)], {"l": set()})
    assert apply_finished([old], done) == ((), (), ())


# --- the grid -------------------------------------------------------------------------------------------------------


@given(*(st.integers(0, 10_000) for _ in range(4)))
def test_a_grid_under_a_window_looks_again_when_an_input_has_halved(left, right, now_left, now_right):
    assume(left + right and now_left + now_right)
    policy = dynamic()
    grid = replace(
        start_grid(4, policy),
        left=Amount(left, 8 * left),
        right=Amount(right, 8 * right),
        decided_left=Amount(left, 8 * left),
        decided_right=Amount(right, 8 * right),
    )
    live = live_grid(grid, Amount(now_left, 8 * now_left), Amount(now_right, 8 * now_right))
    assert (live.left.rows, live.right.rows) == (now_left, now_right)
    if (now_left and 2 * now_left <= left) or (now_right and 2 * now_right <= right):
        assert is_due(live, policy)
    if (left, right) == (now_left, now_right) and left and right:
        assert live == grid
