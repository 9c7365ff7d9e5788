"""Keys that many rows of a run share, and bounds for the rows of each key in all live runs.

A run lists, exactly, its keys with at least `floor` rows. Runs are sorted, so a key with that many rows covers some
position that is a multiple of `floor`, and only these positions are examined. A frequent-items sketch (Cormode and
Hadjieleftheriou 2008, as Apache DataSketches implements it) adds these lists up in bounded memory. A run that does not
list a key may hold up to `floor - 1` rows of it if the key lies between its first and its last one, which widens the
upper bound. Only live runs count, so the same code serves the full stream and a sliding window.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import datasketches
import numpy as np

from watersmeet.model.facts import Run, RunStats
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.schemes.hypercube.facts import Bounds
from watersmeet.schemes.scheme import Indices, Keys, NewRun

# Workers that a task stands for: with this many cells each, the last one that is placed hardly matters.
WORKERS_PER_TASK = 8
MOST_WORKERS = 2048

# The most keys in the sketch, as a power of two. Above that, the least frequent ones are dropped.
_SKETCH_BITS = 13


@dataclass(frozen=True, slots=True)
class HotKeys(RunStats):
    """The keys of a run that have at least `floor` rows, ascending, with their rows.

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
    begin, rows = hot_keys(run.keys, floor)
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

    keys: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, amounts: Iterable[tuple[int, int]]) -> _Steps:
        steps = sorted(amounts)
        sums = itertools.accumulate((amount for _, amount in steps), initial=0)
        return cls(tuple(key for key, _ in steps), tuple(sums))


@dataclass(frozen=True, slots=True)
class Frequent:
    """The keys that some live run lists, with bounds for all rows of the input, and their labels.

    `begun` and `ended` have the rows that runs may hold of an unlisted key, by their first and last keys. `error` is
    the most that the sketch may have dropped.
    """

    bounds: dict[int, Bounds] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    begun: _Steps = field(default_factory=_Steps)
    ended: _Steps = field(default_factory=_Steps)
    error: int = 0

    def of(self, key: int) -> Bounds:
        return self.bounds.get(key) or Bounds(0, _unlisted(key, self.begun, self.ended) + self.error)


def _unlisted(key: int, begun: _Steps, ended: _Steps) -> int:
    """The rows that all runs together may hold of a key that none lists. Runs that end before it hold none."""
    return begun.sums[bisect.bisect_right(begun.keys, key)] - ended.sums[bisect.bisect_left(ended.keys, key)]


def frequent(runs: Sequence[Run]) -> Frequent:
    """The bounds from the runs of one input.

    >>> def run(rows, *listed):
    ...     return Run("l", "p", "p", 0, rows, 1, 0, 9, "", stats=HotKeys(*listed))
    >>> one = run(100, (7,), (40,), ("seven",), 10)
    >>> found = frequent([one, run(50, (7, 9), (20, 6), ("", ""), 5)])
    >>> found.of(7), found.of(9), found.of(1)
    (Bounds(lower=60, upper=60), Bounds(lower=6, upper=15), Bounds(lower=0, upper=13))
    """
    sketch = datasketches.frequent_items_sketch(_SKETCH_BITS)
    labels: dict[int, str] = {}
    covered: dict[int, int] = defaultdict(int)
    for run in runs:
        listed, slack = hot_keys_of(run), _slack(run)
        for key, rows, label in zip(listed.keys, listed.rows, listed.labels, strict=True):
            sketch.update(key, rows)
            covered[key] += slack
            if label:
                labels[key] = label
    begun = _Steps.of((run.low, _slack(run)) for run in runs)
    ended = _Steps.of((run.high, _slack(run)) for run in runs)
    found = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    bounds = {
        key: Bounds(lower, upper + _unlisted(key, begun, ended) - covered[key])
        for key, _estimate, lower, upper in found
    }
    # The sketch does not list what it dropped, so add its error.
    return Frequent(bounds, labels, begun, ended, sketch.get_upper_bound(-1))


def _slack(run: Run) -> int:
    """The rows that a run may hold of an unlisted key; all of its rows if it lists nothing."""
    floor = hot_keys_of(run).floor
    return floor - 1 if floor else run.rows
