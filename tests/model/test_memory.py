"""Lives of joins under a budget of memory, on the local driver: what comes out when, and that all of it does."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, note, settings

from tests.life import (
    LIVES,
    files_of,
    forget,
    manifests,
    multiset,
    newest,
    restarted,
    run_batch,
)
from tests.model.memory_scripts import KEYS, Script, Step, arriving, begin, live, parts_of, scripts, table
from watersmeet.engine import owed
from watersmeet.errors import CorruptFile
from watersmeet.log.parents import is_settled
from watersmeet.log.runs import RunReader
from watersmeet.model.tally import Tally
from watersmeet.plan.pushes import decision_of
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.budget.policy import Pushing, PushPolicy

# In its last batch a group has a border but no pushed row, and the task has no room to read the rest of the group.
NO_ROOM_FOR_NOTHING = Script(
    inputs=2,
    window=True,
    pushing=Pushing(groups=3, share=0.3, policy=PushPolicy.LOW_OUTPUT, paid_share=0.1),
    memory=1,
    steps=(
        Step(rows=((), (0,), ()), starts=True, memory=None),
        Step(rows=((8, 0, 5), (0, 0, 5, 0, 2), ()), starts=True, memory=None),
        Step(rows=((5, 5, 5, 0, 8), (4, 6, 0), ()), starts=True, memory=1500, tasks=1),
        Step(rows=((6, 8, 0), (0, 1, 2, 0), ()), memory=None, tasks=1, idle_s=100.0),
        Step(rows=((0,), (0, 5, 1, 4), ()), starts=True, memory=1500, tasks=2),
        Step(rows=((0, 1, 0), (1, 0, 6, 8), ()), starts=True, memory=4000, tasks=3),
        Step(rows=((6, 7, 0), (8, 0), ())),
        Step(rows=((1, 0, 1, 0, 7, 2), (5, 6, 5), ()), idle_s=100.0),
        Step(rows=((5,), (3, 6, 8, 3, 4, 2), ()), starts=True, memory=4000, tasks=1),
    ),
    pay_within=50.0,
    defer=None,
)

# A key is cut into cells under one budget, and each is larger than the budget of the next start. There is time for it.
CELLS_OF_A_LARGER_BUDGET = Script(
    inputs=2,
    window=False,
    pushing=Pushing(groups=2),
    memory=1,
    steps=(
        *[Step(rows=((0,) * 12, (0,) * 12, ()), tasks=1)] * 3,
        Step(rows=((), (), ()), starts=True, memory=1200, tasks=1),
        *[Step(rows=((), (), ()), tasks=1)] * 3,
        Step(rows=((), (), ()), starts=True, memory=60, tasks=1),
        *[Step(rows=((), (), ()), tasks=1)] * 3,
    ),
    pay_within=1.0,
    defer=3600.0,
)


@settings(LIVES, max_examples=LIVES.max_examples // 4)
@given(scripts)
@example(NO_ROOM_FOR_NOTHING)
@example(CELLS_OF_A_LARGER_BUDGET)
def test_any_life_under_a_budget_gives_every_combination_once_and_says_what_it_owes(script):
    note(script)
    forget()
    with tempfile.TemporaryDirectory() as folder:
        live(script, f"{folder}/state")


def long_life(inputs: int, *, window: bool) -> Script:
    """Every batch has rows of all inputs, and the budget rises and falls: all that a life can meet does happen."""
    rng = np.random.default_rng([inputs, window])
    # A window keeps the state of two or three batches only.
    budgets = [700, 1, 1 << 20, 2000] if window else [3000, 1500, 1 << 20, 9000]
    steps = (
        Step(
            rows=tuple(tuple(rng.integers(0, KEYS, 6 - inputs).tolist()) for _ in range(3)),
            crash="result-emitted" if number % 5 == 4 else None,
            starts=number % 5 == 0,
            memory=budgets[number // 5 % 4],
            tasks=1 + number % 3,
        )
        for number in range(20)
    )
    return Script(inputs, window, Pushing(groups=6), budgets[0], tuple(steps))


@pytest.mark.parametrize(
    ("inputs", "batches"), [(2, 10), (3, 5)], ids=["to the end", "until the budget goes"]
)
def test_a_key_that_owes_more_than_the_budget_is_paid_in_cells_over_several_batches(
    tmp_path, inputs, batches
):
    """The key is pushed twice under a small budget. Then there is some room, for a few rows of it at a time."""
    pushed = [Step(rows=(keys,) * 3) for keys in ((0,) * 5, (0, 0), (0, 1))]
    rest = [Step(rows=((1 + number % 3,),) * 3) for number in range(batches)]
    rest[0] = replace(rest[0], starts=True, memory=1600)
    rest[3] = replace(rest[3], crash="result-emitted", zombie=True)
    if batches > 5:
        rest[6] = replace(rest[6], starts=True, memory=9000, crash="task-done")
    live(Script(inputs, False, Pushing(groups=2, paid_share=0.9), 1, (*pushed, *rest)), str(tmp_path))
    found = manifests(tmp_path)
    assert any(one.paying for one in found), "no key was being paid between two batches"
    last = [
        one
        for one in found
        if any(payment.cells is not None and payment.cells.is_last for payment in one.plan.payments)
    ]
    assert last, "no key was paid to its last cell"
    assert isinstance(last[0].plan.scheme, BudgetPlan) == (batches > 5)


def test_a_key_is_cut_into_cells_only_when_no_pending_merge_moves_its_rows(tmp_path):
    """A merge is planned, and before it is done its rows are pushed. It goes on while there is room to pay them."""
    keys = (0,) * 24, (0,) * 12
    planned = [Step(rows=keys), Step(rows=keys), Step(rows=((0,),) * 2)]
    pushed = [Step(rows=((0,) * 3,) * 2, starts=True, memory=1), Step(rows=((1,),) * 2)]
    rest = [Step(rows=((1 + number % 3,),) * 2) for number in range(12)]
    rest[0] = replace(rest[0], starts=True, memory=2500)
    pushing = Pushing(groups=2, paid_share=0.9)
    live(Script(2, False, pushing, 1 << 20, (*planned, *pushed, *rest)), str(tmp_path))
    found = manifests(tmp_path)
    waits = [one for one in found if len(one.pushes) > 1 and any(not merge.left for merge in one.merges)]
    assert len(waits) > 2 and not any(one.paying for one in waits)
    assert any(one.paying for one in found[found.index(waits[-1]) :]), "its payment never began"


def test_what_is_left_of_a_key_that_is_being_paid_in_cells_is_settled(tmp_path):
    """Some cells were paid in the query. Then rows of it come, it is settled, and it is pushed again."""
    pushed = [Step(rows=(keys,) * 2) for keys in ((0,) * 5, (0, 0), (0, 1))]
    rest = [Step(rows=((1 + number % 3,),) * 2) for number in range(8)]
    rest[0] = replace(rest[0], starts=True, memory=1600)
    rest[4] = Step(rows=((0,), (0,)), settles=True, killed="mark-written", memory=1)
    rest[6] = replace(rest[6], starts=True, memory=1600)
    state = tmp_path / "state"
    live(Script(2, False, Pushing(groups=2, paid_share=0.9), 1, (*pushed, *rest)), str(state))
    found = manifests(state)
    (mark,) = [number for number, one in enumerate(found) if is_settled(one)]
    assert any(one.paying for one in found[:mark]) and found[mark - 1].paying, "no key was being paid"
    assert not found[mark].paying and any(one.pushes for one in found[mark + 1 :])


@pytest.mark.parametrize("known", [True, False], ids=["rows stored", "an older state"])
def test_a_damaged_run_costs_its_own_results_only_while_a_key_is_being_paid_in_cells(tmp_path, known):
    """A state of before does not know how many rows of the key the run has: then all that the key still owes is lost."""
    pushed = [Step(rows=(keys,) * 2) for keys in ((0,) * 5, (0, 0), (0, 1))]
    rest = [Step(rows=((1 + number % 3,),) * 2) for number in range(8)]
    script = Script(2, False, Pushing(groups=2, paid_share=0.9), 1, (*pushed, *rest))
    join = begin(script, str(tmp_path))
    for number, step in enumerate(script.steps):
        if step is rest[0]:
            join = restarted(join, memory=1600)
        run_batch(join, {name: [table(rows)] for name, rows in arriving(script, step, number).items()})
        manifest = newest(tmp_path)
        if any(cells.end > 0 for cells in manifest.paying):
            break
    (paying,) = manifest.paying
    assert 0 < paying.end < paying.of
    owed.forget()
    whole = multiset(join.owed())
    run = next(run for run in manifest.live if run.input == "b" and run.path in paying.runs)
    (rows,) = RunReader(files_of(tmp_path)).slices(run, paying.range, ("id",))
    gone = set(rows.rows.column(0).to_pylist())
    file = files_of(tmp_path).root / run.path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    owed.forget()
    if not known:
        manifest = replace(manifest, paying=(replace(paying, runs=(), rows=()),))
    spec = join.operator.spec
    debts = owed.divide(spec, manifest, list(owed.survey(spec, manifest)), tasks=2)
    found = multiset(
        *(
            some
            for one in debts.shares
            for some in owed.pay_share(spec, manifest, one, list(debts.lost), Tally())
        )
    )
    expected = Counter({row: n for row, n in whole.items() if row[1] not in gone})
    assert list(debts.lost) == [run.path]
    if known:
        assert found == expected and found and found != whole
        assert found == multiset(join.owed())
        assert "still owes" not in owed.loss_in_words(manifest, debts)
    else:
        assert found < expected
        assert "all that 1 key still owes" in owed.loss_in_words(manifest, debts)


def test_a_group_that_owes_more_than_there_is_room_for_is_paid_key_by_key(tmp_path):
    """One group has all keys, and a budget that is raised has room for a few of them only."""
    keys = tuple(range(KEYS))
    rest = [Step(rows=((number % KEYS,), (), ())) for number in range(8)]
    rest[0] = replace(rest[0], starts=True, memory=4000, tasks=1)
    script = Script(2, False, Pushing(groups=1, paid_share=0.3), 1, (*[Step(rows=(keys,) * 3)] * 3, *rest))
    live(script, str(tmp_path))
    found = [one for one in manifests(tmp_path) if isinstance(one.plan.scheme, BudgetPlan)]
    paid = [one.plan.scheme for one in found if one.plan.payments]
    assert len(paid) > 1, "all was paid in one batch, or nothing"
    assert all(plan.borders == (0,) or plan.pushed_rows[0] > 0 for plan in paid)
    assert all(one.pushes for one in found[-2:]), "more was paid than there is room for"


@pytest.mark.parametrize(("inputs", "window"), [(2, True), (3, False)], ids=["two in a window", "three"])
def test_a_long_life_pushes_merges_evicts_and_pays(tmp_path, inputs, window):
    live(long_life(inputs, window=window), str(tmp_path))
    found = manifests(tmp_path)
    assert any(push.batch == one.batch.number for one in found for push in one.pushes), "nothing was pushed"
    assert any(one.plan.payments for one in found[:-2]), "nothing was paid before the budget was gone"
    assert any(merge.left for one in found for merge in one.merges), "no merge left anything behind"
    assert any(run.held for one in found for run in one.history), "no merged run was kept for what was pushed"
    if window:
        assert any(merge.owe for one in found for merge in one.merges), "no merge kept expired rows that owe"
        assert newest(tmp_path).totals["a"].evicted_rows > 0, "nothing was evicted in the end"


def test_a_start_with_another_budget_repeats_what_a_replayed_batch_decided(tmp_path):
    """The results of the first attempt may have reached a sink that drops those of the second."""
    rows = tuple(tuple(range(KEYS)) for _ in range(3))
    script = Script(2, False, Pushing(groups=6), 1, (Step(rows),) * 3)
    join = begin(script, str(tmp_path))
    for number in range(3):
        parts = parts_of(script, number)
        first = run_batch(join, parts)
    assert newest(tmp_path).pushes
    for memory in (1 << 20, None):
        replay = restarted(join, at=2, memory=memory)
        # Debts are as old as they were.
        replay.clock.now += 100
        assert run_batch(replay, parts) == first
        assert decision_of(newest(tmp_path)) == decision_of(manifests(tmp_path)[2])


def test_a_run_that_was_pushed_as_a_whole_is_not_read_until_it_is_paid(tmp_path):
    rows = tuple(tuple(range(KEYS)) for _ in range(3))
    script = Script(2, False, Pushing(groups=6), 1, (Step(rows),) * 6)
    join = begin(script, str(tmp_path))
    for number in range(5):
        run_batch(join, parts_of(script, number))
    manifest = newest(tmp_path)
    pushed = [run for run in manifest.history if run.path in manifest.pushes[0].runs]
    assert pushed
    (tmp_path / "join" / "local" / pushed[0].path).unlink()
    # Another process has nothing of it in memory.
    join = restarted(join)
    forget()
    run_batch(join, parts_of(script, 5))
    with pytest.raises(CorruptFile, match=f"{pushed[0].path} .* is missing"):
        run_batch(restarted(join, memory=None), parts_of(script, 6))
