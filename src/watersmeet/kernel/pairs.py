"""What every join of sorted runs shares: its inputs, pieces of bounded size, and how pairs become batches.

A kernel finds pairs of positions; this module gathers their rows. Memory stays bounded whatever the inputs
and the output: small slices are put together into pieces of about `PIECE_ROWS`, larger ones are only viewed,
and a result batch has at most `OUTPUT_ROWS` rows and about `OUTPUT_BYTES`. A pair that exceeds these bytes by itself
is a batch of its own. No gathered array can reach 2 GiB, where Arrow's 32-bit offsets end, unless one value does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.evaluate import Read, same_value, surviving, take
from watersmeet.kernel.sizes import cut_by_bytes, row_bytes
from watersmeet.kernel.sorted import Keys, Sorted, merge_order, take_rows, taken
from watersmeet.kernel.vectors import Vectors
from watersmeet.kernel.window import close_times
from watersmeet.model.expression import Column, Expression, columns_of
from watersmeet.model.types import VECTOR
from watersmeet.model.window import AT

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
class Emission:
    """What becomes of a candidate pair: `residual` must hold, then the columns of `output` come out.

    `verify` lists columns that must be equal first, where sharing an order key does not say so; before all else the
    window times must be at most `within` apart, if it is given. `gathered` names the columns of each input that are
    copied for a pair: those that come out and those of the residual, vectors excepted, which are read in place.
    """

    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    verify: tuple[tuple[str, str], ...] = ()
    within: int | None = None
    gathered: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[str, dict[str, None]] = {}
        for output in self.output:
            found.setdefault(output.input, {})[output.column] = None
        for column in columns_of(self.residual) if self.residual is not None else ():
            if column.type != VECTOR:
                found.setdefault(column.input, {})[column.name] = None
        object.__setattr__(self, "gathered", {name: tuple(columns) for name, columns in found.items()})


@dataclass(frozen=True, slots=True)
class Piece:
    """Sorted keys over rows that may still lie in another order: `order` maps a key's place to its row."""

    keys: Keys
    rows: pa.RecordBatch
    order: Indices | None = None

    def places(self, at: Indices) -> Indices:
        return at if self.order is None else self.order[at]

    def between(self, start: int, stop: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of the rows whose keys lie together."""
        rows = self.rows.select(list(columns))
        return (
            rows.slice(start, stop - start) if self.order is None else take_rows(rows, self.order[start:stop])
        )


class Matches(NamedTuple):
    """Needles that are found: their places, where the rows equal to each begin, and how many rows these are.

    Needles and what they are sought in are sorted, so the equals of a needle lie together.
    """

    found: Indices
    start: Indices
    rows: Indices


def output_rows(left: Piece, right: Piece) -> int:
    """How many pairs to look at together, going by the mean size of a row."""
    return max(1, min(OUTPUT_ROWS, OUTPUT_BYTES // max(1, _row_bytes(left) + _row_bytes(right))))


def emit(
    left: Piece, left_at: Indices, right: Piece, right_at: Indices, names: tuple[str, str], emission: Emission
) -> Iterator[pa.RecordBatch]:
    """The rows of the candidate pairs that pass, in bounded batches that are not empty."""
    if emission.within is not None:
        left_at, right_at = _within(left, left_at, right, right_at, emission.within)
    verified = zip(*emission.verify, strict=True) if emission.verify else ((), ())
    read = [(*emission.gathered.get(n, ()), *keys) for n, keys in zip(names, verified, strict=True)]
    for here in bounded(left, left_at, read[0], right, right_at, read[1]):
        batch = _gathered(left, left_at[here], right, right_at[here], names, emission)
        if batch.num_rows:
            yield batch


def _within(
    left: Piece, left_at: Indices, right: Piece, right_at: Indices, width: int
) -> tuple[Indices, Indices]:
    left_times, right_times = (piece.rows.column(AT).to_numpy() for piece in (left, right))
    keep = np.flatnonzero(close_times(left_times.take(left_at), right_times.take(right_at), width))
    # By position: where about half of the pairs pass, a mask takes several times as long.
    return (left_at, right_at) if len(keep) == len(left_at) else (left_at.take(keep), right_at.take(keep))


def pick(piece: Piece, column: str, at: Indices) -> pa.Array:
    return taken(piece.rows.column(column), at)


def expand(found: Indices, start: Indices, count: Indices, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Unroll (needle, first match, number of matches) into pairs, cut at multiples of `limit`."""
    reached = np.cumsum(count)
    total = int(reached[-1]) if len(reached) else 0
    if total == len(found):
        for low in range(0, total, limit):
            yield found[low : low + limit], start[low : low + limit]
        return
    shifted = start - (reached - count)
    for low in range(0, total, limit):
        high = min(low + limit, total)
        first, last = np.searchsorted(reached, [low, high - 1], side="right")
        here = slice(int(first), int(last) + 1)
        share = np.diff(np.minimum(reached[here], high), prepend=low)
        yield np.repeat(found[here], share), np.repeat(shifted[here], share) + np.arange(low, high)


def owed_pieces(left: Side, right: Side) -> Iterator[tuple[Piece, Piece]]:
    """What a batch owes: fresh x history, history x fresh and fresh x fresh, as pairs of pieces."""
    left_fresh, right_fresh = _Fresh(left.fresh), _Fresh(right.fresh)
    left_old, right_old = ([Piece(s.keys, s.rows) for s in side.history if len(s)] for side in (left, right))
    yield from ((new, old) for new in left_fresh for old in right_old)
    yield from ((old, new) for new in right_fresh for old in left_old)
    yield from ((one, other) for one in left_fresh for other in right_fresh)


class _Fresh:
    """A side's fresh pieces, to be walked several times: kept where they are small, else put together anew."""

    def __init__(self, slices: Sequence[Sorted]):
        self.slices = slices
        self.kept = gather(slices) if fit_a_piece(slices) else None

    def __iter__(self) -> Iterator[Piece]:
        return _pieces(self.slices) if self.kept is None else iter(self.kept)


def gather(slices: Sequence[Sorted]) -> list[Piece]:
    """Join small slices into pieces of bounded size; a slice that is larger by itself stays a view."""
    return list(_pieces(slices))


def _pieces(slices: Sequence[Sorted]) -> Iterator[Piece]:
    held: list[Sorted] = []
    held_rows = held_bytes = 0
    for s in filter(len, slices):
        size = s.rows.nbytes
        if held and (held_rows + len(s) > PIECE_ROWS or held_bytes + size > PIECE_BYTES):
            yield _together(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(s)
        held_rows += len(s)
        held_bytes += size
    if held:
        yield _together(held)


def fit_a_piece(slices: Sequence[Sorted]) -> bool:
    return sum(map(len, slices)) <= PIECE_ROWS and sum(s.rows.nbytes for s in slices) <= PIECE_BYTES


def _together(slices: list[Sorted]) -> Piece:
    if len(slices) == 1:
        return Piece(slices[0].keys, slices[0].rows)
    keys, order = merge_order([s.keys for s in slices])
    return Piece(keys, pa.concat_batches([s.rows for s in slices]), order)


def _row_bytes(piece: Piece) -> int:
    return piece.rows.nbytes // len(piece.keys) + 1 if len(piece.keys) else 1


def bounded(
    left: Piece,
    left_at: Indices,
    left_columns: Sequence[str],
    right: Piece,
    right_at: Indices,
    right_columns: Sequence[str],
) -> Iterator[slice]:
    """Cut pairs so that these columns of both rows stay within `OUTPUT_BYTES`: the mean says nothing of one huge value."""
    sides = (left, left_at, left_columns), (right, right_at, right_columns)
    weighed = (row_bytes([piece.rows.column(name) for name in names], at) for piece, at, names in sides)
    sizes = [found for found in weighed if found is not None]
    if not sizes:
        return iter((slice(0, len(left_at)),))
    return cut_by_bytes(sum(sizes[1:], sizes[0]), OUTPUT_BYTES)


def _gathered(
    left: Piece, left_at: Indices, right: Piece, right_at: Indices, names: tuple[str, str], emission: Emission
) -> pa.RecordBatch:
    for left_key, right_key in emission.verify:
        same = same_value(pick(left, left_key, left_at), pick(right, right_key, right_at))
        keep = np.flatnonzero(pc.fill_null(same, False))
        if len(keep) < len(left_at):
            left_at, right_at = left_at[keep], right_at[keep]
    sides = {names[0]: (left, left_at), names[1]: (right, right_at)}
    if emission.residual is not None and len(left_at):
        keep = surviving(emission.residual, _reader(sides), len(left_at), ansi=emission.ansi)
        sides = {name: (piece, at[keep]) for name, (piece, at) in sides.items()}
    arrays = [pick(sides[c.input][0], c.column, sides[c.input][1]) for c in emission.output]
    return pa.RecordBatch.from_arrays(arrays, names=[c.name for c in emission.output])


def _reader(sides: dict[str, tuple[Piece, Indices]]) -> Read:
    def read(column: Column, alive: Indices) -> pa.Array | Vectors:
        piece, at = sides[column.input]
        return take(piece.rows.column(column.name), at[alive])

    return read
