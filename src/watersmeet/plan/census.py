"""Exact counts where they are cheap, samples where they are not: what a batch will cost, key by key.

Runs are sorted, so the rows of a suspected heavy key are counted by two binary searches a run. Of the other keys a
sample of the fresh rows is looked up; what it finds, it stands for. The work of a batch on a key with l fresh and L
old rows on the left, r and R on the right, is

    l + r   +   l R + L r + l r        rows looked up, and results given out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import Run

Keys = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
Work = npt.NDArray[np.float64]

# The multiples of no other number are spread as evenly between two whole ones.
_GOLDEN = (5**0.5 - 1) / 2

# The sorted order keys of a run.
KeysOf = Callable[[Run], Keys]


@dataclass(frozen=True, slots=True)
class Stored:
    """The runs of one input: those of the history and those that the batch brought."""

    old: Sequence[Run]
    new: Sequence[Run]

    @property
    def fresh_rows(self) -> int:
        return sum(run.rows for run in self.new)

    @property
    def rows(self) -> int:
        return self.old_rows + self.fresh_rows

    @property
    def old_rows(self) -> int:
        return sum(run.rows for run in self.old)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Rows of some keys, ascending, in both inputs, fresh and old."""

    keys: Keys
    left_new: Counts
    left_old: Counts
    right_new: Counts
    right_old: Counts

    @property
    def left(self) -> Counts:
        return self.left_new + self.left_old

    @property
    def right(self) -> Counts:
        return self.right_new + self.right_old

    @property
    def probed(self) -> Counts:
        return self.left_new + self.right_new

    @property
    def emitted(self) -> Work:
        """Results of the batch; floats, since a cross product of two large inputs may leave 64 bits."""
        left_new, right_new = self.left_new.astype(np.float64), self.right_new.astype(np.float64)
        return left_new * (self.right_old + self.right_new) + right_new * self.left_old

    def where(self, mask: npt.NDArray[np.bool_]) -> KeyCounts:
        return KeyCounts(
            self.keys[mask],
            self.left_new[mask],
            self.left_old[mask],
            self.right_new[mask],
            self.right_old[mask],
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """Work along the key space: so much at each of some ascending keys."""

    keys: Keys
    work: Work

    @property
    def total(self) -> float:
        return float(self.work.sum())


def count_keys(left: Stored, right: Stored, keys: Keys, keys_of: KeysOf) -> KeyCounts:
    """Exact counts. `keys` ascend."""
    counted = [_count(runs, keys, keys_of) for runs in (left.new, left.old, right.new, right.old)]
    return KeyCounts(keys, *counted)


def sample_work(left: Stored, right: Stored, known: Keys, samples: int, keys_of: KeysOf) -> Profile:
    """The work on all keys but the `known` ones, from about `samples` fresh rows of each input."""
    keys, work = [], []
    for mine, other in ((left, right), (right, left)):
        drawn, weight = _sample(mine.new, known, samples, keys_of)
        # A pair of two fresh rows is found from both sides: half of it each.
        partners = _count(other.old, drawn, keys_of) + _count(other.new, drawn, keys_of) / 2
        keys.append(drawn)
        work.append(weight * (1 + partners))
    both = np.concatenate(keys)
    order = np.argsort(both, kind="stable")
    return Profile(both[order], np.concatenate(work)[order])


def _count(runs: Sequence[Run], keys: Keys, keys_of: KeysOf) -> Counts:
    counts = np.zeros(len(keys), np.int64)
    if len(keys):
        first, last = int(keys[0]), int(keys[-1])
        for run in runs:
            if run.low <= last and first <= run.high:
                stored = keys_of(run)
                counts += np.searchsorted(stored, keys, side="right") - np.searchsorted(stored, keys)
    return counts


def _sample(runs: Sequence[Run], known: Keys, samples: int, keys_of: KeysOf) -> tuple[Keys, Work]:
    """So many keys at most, ascending, without the known ones; and how many rows each stands for.

    One is drawn from each stretch of equal length over all runs, small ones included. Its place in the stretch changes
    by the golden ratio: at a fixed place it might be the same of every run, and runs are sorted.
    """
    ends = np.cumsum([run.rows for run in runs], dtype=np.int64)
    rows = int(ends[-1]) if len(runs) else 0
    count = min(rows, max(1, samples))
    if not count:
        return np.zeros(0, np.uint64), np.zeros(0)
    numbers = np.arange(count)
    places = ((numbers + numbers * _GOLDEN % 1) * (rows / count)).astype(np.int64)
    cuts = np.searchsorted(places, [0, *ends]).tolist()
    drawn = [
        keys_of(run)[places[low:high] - (end - run.rows)]
        for run, end, (low, high) in zip(runs, ends.tolist(), itertools.pairwise(cuts), strict=True)
        if low < high
    ]
    keys = np.sort(np.concatenate(drawn))
    if len(known):
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        keys = keys[known[at] != keys]
    return keys, np.full(len(keys), rows / count)
