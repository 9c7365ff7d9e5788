"""Decide what a batch pushes and pays under a budget of memory, and say why.

A task that is over its budget pushes, and does not pay in the same batch. A task with room pays: whole groups, the
smallest first, then as many keys of the next group as fit, or a part of one key.

With `pay_within` debts fall due. A task pays them, the oldest first, from all that the batch leaves of its budget:
without new rows that is the whole budget. Their rows need not stay active. What has no room is pushed again at once, as
one generation, which owes nothing until new rows come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from watersmeet.model.facts import Cells, KeyRange
from watersmeet.model.figures import duration as shown_ms
from watersmeet.model.figures import size as shown_size
from watersmeet.model.ranges import Ranges, intersected, joined
from watersmeet.schemes.budget.after import Mask, cover
from watersmeet.schemes.budget.census import Census
from watersmeet.schemes.budget.facts import PAID, PUSHED, Adaptation, Groups
from watersmeet.schemes.budget.policy import (
    IDLE_MS,
    Amounts,
    Candidates,
    Indices,
    Pushing,
    PushPolicy,
    Room,
    choose_paid,
    choose_pushed,
    room_to_pay,
)
from watersmeet.schemes.budget.slices import cut_slice, in_debt, next_cells
from watersmeet.schemes.budget.tempo import Tempo
from watersmeet.schemes.scheme import BatchFacts, Decision


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision is made from: the groups and their owners, what each has, how long it is idle, its output.

    `owed_ms` is since when each group owes results, 0 if it owes none. `tempo` is given if the join defers.
    """

    facts: BatchFacts
    groups: Groups
    census: Census
    owners: Indices
    idle_ms: Amounts
    output: Amounts
    memory: float
    how: Pushing
    owed_ms: Indices
    tempo: Tempo | None = None

    @property
    def due(self) -> Mask:
        """The groups that have owed results for too long."""
        within_ms = self.how.pay_within_ms
        late: Mask = (self.owed_ms > 0) & (self.facts.now_ms - self.owed_ms >= within_ms)
        return late if within_ms else np.zeros_like(late)

    def is_idle(self, mine: Indices) -> bool:
        """Whether the batch has no row for some groups: then nothing of their history is read."""
        return not self.census.fresh_rows[mine].any()

    def ranges(self, chosen: Indices) -> Ranges:
        return joined(self.groups[place] for place in chosen.tolist())


@dataclass(slots=True)
class _Decided:
    """What has been decided so far, task by task."""

    pushed: list[KeyRange] = field(default_factory=list)
    paid: list[KeyRange] = field(default_factory=list)
    parts: list[Cells] = field(default_factory=list)
    events: list[Adaptation] = field(default_factory=list)
    # Groups that were due and turned out to owe nothing: no key of them has rows of two generations.
    clear: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decided:
    """The keys to push and to pay, and why. Groups that are `clear` owe nothing as they are."""

    decision: Decision
    events: Sequence[Adaptation] = ()
    clear: Sequence[int] = ()


def decide(given: Situation) -> Decided:
    """The keys to push and to pay, and why."""
    found = _Decided()
    _, covered = cover(given.groups, owing(given.facts))
    empty = covered & (given.census.pushed_rows == 0)
    for task in range(given.facts.tasks):
        mine = np.flatnonzero(given.owners == task)
        if not _push(given, task, mine, found) and not _pay(given, task, mine, found):
            # A group that was cut may have a part of which nothing was pushed: its border goes, for nothing.
            found.paid += given.ranges(_readable(given, mine, mine[empty[mine]]))
    decision = Decision(joined(found.pushed), joined(found.paid), tuple(found.parts))
    return Decided(decision, found.events, found.clear)


def _readable(given: Situation, mine: Indices, wanted: Indices) -> Indices:
    """The groups of a task, of some that it wants to pay, whose rows it can read within its budget."""
    census, idle = given.census, given.is_idle(mine)
    read = np.zeros_like(census.active_bytes) if idle else census.active_bytes
    costs = (census.current_bytes - read)[wanted]
    cheapest = np.argsort(costs, kind="stable")
    fit = np.cumsum(costs[cheapest]) <= given.memory - float(read[mine].sum())
    return wanted[cheapest[fit]]


def owing(facts: BatchFacts) -> Ranges:
    """The keys that some push has set rows aside of."""
    return joined(range_ for push in facts.pushes for range_ in push.ranges)


def _push(given: Situation, task: int, mine: Indices, found: _Decided) -> bool:
    """Push groups of a task that is over its budget, or slow; whether it is."""
    slow = given.tempo is not None and given.tempo.is_slow(task) and not given.is_idle(mine)
    return _push_share(given, task, mine, found, within_budget=slow)


def _push_share(
    given: Situation,
    task: int,
    mine: Indices,
    found: _Decided,
    *,
    within_budget: bool,
    why: str | None = None,
) -> bool:
    """Push the share of a task that is over its budget, or also of one that is not; whether there is something."""
    census, how = given.census, given.how
    active = census.active_of[:, mine]
    candidates = Candidates(active, given.output[mine], given.idle_ms[mine])
    chosen = mine[choose_pushed(candidates, given.memory, how, given.facts.batch, slow=within_budget)]
    if not len(chosen):
        return False
    found.pushed += given.ranges(chosen)
    idle = int((given.idle_ms[chosen] > IDLE_MS).sum())
    why = why or _why_pushed(given, task, float(active.sum()), idle)
    rows, size = census.current_rows[chosen].sum(), census.current_bytes[chosen].sum()
    found.events.append(event_of(given.facts, task, PUSHED, len(chosen), rows, size, why))
    return True


def _pay(given: Situation, task: int, mine: Indices, found: _Decided) -> bool:
    """Pay what is due, else other debts of a task that has room; whether it looked for something to pay."""
    census, tempo = given.census, given.tempo
    active = census.active_bytes[mine]
    due = mine[given.due[mine] & (census.borders[mine] > 0)]
    if len(due):
        _pay_due(given, task, mine, due, found)
        return True
    room = room_to_pay(float(active.sum()), given.memory, given.how)
    most = room.touched
    if tempo is not None:
        # Without knowing that there is time, nothing is paid before it is due.
        room = Room(min(room.stays, tempo.slice_bytes), min(room.touched, tempo.slice_bytes))
        room = room if tempo.is_quick else Room(0.0, 0.0)
    if room.touched <= 0:
        return False
    debts = np.where(census.borders[mine] > 0, census.pushed_bytes[mine], 0.0)
    # Of a group that owes, a payment also reads what no fresh row can reach.
    debts += np.where(debts > 0, census.current_bytes[mine] - active, 0.0)
    # A key that is paid in cells goes on so until all are paid, before others begin.
    begun = [cells.range for cells in given.facts.paying if _owner(given, cells.range) == task]
    _, busy = cover(given.groups, joined(begun))
    spent, groups = 0.0, 0
    for place in np.flatnonzero(busy).tolist():
        more = _pay_some(given, task, place, room.less(spent), most - spent, found)
        spent, groups = spent + more, groups + (more > 0)
    size = spent
    whole, next_ = choose_paid(np.where(busy[mine], 0.0, debts), room.less(spent).touched)
    paid = mine[whole]
    found.paid += given.ranges(paid)
    spent, groups = spent + float(debts[whole].sum()), groups + len(paid)
    rows, size = int(census.pushed_rows[paid].sum()), size + float(census.pushed_bytes[paid].sum())
    if next_ is not None:
        more = _pay_some(given, task, int(mine[next_]), room.less(spent), most - spent, found)
        spent, size, groups = spent + more, size + more, groups + (more > 0)
    if groups:
        why = f"{shown_size(float(active.sum()))} active, there is room"
        if tempo is not None and tempo.slowest_ms is not None:
            why = f"the batch before took {shown_ms(tempo.slowest_ms)}, there is time"
        found.events.append(event_of(given.facts, task, PAID, groups, rows, size, why))
    return groups > 0


def _pay_due(given: Situation, task: int, mine: Indices, due: Indices, found: _Decided) -> None:
    """Pay debts that are due, the oldest first, from what the batch leaves of the budget."""
    census, tempo, idle = given.census, given.tempo, given.is_idle(mine)
    active = float(census.active_bytes[mine].sum())
    left = most = given.memory - (0.0 if idle else active)
    if tempo is not None:
        left = min(left, tempo.slice_bytes)
    # A payment reads all rows of a group; if the batch has rows for the task, the active ones count already.
    costs = census.pushed_bytes + census.current_bytes - (0.0 if idle else census.active_bytes)
    # The room that a later batch has, after a push or without new rows. A group that fits there waits, and is not cut for
    # the little that is left now.
    later = 0.0 if tempo is not None else given.memory if idle else given.how.share * given.memory
    spent, whole, waits = 0.0, list[int](), False
    for place in due[np.lexsort((due, costs[due], given.owed_ms[due]))].tolist():
        cost = float(costs[place])
        if spent + cost <= left and not _is_begun(given, place):
            whole.append(place)
            spent += cost
            continue
        if cost <= later and not _is_begun(given, place):
            waits = True
            continue
        more = _pay_some(given, task, place, Room(left - spent, left - spent), most - spent, found)
        spent += more
        if more:
            break
    if waits and not spent:
        why = "debts are due and need room"
        _push_share(given, task, mine, found, within_budget=True, why=why)
        return
    paid = np.array(whole, np.int64)
    found.paid += given.ranges(paid)
    keep = room_to_pay(active, given.memory, given.how).stays
    again = bool(whole) and float(census.pushed_bytes[paid].sum()) > keep
    if again:
        found.pushed += given.ranges(paid)
    groups = len(whole) + (spent > float(costs[paid].sum()))
    if groups:
        since_ms = given.facts.now_ms - int(given.owed_ms[due].min())
        why = f"owed for {shown_ms(since_ms)}, due{', then pushed again' if again else ''}"
        rows = int(census.pushed_rows[paid].sum())
        found.events.append(event_of(given.facts, task, PAID, groups, rows, spent, why))


def _is_begun(given: Situation, place: int) -> bool:
    """Whether a key of a group is being paid in cells."""
    return any(cells.range.low in given.groups[place] for cells in given.facts.paying)


def _pay_some(
    given: Situation, task: int, place: int, room: Room, most_bytes: float, found: _Decided
) -> float:
    """Pay some keys of a group, or cells of one key; the bytes that this touches.

    One cell may touch more than there is time for, but not more than `most_bytes`, for which there is memory.
    """
    facts, generations = given.facts, given.census.found
    mine = given.ranges(np.array([place]))
    idle = given.is_idle(np.flatnonzero(given.owners == task))
    begun = joined(cells.range for cells in facts.paying)
    keys: Sequence[KeyRange] = intersected(begun, mine)
    if not keys:
        debts = in_debt(facts, generations, intersected(owing(facts), mine))
        if not debts and given.due[place]:
            found.clear.append(place)
            return 0.0
        # Else its rows become active again, which costs as much.
        debts = debts or intersected(owing(facts), mine)
        slice_ = cut_slice(facts, generations, debts, room.touched, all_=idle)
        if slice_.ranges:
            found.paid += slice_.ranges
            return slice_.bytes
        assert slice_.key is not None, "a slice has keys that fit, or one that does not"
        if slice_.key_bytes <= room.stays:
            found.paid.append(slice_.key)
            return slice_.key_bytes
        keys = (slice_.key,)
    # Cells stay as they are cut, and a later batch may have less room.
    cell_bytes = min(room.touched, given.how.paid_share * given.memory)
    if given.tempo is not None:
        cell_bytes = min(cell_bytes, given.tempo.cell_bytes)
    for key in keys:
        chosen = next_cells(facts, generations, key, room.touched, cell_bytes, most_bytes)
        if isinstance(chosen, KeyRange):
            found.pushed.append(chosen)
            found.events.append(event_of(facts, task, PUSHED, 1, 0, 0.0, "one key, to be paid in parts"))
        elif chosen is not None:
            cells, size = chosen
            found.parts.append(cells)
            return size
    return 0.0


def _owner(given: Situation, key: KeyRange) -> int:
    lows = np.array([one.low for one in given.groups], np.uint64)
    return int(given.owners[int(np.searchsorted(lows, np.uint64(key.low), side="right")) - 1])


def event_of(
    facts: BatchFacts, task: int, what: str, groups: int, rows: np.int64 | int, size: float, why: str
) -> Adaptation:
    return Adaptation(facts.batch, facts.now_ms, task, what, groups, int(rows), int(size), why)


def _why_pushed(given: Situation, task: int, active: float, idle: int) -> str:
    how, tempo = given.how, given.tempo
    first = f"{idle} idle, then {how.policy}" if idle and how.policy == PushPolicy.LOW_OUTPUT else how.policy
    if active <= given.memory and tempo is not None and tempo.slowest_ms is not None:
        took_ms = tempo.took_ms.get(task, tempo.slowest_ms)
        return f"the batch before took {shown_ms(took_ms)}, more than {shown_ms(tempo.limit_ms)} ({first})"
    return f"{shown_size(active)} active, over the budget ({first})"
