"""Joins of two inputs on equal keys.

Rows with equal order keys are candidates. Where a key has many rows on both sides and nothing is left to test, no pair
is looked at by itself: all rows meet as a block (`emit.cross`).

Memory: fresh rows are cut into key ranges that fit a piece, and candidates are expanded `output_rows` at a time
(model/limits.py). The history of a single key is copied if it fits a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.kernel.bounds import cut
from watersmeet.kernel.emit import Emission, OutputColumn, cross, rows_crossed, rows_together
from watersmeet.kernel.evaluate import all_same
from watersmeet.kernel.few import FewCandidates
from watersmeet.kernel.match import Matches, expand, is_shorter, matches_of
from watersmeet.kernel.pieces import (
    KeyedRows,
    Side,
    candidates,
    fit_a_piece,
    look_up_fresh,
    owed_pieces,
)
from watersmeet.kernel.rows import Merged, Sorted
from watersmeet.kernel.sizes import mean_row_bytes
from watersmeet.model.expression import Expression
from watersmeet.model.facts import KeyRange
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Tally


@dataclass(frozen=True, slots=True)
class EquiJoin:
    """Pairs of rows with equal order keys for which `residual` is true; the columns of `output` come out.

    `verify` lists the key columns, the first input's first, to compare where the order key is only a hash.
    """

    verify: tuple[tuple[str, ...], ...]
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    ansi: bool = True
    on_one_key: ClassVar[bool] = True

    def results(
        self,
        sides: tuple[Side, ...],
        within: int | None,
        limits: Limits = DEFAULT_LIMITS,
        tally: Tally | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All results that the fresh rows of two sides owe, in bounded batches.

        With `within`, only pairs whose window times are at most that far apart come out. `tally` counts the
        fresh rows, and, if it counts results, the pairs of each key before they are tested.
        """
        first, second = sides
        look_up_fresh(sides, tally)
        verify = tuple(((first.name, one), (second.name, other)) for one, other in self.verify)
        emission = Emission(self.output, self.residual, self.ansi, verify, within, limits=limits)
        if _one_key(first, second):
            # A side's history is met by the other's fresh rows, if there are any.
            first, second = (
                _history_at_once(first, limits) if any(map(len, second.fresh)) else first,
                _history_at_once(second, limits) if any(map(len, first.fresh)) else second,
            )
        few = FewCandidates(emission)
        for first_part, second_part in _cut_fresh(first, second, limits):
            for one, other in owed_pieces(first_part, second_part, limits):
                needles, sought = (one, other) if is_shorter(one.keys, other.keys) else (other, one)
                yield from _meet(needles, sought, emission, few, tally)
        yield from few.rest()


def _one_key(first: Side, second: Side) -> bool:
    """Whether all rows share one order key, as in the cells of a heavy key."""
    slices = [s for side in (first, second) for s in (*side.fresh, *side.history) if len(s)]
    return bool(slices) and all(s.keys[0] == slices[0].keys[0] == s.keys[-1] for s in slices)


def _history_at_once(side: Side, limits: Limits) -> Side:
    """Rows of one key need no order: those of many small runs are met as one slice, if they fit a piece."""
    if len(side.history) < 2 or not fit_a_piece(side.history, limits):
        return side
    keys = np.concatenate([s.keys for s in side.history])
    slices = [s.rewritten() if isinstance(s, Merged) else s for s in side.history]
    return replace(side, history=[Sorted(keys, pa.concat_batches([s.rows for s in slices]))])


def _cut_fresh(first: Side, second: Side, limits: Limits) -> Iterator[tuple[Side, Side]]:
    """The two sides, one key range after the other, so that the fresh rows of a range fit a piece."""
    fresh = (*first.fresh, *second.fresh)
    widest = max((mean_row_bytes(s.rows) for s in fresh), default=1)
    limit = max(1, min(2 * limits.piece_rows, 2 * limits.piece_bytes // widest))
    if sum(map(len, fresh)) <= limit:
        yield first, second
        return
    for range_ in cut([fresh], [1], limit):
        yield _between(first, range_), _between(second, range_)


def _between(side: Side, range_: KeyRange) -> Side:
    return Side(side.name, [s.between(range_) for s in side.fresh], [s.between(range_) for s in side.history])


def _meet(
    needles: KeyedRows,
    sought: KeyedRows,
    emission: Emission,
    few: FewCandidates,
    tally: Tally | None = None,
) -> Iterator[pa.RecordBatch]:
    """The results of two pieces, the one with fewer keys first: heavy keys as blocks, the rest by position.

    Results of few candidates come out later, with others.
    """
    matches, limits = matches_of(needles.keys, sought.keys), emission.limits
    if not len(matches.found):
        return
    if tally is not None and tally.counts:
        tally.count(needles.keys[matches.found], matches.rows)
    crossed = np.zeros(len(matches.found), np.bool_)
    for block in () if emission.tests_pairs else _blocks(matches, limits.heavy_pairs):
        sides = _rows_of_block(needles, sought, matches, block, emission)
        limit = rows_crossed(limits, *sides.values())
        if limit and _share_a_key(sides, emission):
            crossed[block] = True
            yield from cross(sides, emission.output, limit, limits.least_tiled_rows)
    if crossed.any():
        matches = Matches(*(part[~crossed] for part in matches))
    # Few are cut by their bytes later: weighing the rows of two pieces takes as long as looking up their keys.
    together = limits.output_rows
    if int(matches.rows.sum()) > limits.few_rows:
        together = rows_together(limits, needles.rows, sought.rows)
    for needles_at, sought_at in expand(*matches, together):
        yield from few.results(candidates(needles, needles_at, sought, sought_at))


def _blocks(matches: Matches, least_pairs: int) -> list[slice]:
    """Where needles of one key have many pairs together: all of them meet the same rows."""
    if int(matches.rows.sum()) < least_pairs:
        return []
    begin = np.flatnonzero(np.diff(matches.start, prepend=-1))
    end = np.append(begin[1:], len(matches.start))
    many = np.flatnonzero((end - begin) * matches.rows[begin] >= least_pairs)
    return [slice(int(begin[at]), int(end[at])) for at in many]


def _rows_of_block(
    needles: KeyedRows, sought: KeyedRows, matches: Matches, block: slice, emission: Emission
) -> dict[str, pa.RecordBatch]:
    """The rows of a key on both sides; neighbours among the needles are neighbours in the piece too."""
    first, start, count = (int(part[block.start]) for part in matches)
    found = (needles, first, block.stop - block.start), (sought, start, count)
    return {
        piece.input: piece.between(low, low + rows, list(dict.fromkeys(emission.read.get(piece.input, ()))))
        for piece, low, rows in found
    }


def _share_a_key(sides: dict[str, pa.RecordBatch], emission: Emission) -> bool:
    """Whether rows of one hash also have one key; decided without looking at the pairs."""
    return all(
        all_same(sides[one].column(key), sides[other].column(also)[0])
        and all_same(sides[other].column(also), sides[one].column(key)[0])
        for (one, key), (other, also) in emission.verify
    )
