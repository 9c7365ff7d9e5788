"""The operator of a hub: ingest a partition, agree on catalogue and manifest, answer a share, merge, clean up.

It uses the log as the operator of a join does (engine/operator.py), and its calls may be repeated on any machine in the
same way. What is different:

- The queries of a batch are in the catalogue of its parent. So ingest reads the parent before it takes rows in. The
  first batch of a new hub has the queries that were given at the start.
- The manifest names the catalogue after the batch's commands. If an earlier start published the batch on the same
  parent, its catalogues are used: answers and events of that attempt may have reached the sink.
- Queries that are given at a restart act as commands before those of its first batch that was not published before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from watersmeet import failpoints
from watersmeet.engine.hub_ingest import HubPartition, store_commands, store_stream
from watersmeet.engine.merge import merge_assigned
from watersmeet.engine.operator import check_batch, clean_is_due, cleaning_task, pending_receipts
from watersmeet.engine.spec import Settings
from watersmeet.errors import CorruptFile, StateBehind, StateInUse
from watersmeet.hub.answers import answer_rows, event_rows
from watersmeet.hub.catalogue import ADD, Changed, Command, HubCatalogue, apply_commands, commands_of
from watersmeet.hub.forest import Forest, build_forest
from watersmeet.hub.language import Template
from watersmeet.hub.rows import Rows, StreamRows, first_row
from watersmeet.hub.steps import Attributes, Way
from watersmeet.hub.stored import (
    CATALOGUE,
    CATALOGUE_ROW,
    COMMAND_COLUMNS,
    COMMANDS,
    from_row,
    hub_signature,
    needed_runs,
    to_row,
)
from watersmeet.hub.templates import TemplateReader
from watersmeet.hub.walk import Walk
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.rows import Sorted
from watersmeet.log.clean import Cleaner
from watersmeet.log.codec import checksum
from watersmeet.log.descriptors import Told, patience_s, read_descriptors
from watersmeet.log.files import open_files
from watersmeet.log.manifests import agree
from watersmeet.log.parents import check_not_overtaken, find_attempt, find_parent
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.seen import Seen
from watersmeet.log.starts import check_current, claim_start, search_start
from watersmeet.model.facts import FULL_RANGE, BatchId, Descriptor, Manifest, Run, RunStats, Start
from watersmeet.model.signature import LOCATOR, JoinSignature
from watersmeet.model.types import Schema
from watersmeet.model.window import AT
from watersmeet.plan.batch import check_arrived
from watersmeet.plan.hub_batch import check_hub_signature, plan_hub_batch
from watersmeet.schemes.hub import HubPlan
from watersmeet.schemes.scheme import NewRun


@dataclass(frozen=True)
class HubSpec:
    """A hub as tasks get it. `given` are the ids and texts of the queries that it is started with."""

    name: str
    instance: str
    schemas: Mapping[str, Schema]
    settings: Settings
    times: Mapping[str, str] = field(default_factory=dict)
    given: tuple[tuple[str, str], ...] = ()
    built_ms: int = 0
    ansi: bool = True
    case_sensitive: bool = False

    @property
    def signature(self) -> JoinSignature:
        return hub_signature(self.schemas, self.times)


class _Plain:
    """Nothing is recorded about the runs of a hub."""

    def describe(self, run: NewRun, tasks: int) -> RunStats | None:
        return None


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


class _KeptHub:
    """What a process keeps of one hub and start: mapped runs, seen manifests, parsed templates, the last forest."""

    def __init__(self, spec: HubSpec, batch: BatchId):
        self.run = batch.run
        self.files = open_files(spec.settings.storage).under(spec.name, batch.query)
        self.seen = Seen()
        self.reader = RunReader(self.files, spec.settings.limits)
        self.cleaner = Cleaner(self.files, self.seen)
        self.attributes = Attributes.of(spec.schemas)
        self.texts = TemplateReader(spec.schemas, spec.ansi, spec.case_sensitive)
        self.ways: dict[Template, tuple[Way, ...]] = {}
        self.start: Start | None = None
        self.last: Manifest | None = None
        self.forest: tuple[str, Forest] | None = None
        self.catalogues: dict[str, _InForce] = {}
        self.known: tuple[BatchId, _InForce] | None = None


# Ordered by last use. A worker serves few hubs at a time.
_KEPT: dict[tuple[str, str, str], _KeptHub] = {}
_KEPT_PLACES = 4
# The catalogue in force, and the one after it.
_KEPT_CATALOGUES = 4


def _kept(spec: HubSpec, batch: BatchId) -> _KeptHub:
    """What this process keeps of a hub. A new start keeps nothing of those before it."""
    place = (spec.settings.state, spec.name, batch.query)
    found = _KEPT.pop(place, None)
    if found is None or found.run != batch.run:
        while len(_KEPT) >= _KEPT_PLACES:
            _KEPT.pop(next(iter(_KEPT)))
        found = _KeptHub(spec, batch)
    _KEPT[place] = found
    return found


@dataclass(frozen=True, slots=True)
class HubOperator:
    spec: HubSpec
    clock: Callable[[], float]

    # --- ingest ---------------------------------------------------------------------------------------------------

    def ingest(
        self,
        batch: BatchId,
        stream: str,
        partition: int,
        incoming: Iterable[pa.RecordBatch],
        at_us: int,
    ) -> Descriptor:
        """Store a partition of a stream. `at_us` is the time of the batch, the same each time it is replayed."""
        kept = _kept(self.spec, batch)
        start = self._start(kept, batch)
        in_force = self._in_force(kept, batch, start)
        needed = needed_runs(in_force.catalogue, kept.attributes)
        part = HubPartition(batch.number, partition, needed, in_force.identity, at_us)
        settings = self.spec.settings
        descriptor = store_stream(
            kept.files,
            kept.attributes,
            stream,
            self.spec.times.get(stream),
            part,
            incoming,
            settings.run_rows,
            settings.run_bytes,
        )
        return replace(descriptor, start=start)

    def command(self, batch: BatchId, partition: int, incoming: Iterable[pa.RecordBatch]) -> Descriptor:
        """Store a partition of the commands."""
        kept = _kept(self.spec, batch)
        start = self._start(kept, batch)
        in_force = self._in_force(kept, batch, start)
        part = HubPartition(batch.number, partition, (), in_force.identity, 0)
        return replace(store_commands(kept.files, part, incoming), start=start)

    # --- agree ----------------------------------------------------------------------------------------------------

    def agree_and_merge(self, batch: BatchId, task: int, told: Sequence[Told]) -> Manifest:
        """Agree on the batch's manifest, then do this task's merges and clean-up."""
        kept = _kept(self.spec, batch)
        manifest = self._agree(kept, batch, told, task)
        if manifest is not kept.last:
            kept.reader.forget_all_but(manifest.named_paths)
            kept.last = manifest
        settings = self.spec.settings
        merge_assigned(
            kept.files, kept.reader, kept.seen, manifest, _Plain(), task, settings.tasks, settings.limits
        )
        every = settings.limits.clean_every_batches
        if clean_is_due(manifest, every) and task == cleaning_task(manifest, settings.tasks, every):
            kept.cleaner.clean(
                manifest, retain=settings.retain_batches, now_s=self.clock(), grace_s=settings.grace_s
            )
        return manifest

    def _agree(self, kept: _KeptHub, batch: BatchId, told: Sequence[Told], task: int) -> Manifest:
        start = self._start(kept, batch)
        check_batch(batch, told)

        def decide(parent: Manifest | None) -> Manifest:
            check_current(kept.files, start)
            check_not_overtaken(kept.files, batch, start, self.spec.built_ms)
            descriptors = sorted(
                read_descriptors(kept.files, told, kept.seen), key=lambda one: (one.input, one.partition)
            )
            in_force, plan, written = self._planned(kept, batch, start, parent, descriptors)
            return plan_hub_batch(
                batch,
                parent,
                descriptors,
                pending_receipts(kept.files, parent),
                plan,
                written,
                needed_runs(in_force.catalogue, kept.attributes),
                signature=self.spec.signature,
                instance=self.spec.instance,
                run_seq=start.number,
                tasks=self.spec.settings.tasks,
                limits=self.spec.settings.limits,
                now_ms=int(self.clock() * 1000),
            )

        manifest = agree(
            kept.files,
            batch,
            start,
            self.spec.instance,
            lambda: self._find_parent(kept, batch, start),
            decide,
            kept.seen,
            self.spec.settings.limits,
            patience_s(task, self.spec.settings.tasks, told),
        )
        check_arrived(manifest, told)
        return manifest

    def _planned(
        self,
        kept: _KeptHub,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        descriptors: Sequence[Descriptor],
    ) -> tuple[_InForce, HubPlan, list[Run]]:
        """The catalogue in force, the plan that names it and the one after it, and the runs that are written for it."""
        attempt = find_attempt(kept.files, batch, start, parent)
        in_force = self._before(kept, batch, start, parent, attempt)
        if any(one.table != in_force.identity for one in descriptors):
            raise StateInUse(
                f"batch {batch.number}: another start of this query published it while this one stored its rows in "
                f"{kept.files.place}: two drivers must not run on one checkpoint. Stop one, and start the other again"
            )
        if attempt is not None:
            assert isinstance(attempt.plan.scheme, HubPlan)
            runs = [run for run in attempt.fresh if run.input == CATALOGUE]
            return in_force, attempt.plan.scheme, runs
        written: list[Run] = []
        if in_force.run is None:
            in_force = self._written(kept, batch, "in-force", in_force.catalogue, in_force.events)
            assert in_force.run is not None
            written.append(in_force.run)
        changed = self._changed(kept, batch, start, in_force, descriptors)
        if changed is None:
            return in_force, HubPlan(in_force.identity, in_force.identity), written
        after = self._written(kept, batch, "after", changed.catalogue, changed.events)
        assert after.run is not None
        plan = HubPlan(in_force.identity, after.identity)
        return in_force, plan, [*written, after.run]

    def _changed(
        self,
        kept: _KeptHub,
        batch: BatchId,
        start: Start,
        in_force: _InForce,
        descriptors: Sequence[Descriptor],
    ) -> Changed | None:
        """The catalogue after the batch's commands; None if there were none."""
        runs = [run for one in descriptors if one.input == COMMANDS for run in one.runs]
        found = [kept.reader.read(run, FULL_RANGE, COMMAND_COLUMNS)[0].rows for run in runs]
        commands = [*commands_of(found)]
        restarted = in_force.catalogue.given_by != start.number
        if restarted:
            commands = [*self._given(), *commands]
        if not commands and not (restarted and self.spec.given):
            return None
        changed = apply_commands(in_force.catalogue, commands, batch.number, kept.texts)
        return replace(changed, catalogue=replace(changed.catalogue, given_by=start.number))

    def _given(self) -> list[Command]:
        return [Command(ADD, id_, sql, given=True) for id_, sql in self.spec.given]

    def _written(
        self, kept: _KeptHub, batch: BatchId, label: str, catalogue: HubCatalogue, events: pa.RecordBatch
    ) -> _InForce:
        row = Sorted(np.zeros(1, np.uint64), to_row(catalogue, events))
        run = write_run(kept.files, CATALOGUE, batch.number, label, row)
        return _InForce(run, catalogue, events)

    # --- catalogues -----------------------------------------------------------------------------------------------

    def _in_force(self, kept: _KeptHub, batch: BatchId, start: Start) -> _InForce:
        """The catalogue in force in a batch, for its ingest."""
        if kept.known is None or kept.known[0] != batch:
            parent = self._find_parent(kept, batch, start)
            attempt = find_attempt(kept.files, batch, start, parent)
            kept.known = batch, self._before(kept, batch, start, parent, attempt)
        return kept.known[1]

    def _before(
        self,
        kept: _KeptHub,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        attempt: Manifest | None,
    ) -> _InForce:
        """The catalogue that the batch before left, or an earlier attempt of the first batch had."""
        if parent is not None:
            assert isinstance(parent.plan.scheme, HubPlan)
            return self._read(kept, parent, parent.plan.scheme.after)
        if attempt is not None:
            assert isinstance(attempt.plan.scheme, HubPlan)
            return self._read(kept, attempt, attempt.plan.scheme.in_force)
        changed = apply_commands(HubCatalogue(), self._given(), batch.number - 1, kept.texts)
        return _InForce(None, replace(changed.catalogue, given_by=start.number), changed.events)

    def _read(self, kept: _KeptHub, manifest: Manifest, path: str) -> _InForce:
        found = kept.catalogues.pop(path, None)
        if found is None:
            run = next(run for run in manifest.live if run.path == path)
            row = kept.reader.read(run, FULL_RANGE, tuple(CATALOGUE_ROW.names))[0].rows
            found = _InForce(run, *from_row(row))
        while len(kept.catalogues) >= _KEPT_CATALOGUES:
            kept.catalogues.pop(next(iter(kept.catalogues)))
        kept.catalogues[path] = found
        return found

    # --- answers --------------------------------------------------------------------------------------------------

    def results(self, manifest: Manifest, task: int) -> Iterator[pa.RecordBatch]:
        """This task's share of the answers of a batch that it has agreed on. The first task tells of the commands."""
        kept, plan = _kept(self.spec, manifest.batch), manifest.plan.scheme
        assert isinstance(plan, HubPlan)
        if task == 0:
            yield from self._events(kept, manifest, plan)
        in_force = self._read(kept, manifest, plan.in_force)
        if not len(in_force.catalogue):
            return
        if kept.forest is None or kept.forest[0] != plan.in_force:
            kept.forest = plan.in_force, build_forest(in_force.catalogue, kept.attributes, kept.ways)
        forest = kept.forest[1]
        rows, fresh = self._rows(kept, manifest)
        fresh_from = first_row(np.array([manifest.batch.number]))[0]
        tasks = self.spec.settings.tasks
        mine = {stream: positions[task::tasks] for stream, positions in fresh.items()}
        for found in Walk(forest, rows, fresh_from, AT).answers(mine):
            yield answer_rows(found, rows, forest.queries, manifest.batch.number)
            failpoints.reach("result-emitted")

    def _events(self, kept: _KeptHub, manifest: Manifest, plan: HubPlan) -> Iterator[pa.RecordBatch]:
        written = {run.path for run in manifest.fresh}
        for path in dict.fromkeys((plan.in_force, plan.after)):
            events = self._read(kept, manifest, path).events if path in written else None
            if events is not None and events.num_rows:
                yield event_rows(events, manifest.batch.number)

    def _rows(self, kept: _KeptHub, manifest: Manifest) -> tuple[Rows, dict[int, Indices]]:
        """All rows and indexes of a batch, and the positions of the fresh rows of each stream."""
        streams: dict[int, StreamRows] = {}
        fresh: dict[int, Indices] = {}
        indexes: dict[int, list[Sorted]] = {}
        signature, attributes = self.spec.signature, kept.attributes
        for number, name in enumerate(attributes.streams):
            old, new = (
                [run for run in runs if run.input == name] for runs in (manifest.history, manifest.fresh)
            )
            columns = signature.columns(name)
            streams[number] = StreamRows.of([self._slice(kept, run, columns) for run in (*old, *new)])
            before = sum(run.rows for run in old)
            fresh[number] = np.arange(before, before + sum(run.rows for run in new))
        for attribute in range(len(attributes.columns)):
            name = attributes.index_of(attribute)
            indexes[attribute] = [
                self._slice(kept, run, (LOCATOR,)) for run in manifest.live if run.input == name
            ]
        return Rows(attributes, streams, indexes), fresh

    def _slice(self, kept: _KeptHub, run: Run, columns: tuple[str, ...]) -> Sorted:
        return kept.reader.read(run, FULL_RANGE, columns)[0]

    # --- starts ---------------------------------------------------------------------------------------------------

    def _start(self, kept: _KeptHub, batch: BatchId) -> Start:
        """The start of the query that a batch belongs to. A state that does not fit is refused before it is claimed."""
        if kept.start is None:
            found, highest = search_start(kept.files, batch.run)
            if found is None:
                expected = Start(highest + 1, batch.run, batch.number)
                parent = self._parent_of(kept, batch, expected)
                if parent is not None:
                    check_hub_signature(parent.signature, self.spec.signature)
                found = claim_start(kept.files, batch.run, batch.number, highest)
            kept.start = found
        return kept.start

    def _find_parent(self, kept: _KeptHub, batch: BatchId, start: Start) -> Manifest | None:
        try:
            return self._parent_of(kept, batch, start)
        except (CorruptFile, StateBehind):
            # A later start may have cleaned up behind this one. Then report that as the cause.
            check_current(kept.files, start)
            raise

    def _parent_of(self, kept: _KeptHub, batch: BatchId, start: Start) -> Manifest | None:
        before = BatchId(batch.query, batch.run, batch.number - 1)
        if kept.last is not None and kept.last.batch == before:
            return kept.last
        return find_parent(kept.files, batch, start, self.spec.settings.accept_gap, kept.seen)
