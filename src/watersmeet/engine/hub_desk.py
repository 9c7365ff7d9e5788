"""What the operator does in its own way for a hub: catalogues of queries, indexes for them, and their answers.

The queries of a batch are in the catalogue of its parent, so ingest reads the parent before it takes rows in. The first
batch of a new hub has the queries that were given at the start.

The manifest names the catalogue after the batch's commands. If an earlier start published the batch on the same parent,
its catalogues are used: answers and events of that attempt may have reached the sink. Queries that are given at a
restart act as commands before those of its first batch that was not published before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.hub_columns import whole_runs
from watersmeet.engine.hub_distinct import Evaluated, announced_runs, write_answers
from watersmeet.engine.hub_ingest import BATCH_TIME, HubPartition, store_commands, store_stream
from watersmeet.engine.hub_tally import top_queries
from watersmeet.engine.ingest import Partition
from watersmeet.engine.spec import JoinSpec
from watersmeet.hubs.answers import answer_rows, distinct_answers, distinct_rows, event_rows
from watersmeet.hubs.catalogue import Changed, HubCatalogue, apply_commands, commands_of, text_numbers
from watersmeet.hubs.changes import as_written, check_unused, continued, stored_schemas
from watersmeet.hubs.distinct import Answers, distinct_part, distinct_parts, pieces_of, without_distinct
from watersmeet.hubs.forest import Forest, build_forest
from watersmeet.hubs.language import Template
from watersmeet.hubs.needed import Needed, needed_of
from watersmeet.hubs.rows import Rows, StreamRows, first_row
from watersmeet.hubs.steps import Way
from watersmeet.hubs.stored import (
    ANSWERED,
    CATALOGUE,
    CATALOGUE_ROW,
    COMMAND_COLUMNS,
    COMMANDS,
    from_row,
    to_row,
)
from watersmeet.hubs.streams import HubStreams
from watersmeet.hubs.templates import TemplateReader
from watersmeet.hubs.walk import PIECE_ROWS, Walk
from watersmeet.hubs.watermarks import next_watermarks
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.rows import Sorted
from watersmeet.log.codec import checksum
from watersmeet.log.parents import find_attempt
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import FULL_RANGE, BatchId, Descriptor, Manifest, Receipt, Run, Start
from watersmeet.model.signature import LOCATOR, JoinSignature
from watersmeet.model.tally import QueryTally, Tally
from watersmeet.model.window import AT
from watersmeet.schemes.hub import HubFacts, HubPlan
from watersmeet.schemes.scheme import Decision, OwnWindow

FindParent = Callable[[], Manifest | None]

# The catalogue in force, and the one after it.
_KEPT_CATALOGUES = 4


@dataclass(frozen=True, slots=True)
class _InForce:
    """A catalogue, its run, and the events of the commands that made it."""

    run: Run | None
    catalogue: HubCatalogue
    events: pa.RecordBatch

    @property
    def identity(self) -> str:
        """What tells the catalogues of two attempts of a batch apart. A run is named by its content."""
        if self.run is not None:
            return self.run.path
        texts = (
            *self.catalogue.queries.column("id").to_pylist(),
            *self.catalogue.queries.column("sql").to_pylist(),
        )
        return checksum("\0".join(texts).encode())


class HubDesk:
    """A hub: parsed templates, the last catalogues and the last forest."""

    is_open = False

    def __init__(self, files: Files, reader: RunReader, clock: Callable[[], float]) -> None:
        self._files, self._reader = files, reader
        self.clock = clock
        self._texts: TemplateReader | None = None
        self._ways: dict[Template, tuple[Way, ...]] = {}
        # A signature, and the hub with its columns.
        self._written_as: tuple[JoinSignature, JoinSpec] | None = None
        # By the run of the catalogue, and the part of its DISTINCT queries; None are all others.
        self._forests: dict[tuple[str, int | None], Forest] = {}
        self._catalogues: dict[str, _InForce] = {}
        self._known: tuple[BatchId, JoinSpec, _InForce, Mapping[str, int]] | None = None
        self._needed: tuple[HubCatalogue, Needed] | None = None

    # --- columns --------------------------------------------------------------------------------------------------

    def continued(self, spec: JoinSpec, parent: Manifest | None) -> JoinSignature:
        """The columns of the streams may change where no live query uses the change (hubs/changes.py)."""
        if parent is None or parent.signature == spec.signature:
            return spec.signature
        self._check_unused(spec, parent)
        return continued(_streams_of(spec), parent.signature).signature

    def _check_unused(self, spec: JoinSpec, manifest: Manifest) -> None:
        before, after = stored_schemas(manifest.signature), _streams_of(spec).schemas
        if before != after:
            check_unused(self._read(manifest, _plan_of(manifest).after).catalogue, before, after)

    def _as_written(self, spec: JoinSpec, signature: JoinSignature) -> JoinSpec:
        """The hub with the columns of a state."""
        if self._written_as is None or self._written_as[0] != signature:
            # They go by the numbers of columns.
            self._ways, self._forests, self._needed = {}, {}, None
            if spec.signature != signature:
                spec = replace(spec, signature=signature, join=as_written(_streams_of(spec), signature))
            self._written_as = signature, spec
        return self._written_as[1]

    # --- ingest ---------------------------------------------------------------------------------------------------

    def store(self, spec: JoinSpec, part: Partition, start: Start, parent: FindParent) -> Descriptor:
        spec, in_force, watermarks = self._in_force(spec, part.batch, start, parent)
        streams, settings = _streams_of(spec), spec.settings
        mine = HubPartition(part.batch.number, part.number, in_force.identity, watermarks.get(part.input))
        rows = (one for one in part.rows if one.num_rows)
        if part.input == COMMANDS:
            return store_commands(self._files, mine, rows)
        first = next(rows, None)
        newest: dict[str, int] = {}
        if first is not None:
            needed = self._needs(spec, in_force.catalogue)
            at_us = first.column(BATCH_TIME)[0].cast(pa.timestamp("us", "UTC")).value
            mine = replace(mine, needed=needed.first, counts_late=part.input in needed.late, at_us=at_us)
            rows = (one.drop_columns([BATCH_TIME]) for one in itertools.chain([first], rows))
            newest = dict.fromkeys((name for name in streams.schemas if name not in streams.times), at_us)
        stored = store_stream(
            self._files,
            streams.attributes,
            part.input,
            streams.times.get(part.input),
            mine,
            rows,
            settings.run_rows,
            settings.run_bytes,
        )
        return replace(stored, newest=newest | stored.newest)

    def _in_force(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: FindParent
    ) -> tuple[JoinSpec, _InForce, Mapping[str, int]]:
        """The hub with the columns of a batch, its catalogue in force, and the watermarks of its rows."""
        if self._known is None or self._known[0] != batch:
            found = parent()
            attempt = find_attempt(self._files, batch, start, found)
            spec = self._as_written(spec, self.continued(spec, found))
            self._known = batch, spec, self._before(spec, batch, start, found, attempt), _watermarks_of(found)
        return self._known[1:]

    def _needs(self, spec: JoinSpec, catalogue: HubCatalogue) -> Needed:
        """What the queries of a catalogue need. Found out once: it takes a while for many templates."""
        if self._needed is None or self._needed[0] is not catalogue:
            self._needed = catalogue, needed_of(catalogue, _streams_of(spec).attributes)
        return self._needed[1]

    # --- plan -----------------------------------------------------------------------------------------------------

    def observe(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        task: int,
        descriptors: Sequence[Descriptor],
    ) -> HubFacts:
        """The catalogue in force and the one after the batch's commands. What is new of them is written here."""
        spec = self._as_written(spec, self.continued(spec, parent))
        attempt = find_attempt(self._files, batch, start, parent)
        in_force = self._before(spec, batch, start, parent, attempt)
        known_as = in_force.identity
        written: list[Run] = []
        if attempt is not None:
            self._check_unused(spec, attempt)
            plan = _plan_of(attempt)
            written = [run for run in attempt.fresh if run.input == CATALOGUE]
        else:
            if in_force.run is None:
                in_force = self._written(batch, "in-force", in_force.catalogue, in_force.events)
                written.append(_run_of(in_force))
            after = in_force
            changed = self._changed(spec, batch, start, in_force, descriptors)
            if changed is not None:
                after = self._written(batch, "after", changed.catalogue, changed.events)
                written.append(_run_of(after))
            plan = HubPlan(_run_of(in_force).path, _run_of(after).path, {})
        streams, watermarks = _streams_of(spec), _watermarks_of(parent)
        newest = (one.newest for one in descriptors)
        later = next_watermarks(watermarks, newest, streams.times, streams.lateness)
        needed = self._needs(spec, in_force.catalogue)
        window = OwnWindow(watermarks, needed.floors(watermarks), needed.floors(later))
        plan = replace(plan, watermarks=later, tasks=spec.settings.tasks)
        answered = () if parent is None else self._answered(spec, parent, needed)
        return HubFacts(plan, known_as, tuple(written), answered, needed.first, window, self._files.place)

    def _answered(self, spec: JoinSpec, parent: Manifest, needed: Needed) -> tuple[Run, ...]:
        """What came out of DISTINCT queries in the batch before, if some of them live."""
        if ANSWERED not in needed.first:
            return ()
        plan, spec = _plan_of(parent), self._as_written(spec, parent.signature)
        parts = distinct_parts(self._read(parent, plan.in_force).catalogue, plan.tasks)
        return announced_runs(
            self._files, parent, parts, lambda part: self._distinct(spec, parent, part, None)[1]
        )

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        return None

    def _changed(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        in_force: _InForce,
        descriptors: Sequence[Descriptor],
    ) -> Changed | None:
        """The catalogue after the batch's commands; None if there were none."""
        runs = [run for one in descriptors if one.input == COMMANDS for run in one.runs]
        found = [self._reader.read(run, FULL_RANGE, COMMAND_COLUMNS)[0].rows for run in runs]
        commands = [*commands_of(found)]
        if in_force.catalogue.given_by != start.number:
            commands = [*_streams_of(spec).commands, *commands]
        if not commands:
            return None
        changed = apply_commands(in_force.catalogue, commands, batch.number, self._reads(spec))
        return replace(changed, catalogue=replace(changed.catalogue, given_by=start.number))

    def _written(
        self, batch: BatchId, label: str, catalogue: HubCatalogue, events: pa.RecordBatch
    ) -> _InForce:
        row = Sorted(np.zeros(1, np.uint64), to_row(catalogue, events))
        return _InForce(write_run(self._files, CATALOGUE, batch.number, label, row), catalogue, events)

    def _before(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        attempt: Manifest | None,
    ) -> _InForce:
        """The catalogue that the batch before left, or an earlier attempt of the first batch had."""
        if parent is not None:
            return self._read(parent, _plan_of(parent).after)
        if attempt is not None:
            return self._read(attempt, _plan_of(attempt).in_force)
        given = _streams_of(spec).commands
        changed = apply_commands(HubCatalogue(), given, batch.number - 1, self._reads(spec))
        return _InForce(None, replace(changed.catalogue, given_by=start.number), changed.events)

    def _read(self, manifest: Manifest, path: str) -> _InForce:
        found = self._catalogues.pop(path, None)
        if found is None:
            run = next(run for run in manifest.live if run.path == path)
            row = self._reader.read(run, FULL_RANGE, tuple(CATALOGUE_ROW.names))[0].rows
            found = _InForce(run, *from_row(row))
        while len(self._catalogues) >= _KEPT_CATALOGUES:
            self._catalogues.pop(next(iter(self._catalogues)))
        self._catalogues[path] = found
        return found

    def _reads(self, spec: JoinSpec) -> TemplateReader:
        if self._texts is None:
            self._texts = _streams_of(spec).reader()
        return self._texts

    # --- answers --------------------------------------------------------------------------------------------------

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """A task's share of the answers and events."""
        plan, batch = _plan_of(manifest), manifest.batch.number
        spec = self._as_written(spec, manifest.signature)
        catalogue = self._read(manifest, plan.in_force).catalogue
        if not len(catalogue):
            yield from self._events(manifest, plan, task)
            return
        rows, fresh = self._rows(spec, manifest, task)
        tally.probed_rows += sum(map(len, fresh.values()))
        new = None
        if task in distinct_parts(catalogue, plan.tasks):
            new, _ = self._distinct(spec, manifest, task, rows)
        # Spark may stop after any row: what the next batch needs is durable now.
        yield from self._events(manifest, plan, task)
        told: list[QueryTally] = []
        if new is not None:
            queries = distinct_part(catalogue, task, plan.tasks).queries
            ids, texts = queries.column("id"), text_numbers(queries.column("sql"))
            for piece in pieces_of(new, PIECE_ROWS):
                yield distinct_rows(piece, ids, texts, batch)
            counts = np.bincount(new.query, minlength=len(ids))
            tally.answers += len(new)
            told += top_queries(ids, counts, np.zeros_like(counts))
        forest = self._forest(spec, plan.in_force, None, lambda: without_distinct(catalogue))
        looked = np.zeros(len(forest.branch_node), np.int64)
        answered = np.zeros(len(forest.queries.ids), np.int64)
        for found in Walk(forest, rows, _first_fresh(manifest), AT, looked=looked).answers(fresh):
            np.add.at(answered, found.query, 1)
            yield answer_rows(found, rows, forest.queries, batch)
        tally.answers += int(answered.sum())
        tally.looked_rows = int(looked.sum())
        tally.queries = (*told, *top_queries(forest.queries.ids, answered, forest.costs(looked)))

    def _distinct(
        self, spec: JoinSpec, manifest: Manifest, part: int, rows: Rows | None
    ) -> tuple[Answers | None, Receipt]:
        """The answers of one part of the DISTINCT queries that are new in a batch, made durable."""
        plan = _plan_of(manifest)
        whole = self._read(manifest, plan.in_force).catalogue
        catalogue = distinct_part(whole, part, plan.tasks)
        forest = self._forest(spec, plan.in_force, part, lambda: catalogue)
        if rows is None:
            rows, _ = self._rows(spec, manifest, 0)
        every = _fresh_positions(manifest, _streams_of(spec).attributes.streams)
        walk = Walk(forest, rows, _first_fresh(manifest), AT)
        seen = [
            self._whole(run, spec.signature.columns(ANSWERED))
            for run in manifest.live
            if run.input == ANSWERED
        ]
        parts = (distinct_answers(found, rows, forest.queries) for found in walk.answers(every))
        start = catalogue.queries.column("start").to_numpy()
        return write_answers(self._files, manifest, part, Evaluated(parts, seen, forest.queries, start))

    def _forest(
        self, spec: JoinSpec, path: str, part: int | None, catalogue: Callable[[], HubCatalogue]
    ) -> Forest:
        """The forest of a part of the queries in force, or of those that are not DISTINCT."""
        if (path, part) not in self._forests:
            self._forests = {key: forest for key, forest in self._forests.items() if key[0] == path}
            # Of templates that left nothing is kept: they may come in any number.
            chosen = catalogue()
            live = set(chosen.parsed)
            self._ways = {one: way for one, way in self._ways.items() if one in live}
            self._forests[path, part] = build_forest(chosen, _streams_of(spec).attributes, self._ways)
        return self._forests[path, part]

    def _events(self, manifest: Manifest, plan: HubPlan, task: int) -> Iterator[pa.RecordBatch]:
        """What became of the batch's commands: the first task tells."""
        written = {run.path for run in manifest.fresh} if task == 0 else set()
        for path in dict.fromkeys((plan.in_force, plan.after)):
            events = self._read(manifest, path).events if path in written else None
            if events is not None and events.num_rows:
                yield event_rows(events, manifest.batch.number)

    def _rows(self, spec: JoinSpec, manifest: Manifest, task: int) -> tuple[Rows, dict[int, Indices]]:
        """All rows and indexes of a batch, and the positions of a task's fresh rows of each stream."""
        attributes = _streams_of(spec).attributes
        ((shares),) = spec.scheme.shares(manifest.plan.scheme, attributes.streams, task, spec.settings.tasks)
        history, arrived = _by_input(manifest.history), _by_input(manifest.fresh)
        streams: dict[int, StreamRows] = {}
        fresh: dict[int, Indices] = {}
        for number, (name, share) in enumerate(zip(attributes.streams, shares, strict=True)):
            old, new = history.get(name, []), arrived.get(name, [])
            streams[number] = StreamRows.of(whole_runs(self._reader, old + new, spec.signature.stored(name)))
            assert share.fresh is not None and share.fresh.deal is not None
            bases = itertools.accumulate((run.rows for run in new), initial=sum(run.rows for run in old))
            fresh[number] = np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(
                        base + share.fresh.deal.positions(int(run.checksum or "0", 16), run.rows)
                        for base, run in zip(bases, new, strict=False)
                    ),
                ]
            )
        indexes = {
            attribute: [
                self._whole(run, (LOCATOR,)) for run in (*history.get(name, ()), *arrived.get(name, ()))
            ]
            for attribute in range(len(attributes.columns))
            for name in [attributes.index_of(attribute)]
        }
        return Rows(attributes, streams, indexes), fresh

    def _whole(self, run: Run, columns: tuple[str, ...]) -> Sorted:
        return self._reader.read(run, FULL_RANGE, columns)[0]

    # --- nothing to prepare or to release -------------------------------------------------------------------------

    def begin_batch_join(self, spec: JoinSpec) -> None:
        raise AssertionError("a hub has streams only")

    def clean(self, spec: JoinSpec) -> None:
        pass

    def close(self) -> None:
        pass


def _first_fresh(manifest: Manifest) -> Keys:
    """The number of the first row of a batch, in any stream."""
    return first_row(np.array([manifest.batch.number]))[0]


def _fresh_positions(manifest: Manifest, streams: Sequence[str]) -> dict[int, Indices]:
    """The positions of all fresh rows: behind those of the history."""
    old = {name: sum(run.rows for run in manifest.history if run.input == name) for name in streams}
    new = {name: sum(run.rows for run in manifest.fresh if run.input == name) for name in streams}
    return {number: np.arange(old[name], old[name] + new[name]) for number, name in enumerate(streams)}


def _streams_of(spec: JoinSpec) -> HubStreams:
    assert isinstance(spec.join, HubStreams), "HubDesk serves hubs"
    return spec.join


def _watermarks_of(parent: Manifest | None) -> Mapping[str, int]:
    """Which rows of the next batch are late, by stream."""
    return {} if parent is None else _plan_of(parent).watermarks


def _plan_of(manifest: Manifest) -> HubPlan:
    assert isinstance(manifest.plan.scheme, HubPlan), "HubDesk serves hubs"
    return manifest.plan.scheme


def _run_of(in_force: _InForce) -> Run:
    assert in_force.run is not None, "the catalogue of a manifest has a run"
    return in_force.run


def _by_input(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.input, []).append(run)
    return found
