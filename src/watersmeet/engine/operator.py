"""The operator: ingest a partition, agree on a manifest, join a share, merge, clean up.

Both drivers run exactly this code. On Spark each method call is one task in some executor; in the local
driver they are calls in one process. Every call finds all that it needs in the committed files, in its
arguments and in caches that may be empty, so any call can be repeated, on any machine.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.engine.digest import RowDigest
from watersmeet.engine.ingest import Located, ingest_partition
from watersmeet.engine.kept_table import KeptTable, used_tables
from watersmeet.engine.lookup import lookup_share
from watersmeet.engine.merge import merge_assigned
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.task import Tally, join_share
from watersmeet.engine.window import for_batch, reader_for
from watersmeet.errors import CorruptFile, StateBehind, StateError, StateInUse
from watersmeet.kernel.emit import OUTPUT_BYTES, OUTPUT_ROWS
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.kernel.rows import coalesce
from watersmeet.log.clean import BATCH_FOLDER, Cleaner, mark_batch, remove_stale_batches
from watersmeet.log.files import Files, open_files
from watersmeet.log.manifests import agree, read_receipts
from watersmeet.log.parents import check_not_overtaken, find_attempt, find_parent
from watersmeet.log.runs import RunReader
from watersmeet.log.starts import check_current, claim_start, find_start, next_number
from watersmeet.model.facts import BatchId, Descriptor, Manifest, Start
from watersmeet.model.lookup import PagePlan, TableVersion
from watersmeet.model.window import over_time
from watersmeet.plan.batch import check_arrived, plan_batch
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.lookup import decisions_of, plan_lookup, table_before
from watersmeet.tables.catalogue import drop_tables, reuse

# Listing all runs costs a round trip or two: often enough to bound garbage, seldom enough not to be felt.
CLEAN_EVERY_BATCHES = 16


@dataclass
class _Kept:
    """What a process keeps of one state directory between tasks: mapped runs, seen manifests, an open table."""

    files: Files
    reader: RunReader
    cleaner: Cleaner
    # The starts of the query that were checked here, by run.
    starts: dict[str, Start] = field(default_factory=dict)
    # The manifest that was agreed on last.
    last: Manifest | None = None
    # A batch, and the watermark that its rows are judged by.
    judged: tuple[BatchId, int | None] | None = None
    # A batch, the version of the table that its rows are located in, and the decisions that it repeats as a replay.
    located: tuple[BatchId, TableVersion, PagePlan | None] | None = None
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
        files = open_files(spec.settings.storage).under(spec.name, query)
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
        start = self._start(kept, batch)
        if partition == 0 and batch.query.startswith(BATCH_FOLDER):
            self._remove_stale_batches(batch.query)
        digest = RowDigest()
        descriptor = ingest_partition(
            kept.files,
            self.spec.input(input_name),
            batch.number,
            partition,
            incoming if self.spec.streaming else digest.watch(incoming),
            self.spec.settings,
            self.spec.signature.layout,
            self._watermark(kept, batch),
            self._located(kept, batch),
        )
        if self.spec.streaming:
            return replace(descriptor, start=start)
        return replace(descriptor, digest=f"{digest.total:x}")

    def join(
        self, batch: BatchId, task: int, descriptors: Sequence[Descriptor], tally: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Merge and clean up, then yield this task's share of the batch's results.

        Results come last because a consumer may stop early (`limit`, `show`): Spark then drops the generator.
        """
        kept = _kept(self.spec, batch.query)
        manifest = self._agree(kept, batch, descriptors, task)
        kept.reader.forget_all_but(manifest.named_paths)
        kept.last = manifest
        merge_assigned(kept.files, kept.reader, manifest, task, self.spec.settings.tasks)
        if _clean_is_due(manifest) and task == _cleaning_task(manifest, self.spec.settings.tasks):
            self._clean(kept, manifest)
        found = self._share(kept, manifest, task, tally or Tally())
        try:
            for result in coalesce(found, OUTPUT_ROWS, OUTPUT_BYTES, alone=OUTPUT_ROWS // 4):
                yield result
                failpoints.reach("result-emitted")
        finally:
            if not self.spec.streaming:
                # There is no later batch that it would be kept for.
                kept.close_table()
        failpoints.reach("task-done")

    def _clean(self, kept: _Kept, manifest: Manifest) -> None:
        settings = self.spec.settings
        kept.cleaner.clean(
            manifest, retain=settings.retain_batches, now_s=self.clock(), grace_s=settings.grace_s
        )
        self._drop_tables()

    def _share(self, kept: _Kept, manifest: Manifest, task: int, tally: Tally) -> Iterator[pa.RecordBatch]:
        if isinstance(self.spec.join, LookupJoin):
            columns = tuple(column.name for column in self.spec.signature.inputs[0].stored)
            table = self._table(kept, manifest.batch)
            return lookup_share(kept.reader, manifest, self.spec.join, columns, task, table)
        seen, within = for_batch(manifest, self.spec.signature.window)
        return join_share(reader_for(kept.reader, manifest), seen, self.spec, task, tally, within)

    def _agree(self, kept: _Kept, batch: BatchId, descriptors: Sequence[Descriptor], task: int) -> Manifest:
        start = self._start(kept, batch, descriptors)
        _check_batch(batch, descriptors)

        def decide(parent: Manifest | None) -> Manifest:
            if self.spec.streaming:
                check_current(kept.files, start)
                check_not_overtaken(kept.files, batch, start, self.spec.built_ms)
            if self.spec.table is not None:
                return self._decide_lookup(kept, batch, start, parent, descriptors, task)
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
                run_seq=start.number,
                strategy=self.spec.strategy,
                tasks=self.spec.settings.tasks,
                now_ms=int(self.clock() * 1000),
                keys_of=kept.reader.keys,
            )

        manifest = agree(
            kept.files,
            batch,
            start,
            self.spec.instance,
            lambda: self._find_parent(kept, batch, start),
            decide,
        )
        check_arrived(manifest, descriptors)
        return manifest

    def _decide_lookup(
        self,
        kept: _Kept,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        descriptors: Sequence[Descriptor],
        task: int,
    ) -> Manifest:
        assert self.spec.table is not None
        current, repeated = self._table_of(kept, batch, lambda: parent)
        if decisions_of(find_attempt(kept.files, batch, start, parent)) != repeated:
            raise StateInUse(
                f"batch {batch.number}: another start of this query published it while its rows were stored in "
                f"{kept.files.place}: two drivers must not run on one checkpoint. Stop one, and start the other again"
            )
        before = parent.plan.pages if parent and parent.instance == self.spec.instance else None
        checked_ms = before.checked_ms if before else None
        now_ms = int(self.clock() * 1000)
        table = self._table(kept, batch)
        return plan_lookup(
            batch,
            parent,
            sorted(descriptors, key=lambda d: (d.input, d.partition)),
            signature=self.spec.signature,
            instance=self.spec.instance,
            run_seq=start.number,
            table=table.as_repeated(repeated)
            if repeated
            else table.look_again(current, checked_ms, now_ms, search=task == 0),
            policy=self.spec.table.policy,
            waiting_bytes=self.spec.table.memory * self.spec.settings.tasks,
            tasks=self.spec.settings.tasks,
            now_ms=now_ms,
            keys_of=kept.reader.keys,
            repeated=repeated,
        )

    def _table(self, kept: _Kept, batch: BatchId) -> KeptTable:
        assert self.spec.table is not None
        # A batch join is one start, also where its rows are read and joined under different ids.
        start = self.spec.instance, batch.run if self.spec.streaming else ""
        if kept.table is None or (kept.table.instance, kept.table.run) != start:
            kept.close_table()
            kept.table = KeptTable(self.spec.table, self.clock, *start)
        return kept.table

    def _drop_tables(self) -> None:
        """Remove versions of tables that were prepared and that no query reads any more."""
        if self.spec.table is None:
            return
        state = open_files(self.spec.settings.storage)
        mine = self.spec.table.given.folder
        # A manifest of another query that cannot be read is not ours to complain of: nothing is removed.
        with contextlib.suppress(CorruptFile):
            drop_tables(state, itertools.chain([mine], used_tables(state)), self.clock())

    def _located(self, kept: _Kept, batch: BatchId) -> Located | None:
        """The pages that the rows of this batch are sought in: settled by the batch before, for all tasks."""
        if self.spec.table is None:
            return None
        version, _ = self._table_of(kept, batch, lambda: self._parent(kept, batch))
        return Located(self._table(kept, batch).at(version).table.index, version.version)

    def _table_of(
        self, kept: _Kept, batch: BatchId, find: Callable[[], Manifest | None]
    ) -> tuple[TableVersion, PagePlan | None]:
        """The version of the table for a batch, and what it must repeat if it is a replay."""
        assert self.spec.table is not None
        if kept.located is None or kept.located[0] != batch:
            start, parent = self._start(kept, batch), find()
            repeated = decisions_of(find_attempt(kept.files, batch, start, parent))
            version = table_before(parent, self.spec.instance, self.spec.table.given, repeated)
            kept.located = batch, version, repeated
        return kept.located[1:]

    def _watermark(self, kept: _Kept, batch: BatchId) -> int | None:
        """What rows of this batch are judged by. Looked up once for a batch, if this process did not do the last."""
        if not self.spec.streaming or not over_time(self.spec.signature.window):
            return None
        if kept.judged is None or kept.judged[0] != batch:
            parent = self._parent(kept, batch)
            kept.judged = batch, parent.watermark if parent else None
        return kept.judged[1]

    def _parent(self, kept: _Kept, batch: BatchId) -> Manifest | None:
        """The manifest before a batch: this process may have seen it, else it is read."""
        before = BatchId(batch.query, batch.run, batch.number - 1)
        if kept.last is not None and kept.last.batch == before:
            return kept.last
        return self._find_parent(kept, batch, self._start(kept, batch))

    def _find_parent(self, kept: _Kept, batch: BatchId, start: Start) -> Manifest | None:
        try:
            return find_parent(kept.files, batch, start, self.spec.settings.accept_gap)
        except (CorruptFile, StateBehind):
            # A later start may have cleaned up behind this one: then that is what is wrong.
            if self.spec.streaming:
                check_current(kept.files, start)
            raise

    def _remove_stale_batches(self, query: str) -> None:
        state = open_files(self.spec.settings.storage)
        mine = state.under(self.spec.name)
        mark_batch(mine.under(query), self.clock())
        remove_stale_batches(mine, self.clock(), query)
        if self.spec.table is not None:
            reuse(state, self.spec.table.given.folder, self.clock())
        # A batch join has no later batch in which cleaning would be due.
        self._drop_tables()

    def _start(self, kept: _Kept, batch: BatchId, descriptors: Sequence[Descriptor] = ()) -> Start:
        """The start of the query that a batch belongs to, as the descriptors say; without any it is claimed here.

        A state that does not fit is refused before anything is written. A batch join has no starts to put in order: its
        descriptors name its manifest (engine/batch_join.py).
        """
        if not self.spec.streaming:
            return Start(0, batch.run, batch.number)
        told = {descriptor.start for descriptor in descriptors if descriptor.start is not None}
        if len(told) > 1:
            raise StateError(
                f"batch {batch.number}: ingest tasks of one batch claimed different starts in {kept.files.place}: "
                "somebody changed the state directory while the query ran. Start the query again"
            )
        for start in told:
            if start.run != batch.run:
                raise StateError(_of_another_batch(batch, f"start {start.number}"))
            kept.starts[batch.run] = start
        if batch.run not in kept.starts:
            found = find_start(kept.files, batch.run)
            if found is None:
                expected = Start(next_number(kept.files), batch.run, batch.number)
                parent = find_parent(kept.files, batch, expected, self.spec.settings.accept_gap)
                if parent is not None:
                    check_compatible(parent.signature, self.spec.signature)
                found = claim_start(kept.files, batch.run, batch.number)
            kept.starts[batch.run] = found
        return kept.starts[batch.run]


def _check_batch(batch: BatchId, descriptors: Sequence[Descriptor]) -> None:
    """Refuse rows that another batch stored: a DataFrame that foreachBatch kept and that is computed anew later."""
    for descriptor in descriptors:
        for run in descriptor.runs:
            if run.batch != batch.number:
                raise StateError(_of_another_batch(batch, f"batch {run.batch}"))


def _of_another_batch(batch: BatchId, other: str) -> str:
    return (
        f"batch {batch.number} was asked to join rows of {other}: a foreachBatch function must not evaluate the "
        "DataFrame of an earlier batch. Evaluate each in its own call, and persist what is needed later"
    )


def _clean_is_due(manifest: Manifest) -> bool:
    """Whenever the batch number passes a multiple, also if that very batch did not reach the join."""
    before = manifest.parent.number if manifest.parent else 0
    return before // CLEAN_EVERY_BATCHES != manifest.batch.number // CLEAN_EVERY_BATCHES


def _cleaning_task(manifest: Manifest, tasks: int) -> int:
    """The first and the last task take turns: of a consumer that stops early Spark runs one of the two at least.

    `limit` and `show` begin with the first partition, `tail` with the last.
    """
    turn = manifest.batch.number // CLEAN_EVERY_BATCHES
    return 0 if turn % 2 == 0 else tasks - 1
