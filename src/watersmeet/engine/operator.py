"""The operator: ingest a partition, agree on a manifest, join a share, merge, clean up.

Both drivers run exactly this code. On Spark each method call is one task in some executor; in the local
driver they are calls in one process. Every call finds all that it needs in the committed files, in its
arguments and in caches that may be empty, so any call can be repeated, on any machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.engine.ingest import Located, ingest_partition
from watersmeet.engine.kept_table import KeptTable, used_tables
from watersmeet.engine.lookup import lookup_share
from watersmeet.engine.merge import merge_assigned
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.task import Tally, join_share
from watersmeet.engine.window import for_batch, reader_for
from watersmeet.errors import CorruptFile
from watersmeet.kernel.batches import coalesce
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.pairs import OUTPUT_BYTES, OUTPUT_ROWS
from watersmeet.log.clean import BATCH_FOLDER, Cleaner, remove_stale_batches
from watersmeet.log.files import Files, open_files
from watersmeet.log.manifests import agree, find_parent, list_manifests, published, read_receipts
from watersmeet.log.runs import RunReader
from watersmeet.log.starts import check_newest, claim_sequence
from watersmeet.model.facts import BatchId, Descriptor, Manifest
from watersmeet.model.lookup import TableVersion
from watersmeet.model.window import over_time
from watersmeet.plan.batch import check_arrived, plan_batch
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.lookup import plan_lookup, table_before
from watersmeet.tables.catalogue import drop_tables

# Listing all runs costs a round trip or two: often enough to bound garbage, seldom enough not to be felt.
CLEAN_EVERY_BATCHES = 16


@dataclass
class _Kept:
    """What a process keeps of one state directory between tasks: mapped runs, seen manifests, an open table."""

    files: Files
    reader: RunReader
    cleaner: Cleaner
    # The run sequence of each start of the query that was checked here.
    sequences: dict[str, int] = field(default_factory=dict)
    # The manifest that was agreed on last.
    last: Manifest | None = None
    # A batch, and the watermark that its rows are judged by.
    judged: tuple[BatchId, int | None] | None = None
    # A batch, and the version of the table that its rows are located in.
    located: tuple[BatchId, TableVersion] | None = None
    table: KeptTable | None = None

    def close_table(self) -> None:
        if self.table is not None:
            self.table.close()
            self.table = None


# By their last use.
_KEPT: dict[tuple[str, str, str], _Kept] = {}

# A worker serves few queries at a time. Of older ones it keeps mapped files, but no table: that is a connection and
# as many bytes of pages as a task may have. Nothing says that a query has ended, so this is settled as another begins;
# if that was too early, the table is opened once more.
_KEPT_PLACES = 16
_KEPT_TABLES = 2


def _kept(spec: JoinSpec, query: str) -> _Kept:
    place = (spec.settings.state, spec.name, query)
    found = _KEPT.pop(place, None)
    if found is None:
        settings = spec.settings
        root = open_files(settings.state, cache=settings.cache, fsync=settings.fsync)
        files = root.under(spec.name, query)
        while len(_KEPT) >= _KEPT_PLACES:
            _KEPT.pop(next(iter(_KEPT))).close_table()
        for old in [kept for kept in _KEPT.values() if kept.table is not None][:-_KEPT_TABLES]:
            old.close_table()
        found = _Kept(files, RunReader(files), Cleaner(files))
    _KEPT[place] = found
    return found


@dataclass(frozen=True, slots=True)
class Operator:
    spec: JoinSpec
    clock: Callable[[], float]

    def ingest(
        self, batch: BatchId, input_name: str, partition: int, incoming: Iterable[pa.RecordBatch]
    ) -> Descriptor:
        kept = _kept(self.spec, batch.query)
        self._check_before_first_write(kept, batch)
        if partition == 0 and batch.query.startswith(BATCH_FOLDER):
            self._remove_stale_batches()
        return ingest_partition(
            kept.files,
            self.spec.input(input_name),
            batch.number,
            partition,
            incoming,
            self.spec.settings,
            self.spec.signature.layout,
            self._watermark(kept, batch),
            self._located(kept, batch),
        )

    def join(
        self, batch: BatchId, task: int, descriptors: Sequence[Descriptor], tally: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """This task's share of the batch's results; merging and cleaning happen after the last one."""
        kept = _kept(self.spec, batch.query)
        manifest = self._agree(kept, batch, descriptors, task)
        kept.reader.forget_all_but(manifest.named_paths)
        kept.last = manifest
        found = self._share(kept, manifest, task, tally or Tally())
        yield from coalesce(found, OUTPUT_ROWS, OUTPUT_BYTES, alone=OUTPUT_ROWS // 4)
        merge_assigned(kept.files, kept.reader, manifest, task, self.spec.settings.tasks)
        if not self.spec.streaming:
            # There is no later batch that it would be kept for.
            kept.close_table()
        if task == 0 and _clean_is_due(manifest):
            settings = self.spec.settings
            kept.cleaner.clean(
                manifest, retain=settings.retain_batches, now_s=self.clock(), grace_s=settings.grace_s
            )
            self._drop_tables()
        failpoints.reach("task-done")

    def _share(self, kept: _Kept, manifest: Manifest, task: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        if isinstance(self.spec.join, LookupJoin):
            columns = tuple(column.name for column in self.spec.signature.inputs[0].stored)
            table = self._table(kept, manifest.batch)
            return lookup_share(kept.reader, manifest, self.spec.join, columns, task, table)
        seen, spec = for_batch(manifest, self.spec)
        return join_share(reader_for(kept.reader, manifest), seen, spec, task, tally)

    def _agree(self, kept: _Kept, batch: BatchId, descriptors: Sequence[Descriptor], task: int) -> Manifest:
        def decide(parent: Manifest | None) -> Manifest:
            check_newest(kept.files, _sequence(kept, batch.run))
            if self.spec.table is not None:
                return self._decide_lookup(kept, batch, parent, descriptors, task)
            pending = {
                (merge.id, number)
                for merge in (parent.merges if parent else ())
                for number, part in enumerate(merge.parts)
                if part.output is None
            }
            receipts = (
                read_receipts(kept.files, lambda merge, part: (merge, part) in pending) if pending else []
            )
            return plan_batch(
                batch,
                parent,
                sorted(descriptors, key=lambda d: (d.input, d.partition)),
                receipts,
                signature=self.spec.signature,
                instance=self.spec.instance,
                run_seq=_sequence(kept, batch.run),
                strategy=self.spec.strategy,
                tasks=self.spec.settings.tasks,
                now_ms=int(self.clock() * 1000),
                keys_of=kept.reader.keys,
            )

        manifest = agree(
            kept.files, batch, self.spec.instance, decide, accept_gap=self.spec.settings.accept_gap
        )
        check_arrived(manifest, descriptors)
        return manifest

    def _decide_lookup(
        self,
        kept: _Kept,
        batch: BatchId,
        parent: Manifest | None,
        descriptors: Sequence[Descriptor],
        task: int,
    ) -> Manifest:
        assert self.spec.table is not None
        current = table_before(parent, self.spec.instance, self.spec.table.given)
        before = parent.plan.pages if parent and parent.instance == self.spec.instance else None
        checked_ms = before.checked_ms if before else None
        now_ms = int(self.clock() * 1000)
        return plan_lookup(
            batch,
            parent,
            sorted(descriptors, key=lambda d: (d.input, d.partition)),
            signature=self.spec.signature,
            instance=self.spec.instance,
            run_seq=_sequence(kept, batch.run),
            table=self._table(kept, batch).look_again(current, checked_ms, now_ms, search=task == 0),
            policy=self.spec.table.policy,
            waiting_bytes=self.spec.table.memory * self.spec.settings.tasks,
            tasks=self.spec.settings.tasks,
            now_ms=now_ms,
            keys_of=kept.reader.keys,
        )

    def _table(self, kept: _Kept, batch: BatchId) -> KeptTable:
        assert self.spec.table is not None
        start = self.spec.instance, batch.run
        if kept.table is None or (kept.table.instance, kept.table.run) != start:
            kept.close_table()
            kept.table = KeptTable(self.spec.table, self.clock, *start)
        return kept.table

    def _drop_tables(self) -> None:
        """Remove versions of tables that were prepared and that no query reads any more."""
        if self.spec.table is None:
            return
        settings, now_s = self.spec.settings, self.clock()
        state = open_files(settings.state, cache=settings.cache)
        # A manifest of another query that cannot be read is not ours to complain of: nothing is removed.
        with contextlib.suppress(CorruptFile):
            drop_tables(state, {*used_tables(state, now_s), self.spec.table.given.folder}, now_s)

    def _located(self, kept: _Kept, batch: BatchId) -> Located | None:
        """The pages that the rows of this batch are sought in: settled by the batch before, for all tasks."""
        if self.spec.table is None:
            return None
        if kept.located is None or kept.located[0] != batch:
            parent = self._parent(kept, batch)
            kept.located = batch, table_before(parent, self.spec.instance, self.spec.table.given)
        version = kept.located[1]
        return Located(self._table(kept, batch).at(version).table.index, version.version)

    def _watermark(self, kept: _Kept, batch: BatchId) -> int | None:
        """What rows of this batch are judged by. Looked up once for a batch, if this process did not do the last."""
        if not self.spec.streaming or not over_time(self.spec.signature.window):
            return None
        if kept.judged is None or kept.judged[0] != batch:
            parent = self._parent(kept, batch)
            kept.judged = batch, parent.watermark if parent else None
        return kept.judged[1]

    def _parent(self, kept: _Kept, batch: BatchId) -> Manifest | None:
        """The manifest before a batch: this process may have seen it, else it is looked for."""
        before = BatchId(batch.query, batch.run, batch.number - 1)
        if kept.last is not None and kept.last.batch == before:
            return kept.last
        names = list_manifests(kept.files)
        return find_parent(kept.files, names, batch, accept_gap=self.spec.settings.accept_gap)

    def _remove_stale_batches(self) -> None:
        settings = self.spec.settings
        root = open_files(settings.state, cache=settings.cache).under(self.spec.name)
        remove_stale_batches(root, self.clock())
        # A batch join has no later batch in which cleaning would be due.
        self._drop_tables()

    def _check_before_first_write(self, kept: _Kept, batch: BatchId) -> None:
        """Once in a run of the query: refuse a state that does not fit before anything is written."""
        if batch.run in kept.sequences:
            return
        names = list_manifests(kept.files)
        if published(names, batch) is None:
            parent = find_parent(kept.files, names, batch, accept_gap=self.spec.settings.accept_gap)
            if parent is not None:
                check_compatible(parent.signature, self.spec.signature)
        _sequence(kept, batch.run)


def _sequence(kept: _Kept, run: str) -> int:
    if run not in kept.sequences:
        kept.sequences[run] = claim_sequence(kept.files, run)
    return kept.sequences[run]


def _clean_is_due(manifest: Manifest) -> bool:
    """Whenever the batch number passes a multiple, also if that very batch did not reach the join."""
    before = manifest.parent.number if manifest.parent else 0
    return before // CLEAN_EVERY_BATCHES != manifest.batch.number // CLEAN_EVERY_BATCHES
