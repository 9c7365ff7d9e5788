"""All rows of one side against all rows of the other: what a heavy key asks for.

Pairs of positions would say nothing here that the two numbers of rows do not say. The columns of one side, the
*tiled* one, are written once, as many copies behind each other as fit a batch, and all batches view them; of the
other side, the *spread* one, each batch holds some rows, each as often as the tiled side has rows. So a result
costs a write for each column of one side instead of a read by position for each column of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel import pairs
from watersmeet.kernel.evaluate import same_value
from watersmeet.kernel.pairs import Matches, OutputColumn
from watersmeet.kernel.sizes import all_row_bytes, varies
from watersmeet.kernel.sorted import take_rows

# Fewer pairs of one key than this are as fast by position.
HEAVY_PAIRS = 16_384
# Rows may be so wide that a batch would have fewer of them; then making batches costs more than positions do (at
# 1,024 rows four times as much), which can besides be cut by what each pair weighs.
LEAST_ROWS = 4_096
# A side with fewer rows is not tiled, for so many copies: putting 65,536 of one row together takes 38 ms.
TILED_ROWS = 256


def blocks_of(matches: Matches) -> list[slice]:
    """Where needles of one key have many pairs together: all of them meet the same rows."""
    if int(matches.rows.sum()) < HEAVY_PAIRS:
        return []
    begin = np.flatnonzero(np.diff(matches.start, prepend=-1))
    end = np.append(begin[1:], len(matches.start))
    many = np.flatnonzero((end - begin) * matches.rows[begin] >= HEAVY_PAIRS)
    return [slice(int(begin[at]), int(end[at])) for at in many]


def share_a_key(left: pa.RecordBatch, right: pa.RecordBatch, verify: Sequence[tuple[str, str]]) -> bool:
    """Whether all these rows have one key and not only one hash of it: told without looking at the pairs."""
    return all(
        _all_same(left.column(left_key), right.column(right_key)[0])
        and _all_same(right.column(right_key), left.column(left_key)[0])
        for left_key, right_key in verify
    )


def _all_same(column: pa.Array, value: pa.Scalar) -> bool:
    return bool(pc.all(pc.fill_null(same_value(column, value), False)).as_py())


def rows_of_a_batch(left: pa.RecordBatch, right: pa.RecordBatch) -> int:
    """How many results fit a batch even if all were as wide as the widest one; none if those are too few."""
    fit = pairs.OUTPUT_BYTES // max(1, _widest_row(left) + _widest_row(right))
    return min(pairs.OUTPUT_ROWS, fit) if fit >= LEAST_ROWS else 0


def _widest_row(rows: pa.RecordBatch) -> int:
    if any(varies(field.type) for field in rows.schema):
        return int(all_row_bytes(rows).max(initial=0))
    return rows.nbytes // rows.num_rows + 1 if rows.num_rows else 0


def cross(
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    names: tuple[str, str],
    output: Sequence[OutputColumn],
    limit: int,
) -> Iterator[pa.RecordBatch]:
    """Every pair of rows once, in batches of at most `limit`.

    The side with the narrower rows is spread, as it is the one that is written, or else the one with few rows.

    >>> left, right = pa.record_batch({"a": [1, 2]}), pa.record_batch({"b": [7, 8, 9], "c": [4, 5, 6]})
    >>> columns = OutputColumn("l", "a", "a"), OutputColumn("r", "b", "b")
    >>> [batch.to_pydict() for batch in cross(left, right, ("l", "r"), columns, 3)]
    [{'a': [1, 1, 1], 'b': [7, 8, 9]}, {'a': [2, 2, 2], 'b': [7, 8, 9]}]
    """
    sides = [
        (name, rows.select(needed(output, name))) for name, rows in zip(names, (left, right), strict=True)
    ]
    sides.sort(key=lambda side: side[1].nbytes / side[1].num_rows)
    if sides[1][1].num_rows < TILED_ROWS:
        sides.sort(key=lambda side: side[1].num_rows)
    (spread_name, spread), (_, tiled) = sides
    # In equal parts: a short rest would be copied many times.
    parts = max(1, math.ceil(tiled.num_rows / limit))
    width = max(1, math.ceil(tiled.num_rows / parts))
    for low in range(0, tiled.num_rows, width):
        for spread_rows, tiled_rows in _laid_out(spread, tiled.slice(low, width), limit):
            arrays = [
                (spread_rows if c.input == spread_name else tiled_rows).column(c.column) for c in output
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=[c.name for c in output])


def needed(output: Sequence[OutputColumn], name: str) -> list[str]:
    """The columns of one input that come out; under several names it is still one."""
    return list(dict.fromkeys(c.column for c in output if c.input == name))


def _laid_out(
    spread: pa.RecordBatch, tiled: pa.RecordBatch, limit: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """The two halves of each batch. `tiled` has at most `limit` rows."""
    width = tiled.num_rows
    copies = min(limit // width, spread.num_rows)
    tiles = pa.concat_batches([tiled] * copies) if copies > 1 else tiled
    which: npt.NDArray[np.int64] = np.repeat(np.arange(copies), width)
    for low in range(0, spread.num_rows, copies):
        rows = spread.slice(low, copies)
        here = rows.num_rows * width
        yield take_rows(rows, which[:here]), tiles.slice(0, here)
