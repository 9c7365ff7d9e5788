"""Partition groups, policies and plans under a budget of memory, and what such a join refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.life import TINY, Clock, newest, run_batch, start
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
from watersmeet.schemes.budget.facts import BudgetPlan, groups_of
from watersmeet.schemes.budget.policy import (
    IDLE_MS,
    MOVE_EVERY_MS,
    Candidates,
    Pushing,
    PushPolicy,
    choose_paid,
    choose_pushed,
)
from watersmeet.schemes.budget.scheme import Budget
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


def test_debts_are_paid_smallest_first_where_a_push_is_not_near():
    debts = np.array([0.0, 90.0, 30.0, 60.0])
    assert choose_paid(debts, 100.0, MEMORY, Pushing()).tolist() == [2, 3]
    assert choose_paid(debts, 660.0, MEMORY, Pushing()).tolist() == [2]
    assert choose_paid(debts, 690.0, MEMORY, Pushing()).tolist() == []
    assert choose_paid(np.array([500.0]), 0.0, MEMORY, Pushing()).tolist() == [0], (
        "one group is paid, however large"
    )


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


def test_a_heavy_key_is_a_group_of_its_own(tmp_path):
    join = start(
        SCHEMA, tmp_path, memory=1 << 20, settings={"limits": TINY}, pushing=Pushing(groups=8), clock=Clock()
    )
    run_batch(join, {"l": [pa.table([[7] * 20, range(20), range(20)], schema=SCHEMA)], "r": []})
    run_batch(join, {"l": [], "r": [pa.table([[1, 7], [1, 2], [3, 4]], schema=SCHEMA)]})
    plan = newest(tmp_path).plan.scheme
    assert isinstance(plan, BudgetPlan) and len(plan.heavy) >= 1
    assert any(one.high - one.low == 1 for one in plan.groups)


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
        ({"strategy": "hash"}, 'belongs to strategy="budget"'),
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
    with pytest.raises(UsageError, match="give it, such as memory="):
        start(SCHEMA, tmp_path, strategy="budget")


def test_settings_of_pushing_are_checked():
    conf = {"spark.watersmeet.partitionGroups": "12", "spark.watersmeet.pushPolicy": "random"}
    assert read_pushing(conf.get, {"pushShare": 0.5}) == Pushing(12, 0.5, PushPolicy.RANDOM)
    for name, value in (("partitionGroups", "0"), ("pushPolicy", "best"), ("pushShare", "2")):
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
    assert [row[0] for row in shown.rows] == ["0", "1"] and len(shown.columns) == len(shown.rows[0])
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
