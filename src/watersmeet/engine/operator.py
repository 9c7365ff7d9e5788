"""The operator: ingest a partition, agree on a manifest, join a share, merge, clean up.

Both drivers run exactly this code. On Spark each method call is one task in some executor. In the local driver all
calls run in one process. A call needs only the committed files, its arguments and caches that may be empty, so any
call can be repeated on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.engine.batch_join import RowDigest
from watersmeet.engine.desk import Desk, desk_for, desk_type
from watersmeet.engine.ingest import Partition
from watersmeet.engine.left_out import check_no_rows_wait
from watersmeet.engine.merge import merge_assigned
from watersmeet.engine.sample import fan_outs_in
from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import CorruptFile, StateBehind, StateError
from watersmeet.kernel.bounds import coalesce
from watersmeet.log.clean import BATCH_FOLDER, Cleaner, mark_batch, remove_stale_batches
from watersmeet.log.descriptors import (
    Notice,
    Told,
    estimate_bytes,
    publish_descriptor,
    read_descriptors,
    start_of,
)
from watersmeet.log.files import open_files
from watersmeet.log.manifests import agree
from watersmeet.log.parents import check_not_overtaken, find_parent
from watersmeet.log.receipts import read_receipts
from watersmeet.log.runs import RunReader
from watersmeet.log.seen import Seen
from watersmeet.log.settlings import close_settlings
from watersmeet.log.starts import check_current, claim_start, search_start
from watersmeet.log.storage import Files
from watersmeet.log.tallies import leave_tally, read_tallies, writers
from watersmeet.log.turns import PlannedBefore, patience_s, planned_before, planner_mark
from watersmeet.model.facts import BatchId, Descriptor, Manifest, Receipt, Run, Start
from watersmeet.model.generations import generations_of, paths_set_aside
from watersmeet.model.signature import JoinSignature
from watersmeet.model.tally import Tally, TaskTally
from watersmeet.model.window import over_time
from watersmeet.plan.batch import check_arrived, history_after, plan_batch
from watersmeet.plan.compatible import check_compatible
from watersmeet.schemes.scheme import Circumstances


@dataclass
class _Kept:
    """Caches of a process for one state directory and start: mapped runs, seen manifests, an open table."""

    run: str
    files: Files
    seen: Seen
    reader: RunReader
    cleaner: Cleaner
    desk: Desk
    # The start, once this process has checked it.
    start: Start | None = None
    # The manifest agreed on last.
    last: Manifest | None = None
    # A batch, and the watermark that decides which of its rows are late.
    judged: tuple[BatchId, int | None] | None = None
    # The tallies of this process's tasks in the last batch that had one, and how long tasks have merged.
    tallies: dict[int, TaskTally] = field(default_factory=dict)
    merging_s: dict[int, float] = field(default_factory=dict)


# Ordered by last use.
_KEPT: dict[tuple[str, str, str], _Kept] = {}

# A worker serves few queries at a time. For older ones it keeps mapped files, but no table: a table holds a connection
# and as many bytes of pages as a task may use. Spark does not say when a query ends, so old tables are closed when
# another query begins. If that was too early, the table is opened again.
_KEPT_PLACES = 16
_KEPT_DESKS = 2


def _kept(spec: JoinSpec, batch: BatchId, clock: Callable[[], float]) -> _Kept:
    """What this process keeps of the state of a batch.

    A new start of the query keeps nothing of those before it: the state may have been removed or restored meanwhile. A
    new state gets files of the same names, and would refer to those that only the old one had.
    """
    place = (spec.settings.state, spec.name, batch.query)
    found = _KEPT.pop(place, None)
    # A batch join is one start, even if its rows are read and joined under different ids.
    if found is not None and spec.streaming and found.run != batch.run:
        found.desk.close()
        found = None
    if found is None:
        files = open_files(spec.settings.storage).under(spec.name, batch.query)
        while len(_KEPT) >= _KEPT_PLACES:
            _KEPT.pop(next(iter(_KEPT))).desk.close()
        for old in [kept for kept in _KEPT.values() if kept.desk.is_open][:-_KEPT_DESKS]:
            old.desk.close()
        seen, reader = Seen(), RunReader(files, spec.settings.limits)
        desk = desk_for(spec, files, reader, clock)
        found = _Kept(batch.run, files, seen, reader, Cleaner(files, seen), desk)
    if not isinstance(found.desk, desk_type(spec)):
        # The query was built anew, and a table came in or went, before it had any state.
        found.desk.close()
        found.desk = desk_for(spec, found.files, found.reader, clock)
    found.desk.clock = clock
    _KEPT[place] = found
    return found


@dataclass(frozen=True, slots=True)
class Operator:
    """`trigger_ms` is the query's trigger interval, if Spark tells it."""

    spec: JoinSpec
    clock: Callable[[], float]
    trigger_ms: int | None = None

    def ingest(
        self, batch: BatchId, input_name: str, partition: int, incoming: Iterable[pa.RecordBatch]
    ) -> Told:
        """Store a partition and return what every join task must be told of it."""
        kept = _kept(self.spec, batch, self.clock)
        start = self._start(kept, batch)
        if partition == 0 and batch.query.startswith(BATCH_FOLDER):
            self._begin_batch_join(kept, batch.query)
        digest = RowDigest()
        part = Partition(
            batch,
            input_name,
            partition,
            incoming if self.spec.streaming else digest.watch(incoming),
            self._watermark(kept, batch),
        )
        descriptor = kept.desk.store(self.spec, part, start, lambda: self._parent(kept, batch))
        if self.spec.streaming:
            descriptor = replace(descriptor, start=start)
        else:
            descriptor = replace(descriptor, digest=f"{digest.total:x}")
        settings = self.spec.settings
        if estimate_bytes(descriptor) * settings.tasks > settings.limits.inline_descriptor_bytes:
            return publish_descriptor(kept.files, batch, descriptor)
        return descriptor

    def join(
        self, batch: BatchId, task: int, told: Sequence[Told], tally: Tally | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Merge and clean up, then yield this task's share of the batch's results."""
        yield from self.results(self.agree_and_merge(batch, task, told), task, tally)

    def agree_and_merge(self, batch: BatchId, task: int, told: Sequence[Told]) -> Manifest:
        """Agree on the batch's manifest, then do this task's merges and clean-up.

        All of it precedes the results, because a consumer may stop early (`limit`, `show`) and Spark then drops the
        generator. A process that does several tasks does this for all of them before the first result.
        """
        kept = _kept(self.spec, batch, self.clock)
        manifest = self._agree(kept, batch, told, task)
        if manifest is not kept.last:
            self._check_not_settling(kept, manifest)
            aside = paths_set_aside(manifest)
            kept.reader.forget_all_but(manifest.named_paths, aside.whole, aside.part)
            kept.last = manifest
        tasks, limits = self.spec.settings.tasks, self.spec.settings.limits
        started_s = time.perf_counter()
        unneeded = kept.desk.unneeded(self.spec, manifest)
        scheme = self.spec.scheme
        merge_assigned(kept.files, kept.reader, kept.seen, manifest, scheme, task, tasks, limits, unneeded)
        kept.merging_s[task] = time.perf_counter() - started_s
        every = limits.clean_every_batches
        if clean_is_due(manifest, every) and task == cleaning_task(manifest, tasks, every):
            self._clean(kept, manifest)
        return manifest

    def results(self, manifest: Manifest, task: int, tally: Tally | None = None) -> Iterator[pa.RecordBatch]:
        """Yield this task's share of the results of a batch that it has agreed on."""
        kept = _kept(self.spec, manifest.batch, self.clock)
        tally, started_s = tally or Tally(), time.perf_counter()
        found = kept.desk.results(self.spec, kept.reader, manifest, task, tally)
        limits = self.spec.settings.limits
        most_rows, most_bytes = limits.output_rows, limits.output_bytes
        try:
            for result in coalesce(found, most_rows, most_bytes, alone=most_rows // 4):
                handed_s = time.perf_counter()
                yield result
                tally.emitting_s += time.perf_counter() - handed_s
                tally.emitted_rows += result.num_rows
                failpoints.reach("result-emitted")
        finally:
            if not self.spec.streaming:
                # No later batch will need it.
                kept.desk.close()
        tally.probing_s = time.perf_counter() - started_s - tally.reading_s - tally.emitting_s
        tally.merging_s = kept.merging_s.pop(task, 0.0)
        if self.spec.streaming:
            self._leave_tally(kept, manifest, tally.closed(manifest.batch.number, task))
        failpoints.reach("task-done")

    def _leave_tally(self, kept: _Kept, manifest: Manifest, tally: TaskTally) -> None:
        if any(known.batch != tally.batch for known in kept.tallies.values()):
            kept.tallies.clear()
        kept.tallies[tally.task] = tally
        if tally.task in writers(tally.batch, self.spec.settings.tasks, remote=kept.files.remote):
            leave_tally(kept.files, manifest.run_seq, tally)

    def _tallies(self, kept: _Kept, parent: Manifest | None) -> tuple[TaskTally, ...]:
        """What is known of the tasks of the batch before, at little cost: from memory, or from a few local files."""
        if parent is None or not self.spec.streaming or not self.spec.scheme.weighs_tallies:
            return ()
        batch = parent.batch.number
        mine = tuple(tally for tally in kept.tallies.values() if tally.batch == batch)
        if mine or kept.files.remote:
            return mine
        return read_tallies(
            kept.files, parent.run_seq, batch, sorted(writers(batch, self.spec.settings.tasks))
        )

    def _clean(self, kept: _Kept, manifest: Manifest) -> None:
        settings = self.spec.settings
        kept.cleaner.clean(
            manifest, retain=settings.retain_batches, now_s=self.clock(), grace_s=settings.grace_s
        )
        kept.desk.clean(self.spec)

    def _agree(self, kept: _Kept, batch: BatchId, told: Sequence[Told], task: int) -> Manifest:
        start = self._start(kept, batch, told)
        check_batch(batch, told)

        def decide(parent: Manifest | None) -> Manifest:
            if self.spec.streaming:
                check_current(kept.files, start)
                check_not_overtaken(kept.files, batch, start, self.spec.built_ms)
            descriptors = sorted(self._descriptors(kept, start, told), key=lambda d: (d.input, d.partition))
            receipts = pending_receipts(kept.files, parent)
            signature = kept.desk.continued(self.spec, parent)
            kept.reader.expect_keys(lambda: _runs(parent, receipts, descriptors, signature))
            manifest = plan_batch(
                batch,
                parent,
                descriptors,
                receipts,
                scheme=self.spec.scheme,
                signature=signature,
                instance=self.spec.instance,
                run_seq=start.number,
                given=Circumstances(
                    tasks=self.spec.settings.tasks,
                    limits=self.spec.settings.limits,
                    now_ms=int(self.clock() * 1000),
                    keys_of=kept.reader.keys_alone,
                    outside=kept.desk.observe(self.spec, batch, start, parent, task, descriptors),
                    tallies=self._tallies(kept, parent),
                    fan_outs_of=fan_outs_in(kept.reader, self.spec),
                    remote=kept.files.remote,
                    repeated=kept.desk.repeated(self.spec, batch, start, parent)
                    if self.spec.streaming
                    else None,
                    trigger_ms=self.trigger_ms,
                ),
                retained_batches=self.spec.settings.retain_batches,
            )
            return replace(manifest, planner=planner_mark(kept.files))

        manifest = agree(
            kept.files,
            batch,
            start,
            self.spec.instance,
            lambda: self._find_parent(kept, batch, start),
            decide,
            kept.seen,
            self.spec.settings.limits,
            patience_s(task, self.spec.settings.tasks, told, self._planned_before(kept, batch, start)),
        )
        check_arrived(manifest, told)
        return manifest

    def _planned_before(self, kept: _Kept, batch: BatchId, start: Start) -> PlannedBefore:
        if not self.spec.streaming or batch.number == start.first_batch:
            return PlannedBefore.UNKNOWN
        seen = kept.last is not None and kept.last.batch.number == batch.number - 1
        return planned_before(kept.last.planner if seen and kept.last else None, kept.files)

    def _check_not_settling(self, kept: _Kept, manifest: Manifest) -> None:
        """Stop before the first result if another start has taken over since this batch was agreed on.

        A start that settles claims first and then looks for this manifest. So one of the two sees the other.
        """
        may_owe = self.spec.scheme.pushes or manifest.pushes or manifest.paid
        if self.spec.streaming and may_owe and kept.start is not None:
            check_current(kept.files, kept.start)

    def _descriptors(self, kept: _Kept, start: Start, told: Sequence[Told]) -> list[Descriptor]:
        try:
            return read_descriptors(kept.files, told, kept.seen)
        except CorruptFile:
            # A later start may have cleaned up behind this one, as in `_find_parent`.
            if self.spec.streaming:
                check_current(kept.files, start)
            raise

    def _watermark(self, kept: _Kept, batch: BatchId) -> int | None:
        """The watermark that decides which rows of this batch are late. Read once for a batch, unless already known."""
        if not self.spec.streaming or not over_time(self.spec.signature.window):
            return None
        if kept.judged is None or kept.judged[0] != batch:
            parent = self._parent(kept, batch)
            kept.judged = batch, parent.watermark if parent else None
        return kept.judged[1]

    def _parent(self, kept: _Kept, batch: BatchId) -> Manifest | None:
        """The manifest before a batch, from memory if this process has seen it, otherwise from the log."""
        before = BatchId(batch.query, batch.run, batch.number - 1)
        if kept.last is not None and kept.last.batch == before:
            return kept.last
        return self._find_parent(kept, batch, self._start(kept, batch))

    def _find_parent(self, kept: _Kept, batch: BatchId, start: Start) -> Manifest | None:
        try:
            return find_parent(kept.files, batch, start, self.spec.settings.accept_gap, kept.seen)
        except (CorruptFile, StateBehind):
            # A later start may have cleaned up behind this one. Then report that as the cause.
            if self.spec.streaming:
                check_current(kept.files, start)
            raise

    def _begin_batch_join(self, kept: _Kept, query: str) -> None:
        mine = open_files(self.spec.settings.storage).under(self.spec.name)
        mark_batch(mine.under(query), self.clock())
        remove_stale_batches(mine, self.clock(), query)
        kept.desk.begin_batch_join(self.spec)

    def _start(self, kept: _Kept, batch: BatchId, told: Sequence[Told] = ()) -> Start:
        """The start of the query that a batch belongs to, from the descriptors. Without any it is claimed here.

        A state that does not fit is refused before anything is written. A batch join has no starts: its descriptors
        name its manifest (engine/batch_join.py).
        """
        if not self.spec.streaming:
            return Start(0, batch.run, batch.number)
        starts = {start for one in told if (start := start_of(one, batch.run)) is not None}
        if len(starts) > 1:
            raise StateError(
                f"batch {batch.number}: ingest tasks of one batch claimed different starts in {kept.files.place}: "
                "the state directory was changed while the query ran. Start the query again"
            )
        for start in starts:
            if start.run != batch.run:
                raise StateError(_of_another_batch(batch, f"start {start.number}"))
            kept.start = start
        if kept.start is None:
            found, highest = search_start(kept.files, batch.run)
            if found is None:
                check_no_rows_wait(self.spec, batch)
                expected = Start(highest + 1, batch.run, batch.number)
                parent = find_parent(kept.files, batch, expected, self.spec.settings.accept_gap, kept.seen)
                if parent is not None:
                    check_compatible(parent.signature, self.spec.signature)
                    kept.desk.continued(self.spec, parent)
                found = claim_start(kept.files, batch.run, batch.number, highest)
            close_settlings(kept.files, found, batch.query, self.spec.settings.accept_gap, kept.seen)
            kept.start = found
        return kept.start


def _runs(
    parent: Manifest | None,
    receipts: Sequence[Receipt],
    descriptors: Sequence[Descriptor],
    signature: JoinSignature,
) -> list[Run]:
    """The runs whose keys a planner may look at: what a merge has just written, not its sources, and nothing pushed."""
    fresh = [run for descriptor in descriptors for run in descriptor.runs]
    if parent is None:
        return fresh
    history, _, pushes = history_after(parent, receipts, signature)
    if pushes or any(run.held for run in history):
        history = generations_of(history, pushes).active_runs()
    return [*history, *fresh]


def pending_receipts(files: Files, parent: Manifest | None) -> list[Receipt]:
    """The receipts of merge parts that are not yet done in the parent."""
    pending = {
        (merge.id, number)
        for merge in (parent.merges if parent else ())
        for number, part in enumerate(merge.parts)
        if part.output is None
    }
    return read_receipts(files, lambda merge, part: (merge, part) in pending) if pending else []


def check_batch(batch: BatchId, told: Sequence[Told]) -> None:
    """Refuse rows that another batch stored: foreachBatch kept a DataFrame and evaluated it later."""
    for one in told:
        for number in [one.batch] if isinstance(one, Notice) else [run.batch for run in one.runs]:
            if number != batch.number:
                raise StateError(_of_another_batch(batch, f"batch {number}"))


def _of_another_batch(batch: BatchId, other: str) -> str:
    return (
        f"batch {batch.number} was asked to join rows of {other}: a foreachBatch function must not evaluate the "
        "DataFrame of an earlier batch. Evaluate each DataFrame in its own call, and persist what is needed later"
    )


def clean_is_due(manifest: Manifest, every: int) -> bool:
    """Whether the batch number passed a multiple of `every`, even if that very batch did not reach the join."""
    before = manifest.parent.number if manifest.parent else 0
    return before // every != manifest.batch.number // every


def cleaning_task(manifest: Manifest, tasks: int, every: int) -> int:
    """The first and the last task in turn: if a consumer stops early, Spark still runs one of the two.

    `limit` and `show` begin with the first partition, `tail` with the last.
    """
    turn = manifest.batch.number // every
    return 0 if turn % 2 == 0 else tasks - 1
