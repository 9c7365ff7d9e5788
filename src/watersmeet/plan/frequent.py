"""Which keys may be heavy: a frequent-items sketch over what the live runs list.

Source: Cormode and Hadjieleftheriou 2008, as Apache DataSketches implements it. A run lists, exactly, its keys of at
least `hot_floor` rows. The sketch adds these lists up in bounded memory; a run that does not list a key may hold up
to `hot_floor - 1` rows of it, so the upper bound is wider by that. Since only live runs count, the same code serves
the full stream and a sliding window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import datasketches

from watersmeet.model.cube import Bounds
from watersmeet.model.facts import Run

# Keys that the sketch holds at most, as a power of two: above that, the least frequent ones make room.
_SKETCH_BITS = 13


@dataclass(frozen=True, slots=True)
class Frequent:
    """The keys that some live run lists, with bounds for all rows of the input, and how they are written.

    `unlisted` bounds the rows of any other key.
    """

    bounds: dict[int, Bounds] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)
    unlisted: int = 0

    def of(self, key: int) -> Bounds:
        return self.bounds.get(key, Bounds(0, self.unlisted))


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
    unlisted = 0
    for run in runs:
        slack = _slack(run)
        unlisted += slack
        for key, rows, label in zip(run.hot, run.hot_rows, run.hot_labels, strict=True):
            sketch.update(key, rows)
            covered[key] += slack
            if label:
                labels[key] = label
    listed = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES, 0)
    bounds = {key: Bounds(lower, upper + unlisted - covered[key]) for key, _estimate, lower, upper in listed}
    # What the sketch let go of is listed nowhere: its error comes on top.
    return Frequent(bounds, labels, unlisted + sketch.get_upper_bound(-1))


def _slack(run: Run) -> int:
    """The rows that a key may have in a run without being listed; all of them where a run lists nothing."""
    return run.hot_floor - 1 if run.hot_floor else run.rows
