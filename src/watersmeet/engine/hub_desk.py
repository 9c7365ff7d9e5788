"""What the operator does in its own way for a hub: catalogues of queries, indexes for them, and their answers.

The queries of a batch are in the catalogue of its parent, so ingest reads the parent before it takes rows in. The first
batch of a new hub has the queries that were given at the start.

The manifest names the catalogue after the batch's commands. If an earlier start published the batch on the same parent,
its catalogues are used: answers and events of that attempt may have reached the sink. Queries that are given at a
restart act as commands before those of its first batch that was not published before.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.hub_announced import Added, announce, announced_runs
from watersmeet.engine.hub_catalogues import (
    CatalogueInForce,
    HubCatalogues,
    changed_streams,
    known_as,
    plan_of,
    retain_of,
    run_of,
    streams_of,
    watermarks_of,
)
from watersmeet.engine.hub_distinct import Evaluated, write_answers
from watersmeet.engine.hub_ingest import BATCH_TIME, HubPartition, store_commands, store_stream
from watersmeet.engine.hub_kept import KeptRuns, batch_before, kept_parts, unneeded_rows
from watersmeet.engine.hub_load import LoadRuns, choices_of
from watersmeet.engine.hub_past import has_past, walk_past, write_past
from watersmeet.engine.hub_rows import deal_of, fresh_positions, newest_stored, read_rows
from watersmeet.engine.hub_tally import top_queries
from watersmeet.engine.ingest import Partition
from watersmeet.engine.merge import Unneeded
from watersmeet.engine.spec import JoinSpec
from watersmeet.hubs.answers import answer_rows, distinct_answers, distinct_rows, event_rows
from watersmeet.hubs.catalogue import HubCatalogue, text_numbers
from watersmeet.hubs.changes import as_written, check_unused, continued, stored_schemas
from watersmeet.hubs.counted import count_rows
from watersmeet.hubs.distinct import (
    Answers,
    distinct_part,
    distinct_parts,
    oldest_counted,
    pieces_of,
    without_distinct,
)
from watersmeet.hubs.forest import Forest
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.keep import begins_to_keep, kept_floors
from watersmeet.hubs.kept import KEPT
from watersmeet.hubs.needed import Needed, needed_of
from watersmeet.hubs.past import lowered, reached_by
from watersmeet.hubs.retained import next_unkept
from watersmeet.hubs.rows import Rows, first_row
from watersmeet.hubs.stored import (
    ANSWERED,
    CATALOGUE,
    COMMANDS,
)
from watersmeet.hubs.walk import PIECE_ROWS, Walk
from watersmeet.hubs.watermarks import next_watermarks
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.rows import Sorted
from watersmeet.log.parents import find_attempt
from watersmeet.log.runs import RunReader
from watersmeet.log.storage import Files
from watersmeet.model.facts import FULL_RANGE, BatchId, Descriptor, Manifest, Receipt, Run, Start
from watersmeet.model.signature import OWN, JoinSignature
from watersmeet.model.tally import QueryTally, Tally
from watersmeet.model.window import AT, FARTHEST
from watersmeet.schemes.hub import HubFacts, HubPlan
from watersmeet.schemes.scheme import Decision, OwnWindow

FindParent = Callable[[], Manifest | None]


class HubDesk:
    """A hub: parsed templates, the last catalogues and the last forest."""

    is_open = False

    def __init__(self, files: Files, reader: RunReader, clock: Callable[[], float]) -> None:
        self._files, self._reader = files, reader
        self.clock = clock
        # A signature, and the hub with its columns.
        self._written_as: tuple[JoinSignature, JoinSpec] | None = None
        # By the run of the catalogue, and the part of its DISTINCT queries; None are all others.
        # In the batch in which something begins to be kept it is another one.
        self._forests: dict[tuple[str, int | None], tuple[bool, Forest]] = {}
        self._catalogues = HubCatalogues(files, reader)
        self._known: tuple[BatchId, JoinSpec, CatalogueInForce, Mapping[str, int], int | None] | None = None
        self._needed: tuple[HubCatalogue, Needed] | None = None

    # --- columns --------------------------------------------------------------------------------------------------

    def continued(self, spec: JoinSpec, parent: Manifest | None) -> JoinSignature:
        """The columns of the streams may change where no live query uses the change (hubs/changes.py)."""
        if parent is None or parent.signature == spec.signature:
            return spec.signature
        self._check_unused(spec, parent)
        return continued(streams_of(spec), parent.signature).signature

    def _check_unused(self, spec: JoinSpec, manifest: Manifest) -> None:
        before, after = stored_schemas(manifest.signature), streams_of(spec).schemas
        if before != after:
            check_unused(self._catalogues.read(manifest, plan_of(manifest).after).catalogue, before, after)

    def _as_written(self, spec: JoinSpec, signature: JoinSignature) -> JoinSpec:
        """The hub with the columns of a state."""
        if self._written_as is None or self._written_as[0] != signature:
            # They go by the numbers of columns.
            self._forests, self._needed = {}, None
            if spec.signature != signature:
                spec = replace(spec, signature=signature, join=as_written(streams_of(spec), signature))
            self._written_as = signature, spec
        return self._written_as[1]

    # --- ingest ---------------------------------------------------------------------------------------------------

    def store(self, spec: JoinSpec, part: Partition, start: Start, parent: FindParent) -> Descriptor:
        spec, in_force, watermarks, retain = self._in_force(spec, part.batch, start, parent)
        streams, settings = streams_of(spec), spec.settings
        identity = known_as(in_force, retain)
        mine = HubPartition(part.batch.number, part.number, identity, watermarks.get(part.input))
        rows = (one for one in part.rows if one.num_rows)
        if part.input == COMMANDS:
            return store_commands(self._files, mine, rows)
        first = next(rows, None)
        newest: dict[str, int] = {}
        if first is not None:
            needed = self._needs(spec, in_force.catalogue)
            at_us = first.column(BATCH_TIME)[0].cast(pa.timestamp("us", "UTC")).value
            stored = needed.first if retain is None else {*needed.first, *streams.schemas}
            counts_late = retain is not None or part.input in needed.late
            mine = replace(mine, needed=stored, counts_late=counts_late, at_us=at_us)
            rows = (one.drop_columns([BATCH_TIME]) for one in itertools.chain([first], rows))
            newest = dict.fromkeys((name for name in streams.schemas if name not in streams.times), at_us)
        told = store_stream(
            self._files,
            streams.attributes,
            part.input,
            streams.times.get(part.input),
            mine,
            rows,
            settings.run_rows,
            settings.run_bytes,
        )
        return replace(told, newest=newest | told.newest)

    def _in_force(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: FindParent
    ) -> tuple[JoinSpec, CatalogueInForce, Mapping[str, int], int | None]:
        """For the ingest of a batch: the hub with its columns, the catalogue in force, watermarks, and how long rows are
        retained."""
        if self._known is None or self._known[0] != batch:
            found = parent()
            attempt = find_attempt(self._files, batch, start, found)
            spec = self._as_written(spec, self.continued(spec, found))
            in_force = self._catalogues.before(spec, batch, start, found, attempt)
            self._known = batch, spec, in_force, watermarks_of(found), retain_of(spec, attempt)
        return self._known[1:]

    def _needs(self, spec: JoinSpec, catalogue: HubCatalogue) -> Needed:
        """What the queries of a catalogue need. Found out once: it takes a while for many templates."""
        if self._needed is None or self._needed[0] is not catalogue:
            self._needed = catalogue, needed_of(catalogue, streams_of(spec).attributes)
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
        in_force = self._catalogues.before(spec, batch, start, parent, attempt)
        retain = retain_of(spec, attempt)
        identity = known_as(in_force, retain)
        streams, watermarks = streams_of(spec), watermarks_of(parent)
        newest = [one.newest for one in descriptors]
        later = next_watermarks(watermarks, newest, streams.times, streams.lateness)
        unkept = next_unkept(
            {} if parent is None else plan_of(parent).unkept,
            newest,
            newest_stored(parent, streams.schemas),
            later,
            retain,
            changed=changed_streams(parent, streams),
        )
        written: list[Run] = []
        if attempt is not None:
            self._check_unused(spec, attempt)
            plan = plan_of(attempt)
            written = [run for run in attempt.fresh if run.input == CATALOGUE]
        else:
            if in_force.run is None:
                in_force = self._catalogues.written(batch, "in-force", in_force.catalogue, in_force.events)
                written.append(run_of(in_force))
            after = in_force
            fresh = [run for one in descriptors for run in one.runs]
            runs = LoadRuns(fresh, parent.live if parent else (), self._whole, self._reader.keys_alone)
            choices = choices_of(in_force.catalogue, streams, batch.number, runs)
            changed = self._catalogues.changed(spec, batch, start, in_force, descriptors, unkept, choices)
            if changed is not None:
                after = self._catalogues.written(batch, "after", changed.catalogue, changed.events)
                written.append(run_of(after))
            plan = HubPlan(run_of(in_force).path, run_of(after).path, {})
        needed = self._needs(spec, in_force.catalogue)
        before = {} if parent is None else plan_of(parent).counted
        arrived = _rows_in_time(descriptors)
        counted = count_rows(before, needed.counted_streams, arrived, watermarks, later)
        attributes = streams.attributes
        reached = reached_by(in_force.catalogue, attributes, parent.batch.number if parent else None)
        floors = lowered(needed.floors(watermarks, before, retain), reached)
        # Merges of what is kept may drop rows whatever their times (`unneeded`).
        merging = {KEPT: -FARTHEST, **needed.floors(later, counted, retain)}
        window = OwnWindow(watermarks, floors, merging)
        plan = replace(
            plan,
            watermarks=later,
            tasks=spec.settings.tasks,
            counted=counted,
            retain=retain,
            unkept=unkept,
            reads=needed.reads(watermarks, reached, before),
            judged=dict(watermarks),
        )
        live = parent.live if parent else ()
        past = write_past(self._files, self._whole, attributes, live, batch.number, reached)
        announced = () if parent is None else self._announced(spec, parent, needed)
        retained = needed.retained(watermarks, retain)
        return HubFacts(
            plan,
            identity,
            tuple(written),
            announced,
            past,
            needed.first,
            window,
            retained,
            self._files.place,
        )

    def _announced(self, spec: JoinSpec, parent: Manifest, needed: Needed) -> tuple[Run, ...]:
        """What the tasks of the batch before have added, as far as live queries need it."""
        plan, spec = plan_of(parent), self._as_written(spec, parent.signature)
        if not any(name.startswith(OWN) for name in needed.first):
            return ()
        catalogue = self._catalogues.read(parent, plan.in_force).catalogue
        found: list[Run] = []
        for added, parts, again in (
            (Added.ANSWERED, distinct_parts(catalogue, plan.tasks), self._distinct_again),
            (Added.KEPT, kept_parts(without_distinct(catalogue), plan.tasks), self._kept_again),
        ):
            found += announced_runs(self._files, parent, added, parts, functools.partial(again, spec, parent))
        return tuple(run for run in found if run.input in needed.first)

    def _distinct_again(self, spec: JoinSpec, manifest: Manifest, part: int) -> Receipt:
        rows = read_rows(self._reader, spec, manifest)
        return self._distinct(spec, manifest, part, rows)[1]

    def _kept_again(self, spec: JoinSpec, manifest: Manifest, part: int) -> Receipt:
        """Make what a task keeps once more."""
        plan, attributes = plan_of(manifest), streams_of(spec).attributes
        catalogue = without_distinct(self._catalogues.read(manifest, plan.in_force).catalogue)
        rows, deal = read_rows(self._reader, spec, manifest), deal_of(spec, part, plan.tasks)
        kept = KeptRuns(self._files, attributes, manifest.batch.number, part)
        kept.add_fresh(manifest, catalogue, rows, deal)
        kept.add_past(manifest, catalogue, rows, deal)
        return announce(self._files, manifest, Added.KEPT, part, kept.runs)

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        return None

    # --- answers --------------------------------------------------------------------------------------------------

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """A task's share of the answers and events."""
        plan, batch = plan_of(manifest), manifest.batch.number
        spec = self._as_written(spec, manifest.signature)
        catalogue = self._catalogues.read(manifest, plan.in_force).catalogue
        if not len(catalogue):
            yield from self._events(manifest, plan, task)
            return
        rows, deal = read_rows(self._reader, spec, manifest), deal_of(spec, task, plan.tasks)
        fresh = fresh_positions(manifest, rows.attributes.streams, deal)
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
        others = without_distinct(catalogue)
        forest = self._forest(spec, manifest, None, lambda: others)
        answered = np.zeros(len(forest.queries.ids), np.int64)
        cost = np.zeros_like(answered)
        looked = np.zeros(len(forest.branch_node), np.int64)
        kept = KeptRuns(self._files, rows.attributes, batch, task)
        keeper = kept.keeper(forest, rows)
        walks: list[tuple[Walk, Mapping[int, Indices]]] = [
            (Walk(forest, rows, _first_fresh(manifest), AT, looked=looked, keeper=keeper), fresh)
        ]
        if has_past(manifest, catalogue):
            walks.append(walk_past(manifest, others, rows, deal))
        for walk, begun in walks:
            for found in walk.answers(begun):
                np.add.at(answered, found.query, 1)
                yield answer_rows(found, rows, forest.queries, batch)
            assert walk.looked is not None, "these walks count"
            tally.looked_rows += int(walk.looked.sum())
            cost += walk.forest.costs(walk.looked)
        if keeper is not None:
            keeper.close()
        if task in kept_parts(others, plan.tasks):
            kept.add_past(manifest, others, rows, deal)
            announce(self._files, manifest, Added.KEPT, task, kept.runs)
        tally.answers += int(answered.sum())
        tally.queries = (*told, *top_queries(forest.queries.ids, answered, cost))

    def _distinct(
        self, spec: JoinSpec, manifest: Manifest, part: int, rows: Rows
    ) -> tuple[Answers | None, Receipt]:
        """The answers of one part of the DISTINCT queries that are new in a batch, made durable."""
        plan = plan_of(manifest)
        whole = self._catalogues.read(manifest, plan.in_force).catalogue
        catalogue = distinct_part(whole, part, plan.tasks)
        forest = self._forest(spec, manifest, part, lambda: catalogue)
        kept = KeptRuns(self._files, rows.attributes, manifest.batch.number, part)
        keeper = kept.keeper(forest, rows)
        every = fresh_positions(manifest, rows.attributes.streams)
        walks: list[tuple[Walk, Mapping[int, Indices]]] = [
            (Walk(forest, rows, _first_fresh(manifest), AT, keeper=keeper), every)
        ]
        if has_past(manifest, catalogue):
            walks.append(walk_past(manifest, catalogue, rows))
        seen = [
            self._whole(run, spec.signature.columns(ANSWERED))
            for run in manifest.live
            if run.input == ANSWERED
        ]
        parts = (
            distinct_answers(found, rows, forest.queries)
            for walk, begun in walks
            for found in walk.answers(begun)
        )

        def runs_kept() -> list[Run]:
            if keeper is not None:
                keeper.close()
            kept.add_past(manifest, catalogue, rows)
            return kept.runs

        start = catalogue.queries.column("start").to_numpy()
        oldest = oldest_counted(forest.queries, rows, _first_fresh(manifest), AT)
        return write_answers(
            self._files,
            manifest,
            part,
            Evaluated(parts, seen, forest.queries, start, oldest, runs_kept),
        )

    def _forest(
        self, spec: JoinSpec, manifest: Manifest, part: int | None, catalogue: Callable[[], HubCatalogue]
    ) -> Forest:
        """The forest of a part of the queries in force, or of those that are not DISTINCT."""
        path, before = plan_of(manifest).in_force, batch_before(manifest)
        found = self._forests.get((path, part))
        mine = catalogue()
        begins = bool(begins_to_keep(mine, before).any())
        if found is None or found[0] != begins:
            self._forests = {key: one for key, one in self._forests.items() if key[0] == path}
            forest = build_forest(mine, streams_of(spec).attributes, before=before)
            found = self._forests[path, part] = begins, forest
        return found[1]

    def _events(self, manifest: Manifest, plan: HubPlan, task: int) -> Iterator[pa.RecordBatch]:
        """What became of the batch's commands: the first task tells."""
        written = {run.path for run in manifest.fresh} if task == 0 else set()
        for path in dict.fromkeys((plan.in_force, plan.after)):
            events = self._catalogues.read(manifest, path).events if path in written else None
            if events is not None and events.num_rows:
                yield event_rows(events, manifest.batch.number)

    def _whole(self, run: Run, columns: tuple[str, ...]) -> Sorted:
        return self._reader.read(run, FULL_RANGE, columns)[0]

    def unneeded(self, spec: JoinSpec, manifest: Manifest) -> Unneeded | None:
        """Combinations that are kept for no live query, or are too old for all that they are kept for."""
        plan = plan_of(manifest)
        if not any(merge.input == KEPT for merge in manifest.merges):
            return None
        numbers, floors = kept_floors(self._catalogues.read(manifest, plan.in_force).catalogue, plan.judged)
        return lambda input_, rows: unneeded_rows(input_, rows, numbers, floors)

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


def _rows_in_time(descriptors: Sequence[Descriptor]) -> dict[str, int]:
    """The rows of a batch that are stored and not late, by stream."""
    found: Counter[str] = Counter()
    for one in descriptors:
        found[one.input] += sum(run.rows for run in one.runs if run.input == one.input) - one.late_kept_rows
    return found
