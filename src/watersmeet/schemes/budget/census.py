"""Count rows and bytes by partition group: active, pushed and fresh.

Runs are sorted, so a run is counted by a binary search for each group. A run of which all rows were pushed is not
opened: what was pushed is known from the plan before. It is counted again only if the groups have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.model.facts import Run
from watersmeet.model.generations import NOT_HELD, Generations, generations_of
from watersmeet.schemes.budget.facts import BudgetPlan, Groups
from watersmeet.schemes.budget.policy import Amounts, Indices
from watersmeet.schemes.scheme import BatchFacts, Keys, KeysOf


@dataclass(frozen=True, slots=True)
class Census:
    """Rows and bytes of each group before a batch decides anything.

    `active_bytes` has a line for each input and only the history that a fresh row can reach; `current` counts all rows
    that were not pushed. `borders` counts the pushed generations that have rows.
    """

    active_bytes: Amounts
    current_rows: Indices
    current_bytes: Amounts
    pushed_rows: Indices
    pushed_bytes: Amounts
    borders: Indices
    fresh_rows: Indices


def take_census(facts: BatchFacts, groups: Groups) -> Census:
    found = generations_of(facts.history, facts.pushes, groups)
    lows = _lows(groups)
    group_of = np.searchsorted(lows, found.lows, side="right") - 1
    reachable = {run.path for run in facts.reachable}
    active = np.zeros((len(facts.inputs), len(groups)))
    current_rows, current_bytes = np.zeros(len(groups), np.int64), np.zeros(len(groups))
    for run, current in zip(found.runs, found.is_current, strict=True):
        if not current.any():
            continue
        rows = np.bincount(group_of[current], rows_by(found.lows, facts.keys_of(run))[current], len(groups))
        size = rows * (run.bytes / max(1, run.rows))
        current_rows += rows.astype(np.int64)
        current_bytes += size
        if run.path in reachable:
            active[facts.inputs.index(run.input)] += size
    fresh = np.zeros(len(groups), np.int64)
    for run in facts.fresh:
        fresh += rows_by(lows, facts.keys_of(run))
    borders, pushed_rows, pushed_bytes = _pushed(facts, groups, found, group_of)
    return Census(active, current_rows, current_bytes, pushed_rows, pushed_bytes, borders, fresh)


def _lows(groups: Groups) -> Keys:
    return np.array([one.low for one in groups], np.uint64)


def rows_by(lows: Keys, keys: Keys) -> Indices:
    """How many of the ascending keys lie between each of the bounds and the next."""
    places = np.append(np.searchsorted(keys, lows), len(keys))
    counts: Indices = np.diff(places)
    return counts


def _pushed(
    facts: BatchFacts, groups: Groups, found: Generations, group_of: Indices
) -> tuple[Indices, Indices, Amounts]:
    """Pushed generations of each group, their rows and bytes, from the plan before if it had the same groups."""
    before = facts.plan_before(BudgetPlan)
    if not facts.pushes:
        return np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64), np.zeros(len(groups))
    if before is not None and len(before.pushed_rows) == len(groups) and before.groups == groups:
        borders, rows = np.array(before.borders, np.int64), np.array(before.pushed_rows, np.int64)
        return borders, rows, np.array(before.pushed_bytes, np.float64)
    return _count_pushed(found, group_of, len(groups), facts.keys_of)


def _count_pushed(
    found: Generations, group_of: Indices, groups: int, keys_of: KeysOf
) -> tuple[Indices, Indices, Amounts]:
    rows, size = np.zeros((found.current, groups), np.int64), np.zeros(groups)
    for run, of in zip(found.runs, found.of, strict=True):
        pushed = np.flatnonzero((of != NOT_HELD) & (of != found.current))
        if len(pushed):
            mine = rows_by(found.lows, keys_of(run))[pushed]
            np.add.at(rows, (of[pushed], group_of[pushed]), mine)
            size += np.bincount(group_of[pushed], mine, groups) * (run.bytes / max(1, run.rows))
    borders: Indices = (rows > 0).sum(axis=0)
    return borders, rows.sum(axis=0), size


def known_of(before: BudgetPlan, groups: Groups, output: Amounts) -> tuple[Indices, Amounts]:
    """When each group last had a row, and its output so far, from those of the groups before it.

    Both parts of a group that is cut inherit all; groups that are joined add up.
    """
    seen = np.array(before.seen_ms, np.int64)
    old = before.groups
    if old == groups:
        return seen, output
    lows = _lows(old)
    first = np.searchsorted(lows, _lows(groups), side="right") - 1
    last = np.searchsorted(lows, np.array([one.high - 1 for one in groups], np.uint64), side="right")
    spans: Sequence[tuple[int, int]] = list(zip(first.tolist(), last.tolist(), strict=True))
    return (
        np.array([seen[low:high].max() for low, high in spans], np.int64),
        np.array([output[low:high].sum() for low, high in spans]),
    )


def runs_of(facts: BatchFacts) -> tuple[Run, ...]:
    return (*facts.history, *facts.fresh)
