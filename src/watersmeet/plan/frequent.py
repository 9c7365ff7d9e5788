"""Which keys may be heavy: a frequent-items sketch over what the live runs list.

Source: Cormode and Hadjieleftheriou 2008, as Apache DataSketches implements it. A run lists, exactly, its keys of at
least `hot_floor` rows. The sketch adds these lists up in bounded memory; a run that does not list a key may hold up
to `hot_floor - 1` rows of it if the key lies between its first and its last one, so the upper bound is wider by that.
Since only live runs count, the same code serves the full stream and a sliding window.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import datasketches

from watersmeet.model.cube import Bounds
from watersmeet.model.facts import Run

# Keys that the sketch holds at most, as a power of two: above that, the least frequent ones make room.
_SKETCH_BITS = 13


@dataclass(frozen=True, slots=True)
class _Steps:
    """Amounts at ascending keys, added up: `sums[n]` is that of the first n."""

    keys: tuple[int, ...] = ()
    sums: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, amounts: Iterable[tuple[int, int]]) -> _Steps:
        steps = sorted(amounts)
        sums = itertools.accumulate((amount for _, amount in steps), initial=0)
        return cls(tuple(key for key, _ in steps), tuple(sums))


@dataclass(frozen=True, slots=True)
class Frequent:
    """The keys that some live run lists, with bounds for all rows of the input, and how they are written.

    `begun` and `ended` have the rows that runs may hold of a key without listing it, by their first and last keys;
    `error` is what the sketch may have let go of.
    """

    bounds: dict[int, Bounds] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    begun: _Steps = field(default_factory=_Steps)
    ended: _Steps = field(default_factory=_Steps)
    error: int = 0

    def of(self, key: int) -> Bounds:
        return self.bounds.get(key) or Bounds(0, _unlisted(key, self.begun, self.ended) + self.error)


def _unlisted(key: int, begun: _Steps, ended: _Steps) -> int:
    """The rows that all runs together may hold of a key if none lists it: those that end before it hold none."""
    return begun.sums[bisect.bisect_right(begun.keys, key)] - ended.sums[bisect.bisect_left(ended.keys, key)]


def frequent(runs: Sequence[Run]) -> Frequent:
    """The bounds that the runs of one input give.

    >>> def run(rows, floor, **hot):
    ...     return Run("l", "p", "p", 0, rows, 1, 0, 9, "", hot_floor=floor, **hot)
    >>> one = run(100, 10, hot=(7,), hot_rows=(40,), hot_labels=("seven",))
    >>> found = frequent([one, run(50, 5, hot=(7, 9), hot_rows=(20, 6), hot_labels=("", ""))])
    >>> found.of(7), found.of(9), found.of(1)
    (Bounds(lower=60, upper=60), Bounds(lower=6, upper=15), Bounds(lower=0, upper=13))
    """
    sketch = datasketches.frequent_items_sketch(_SKETCH_BITS)
    labels: dict[int, str] = {}
    covered: dict[int, int] = defaultdict(int)
    for run in runs:
        slack = _slack(run)
        for key, rows, label in zip(run.hot, run.hot_rows, run.hot_labels, strict=True):
            sketch.update(key, rows)
            covered[key] += slack
            if label:
                labels[key] = label
    begun = _Steps.of((run.low, _slack(run)) for run in runs)
    ended = _Steps.of((run.high, _slack(run)) for run in runs)
    listed = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    bounds = {
        key: Bounds(lower, upper + _unlisted(key, begun, ended) - covered[key])
        for key, _estimate, lower, upper in listed
    }
    # What the sketch let go of is listed nowhere: its error comes on top.
    return Frequent(bounds, labels, begun, ended, sketch.get_upper_bound(-1))


def _slack(run: Run) -> int:
    """The rows that a key may have in a run without being listed; all of them where a run lists nothing."""
    return run.hot_floor - 1 if run.hot_floor else run.rows
