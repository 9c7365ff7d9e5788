"""Pay what the generations of some keys owe each other: the clean-up of a partition group, inside a batch.

Source: Liu, Rundensteiner 2005 (State-intensive queries), section 4.2, equation 1, for any number of inputs. There
the generations of a group are merged one after the other: what two of them owe is the join of both together, less the
join of each. Here it is written without the subtraction. Let G1 .. Gk be the generations of a range of keys, the
current one last. For j = 2 .. k, with B = G1 u .. u G(j-1), all combinations of rows of B u Gj are owed that have a row
of both. By the part that the row of the first input is in, and then the first input whose row is in the other part,
that is the disjoint union of 2 (m - 1) plain joins:

    Gj x .. x Gj x  B  x (B u Gj) x .. x (B u Gj)        the B at input 2, 3, .. m
    B  x .. x B  x  Gj x (B u Gj) x .. x (B u Gj)        the Gj at input 2, 3, .. m

A plain join is the join's own kernel, with the rows of the first input as fresh and all others as history.

A payment is made slice by slice: at most a piece is read at a time, so that memory does not follow the debt. Groups
that were pushed lie all over the keys, and most are small. As many as have the same generations and fit a piece are one
slice, since each call of a kernel has its price, and each run is searched once for all of them. A key that owes too
much for a batch is paid in cells (model/cells.py), each a plain join too.

The fresh rows of the batch take no part. Differs from the paper: payment is not a stage after the query, but the
results of an ordinary batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.spec import Join
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Keyed
from watersmeet.log.runs import RunReader
from watersmeet.model.cells import Block, RunRows, blocks_of, owed_cells
from watersmeet.model.facts import Cells, KeyRange, Manifest, Push, Run
from watersmeet.model.generations import NOT_HELD, Generations, paid_generations
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import Ranges, intersected, joined, subtracted
from watersmeet.model.signature import JoinSignature
from watersmeet.model.slices import Weighed, slices_of
from watersmeet.model.tally import Tally
from watersmeet.model.window import over_time

Slices = list[Keyed]


def pay(
    reader: RunReader,
    manifest: Manifest,
    groups: Ranges,
    join: Join,
    task: int,
    tally: Tally,
    limits: Limits,
) -> Iterator[pa.RecordBatch]:
    """Yield the results of this task's payments."""
    mine = [payment for payment in manifest.plan.payments if payment.task == task]
    if not mine:
        return
    generations = paid_generations(manifest, groups)
    debts = Debts(reader, manifest.signature, generations, manifest.paid, join, tally, limits)
    debts.expect([payment.range for payment in mine])
    cells = {payment.range: payment.cells for payment in mine if payment.cells is not None}
    for one in cells.values():
        yield from debts.pay_cells(one)
    # Keys whose last cells come out in this batch too owe less.
    whole = joined(payment.range for payment in mine if payment.cells is None)
    yield from debts.pay_ranges(whole, list(cells.values()))


@dataclass(frozen=True, slots=True)
class Debts:
    """What the generations of some runs owe each other. `pushes` are those that the generations are of.

    Runs that are `lost` cannot be read. Only cells are paid beside them.
    """

    reader: RunReader
    signature: JoinSignature
    generations: Generations
    pushes: Sequence[Push]
    join: Join
    tally: Tally
    limits: Limits
    lost: frozenset[str] = frozenset()

    def expect(self, ranges: Sequence[KeyRange]) -> None:
        """Say which keys will be paid: their runs are fetched together."""
        runs = [run for run in self.generations.runs if run.path not in self.lost]
        self.reader.expect(lambda: (run for run in runs if any(range_.overlaps(run) for range_ in ranges)))

    def pay_ranges(self, ranges: Ranges, paid: Sequence[Cells] = ()) -> Iterator[pa.RecordBatch]:
        """Yield what the keys in ascending ranges owe, but for what cells that were `paid` had of it."""
        keys = [cells for cells in paid if any(cells.range.low in range_ for range_ in ranges)]
        for cells in keys:
            self._touched((cells.range,))
            yield from self._pay_slice((cells.range,), cells.border)
        for alike in self._alike(subtracted(ranges, joined(cells.range for cells in keys))):
            yield from self._pay_slices(alike)

    def _alike(self, ranges: Ranges) -> Iterator[Ranges]:
        """The parts of some ranges that have rows of the same generations, if of two or more.

        Only these are paid together: rows would be looked up among generations that none of their keys has.
        """
        generations = self.generations
        here = [generations.segments_in(range_) for range_ in ranges]
        if not here:
            return
        segments = np.unique(np.concatenate(here))
        has = np.zeros((generations.current + 1, len(segments)), np.bool_)
        for of, mask in zip(generations.of[:, segments], generations.held_in(segments), strict=True):
            held = np.flatnonzero(mask)
            has[of[held], held] = True
        _, number = np.unique(np.packbits(has, axis=0), axis=1, return_inverse=True)
        for one in range(int(number.max()) + 1):
            mine = np.flatnonzero(number == one)
            if has[:, mine[0]].sum() > 1:
                yield intersected(generations.ranges_of(segments[mine].tolist()), ranges)

    def _pay_slices(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """Pay ranges together as long as they fit a piece, and each larger one slice by slice."""
        most = self.limits.piece_bytes
        together: list[KeyRange] = []
        size = 0.0
        for range_, runs, weight in self._touched(ranges):
            slices: Iterable[tuple[KeyRange, float]] = (
                [(range_, weight)] if weight <= most else self._cut(range_, runs)
            )
            for slice_, more in slices:
                if together and size + more > most:
                    yield from self._pay_slice(tuple(together))
                    together, size = [], 0.0
                together.append(slice_)
                size += more
        if together:
            yield from self._pay_slice(tuple(together))

    def _cut(self, range_: KeyRange, runs: Sequence[Run]) -> Iterator[tuple[KeyRange, float]]:
        """The slices of a range that has more rows than a piece, and what each weighs."""
        stretches = [Weighed(self.reader.keys(run), self._row_weight(run)).between(range_) for run in runs]
        for slice_ in slices_of(stretches, range_, self.limits.piece_bytes):
            yield slice_, sum(len(one.between(slice_).keys) * one.row_bytes for one in stretches)

    def _row_weight(self, run: Run) -> float:
        """What a row counts in a piece, which has at most so many rows, or so many bytes."""
        return max(run.bytes / max(1, run.rows), self.limits.piece_bytes / self.limits.piece_rows)

    def _pay_slice(self, ranges: Ranges, border: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield what the keys in ascending ranges owe, if the generations up to a border owe each other nothing.

        Rows of two ranges have no key in common.
        """
        self._read_ahead(ranges)
        found = [self._by_generation(name, ranges) for name in self.signature.names]
        if border is not None:
            early = sum(push.batch <= border for push in self.pushes)
            found = [[list(itertools.chain.from_iterable(mine[:early])), *mine[early:]] for mine in found]
        for term in owed_terms(found):
            yield from self._results(term)

    def _read_ahead(self, ranges: Ranges) -> None:
        """Have the rows of ascending ranges read from the disk."""
        for run in self.generations.runs:
            if run.path not in self.lost and any(range_.overlaps(run) for range_ in ranges):
                held = intersected(run.held_ranges, ranges) if run.held else ranges
                self.reader.read_ahead(run, held, self.signature.columns(run.input))

    def pay_cells(self, cells: Cells) -> Iterator[pa.RecordBatch]:
        """Yield what some cells of a key owe. Those with rows of a lost run are left out, and keep their numbers."""
        rows: dict[str, Keyed] = {}
        counts = dict(zip(cells.runs, cells.rows, strict=True))
        stretches: dict[str, list[RunRows]] = {name: [] for name in self.signature.names}
        for run, number in self._set_aside(cells):
            if run.path not in self.lost:
                for part in self.reader.slices(run, cells.range, self.signature.columns(run.input)):
                    rows[run.path] = part
            here = counts.get(run.path, 0) if run.path in self.lost else len(rows.get(run.path, ()))
            stretches[run.input].append(RunRows(number, run.path, here))
        blocks = [blocks_of(mine, cells.block_rows) for mine in stretches.values()]
        by_path = {run.path: run for run in self.generations.runs}
        for _, cell in owed_cells(blocks, cells.first, cells.end):
            if any(block.path in self.lost for block in cell):
                continue
            for block in cell:
                self._touch(by_path[block.path], block, cells)
            yield from self._results(
                tuple([rows[block.path].slice(block.start, block.stop)] for block in cell)
            )

    def _set_aside(self, cells: Cells) -> Iterator[tuple[Run, int]]:
        """The runs with rows of a key that were set aside up to its border, each with their generation."""
        (segment,) = self.generations.segments_in(cells.range).tolist()
        for run, number in zip(self.generations.runs, self.generations.of[:, segment].tolist(), strict=True):
            early = 0 <= number < self.generations.current and self.pushes[number].batch <= cells.border
            if early and cells.range.overlaps(run):
                yield run, number

    def _touch(self, run: Run, block: Block, cells: Cells) -> None:
        """Record the bytes of a block. Blocks of one run in one batch are neighbours or the same."""
        size = (block.stop - block.start) * run.bytes // max(1, run.rows)
        self.tally.touched[f"{run.path} {cells.range.low} {block.start}"] = size

    def _results(self, term: Sequence[Slices]) -> Iterator[pa.RecordBatch]:
        assert self.join.on_one_key, "only joins on one shared key owe results"
        window = self.signature.window
        within = window.width if window is not None and over_time(window) else None
        first, *others = (Side(name, [], rows) for name, rows in zip(self.signature.names, term, strict=True))
        yield from self.join.results((Side(first.name, first.history, []), *others), within, self.limits)

    def _touched(self, ranges: Ranges) -> list[tuple[KeyRange, list[Run], float]]:
        """The runs that hold rows of each range, and what these rows weigh. Their bytes there are counted.

        The ranges are cut where segments end. Each run is searched once for all of them: groups that were pushed are many, and
        small.
        """
        generations = self.generations
        inside = [generations.segments_in(range_) for range_ in ranges]
        segments = np.concatenate([np.zeros(0, np.int64), *inside])
        place = np.repeat(np.arange(len(ranges)), [len(mine) for mine in inside])
        found, weights = [list[Run]() for _ in ranges], np.zeros(len(ranges))
        for run, held in zip(generations.runs, generations.held_in(segments), strict=True):
            if not held.any():
                continue
            mine, here = segments[held], place[held]
            rows = generations.rows_of(self.reader.keys(run), mine)
            size = rows * run.bytes // max(1, run.rows)
            self.tally.touch(run.path, mine, size, len(generations.lows))
            weights += np.bincount(here, rows, len(ranges)) * self._row_weight(run)
            for number in np.unique(here).tolist():
                found[number].append(run)
        return list(zip(ranges, found, weights.tolist(), strict=True))

    def _by_generation(self, name: str, ranges: Ranges) -> list[Slices]:
        """The rows of an input in ascending ranges of keys, by generation."""
        generations = self.generations
        found: list[Slices] = [[] for _ in range(generations.current + 1)]
        segments = np.unique(np.concatenate([generations.segments_in(range_) for range_ in ranges]))
        around = KeyRange(ranges[0].low, ranges[-1].high)
        for run, of in zip(generations.runs, generations.of[:, segments], strict=True):
            if run.input != name or not around.overlaps(run) or (of == NOT_HELD).all():
                continue
            for rows in self.reader.slices(run, around, self.signature.columns(name)):
                for number in np.unique(of[of != NOT_HELD]).tolist():
                    mine = generations.ranges_of(segments[of == number].tolist())
                    part = rows.among(intersected(mine, ranges))
                    if len(part):
                        found[number].append(part)
        return found


def owed_terms(generations: Sequence[Sequence[Slices]]) -> Iterator[tuple[Slices, ...]]:
    """The plain joins that generations owe: for each, the rows of every input.

    `generations` has for each input its rows by generation, as many for all. No combination is in two terms.
    """
    inputs = range(len(generations))
    for number in range(1, len(generations[0])):
        base = [list(itertools.chain.from_iterable(mine[:number])) for mine in generations]
        added = [list(mine[number]) for mine in generations]
        both = [[*before, *now] for before, now in zip(base, added, strict=True)]
        for one, other in ((added, base), (base, added)):
            for turn in inputs[1:]:
                term = tuple(
                    one[place] if place < turn else other[place] if place == turn else both[place]
                    for place in inputs
                )
                if all(any(map(len, rows)) for rows in term):
                    yield term
