"""A task whose partition groups lie in many places looks its fresh rows up class by class, not place by place."""

from __future__ import annotations

import pyarrow as pa

from tests.life import newest, start
from watersmeet.kernel.multi import MultiJoin
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.budget.scheme import stretches

SCHEMA = pa.schema({"k": pa.int64()})
TASKS = 2


def test_a_task_with_groups_in_many_places_calls_the_kernel_once_for_each_class(tmp_path, monkeypatch):
    calls, real = [], MultiJoin.results

    def counted(self, *given, **more):
        calls.append(given)
        return real(self, *given, **more)

    monkeypatch.setattr(MultiJoin, "results", counted)
    # One task has nearly all groups. Half of its state moves, in the order of productivity: from all over the keys.
    pushing = Pushing(groups=64, first_shares=(0.9, 0.1), move_every_ms=0)
    join = start(
        dict.fromkeys("abc", SCHEMA),
        tmp_path,
        "a.k = b.k AND b.k = c.k",
        tasks=TASKS,
        memory=1 << 30,
        pushing=pushing,
    )
    rows = pa.table({"k": [key for key in range(400) for _ in range(1 + key % 3)]})
    fresh = pa.table({"k": range(400)})
    whole = 0
    for batch in (rows, rows, fresh):
        calls.clear()
        whole += join.count(a=batch, b=batch, c=batch)
        # Nothing is pushed, so all keys are of one class.
        assert len(calls) == TASKS
    plan = newest(tmp_path).plan.scheme
    assert isinstance(plan, BudgetPlan)
    assert min(len(stretches(plan.groups, plan.owners, task)) for task in range(TASKS)) > 5
    counts = [2 * (1 + key % 3) + 1 for key in range(400)]
    assert whole == sum(count**3 for count in counts)
