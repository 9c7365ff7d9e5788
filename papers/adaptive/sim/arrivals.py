"""What a stream brings, chunk by chunk: rows of both inputs, the results that they make, and their keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.errors import UsageError

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows of each input in each chunk. Inside a chunk both arrive evenly mixed.

    `result_rows` are the pairs that a chunk makes with itself and with all before it; None stands for none.
    """

    left_rows: Counts
    right_rows: Counts
    left_row_bytes: int = 1
    right_row_bytes: int = 1
    result_rows: Floats | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.left_rows), len(self.right_rows)}
        if self.result_rows is not None:
            lengths.add(len(self.result_rows))
        if len(lengths) > 1:
            raise UsageError(f"the inputs and results have different numbers of chunks: {sorted(lengths)}")

    @property
    def results(self) -> Floats:
        return np.zeros(len(self.left_rows)) if self.result_rows is None else self.result_rows


@dataclass(frozen=True, slots=True)
class KeyedArrivals:
    """The same with an integer key for each row, in order of arrival, for joins by equality."""

    arrivals: Arrivals
    left_keys: Counts
    right_keys: Counts

    def __post_init__(self) -> None:
        for name, keys, rows in (
            ("left", self.left_keys, self.arrivals.left_rows),
            ("right", self.right_keys, self.arrivals.right_rows),
        ):
            if len(keys) != rows.sum():
                raise UsageError(f"{len(keys)} {name} keys for {rows.sum()} {name} rows")


@dataclass(frozen=True, slots=True)
class KeyedChunk:
    """Rows and results that one chunk has for each distinct key."""

    left_rows: Counts
    right_rows: Counts
    result_rows: Counts


def distinct_keys(keyed: KeyedArrivals) -> Counts:
    return np.unique(np.concatenate([keyed.left_keys, keyed.right_keys]))


def count_keys(keyed: KeyedArrivals) -> Iterator[KeyedChunk]:
    """Chunk by chunk; the places in each count are those of `distinct_keys`."""
    keys = distinct_keys(keyed)
    left, right = np.searchsorted(keys, keyed.left_keys), np.searchsorted(keys, keyed.right_keys)
    left_ends, right_ends = np.cumsum(keyed.arrivals.left_rows), np.cumsum(keyed.arrivals.right_rows)
    old_left, old_right = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    for new_left, new_right in zip(
        np.split(left, left_ends[:-1]), np.split(right, right_ends[:-1]), strict=True
    ):
        left_rows = np.bincount(new_left, minlength=len(keys))
        right_rows = np.bincount(new_right, minlength=len(keys))
        results = left_rows * (old_right + right_rows) + old_left * right_rows
        yield KeyedChunk(left_rows, right_rows, results)
        old_left += left_rows
        old_right += right_rows


def with_equality_results(keyed: KeyedArrivals) -> KeyedArrivals:
    """The same arrivals with the pairs of equal keys as their results."""
    results = np.array([float(chunk.result_rows.sum()) for chunk in count_keys(keyed)])
    return replace(keyed, arrivals=replace(keyed.arrivals, result_rows=results))
