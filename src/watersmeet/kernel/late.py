"""Share out fresh rows by work: all tasks look up all of them, and each goes on with its part.

Dealing fresh rows like cards is even only if no row has much more work than others. Under Zipf's law one fresh row of a
star may have more results than a task's share of the batch. Where fresh rows have much work
(schemes/delta/scheme.py) the tasks therefore share it out when they know it:

1. All tasks look up all fresh rows of the term, and bind the same rows, as long as some input cannot be looked up yet
   and what they repeat stays within a room that the plan has set. If it does not, the combinations are dealt like cards
   to groups of tasks, as large as the room allows, and the tasks of a group go on together.
2. Once all inputs that are left can be looked up, the product of the rows that a combination finds in each of them is
   its work. Combinations of little work are sorted by it and dealt to and fro, so that every task gets as many of each
   size.
3. Those of much work go on in all tasks. As soon as there are enough combinations of them, or at the last input, these
   are dealt like cards.

All tasks must cut alike, or results would be lost or come out twice. So everything here follows from the rows, the plan
and the limits alone: counts are whole numbers, sums of them are exact, and products are rounded for each row by itself.
Up to the deal all tasks take the same steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.kernel.keys import Indices

# A row is large if its work is more than this part of a task's share: eight of them in one task would fill it.
_SHARE_PARTS = 8
# Combinations for each task that are enough to deal: the tasks then differ by one in sixteen at most.
_ENOUGH = 16
# Work is cut off here, so that a sum over a piece of rows (model/limits.py) fits 64 bits.
_MOST_WORK = float(1 << 40)


@dataclass(slots=True)
class Cards:
    """Every `of`-th combination, dealt to number `hand`. It counts, so that remainders go to all hands in turn."""

    hand: int
    of: int
    dealt: int = 0

    def next_of(self, combinations: int) -> Indices:
        """Which of the next combinations are this hand's.

        >>> cards = Cards(1, 3)
        >>> cards.next_of(4).tolist(), cards.next_of(4).tolist()
        ([1], [0, 3])
        """
        mine = np.arange((self.hand - self.dealt) % self.of, combinations, self.of)
        self.dealt += combinations
        return mine


class LateDeal:
    """What tasks share that have bound the same combinations so far: this one is number `hand` of `of`.

    They may bind `room_rows` more alike before they deal. `large` combinations are dealt as soon as they are enough.
    """

    def __init__(self, hand: int, of: int, room_rows: int, *, large: bool = False) -> None:
        self.hand, self.of, self.room_rows, self.large = hand, of, room_rows, large
        self._cards = Cards(hand, of)
        self._of_large: LateDeal | None = None

    def cut(self, counts: Sequence[Indices]) -> Iterator[tuple[Indices, LateDeal | None]]:
        """The combinations of this task, and the large ones, with how they are dealt on the way.

        `counts` has the rows that each combination finds, for each input that is left.

        >>> found = [np.array([900, 1, 2, 3, 4, 5])]
        >>> [[keep.tolist() for keep, _ in LateDeal(hand, 2, 0).cut(found)] for hand in range(2)]
        [[[1, 2, 5], [0]], [[3, 4], [0]]]
        """
        work = np.ones(len(counts[0]), np.float64)
        for found in counts:
            work = np.minimum(work * found, _MOST_WORK)
        whole = work.astype(np.int64)
        large = whole * (self.of * _SHARE_PARTS) > int(whole.sum())
        small = np.flatnonzero(~large)
        small = small[np.argsort(-whole[small], kind="stable")]
        place = np.arange(len(small)) % (2 * self.of)
        mine = np.sort(small[(place == self.hand) | (place == 2 * self.of - 1 - self.hand)])
        if len(mine):
            yield mine, None
        if large.any():
            self._of_large = self._of_large or LateDeal(self.hand, self.of, 0, large=True)
            yield np.flatnonzero(large), self._of_large

    def next_step(self, combinations: int, *, last: bool) -> tuple[Cards | None, LateDeal | None]:
        """How the next combinations, of this number, are dealt now, if they are, and what is left to deal later.

        At the `last` input nothing is.
        """
        if last or (self.large and combinations >= self.of * _ENOUGH):
            return self._cards, None
        if self.large:
            return None, self
        groups = next(
            (
                one
                for one in range(1, self.of)
                if self.of % one == 0 and combinations // one <= self.room_rows
            ),
            self.of,
        )
        if groups == self.of:
            return self._cards, None
        self.room_rows -= combinations // groups
        if groups == 1:
            return None, self
        return Cards(self.hand % groups, groups), LateDeal(
            self.hand // groups, self.of // groups, self.room_rows
        )
