"""Windows over rows: how many rows of a stream have come, and which of them no such window reaches any more.

    WINDOW 1000 ROWS     each row of an answer is among the last 1000 of its stream before the batch of the newest row,
                         or comes with it

As `within="1000 rows"` of a join. The rows of a stream that are not late count, whichever queries they answer. A late
row is in no window.

A batch needs no count to evaluate such a window: all rows since a query was added are stored as long as it needs them,
and their numbers ascend with the batches. So the last rows before the batch are found by number (hubs/rows.py).

Counts say when rows may leave. All rows of a stream have a publication time, and those that are not late have one from
the watermark of their batch on. A *milestone* is the count before a batch, with its watermark: all rows behind it have
at least this time. So if a milestone is further back than the widest window, rows below its time are in no window, and
leave as those of windows over time do (hubs/needed.py). A stream is counted while a query with such a window reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from watersmeet.model.window import CountedRows, Milestone

# The share of the widest window that lies between two milestones: it bounds their number, and by how much more rows stay.
_MILESTONE_SHARE = 32


def count_rows(
    before: Mapping[str, CountedRows],
    widest: Mapping[str, int],
    arrived: Mapping[str, int],
    watermarks: Mapping[str, int],
    later: Mapping[str, int],
) -> dict[str, CountedRows]:
    """The counts after a batch, of the streams that are read through a window over rows: `widest` has its rows.

    `arrived` are the rows of the batch that are not late. `watermarks` are those of the batch, `later` those of the next.

    >>> counted = count_rows({}, {"R": 4}, {"R": 2}, {"R": 10}, {"R": 20})
    >>> counted = count_rows(counted, {"R": 4}, {"R": 3}, {"R": 20}, {"R": 30})
    >>> counted["R"].rows, floor_of(counted["R"], 3), floor_of(counted["R"], 4)
    (5, 20, 10)
    """
    return {
        stream: _after(
            before.get(stream) or _begin(watermarks.get(stream)),
            width,
            arrived.get(stream, 0),
            later.get(stream),
        )
        for stream, width in widest.items()
    }


def floor_of(counted: CountedRows | None, width: int) -> int | None:
    """The publication time below which no row is among the last `width`; None if it is not known."""
    if counted is None:
        return None
    passed = [milestone.time for milestone in counted.milestones if milestone.rows <= counted.rows - width]
    return passed[-1] if passed else None


def _begin(watermark: int | None) -> CountedRows:
    return CountedRows(0, () if watermark is None else (Milestone(0, watermark),))


def _after(before: CountedRows, width: int, arrived: int, watermark: int | None) -> CountedRows:
    rows = before.rows + arrived
    milestones = list(before.milestones)
    if watermark is not None:
        if milestones and milestones[-1].rows == rows:
            milestones.pop()
        if not milestones or rows - milestones[-1].rows >= max(1, width // _MILESTONE_SHARE):
            milestones.append(Milestone(rows, watermark))
    # Of the milestones that the widest window has passed only the last one says anything.
    passed = sum(1 for milestone in milestones if milestone.rows <= rows - width)
    return CountedRows(rows, tuple(itertools.islice(milestones, max(0, passed - 1), None)))
