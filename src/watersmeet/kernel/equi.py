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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.kernel import pairs
from watersmeet.kernel.pairs import (
    Emission,
    Indices,
    OutputColumn,
    Side,
    emit,
    expand,
    output_rows,
    owed_pieces,
)
from watersmeet.kernel.sorted import Keys, Sorted, cut
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KeyRange


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """What to do with a pair of equal order keys.

    `verify` lists the key columns to compare where the order key is only a hash. `residual` must hold
    too. `output` names the columns that come out. `within` is how far the window times may be apart.
    """

    verify: tuple[tuple[str, str], ...]
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    within: int | None = None


def join_sides(left: Side, right: Side, join: EquiJoin) -> Iterator[pa.RecordBatch]:
    """All results that the fresh rows of both sides owe, in bounded batches."""
    names = (left.name, right.name)
    emission = Emission(join.residual, join.output, join.ansi, join.verify, join.within)
    for left_part, right_part in _cut_fresh(left, right):
        for one, other in owed_pieces(left_part, right_part):
            for one_at, other_at in equal_pairs(one.keys, other.keys, output_rows(one, other)):
                yield from emit(one, one.places(one_at), other, other.places(other_at), names, emission)


def equal_pairs(left: Keys, right: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(left) > len(right):
        for right_at, left_at in equal_pairs(right, left, limit):
            yield left_at, right_at
        return
    if not len(left):
        return
    likely = _likely(left, right)
    needles = left[likely]
    start = np.searchsorted(right, needles)
    same = np.flatnonzero(right[np.minimum(start, len(right) - 1)] == needles)
    found, start = likely[same], start[same]
    count = np.searchsorted(right, needles[same], side="right") - start
    yield from expand(found, start, count, limit)


# Looking at a table of the leading bits costs about a tenth of a binary search, filling it as much for each key
# of the longer side: it pays up to this many times the shorter side (twice as fast at equal length).
_TABLE_RATIO = 4
# Slots for each key, as a power of two: an absent key passes with a probability of about 1/16.
_TABLE_SLOT_BITS = 4


def _likely(left: Keys, right: Keys) -> Indices:
    """Where `left` has keys that share their leading bits with some key of `right`: all that can be equal.

    Most keys of a batch are in none of the small runs; order keys are mixed, so leading bits tell them apart.
    """
    if len(right) > _TABLE_RATIO * len(left):
        return np.arange(len(left))
    shift = np.uint64(64 - len(right).bit_length() - _TABLE_SLOT_BITS)
    taken = np.zeros(1 << (64 - int(shift)), np.bool_)
    taken[right >> shift] = True
    return np.flatnonzero(taken[left >> shift])


def _cut_fresh(left: Side, right: Side) -> Iterator[tuple[Side, Side]]:
    """The two sides, one key range after the other, so that the fresh rows of a range fit a piece."""
    widest = max((_slice_row_bytes(s) for s in (*left.fresh, *right.fresh)), default=1)
    limit = max(1, min(2 * pairs.PIECE_ROWS, 2 * pairs.PIECE_BYTES // widest))
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
