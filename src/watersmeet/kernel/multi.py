"""Join any number of inputs on one shared key, without an intermediate result.

Source: the symmetric m-way join of Liu, Rundensteiner 2005 (State-intensive queries, section 2), over sorted runs.
With the inputs in any one order, a batch owes for each input i

    fresh i   x   all rows of the inputs before i   x   old rows of the inputs after i

and nothing else. A combination of rows comes out in the batch of its latest rows, in the term of the last input that
has a fresh row in it: exactly once. With two inputs it is the rule of pieces.py.

Two steps keep the cost of a batch to its fresh rows and its results:

1. *Intersect.* Only keys with a fresh row can have results. They are looked up in the runs of every input, the one with
   the fewest rows first, and a key that some input lacks is dropped at once: it costs a binary search and no product.
2. *Expand.* The rows of the keys that are left are gathered once for all terms, old before fresh, and bound input by
   input as positions, depth first in bounded pieces: memory does not follow the fan-out. A test is made as soon as all
   inputs that it reads are bound. One that may raise waits for the last, as another may guard it, and until then drops
   only what it certainly rejects (early.py).

Where a key has many combinations and nothing is left to test, the last input is crossed with the combinations of the
others as a block (`emit.cross`).

Every row that is gathered is in a result, unless a test rejects it. The rows of a single key are gathered in pieces if
they do not fit the memory of a piece.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.kernel.emit import (
    Emission,
    OutputColumn,
    Picked,
    PickedRows,
    close_to,
    columns_read,
    cross,
    picked_at,
    rows_crossed,
    rows_together,
)
from watersmeet.kernel.evaluate import all_same, may_raise
from watersmeet.kernel.gather import (
    Looked,
    Part,
    distinct,
    found_in,
    gather,
    look_up,
    pieces_of_keys,
    row_bytes,
    views,
)
from watersmeet.kernel.keys import Indices, Keys, Mask
from watersmeet.kernel.match import expand
from watersmeet.kernel.pieces import Side, look_up_fresh
from watersmeet.model.expression import Expression, conjunction, conjuncts_of, inputs_of
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.tally import Tally

# Stands for all inputs but one where their combinations are a side of a cross product. No input has this name.
_OTHERS = "*"


@dataclass(frozen=True, slots=True)
class MultiJoin:
    """Combinations of rows, one of each input, with equal order keys for which `residual` is true.

    `verify` has a line for each key that must be compared because the order key is only a hash: its column in each
    input, in the order of the sides.
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
        """All results that the fresh rows of the sides owe, in bounded batches.

        With `within`, only combinations whose window times are all at most that far apart come out. `tally` counts
        the fresh rows, and, if it counts results, the combinations of each key before they are tested.
        """
        look_up_fresh(sides, tally)
        read = {side.name: self._read(side.name, place, within) for place, side in enumerate(sides)}
        keys = {side.name: tuple(line[place] for line in self.verify) for place, side in enumerate(sides)}
        for owed, parts in owed_parts(sides, read, limits):
            if tally is not None and tally.counts:
                tally.count(owed, np.prod([part.count.astype(np.float64) for part in parts], axis=0))
            yield from self._expanded(parts, keys, within, limits)

    def _read(self, name: str, place: int, within: int | None) -> list[str]:
        """The columns that are needed of an input."""
        keys = (line[place] for line in self.verify)
        tested = () if self.residual is None else (self.residual,)
        return columns_read(name, self.output, keys, tested, within)

    def _expanded(
        self, parts: Sequence[Part], keys: dict[str, tuple[str, ...]], within: int | None, limits: Limits
    ) -> Iterator[pa.RecordBatch]:
        """All results of some parts, one of each input."""
        met: Mask = np.all([part.count > 0 for part in parts], axis=0)
        if self.residual is None and within is None:
            combinations = np.prod([part.count.astype(np.float64) for part in parts], axis=0)
            for key in np.flatnonzero(combinations >= limits.heavy_pairs).tolist():
                blocks = self._blocks([part.of(key) for part in parts], keys, limits)
                if blocks is not None:
                    met[key] = False
                    yield from blocks
        if met.any():
            # The largest last: what is bound last is walked in stretches.
            parts = sorted(parts, key=lambda part: int(part.count[met].sum()))
            steps = self._steps([part.name for part in parts], keys, within, limits)
            yield from _bind(
                parts, steps, np.flatnonzero(met), {}, rows_together(limits, *(p.rows for p in parts))
            )

    def _steps(
        self, order: Sequence[str], keys: dict[str, tuple[str, ...]], within: int | None, limits: Limits
    ) -> list[Binding]:
        left = conjuncts_of(self.residual) if self.residual is not None else []
        steps = []
        for place, name in enumerate(order):
            bound, last = set(order[: place + 1]), place == len(order) - 1
            now = [part for part in left if last or (inputs_of(part) <= bound and not may_raise(part))]
            left = [part for part in left if part not in now]
            first = order[0]
            verify = tuple(
                ((first, one), (name, other)) for one, other in zip(keys[first], keys[name], strict=True)
            )
            early = () if last else [part for part in left if name in inputs_of(part) <= bound]
            emission = Emission(
                self.output if last else (),
                conjunction(now),
                self.ansi,
                verify if place else (),
                early=tuple(early),
                limits=limits,
            )
            steps.append(Binding(emission, within if place else None))
        return steps

    def _blocks(
        self, parts: Sequence[Part], keys: dict[str, tuple[str, ...]], limits: Limits
    ) -> Iterator[pa.RecordBatch] | None:
        """All combinations of one key as blocks: its rows of one input, and the combinations of the others.

        None if rows of one hash have different keys, or are so wide that each result must be weighed.
        """
        *others, last = sorted(parts, key=lambda part: part.rows.num_rows)
        outer = tuple(c for c in self.output if c.input != last.name)
        limit = rows_crossed(limits, *(part.rows for part in parts))
        if not outer or not limit or not _one_value(parts, keys):
            return None
        output = [c if c.input == last.name else OutputColumn(_OTHERS, c.name, c.name) for c in self.output]
        steps = [Binding(Emission(outer if part is others[-1] else (), limits=limits)) for part in others]
        return (
            result
            for block in _bind(others, steps, np.zeros(1, np.int64), {}, limits.output_rows)
            for result in cross(
                {_OTHERS: block, last.name: last.rows}, output, limit, limits.least_tiled_rows
            )
        )


def _one_value(parts: Sequence[Part], keys: dict[str, tuple[str, ...]]) -> bool:
    """Whether all rows of the parts, which share a hash, also share the key."""
    values = [parts[0].rows.column(column)[0] for column in keys[parts[0].name]]
    return all(
        all_same(part.rows.column(column), value)
        for part in parts
        for column, value in zip(keys[part.name], values, strict=True)
    )


class Binding(NamedTuple):
    """What is tested when an input is bound; the emission of the last step has the output."""

    emission: Emission
    within: int | None = None


def _bind(
    parts: Sequence[Part], steps: Sequence[Binding], keys: Indices, bound: PickedRows, limit: int
) -> Iterator[pa.RecordBatch]:
    """Bind the rows of the first part to combinations of those before it, then go on with the other parts.

    `keys` has the key of each combination in `bound`; without any, the keys to begin with.
    """
    (part, *others), (step, *later) = parts, steps
    for which, places in expand(np.arange(len(keys)), part.start[keys], part.count[keys], limit):
        found = picked_at(bound, which)
        found[part.name] = Picked(part.rows, part.order[places])
        if step.within is not None:
            found = close_to(found, part.name, step.within)
        if not others:
            yield from step.emission.results(found)
            continue
        found = step.emission.passing(found)
        at = found[part.name].at
        if len(at):
            yield from _bind(others, later, part.owner[at], found, limit)


def owed_parts(
    sides: Sequence[Side], read: dict[str, list[str]], limits: Limits
) -> Iterator[tuple[Keys, Sequence[Part]]]:
    """What a batch owes: for each term a part of each input, all of whose combinations by key are owed, and the
    keys."""
    looked, found = _intersected(sides)
    keys = len(found)
    if not keys:
        return
    width = {side.name: row_bytes((*side.fresh, *side.history), read[side.name]) for side in sides}
    rows, size = np.zeros((2, keys), np.int64)
    for name, slices in looked.items():
        for one in slices:
            rows[one.at.found] += one.at.rows
            size[one.at.found] += one.at.rows * width[name]
    for first, end in pieces_of_keys(rows, size, limits):
        if end - first == 1 and (rows[first] > limits.piece_rows or size[first] > limits.piece_bytes):
            for parts in _parts_of_one_key(sides, looked, first, read, limits):
                yield found[first:end], parts
            continue
        gathered = [gather(side.name, looked[side.name], first, end, read[side.name]) for side in sides]
        for term in range(len(sides)):
            yield found[first:end], [one.owed(place, term) for place, one in enumerate(gathered)]


def _intersected(sides: Sequence[Side]) -> tuple[dict[str, list[Looked]], Keys]:
    """The keys that have a fresh row and a row in every input, and where each slice has them."""
    keys: Keys = distinct([s.keys for side in sides for s in side.fresh if len(s)])
    looked: dict[str, list[Looked]] = {}
    # For each input the numbers of its keys among all. What was found is numbered anew once, not after each input.
    left, of = np.arange(len(keys)), dict[str, Indices]()
    for side in sorted(sides, key=lambda side: sum(map(len, (*side.fresh, *side.history)))):
        sought, of[side.name] = keys[left], left
        mine = [*look_up(sought, side.history), *look_up(sought, side.fresh, fresh=True)]
        looked[side.name] = mine
        left = left[found_in(mine, len(sought))]
    number = np.full(len(keys), -1, np.int64)
    number[left] = np.arange(len(left))
    return {
        name: slices if len(of[name]) == len(left) else [one.renumbered(number[of[name]]) for one in slices]
        for name, slices in looked.items()
    }, keys[left]


def _parts_of_one_key(
    sides: Sequence[Side],
    looked: dict[str, list[Looked]],
    key: int,
    read: dict[str, list[str]],
    limits: Limits,
) -> Iterator[Sequence[Part]]:
    """As `owed_parts`, for a key whose rows do not fit a piece: views of its runs, in all combinations."""
    pieces = {side.name: list(views(side.name, looked[side.name], key, read, limits)) for side in sides}
    for term in range(len(sides)):
        owed = [
            [part for fresh, part in pieces[side.name] if place < term or fresh == (place == term)]
            for place, side in enumerate(sides)
        ]
        yield from itertools.product(*owed)
