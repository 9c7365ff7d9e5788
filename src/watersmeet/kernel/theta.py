"""Join by any condition: block by block over the pairs that a batch owes.

The pairs are those of `kernel/equi.py` (fresh x history, history x fresh, fresh x fresh), but nothing says which of
them may match, so all are looked at: the cost of a batch follows its new rows times the history. Where the
predicate has a band, `kernel/band.py` is the better way.

`kernel/truth.py` decides a block of pairs; where there is nothing to decide, `kernel/cross.py` gives them all. A
condition in Python is called with aligned rows, one for each pair that is left. Memory: slabs of `SLAB_ROWS` of each
side, blocks of `BLOCK_PAIRS`, results as in `kernel/pairs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import ConditionError
from watersmeet.kernel import truth
from watersmeet.kernel.cross import cross, needed, rows_of_a_batch
from watersmeet.kernel.pairs import (
    Emission,
    Indices,
    OutputColumn,
    Piece,
    Side,
    bounded,
    emit,
    expand,
    output_rows,
    owed_pieces,
)
from watersmeet.kernel.sorted import take_rows
from watersmeet.model.expression import Expression, Literal

# (left rows, right rows), aligned -> one truth for each pair, as an Arrow or a numpy array.
Condition = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
Pairs = Iterator[tuple[Indices, Indices]]

# Rows of a side that are made ready together: what is computed for each of them is then used thousands of times.
SLAB_ROWS = 65_536
# A block's truths stay in the cache. Compared as a matrix, so should a row of words; row by row, a row must be
# long enough to hide the cost of some calls.
BLOCK_PAIRS = 262_144
MATRIX_WIDTH = 8_192


@dataclass(frozen=True, slots=True)
class ThetaJoin:
    """Pairs for which `residual` is true and `condition` returns true; without both, every pair.

    `condition` sees `columns`: those of the left input and those of the right one, by name.
    """

    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    condition: Condition | None = None
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


def join_blocks(left: Side, right: Side, join: ThetaJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    if isinstance(join.residual, Literal) and join.residual.value is not True:
        return
    always = join.residual is None or isinstance(join.residual, Literal)
    apart = None if always or join.residual is None else truth.take_apart(join.residual, join.ansi)
    names = (left.name, right.name)
    emission = Emission(None, join.output, join.ansi)
    for one, other in owed_pieces(left, right):
        if always and join.condition is None and (crossed := _all_pairs(one, other, names, join.output)):
            yield from crossed
            continue
        limit = output_rows(one, other)
        for one_at, other_at in _bounded(_pairs(one, other, names, apart, limit), limit):
            if join.condition is None:
                yield from emit(one, one_at, other, other_at, names, emission)
                continue
            for here in bounded(one, one_at, join.columns[0], other, other_at, join.columns[1]):
                one_here, other_here = one_at[here], other_at[here]
                keep = _asked(join.condition, one, one_here, other, other_here, join.columns)
                yield from emit(one, one_here[keep], other, other_here[keep], names, emission)


def _all_pairs(
    one: Piece, other: Piece, names: tuple[str, str], output: Sequence[OutputColumn]
) -> Iterator[pa.RecordBatch] | None:
    """A cross product needs no positions, unless its rows are so wide that each must be weighed."""
    one_rows, other_rows = (
        piece.rows.select(needed(output, name)) for piece, name in zip((one, other), names, strict=True)
    )
    limit = rows_of_a_batch(one_rows, other_rows)
    return cross(one_rows, other_rows, names, output, limit) if limit else None


def _pairs(
    one: Piece, other: Piece, names: tuple[str, str], condition: truth.Condition | None, limit: int
) -> Pairs:
    """Positions of the pairs for which the condition is true; the longer piece lies across."""
    if len(one.keys) > len(other.keys):
        for other_at, one_at in _pairs(other, one, names[::-1], condition, limit):
            yield one_at, other_at
        return
    if condition is None:
        height, width = len(one.keys), len(other.keys)
        yield from expand(np.arange(height), np.zeros(height, np.int64), np.full(height, width), limit)
        return
    for top in range(0, len(one.keys), SLAB_ROWS):
        down = truth.prepare(names[0], one.rows.slice(top, SLAB_ROWS), condition)
        for first in range(0, len(other.keys), SLAB_ROWS):
            across = truth.prepare(names[1], other.rows.slice(first, SLAB_ROWS), condition)
            for rows, cols in _blocks(
                down.rows, across.rows, MATRIX_WIDTH if condition.matrix else SLAB_ROWS
            ):
                down_at, across_at = truth.true_pairs(down, across, rows, cols, condition)
                yield down_at + top, across_at + first


def _blocks(height: int, width: int, most: int) -> Iterator[tuple[slice, slice]]:
    across = min(width, most)
    down = max(1, BLOCK_PAIRS // max(1, across))
    for left in range(0, width, across):
        for top in range(0, height, down):
            yield slice(top, min(top + down, height)), slice(left, min(left + across, width))


def _bounded(found: Pairs, limit: int) -> Pairs:
    """The same pairs, put together and cut so that each step has `limit` of them, the last fewer."""
    held: list[tuple[Indices, Indices]] = []
    size = 0
    for one_at, other_at in found:
        start = 0
        while size + len(one_at) - start >= limit:
            stop = start + limit - size
            held.append((one_at[start:stop], other_at[start:stop]))
            yield _together(held)
            held, size, start = [], 0, stop
        if start < len(one_at):
            held.append((one_at[start:], other_at[start:]))
            size += len(one_at) - start
    if held:
        yield _together(held)


def _together(held: list[tuple[Indices, Indices]]) -> tuple[Indices, Indices]:
    if len(held) == 1:
        return held[0]
    return np.concatenate([one for one, _ in held]), np.concatenate([other for _, other in held])


def _asked(
    condition: Condition,
    one: Piece,
    one_at: Indices,
    other: Piece,
    other_at: Indices,
    columns: tuple[tuple[str, ...], tuple[str, ...]],
) -> Indices:
    """The pairs for which a condition in Python is true."""
    left, right = (
        take_rows(piece.rows.select(list(names)), at)
        for piece, at, names in ((one, one_at, columns[0]), (other, other_at, columns[1]))
    )
    called = getattr(condition, "__qualname__", None) or repr(condition)
    try:
        answer = condition(left, right)
    except Exception as error:
        problem = f"the join condition {called} raised {type(error).__name__}: {error}"
        raise ConditionError(f"{problem}\nit was called with {len(one_at)} pairs of rows") from error
    return np.flatnonzero(_truths(answer, len(one_at), called))


def _truths(answer: object, rows: int, called: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A condition's answer as a mask; null is not true."""
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if isinstance(answer, pa.Array) and pa.types.is_boolean(answer.type):
        mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    elif isinstance(answer, np.ndarray) and answer.dtype == np.bool_ and answer.ndim == 1:
        mask = answer
    else:
        raise ConditionError(
            f"the join condition {called} returned {_described(answer)}\n"
            f"it must return a boolean pyarrow or numpy array, one value for each of the {rows} pairs of rows"
        )
    if len(mask) != rows:
        raise ConditionError(
            f"the join condition {called} returned {len(mask)} values for {rows} pairs of rows\n"
            "it must return one value for each pair, in the order of the pairs"
        )
    return mask


def _described(answer: object) -> str:
    if isinstance(answer, pa.Array):
        return f"a pyarrow array of {answer.type}"
    if isinstance(answer, np.ndarray):
        return f"a numpy array of {answer.dtype} with {answer.ndim} dimensions"
    return f"a {type(answer).__name__}"
