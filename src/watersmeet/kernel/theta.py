"""Join by any condition: block by block over the pairs that a batch owes.

The pairs are those of the delta rule (pieces.py), but nothing says which of them may match, so all are looked at: the
cost of a batch follows its new rows times the history. Where the predicate has a band, a band join is faster.

`truth.py` decides a block of pairs; where nothing is to be decided, `emit.cross` gives them all. A condition in
Python is called with aligned rows, one for each pair that is left. Memory: slabs of `slab_rows` of each side, blocks
of `block_pairs` (model/limits.py), results as in emit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import ConditionError
from watersmeet.kernel.emit import (
    Emission,
    OutputColumn,
    Picked,
    PickedRows,
    bounded,
    cross,
    needed,
    rows_crossed,
    rows_together,
)
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.kernel.match import expand
from watersmeet.kernel.pieces import KeyedRows, Side, look_up_fresh, owed_pieces
from watersmeet.kernel.rows import take_rows
from watersmeet.kernel.truth import PairTest, pair_test, prepare, true_pairs
from watersmeet.model.expression import Expression, Literal
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Tally

# (left rows, right rows), aligned -> one truth for each pair, as an Arrow or a numpy array.
Condition = Callable[[pa.RecordBatch, pa.RecordBatch], Any]
Pairs = Iterator[tuple[Indices, Indices]]


@dataclass(frozen=True, slots=True)
class ThetaJoin:
    """Pairs for which `residual` is true and `condition` returns true; without both, every pair.

    `condition` sees `columns`: those of the first input and those of the second one, by name.
    """

    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    condition: Condition | None = None
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    on_one_key: ClassVar[bool] = False

    def results(
        self,
        sides: tuple[Side, ...],
        within: int | None,
        limits: Limits = DEFAULT_LIMITS,
        tally: Tally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As `EquiJoin.results`."""
        left, right = sides
        look_up_fresh(sides, tally)
        residual = self.residual
        if isinstance(residual, Literal):
            if residual.value is not True:
                return
            residual = None
        always = residual is None and within is None
        test = None if always else pair_test(residual, self.ansi, within)
        emission = Emission(self.output, limits=limits)
        read = {side.name: columns for side, columns in zip(sides, self.columns, strict=True)}
        for one, other in owed_pieces(left, right, limits, sort=False):
            if always and self.condition is None and (crossed := self._all_pairs(limits, one, other)):
                yield from crossed
                continue
            limit = rows_together(limits, one.rows, other.rows)
            for one_at, other_at in _evenly(_pairs(one, other, test, limit, limits), limit):
                # All rows meet, so pieces are not sorted, and positions are those of rows.
                found = {one.input: Picked(one.rows, one_at), other.input: Picked(other.rows, other_at)}
                if self.condition is None:
                    yield from emission.results(found)
                    continue
                for part in bounded(found, read, limits.output_bytes):
                    yield from emission.results(_asked(self.condition, part, read))

    def _all_pairs(self, limits: Limits, *pieces: KeyedRows) -> Iterator[pa.RecordBatch] | None:
        """A cross product needs no positions, unless its rows are so wide that each must be weighed."""
        rows = {piece.input: piece.rows.select(needed(self.output, piece.input)) for piece in pieces}
        limit = rows_crossed(limits, *rows.values())
        return cross(rows, self.output, limit, limits.least_tiled_rows) if limit else None


def _pairs(one: KeyedRows, other: KeyedRows, test: PairTest | None, limit: int, limits: Limits) -> Pairs:
    """Positions of the pairs that pass the test; the longer piece lies across."""
    if len(one.keys) > len(other.keys):
        for other_at, one_at in _pairs(other, one, test, limit, limits):
            yield one_at, other_at
        return
    height, width = len(one.keys), len(other.keys)
    if test is None:
        yield from expand(np.arange(height), np.zeros(height, np.int64), np.full(height, width), limit)
        return
    slab, most = limits.slab_rows, limits.matrix_width if test.in_matrix else limits.slab_rows
    for top in range(0, height, slab):
        down = prepare(one.input, one.rows.slice(top, slab), test)
        for first in range(0, width, slab):
            across = prepare(other.input, other.rows.slice(first, slab), test)
            for rows, cols in _blocks(down.rows, across.rows, most, limits.block_pairs):
                down_at, across_at = true_pairs(down, across, rows, cols, test)
                yield down_at + top, across_at + first


def _blocks(height: int, width: int, most: int, pairs: int) -> Iterator[tuple[slice, slice]]:
    across = min(width, most)
    down = max(1, pairs // max(1, across))
    for left in range(0, width, across):
        for top in range(0, height, down):
            yield slice(top, min(top + down, height)), slice(left, min(left + across, width))


def _evenly(found: Pairs, limit: int) -> Pairs:
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


def _asked(condition: Condition, found: PickedRows, read: dict[str, tuple[str, ...]]) -> PickedRows:
    """The pairs for which a condition in Python is true. `read` names its arguments' inputs, in their order."""
    left, right = (
        take_rows(found[name].rows.select(list(columns)), found[name].at) for name, columns in read.items()
    )
    called = getattr(condition, "__qualname__", None) or repr(condition)
    rows = len(found[next(iter(read))].at)
    try:
        answer = condition(left, right)
    except Exception as error:
        problem = f"the join condition {called} raised {type(error).__name__}: {error}"
        raise ConditionError(f"{problem}\nit was called with {rows} pairs of rows") from error
    keep = np.flatnonzero(_truths(answer, rows, called))
    return {name: Picked(picked.rows, picked.at[keep]) for name, picked in found.items()}


def _truths(answer: object, rows: int, called: str) -> Mask:
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
