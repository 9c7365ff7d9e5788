"""How the order keys of some runs are spread, from the marks that the runs carry.

A run's marks cut its rows into equal shares, so between two of them the keys are taken to be even. Runs without
marks are sorted by a hash: their keys are even over the whole key space.

Keys are 64 bits wide and often close together (days, prices), so ranks are found with whole numbers: as floating
point they would all be one.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from watersmeet.model.facts import KEY_SPACE, Run


@dataclass(frozen=True, slots=True)
class Spread:
    """`reached[i]` rows have a key below `keys[i]`; keys ascend strictly, and rows in between are even."""

    keys: tuple[int, ...]
    reached: tuple[float, ...]

    @property
    def rows(self) -> float:
        return self.reached[-1] if self.reached else 0.0

    def rank(self, key: int) -> float:
        """About how many rows have a smaller key."""
        place = bisect.bisect_right(self.keys, key)
        if place == 0 or not self.keys:
            return 0.0
        if place == len(self.keys):
            return self.rows
        low, high = self.keys[place - 1], self.keys[place]
        below, above = self.reached[place - 1], self.reached[place]
        return below + (above - below) * ((key - low) / (high - low))

    def between(self, low: int, high: int) -> float:
        return self.rank(high) - self.rank(low)

    def bounds(self, pieces: int) -> list[int]:
        """Keys that cut the rows into about equal pieces, ascending, at most pieces - 1 of them."""
        found = []
        for piece in range(1, pieces):
            wanted = self.rows * piece / pieces
            place = bisect.bisect_left(self.reached, wanted)
            if 0 < place < len(self.keys):
                low, high = self.keys[place - 1], self.keys[place]
                share = (wanted - self.reached[place - 1]) / (self.reached[place] - self.reached[place - 1])
                found.append(low + int((high - low) * share))
        return sorted({bound for bound in found if self.keys[0] < bound})


def spread_of(runs: Iterable[Run]) -> Spread:
    """All runs together.

    >>> even = Run("l", "p", "p", 0, 100, 1, 0, 1000, "", marks=(0, 500, 1000))
    >>> spread_of([even]).rank(250)
    25.0
    """
    density: dict[int, float] = {}
    for run in runs:
        marks = run.marks or (0, KEY_SPACE)
        share = run.rows / (len(marks) - 1)
        for low, high in itertools.pairwise(marks):
            # The highest key belongs to the run: its share ends one past it.
            high = high + 1 if high == low or high == marks[-1] < KEY_SPACE else high
            density[low] = density.get(low, 0.0) + share / (high - low)
            density[high] = density.get(high, 0.0) - share / (high - low)
    keys = sorted(density)
    reached, current, total = [], 0.0, 0.0
    for place, key in enumerate(keys):
        if place:
            total += max(0.0, current) * (key - keys[place - 1])
        reached.append(total)
        current += density[key]
    return Spread(tuple(keys), tuple(reached))
