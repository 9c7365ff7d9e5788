"""Even out tasks: move groups to the emptiest task, or have the task with the least output push some.

Source: Liu, Rundensteiner 2005 (State-intensive queries), sections 5.1 and 6. Both need the view over all tasks that a
plan has. Every task can read every run, so a move is a new owner, and nothing is copied.

- *Lazy-disk*: a task pushes only when it is over its own budget. If the tasks differ much in active state, groups move.
- *Active-disk*: besides, if the tasks have about as much active state, but one has far less output for each of its
  groups than another, it pushes groups though it is within its budget. That makes room for groups of the other.

Never two adaptations in one batch: a push or a payment changes what there is to balance. Groups that owe stay where
they are.

Active-disk pushes at most what the whole query lacks: its state, less the budgets of all tasks (the paper's Mq - Mc).
The paper estimates what the state will be at the end. A stream has no end, so here it is the state as it is. The bound
holds for all pushes of this kind together, until nothing is pushed any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.model.figures import size as shown_size
from watersmeet.model.ranges import Ranges
from watersmeet.schemes.budget.decide import Situation, event_of
from watersmeet.schemes.budget.facts import MOVED, PUSHED, Adaptation, BudgetPlan
from watersmeet.schemes.budget.policy import Amounts, Candidates, Disk, Indices, choose_least, choose_moved

# A task has far less output than another if it has less than this share of it. The paper names no value; the streams of
# its experiment differ by four.
LOW_OUTPUT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Evened:
    """The owners of the groups, what is pushed, why, and what the next plan must know of the adaptations so far.

    `sampled` is the output of each task at `sampled_ms`; `forced_bytes` were pushed by tasks within their budget.
    """

    owners: Indices
    pushed: Ranges = ()
    events: tuple[Adaptation, ...] = ()
    moved_ms: int = 0
    sampled_ms: int = 0
    sampled: tuple[int, ...] = ()
    forced_bytes: int = 0


def unchanged(given: Situation, before: BudgetPlan | None) -> Evened:
    """No adaptation of this kind in this batch."""
    now_ms = given.facts.now_ms
    forced = before.forced_bytes if before and given.facts.pushes else 0
    if before is None:
        return Evened(given.owners, moved_ms=now_ms, sampled_ms=now_ms)
    return Evened(given.owners, (), (), before.moved_ms, before.sampled_ms, before.sampled, forced)


def even_out(given: Situation, before: BudgetPlan | None) -> Evened:
    """What is due: a move, else a push by the task with the least output, or nothing."""
    same = unchanged(given, before)
    loads: Amounts = np.zeros(given.facts.tasks)
    np.add.at(loads, given.owners, given.census.active_bytes)
    least, most = int(loads.argmin()), int(loads.argmax())
    if loads[least] < given.how.balanced_share * loads[most]:
        return _moved(given, same, loads, least, most)
    return _forced(given, same) if given.how.disk == Disk.ACTIVE else same


def _moved(given: Situation, same: Evened, loads: Amounts, least: int, most: int) -> Evened:
    """Half of what the fullest task has more than the emptiest goes there, productive groups first."""
    facts, census = given.facts, given.census
    if facts.now_ms - same.moved_ms < given.how.move_every_ms:
        return same
    active, surplus = census.active_bytes, float(loads[most] - loads[least]) / 2
    chosen = choose_moved(active, given.output, (given.owners == most) & (census.borders == 0), surplus)
    if not len(chosen):
        return same
    owners = given.owners.copy()
    owners[chosen] = least
    why = f"to task {least}, which had {shown_size(float(loads[least]))} of {shown_size(float(loads[most]))}"
    rows, size = census.current_rows[chosen].sum(), active[chosen].sum()
    event = event_of(facts, most, MOVED, len(chosen), rows, size, why)
    return Evened(owners, (), (event,), facts.now_ms, facts.now_ms, (), same.forced_bytes)


def _forced(given: Situation, same: Evened) -> Evened:
    """The task with far less output than another pushes its share, but not more than the query lacks."""
    facts, census, how = given.facts, given.census, given.how
    if facts.now_ms - same.sampled_ms < how.move_every_ms and len(same.sampled) == facts.tasks:
        return same
    output = np.bincount(given.owners, given.output, facts.tasks)
    sampled = tuple(output.astype(np.int64).tolist())
    seen = Evened(given.owners, (), (), same.moved_ms, facts.now_ms, sampled, same.forced_bytes)
    if len(same.sampled) != facts.tasks:
        return seen
    groups = np.maximum(np.bincount(given.owners, minlength=facts.tasks), 1)
    rates = np.maximum(output - np.array(same.sampled), 0) / groups
    low, high = int(rates.argmin()), int(rates.argmax())
    state = float(census.current_bytes.sum() + census.pushed_bytes.sum())
    lacks = state - facts.tasks * given.memory - same.forced_bytes
    mine = np.flatnonzero(given.owners == low)
    active = census.active_of[:, mine]
    most = min(how.share * float(active.sum()), lacks)
    if rates[low] >= LOW_OUTPUT_SHARE * rates[high] or most <= 0:
        return seen
    candidates = Candidates(active, given.output[mine], given.idle_ms[mine])
    chosen = mine[choose_least(candidates, most, how, facts.batch)]
    if not len(chosen):
        return seen
    size = float(census.current_bytes[chosen].sum())
    why = f"{rates[low]:.0f} results a group, task {high} had {rates[high]:.0f} ({how.disk})"
    event = event_of(facts, low, PUSHED, len(chosen), census.current_rows[chosen].sum(), size, why)
    return Evened(
        given.owners,
        given.ranges(chosen),
        (event,),
        same.moved_ms,
        facts.now_ms,
        sampled,
        same.forced_bytes + int(size),
    )
