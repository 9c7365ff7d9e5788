"""A task's share of a batch: what the plan lets it read, handed to the kernel of the join.

Of the history nothing is read unless the other input brought something new; of a run nothing but the sections,
the key range and the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.window import WindowReader
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.match import BandJoin, Side, right_range
from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE, KeyRange, Manifest, Plan, Run
from watersmeet.plan.biclique import UnitShare, shares_of_biclique
from watersmeet.plan.parts import Rectangle, positions, rectangles_of
from watersmeet.plan.shares import CellShare, SectionRange, shares_of_task


@dataclass
class Tally:
    """Counted while a task works: the fresh rows that it looked up."""

    probed: int = 0


def join_share(
    reader: RunReader | WindowReader,
    manifest: Manifest,
    spec: JoinSpec,
    task: int,
    tally: Tally,
    within: int | None,
) -> Iterator[pa.RecordBatch]:
    """All results that this task owes, in bounded batches. Pairs are tested for the window's width `within`, if given."""
    assert not isinstance(spec.join, LookupJoin), "a table is joined by engine/lookup.py"
    for sides in _sides(_Source(reader, manifest, spec), manifest.plan, spec, task):
        tally.probed += sum(len(part) for side in sides for part in side.fresh)
        yield from spec.join.results(sides, within)


def _sides(source: _Source, plan: Plan, spec: JoinSpec, task: int) -> Iterator[tuple[Side, Side]]:
    """The pairs of sides that this task joins; every pair of rows that the batch owes is in one of one task."""
    if plan.grid is not None:
        for share in shares_of_task(plan.grid, spec.settings.tasks, task):
            yield from _cell_sides(source, share, single_group=len(plan.grid.groups) == 1)
        return
    if plan.biclique is not None:
        layout = spec.signature.layout
        for unit in shares_of_biclique(plan.biclique, layout, spec.settings.tasks, task):
            yield _unit_sides(source, unit)
        return
    left = plan.ranges[task]
    right = right_range(left, spec.join) if isinstance(spec.join, BandJoin) else left
    if plan.cube is None or not plan.cube.heavy:
        yield source.side(0, left), source.side(1, right)
        return
    # Without fresh rows of a heavy key no pair of it is found: its old rows need not be left out.
    heavy = [one.key for one in plan.cube.heavy if left.low <= one.key < left.high]
    yield source.side(0, left, without=heavy), source.side(1, right, without=heavy)
    for cells in rectangles_of(plan.cube.heavy, task):
        yield source.cells(0, cells), source.cells(1, cells)


def _cell_sides(source: _Source, share: CellShare, *, single_group: bool) -> Iterator[tuple[Side, Side]]:
    """The pairs of sides whose joins are the share; see plan/shares.py for why these meet every pair once."""
    left_old, left_new = source.old(0, share.left_stored), source.new(0, share.left_stored)
    right_old, right_new = source.old(1, share.right_stored), source.new(1, share.right_all)
    left_name, right_name = source.names
    if single_group:
        yield Side(left_name, left_new, left_old), Side(right_name, right_new, right_old)
        return
    yield Side(left_name, left_new, left_old), Side(right_name, right_new, [])
    yield Side(left_name, source.new(0, share.left_all), []), Side(right_name, [], right_old)


def _unit_sides(source: _Source, unit: UnitShare) -> tuple[Side, Side]:
    """The rows that a unit of a biclique stores, and the fresh ones of the other input; see plan/biclique.py."""
    left_name, right_name = source.names
    if unit.stores_left:
        stored = Side(
            left_name, source.new(0, unit.sections, unit.range), source.old(0, unit.sections, unit.range)
        )
        return stored, Side(right_name, source.new(1, None, unit.range), [])
    return (
        Side(left_name, source.new(0, None, unit.range), []),
        Side(right_name, [], source.old(1, unit.sections, unit.range)),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """The runs of a batch as slices, by input: 0 is the left one."""

    reader: RunReader | WindowReader
    manifest: Manifest
    spec: JoinSpec

    @property
    def names(self) -> tuple[str, str]:
        left, right = (spec.name for spec in self.spec.signature.inputs)
        return left, right

    def side(self, place: int, range_: KeyRange, without: Sequence[int] = ()) -> Side:
        fresh = self._read(self.manifest.fresh, place, range_)
        if without:
            fresh = [piece for slice_ in fresh for piece in slice_.without(without)]
        return Side(self.names[place], fresh, self._read(self._history(place), place, range_))

    def cells(self, place: int, cells: Rectangle) -> Side:
        """The parts of a heavy key's rows that some cells read of one input."""
        parts, of = ((cells.left, cells.rows), (cells.right, cells.cols))[place]
        range_ = KeyRange(cells.key, cells.key + 1)
        fresh, history = (
            [
                rows.slice(*positions(run, len(rows), parts, of))
                for run, rows in self._read_by_run(runs, place, range_)
            ]
            for runs in (self.manifest.fresh, self._history(place))
        )
        return Side(self.names[place], fresh, history)

    def new(
        self, place: int, sections: Sequence[SectionRange] | None, range_: KeyRange = FULL_RANGE
    ) -> list[Sorted]:
        return self._read(self.manifest.fresh, place, range_, sections)

    def old(
        self, place: int, sections: Sequence[SectionRange], range_: KeyRange = FULL_RANGE
    ) -> list[Sorted]:
        return self._read(self._history(place), place, range_, sections)

    def _history(self, place: int) -> tuple[Run, ...]:
        other = self.names[1 - place]
        return self.manifest.history if any(run.input == other for run in self.manifest.fresh) else ()

    def _read(
        self,
        runs: Sequence[Run],
        place: int,
        range_: KeyRange,
        sections: Sequence[SectionRange] | None = None,
    ) -> list[Sorted]:
        return [part for _, part in self._read_by_run(runs, place, range_, sections)]

    def _read_by_run(
        self,
        runs: Sequence[Run],
        place: int,
        range_: KeyRange,
        sections: Sequence[SectionRange] | None = None,
    ) -> Iterator[tuple[Run, Sorted]]:
        columns = tuple(column.name for column in self.spec.signature.inputs[place].stored)
        wanted = None if sections is None else [range(s.low, s.high) for s in sections]
        for run in runs:
            if run.input == self.names[place] and range_.overlaps(run):
                for part in self.reader.read(run, range_, columns, wanted).values():
                    yield run, part
