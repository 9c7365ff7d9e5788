"""The facts of a join under a budget of memory: its partition groups, and what each task has active, pushed and
owed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from watersmeet.model.facts import Cells, KeyRange, SchemePlan
from watersmeet.schemes.balance import even_ranges

Groups = tuple[KeyRange, ...]


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """What one task has after a batch's decision.

    `active` is the history that it may touch in the batch, `pushed` what it may not. `owed_rows` counts the rows, those
    of the batch too, in groups that have rows in two or more generations: only these owe results. `most_owed` are the
    results that they owe at most: all combinations of their rows that are not of one generation. They owe as many if all
    rows of a group have one key and pass the rest of the condition.
    """

    active_rows: int = 0
    active_bytes: int = 0
    pushed_rows: int = 0
    pushed_bytes: int = 0
    owed_rows: int = 0
    owing_groups: int = 0
    most_owed: int = 0


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A push, a payment or a relocation of one task: how many groups, their rows and bytes, and the reason in words."""

    batch: int
    at_ms: int
    task: int
    what: str
    groups: int
    rows: int
    bytes: int
    why: str


PUSHED, PAID, MOVED = "pushed", "paid", "moved"


@dataclass(frozen=True, slots=True)
class BudgetPlan(SchemePlan):
    """The partition groups, ascending, and the task that joins each.

    The groups are `equal` ranges of the order keys, cut at every heavy key.

    Of each group:
    - `seen_ms`: when its last row came. `output`: the results that are known of it.
    - `borders`: the pushed generations that it has rows of. `pushed_rows` and `pushed_bytes`: those of all of them
      together. `pushed_of`: the rows of each input.
    - `met`: the combinations of rows of one pushed generation, if all its rows had one key.
    - `owed_ms`: since when it owes results, 0 if it owes none. `owed_rows` and `most_owed`: as those of a `TaskLoad`.

    `pushed`, `paid` and `parts` are what this batch decides, and `events` the last decisions, oldest first. `moved_ms`
    is when groups last went from one task to another. `sampled` is the output of each task at `sampled_ms`, and
    `forced_bytes` were pushed by tasks that were within their budget (adapt.py). If the join defers, `slice_bytes` is
    what a task pays in a batch that has time, and `slow_ms` how long a batch may take.
    """

    kind: ClassVar[str] = "budget"
    inputs: tuple[str, ...]
    memory: int
    equal: int
    owners: tuple[int, ...]
    heavy: tuple[int, ...] = ()
    seen_ms: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    borders: tuple[int, ...] = ()
    pushed_rows: tuple[int, ...] = ()
    pushed_bytes: tuple[int, ...] = ()
    pushed: tuple[KeyRange, ...] = ()
    paid: tuple[KeyRange, ...] = ()
    loads: tuple[TaskLoad, ...] = ()
    events: tuple[Adaptation, ...] = ()
    moved_ms: int = 0
    pushed_of: tuple[tuple[int, ...], ...] = ()
    met: tuple[int, ...] = ()
    parts: tuple[Cells, ...] = ()
    sampled_ms: int = 0
    sampled: tuple[int, ...] = ()
    forced_bytes: int = 0
    owed_ms: tuple[int, ...] = ()
    owed_rows: tuple[int, ...] = ()
    most_owed: tuple[int, ...] = ()
    slice_bytes: int = 0
    slow_ms: int = 0

    @property
    def groups(self) -> Groups:
        return groups_of(self.equal, self.heavy)


def groups_of(equal: int, heavy: Iterable[int]) -> Groups:
    """Equal ranges of the order keys, cut at heavy keys: each of those is a group of its own.

    >>> [(one.low >> 61, one.high - one.low == 1) for one in groups_of(2, [6 << 61])]
    [(0, False), (4, False), (6, True), (6, False)]
    """
    return _groups(equal, tuple(heavy))


@lru_cache(maxsize=16)
def _groups(equal: int, heavy: tuple[int, ...]) -> Groups:
    """Kept: a plan asks for its groups again and again, and they seldom change."""
    ends = {one.high for one in even_ranges(equal)} | {bound for key in heavy for bound in (key, key + 1)}
    return tuple(itertools.starmap(KeyRange, itertools.pairwise(sorted({0, *ends}))))
