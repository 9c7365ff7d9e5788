"""Keys that many rows of a run share, and bounds for the rows of each key in all live runs.

A run lists, exactly, its keys with at least `floor` rows. Runs are sorted, so a key with that many rows covers some
position that is a multiple of `floor`, and only these positions are examined. The lists are added up exactly: every run
lists a limited number of keys, so there is no need for a sketch (Cormode and Hadjieleftheriou 2008), which the paper
uses. A run that does not list a key may hold up to `floor - 1` rows of it if the key lies between its first and its
last one, which widens the upper bound. Only live runs count, so the same code serves the full stream and a sliding
window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.model.facts import Run, RunStats
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.schemes.hypercube.facts import Bounds
from watersmeet.schemes.scheme import Indices, Keys, NewRun

# Workers that a task stands for: with this many cells each, the last one that is placed hardly matters.
WORKERS_PER_TASK = 8
MOST_WORKERS = 2048


@dataclass(frozen=True, slots=True)
class HotKeys(RunStats):
    """All keys of a run that have at least `floor` rows, ascending, with their rows.

    The largest have a label, the value as text. With a floor of 0 nothing is known.
    """

    kind: ClassVar[str] = "hot keys"
    keys: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    floor: int = 0


NOT_LISTED = HotKeys()


def hot_keys_of(run: Run) -> HotKeys:
    """The hot keys that a run lists; empty if another scheme described it."""
    return run.stats if isinstance(run.stats, HotKeys) else NOT_LISTED


def workers_of(tasks: int) -> int:
    """The number p of workers in the paper's formulas."""
    return max(tasks, min(WORKERS_PER_TASK * tasks, MOST_WORKERS))


def listing_floor(rows: int, tasks: int, limits: Limits = DEFAULT_LIMITS) -> int:
    """The number of rows from which a run of `rows` rows lists a key.

    At most half a worker's share: a key that is heavy in all runs together is then listed by at least one of them.
    """
    shares = max(limits.listed_shares * math.sqrt(tasks), 2 * workers_of(tasks))
    return max(limits.least_listed_rows, math.ceil(rows / shares))


def list_hot_keys(run: NewRun, tasks: int) -> HotKeys:
    floor = listing_floor(run.sequence_rows, tasks, run.limits)
    begin, rows, floor = most_frequent(run.keys, floor, run.limits.most_listed_keys)
    keys = run.keys[begin].tolist()
    if run.labels is not None:
        labels = tuple(run.labels(begin, rows))
    else:
        known = {
            key: label
            for listed in map(hot_keys_of, run.merged_from)
            for key, label in zip(listed.keys, listed.labels, strict=True)
            if label
        }
        labels = tuple(known.get(key, "") for key in keys)
    return HotKeys(tuple(keys), tuple(rows.tolist()), labels, floor)


def most_frequent(keys: Keys, floor: int, most: int) -> tuple[Indices, Indices, int]:
    """The hot keys as `hot_keys` returns them, but at most `most`, and the floor that they all reach.

    If there are more, the floor rises above the most frequent key that is left out. So it still bounds the rows of
    every key that is not listed.

    >>> most_frequent(np.array([1, 3, 3, 3, 5, 7, 7], np.uint64), 1, 2)
    (array([1, 5]), array([3, 2]), 2)
    """
    begin, rows = hot_keys(keys, floor)
    if len(rows) > most:
        floor = int(np.partition(rows, len(rows) - most - 1)[len(rows) - most - 1]) + 1
        listed = rows >= floor
        begin, rows = begin[listed], rows[listed]
    return begin, rows, floor


def hot_keys(keys: Keys, floor: int) -> tuple[Indices, Indices]:
    """The first positions of the keys with at least `floor` rows, and their row counts. `keys` ascend.

    >>> hot_keys(np.array([1, 3, 3, 3, 5, 7, 7], np.uint64), 2)
    (array([1, 5]), array([3, 2]))
    """
    looked_at = np.unique(keys[::floor])
    begin = np.searchsorted(keys, looked_at)
    rows = np.searchsorted(keys, looked_at, side="right") - begin
    hot = rows >= floor
    return begin[hot], rows[hot]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Cumulative amounts at ascending keys: `sums[n]` is the sum of the first n."""

    keys: Keys
    sums: Indices

    @classmethod
    def of(cls, keys: Sequence[int], amounts: Indices) -> _Steps:
        at = np.array(keys, np.uint64)
        order = at.argsort(kind="stable")
        sums = np.zeros(len(at) + 1, np.int64)
        amounts[order].cumsum(out=sums[1:])
        return cls(at[order], sums)

    def up_to(self, keys: Keys, *, inclusive: bool) -> Indices:
        """The sum of the amounts below each of the keys, or also at it."""
        sums: Indices = self.sums[np.searchsorted(self.keys, keys, side="right" if inclusive else "left")]
        return sums


@dataclass(frozen=True, slots=True)
class Frequent:
    """The keys that some live run lists, ascending, and bounds for the rows of any key in all runs of an input.

    `listed` has the rows in the runs that list the key, and `doubt` how many rows these runs might hold if they did
    not. `begun` and `ended` have the rows that runs may hold of an unlisted key, by their first and last keys.
    """

    keys: Keys
    listed: Indices
    doubt: Indices
    begun: _Steps
    ended: _Steps
    _labels: _Labels

    def of(self, keys: Keys) -> tuple[Indices, Indices]:
        """The least and the most rows of each key. Runs that end before a key or begin behind it hold none of it."""
        unlisted = self.begun.up_to(keys, inclusive=True) - self.ended.up_to(keys, inclusive=False)
        if not len(self.keys):
            return np.zeros(len(keys), np.int64), unlisted
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found = self.keys[at] == keys
        lower = np.where(found, self.listed[at], 0)
        return lower, lower + unlisted - np.where(found, self.doubt[at], 0)

    def bounds(self, key: int) -> Bounds:
        lower, upper = self.of(np.array([key], np.uint64))
        return Bounds(int(lower[0]), int(upper[0]))

    def labels(self, keys: Keys) -> list[str]:
        """Each key as text, from the latest run that names it, or an empty string."""
        return self._labels.of(keys)


@dataclass(frozen=True, slots=True)
class _Labels:
    """Where keys are listed: `order` sorts the listed keys of all runs, which follow each other, by key."""

    lists: Sequence[HotKeys]
    sizes: Indices
    order: Indices
    keys: Keys

    def of(self, keys: Keys) -> list[str]:
        begin = np.cumsum(self.sizes) - self.sizes
        low, high = (np.searchsorted(self.keys, keys, side) for side in ("left", "right"))
        sizes = high - low
        which = np.repeat(np.arange(len(keys)), sizes)
        places = self.order[np.arange(len(which)) + np.repeat(low - (np.cumsum(sizes) - sizes), sizes)]
        runs = np.searchsorted(begin, places, side="right") - 1
        found = [""] * len(keys)
        # Runs follow each other, so the latest label stays.
        for key, run, place in zip(
            which.tolist(), runs.tolist(), (places - begin[runs]).tolist(), strict=True
        ):
            found[key] = self.lists[run].labels[place] or found[key]
        return found


def frequent(runs: Sequence[Run]) -> Frequent:
    """Add up the lists of the runs of one input.

    >>> def run(rows, *listed):
    ...     return Run("l", "p", "p", 0, rows, 1, 0, 9, "", stats=HotKeys(*listed))
    >>> one = run(100, (7,), (40,), ("seven",), 10)
    >>> found = frequent([one, run(50, (7, 9), (20, 6), ("", ""), 5)])
    >>> found.bounds(7), found.bounds(9), found.bounds(1)
    (Bounds(lower=60, upper=60), Bounds(lower=6, upper=15), Bounds(lower=0, upper=13))
    >>> found.labels(np.array([7, 9], np.uint64))
    ['seven', '']
    """
    listed = [hot_keys_of(run) for run in runs]
    # The rows that a run may hold of an unlisted key; all of its rows if it lists nothing.
    slack = np.array(
        [one.floor - 1 if one.floor else run.rows for run, one in zip(runs, listed, strict=True)], np.int64
    )
    begun = _Steps.of([run.low for run in runs], slack)
    ended = _Steps.of([run.high for run in runs], slack)
    sizes = np.array([len(one.keys) for one in listed], np.int64)
    count = int(sizes.sum())
    every = np.fromiter(_chained(one.keys for one in listed), np.uint64, count)
    rows = np.fromiter(_chained(one.rows for one in listed), np.int64, count)
    order = every.argsort(kind="stable")
    ascending = every[order]
    begins = np.ones(count, np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    first = begins.nonzero()[0]
    return Frequent(
        ascending[first],
        np.add.reduceat(rows[order], first),
        np.add.reduceat(slack.repeat(sizes)[order], first),
        begun,
        ended,
        _Labels(listed, sizes, order, ascending),
    )


_chained = itertools.chain.from_iterable
