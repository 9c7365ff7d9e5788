"""A join that keeps to a budget of memory: each task joins whole partition groups, and pushes some when it is over.

Source: Liu, Rundensteiner 2005 (State-intensive queries), sections 3 and 4. State is always on disk here, as mapped
runs. What is scarce is what a batch touches: resident pages, cached copies of remote files, time to search. So *active
state* is the history that a task may touch in a batch, and the budget bounds its bytes. A push moves nothing: it sets a
border, and rows behind it are not read until their debts are paid (plan/pushes.py, engine/payment.py).

- The order keys are cut into `Pushing.groups` equal partition groups, the same for all inputs. Order keys are mixed, so
  the groups are equal unless a key is heavy. A heavy key is a group of its own.
- A task joins neighbouring groups. In each batch, before its rows are joined, a task with more active bytes than
  `memory` pushes groups until it is within it (policy.py).
- A task with room pays debts, the smallest first. With `pay_within` debts fall due (decide.py).
- With `defer` a slow task pushes too, or only such a one, if there is no `memory` (tempo.py).
- If one task has much less active state than another, groups move (adapt.py). Another task reads the same runs:
  nothing is copied, and the paper's protocol of eight messages is not needed.

Differs from the paper: a heavy key's pairs are not cut into cells for several tasks.

Guaranteed: a task touches at most `memory` bytes of history in a batch, payments included, besides the batch's own
rows. Not guaranteed in a replay, which repeats what was decided under another budget, nor when a run is opened for the
first time in a process: its checksum is verified, which reads the file once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from watersmeet.errors import UsageError
from watersmeet.model.facts import Payment
from watersmeet.model.figures import count, duration, rough, size
from watersmeet.model.ranges import Ranges, intersected, joined
from watersmeet.model.signature import MOST_INPUTS
from watersmeet.schemes.budget.facts import Adaptation, BudgetPlan, TaskLoad
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

# Groups that the status shows by themselves.
MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Budget(Scheme[BudgetPlan]):
    """Join by partition groups, with at most `memory` bytes of active state in each task."""

    name: ClassVar[str] = "budget"
    plan_type = BudgetPlan
    stats_type = HotKeys
    most_inputs = MOST_INPUTS
    arguments = ("memory", "defer")
    weighs_tallies = True
    pushes = True

    memory: int | None
    how: Pushing = field(default_factory=Pushing)

    @classmethod
    def make(cls, request: SchemeRequest) -> Budget:
        how = request.pushing or Pushing()
        if request.memory is None and how.defer_ms is None:
            raise UsageError(
                'strategy="budget" keeps to memory=, or to the time of defer=: give one, such as memory="200 MB"'
            )
        return cls(request.memory, how)

    def describe(self, run: NewRun, tasks: int) -> HotKeys:
        return list_hot_keys(run, tasks)

    def plan(self, facts: BatchFacts) -> BudgetPlan:
        return plan_budget(facts, self.memory, self.how)

    def decide(self, plan: BudgetPlan, facts: BatchFacts) -> Decision:
        return facts.repeated or Decision(plan.pushed, plan.paid, plan.parts)

    def payments(self, plan: BudgetPlan, paid: Ranges, tasks: int) -> tuple[Payment, ...]:
        return tuple(
            Payment(task, range_)
            for task in range(tasks)
            for range_ in intersected(paid, stretches(plan.groups, plan.owners, task))
        )

    def groups_of(self, plan: BudgetPlan) -> Ranges:
        return plan.groups

    @classmethod
    def settled(cls, plan: BudgetPlan) -> BudgetPlan:
        """The rows that were set aside are active again, until the next batch pushes some."""
        return replace(
            plan,
            borders=(0,) * len(plan.borders),
            pushed_rows=(0,) * len(plan.pushed_rows),
            pushed_bytes=(0,) * len(plan.pushed_bytes),
            pushed_of=tuple((0,) * len(mine) for mine in plan.pushed_of),
            met=(0,) * len(plan.met),
            owed_ms=(),
            owed_rows=(),
            most_owed=(),
            pushed=(),
            paid=(),
            parts=(),
            loads=tuple(
                TaskLoad(load.active_rows + load.pushed_rows, load.active_bytes + load.pushed_bytes)
                for load in plan.loads
            ),
            forced_bytes=0,
        )

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
        """A line for each task and the groups that owe most, and a summary such as:

        budget: 180.0 MB of 2 x 200.0 MB active, 1.1 GB pushed, 1,200 rows owe up to 35,000 results
        """
        active, pushed = (
            sum(getattr(load, name) for load in plan.loads) for name in ("active_bytes", "pushed_bytes")
        )
        owed = sum(load.owed_rows for load in plan.loads)
        budget = f" of {len(plan.loads)} x {size(plan.memory)}" if plan.memory else ""
        summary = (
            f"budget: {size(active)}{budget} active, {size(pushed)} pushed, "
            f"{count(owed)} rows owe {_up_to(sum(load.most_owed for load in plan.loads))} results"
        )
        if plan.slow_ms:
            summary += f"; a task that takes more than {duration(plan.slow_ms)} pushes"
        return Shown(
            summary,
            columns=(
                "task",
                "active rows",
                "active",
                "pushed rows",
                "pushed",
                "owed rows",
                "owed results",
                "groups that owe",
            ),
            rows=(
                *(_line_of(task, load) for task, load in enumerate(plan.loads)),
                *_groups_that_owe_most(plan),
            ),
            events=tuple(_shown(event) for event in reversed(plan.events)),
        )


def _line_of(task: int, load: TaskLoad) -> tuple[str, ...]:
    return (
        str(task),
        count(load.active_rows),
        size(load.active_bytes),
        count(load.pushed_rows),
        size(load.pushed_bytes),
        count(load.owed_rows),
        _up_to(load.most_owed),
        count(load.owing_groups),
    )


def _groups_that_owe_most(plan: BudgetPlan) -> Iterator[tuple[str, ...]]:
    """Lines for some groups: by the rows that owe, since results are bounds only."""
    order = sorted(range(len(plan.owed_rows)), key=lambda group: (-plan.owed_rows[group], group))
    for group in order[:MOST_SHOWN]:
        if plan.owed_rows[group]:
            yield (
                f"{plan.owners[group]}, group {group}",
                "",
                "",
                count(plan.pushed_rows[group]),
                size(plan.pushed_bytes[group]),
                count(plan.owed_rows[group]),
                _up_to(plan.most_owed[group]),
                "",
            )


def _up_to(results: int) -> str:
    return f"up to {rough(results)}" if results else "0"


def _shown(event: Adaptation) -> tuple[str, str, str]:
    """A decision in one line, such as: batch 7: task 0 pushed 90 groups, 81.2 MB: 203.0 MB active, over the budget."""
    groups = f"{count(event.groups)} group{'' if event.groups == 1 else 's'}"
    return (
        f"batch {event.batch}: task {event.task} {event.what} ",
        groups,
        f", {size(event.bytes)}: {event.why}",
    )
