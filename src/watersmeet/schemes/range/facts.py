"""The plan of a batch under `range`: ranges of left order keys, and the ranges that several tasks share.

The pairs of a shared range are a rectangle: its left rows one way, the right rows that face it the other way. Both are
cut by their position in each run (`RowPart`), and each box of the rectangle belongs to one task. So a pair is in one
box, whatever values its rows have, and no file is rewritten.

A range that has one box is a void (voids.py): one input has no rows there. So it costs nothing, as long as it is not
joined with its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.model.facts import KeyRange, SchemePlan


@dataclass(frozen=True, slots=True)
class TaskBox:
    """What `task` joins of a shared range: left and right parts, each from `low` up to, not including, `high`."""

    task: int
    left_low: int
    left_high: int
    right_low: int
    right_high: int

    @property
    def cells(self) -> int:
        return (self.left_high - self.left_low) * (self.right_high - self.right_low)


@dataclass(frozen=True, slots=True)
class SharedRange:
    """Left keys with too much work for one task, mostly one hot value, or a void.

    Its left rows are cut into `left_parts`, the right rows that face it into `right_parts`.
    """

    range: KeyRange
    left_parts: int
    right_parts: int
    boxes: tuple[TaskBox, ...]

    @property
    def is_void(self) -> bool:
        return len(self.boxes) == 1


@dataclass(frozen=True, slots=True)
class RangePlan(SchemePlan):
    """The range of left order keys of each task, and the shared ranges, ascending, which are left out of them.

    `load` is the planned work of the busiest task and `mean` that of an average task, in rows looked up and pairs.
    """

    kind: ClassVar[str] = "range"
    ranges: tuple[KeyRange, ...]
    shared: tuple[SharedRange, ...] = ()
    load: int = 0
    mean: int = 0
