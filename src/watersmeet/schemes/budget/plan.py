"""Plan a batch under a budget of memory: the groups, who joins them, what is pushed and what is paid.

`scheme.py` has the idea. A plan is a function of the facts, the clock and the tallies that the batch was planned with,
and is published with the batch. If the batch is a replay, what it pushes and pays is given (`BatchFacts.repeated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.figures import size as shown_size
from watersmeet.model.ranges import Ranges, joined
from watersmeet.schemes.budget.census import Census, known_of, runs_of, take_census
from watersmeet.schemes.budget.facts import (
    MOVED,
    PAID,
    PUSHED,
    Adaptation,
    BudgetPlan,
    Groups,
    TaskLoad,
    groups_of,
)
from watersmeet.schemes.budget.policy import (
    BALANCED_SHARE,
    IDLE_MS,
    MOVE_EVERY_MS,
    Amounts,
    Candidates,
    Indices,
    Pushing,
    PushPolicy,
    choose_moved,
    choose_paid,
    choose_pushed,
)
from watersmeet.schemes.hypercube.hot_keys import frequent
from watersmeet.schemes.scheme import BatchFacts

# A key is heavy if it has as many rows as a mean group, and light again with less than half of that.
STAYS_HEAVY = 0.5
# The most heavy keys, as a share of the groups: more keys cannot each have as much as a group and matter.
MOST_HEAVY = 0.25

# Decisions that a plan remembers.
EVENTS_KEPT = 20


def plan_budget(facts: BatchFacts, memory: int, how: Pushing) -> BudgetPlan:
    before = facts.plan_before(BudgetPlan)
    heavy = _heavy_keys(facts, before, how.groups)
    groups = groups_of(how.groups, heavy)
    owners = _owners(groups, facts.tasks, before)
    census = take_census(facts, groups)
    seen, output = _used(facts, before, groups, census)
    if facts.repeated is not None:
        pushed, paid = (_inside(groups, ranges) for ranges in (facts.repeated.pushed, facts.repeated.paid))
        ranges = facts.repeated.pushed, facts.repeated.paid
        events: list[Adaptation] = []
    else:
        pushed, paid, events = _decide(facts, groups, census, owners, seen, output, memory, how)
        ranges = _ranges(groups, pushed), _ranges(groups, paid)
    moved_ms = before.moved_ms if before else facts.now_ms
    if facts.repeated is None and not events:
        # Never together with a push or a payment: these change what there is to balance.
        owners, events = _relocated(facts, census, owners, output, moved_ms)
        moved_ms = facts.now_ms if events else moved_ms
    after = _after(census, pushed, paid)
    # A repeated decision may cut a group in two: then what is pushed of each is counted again.
    known = facts.repeated is None or ranges == (_ranges(groups, pushed), _ranges(groups, paid))
    return BudgetPlan(
        facts.inputs,
        memory,
        how.groups,
        tuple(owners.tolist()),
        heavy=heavy,
        seen_ms=tuple(seen.tolist()),
        output=tuple(output.astype(np.int64).tolist()),
        borders=tuple(after.borders.tolist()) if known else (),
        pushed_rows=tuple(after.pushed_rows.tolist()) if known else (),
        pushed_bytes=tuple(after.pushed_bytes.astype(np.int64).tolist()) if known else (),
        pushed=ranges[0],
        paid=ranges[1],
        loads=tuple(after.load(np.flatnonzero(owners == task)) for task in range(facts.tasks)),
        events=(*(before.events if before else ()), *events)[-EVENTS_KEPT:],
        moved_ms=moved_ms,
    )


def _heavy_keys(facts: BatchFacts, before: BudgetPlan | None, equal: int) -> tuple[int, ...]:
    """The keys that are groups of their own, ascending. One that was stays one as long as its rows owe results."""
    runs = runs_of(facts)
    rows: dict[int, int] = {}
    for name in facts.inputs:
        found = frequent([run for run in runs if run.input == name])
        for key, listed in zip(found.keys.tolist(), found.listed.tolist(), strict=True):
            rows[key] = rows.get(key, 0) + listed
    mean = max(sum(run.stored_rows for run in runs) / equal, facts.limits.least_listed_rows)
    were = before.heavy if before is not None and before.equal == equal else ()
    stay = [
        key
        for key in were
        if rows.get(key, 0) >= STAYS_HEAVY * mean
        or any(key in one for push in facts.pushes for one in push.ranges)
    ]
    room = max(0, int(MOST_HEAVY * equal) - len(stay))
    known = set(stay)
    new = sorted(
        (key for key in rows if rows[key] >= mean and key not in known), key=lambda key: (-rows[key], key)
    )
    return tuple(sorted([*stay, *new[:room]]))


def _owners(groups: Groups, tasks: int, before: BudgetPlan | None) -> Indices:
    """The task of each group: that of the batch before, else neighbours have one task, each about as many keys."""
    if before is None or len(before.loads) != tasks:
        return np.array([one.low * tasks // KEY_SPACE for one in groups], np.int64)
    lows = np.array([one.low for one in before.groups], np.uint64)
    at = np.searchsorted(lows, np.array([one.low for one in groups], np.uint64), side="right") - 1
    return np.array(before.owners, np.int64)[at]


def _relocated(
    facts: BatchFacts, census: Census, owners: Indices, output: Amounts, moved_ms: int
) -> tuple[Indices, list[Adaptation]]:
    """The owners after half of what the fullest task has more than the emptiest went there, if that is due.

    Nothing is copied: the other task reads the same runs. Groups that owe stay where they are.
    """
    active = census.active_bytes.sum(axis=0)
    loads = np.bincount(owners, active, facts.tasks)
    least, most = int(loads.argmin()), int(loads.argmax())
    if facts.now_ms - moved_ms < MOVE_EVERY_MS or loads[least] >= BALANCED_SHARE * loads[most]:
        return owners, []
    surplus = float(loads[most] - loads[least]) / 2
    chosen = choose_moved(active, output, (owners == most) & (census.borders == 0), surplus)
    if not len(chosen):
        return owners, []
    after = owners.copy()
    after[chosen] = least
    why = f"to task {least}, which had {shown_size(float(loads[least]))} of {shown_size(float(loads[most]))}"
    rows, size = census.current_rows[chosen].sum(), active[chosen].sum()
    return after, [_event(facts, most, MOVED, chosen, rows, size, why)]


def _used(
    facts: BatchFacts, before: BudgetPlan | None, groups: Groups, census: Census
) -> tuple[Indices, Amounts]:
    """When each group last had a row, this batch included, and its results up to the batch before."""
    if before is None or not before.seen_ms:
        seen, output = np.full(len(groups), facts.now_ms, np.int64), np.zeros(len(groups))
    else:
        had = np.array(before.output, np.float64)
        for tally in facts.tallies:
            if tally.groups and max(tally.groups) < len(had):
                had[list(tally.groups)] += np.array(tally.group_rows, np.float64)
        seen, output = known_of(before, groups, had)
    return np.where(census.fresh_rows > 0, facts.now_ms, seen), output


def _decide(
    facts: BatchFacts,
    groups: Groups,
    census: Census,
    owners: Indices,
    seen: Indices,
    output: Amounts,
    memory: int,
    how: Pushing,
) -> tuple[Indices, Indices, list[Adaptation]]:
    """The groups to push and to pay, and why. A task that pushes does not pay in the same batch."""
    events: list[Adaptation] = []
    pushed: list[Indices] = []
    # A group that was cut may have a part of which nothing was pushed: its border goes, for nothing.
    covered = _inside_any(facts, groups)
    paid = [np.flatnonzero(covered & (census.pushed_rows == 0))]
    idle = np.maximum(facts.now_ms - seen, 0).astype(np.float64)
    for task in range(facts.tasks):
        mine = np.flatnonzero(owners == task)
        active = census.active_bytes[:, mine]
        chosen = mine[choose_pushed(Candidates(active, output[mine], idle[mine]), memory, how, facts.batch)]
        if len(chosen):
            pushed.append(chosen)
            why = _why_pushed(float(active.sum()), how, int((idle[chosen] > IDLE_MS).sum()))
            rows, size = census.current_rows[chosen].sum(), census.current_bytes[chosen].sum()
            events.append(_event(facts, task, PUSHED, chosen, rows, size, why))
            continue
        debts = np.where(census.borders[mine] > 0, census.pushed_bytes[mine], 0.0)
        # Of a group that owes, a payment also reads what no fresh row can reach.
        debts += np.where(debts > 0, census.current_bytes[mine] - active.sum(axis=0), 0.0)
        chosen = mine[choose_paid(debts, float(active.sum()), memory, how)]
        if len(chosen):
            paid.append(chosen)
            rows, size = census.pushed_rows[chosen].sum(), census.pushed_bytes[chosen].sum()
            why = f"{shown_size(float(active.sum()))} active, there is room"
            events.append(_event(facts, task, PAID, chosen, rows, size, why))
    return _together(pushed), _together(paid), events


def _together(parts: Sequence[Indices]) -> Indices:
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _event(
    facts: BatchFacts, task: int, what: str, groups: Indices, rows: np.int64, size: float, why: str
) -> Adaptation:
    return Adaptation(facts.batch, facts.now_ms, task, what, len(groups), int(rows), int(size), why)


def _why_pushed(active: float, how: Pushing, idle: int) -> str:
    first = f"{idle} idle, then {how.policy}" if idle and how.policy == PushPolicy.LOW_OUTPUT else how.policy
    return f"{shown_size(active)} active, over the budget ({first})"


def _ranges(groups: Groups, chosen: Indices) -> Ranges:
    return joined(groups[place] for place in chosen.tolist())


def _inside(groups: Groups, ranges: Ranges) -> Indices:
    """The groups whose lowest key lies in some ranges."""
    found = [place for place, one in enumerate(groups) if any(one.low in range_ for range_ in ranges)]
    return np.array(found, np.int64)


def _inside_any(facts: BatchFacts, groups: Groups) -> npt.NDArray[np.bool_]:
    """Which groups some push covers."""
    covered = np.zeros(len(groups), np.bool_)
    covered[_inside(groups, joined(one for push in facts.pushes for one in push.ranges))] = True
    return covered


@dataclass(frozen=True, slots=True)
class _After:
    """Rows and bytes of each group once a batch has paid and pushed."""

    active_bytes: Amounts
    current_rows: Indices
    pushed_rows: Indices
    pushed_bytes: Amounts
    borders: Indices
    fresh_rows: Indices

    def load(self, mine: Indices) -> TaskLoad:
        rows = self.current_rows[mine] + self.fresh_rows[mine]
        owing = self.borders[mine] + (rows > 0) > 1
        return TaskLoad(
            active_rows=int(self.current_rows[mine].sum()),
            active_bytes=int(self.active_bytes[mine].sum()),
            pushed_rows=int(self.pushed_rows[mine].sum()),
            pushed_bytes=int(self.pushed_bytes[mine].sum()),
            owed_rows=int((rows + self.pushed_rows[mine])[owing].sum()),
            owing_groups=int(owing.sum()),
        )


def _after(census: Census, pushed: Indices, paid: Indices) -> _After:
    active = census.active_bytes.sum(axis=0)
    rows, size = census.current_rows.copy(), census.current_bytes.copy()
    set_aside, set_aside_bytes = census.pushed_rows.copy(), census.pushed_bytes.copy()
    borders = census.borders.copy()
    rows[paid] += set_aside[paid]
    size[paid] += set_aside_bytes[paid]
    active[paid] += set_aside_bytes[paid]
    set_aside[paid], set_aside_bytes[paid], borders[paid] = 0, 0.0, 0
    borders[pushed] += rows[pushed] > 0
    set_aside[pushed] += rows[pushed]
    set_aside_bytes[pushed] += size[pushed]
    rows[pushed], active[pushed] = 0, 0.0
    return _After(active, rows, set_aside, set_aside_bytes, borders, census.fresh_rows)


def stretches(groups: Groups, owners: Sequence[int], task: int) -> list[KeyRange]:
    """The ranges of a task's groups, neighbours joined."""
    return list(joined(one for one, owner in zip(groups, owners, strict=True) if owner == task))
