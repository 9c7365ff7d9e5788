"""Equality join of sorted runs: new rows against history and against each other.

For inputs L and R with fresh rows l, r and history L', R' a batch owes

    l x R'   +   L' x r   +   l x r

and nothing else: every pair of rows meets in the batch in which the later of the two arrives, so each
result comes out exactly once (the delta rule of incremental view maintenance). Both sides are sorted by
order key; the shorter side is looked up in the longer by binary search, so the cost of a batch follows
its new rows and its results, not the history.

Memory: fresh slices are walked in key ranges of about `PIECE_ROWS` rows, candidates are expanded
`OUTPUT_ROWS` at a time (one hot key may fill any number of batches), history is only ever viewed, but for that of a
single key where it fits a piece. Where a key has many rows on both sides and nothing else is asked, no pair is looked
at by itself: see cross.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.kernel import pairs
from watersmeet.kernel.cross import blocks_of, cross, needed, rows_of_a_batch, share_a_key
from watersmeet.kernel.pairs import (
    Emission,
    Indices,
    Matches,
    OutputColumn,
    Piece,
    Side,
    emit,
    expand,
    fit_a_piece,
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
    turned = replace(emission, verify=tuple((right_key, left_key) for left_key, right_key in join.verify))
    if _one_key(left, right):
        # A side's history is met by the other's fresh rows, if there are any.
        left, right = (
            _history_at_once(left) if any(map(len, right.fresh)) else left,
            _history_at_once(right) if any(map(len, left.fresh)) else right,
        )
    for left_part, right_part in _cut_fresh(left, right):
        for one, other in owed_pieces(left_part, right_part):
            if len(one.keys) <= len(other.keys):
                yield from _meet(one, other, names, emission)
            else:
                yield from _meet(other, one, names[::-1], turned)


def _one_key(left: Side, right: Side) -> bool:
    """Whether all rows share one order key: so it is with the cells of a heavy key."""
    slices = [s for side in (left, right) for s in (*side.fresh, *side.history) if len(s)]
    return bool(slices) and all(s.keys[0] == slices[0].keys[0] == s.keys[-1] for s in slices)


def _history_at_once(side: Side) -> Side:
    """Rows of one key need no order: those of many small runs are met as one slice, if they fit a piece."""
    if len(side.history) < 2 or not fit_a_piece(side.history):
        return side
    keys = np.concatenate([s.keys for s in side.history])
    return replace(side, history=[Sorted(keys, pa.concat_batches([s.rows for s in side.history]))])


def _meet(
    needles: Piece, sought: Piece, names: tuple[str, str], emission: Emission
) -> Iterator[pa.RecordBatch]:
    """All pairs of two pieces, the shorter one first: those of heavy keys as blocks, the rest by position."""
    matches = matches_of(needles.keys, sought.keys)
    whole = emission.residual is None and emission.within is None
    crossed = np.zeros(len(matches.found), np.bool_)
    for block in blocks_of(matches) if whole else ():
        rows = _rows_of_block(needles, sought, matches, block, names, emission)
        limit = rows_of_a_batch(*rows)
        if limit and share_a_key(*rows, emission.verify):
            crossed[block] = True
            yield from cross(*rows, names, emission.output, limit)
    if crossed.any():
        matches = Matches(*(part[~crossed] for part in matches))
    for needles_at, sought_at in expand(*matches, output_rows(needles, sought)):
        yield from emit(
            needles, needles.places(needles_at), sought, sought.places(sought_at), names, emission
        )


def _rows_of_block(
    needles: Piece,
    sought: Piece,
    matches: Matches,
    block: slice,
    names: tuple[str, str],
    emission: Emission,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows of a key on both sides; neighbours among the needles are neighbours in the piece too."""
    first, start, count = (int(part[block.start]) for part in matches)
    keys_of = zip(*emission.verify, strict=True) if emission.verify else ((), ())
    of_needles, of_sought = (
        list(dict.fromkeys([*needed(emission.output, name), *keys]))
        for name, keys in zip(names, keys_of, strict=True)
    )
    return (
        needles.between(first, first + block.stop - block.start, of_needles),
        sought.between(start, start + count, of_sought),
    )


def equal_pairs(left: Keys, right: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(left) > len(right):
        for right_at, left_at in equal_pairs(right, left, limit):
            yield left_at, right_at
        return
    yield from expand(*matches_of(left, right), limit)


def matches_of(left: Keys, right: Keys) -> Matches:
    """Where each key of `left`, the shorter side, is found in `right`. Both are sorted."""
    if not len(left):
        nowhere = np.zeros(0, np.int64)
        return Matches(nowhere, nowhere, nowhere)
    likely = _likely(left, right)
    needles = left[likely]
    start = np.searchsorted(right, needles)
    same = np.flatnonzero(right[np.minimum(start, len(right) - 1)] == needles)
    found, start = likely[same], start[same]
    return Matches(found, start, np.searchsorted(right, needles[same], side="right") - start)


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
