"""A task's share of a batch: read what the plan assigns, and run the join's kernel on it.

The rows of a share are slices of the batch's runs, as the plan names them. History is read only if another input has
new rows. Of a run only the needed sections, key range and columns are read. Neighbouring sections are one slice.

Where rows of the history were pushed (model/generations.py), a share is joined class by class: the fresh rows whose
keys are in the class, and of the history the runs that are current there, unread outside of the class. So no kernel
knows of generations: it only looks up fresh keys, and no key of a class leads to a row that was pushed. A task may have
groups in many places. They are joined together, so that the cost follows the classes and not the places.

What a task does is counted on the way (model/tally.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.payment import pay
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.window import WindowReader, reader_for, tested_width
from watersmeet.kernel.late import LateDeal
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Keyed
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest, Run
from watersmeet.model.generations import Class, Generations, history_generations
from watersmeet.model.ranges import Ranges, joined
from watersmeet.model.signature import Order
from watersmeet.model.tally import Tally
from watersmeet.plan.window import reachable_history
from watersmeet.schemes.scheme import InputShare, Share, Slice, share_of


def join_share(
    reader: RunReader, manifest: Manifest, spec: JoinSpec, task: int, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield all results of this task, in bounded batches."""
    kernel = spec.kernel
    groups = spec.scheme.groups_of(manifest.plan.scheme)
    generations = history_generations(manifest, groups)
    reached = reachable_history(manifest)
    source = RunSource(reader_for(reader, manifest), manifest, reached, tally, generations)
    within = tested_width(manifest)
    names, tasks = manifest.signature.names, spec.settings.tasks
    shares = list(spec.scheme.shares(manifest.plan.scheme, names, task, tasks))
    reader.expect(lambda: source.runs(shares))
    if groups:
        tally.count_by(groups)
    for share in source.whole(shares):
        for sides in source.parts(share):
            if not all(any(map(len, (*side.fresh, *side.history))) for side in sides):
                # An input without rows: nothing is looked up.
                continue
            yield from kernel.results(sides, within, spec.settings.limits, tally)
    if manifest.plan.payments:
        yield from pay(reader, manifest, groups, kernel, task, tally, spec.settings.limits)


@dataclass(frozen=True, slots=True)
class Portion:
    """A share, and the ascending ranges of keys that are joined of it where history is joined class by class."""

    share: Share
    ranges: Ranges


def _hull(share: Share) -> KeyRange:
    """The keys of a share, and all between them."""
    slices = [rows.range for one in share for rows in (one.fresh, one.history) if rows is not None]
    return KeyRange(min(one.low for one in slices), max(one.high for one in slices))


def _is_range(share: Share) -> bool:
    """Whether a share is one range of keys of all inputs, and nothing else."""
    return share == tuple(share_of(one.input, Slice(_hull(share))) for one in share)


@dataclass(frozen=True, slots=True)
class RunSource:
    """The runs of a batch. `history` holds the old runs that a fresh row may match.

    `generations` says which of their rows are current; None if all are.
    """

    reader: RunReader | WindowReader
    manifest: Manifest
    history: Sequence[Run]
    tally: Tally
    generations: Generations | None = None

    def runs(self, shares: Iterable[Share]) -> Iterator[Run]:
        """The runs that some shares read from."""
        current = None if self.generations is None else {run.path for run in self.generations.active_runs()}
        for share in shares:
            for one in share:
                history = self._history(one.input)
                if current is not None:
                    history = [run for run in history if run.path in current]
                for runs, wanted in ((self.manifest.fresh, one.fresh), (history, one.history)):
                    if wanted is not None:
                        yield from self._wanted(runs, one.input, wanted)

    def whole(self, shares: Sequence[Share]) -> Iterator[Portion]:
        """The shares of a task, each with the ranges that it is about.

        Where history is joined class by class, shares that only differ in their range are one: no class is met twice.
        """
        if self.generations is None:
            yield from (Portion(share, ()) for share in shares)
            return
        ranges = joined(map(_hull, shares))
        if len(ranges) < 2 or not all(map(_is_range, shares)):
            yield from (Portion(share, (_hull(share),)) for share in shares)
            return
        around = Slice(KeyRange(ranges[0].low, ranges[-1].high))
        yield Portion(tuple(share_of(one.input, around) for one in shares[0]), ranges)

    def parts(self, part: Portion) -> Iterator[tuple[Side, ...]]:
        """The rows of a share: all at once, or class by class where some of the history is not current."""
        share = part.share
        if self.generations is None:
            started_s = time.perf_counter()
            sides = self.sides(share)
            self.tally.reading_s += time.perf_counter() - started_s
            yield sides
            return
        fresh = [self._read(self.manifest.fresh, one.input, one.fresh) for one in share]
        for one in self.generations.classes(part.ranges):
            started_s = time.perf_counter()
            sides = self._sides_of(share, fresh, one)
            self.tally.reading_s += time.perf_counter() - started_s
            yield sides

    def _sides_of(self, share: Share, fresh: Sequence[Sequence[Keyed]], class_: Class) -> tuple[Side, ...]:
        """The rows of a share in one class."""
        new = [[part for rows in mine if len(part := rows.among(class_.ranges))] for mine in fresh]
        met, current = any(new), {run.path for run in class_.runs}
        return tuple(
            Side(one.input, mine, list(self._current(one, class_, current)) if met else [])
            for one, mine in zip(share, new, strict=True)
        )

    def _current(self, share: InputShare, class_: Class, current: Set[str]) -> Iterator[Keyed]:
        """The rows of the runs that are current in a class, also those outside of it: no fresh key leads there."""
        if share.history is None:
            return
        runs = [run for run in self._history(share.input) if run.path in current]
        columns = self.manifest.signature.columns(share.input)
        for run in self._wanted(runs, share.input, share.history):
            for rows in self._slices([run], share.input, share.history, note=False):
                self.reader.read_ahead(run, class_.ranges, columns)
                self._note(run, rows, class_)
                yield rows

    def _note(self, run: Run, rows: Keyed, class_: Class) -> None:
        """Record the bytes of a run in a class."""
        assert self.generations is not None
        size = self.generations.size_of(run, rows.keys, class_.segments)
        self.tally.touch(run.path, class_.segments, size, len(self.generations.lows))

    def sides(self, share: Share) -> tuple[Side, ...]:
        """The rows of a share. History is left out where no input has fresh rows: there are no results then."""
        fresh = [self._read(self.manifest.fresh, one.input, one.fresh) for one in share]
        met = any(map(len, itertools.chain.from_iterable(fresh)))
        return tuple(
            Side(
                one.input,
                new,
                self._read(self._history(one.input), one.input, one.history) if met else [],
                one.rank,
                None if one.late is None else LateDeal(one.late.hand, one.late.of, one.late.room_rows),
                one.cuts,
            )
            for one, new in zip(share, fresh, strict=True)
        )

    def _history(self, name: str) -> Sequence[Run]:
        met = any(run.input != name for run in self.manifest.fresh)
        return self.history if met else ()

    def _read(self, runs: Sequence[Run], name: str, wanted: Slice | None) -> list[Keyed]:
        return [] if wanted is None else list(self._slices(runs, name, wanted))

    def _slices(self, runs: Sequence[Run], name: str, wanted: Slice, *, note: bool = True) -> Iterator[Keyed]:
        columns = self.manifest.signature.columns(name)
        # By arrival all pairs are compared, so neighbouring sections need not be merged.
        sort = self.manifest.signature.order(name) != Order.ARRIVAL
        sections = None if wanted.sections is None else [range(s.low, s.high) for s in wanted.sections]
        for run in self._wanted(runs, name, wanted):
            for rows in self.reader.slices(run, wanted.range, columns, sections, sort=sort):
                if note:
                    opened = run.bytes * len(rows) // max(1, run.rows)
                    self.tally.touched[run.path] = max(opened, self.tally.touched.get(run.path, 0))
                if wanted.part is not None:
                    rows = rows.slice(*wanted.part.positions(run, len(rows)))
                if wanted.deal is not None:
                    rows = rows.at(wanted.deal.positions(int(run.checksum or "0", 16), len(rows)))
                if wanted.without:
                    yield from rows.without(wanted.without)
                else:
                    yield rows

    def _wanted(self, runs: Sequence[Run], name: str, wanted: Slice) -> Iterator[Run]:
        return (run for run in runs if run.input == name and wanted.range.overlaps(run))
