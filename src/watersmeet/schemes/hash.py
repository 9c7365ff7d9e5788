"""Every task joins one equal share of the order keys.

Order keys are mixed, so equal widths are equal shares unless a key is heavy. Runs still list their hot keys, so that
the query can be restarted as a hypercube.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.model.facts import KeyRange, SchemePlan
from watersmeet.model.signature import MOST_INPUTS
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.hypercube.hot_keys import HotKeys, list_hot_keys
from watersmeet.schemes.scheme import BatchFacts, NewRun, Scheme, Share, Slice, check_ranges, share_of


@dataclass(frozen=True, slots=True)
class HashPlan(SchemePlan):
    """The range of order keys of each task, the same for all inputs."""

    kind: ClassVar[str] = "hash"
    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class Hash(Scheme[HashPlan]):
    name: ClassVar[str] = "hash"
    plan_type = HashPlan
    stats_type = HotKeys
    most_inputs = MOST_INPUTS

    def describe(self, run: NewRun, tasks: int) -> HotKeys:
        return list_hot_keys(run, tasks)

    def plan(self, facts: BatchFacts) -> HashPlan:
        return HashPlan(even_ranges(facts.tasks))

    def shares(self, plan: HashPlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        rows = Slice(plan.ranges[task])
        yield tuple(share_of(name, rows) for name in inputs)

    def check(self, plan: HashPlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)
