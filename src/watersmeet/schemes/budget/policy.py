"""Which partition groups to push when a task is over its budget, and which debts to pay when it has room.

Source: Liu, Rundensteiner 2005 (State-intensive queries), section 4.3. A task pushes the groups that are used
least: those without a new row for long, and then those with the largest size for their output. So the state that stays
active is the state that gives results. The other policies are those that the paper compares it with.

Differences from the paper, and why: a task pushes at least down to its budget, however much that is, since here a
budget is a promise for every batch. Debts are paid while the query runs, as soon as there is room, and not only when
it ends. A task pays only so much that it will not push it again at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from watersmeet.model.closed import ClosedSet

Amounts = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# A group without a new row for this long counts as idle, before its output is looked at. Streams that pause for less
# between two rows of a group are the rule: 300 groups and five rows a second.
IDLE_MS = 60_000

# What a task pays in a batch at most, as a share of its budget, or one group: so that batches stay short.
PAID_SHARE = 0.1


# The most partition groups: a manifest has some numbers for each.
MOST_GROUPS = 10_000


# Groups move from the fullest task to the emptiest if the latter has less than this share of its active state, and some
# time has passed since the last move (section 5.1, with the values of its experiments).
BALANCED_SHARE = 0.8
MOVE_EVERY_MS = 45_000


class PushPolicy(ClosedSet):
    """What is pushed first: groups with little output for their size (the paper's choice), with much, in random order,
    or those with the most state of one input."""

    LOW_OUTPUT = "low-output"
    HIGH_OUTPUT = "high-output"
    RANDOM = "random"
    LARGEST_INPUT = "largest-input"


@dataclass(frozen=True, slots=True)
class Pushing:
    """How a join keeps to its budget: the number of partition groups, the share of its active state that a task pushes
    when it is over, and which groups first. Defaults are the paper's."""

    groups: int = 300
    share: float = 0.3
    policy: PushPolicy = PushPolicy.LOW_OUTPUT
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Candidates:
    """The groups of one task: bytes of each input (a line each), results so far, and how long each has been idle."""

    sizes: Amounts
    output: Amounts
    idle_ms: Amounts

    @property
    def size(self) -> Amounts:
        whole: Amounts = self.sizes.sum(axis=0)
        return whole


def choose_pushed(groups: Candidates, memory: int, how: Pushing, batch: int) -> Indices:
    """The groups that a task pushes, in that order; none if it is within its budget.

    >>> sizes = np.array([[60.0, 30.0, 30.0]])
    >>> fine = Candidates(sizes, np.array([9.0, 9.0, 1.0]), np.zeros(3))
    >>> choose_pushed(fine, 100, Pushing(), 0).tolist(), choose_pushed(fine, 120, Pushing(), 0).tolist()
    ([2, 0], [])
    """
    size = groups.size
    active = float(size.sum())
    if active <= memory:
        return np.zeros(0, np.int64)
    filled = np.flatnonzero(size)
    order = filled[_order(_only(groups, filled), how, batch)]
    shed = max(active - memory, how.share * active)
    # Rounding must not leave a byte too much.
    enough = int(np.searchsorted(np.cumsum(size[order]), shed * (1 - 1e-12))) + 1
    return order[:enough]


def _only(groups: Candidates, places: Indices) -> Candidates:
    return Candidates(groups.sizes[:, places], groups.output[places], groups.idle_ms[places])


def _order(groups: Candidates, how: Pushing, batch: int) -> Indices:
    """All groups, those to push first in front. Ties by place, so that every attempt decides alike."""
    place = np.arange(len(groups.output))
    size = groups.size
    if how.policy == PushPolicy.RANDOM:
        drawn = [xxhash.xxh3_64_intdigest(f"{how.seed} {batch} {one}".encode()) for one in place.tolist()]
        return np.argsort(np.array(drawn, np.uint64), kind="stable")
    if how.policy == PushPolicy.LARGEST_INPUT:
        return np.lexsort((place, -groups.sizes.max(axis=0)))
    productivity = groups.output / size
    if how.policy == PushPolicy.HIGH_OUTPUT:
        return np.lexsort((place, size, -productivity))
    idle = np.where(groups.idle_ms > IDLE_MS, groups.idle_ms, 0.0)
    return np.lexsort((place, -size, productivity, -idle))


def choose_moved(size: Amounts, output: Amounts, may_move: npt.NDArray[np.bool_], surplus: float) -> Indices:
    """The groups that leave the fullest task, those with the most output for their size first, up to `surplus` bytes.

    >>> choose_moved(np.array([9.0, 4.0, 3.0, 2.0]), np.array([9.0, 8.0, 9.0, 9.0]), np.ones(4, np.bool_), 6).tolist()
    [3, 2]
    """
    movable = np.flatnonzero(may_move & (size > 0))
    order = movable[np.lexsort((movable, -output[movable] / size[movable]))]
    chosen, left = [], surplus
    for group in order.tolist():
        if size[group] <= left:
            chosen.append(group)
            left -= float(size[group])
    return np.array(chosen, np.int64)


def choose_paid(debts: Amounts, active: float, memory: int, how: Pushing) -> Indices:
    """The groups whose debts a task pays, the smallest first. `debts` are the bytes that paying each makes active.

    >>> choose_paid(np.array([0.0, 30.0, 4.0, 5.0]), 20, 100, Pushing()).tolist()
    [2, 3]
    """
    room = (1 - how.share) * memory - active
    owing = np.flatnonzero(debts)
    order = owing[np.argsort(debts[owing], kind="stable")]
    reached = np.cumsum(debts[order])
    fits = reached <= room
    return order[fits & ((reached <= PAID_SHARE * memory) | (np.arange(len(order)) == 0))]
