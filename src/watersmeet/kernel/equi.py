"""Equality join of sorted runs: new rows against history and against each other.

For inputs L and R with fresh rows l, r and history L', R' a batch owes

    l x R'   +   L' x r   +   l x r

and nothing else: every pair of rows meets in the batch in which the later of the two arrives, so each
result comes out exactly once (the delta rule of incremental view maintenance). Both sides are sorted by
order key; the shorter side is looked up in the longer by binary search, so the cost of a batch follows
its new rows and its results, not the history.

Memory: fresh slices are walked in key ranges of about `PIECE_ROWS` rows, candidates are expanded
`OUTPUT_ROWS` at a time (one hot key may fill any number of batches), history is only ever viewed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.evaluate import filter_mask, same_value
from watersmeet.kernel.sorted import Keys, Sorted, cut, merge_order
from watersmeet.model.expression import Expression, columns_of
from watersmeet.model.facts import KeyRange

Indices = npt.NDArray[np.int64]

# Fresh rows that are gathered into one sorted piece: large enough to amortise a pass over the history's
# runs, small enough that a piece of wide rows (1 KB each) stays within some 500 MB for both inputs.
PIECE_ROWS = 262_144
PIECE_BYTES = 64 << 20

# Rows of one result batch: large enough to hide the cost per batch on the way to the JVM.
OUTPUT_ROWS = 65_536
OUTPUT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Side:
    """One input as a task sees it: slices of the batch's runs and of all older ones."""

    name: str
    fresh: Sequence[Sorted]
    history: Sequence[Sorted]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    input: str
    column: str
    name: str


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """What to do with a pair of equal order keys.

    `verify` lists the key columns to compare where the order key is only a hash. `residual` must hold
    too. `output` names the columns that come out.
    """

    verify: tuple[tuple[str, str], ...]
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """Sorted keys over rows that may still lie in another order: `order` maps a key's place to its row."""

    keys: Keys
    rows: pa.RecordBatch
    order: Indices | None = None

    def places(self, at: Indices) -> Indices:
        return at if self.order is None else self.order[at]


def join_sides(left: Side, right: Side, join: EquiJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    names = (left.name, right.name)
    for left_part, right_part in _cut_fresh(left, right):
        left_fresh, right_fresh = gather(left_part.fresh), gather(right_part.fresh)
        left_old = [Piece(s.keys, s.rows) for s in left_part.history if len(s)]
        right_old = [Piece(s.keys, s.rows) for s in right_part.history if len(s)]
        owed = [
            *((new, old) for new in left_fresh for old in right_old),
            *((old, new) for old in left_old for new in right_fresh),
            *((one, other) for one in left_fresh for other in right_fresh),
        ]
        for one, other in owed:
            yield from join_pieces(one, other, names, join)


def join_pieces(
    left: Piece, right: Piece, names: tuple[str, str], join: EquiJoin
) -> Iterator[pa.RecordBatch]:
    rows = max(1, min(OUTPUT_ROWS, OUTPUT_BYTES // max(1, _row_bytes(left) + _row_bytes(right))))
    for left_at, right_at in equal_pairs(left.keys, right.keys, rows):
        left_rows, right_rows = left.places(left_at), right.places(right_at)
        for here in _bounded(left, left_rows, right, right_rows, names, join):
            batch = _emit(left, left_rows[here], right, right_rows[here], names, join)
            if batch.num_rows:
                yield batch


def _bounded(
    left: Piece, left_at: Indices, right: Piece, right_at: Indices, names: tuple[str, str], join: EquiJoin
) -> Iterator[slice]:
    """Cut candidates where their text and binary values get large: the mean says nothing of one huge value."""
    sizes = _text_bytes(left, left_at, names[0], join) + _text_bytes(right, right_at, names[1], join)
    reached = np.cumsum(sizes)
    start = 0
    while start < len(left_at):
        before = reached[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(reached, before + OUTPUT_BYTES, side="right")))
        yield slice(start, stop)
        start = stop


def _text_bytes(piece: Piece, at: Indices, name: str, join: EquiJoin) -> npt.NDArray[np.int64]:
    """The bytes of each row in the columns of variable width that come out."""
    total = np.zeros(len(at), np.int64)
    for output in join.output:
        column = piece.rows.column(output.column) if output.input == name else None
        if column is not None and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :] if len(column) else _NONE
            total += offsets[at + 1] - offsets[at]
    return total


_NONE = np.zeros(1, np.int32)


def equal_pairs(left: Keys, right: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(left) > len(right):
        for right_at, left_at in equal_pairs(right, left, limit):
            yield left_at, right_at
        return
    if not len(left):
        return
    start = np.searchsorted(right, left)
    found = np.flatnonzero(right[np.minimum(start, len(right) - 1)] == left)
    start = start[found]
    count = np.searchsorted(right, left[found], side="right") - start
    yield from _expand(found, start, count, limit)


def _expand(found: Indices, start: Indices, count: Indices, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Unroll (needle, first match, number of matches) into pairs, cut at multiples of `limit`."""
    reached = np.cumsum(count)
    total = int(reached[-1]) if len(reached) else 0
    if total == len(found):
        for low in range(0, total, limit):
            yield found[low : low + limit], start[low : low + limit]
        return
    before = reached - count
    for low in range(0, total, limit):
        high = min(low + limit, total)
        first, last = np.searchsorted(reached, [low, high - 1], side="right")
        here = slice(int(first), int(last) + 1)
        share = np.minimum(reached[here], high) - np.maximum(before[here], low)
        needle = np.repeat(np.arange(here.start, here.stop), share)
        yield found[needle], start[needle] + (np.arange(low, high) - before[needle])


def gather(slices: Sequence[Sorted]) -> list[Piece]:
    """Join small slices into pieces of bounded size; a slice that is larger by itself stays a view."""
    pieces: list[Piece] = []
    held: list[Sorted] = []
    held_rows = held_bytes = 0
    for s in filter(len, slices):
        size = s.rows.nbytes
        if held and (held_rows + len(s) > PIECE_ROWS or held_bytes + size > PIECE_BYTES):
            pieces.append(_together(held))
            held, held_rows, held_bytes = [], 0, 0
        held.append(s)
        held_rows += len(s)
        held_bytes += size
    return [*pieces, _together(held)] if held else pieces


def _together(slices: list[Sorted]) -> Piece:
    if len(slices) == 1:
        return Piece(slices[0].keys, slices[0].rows)
    keys, order = merge_order([s.keys for s in slices])
    return Piece(keys, pa.concat_batches([s.rows for s in slices]), order)


def _cut_fresh(left: Side, right: Side) -> Iterator[tuple[Side, Side]]:
    """The two sides, one key range after the other, so that the fresh rows of a range fit a piece."""
    widest = max((_slice_row_bytes(s) for s in (*left.fresh, *right.fresh)), default=1)
    limit = max(1, min(2 * PIECE_ROWS, 2 * PIECE_BYTES // widest))
    fresh = sum(len(s) for s in (*left.fresh, *right.fresh))
    if fresh <= limit:
        yield left, right
        return
    for range_ in cut([left.fresh, right.fresh], [1, 1], limit):
        yield _within(left, range_), _within(right, range_)


def _within(side: Side, range_: KeyRange) -> Side:
    return Side(side.name, [s.between(range_) for s in side.fresh], [s.between(range_) for s in side.history])


def _slice_row_bytes(s: Sorted) -> int:
    return s.rows.nbytes // len(s) + 1 if len(s) else 1


def _row_bytes(piece: Piece) -> int:
    return piece.rows.nbytes // len(piece.keys) + 1 if len(piece.keys) else 1


def _emit(
    left: Piece, left_at: Indices, right: Piece, right_at: Indices, names: tuple[str, str], join: EquiJoin
) -> pa.RecordBatch:
    """Drop candidates whose keys only share a hash or that fail the residual; gather the rest."""
    for left_key, right_key in join.verify:
        same = same_value(_pick(left, left_key, left_at), _pick(right, right_key, right_at))
        keep = np.flatnonzero(pc.fill_null(same, False))
        if len(keep) < len(left_at):
            left_at, right_at = left_at[keep], right_at[keep]
    sides = {names[0]: (left, left_at), names[1]: (right, right_at)}
    if join.residual is not None and len(left_at):
        values = {
            (c.input, c.name): _pick(sides[c.input][0], c.name, sides[c.input][1])
            for c in dict.fromkeys(columns_of(join.residual))
        }
        keep = np.flatnonzero(filter_mask(join.residual, values, len(left_at), ansi=join.ansi))
        sides = {name: (piece, at[keep]) for name, (piece, at) in sides.items()}
    arrays = [_pick(sides[c.input][0], c.column, sides[c.input][1]) for c in join.output]
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in join.output])


def _pick(piece: Piece, column: str, at: Indices) -> pa.Array:
    return piece.rows.column(column).take(pa.array(at))
