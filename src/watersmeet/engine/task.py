"""A task's share of a batch: read what the plan assigns, and run the join's kernel on it.

The rows of a share are slices of the batch's runs, as the plan names them. History is read only if another input has
new rows. Of a run only the needed sections, key range and columns are read. Neighbouring sections are one slice.

What a task does is counted on the way (model/tally.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.window import WindowReader, reader_for, tested_width
from watersmeet.kernel.late import LateDeal
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Keyed
from watersmeet.kernel.walk import WalkJoin
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import Manifest, Order, Run
from watersmeet.model.tally import Tally, Work
from watersmeet.plan.window import reachable_history
from watersmeet.schemes.scheme import Share, Slice


def join_share(
    reader: RunReader, manifest: Manifest, spec: JoinSpec, task: int, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Yield all results of this task, in bounded batches."""
    assert not isinstance(spec.join, LookupJoin), "a table is joined by engine/lookup.py"
    source = RunSource(reader_for(reader, manifest), manifest, reachable_history(manifest), tally)
    within = tested_width(manifest)
    names, tasks = manifest.signature.names, spec.settings.tasks
    shares = list(spec.scheme.shares(manifest.plan.scheme, names, task, tasks))
    reader.expect(lambda: source.runs(shares))
    for share in shares:
        started_s = time.perf_counter()
        sides = source.sides(share)
        tally.reading_s += time.perf_counter() - started_s
        if not all(any(map(len, (*side.fresh, *side.history))) for side in sides):
            # An input without rows: nothing is looked up.
            continue
        if isinstance(spec.join, WalkJoin):
            # The other inputs of a term are looked up in.
            fresh_rows, work = sum(map(len, sides[0].fresh)), Work()
            yield from spec.join.results(sides, within, spec.settings.limits, work)
            tally.add_walk(spec.join.input_of(sides[0].name), fresh_rows, work)
        else:
            fresh_rows = sum(len(rows) for side in sides for rows in side.fresh)
            yield from spec.join.results(sides, within, spec.settings.limits)
            tally.looked_rows += fresh_rows
        tally.probed_rows += fresh_rows


@dataclass(frozen=True, slots=True)
class RunSource:
    """The runs of a batch. `history` holds the old runs that a fresh row may match."""

    reader: RunReader | WindowReader
    manifest: Manifest
    history: Sequence[Run]
    tally: Tally

    def runs(self, shares: Iterable[Share]) -> Iterator[Run]:
        """The runs that some shares read from."""
        for share in shares:
            for one in share:
                for runs, wanted in (
                    (self.manifest.fresh, one.fresh),
                    (self._history(one.input), one.history),
                ):
                    if wanted is not None:
                        yield from self._wanted(runs, one.input, wanted)

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

    def _slices(self, runs: Sequence[Run], name: str, wanted: Slice) -> Iterator[Keyed]:
        columns = self.manifest.signature.columns(name)
        # By arrival all pairs are compared, so neighbouring sections need not be merged.
        sort = self.manifest.signature.order(name) != Order.ARRIVAL
        sections = None if wanted.sections is None else [range(s.low, s.high) for s in wanted.sections]
        for run in self._wanted(runs, name, wanted):
            for rows in self.reader.slices(run, wanted.range, columns, sections, sort=sort):
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
