"""Keep up with the stream: push when batches are slow, and pay when they are quick again.

A join that *defers* has no budget of bytes, or one besides. A batch is slow if its slowest task takes longer than the
limit, which is the trigger interval or a time that the user gave. Then each slow task pushes its share of active state,
so that a burst is answered late instead of never. Borders and debts are those of a budget.

Time says how much to push, and it also says how much to pay. A payment begins small. While batches that pay are quick,
the next one is twice as large, and if one is slow, half as large. A batch that paid says nothing about pushing: its time
was that of the debts.

The times are those of tallies, so they are the join's own: to merge, read, find and hand over results. What Spark needs
before and after them is not known here. Without any tally nothing is decided (`took_ms` is None).
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.model.tally import TaskTally
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.schemes.budget.policy import Pushing
from watersmeet.schemes.scheme import BatchFacts

# What counts as slow if the query has no trigger interval: as long as people watch a display that does not move.
SLOW_MS = 10_000
# A batch is quick below this share of the limit: twice the work then still fits.
QUICK_SHARE = 0.5
# What a task pays first, before it is known how long that takes.
FIRST_SLICE_BYTES = 1 << 20
LEAST_SLICE_BYTES = 1 << 12
MOST_SLICE_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Tempo:
    """How long the batch before took, against what it may take, and the bytes that a task pays if there is time.

    `took_ms` is known of some tasks; `slowest_ms` is None if of none.
    """

    limit_ms: int
    took_ms: dict[int, float]
    paid: bool
    slice_bytes: int

    @property
    def cell_bytes(self) -> float:
        """What a part of a key may touch that is cut now: later there may be less time."""
        return max(self.slice_bytes / 16, LEAST_SLICE_BYTES)

    @property
    def slowest_ms(self) -> float | None:
        return max(self.took_ms.values(), default=None)

    def is_slow(self, task: int) -> bool:
        """Whether a task took too long to join. Of one without a tally the slowest is supposed."""
        took_ms = self.took_ms.get(task, self.slowest_ms)
        return took_ms is not None and not self.paid and took_ms > self.limit_ms

    @property
    def is_quick(self) -> bool:
        slowest_ms = self.slowest_ms
        return slowest_ms is not None and slowest_ms < QUICK_SHARE * self.limit_ms


def tempo_of(facts: BatchFacts, before: BudgetPlan | None, how: Pushing) -> Tempo | None:
    """The tempo of the batch before; None if the join does not defer."""
    if how.defer_ms is None:
        return None
    limit_ms = how.defer_ms or facts.trigger_ms or SLOW_MS
    took_ms = {tally.task: time_of(tally) for tally in facts.tallies}
    paid = before is not None and bool(before.paid or before.parts)
    slice_bytes = before.slice_bytes if before is not None and before.slice_bytes else FIRST_SLICE_BYTES
    tempo = Tempo(limit_ms, took_ms, paid, slice_bytes)
    if not paid or tempo.slowest_ms is None:
        return tempo
    if tempo.is_quick:
        slice_bytes = min(2 * slice_bytes, MOST_SLICE_BYTES)
    elif tempo.slowest_ms > limit_ms:
        slice_bytes = max(slice_bytes // 2, LEAST_SLICE_BYTES)
    return Tempo(limit_ms, took_ms, paid, slice_bytes)


def time_of(tally: TaskTally) -> float:
    """How long a task took, in milliseconds."""
    return tally.merging_ms + tally.reading_ms + tally.probing_ms + tally.emitting_ms
