"""What a share of a batch owes, as pairs of pieces of bounded size.

For inputs L and R with fresh rows l, r and history L', R' a batch owes

    l x R'   +   L' x r   +   l x r

and nothing else: every pair of rows meets in the batch in which the later of the two arrives, so each result comes
out exactly once (the delta rule of incremental view maintenance).

Memory: small slices are put together into pieces of about `piece_rows` (model/limits.py), larger ones are only viewed.
History is only viewed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.kernel.bounds import bundled
from watersmeet.kernel.emit import Picked, PickedRows
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.late import LateDeal
from watersmeet.kernel.rows import Keyed, Merged, RowPlaces, merge_order, take_rows
from watersmeet.model.limits import Limits
from watersmeet.model.tally import Tally
from watersmeet.model.walks import KeyCut


@dataclass(frozen=True, slots=True)
class Side:
    """One input as a task sees it: slices of the batch's runs and of all older ones.

    A kernel that compares all pairs (theta.py) does not look at keys: its slices need not be sorted. `rank` is the
    place in the order of a walk (walk.py), if the plan has one, and `late` the deal of its fresh rows on the way.
    `cuts` are the keys of the combinations that the walk makes, if not all.
    """

    name: str
    fresh: Sequence[Keyed]
    history: Sequence[Keyed]
    rank: int | None = None
    late: LateDeal | None = None
    cuts: tuple[KeyCut, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """A piece: sorted keys over rows of one input. If those lie in another order, `order` maps a place to its row."""

    input: str
    keys: Keys
    rows: pa.RecordBatch
    order: Indices | RowPlaces | None = None

    def picked(self, at: Indices) -> Picked:
        """The rows at some places of the keys."""
        return Picked(self.rows, at if self.order is None else self.order[at].astype(np.int64, copy=False))

    def between(self, start: int, stop: int, columns: Sequence[str]) -> pa.RecordBatch:
        """Some columns of the rows whose keys lie together."""
        rows = self.rows.select(list(columns))
        if self.order is None:
            return rows.slice(start, stop - start)
        return take_rows(rows, self.order[start:stop].astype(np.int64, copy=False))


def look_up_fresh(sides: Sequence[Side], tally: Tally | None) -> None:
    """Count the fresh rows of all sides."""
    if tally is not None:
        tally.look_up(sum(len(rows) for side in sides for rows in side.fresh))


def keyed_rows(name: str, slice_: Keyed) -> KeyedRows:
    """View one slice as a piece."""
    return KeyedRows(name, slice_.keys, slice_.rows, slice_.order if isinstance(slice_, Merged) else None)


def owed_pieces(
    first: Side, second: Side, limits: Limits, *, sort: bool = True
) -> Iterator[tuple[KeyedRows, KeyedRows]]:
    """What a batch owes: fresh x history, history x fresh and fresh x fresh, as pairs of pieces.

    Without `sort` the keys of a piece are in no order, and its rows are in the order of its keys.
    """
    first_fresh, second_fresh = _Fresh(first, limits, sort), _Fresh(second, limits, sort)
    first_old, second_old = (list(_old_pieces(side, limits, sort)) for side in (first, second))
    yield from ((new, old) for new in first_fresh for old in second_old)
    yield from ((old, new) for new in second_fresh for old in first_old)
    yield from ((one, other) for one in first_fresh for other in second_fresh)


def _old_pieces(side: Side, limits: Limits, sort: bool) -> Iterator[KeyedRows]:
    """A side's history: a slice is a piece, but small slices are put together."""
    filled = [s for s in side.history if len(s)]
    small = [s for s in filled if len(s) <= limits.small_rows and s.rows.nbytes <= limits.small_bytes]
    if len(small) < 2:
        small = []
    chosen = set(map(id, small))
    yield from (keyed_rows(side.name, s) for s in filled if id(s) not in chosen)
    yield from pieces(side.name, small, limits, sort=sort)


class _Fresh:
    """A side's fresh pieces, to be walked several times: kept where they are small, else put together again."""

    def __init__(self, side: Side, limits: Limits, sort: bool):
        self.side, self.limits, self.sort = side, limits, sort
        self.kept = list(self._made()) if fit_a_piece(side.fresh, limits) else None

    def __iter__(self) -> Iterator[KeyedRows]:
        return self._made() if self.kept is None else iter(self.kept)

    def _made(self) -> Iterator[KeyedRows]:
        return pieces(self.side.name, self.side.fresh, self.limits, sort=self.sort)


def pieces(name: str, slices: Sequence[Keyed], limits: Limits, *, sort: bool = True) -> Iterator[KeyedRows]:
    """Put small slices together into pieces of bounded size; a slice that is larger by itself stays a view."""
    filled, most_rows, most_bytes = filter(len, slices), limits.piece_rows, limits.piece_bytes
    for held in bundled(filled, len, lambda s: s.nbytes, most_rows, most_bytes):
        if len(held) == 1:
            yield keyed_rows(name, held[0])
        elif sort:
            yield _merged(name, held)
        else:
            keys = np.concatenate([s.keys for s in held])
            yield KeyedRows(name, keys, pa.concat_batches([s.rows for s in held]))


def _merged(name: str, held: Sequence[Keyed]) -> KeyedRows:
    """Several slices as one piece. Their rows are copied behind each other, only the keys are sorted."""
    keys, order = merge_order([s.keys for s in held])
    # Rows without a key in the slice are not worth copying.
    fewer = [s.rewritten() if isinstance(s, Merged) and len(s) < s.rows.num_rows else s for s in held]
    if any(isinstance(s, Merged) for s in fewer):
        before = itertools.accumulate((s.rows.num_rows for s in fewer[:-1]), initial=0)
        places = [
            (s.order if isinstance(s, Merged) else np.arange(len(s))) + np.int64(first)
            for s, first in zip(fewer, before, strict=True)
        ]
        order = np.concatenate(places)[order]
    return KeyedRows(name, keys, pa.concat_batches([s.rows for s in fewer]), order)


def fit_a_piece(slices: Sequence[Keyed], limits: Limits) -> bool:
    rows, size = sum(map(len, slices)), sum(s.nbytes for s in slices)
    return rows <= limits.piece_rows and size <= limits.piece_bytes


def candidates(one: KeyedRows, one_at: Indices, other: KeyedRows, other_at: Indices) -> PickedRows:
    """Pairs of rows to test, by their places in the keys of two pieces."""
    return {one.input: one.picked(one_at), other.input: other.picked(other_at)}
