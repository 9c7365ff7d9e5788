"""Share out the keys of a walk, so that a task reads a part of what is stored and not all of it.

Source: the shares of the Shares algorithm (Afrati, Ullman 2010). The tasks form a box with a side for each edge of the
join graph, p = p1 x p2 x ... A task has a place on each side, and takes the combinations whose key of each edge lies at
its place: the key's hash says where. All inputs of an edge agree on its key, so every combination lies in one *cell* of
the box. Of an arrangement that is sorted by the key of an edge with side s a task needs one s-th, a range of order
keys.

    a.x = b.x AND b.y = c.y, sides 2 x 2       y in 0..1/2     y in 1/2..1
                                x in 0..1/2    task 0          task 1
                                x in 1/2..1    task 2          task 3

The tasks of one cell, `hands`, have the same rows, and the fresh ones are dealt to them like cards. Without shares
there is one cell and all tasks are its hands: the fresh rows are spread evenly, whatever their keys, and every task
reads all that is stored. With shares the rows of a key are looked up in all cells along the sides of other edges, and a
hot key stays in the cells of its place. So shares cost work and balance. They are taken only where reading costs more:
on remote state, where a task fetches what it reads (`choose_shares`). Results do not depend on them.

Differs from the paper: it minimises what all tasks get together, in a closed form with real numbers. Here the bytes
that one task reads count, sides are whole numbers whose product divides the tasks, and all factorisations are tried.

Balance is not guaranteed: shares do not know which keys are hot.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.model.facts import FULL_RANGE, KeyRange, Run
from watersmeet.model.limits import Limits
from watersmeet.model.walks import KeyCut
from watersmeet.schemes.scheme import Keys, check_ranges

# Shares cost work and balance: a task must read this many times less. Other shares only make tasks fetch files that are
# new to them, once.
MIN_GAIN_RATIO, MIN_CHANGE_RATIO = 1.5, 1.2

# Arrangements that are found by one of two keys have 32 bits of its hash, in the high half of their order keys.
_HASH_BITS = 32


@dataclass(frozen=True, slots=True)
class KeyShares:
    """The sides of the box by edge, and why: the predicted bytes that a task reads, without shares and with these.

    `batch` decided it. `measured_bytes` are what the busiest task opened in the batch before, of those that are known.
    """

    sides: tuple[int, ...]
    batch: int
    whole_bytes: int
    task_bytes: int
    measured_bytes: int | None = None

    @property
    def cells(self) -> int:
        return math.prod(self.sides)

    def hands(self, tasks: int) -> int:
        """The tasks of one cell."""
        return tasks // self.cells

    def place(self, task: int) -> tuple[tuple[KeyCut, ...], int]:
        """The keys of the task's cell, for each edge that is cut, and its number among the tasks of the cell."""
        hand, cell = divmod(task, self.cells)
        cuts = []
        for edge, side in reversed(list(enumerate(self.sides))):
            cell, at = divmod(cell, side)
            if side > 1:
                cuts.append(KeyCut(edge, key_range(at, side)))
        return tuple(reversed(cuts)), hand


def key_range(place: int, side: int) -> KeyRange:
    """The order keys at a place of a side. No two places share the first half of an order key.

    >>> [hex(key_range(place, 3).low >> 32) for place in range(3)], key_range(2, 3).high == 1 << 64
    (['0x0', '0x55555555', '0xaaaaaaaa'], True)
    """
    low, high = ((at << _HASH_BITS) // side << _HASH_BITS for at in (place, place + 1))
    return KeyRange(low, high)


def range_of(cuts: Iterable[KeyCut], edge: int | None) -> KeyRange:
    """What a task needs of an arrangement that is sorted by the key of an edge, if it is sorted by one."""
    return next((one.range for one in cuts if one.edge == edge), FULL_RANGE)


def place_of(keys: Keys, side: int) -> Keys:
    """At which place of a side order keys lie.

    >>> cuts = [key_range(place, 3) for place in range(3)]
    >>> place_of(np.array([one.low for one in cuts] + [one.high - 1 for one in cuts], np.uint64), 3).tolist()
    [0, 1, 2, 0, 1, 2]
    """
    half = np.uint64(_HASH_BITS)
    return ((keys >> half) * np.uint64(side) + np.uint64(side - 1)) >> half


def read_bytes(runs: Sequence[Run], side: int) -> int:
    """The most bytes that the runs of an arrangement have at one place of a side. A run is fetched as a whole.

    Runs of one batch hold keys of all places. Merging cuts large ones by their keys.
    """
    bytes_ = np.array([run.bytes for run in runs], np.int64)
    first, last = (
        place_of(np.array(keys, np.uint64), side).astype(np.int64)
        for keys in ([run.low for run in runs], [run.high for run in runs])
    )
    # What begins at each place, less what has ended before it.
    change = np.bincount(first, bytes_, side + 1) - np.bincount(last + 1, bytes_, side + 1)
    return int(np.cumsum(change).max())


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """The bytes that a task reads of the arrangements of each edge, by the side of the edge, and of all others."""

    by_side: tuple[dict[int, int], ...]
    rest: int = 0

    def under(self, sides: Sequence[int]) -> int:
        return self.rest + sum(of[side] for of, side in zip(self.by_side, sides, strict=True))

    @property
    def whole(self) -> int:
        return self.under((1,) * len(self.by_side))


def predict_reading(runs: Iterable[Run], keyed: Mapping[str, int], edges: int, tasks: int) -> ReadBytes:
    """What a task reads of the runs. `keyed` has the edge that an arrangement is sorted by the key of."""
    of_edge: list[list[Run]] = [[] for _ in range(edges)]
    rest = 0
    for run in runs:
        if run.input in keyed:
            of_edge[keyed[run.input]].append(run)
        else:
            rest += run.bytes
    sides = divisors(tasks)
    return ReadBytes(tuple({side: read_bytes(mine, side) for side in sides} for mine in of_edge), rest)


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def best_sides(reading: ReadBytes, tasks: int) -> tuple[int, ...]:
    """The sides, of all whose product divides the tasks, with which a task reads the fewest bytes.

    Of several the ones with the fewest cells. All are tried, but not one by one: what is best for the first edges with
    some number of cells does not depend on the others.

    >>> def of(*stored, tasks):
    ...     return best_sides(ReadBytes(tuple({s: size // s for s in divisors(tasks)} for size in stored)), tasks)
    >>> of(900, 200, 0, tasks=12), of(100, 100, 100, tasks=8), of(0, 0, tasks=8)
    ((6, 2, 1), (2, 2, 2), (1, 1))
    """
    # By number of cells: the bytes, and the sides so far.
    best: dict[int, tuple[int, tuple[int, ...]]] = {1: (0, ())}
    for of in reading.by_side:
        longer: dict[int, tuple[int, tuple[int, ...]]] = {}
        for (cells, (size, sides)), side in itertools.product(best.items(), divisors(tasks)):
            if tasks % (cells * side) == 0:
                found = size + of[side], (*sides, side)
                longer[cells * side] = min(longer.get(cells * side, found), found)
        best = longer
    return min((size, cells, sides) for cells, (size, sides) in best.items())[2]


def choose_shares(
    before: KeyShares | None, reading: ReadBytes, tasks: int, batch: int, limits: Limits
) -> KeyShares | None:
    """The shares of a batch on remote state: those of the batch before, unless others let a task read much less."""
    edges = len(reading.by_side)
    if before is not None and (len(before.sides) != edges or tasks % before.cells):
        before = None
    now, sides = before.sides if before else (1,) * edges, best_sides(reading, tasks)
    had, would = reading.under(now), reading.under(sides)
    least = MIN_GAIN_RATIO if before is None else MIN_CHANGE_RATIO
    if had < least * would or had - would < limits.least_saved_bytes:
        return before
    return KeyShares(sides, batch, reading.whole, would)


def check_cells(shares: KeyShares, cells: Sequence[tuple[KeyCut, ...]], edges: int) -> None:
    """Raise unless the cells, by their cuts, hold every combination of keys once."""
    assert len(shares.sides) == edges, f"{len(shares.sides)} sides for {edges} edges"
    places: list[dict[KeyRange, int]] = []
    for edge in range(edges):
        ranges = sorted({range_of(cuts, edge) for cuts in cells}, key=lambda one: one.low)
        check_ranges(ranges, shares.sides[edge])
        # Half an order key tells where a key lies, in arrangements that have no more of it.
        assert all(one.low % (1 << _HASH_BITS) == 0 for one in ranges), (
            "a range cuts the first half of an order key"
        )
        places.append({range_: place for place, range_ in enumerate(ranges)})
    met = np.zeros(shares.sides, np.int64)
    for cuts in cells:
        met[tuple(of[range_of(cuts, edge)] for edge, of in enumerate(places))] += 1
    assert (met == 1).all(), "a combination of keys is in no cell, or in two"
