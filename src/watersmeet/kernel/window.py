"""Window times of rows: where they come from, how a run describes them, and which pairs are close.

The test of a pair is one subtraction and one comparison: with the width added, a difference within the window is a
number from 0 to twice the width, and as unsigned words negative ones are larger than that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.model.window import FARTHEST

Times = npt.NDArray[np.int64]

# Shares into which a run's times are cut: the rows below any time are then known to an eighth.
TIME_SHARES = 8
# Times looked at for the inner marks of one section; the smallest and the largest are exact.
_SAMPLE = 4096


def window_times(column: pa.Array) -> tuple[Times, npt.NDArray[np.bool_] | None]:
    """Timestamps, dates or integers as whole numbers, and where they are usable; None if everywhere.

    A null is not, nor what is so far out that a difference might not fit 64 bits.
    """
    if pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.view(pa.int64())
    column = column.cast(pa.int64())
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    times = column.to_numpy()
    if len(times) and (times.min() < -FARTHEST or times.max() > FARTHEST):
        near = (times >= -FARTHEST) & (times <= FARTHEST)
        valid = near if valid is None else valid & near
    return times, valid


def time_marks(parts: Sequence[Times]) -> tuple[int, ...]:
    """Times that cut the rows into equal shares, from the smallest to the largest; no part is empty."""
    sampled = [part[:: max(1, len(part) // _SAMPLE)] for part in parts]
    times = np.sort(np.concatenate(sampled))
    marks = times[np.linspace(0, len(times) - 1, TIME_SHARES + 1).astype(int)].tolist()
    return (min(int(p.min()) for p in parts), *marks[1:-1], max(int(p.max()) for p in parts))


def close_times(left: Times, right: Times, width: int) -> npt.NDArray[np.bool_]:
    """Which of these pairs are at most `width` apart.

    >>> close_times(np.array([0, 10, 10]), np.array([5, 5, 4]), 5).tolist()
    [True, True, False]
    """
    apart = left - right
    apart += width
    return apart.view(np.uint64) <= np.uint64(2 * width)
