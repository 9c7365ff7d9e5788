"""Plan a batch under a budget of memory: the groups, who joins them, what is pushed and what is paid.

`scheme.py` has the idea. A plan is a function of the facts, the clock and the tallies that the batch was planned with,
and is published with the batch. If the batch is a replay, what it pushes and pays is given (`BatchFacts.repeated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.ranges import joined
from watersmeet.schemes.budget.adapt import even_out, unchanged
from watersmeet.schemes.budget.after import After, after_decision, cover
from watersmeet.schemes.budget.census import Census, known_of, owed_since, runs_of, take_census
from watersmeet.schemes.budget.decide import Decided, Situation, decide
from watersmeet.schemes.budget.facts import BudgetPlan, Groups, groups_of
from watersmeet.schemes.budget.policy import Amounts, Indices, Pushing
from watersmeet.schemes.budget.tempo import tempo_of
from watersmeet.schemes.hypercube.hot_keys import frequent
from watersmeet.schemes.scheme import BatchFacts, Decision

# A key is heavy if it has as many rows as a mean group, and light again with less than half of that.
STAYS_HEAVY = 0.5
# The most heavy keys, as a share of the groups: more keys cannot each have as much as a group and matter.
MOST_HEAVY = 0.25

# Decisions that a plan remembers.
EVENTS_KEPT = 20


def plan_budget(facts: BatchFacts, memory: int | None, how: Pushing) -> BudgetPlan:
    """Plan a batch. Without a number of bytes, tasks push only when they are slow."""
    before = facts.plan_before(BudgetPlan)
    heavy = _heavy_keys(facts, before, how.groups)
    groups = groups_of(how.groups, heavy)
    owners = _owners(groups, facts.tasks, before, how)
    census = take_census(facts, groups)
    seen, output = _used(facts, before, groups, census)
    idle_ms = np.maximum(facts.now_ms - seen, 0).astype(np.float64)
    owed_ms, tempo = owed_since(before, groups), tempo_of(facts, before, how)
    most = float("inf") if memory is None else float(memory)
    given = Situation(facts, groups, census, owners, idle_ms, output, most, how, owed_ms, tempo)
    evened = unchanged(given, before)
    if facts.repeated is not None:
        decided = Decided(facts.repeated)
    else:
        decided = decide(given)
        if not decided.events:
            evened = even_out(given, before)
            pushed = joined((*decided.decision.pushed, *evened.pushed))
            decided = replace(
                decided, decision=replace(decided.decision, pushed=pushed), events=evened.events
            )
    decision, events = decided.decision, decided.events
    after = after_decision(facts, groups, census, decision)
    return BudgetPlan(
        facts.inputs,
        memory or 0,
        how.groups,
        tuple(evened.owners.tolist()),
        heavy=heavy,
        seen_ms=tuple(seen.tolist()),
        output=tuple(output.astype(np.int64).tolist()),
        borders=tuple(after.pushed.borders.tolist()),
        pushed_rows=tuple(after.pushed.rows_of.sum(axis=0).tolist()),
        pushed_bytes=tuple(after.pushed.bytes.astype(np.int64).tolist()),
        pushed_of=tuple(tuple(mine) for mine in after.pushed.rows_of.tolist()),
        met=tuple(after.pushed.met.tolist()),
        pushed=decision.pushed,
        paid=decision.paid,
        parts=decision.parts,
        loads=tuple(after.load(np.flatnonzero(evened.owners == task)) for task in range(facts.tasks)),
        events=(*(before.events if before else ()), *events)[-EVENTS_KEPT:],
        moved_ms=evened.moved_ms,
        sampled_ms=evened.sampled_ms,
        sampled=evened.sampled,
        forced_bytes=evened.forced_bytes,
        owed_ms=tuple(_owed(given, after, decision, decided.clear).tolist()),
        owed_rows=tuple(after.owed_rows.tolist()),
        most_owed=tuple(map(int, after.most_owed)),
        slice_bytes=tempo.slice_bytes if tempo else 0,
        slow_ms=tempo.limit_ms if tempo else 0,
    )


def _owed(given: Situation, after: After, decision: Decision, clear: Sequence[int]) -> Indices:
    """Since when each group owes results: what was paid as a whole owes only what came since."""
    since = given.owed_ms.copy()
    since[list(clear)] = 0
    for paid in (decision.paid, joined(cells.range for cells in decision.parts if cells.is_last)):
        since[cover(given.groups, paid)[0]] = 0
    return np.where(after.owing, np.where(since > 0, since, given.facts.now_ms), 0)


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


def _owners(groups: Groups, tasks: int, before: BudgetPlan | None, how: Pushing) -> Indices:
    """The task of each group: that of the batch before, else neighbours have one task, each about as many keys."""
    if before is None or len(before.loads) != tasks:
        if len(how.first_shares) == tasks:
            ends = np.cumsum(how.first_shares) / sum(how.first_shares)
            return np.searchsorted(ends[:-1], [one.low / KEY_SPACE for one in groups], side="right")
        return np.array([one.low * tasks // KEY_SPACE for one in groups], np.int64)
    lows = np.array([one.low for one in before.groups], np.uint64)
    at = np.searchsorted(lows, np.array([one.low for one in groups], np.uint64), side="right") - 1
    return np.array(before.owners, np.int64)[at]


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


def stretches(groups: Groups, owners: Sequence[int], task: int) -> list[KeyRange]:
    """The ranges of a task's groups, neighbours joined."""
    return list(joined(one for one, owner in zip(groups, owners, strict=True) if owner == task))
