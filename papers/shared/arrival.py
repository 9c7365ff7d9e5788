"""When which input arrives: a path through (rows of the left input, rows of the right one), cut into batches and files.

Source: Elseidy et al. 2014, 5.4, for the alternating arrival: one input streams in until it has k times the
rows of the other, then the roles change, until both are at their end.

The i-th file of either input makes the i-th micro-batch. Spark's file source takes files in the order of their
modification time, so times are set one second apart.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from papers.shared.queries import Inputs

_FIRST_MTIME = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """The rows of each input that have arrived."""

    left: int
    right: int


def steady(left_rows: int, right_rows: int) -> list[Point]:
    """Both at a steady rate, from the first row to the last."""
    return [Point(0, 0), Point(left_rows, right_rows)]


def alternating(left_rows: int, right_rows: int, k: int, start_rows: int) -> list[Point]:
    """In turns, after `start_rows` of each: the left one until it has k times the right, then the right one ...

    >>> alternating(40, 40, 2, 2)[:4]
    [Point(left=0, right=0), Point(left=2, right=2), Point(left=4, right=2), Point(left=4, right=8)]
    """
    at = Point(min(start_rows, left_rows), min(start_rows, right_rows))
    path = [Point(0, 0), at]
    turn_of_left = True
    while at != Point(left_rows, right_rows):
        if turn_of_left:
            at = Point(left_rows if at.right == right_rows else min(left_rows, k * at.right), at.right)
        else:
            at = Point(at.left, right_rows if at.left == left_rows else min(right_rows, k * at.left))
        turn_of_left = not turn_of_left
        if at != path[-1]:
            path.append(at)
    return path


def cut(path: Sequence[Point], batches: int) -> list[Point]:
    """Where the batches end, each with the same number of rows of both inputs together.

    >>> cut(steady(2, 8), 2)
    [Point(left=1, right=4), Point(left=2, right=8)]
    """
    left, right = (np.array([getattr(point, side) for point in path]) for side in ("left", "right"))
    ends = np.linspace(0, left[-1] + right[-1], batches + 1)[1:]
    # Rounded down to whole rows; both inputs grow along the path, so no row is lost or sent twice.
    lefts, rights = (np.interp(ends, left + right, side).astype(np.int64) for side in (left, right))
    return [Point(*ends) for ends in zip(lefts.tolist(), rights.tolist(), strict=True)]


def write_streams(inputs: Inputs, ends: Sequence[Point], folder: Path) -> None:
    """One file for each input and batch, without rows if the batch has none, in `folder`/<input>."""
    left, right = inputs.query.sides
    reached = {left: [0, *(end.left for end in ends)], right: [0, *(end.right for end in ends)]}
    for side, rows in reached.items():
        (folder / side).mkdir(parents=True)
        for batch, (start, end) in enumerate(itertools.pairwise(rows)):
            path = folder / side / f"{batch:05d}.parquet"
            pq.write_table(inputs.tables[side].slice(start, end - start), path)
            os.utime(path, (_FIRST_MTIME + batch, _FIRST_MTIME + batch))
