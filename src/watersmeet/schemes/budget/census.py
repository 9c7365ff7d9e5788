"""Count rows and bytes by partition group: active, pushed and fresh.

Runs are sorted, so a run is counted by a binary search for each group. A run of which all rows were pushed is not
opened: what was pushed is known from the plan before. It is counted again only if the groups have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import Run
from watersmeet.model.generations import NOT_HELD, Generations, generations_of
from watersmeet.schemes.budget.facts import BudgetPlan, Groups
from watersmeet.schemes.budget.policy import Amounts, Indices
from watersmeet.schemes.scheme import BatchFacts, Keys

# Numbers that may not fit 64 bits.
ExactCounts = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Census:
    """Rows and bytes of each group before a batch decides anything. Fields that end in `_of` have a line for each input.

    `active_of` are bytes of the history that a fresh row can reach; `current` counts all rows that were not pushed.
    `borders` counts the pushed generations that have rows, and `met` the combinations of their rows that are of one
    generation, if all had one key. `found` are the generations that were counted.
    """

    active_of: Amounts
    current_of: Indices
    current_bytes: Amounts
    pushed_of: Indices
    pushed_bytes: Amounts
    borders: Indices
    met: ExactCounts
    fresh_of: Indices
    found: Generations

    @property
    def active_bytes(self) -> Amounts:
        active: Amounts = self.active_of.sum(axis=0)
        return active

    @property
    def current_rows(self) -> Indices:
        rows: Indices = self.current_of.sum(axis=0)
        return rows

    @property
    def pushed_rows(self) -> Indices:
        rows: Indices = self.pushed_of.sum(axis=0)
        return rows

    @property
    def fresh_rows(self) -> Indices:
        rows: Indices = self.fresh_of.sum(axis=0)
        return rows


def take_census(facts: BatchFacts, groups: Groups) -> Census:
    found = generations_of(facts.history, facts.pushes, groups)
    lows = _lows(groups)
    group_of = np.searchsorted(lows, found.lows, side="right") - 1
    reachable = {run.path for run in facts.reachable}
    shape = len(facts.inputs), len(groups)
    active, current_of, fresh_of = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    current_bytes = np.zeros(len(groups))
    for run, current in zip(found.runs, found.is_current, strict=True):
        if not current.any():
            continue
        rows = np.bincount(group_of[current], rows_by(found.lows, facts.keys_of(run))[current], len(groups))
        size = rows * (run.bytes / max(1, run.rows))
        line = facts.inputs.index(run.input)
        current_of[line] += rows.astype(np.int64)
        current_bytes += size
        if run.path in reachable:
            active[line] += size
    for run in facts.fresh:
        fresh_of[facts.inputs.index(run.input)] += rows_by(lows, facts.keys_of(run))
    pushed = _known(facts, groups)
    if pushed is None:
        pushed = count_pushed(facts, found, group_of, len(groups))
    return Census(
        active,
        current_of,
        current_bytes,
        pushed.rows_of,
        pushed.bytes,
        pushed.borders,
        pushed.met,
        fresh_of,
        found,
    )


def _lows(groups: Groups) -> Keys:
    return np.array([one.low for one in groups], np.uint64)


def rows_by(lows: Keys, keys: Keys) -> Indices:
    """How many of the ascending keys lie between each of the bounds and the next."""
    places = np.append(np.searchsorted(keys, lows), len(keys))
    counts: Indices = np.diff(places)
    return counts


@dataclass(frozen=True, slots=True)
class Pushed:
    """What is pushed of each group: rows of each input, bytes, generations that have rows, and combinations of rows of
    one generation, if all had one key."""

    rows_of: Indices
    bytes: Amounts
    borders: Indices
    met: ExactCounts


def _known(facts: BatchFacts, groups: Groups) -> Pushed | None:
    """What is pushed of each group, from the plan before if it had the same groups; None if it must be counted."""
    before = facts.plan_before(BudgetPlan)
    if not facts.pushes:
        shape = len(facts.inputs), len(groups)
        nothing = np.zeros(len(groups), np.int64)
        return Pushed(np.zeros(shape, np.int64), np.zeros(len(groups)), nothing, nothing.astype(object))
    if before is None or len(before.met) != len(groups) or before.groups != groups:
        return None
    return Pushed(
        np.array(before.pushed_of, np.int64),
        np.array(before.pushed_bytes, np.float64),
        np.array(before.borders, np.int64),
        np.array(before.met, object),
    )


def count_pushed(
    facts: BatchFacts, found: Generations, group_of: Indices, groups: int, left: Mask | None = None
) -> Pushed:
    """Count what is pushed of each group, in the segments that are `left` only. Runs of pushed rows are opened."""
    shape = found.current, len(facts.inputs), groups
    rows, size = np.zeros(shape, np.int64), np.zeros(groups)
    for run, of in zip(found.runs, found.of, strict=True):
        counted = (of != NOT_HELD) & (of != found.current)
        if left is not None:
            counted &= left
        pushed = np.flatnonzero(counted)
        if len(pushed):
            mine = rows_by(found.lows, facts.keys_of(run))[pushed]
            line = np.full(len(pushed), facts.inputs.index(run.input))
            np.add.at(rows, (of[pushed], line, group_of[pushed]), mine)
            size += np.bincount(group_of[pushed], mine, groups) * (run.bytes / max(1, run.rows))
    borders: Indices = (rows.sum(axis=1) > 0).sum(axis=0)
    return Pushed(rows.sum(axis=0), size, borders, combinations(rows).sum(axis=0))


def combinations(rows: Indices) -> ExactCounts:
    """The products over the inputs, exact however large. The inputs are the last axis but one.

    >>> combinations(np.array([[10**12], [10**12]]))[0] == 10**24
    True
    """
    products: ExactCounts = np.prod(rows.astype(object), axis=-2)
    return products


def known_of(before: BudgetPlan, groups: Groups, output: Amounts) -> tuple[Indices, Amounts]:
    """When each group last had a row, and its output so far, from those of the groups before it.

    Both parts of a group that is cut inherit all; groups that are joined add up.
    """
    seen = np.array(before.seen_ms, np.int64)
    old = before.groups
    if old == groups:
        return seen, output
    spans = _spans(old, groups)
    return (
        np.array([seen[low:high].max() for low, high in spans], np.int64),
        np.array([output[low:high].sum() for low, high in spans]),
    )


def _spans(old: Groups, groups: Groups) -> Sequence[tuple[int, int]]:
    """The numbers of the old groups that each group overlaps: the first, and one past the last."""
    lows = _lows(old)
    first = np.searchsorted(lows, _lows(groups), side="right") - 1
    last = np.searchsorted(lows, np.array([one.high - 1 for one in groups], np.uint64), side="right")
    return list(zip(first.tolist(), last.tolist(), strict=True))


def owed_since(before: BudgetPlan | None, groups: Groups) -> Indices:
    """Since when each group owes results, from those of the groups before it: the earliest, 0 for never."""
    if before is None or not before.owed_ms:
        return np.zeros(len(groups), np.int64)
    since = np.array(before.owed_ms, np.int64)
    old = before.groups
    if old == groups:
        return since
    since = np.where(since > 0, since, np.iinfo(np.int64).max)
    earliest = np.array([since[low:high].min() for low, high in _spans(old, groups)], np.int64)
    return np.where(earliest < np.iinfo(np.int64).max, earliest, 0)


def runs_of(facts: BatchFacts) -> tuple[Run, ...]:
    return (*facts.history, *facts.fresh)
