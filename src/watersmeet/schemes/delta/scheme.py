"""Every task extends its part of the fresh rows through all that is stored: for joins of many inputs on different keys.

The inputs have an order. For each input with fresh rows there is a *term*: its fresh rows, all rows of the inputs
before it and the old rows of those behind it (kernel/walk.py). The fresh rows of a term are dealt out to the tasks one
by one, like cards, so the rows of a hot key go to all tasks alike. The other inputs are not shared out: every task can
read everything, and reads only what its rows lead to.

A term also has an order of its own, in which its rows are extended through the other inputs, where that needs foresight
(schemes/delta/orders.py). It is decided for each batch, from a sample of the batch's own fresh rows, and the manifest
names it: tasks and attempts of a batch walk alike. The tallies of the batch before say what the last decision came to.

The results of a fresh row that is dealt like a card stay with its task. Where tallies say that fresh rows have much
work, and there are many tasks, the rows of a term are dealt late instead, by work (kernel/late.py). Without tallies, in
the first batch of a term for instance, balance is not guaranteed. Tasks look up the same keys where fresh rows share
them.

On remote state a task may get a part of the keys, and reads the arrangements only there (schemes/delta/shares.py). The
tasks of one part then share out fresh rows as all tasks do otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import SchemePlan
from watersmeet.model.figures import size
from watersmeet.model.signature import MOST_INPUTS, Order
from watersmeet.model.tally import TaskTally, TermTally, total_terms
from watersmeet.model.walks import FanOut, KeyCut, WalkGraph
from watersmeet.schemes.delta.orders import (
    OrderChange,
    TermOrder,
    decide_order,
    needs_foresight,
    wants_sample,
)
from watersmeet.schemes.delta.shares import KeyShares, check_cells, choose_shares, predict_reading, range_of
from watersmeet.schemes.scheme import (
    BatchFacts,
    Deal,
    InputShare,
    LateShare,
    Scheme,
    SchemeRequest,
    Share,
    Shown,
    Slice,
)

# With fewer tasks each has enough fresh rows for an even deal.
_LEAST_LATE_TASKS = 8
# All tasks look up all fresh rows of a term that is dealt late. A fresh row must have this many times as much work as
# there are tasks, so that this adds a few per cent; less if the tasks of the batch before were uneven, as more is
# gained.
_LATE_WORK, _LATE_WORK_IF_UNEVEN = 20, 4
# Work of the busiest task, over the mean, that is uneven: what the join is to stay below.
_UNEVEN = 1.25
# Tallies that must be known to tell.
_LEAST_TALLIES = 4
# A term is dealt late until its work falls to this many times the tasks: near a border it would change at every batch.
_LATE_UNTIL = 2

# Changes of order that a plan remembers, for the status.
_KEPT_CHANGES = 8


@dataclass(frozen=True, slots=True)
class LateTerm:
    """A term whose fresh rows are dealt late: `room_rows` may be bound alike by all tasks before."""

    start: str
    room_rows: int


@dataclass(frozen=True, slots=True)
class DeltaPlan(SchemePlan):
    """The order of the inputs, for the terms of this batch, and the order of each term that has one.

    `changes` are the latest decisions, newest last. The fresh rows of `late` terms are dealt on the way
    (kernel/late.py). `shares` give each task a part of the keys; without them every task has all.
    """

    kind: ClassVar[str] = "delta"
    order: tuple[str, ...]
    terms: tuple[TermOrder, ...] = ()
    changes: tuple[OrderChange, ...] = ()
    late: tuple[LateTerm, ...] = ()
    shares: KeyShares | None = None

    def then(self, start: str) -> tuple[str, ...]:
        """The order of a term; empty if the kernel goes by its counts."""
        return next((term.then for term in self.terms if term.start == start), ())


@dataclass(frozen=True, slots=True)
class Delta(Scheme[DeltaPlan]):
    name: ClassVar[str] = "delta"
    plan_type = DeltaPlan

    orders = (Order.HASH, Order.VALUE, Order.ARRIVAL)
    needs = "a condition as text that joins all inputs"
    most_inputs = MOST_INPUTS
    weighs_tallies = True
    walks = True

    # The arrangements of each input, in the order of the inputs.
    arrangements: tuple[tuple[str, tuple[str, ...]], ...]
    # How they are found from each other. Without it no term gets an order.
    graph: WalkGraph | None = None

    @classmethod
    def make(cls, request: SchemeRequest) -> Delta:
        assert request.partners.arrangements is not None
        return cls(request.partners.arrangements, request.partners.graph)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.arrangements)

    def plan(self, facts: BatchFacts) -> DeltaPlan:
        before = facts.plan_before(DeltaPlan)
        known = {term.start: term for term in before.terms} if before else {}
        late_before = [one.start for one in before.late] if before else []
        seen_by = {name: self._seen_by(name, before, facts.tasks) for name in self.inputs}
        tallies = _terms(facts.tallies, seen_by)
        shares = self._shares(before, facts)
        hands = shares.hands(facts.tasks) if shares else facts.tasks
        terms, changes = [], list(before.changes if before else ())
        for start in self.inputs:
            if self.graph is None or not needs_foresight(self.graph, start, self.inputs):
                continue
            was = known.get(start, TermOrder(start))
            tally = tallies.get(start)
            # A sample reads everything, and with shares no task is to do that: the order stays as it is.
            samples = shares is None and wants_sample(was, tally, facts.batch)
            found = self._sample(start, facts) if samples else ()
            now, kept = decide_order(self.graph, was, self.inputs, found, tally, facts.batch)
            terms.append(now)
            changes = _noted(changes, was, now, kept, facts.batch)
        late = tuple(
            LateTerm(start, self._room_rows(start, tallies.get(start), facts))
            for start in self.inputs
            if deals_late(
                [term.work for one in facts.tallies for term in one.terms if term.start == start],
                tallies.get(start),
                start in late_before,
                hands,
            )
        )
        return DeltaPlan(self.inputs, tuple(terms), tuple(changes[-_KEPT_CHANGES:]), late, shares)

    @property
    def _keyed(self) -> Mapping[str, int]:
        """The edge that each arrangement is sorted by the key of, of those that are."""
        return dict(self.graph.keyed) if self.graph else {}

    def _shares(self, before: DeltaPlan | None, facts: BatchFacts) -> KeyShares | None:
        """The shares of the keys. Local files are mapped: what several tasks read is in memory once."""
        if self.graph is None or not facts.remote:
            return None
        runs = (*facts.reachable, *facts.fresh)
        reading = predict_reading(runs, self._keyed, len(self.graph.edges), facts.tasks)
        known = before.shares if before else None
        if known is not None and facts.tallies:
            known = replace(known, measured_bytes=max(tally.touched_bytes for tally in facts.tallies))
        return choose_shares(known, reading, facts.tasks, facts.batch, facts.limits)

    def _seen_by(self, start: str, plan: DeltaPlan | None, tasks: int) -> int:
        """How many tasks have seen each fresh row of a term."""
        if plan is None:
            return 1
        cells, side = 1, 1
        if plan.shares is not None:
            edge = self._keyed.get(dict(self.arrangements)[start][0])
            cells, side = plan.shares.cells, 1 if edge is None else plan.shares.sides[edge]
        late = any(one.start == start for one in plan.late)
        return cells // side * (max(1, tasks // cells) if late else 1)

    def _room_rows(self, start: str, tally: TermTally | None, facts: BatchFacts) -> int:
        """What all tasks may bind alike: a part of the work that each of them is expected to have in this batch."""
        if tally is None or not tally.fresh_rows:
            return 0
        stored = dict(self.arrangements)[start][0]
        fresh_rows = sum(run.rows for run in facts.fresh if run.input == stored)
        return int(facts.limits.repeated_part * tally.work / tally.fresh_rows * fresh_rows / facts.tasks)

    def _sample(self, start: str, facts: BatchFacts) -> Sequence[FanOut]:
        """The fan-outs of a term, if there is something to look up and it is worth a sample."""
        first = {name: stored[0] for name, stored in self.arrangements}
        fresh_rows = sum(run.rows for run in facts.fresh if run.input == first[start])
        # Of the inputs behind the start a term takes old rows only.
        up_to = self.inputs[: self.inputs.index(start) + 1]
        taken = {one for name, stored in self.arrangements if name in up_to for one in stored}
        fresh = [run for run in facts.fresh if run.input in taken]
        there = {run.input for run in (*facts.reachable, *fresh)}
        if facts.fan_outs_of is None or fresh_rows < facts.limits.least_sampled_rows:
            return ()
        if not all(first[name] in there for name in self.inputs):
            return ()
        return facts.fan_outs_of(start, fresh, facts.reachable)

    def shares(self, plan: DeltaPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        stored, keyed = dict(self.arrangements), self._keyed
        cuts, hand = plan.shares.place(task) if plan.shares else ((), task)
        hands = plan.shares.hands(tasks) if plan.shares else tasks
        needed = {one: range_of(cuts, keyed.get(one)) for arranged in stored.values() for one in arranged}
        for place, start in enumerate(plan.order):
            first = stored[start][0]
            mine = InputShare(first, Slice(needed[first], deal=Deal(hand, hands)), None, cuts=cuts)
            for late in plan.late:
                if late.start == start:
                    dealt = LateShare(hand, hands, late.room_rows)
                    mine = InputShare(first, Slice(needed[first]), None, late=dealt, cuts=cuts)
            rank: Mapping[str, int] = {name: number for number, name in enumerate(plan.then(start))}
            before, behind = plan.order[:place], plan.order[place + 1 :]
            others = [
                InputShare(
                    one, Slice(needed[one]) if name in before else None, Slice(needed[one]), rank.get(name)
                )
                for name in (*before, *behind)
                for one in stored[name]
            ]
            yield (mine, *others)

    def check(self, plan: DeltaPlan, tasks: int) -> None:
        """Check that each term takes every fresh row once, and that of two fresh rows one term takes both.

        Under shares that holds for each cell, and the cells hold every combination of keys once.
        """
        stored = dict(self.arrangements)
        assert sorted(plan.order) == sorted(stored), f"the order {plan.order} is not one of all inputs"
        for term in plan.terms:
            named = sorted((term.start, *term.then))
            assert not term.then or named == sorted(stored), f"the order {term} is not one of all inputs"
        cells: dict[tuple[KeyCut, ...], list[int]] = {}
        for task in range(tasks):
            (cuts,) = {share[0].cuts for share in self.shares(plan, (), task, tasks)}
            cells.setdefault(cuts, []).append(task)
        if plan.shares is not None:
            check_cells(plan.shares, list(cells), len(self.graph.edges) if self.graph else 0)
        for cuts, mine in cells.items():
            self._check_cell(plan, cuts, mine, tasks)

    def _check_cell(self, plan: DeltaPlan, cuts: tuple[KeyCut, ...], cell: Sequence[int], tasks: int) -> None:
        """Check the tasks of one cell: their rows have all keys of it, and each combination is in one task."""
        stored = dict(self.arrangements)
        owner = {one: name for name, arranged in self.arrangements for one in arranged}
        whole = {one: Slice(range_of(cuts, self._keyed.get(one))) for one in owner}
        terms: dict[str, list[Share]] = {}
        for share in (share for task in cell for share in self.shares(plan, (), task, tasks)):
            terms.setdefault(owner[share[0].input], []).append(share)
        assert set(terms) == set(stored), "an input has no term"
        for start, shares in terms.items():
            dealt = np.zeros(3 * tasks + 1, np.int64)
            for first, *others in shares:
                assert first.history is None and first.fresh is not None
                assert replace(first.fresh, deal=None) == whole[first.input], "fresh rows are left out"
                assert (first.late is None) == (first.fresh.deal is not None), "fresh rows are not dealt once"
                assert (first.late is not None) == (start in {one.start for one in plan.late}), (
                    "tasks deal a term differently"
                )
                late = None if first.late is None else Deal(first.late.hand, first.late.of)
                deal = first.fresh.deal or late
                assert deal is not None and deal.of == len(cell)
                dealt[deal.positions(0, len(dealt))] += 1
                assert {one.input for one in others} == {one for one in owner if owner[one] != start}
                assert all(one.history == whole[one.input] for one in others), "a term leaves old rows out"
                with_fresh = {owner[one.input] for one in others if one.fresh == whole[one.input]}
                without = {owner[one.input] for one in others if one.fresh is None}
                assert with_fresh | without == set(stored) - {start} and not with_fresh & without
                # Of two inputs with fresh rows exactly one term takes both.
                assert all(
                    any(one.fresh == whole[one.input] for one in share[1:] if owner[one.input] == start)
                    for other in without
                    for share in terms[other]
                ), "two fresh rows meet in no term"
                assert all(
                    all(one.fresh is None for one in share[1:] if owner[one.input] == start)
                    for other in with_fresh
                    for share in terms[other]
                ), "two fresh rows meet in two terms"
            assert (dealt == 1).all(), "a fresh row is dealt to no task, or to two"

    @classmethod
    def show(cls, plan: DeltaPlan, inputs: Sequence[str]) -> Shown:
        summary = f"delta: new rows of any of {len(plan.order)} inputs are looked up in the others"
        if plan.shares is not None:
            summary += f", keys cut into {' x '.join(map(str, plan.shares.sides))} shares"
        rows = tuple(
            (term.start, " ".join(term.then) or "by counts", *map(_figure, (term.predicted, term.measured)))
            for term in plan.terms
        )
        return Shown(summary, ("new rows of", "go through", "predicted", "measured"), rows, _events(plan))


def _terms(tallies: tuple[TaskTally, ...], seen_by: Mapping[str, int]) -> dict[str, TermTally]:
    """The work of some tasks by term, for as many fresh rows. `seen_by` is how many tasks have seen each row."""
    return {
        start: replace(term, fresh_rows=-(-term.fresh_rows // seen_by.get(start, 1)))
        for start, term in total_terms(tallies).items()
    }


def deals_late(works: Sequence[int], total: TermTally | None, before: bool, tasks: int) -> bool:
    """Whether the fresh rows of a term are dealt late, given the work of some tasks in the batch before.

    Without a tally it stays as it was.

    >>> [deals_late([work] * 8, TermTally("a", 8, 0, 8 * work), False, 16) for work in (300, 400)]
    [False, True]
    >>> deals_late([300] * 7 + [900], TermTally("a", 8, 0, 3000), False, 16)
    True
    """
    if tasks < _LEAST_LATE_TASKS:
        return False
    if total is None or not total.fresh_rows:
        return before
    uneven = len(works) >= _LEAST_TALLIES and max(works) * len(works) > _UNEVEN * sum(works)
    least = _LATE_UNTIL if before else _LATE_WORK_IF_UNEVEN if uneven else _LATE_WORK
    return total.work >= least * tasks * total.fresh_rows


def _noted(
    changes: Sequence[OrderChange], was: TermOrder, now: TermOrder, kept: float | None, batch: int
) -> list[OrderChange]:
    """The changes so far, the last one of this term with what it came to, and a new one if there is one."""
    found = list(changes)
    if found and now.measured is not None:
        for place, one in enumerate(found):
            if (one.start, one.batch, one.then_measured) == (was.start, batch - 1, None):
                found[place] = replace(one, then_measured=now.measured)
    if was.then != now.then:
        found.append(OrderChange(batch, now.start, was.then, now.then, kept, now.predicted, now.measured))
    return found


def _events(plan: DeltaPlan) -> tuple[tuple[str, str, str], ...]:
    decided = [] if plan.shares is None else [(plan.shares.batch, "keys", _shared(plan.shares))]
    decided += [(one.batch, one.start, _change(one)) for one in reversed(plan.changes)]
    newest_first = sorted(decided, key=lambda one: -one[0])
    return tuple((f"batch {batch}: ", of, text) for batch, of, text in newest_first)


def _shared(one: KeyShares) -> str:
    """What was decided, such as: cut into 4 x 2 shares, a task reads about 12.3 MB instead of 98.0 MB."""
    measured = "" if one.measured_bytes is None else f", measured {size(one.measured_bytes)}"
    return (
        f" cut into {' x '.join(map(str, one.sides))} shares, a task reads about {size(one.task_bytes)} instead of "
        f"{size(one.whole_bytes)}{measured}"
    )


def _change(one: OrderChange) -> str:
    after = " ".join(one.after) or "what has the fewest rows"
    predicted = f"predicted {_figure(one.predicted_after)} instead of {_figure(one.predicted_before)}"
    return (
        f" through {after}, {predicted}, measured {_figure(one.then_measured)} after {_figure(one.measured)}"
    )


def _figure(work: float | None) -> str:
    return "-" if work is None else f"{work:.3g}"
