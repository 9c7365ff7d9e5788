"""Which partition groups to push when a task is over its budget, and which debts to pay when it has room.

Source: Liu, Rundensteiner 2005 (State-intensive queries), section 4.3. A task pushes the groups that are used
least: those without a new row for long, and then those with the largest size for their output. So the state that stays
active is the state that gives results. The other policies are those that the paper compares it with.

Differences from the paper, and why: a task pushes at least down to its budget, however much that is, since here a
budget is a promise for every batch. Debts are paid while the query runs, as soon as there is room, and not only when
it ends. A task pays no more than it can keep without pushing it again at once.
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

# What a task pays in a batch at most, as a share of its budget: so that batches stay short.
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


class Disk(ClosedSet):
    """When tasks push: only over their own budget, or also if another task has far more output (section 6)."""

    LAZY = "lazy-disk"
    ACTIVE = "active-disk"


@dataclass(frozen=True, slots=True)
class Pushing:
    """How a join keeps to its budget: the number of partition groups, the share of its active state that a task pushes
    when it is over, and which groups first. Groups move if the emptiest task has less than `balanced_share` of the
    fullest, and not again before `move_every_ms`; with a share of 0 they never do. Defaults are the paper's.
    `paid_share` of its budget is what a task pays in a batch at most. Debts that are older than `pay_within_ms`, if
    given, are paid whether there is room to keep their rows or not. With `defer_ms` tasks that take longer push too; 0
    stands for the trigger interval (tempo.py). `first_shares` are the shares of the groups that the tasks begin with;
    alike if there are none.
    """

    groups: int = 300
    share: float = 0.3
    policy: PushPolicy = PushPolicy.LOW_OUTPUT
    seed: int = 0
    balanced_share: float = BALANCED_SHARE
    move_every_ms: int = MOVE_EVERY_MS
    paid_share: float = PAID_SHARE
    disk: Disk = Disk.LAZY
    pay_within_ms: int = 0
    defer_ms: int | None = None
    first_shares: tuple[float, ...] = ()


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


def choose_pushed(
    groups: Candidates, memory: float, how: Pushing, batch: int, *, slow: bool = False
) -> Indices:
    """The groups that a task pushes, in that order; none if it is within its budget and not `slow`.

    >>> sizes = np.array([[60.0, 30.0, 30.0]])
    >>> fine = Candidates(sizes, np.array([9.0, 9.0, 1.0]), np.zeros(3))
    >>> choose_pushed(fine, 100, Pushing(), 0).tolist(), choose_pushed(fine, 120, Pushing(), 0).tolist()
    ([2, 0], [])
    """
    size = groups.size
    active = float(size.sum())
    if active <= memory and not slow:
        return np.zeros(0, np.int64)
    filled = np.flatnonzero(size)
    order = filled[_order(_only(groups, filled), how, batch)]
    shed = max(active - memory, how.share * active)
    # Rounding must not leave a byte too much.
    enough = int(np.searchsorted(np.cumsum(size[order]), shed * (1 - 1e-12))) + 1
    return order[:enough]


def choose_least(groups: Candidates, most_bytes: float, how: Pushing, batch: int) -> Indices:
    """The groups that a policy pushes first, as many as have at most `most_bytes` together.

    >>> groups = Candidates(np.array([[60.0, 30.0, 30.0]]), np.array([9.0, 9.0, 1.0]), np.zeros(3))
    >>> choose_least(groups, 95, Pushing(), 0).tolist(), choose_least(groups, 20, Pushing(), 0).tolist()
    ([2, 0], [])
    """
    filled = np.flatnonzero(groups.size)
    order = filled[_order(_only(groups, filled), how, batch)]
    return order[: int(np.searchsorted(np.cumsum(groups.size[order]), most_bytes, side="right"))]


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


@dataclass(frozen=True, slots=True)
class Room:
    """What a task may pay in a batch: `stays` bytes have room in its active state, `touched` may be read at most."""

    stays: float
    touched: float

    def less(self, spent: float) -> Room:
        return Room(self.stays - spent, self.touched - spent)


def room_to_pay(active: float, memory: float, how: Pushing) -> Room:
    """What a task may pay so that it will not push it again at once.

    >>> room_to_pay(20, 100, Pushing())
    Room(stays=50.0, touched=10.0)
    """
    stays = max(0.0, (1 - how.share) * memory - active)
    return Room(stays, min(stays, how.paid_share * memory))


def choose_paid(debts: Amounts, most_bytes: float) -> tuple[Indices, int | None]:
    """The groups that a task pays as a whole, the smallest first, and the next one, of which it pays some keys.

    `debts` are the bytes that paying each makes active. The second is None if no group is left.

    >>> whole, cut = choose_paid(np.array([0.0, 30.0, 4.0, 5.0]), 10)
    >>> whole.tolist(), cut
    ([2, 3], 1)
    """
    owing = np.flatnonzero(debts)
    order = owing[np.argsort(debts[owing], kind="stable")]
    fits = int(np.searchsorted(np.cumsum(debts[order]), most_bytes, side="right"))
    return order[:fits], int(order[fits]) if fits < len(order) else None
