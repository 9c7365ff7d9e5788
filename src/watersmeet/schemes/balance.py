"""Cut keys into ranges of even work, and estimate how the keys of some runs are distributed.

A run's marks cut its rows into equal shares, and keys between two marks are assumed to be even. Runs without marks are
sorted by a hash, so their keys are even over the whole key space.

Keys are 64 bits wide and often close together (days, prices), so ranks are computed with integers: as floats, close
keys would be equal.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange, Run


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of keys: `reached[i]` rows lie below `keys[i]`. Keys ascend strictly, rows in between are even."""

    keys: tuple[int, ...]
    reached: tuple[float, ...]

    @property
    def rows(self) -> float:
        return self.reached[-1] if self.reached else 0.0

    def rank(self, key: int) -> float:
        """Estimate the number of rows with a smaller key."""
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
        """At most `pieces - 1` ascending keys that cut the rows into about equal pieces."""
        found = []
        for piece in range(1, pieces):
            wanted = self.rows * piece / pieces
            place = bisect.bisect_left(self.reached, wanted)
            if 0 < place < len(self.keys):
                low, high = self.keys[place - 1], self.keys[place]
                share = (wanted - self.reached[place - 1]) / (self.reached[place] - self.reached[place - 1])
                # As a float a wide gap may be rounded to more than it is.
                found.append(min(high, low + int((high - low) * share)))
        return sorted({bound for bound in found if self.keys[0] < bound})


def spread_of(runs: Iterable[Run]) -> Spread:
    """The distribution of all runs together.

    >>> even = Run("l", "p", "p", 0, 100, 1, 0, 1000, "", marks=(0, 500, 1000))
    >>> spread_of([even]).rank(250)
    25.0
    """
    described = [(np.array(run.marks or (0, KEY_SPACE - 1), np.uint64), run.rows) for run in runs]
    if not described:
        return Spread((), ())
    marks = np.concatenate([marks for marks, _ in described])
    # Also just above a mark: many rows may share one key, and there the count jumps.
    keys = np.unique(np.concatenate([marks, np.minimum(marks, _LAST - _ONE) + _ONE]))
    reached = np.sum([_ranks(marks, rows, keys) for marks, rows in described], axis=0)
    return Spread((*keys.tolist(), KEY_SPACE), (*reached.tolist(), float(sum(rows for _, rows in described))))


_ONE, _LAST = np.uint64(1), np.uint64(KEY_SPACE - 1)


def _ranks(marks: npt.NDArray[np.uint64], rows: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """For each key the rows of one run below it. Differences are taken before the conversion to floats."""
    place = np.searchsorted(marks, keys)
    low = marks[np.maximum(place, 1) - 1]
    high = marks[np.minimum(place, len(marks) - 1)]
    width = np.maximum(high - low, _ONE).astype(np.float64)
    inside = np.where(high > low, (keys - low).astype(np.float64) / width, 0.0)
    shares = np.where(place == 0, 0.0, np.where(place == len(marks), len(marks) - 1, place - 1 + inside))
    return shares * (rows / max(1, len(marks) - 1))


def even_ranges(tasks: int) -> tuple[KeyRange, ...]:
    """Cut the key space into `tasks` ranges of equal width that cover it exactly once.

    >>> [range_.low >> 62 for range_ in even_ranges(4)]
    [0, 1, 2, 3]
    """
    return ranges_between(KEY_SPACE * task // tasks for task in range(1, tasks))


def ranges_between(bounds: Iterable[int]) -> tuple[KeyRange, ...]:
    """The ranges from 0 through ascending bounds to the end of the key space. Some may be empty.

    >>> [range_.low for range_ in ranges_between([5, 5, 9])]
    [0, 5, 5, 9]
    """
    return tuple(itertools.starmap(KeyRange, itertools.pairwise([0, *bounds, KEY_SPACE])))


def cut_evenly(work: npt.NDArray[np.float64], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Cut a line of items into pieces with about these shares of the work: the index of the first item after each cut.

    An item that lies across a cut goes to the side that holds more of it.

    >>> cut_evenly(np.array([4.0, 1.0, 1.0, 2.0]), np.array([1.0, 1.0])).tolist()
    [1]
    """
    reached = np.cumsum(work)
    wanted = np.cumsum(shares)[:-1] * (reached[-1] / shares.sum())
    at = np.minimum(np.searchsorted(reached, wanted), len(reached) - 1)
    behind: npt.NDArray[np.int64] = at + (reached[at] - wanted < work[at] / 2)
    return behind
