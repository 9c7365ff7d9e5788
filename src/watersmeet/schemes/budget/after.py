"""What each partition group has once a batch has paid and pushed, from the census before it.

Groups that are paid or pushed as a whole are moved from one column to another. A group of which only some keys are
paid is counted again, by generation: its runs were opened to find out which keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.generations import NOT_HELD, Generations, generations_of
from watersmeet.model.ranges import Ranges, joined
from watersmeet.schemes.budget.census import Census, ExactCounts, Pushed, combinations, rows_by
from watersmeet.schemes.budget.facts import Groups, TaskLoad
from watersmeet.schemes.budget.policy import Amounts, Indices
from watersmeet.schemes.scheme import BatchFacts, Decision

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class After:
    """Rows and bytes of each group once a batch has paid and pushed. Lines of `_of` are inputs."""

    active_bytes: Amounts
    current_of: Indices
    pushed: Pushed
    fresh_of: Indices

    @property
    def owing(self) -> Mask:
        """The groups that have rows of two or more generations."""
        rows = (self.current_of + self.fresh_of).sum(axis=0)
        owing: Mask = self.pushed.borders + (rows > 0) > 1
        return owing

    @property
    def owed_rows(self) -> Indices:
        """The rows of each group that owes."""
        rows: Indices = (self.current_of + self.fresh_of + self.pushed.rows_of).sum(axis=0)
        return np.where(self.owing, rows, 0)

    @property
    def most_owed(self) -> ExactCounts:
        """The results that each group owes at most: no combination of rows of one generation is owed."""
        current = self.current_of + self.fresh_of
        owed = combinations(current + self.pushed.rows_of) - combinations(current) - self.pushed.met
        most: ExactCounts = np.where(self.owing, owed, 0)
        return most

    def load(self, mine: Indices) -> TaskLoad:
        pushed_rows = self.pushed.rows_of[:, mine].sum(axis=0)
        return TaskLoad(
            active_rows=int(self.current_of[:, mine].sum()),
            active_bytes=int(self.active_bytes[mine].sum()),
            pushed_rows=int(pushed_rows.sum()),
            pushed_bytes=int(self.pushed.bytes[mine].sum()),
            owed_rows=int(self.owed_rows[mine].sum()),
            owing_groups=int(self.owing[mine].sum()),
            most_owed=int(self.most_owed[mine].sum()),
        )


def cover(groups: Groups, ranges: Ranges) -> tuple[Mask, Mask]:
    """Which groups some ascending ranges contain as a whole, and which of them they overlap at all.

    >>> from watersmeet.model.facts import KeyRange
    >>> whole, some = cover((KeyRange(0, 4), KeyRange(4, 8), KeyRange(8, 9)), (KeyRange(0, 5),))
    >>> whole.tolist(), some.tolist()
    ([True, False, False], [True, True, False])
    """
    if not ranges:
        nothing = np.zeros(len(groups), np.bool_)
        return nothing, nothing
    low, last = (
        np.array([one.low for one in groups], np.uint64),
        np.array([one.high - 1 for one in groups], np.uint64),
    )
    lows = np.array([one.low for one in ranges], np.uint64)
    lasts = np.array([one.high - 1 for one in ranges], np.uint64)
    before, within = (np.searchsorted(lows, keys, side="right") - 1 for keys in (low, last))
    whole: Mask = (before >= 0) & (lasts[before] >= last)
    some: Mask = (within >= 0) & (lasts[within] >= low)
    return whole, some


def after_decision(facts: BatchFacts, groups: Groups, census: Census, decision: Decision) -> After:
    paid, some_paid = cover(groups, decision.paid)
    pushed, some_pushed = cover(groups, decision.pushed)
    _, finished = cover(groups, joined(cells.range for cells in decision.parts if cells.is_last))
    cut = (some_paid & ~paid) | (some_pushed & ~pushed) | finished
    active, current = census.active_bytes.copy(), census.current_of.copy()
    current_bytes, aside_of, aside_bytes = (
        census.current_bytes.copy(),
        census.pushed_of.copy(),
        census.pushed_bytes.copy(),
    )
    borders, met = census.borders.copy(), census.met.copy()
    # Pay.
    current[:, paid] += aside_of[:, paid]
    current_bytes[paid] += aside_bytes[paid]
    active[paid] += aside_bytes[paid]
    aside_of[:, paid], aside_bytes[paid], borders[paid], met[paid] = 0, 0.0, 0, 0
    # Push.
    borders[pushed] += current[:, pushed].sum(axis=0) > 0
    met[pushed] += combinations(current[:, pushed])
    aside_of[:, pushed] += current[:, pushed]
    aside_bytes[pushed] += current_bytes[pushed]
    current[:, pushed], active[pushed] = 0, 0.0
    if cut.any():
        again = _counted(facts, groups, cut, decision)
        places = np.flatnonzero(cut)
        active[places], current[:, places] = again.active_bytes[places], again.current_of[:, places]
        aside_of[:, places], aside_bytes[places] = (
            again.pushed.rows_of[:, places],
            again.pushed.bytes[places],
        )
        borders[places], met[places] = again.pushed.borders[places], again.pushed.met[places]
    return After(active, current, Pushed(aside_of, aside_bytes, borders, met), census.fresh_of)


def _counted(facts: BatchFacts, groups: Groups, cut: Mask, decision: Decision) -> After:
    """Count some groups row by row of their runs, as the decision leaves them."""
    keys = tuple(cells.range for cells in decision.parts)
    found = generations_of(facts.history, facts.pushes, (*groups, *decision.paid, *decision.pushed, *keys))
    lows = np.array([one.low for one in groups], np.uint64)
    group_of = np.searchsorted(lows, found.lows, side="right") - 1
    here = np.flatnonzero(cut[group_of])
    becomes = _becomes(facts, found, decision)
    reachable = {run.path for run in facts.reachable}
    # One more than there were: what this batch pushes.
    generations, shape = found.current + 2, (len(facts.inputs), len(groups))
    rows = np.zeros((generations, *shape), np.int64)
    size, active = np.zeros((generations, len(groups))), np.zeros(len(groups))
    for run, of in zip(found.runs, found.of[:, here], strict=True):
        mine = here[of != NOT_HELD]
        if not len(mine):
            continue
        number = rows_by(found.lows, facts.keys_of(run))[mine]
        was = of[of != NOT_HELD]
        now = becomes[was, mine]
        row_bytes = run.bytes / max(1, run.rows)
        line = np.full(len(mine), facts.inputs.index(run.input))
        np.add.at(rows, (now, line, group_of[mine]), number)
        np.add.at(size, (now, group_of[mine]), number * row_bytes)
        # What is paid counts as reached, whatever its times.
        met = (now == found.current) & ((was != found.current) | (run.path in reachable))
        np.add.at(active, group_of[mine][met], number[met] * row_bytes)
    aside = np.arange(generations) != found.current
    per_generation: ExactCounts = combinations(rows[aside])
    return After(
        active,
        rows[found.current],
        Pushed(
            rows[aside].sum(axis=0),
            size[aside].sum(axis=0),
            (rows[aside].sum(axis=1) > 0).sum(axis=0),
            per_generation.sum(axis=0),
        ),
        np.zeros(shape, np.int64),
    )


def _becomes(facts: BatchFacts, found: Generations, decision: Decision) -> Indices:
    """The generation that the rows of each generation have after a decision, by segment."""
    segments = len(found.lows)
    becomes = np.repeat(np.arange(found.current + 1)[:, None], segments, axis=1)
    for cells in decision.parts:
        if cells.is_last:
            early = np.flatnonzero(np.array([push.batch <= cells.border for push in facts.pushes]))
            becomes[np.ix_(early, found.segments_in(cells.range))] = early[-1]
    for range_ in decision.paid:
        becomes[:, found.segments_in(range_)] = found.current
    for range_ in decision.pushed:
        mine = found.segments_in(range_)
        becomes[:, mine] = np.where(becomes[:, mine] == found.current, found.current + 1, becomes[:, mine])
    return becomes
