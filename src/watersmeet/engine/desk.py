"""What the operator does in its own way for each kind of join: of streams, with a table, or of a hub.

It holds the resources besides the inputs, such as a table's pages or the catalogues of a hub (engine/hub_desk.py). The
operator treats all desks alike. A desk belongs to one state directory in one process. It is a cache: losing it costs
only time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from watersmeet.engine.ingest import Located, Partition, ingest_partition
from watersmeet.engine.kept_table import KeptTable, TableSpec, used_tables
from watersmeet.engine.lookup import lookup_share
from watersmeet.engine.merge import Unneeded
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.task import join_share
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.log.files import open_files
from watersmeet.log.parents import find_attempt
from watersmeet.log.runs import RunReader
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Descriptor, Manifest, Start
from watersmeet.model.signature import JoinSignature
from watersmeet.model.tally import Tally
from watersmeet.plan.pushes import decision_of
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import Decision, Serves
from watersmeet.schemes.table.facts import PagePlan, TableVersion
from watersmeet.schemes.table.plan import TableFacts, checked_before, decisions_of, page_plan, table_before
from watersmeet.tables.catalogue import drop_tables, reuse

if TYPE_CHECKING:
    from watersmeet.engine.hub_desk import HubDesk

FindParent = Callable[[], Manifest | None]


class Desk(Protocol):
    # The clock of the operator that uses the desk now.
    clock: Callable[[], float]

    @property
    def is_open(self) -> bool:
        """Whether it holds pages or connections."""

    def continued(self, spec: JoinSpec, parent: Manifest | None) -> JoinSignature:
        """The signature of a batch, given its parent. StateMismatch if the state's content does not fit."""

    def store(self, spec: JoinSpec, part: Partition, start: Start, parent: FindParent) -> Descriptor:
        """Store a partition of an input as runs, and return its descriptor."""

    def observe(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        task: int,
        descriptors: Sequence[Descriptor],
    ) -> Any:
        """The facts that the scheme needs to plan this batch, of which these rows have arrived."""

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        """What an earlier attempt of this batch pushed and paid, if it is a replay."""

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """Yield all results of a task."""

    def unneeded(self, spec: JoinSpec, manifest: Manifest) -> Unneeded | None:
        """What says which stored rows merges leave out, besides expired ones; None if there are no others."""

    def begin_batch_join(self, spec: JoinSpec) -> None:
        """Prepare for a join of batch DataFrames."""

    def clean(self, spec: JoinSpec) -> None:
        """Remove files that no query needs any more."""

    def close(self) -> None:
        """Release pages, files and connections. They are opened again when needed."""


class StreamDesk:
    """A join of streams, or of batches: everything that it needs is in the runs."""

    is_open = False

    def __init__(self, files: Files, reader: RunReader, clock: Callable[[], float]) -> None:
        self._files = files
        self.clock = clock

    def continued(self, spec: JoinSpec, parent: Manifest | None) -> JoinSignature:
        return spec.signature

    def store(self, spec: JoinSpec, part: Partition, start: Start, parent: FindParent) -> Descriptor:
        return ingest_partition(self._files, spec, part)

    def observe(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        task: int,
        descriptors: Sequence[Descriptor],
    ) -> Any:
        return None

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        try:
            return decision_of(find_attempt(self._files, batch, start, parent))
        except CorruptFile:
            # An attempt that cannot be read matters only if it may have pushed or paid something.
            if spec.scheme.pushes or (parent is not None and (parent.pushes or _may_push(parent))):
                raise
            return None

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        return join_share(reader, manifest, spec, task, tally)

    def unneeded(self, spec: JoinSpec, manifest: Manifest) -> Unneeded | None:
        return None

    def begin_batch_join(self, spec: JoinSpec) -> None:
        pass

    def clean(self, spec: JoinSpec) -> None:
        pass

    def close(self) -> None:
        pass


class TableDesk:
    """A join with a table: its open versions and pages, and the version that locates the rows of a batch."""

    def __init__(self, files: Files, reader: RunReader, clock: Callable[[], float]) -> None:
        self._files = files
        self.clock = clock
        self._kept: KeptTable | None = None
        # A batch, the table version that locates its rows, and the decisions that it repeats if it is a replay.
        self._located: tuple[BatchId, TableVersion, PagePlan | None] | None = None

    @property
    def is_open(self) -> bool:
        return self._kept is not None

    def continued(self, spec: JoinSpec, parent: Manifest | None) -> JoinSignature:
        return spec.signature

    def store(self, spec: JoinSpec, part: Partition, start: Start, parent: FindParent) -> Descriptor:
        # The batch before decided the version that locates these rows, for all tasks.
        version, _ = self._version(spec, part.batch, start, parent)
        index = self._table(spec, part.batch).at(version).table.index
        return ingest_partition(self._files, spec, part, Located(index, version.version))

    def observe(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        task: int,
        descriptors: Sequence[Descriptor],
    ) -> TableFacts:
        current, repeated = self._version(spec, batch, start, lambda: parent)
        if decisions_of(find_attempt(self._files, batch, start, parent)) != repeated:
            raise StateInUse(
                f"batch {batch.number}: another start of this query published it while this one stored its rows in "
                f"{self._files.place}: two drivers must not run on one checkpoint. Stop one, and start the other again"
            )
        table = self._table(spec, batch)
        if repeated is not None:
            return table.as_repeated(repeated)
        checked_ms = checked_before(parent, spec.instance)
        known = page_plan(parent)
        return table.look_again(
            current,
            checked_ms,
            int(self.clock() * 1000),
            search=task == 0,
            decoding=known.decoding if known else None,
        )

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        return None

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        pages = page_plan(manifest)
        assert isinstance(spec.join, LookupJoin) and pages is not None, "TableDesk serves joins with a table"
        (stream,) = manifest.signature.names
        columns, table = spec.signature.columns(stream), self._table(spec, manifest.batch)
        shares = spec.scheme.shares(pages, (stream,), task, spec.settings.tasks)
        ranges = [one.fresh.range for (one,) in shares if one.fresh]
        return lookup_share(
            reader,
            manifest,
            pages,
            spec.join,
            columns,
            ranges,
            table,
            spec.settings.limits,
            tally,
            first=task == 0,
        )

    def unneeded(self, spec: JoinSpec, manifest: Manifest) -> Unneeded | None:
        return None

    def begin_batch_join(self, spec: JoinSpec) -> None:
        # Also the tables of later stages, which begin when this one has joined all its rows.
        for folder in _table_of(spec).folders:
            reuse(open_files(spec.settings.storage), folder, self.clock())
        # A batch join has no later batch that would clean up.
        self.clean(spec)

    def clean(self, spec: JoinSpec) -> None:
        """Remove prepared table versions that no query reads any more."""
        state = open_files(spec.settings.storage)
        # An unreadable manifest of another query is not this query's error: remove nothing.
        with contextlib.suppress(CorruptFile):
            drop_tables(state, itertools.chain(_table_of(spec).folders, used_tables(state)), self.clock())

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _table(self, spec: JoinSpec, batch: BatchId) -> KeptTable:
        # A batch join is one start, even if its rows are read and joined under different ids.
        start = spec.instance, batch.run if spec.streaming else ""
        if self._kept is None or (self._kept.instance, self._kept.run) != start:
            self.close()
            self._kept = KeptTable(_table_of(spec), self.clock, *start)
        return self._kept

    def _version(
        self, spec: JoinSpec, batch: BatchId, start: Start, find: FindParent
    ) -> tuple[TableVersion, PagePlan | None]:
        """The table version for a batch, and the decisions to repeat if the batch is a replay."""
        if self._located is None or self._located[0] != batch:
            parent = find()
            repeated = decisions_of(find_attempt(self._files, batch, start, parent))
            version = table_before(parent, spec.instance, _table_of(spec).given, repeated)
            self._located = batch, version, repeated
        return self._located[1:]


def desk_type(spec: JoinSpec) -> type[StreamDesk | TableDesk | HubDesk]:
    if spec.scheme.serves == Serves.HUB:
        # Here, because it loads the parser: it takes as long as all else that a task of a join needs.
        from watersmeet.engine.hub_desk import HubDesk

        return HubDesk
    return TableDesk if spec.scheme.serves == Serves.TABLE else StreamDesk


def desk_for(spec: JoinSpec, files: Files, reader: RunReader, clock: Callable[[], float]) -> Desk:
    return desk_type(spec)(files, reader, clock)


def _may_push(manifest: Manifest) -> bool:
    return SCHEMES[manifest.signature.scheme].pushes if manifest.signature.scheme in SCHEMES else False


def _table_of(spec: JoinSpec) -> TableSpec:
    assert spec.table is not None, "TableDesk serves joins with a table"
    return spec.table
