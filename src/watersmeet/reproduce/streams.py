"""Input files for a streaming source: the i-th file of either input makes the i-th micro-batch.

Spark's file source takes files in the order of their modification time, so times are set one second apart.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from watersmeet.reproduce.arrival import Point
from watersmeet.reproduce.queries import Inputs

_FIRST_MTIME = 1_700_000_000


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
