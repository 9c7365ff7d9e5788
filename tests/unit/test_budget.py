"""Partition groups, policies and plans under a budget of memory, and what such a join refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tests.life import TINY, Clock, newest, restarted, run_batch, start
from tests.unit.log_helpers import SIGNATURE
from watersmeet.config import read_pushing
from watersmeet.errors import ConfigError, UsageError
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import publish_manifest, read_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.seen import Seen
from watersmeet.log.status import read_status
from watersmeet.model.facts import (
    FULL_RANGE,
    KEY_SPACE,
    BatchId,
    KeyRange,
    Left,
    Manifest,
    Merge,
    MergePart,
    Payment,
    Plan,
    Push,
    Run,
)
from watersmeet.model.limits import Limits
from watersmeet.model.tally import TaskTally
from watersmeet.schemes.budget.facts import BudgetPlan, groups_of
from watersmeet.schemes.budget.policy import (
    IDLE_MS,
    MOVE_EVERY_MS,
    Candidates,
    Disk,
    Pushing,
    PushPolicy,
    Room,
    choose_paid,
    choose_pushed,
    room_to_pay,
)
from watersmeet.schemes.budget.scheme import Budget
from watersmeet.schemes.budget.tempo import SLOW_MS, tempo_of
from watersmeet.schemes.scheme import BatchFacts

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "id": pa.int64()})
MEMORY = 1000

# Four groups: a large one, a productive one, a lazy one, and one that one input fills.
SIZES = np.array([[400.0, 100.0, 100.0, 300.0], [400.0, 100.0, 100.0, 0.0]])
OUTPUT = np.array([800.0, 4000.0, 10.0, 300.0])
BUSY = np.zeros(4)


@pytest.mark.parametrize(
    ("policy", "idle_ms", "expected"),
    [
        (PushPolicy.LOW_OUTPUT, BUSY, [2, 0]),
        (PushPolicy.LOW_OUTPUT, np.array([0.0, IDLE_MS + 1, 0.0, 0.0]), [1, 2, 0]),
        (PushPolicy.HIGH_OUTPUT, BUSY, [1, 3]),
        (PushPolicy.LARGEST_INPUT, BUSY, [0]),
    ],
    ids=[
        "the least output for its size goes first",
        "an idle group goes before all others",
        "the most output for its size goes first",
        "the most state of one input goes first",
    ],
)
def test_a_policy_orders_the_groups_to_push(policy, idle_ms, expected):
    groups = Candidates(SIZES, OUTPUT, idle_ms)
    assert choose_pushed(groups, MEMORY, Pushing(policy=policy), 0).tolist() == expected


def test_the_random_policy_is_the_same_for_one_seed_and_batch():
    groups = Candidates(np.ones((1, 50)), np.ones(50), np.zeros(50))
    how = Pushing(policy=PushPolicy.RANDOM, seed=7)
    chosen = [choose_pushed(groups, 40, how, batch).tolist() for batch in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize("memory", [1, 500, 999, 1500])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_a_task_is_within_its_budget_after_a_push_and_has_pushed_its_share(memory, share):
    groups = Candidates(SIZES, OUTPUT, BUSY)
    chosen = choose_pushed(groups, memory, Pushing(share=share), 0)
    size = groups.size
    if size.sum() <= memory:
        assert not len(chosen)
    else:
        assert size.sum() - size[chosen].sum() <= memory
        assert size[chosen].sum() >= share * size.sum()


def test_debts_are_paid_smallest_first_and_the_next_group_in_part():
    debts = np.array([0.0, 90.0, 30.0, 60.0])
    whole, cut = choose_paid(debts, 100.0)
    assert (whole.tolist(), cut) == ([2, 3], 1)
    whole, cut = choose_paid(debts, 1000.0)
    assert (whole.tolist(), cut) == ([2, 3, 1], None)
    whole, cut = choose_paid(np.array([500.0]), 100.0)
    assert (whole.tolist(), cut) == ([], 0), "of a group that does not fit, some keys are paid"


def test_there_is_room_to_pay_where_a_push_is_not_near():
    assert room_to_pay(100.0, MEMORY, Pushing()) == Room(600.0, 100.0)
    assert room_to_pay(650.0, MEMORY, Pushing()) == Room(50.0, 50.0)
    assert room_to_pay(710.0, MEMORY, Pushing()).touched == 0


def test_groups_are_equal_ranges_that_heavy_keys_cut():
    keys = (0, KEY_SPACE // 2, KEY_SPACE - 1)
    groups = groups_of(3, keys)
    assert [one.low for one in groups] == sorted(one.low for one in groups)
    assert groups[0] == KeyRange(0, 1) and groups[-1] == KeyRange(KEY_SPACE - 1, KEY_SPACE)
    assert sum(one.high - one.low for one in groups) == KEY_SPACE
    assert KeyRange(keys[1], keys[1] + 1) in groups


PLAN = BudgetPlan(("l", "r"), MEMORY, 4, (0, 0, 1, 1), pushed=(), paid=(KeyRange(0, KEY_SPACE // 4),))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"owners": (0, 0, 1)}, "owners"),
        ({"owners": (0, 0, 1, 2)}, "no task"),
        ({"heavy": (9, 5), "owners": (0,) * 6 + (1,) * 2}, "ascend"),
    ],
)
def test_a_broken_plan_is_refused(broken, message):
    scheme = Budget(MEMORY)
    scheme.check(PLAN, 2)
    with pytest.raises(AssertionError, match=message):
        scheme.check(replace(PLAN, **broken), 2)


def test_a_debt_that_two_tasks_would_pay_is_refused(monkeypatch):
    twice = (Payment(0, PLAN.paid[0]), Payment(1, PLAN.paid[0]))
    monkeypatch.setattr(Budget, "payments", lambda self, plan, paid, tasks: twice)
    with pytest.raises(AssertionError, match="two tasks"):
        Budget(MEMORY).check(PLAN, 2)


def a_run(name: str, keys: list[int]) -> Run:
    return Run("l", name, name, 0, len(keys), 100 * len(keys), min(keys), max(keys), "")


def facts_of(history: list[Run], keys: dict[str, list[int]], **more) -> BatchFacts:
    return BatchFacts(
        batch=3,
        now_ms=1000,
        tasks=2,
        inputs=("l", "r"),
        batch_before=2,
        history=tuple(history),
        reachable=tuple(history),
        fresh=(),
        keys_of=lambda run: np.array(keys[run.path], np.uint64),
        limits=Limits(),
        **{"before": None, **more},
    )


def test_what_is_pushed_is_counted_again_if_the_groups_have_changed():
    quarter = KEY_SPACE // 4
    keys = {"a": [1, 2, quarter + 5, 3 * quarter], "b": [1, 2 * quarter]}
    history = [a_run(name, found) for name, found in keys.items()]
    pushed = (Push(2, (KeyRange(0, 2 * quarter),), ("a",)),)
    plan = Budget(10_000, Pushing(groups=4, share=1.0)).plan(facts_of(history, keys, pushes=pushed))
    assert plan.pushed_rows == (2, 1, 0, 0)
    assert [load.pushed_rows for load in plan.loads] == [3, 0]
    # Only the first group has rows of two generations: two that were pushed, and one that came later.
    assert [load.owed_rows for load in plan.loads] == [3, 0]
    assert [load.active_rows for load in plan.loads] == [1, 2]


def test_the_bound_of_what_is_owed_is_what_one_key_would_owe():
    """Two rows of l and three of r were pushed, and one of each came later: of 3 x 4 pairs 2 x 3 and 1 x 1 have come out."""
    keys = {"a": [1, 1], "b": [1, 1, 1], "c": [1], "d": [1]}
    history = [replace(a_run(name, found), input="lr"[name in "bd"]) for name, found in keys.items()]
    pushes = (Push(2, (KeyRange(0, KEY_SPACE // 4),), ("a", "b")),)
    plan = Budget(1 << 20, Pushing(groups=4, paid_share=0.0)).plan(facts_of(history, keys, pushes=pushes))
    assert plan.most_owed == (5, 0, 0, 0) and plan.owed_rows == (7, 0, 0, 0)


def skewed(now_ms: int, **more) -> BatchFacts:
    """All rows are in groups of the first of two tasks."""
    eighth = KEY_SPACE // 8
    keys = {"a": sorted(place * eighth + number for place in range(4) for number in range(10))}
    return replace(facts_of([a_run("a", keys["a"])], keys, **more), now_ms=now_ms)


def test_half_of_the_difference_moves_to_the_emptiest_task_after_a_while():
    scheme = Budget(1 << 20, Pushing(groups=8))
    first = scheme.plan(skewed(1000))
    assert first.owners == (0, 0, 0, 0, 1, 1, 1, 1)
    soon = scheme.plan(skewed(1000 + MOVE_EVERY_MS - 1, before=first))
    assert soon.owners == first.owners
    moved = scheme.plan(skewed(1000 + MOVE_EVERY_MS, before=soon))
    scheme.check(moved, 2)
    assert [load.active_rows for load in moved.loads] == [20, 20]
    (event,) = moved.events
    assert (event.what, event.task, event.groups, event.rows) == ("moved", 0, 2, 20)
    assert "to task 1" in event.why
    # Both have as much now, and the owners stay.
    assert scheme.plan(skewed(1000 + 3 * MOVE_EVERY_MS, before=moved)).owners == moved.owners
    assert len(list(scheme.shares(moved, ("l", "r"), 1, 2))) == 2, "the new groups, and its own"


@pytest.mark.parametrize(
    ("share", "every_ms", "moves"),
    [(0.8, 15_000, True), (0.8, 15_001, False), (0.0, 1, False), (0.1, 15_000, True)],
)
def test_when_groups_move_is_a_setting(share, every_ms, moves):
    scheme = Budget(1 << 20, Pushing(groups=8, balanced_share=share, move_every_ms=every_ms))
    first = scheme.plan(skewed(1000))
    assert (scheme.plan(skewed(16_000, before=first)).owners != first.owners) == moves


def test_groups_that_owe_do_not_move_and_no_batch_both_pushes_and_moves():
    late = 1000 + MOVE_EVERY_MS
    scheme = Budget(1 << 20, Pushing(groups=8))
    first = scheme.plan(skewed(1000))
    all_of_it = (Push(2, (KeyRange(0, KEY_SPACE // 2),), ("a",)),)
    # Nothing is active, so there is nothing to balance; what was pushed is paid by the task that had it.
    paying = scheme.plan(skewed(late, before=first, pushes=all_of_it))
    assert paying.owners == first.owners and paying.paid
    pushing = Budget(3000, Pushing(groups=8)).plan(skewed(late, before=first))
    assert pushing.pushed and pushing.owners == first.owners


def test_productive_groups_move_first():
    scheme = Budget(1 << 20, Pushing(groups=8))
    first = scheme.plan(skewed(1000))
    tally = TaskTally(2, 0, 0, 90, 0, groups=(1, 3), group_rows=(20.0, 70.0))
    moved = scheme.plan(skewed(1000 + MOVE_EVERY_MS, before=first, tallies=(tally,)))
    assert moved.owners == (0, 1, 0, 1, 1, 1, 1, 1)


def test_groups_that_owe_stay_when_others_move():
    eighth = KEY_SPACE // 8
    pushes = (Push(2, (KeyRange(0, 5), KeyRange(eighth, eighth + 5)), ("a",)),)
    scheme = Budget(1 << 20, Pushing(groups=8, paid_share=0.0))
    first = scheme.plan(skewed(1000, pushes=pushes))
    assert first.borders[:4] == (1, 1, 0, 0)
    moved = scheme.plan(skewed(1000 + MOVE_EVERY_MS, before=first, pushes=pushes))
    assert moved.owners == (0, 0, 1, 0, 1, 1, 1, 1), "half of the difference is 15 rows, and a group has 10"


def balanced(now_ms: int, results: int, **more) -> BatchFacts:
    """Both of two tasks have 40 rows of 100 bytes in four groups; only groups of the first had results."""
    eighth = KEY_SPACE // 8
    keys = {"a": sorted(place * eighth + number for place in range(8) for number in range(10))}
    tally = TaskTally(2, 0, 0, results, 0, groups=(0, 1, 2, 3), group_rows=(results,) * 4)
    return replace(facts_of([a_run("a", keys["a"])], keys, tallies=(tally,), **more), now_ms=now_ms)


@pytest.mark.parametrize(
    ("disk", "memory", "pushed"),
    [("active-disk", 3500, 1000), ("active-disk", 3950, 0), ("lazy-disk", 3500, 0)],
    ids=["at most what the query lacks", "not a group if it lacks less", "lazy-disk pushes nothing"],
)
def test_active_disk_pushes_groups_of_the_task_with_the_least_output(disk, memory, pushed):
    # Half of each group was pushed before: the tasks are within their budgets, but the state is not within both.
    eighth, late = KEY_SPACE // 8, 1000 + MOVE_EVERY_MS
    border = tuple(KeyRange(place * eighth, place * eighth + 5) for place in range(8))
    scheme = Budget(memory, Pushing(groups=8, disk=Disk(disk), share=0.9, paid_share=0.0))
    first = scheme.plan(balanced(1000, 0, pushes=(Push(2, border, ("a",)),)))
    plan = scheme.plan(balanced(late, 50, before=first, pushes=(Push(2, border, ("a",)),)))
    assert plan.owners == first.owners, "a batch that pushes does not move"
    chosen = [one for one in plan.groups if any(one.low in range_ for range_ in plan.pushed)]
    assert all(plan.owners[plan.groups.index(one)] == 1 for one in chosen)
    assert plan.forced_bytes == 500 * len(chosen) == pushed
    # Of the bound nothing is left, however long it goes on.
    pushes = (Push(2, border, ("a",)), *([Push(3, plan.pushed, ("a",))] if plan.pushed else []))
    again = scheme.plan(balanced(2 * late, 50, before=plan, pushes=pushes))
    assert again.forced_bytes == plan.forced_bytes


def test_a_heavy_key_is_a_group_of_its_own(tmp_path):
    join = start(
        SCHEMA, tmp_path, memory=1 << 20, settings={"limits": TINY}, pushing=Pushing(groups=8), clock=Clock()
    )
    run_batch(join, {"l": [pa.table([[7] * 20, range(20), range(20)], schema=SCHEMA)], "r": []})
    run_batch(join, {"l": [], "r": [pa.table([[1, 7], [1, 2], [3, 4]], schema=SCHEMA)]})
    plan = newest(tmp_path).plan.scheme
    assert isinstance(plan, BudgetPlan) and len(plan.heavy) >= 1
    assert any(one.high - one.low == 1 for one in plan.groups)


def test_a_heavy_key_stays_a_group_of_its_own_until_its_rows_are_paid(tmp_path):
    """Other keys get so many rows that it is not heavy any more. Its group is joined with the rest after that."""
    pushing = Pushing(groups=8, paid_share=0.9)
    join = start(SCHEMA, tmp_path, memory=1, settings={"limits": TINY}, pushing=pushing, clock=Clock())
    run_batch(join, {"l": [pa.table([[7] * 20, range(20), range(20)], schema=SCHEMA)], "r": []})
    rest = pa.table([range(100, 500), range(400), range(400)], schema=SCHEMA)
    for later in ([], [rest], []):
        run_batch(join, {"l": [], "r": later})
    plan = newest(tmp_path).plan.scheme
    assert isinstance(plan, BudgetPlan) and len(plan.heavy) == 1
    key = KeyRange(plan.heavy[0], plan.heavy[0] + 1)
    assert plan.pushed_rows[plan.groups.index(key)] == 20
    join = restarted(join, memory=1 << 20)
    for _ in range(2):
        run_batch(join, {"l": [], "r": []})
    plan = newest(tmp_path).plan.scheme
    assert not newest(tmp_path).pushes and isinstance(plan, BudgetPlan) and plan.heavy == ()


# --- Deferring --------------------------------------------------------------------------------------------------------


def deferring(took_ms: float, before: BudgetPlan | None, trigger_ms: int | None = None) -> BatchFacts:
    tally = TaskTally(2, 0, 0, 0, 0, probing_ms=took_ms)
    facts = balanced(1000, 0, before=before)
    # There are new rows: a task without any has nothing to defer.
    return replace(facts, fresh=facts.history, tallies=(tally,), trigger_ms=trigger_ms)


@pytest.mark.parametrize(
    ("given_ms", "trigger_ms", "limit_ms"),
    [(3000, 500, 3000), (0, 500, 500), (0, None, SLOW_MS)],
    ids=["what the user gave", "the trigger interval", "neither"],
)
def test_a_task_is_slow_after_what_was_given_or_the_trigger_interval(given_ms, trigger_ms, limit_ms):
    how = Pushing(groups=8, defer_ms=given_ms)
    for took_ms, slow in ((limit_ms, False), (limit_ms + 1, True)):
        tempo = tempo_of(deferring(took_ms, None, trigger_ms), None, how)
        # Of the other task nothing is known: it is taken for as slow.
        assert tempo is not None and tempo.limit_ms == limit_ms
        assert [tempo.is_slow(task) for task in (0, 1)] == [slow, slow]
        plan = Budget(None, how).plan(deferring(took_ms, None, trigger_ms))
        assert bool(plan.pushed) == slow and plan.slow_ms == limit_ms
    assert tempo_of(deferring(0, None), None, Pushing()) is None


@pytest.mark.parametrize(
    ("took_ms", "slice_bytes"), [(499, 2000), (500, 1000), (1000, 1000), (1001, 500)], ids=str
)
def test_payments_grow_while_they_are_quick_and_shrink_when_they_are_slow(took_ms, slice_bytes):
    how = Pushing(groups=8, defer_ms=1000)
    plan = Budget(None, how).plan(deferring(0, None))
    paid = replace(plan, slice_bytes=1000, paid=(KeyRange(0, 5),))
    with patch("watersmeet.schemes.budget.tempo.LEAST_SLICE_BYTES", 1):
        tempo = tempo_of(deferring(took_ms, paid), paid, how)
        assert tempo is not None and tempo.slice_bytes == slice_bytes
        assert not tempo.is_slow(0), "a batch that paid says nothing about pushing"
        other = tempo_of(deferring(took_ms, replace(paid, paid=())), replace(paid, paid=()), how)
        assert other is not None and other.slice_bytes == 1000


# --- What is stored ---------------------------------------------------------------------------------------------------


def test_pushes_payments_and_what_merges_leave_are_read_as_they_were_written(tmp_path):
    half = KEY_SPACE // 2
    runs = tuple(
        Run("l", f"runs/l/{n:010d}-p00000-0000-{n:016x}.arrow", "g", n, 9, 99, 0, KEY_SPACE - 1, f"{n:016x}")
        for n in range(6)
    )
    held = replace(runs[1], held=(0, 5, half, KEY_SPACE - 1), held_rows=4)
    history = (runs[0], held, *runs[2:5])
    ranges = (KeyRange(0, 6), KeyRange(half, KEY_SPACE))
    merge = Merge(
        "m",
        "l",
        (runs[0].path, runs[2].path),
        9,
        (MergePart(FULL_RANGE),),
        5,
        3,
        (Left(ranges, (runs[0].path,), (7,)),),
        ranges,
    )
    manifest = Manifest(
        BatchId("q", "r", 7),
        0,
        "one",
        None,
        SIGNATURE,
        history,
        runs[5:],
        (merge,),
        Plan(PLAN, payments=(Payment(1, ranges[0]),)),
        pushes=(Push(3, ranges, (runs[0].path, runs[3].path)), Push(5, ranges[:1], (held.path,))),
        paid=(Push(2, ranges[1:], (held.path,)),),
    )
    name, files = ManifestName(0, 7, "r"), LocalFiles(tmp_path)
    assert publish_manifest(files, Seen(), name, manifest, None, Limits())
    assert read_manifest(files, name) == manifest
    assert {run.stored_rows for run in history} == {4, 9}


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"on": "abs(l.k - r.k) <= 1"}, "needs an equality"),
        ({"on": "l.k <> r.k"}, "needs an equality"),
        ({"within": "10 rows"}, "window over rows"),
        ({"strategy": "hash"}, 'belong to strategy="budget"'),
        ({"strategy": "delta"}, "one key that joins all inputs"),
    ],
    ids=["band", "theta", "window over rows", "another strategy", "walk"],
)
def test_memory_is_refused_with_the_reason(tmp_path, how, message):
    with pytest.raises(UsageError, match=message):
        start(SCHEMA, tmp_path, **{"on": "l.k = r.k", "memory": 1000, **how})


def test_inputs_on_different_keys_refuse_memory(tmp_path):
    three = dict.fromkeys("abc", SCHEMA)
    with pytest.raises(UsageError, match="one key that joins all inputs"):
        start(three, tmp_path, "a.k = b.k AND b.t = c.t", memory=1000)


def test_the_strategy_needs_a_budget(tmp_path):
    with pytest.raises(UsageError, match="give one, such as memory="):
        start(SCHEMA, tmp_path, strategy="budget")


def test_settings_of_pushing_are_checked():
    conf = {"spark.watersmeet.partitionGroups": "12", "spark.watersmeet.pushPolicy": "random"}
    assert read_pushing(conf.get, {"pushShare": 0.5}) == Pushing(12, 0.5, PushPolicy.RANDOM)
    assert read_pushing({"spark.watersmeet.pushTiming": "active-disk"}.get).disk == Disk.ACTIVE
    wrong = {"partitionGroups": "0", "pushPolicy": "best", "pushShare": "2", "pushTiming": "never"}
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=name):
            read_pushing({f"spark.watersmeet.{name}": value}.get)


# --- What is shown ----------------------------------------------------------------------------------------------------


def test_the_status_shows_what_is_active_pushed_and_owed_and_why(tmp_path):
    join = start(
        SCHEMA, tmp_path, memory=2500, settings={"limits": TINY}, pushing=Pushing(groups=6), clock=Clock()
    )
    for batch in range(6):
        rows = pa.table([range(8), range(8), range(8 * batch, 8 * batch + 8)], schema=SCHEMA)
        run_batch(join, {"l": [rows], "r": [rows]})
    (status,) = read_status(tmp_path).joins
    shown = status.shown
    assert status.strategy == "budget" and shown is not None
    assert shown.summary.startswith("budget: ") and "2 x 2.5 KB active" in shown.summary
    assert [row[0] for row in shown.rows][:2] == ["0", "1"]
    assert {len(row) for row in shown.rows} == {len(shown.columns)}
    # Then the groups that owe most.
    groups = [(row[0], int(row[5]), row[6]) for row in shown.rows[2:]]
    assert len(groups) == 3 and all("group" in name and "up to" in most for name, _, most in groups)
    assert [rows for _, rows, _ in groups] == sorted((rows for _, rows, _ in groups), reverse=True)
    assert re.fullmatch(
        r"batch \d: task \d pushed \d groups?, [\d.]+ K?B: [\d.]+ KB active, over the budget \(low-output\)",
        "".join(shown.events[0]),
    )
    assert isinstance(status.plan, BudgetPlan)
    assert all(load.active_bytes <= 2500 for load in status.plan.loads)
    assert sum(load.active_rows + load.pushed_rows for load in status.plan.loads) == 2 * 8 * 5


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("limits", [TINY, Limits()], ids=["tiny", "usual"])
def test_results_are_counted_by_group(tmp_path, names, limits):
    on = " AND ".join(f"a.k = {name}.k" for name in names[1:])
    how = {"memory": 1 << 20, "pushing": Pushing(groups=6), "settings": {"limits": limits}, "clock": Clock()}
    join = start(dict.fromkeys(names, SCHEMA), tmp_path, on, **how)
    emitted = 0
    for batch in range(3):
        keys = np.random.default_rng(batch).integers(0, 9, 30)
        rows = pa.table([keys, range(30), range(30)], schema=SCHEMA)
        plan = newest(tmp_path).plan.scheme if batch else None
        assert plan is None or sum(plan.output) <= emitted
        emitted += run_batch(join, {name: [rows] for name in names}).total()
    run_batch(join, {name: [] for name in names})
    plan = newest(tmp_path).plan.scheme
    assert isinstance(plan, BudgetPlan) and sum(plan.output) == emitted
