"""Estimate the work of a batch, key by key: exact counts if they are cheap, samples otherwise.

Runs are sorted, so the rows of a suspected heavy key are counted by two binary searches a run. For the other keys a
sample of the fresh rows is looked up, and each sampled row counts for the stretch it was drawn from. The work on a key
is its fresh rows, which are looked up, and its results: every combination of rows, one of each input, with at least
one fresh row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import Run
from watersmeet.schemes.scheme import Keys, KeysOf

Counts = npt.NDArray[np.int64]
Work = npt.NDArray[np.float64]

# Multiples of the golden ratio are spread most evenly between two integers.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Stored:
    """The runs of one input: history and fresh."""

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
    """Fresh and old rows of some ascending keys: a line for each input, a column for each key."""

    keys: Keys
    new: Counts
    old: Counts

    @property
    def total(self) -> Counts:
        return self.new + self.old

    @property
    def probed(self) -> Counts:
        totals: Counts = self.new.sum(axis=0)
        return totals

    @property
    def emitted(self) -> Work:
        """Results of the batch, by the delta rule, as floats: products of large inputs may exceed 64 bits."""
        new, old, total = (counts.astype(np.float64) for counts in (self.new, self.old, self.total))
        inputs = len(new)
        return sum(
            (new[i] * total[:i].prod(axis=0) * old[i + 1 :].prod(axis=0) for i in range(inputs)),
            np.zeros(len(self.keys)),
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> KeyCounts:
        return KeyCounts(self.keys[mask], self.new[:, mask], self.old[:, mask])


@dataclass(frozen=True, slots=True)
class Profile:
    """Work along the key space, at some ascending keys."""

    keys: Keys
    work: Work

    @property
    def total(self) -> float:
        return float(self.work.sum())


def count_keys(stored: Sequence[Stored], keys: Keys, keys_of: KeysOf) -> KeyCounts:
    """Count rows exactly. `keys` ascend."""
    new, old = (
        np.stack([_count(runs, keys, keys_of) for runs in side])
        for side in ([one.new for one in stored], [one.old for one in stored])
    )
    return KeyCounts(keys, new, old)


def sample_work(stored: Sequence[Stored], known: Keys, samples: int, keys_of: KeysOf) -> Profile:
    """Estimate the work on all keys except the `known` ones, from about `samples` fresh rows of each input."""
    keys, work = [], []
    for mine in stored:
        drawn, weight = _sample(mine.new, known, samples, keys_of)
        others = [
            (_count(other.old, drawn, keys_of), _count(other.new, drawn, keys_of))
            for other in stored
            if other is not mine
        ]
        keys.append(drawn)
        work.append(weight * (1 + _combinations(others, len(drawn))))
    both = np.concatenate(keys)
    order = np.argsort(both, kind="stable")
    return Profile(both[order], np.concatenate(work)[order])


def _combinations(others: Sequence[tuple[Counts, Counts]], keys: int) -> Work:
    """The results of one fresh row, given the old and new rows of its key in each other input.

    A combination of f fresh rows is found from f sides, so each side counts 1 / f of it. The sum over all combinations
    of 1 / f is the integral of the product of (old + t * new) over t from 0 to 1.
    """
    powers: list[Work] = [np.ones(keys)]
    for old, new in others:
        shifted = [np.zeros(keys), *(power * new for power in powers)]
        powers = [
            a + b for a, b in zip([*(power * old for power in powers), np.zeros(keys)], shifted, strict=True)
        ]
    return sum((power / (place + 1) for place, power in enumerate(powers)), np.zeros(keys))


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
    """At most `samples` keys, ascending, without the known ones, and the number of rows that each stands for.

    One is drawn from each stretch of equal length over all runs, small ones included. Its place in the stretch moves by
    the golden ratio: a fixed place might hit the same position of every sorted run.
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
