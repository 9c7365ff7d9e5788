"""Every task extends its part of the fresh rows through all that is stored: for joins of many inputs on different keys.

The inputs have an order. For each input with fresh rows there is a *term*: its fresh rows, all rows of the inputs before
it and the old rows of those behind it (kernel/walk.py). The fresh rows of a term are dealt out to the tasks one by one,
like cards, so the rows of a hot key go to all tasks alike. The other inputs are not shared out: every task can read
everything, and reads only what its rows lead to.

Balance is not guaranteed where single fresh rows have very many results: the results of a row stay with its task. And
tasks look up the same keys where many fresh rows share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import MOST_INPUTS, Order, SchemePlan
from watersmeet.schemes.scheme import BatchFacts, Deal, InputShare, Scheme, SchemeRequest, Share, Shown, Slice

_EVERYTHING = Slice()


@dataclass(frozen=True, slots=True)
class DeltaPlan(SchemePlan):
    """The order of the inputs, for the terms of this batch."""

    kind: ClassVar[str] = "delta"
    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Delta(Scheme[DeltaPlan]):
    name: ClassVar[str] = "delta"
    plan_type = DeltaPlan

    orders = (Order.HASH, Order.VALUE, Order.ARRIVAL)
    needs = "a condition as text that joins all inputs"
    most_inputs = MOST_INPUTS

    # The arrangements of each input, in the order of the inputs.
    arrangements: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def make(cls, request: SchemeRequest) -> Delta:
        assert request.arrangements is not None
        return cls(request.arrangements)

    def plan(self, facts: BatchFacts) -> DeltaPlan:
        return DeltaPlan(tuple(name for name, _ in self.arrangements))

    def shares(self, plan: DeltaPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        stored = dict(self.arrangements)
        for place, start in enumerate(plan.order):
            mine = InputShare(stored[start][0], Slice(deal=Deal(task, tasks)), None)
            before, behind = plan.order[:place], plan.order[place + 1 :]
            others = [InputShare(one, _EVERYTHING, _EVERYTHING) for name in before for one in stored[name]]
            others += [InputShare(one, None, _EVERYTHING) for name in behind for one in stored[name]]
            yield (mine, *others)

    def check(self, plan: DeltaPlan, tasks: int) -> None:
        """Check that each term takes every fresh row once, and that of two fresh rows one term takes both."""
        stored = dict(self.arrangements)
        assert sorted(plan.order) == sorted(stored), f"the order {plan.order} is not one of all inputs"
        owner = {one: name for name, arranged in self.arrangements for one in arranged}
        terms: dict[str, list[Share]] = {}
        for share in (share for task in range(tasks) for share in self.shares(plan, (), task, tasks)):
            terms.setdefault(owner[share[0].input], []).append(share)
        assert set(terms) == set(stored), "an input has no term"
        for start, shares in terms.items():
            dealt = np.zeros(3 * tasks + 1, np.int64)
            for first, *others in shares:
                assert first.history is None and first.fresh is not None and first.fresh.deal is not None
                dealt[first.fresh.deal.positions(0, len(dealt))] += 1
                assert {one.input for one in others} == {one for one in owner if owner[one] != start}
                assert all(one.history == _EVERYTHING for one in others), "a term leaves old rows out"
                with_fresh = {owner[one.input] for one in others if one.fresh == _EVERYTHING}
                without = {owner[one.input] for one in others if one.fresh is None}
                assert with_fresh | without == set(stored) - {start} and not with_fresh & without
                # Of two inputs with fresh rows exactly one term takes both.
                assert all(
                    any(one.fresh == _EVERYTHING for one in share[1:] if owner[one.input] == start)
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
        return Shown(f"delta: new rows of any of {len(plan.order)} inputs are looked up in the others")
