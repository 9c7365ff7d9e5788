"""A join that keeps to a budget of memory: each task joins whole partition groups, and pushes some when it is over.

Source: Liu, Rundensteiner 2005 (State-intensive queries), sections 3 and 4. State is always on disk here, as mapped
runs. What is scarce is what a batch touches: resident pages, cached copies of remote files, time to search. So *active
state* is the history that a task may touch in a batch, and the budget bounds its bytes. A push moves nothing: it sets a
border, and rows behind it are not read until their debts are paid (plan/pushes.py, engine/payment.py).

- The order keys are cut into `Pushing.groups` equal partition groups, the same for all inputs. Order keys are mixed, so
  the groups are equal unless a key is heavy. A heavy key is a group of its own.
- A task joins neighbouring groups. In each batch, before its rows are joined, a task with more active bytes than
  `memory` pushes groups until it is within it (policy.py).
- A task with room pays debts, the smallest first.
- If one task has much less active state than another, groups move (section 5.1). Another task reads the same runs:
  nothing is copied, and the paper's protocol of eight messages is not needed.

Differs from the paper: a heavy key's pairs are not cut into cells for several tasks.

Guaranteed: a task touches at most `memory` bytes of history in a batch, payments included, besides the batch's own
rows. Not guaranteed in a replay, which repeats what was decided under another budget, nor when a run is opened for the
first time in a process: its checksum is verified, which reads the file once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from watersmeet.errors import UsageError
from watersmeet.model.facts import MOST_INPUTS, Payment
from watersmeet.model.figures import count, size
from watersmeet.model.ranges import Ranges, intersected, joined
from watersmeet.schemes.budget.facts import Adaptation, BudgetPlan
from watersmeet.schemes.budget.plan import plan_budget, stretches
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.hypercube.hot_keys import HotKeys, list_hot_keys
from watersmeet.schemes.scheme import (
    BatchFacts,
    Decision,
    NewRun,
    Scheme,
    SchemeRequest,
    Share,
    Shown,
    Slice,
    check_ranges,
    share_of,
)


@dataclass(frozen=True, slots=True)
class Budget(Scheme[BudgetPlan]):
    """Join by partition groups, with at most `memory` bytes of active state in each task."""

    name: ClassVar[str] = "budget"
    plan_type = BudgetPlan
    stats_type = HotKeys
    most_inputs = MOST_INPUTS
    arguments = ("memory",)
    weighs_tallies = True
    pushes = True

    memory: int
    how: Pushing = field(default_factory=Pushing)

    @classmethod
    def make(cls, request: SchemeRequest) -> Budget:
        if request.memory is None:
            raise UsageError('strategy="budget" keeps to memory=: give it, such as memory="200 MB"')
        return cls(request.memory, request.pushing or Pushing())

    def describe(self, run: NewRun, tasks: int) -> HotKeys:
        return list_hot_keys(run, tasks)

    def plan(self, facts: BatchFacts) -> BudgetPlan:
        return plan_budget(facts, self.memory, self.how)

    def decide(self, plan: BudgetPlan, facts: BatchFacts) -> Decision:
        return Decision(plan.pushed, plan.paid)

    def payments(self, plan: BudgetPlan, paid: Ranges, tasks: int) -> tuple[Payment, ...]:
        return tuple(
            Payment(task, range_)
            for task in range(tasks)
            for range_ in intersected(paid, stretches(plan.groups, plan.owners, task))
        )

    def groups_of(self, plan: BudgetPlan) -> Ranges:
        return plan.groups

    def shares(self, plan: BudgetPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        for range_ in stretches(plan.groups, plan.owners, task):
            yield tuple(share_of(name, Slice(range_)) for name in inputs)

    def check(self, plan: BudgetPlan, tasks: int) -> None:
        groups = plan.groups
        check_ranges(groups, len(groups))
        assert len(plan.owners) == len(groups), f"{len(groups)} groups have {len(plan.owners)} owners"
        assert all(0 <= owner < tasks for owner in plan.owners), "a group has no task"
        heavy = list(plan.heavy)
        assert heavy == sorted(set(heavy)), "heavy keys must ascend strictly"
        lone = {one.low for one in groups if one.high - one.low == 1}
        assert lone.issuperset(heavy), "a heavy key is not a group of its own"
        owned = [stretches(groups, plan.owners, task) for task in range(tasks)]
        assert joined(one for mine in owned for one in mine) == joined(groups), "a group is in no share"
        paid = [payment.range for payment in self.payments(plan, plan.paid, tasks)]
        assert joined(paid) == joined(plan.paid), "a debt is paid by no task"
        assert sum(one.high - one.low for one in paid) == sum(one.high - one.low for one in joined(paid)), (
            "a debt is paid by two tasks"
        )

    @classmethod
    def show(cls, plan: BudgetPlan, inputs: Sequence[str]) -> Shown:
        """A line for each task, and a summary such as: budget: 180.0 MB of 2 x 200.0 MB active, 1.1 GB pushed."""
        active, pushed = (
            sum(getattr(load, name) for load in plan.loads) for name in ("active_bytes", "pushed_bytes")
        )
        owed = sum(load.owed_rows for load in plan.loads)
        summary = (
            f"budget: {size(active)} of {len(plan.loads)} x {size(plan.memory)} active, {size(pushed)} pushed, "
            f"{count(owed)} rows owe results"
        )
        return Shown(
            summary,
            columns=(
                "task",
                "active rows",
                "active",
                "pushed rows",
                "pushed",
                "owed rows",
                "groups that owe",
            ),
            rows=tuple(
                (
                    str(task),
                    count(load.active_rows),
                    size(load.active_bytes),
                    count(load.pushed_rows),
                    size(load.pushed_bytes),
                    count(load.owed_rows),
                    count(load.owing_groups),
                )
                for task, load in enumerate(plan.loads)
            ),
            events=tuple(_shown(event) for event in reversed(plan.events)),
        )


def _shown(event: Adaptation) -> tuple[str, str, str]:
    """A decision in one line, such as: batch 7: task 0 pushed 90 groups, 81.2 MB: 203.0 MB active, over the budget."""
    groups = f"{count(event.groups)} group{'' if event.groups == 1 else 's'}"
    return (
        f"batch {event.batch}: task {event.task} {event.what} ",
        groups,
        f", {size(event.bytes)}: {event.why}",
    )
