"""The range plan of a band join: every task joins one range of the left input's values.

A pair belongs to the task whose range holds the left row; of the right input a task reads what can be a partner.
Values are kept together, so hardly a row is read twice, and the work of a batch follows the rows that are close
to each other. The bounds are taken anew for each batch: they balance the pairs that its fresh rows will meet.

Not guaranteed: balance where one value holds more than a task's share of the work. That is what the grid is for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from watersmeet.model.facts import KEY_SPACE, KeyRange, Run
from watersmeet.plan.spread import Spread, spread_of

# The words of the right input that may be partners of a left word in this range.
Facing = Callable[[KeyRange], KeyRange]

# Elementary ranges for each task, between which bounds are chosen.
_GRAINS = 32


def plan_band_ranges(
    left: tuple[Sequence[Run], Sequence[Run]],
    right: tuple[Sequence[Run], Sequence[Run]],
    facing: Facing,
    tasks: int,
) -> tuple[KeyRange, ...]:
    """Ranges of left words for each task, from the history and the fresh runs of both inputs."""
    if tasks == 1:
        return (KeyRange(0, KEY_SPACE),)
    left_old, left_new, right_old, right_new = (spread_of(runs) for runs in (*left, *right))
    everything = spread_of([*left[0], *left[1]])
    grains = [0, *everything.bounds(_GRAINS * tasks), KEY_SPACE]
    work = [
        _work(KeyRange(low, high), left_old, left_new, right_old, right_new, facing)
        for low, high in itertools.pairwise(grains)
    ]
    bounds = _balanced(grains, work, tasks)
    return tuple(KeyRange(low, high) for low, high in itertools.pairwise(bounds))


def _work(
    grain: KeyRange, left_old: Spread, left_new: Spread, right_old: Spread, right_new: Spread, facing: Facing
) -> float:
    """Fresh rows read, and pairs that they meet, taking every left row to be in the middle of the grain."""
    middle = (grain.low + grain.high) // 2
    partners = facing(KeyRange(middle, middle + 1))
    old = right_old.between(partners.low, partners.high)
    new = right_new.between(partners.low, partners.high)
    fresh_left = left_new.between(grain.low, grain.high)
    pairs = fresh_left * (old + new) + left_old.between(grain.low, grain.high) * new
    return fresh_left + right_new.between(grain.low, grain.high) + pairs


def _balanced(grains: Sequence[int], work: Sequence[float], tasks: int) -> list[int]:
    """`tasks` + 1 bounds out of the grains' bounds, each range with about the same work; some may be empty."""
    reached = list(itertools.accumulate(work, initial=0.0))
    bounds, place = [0], 0
    for task in range(1, tasks):
        wanted = reached[-1] * task / tasks
        while place + 1 < len(reached) - 1 and abs(reached[place + 1] - wanted) <= abs(
            reached[place] - wanted
        ):
            place += 1
        bounds.append(grains[place])
    return [*bounds, KEY_SPACE]
