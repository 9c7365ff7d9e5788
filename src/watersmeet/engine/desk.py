"""The resources of a join besides its inputs: none, or a table.

The operator treats both alike. A desk belongs to one state directory in one process. It is a cache: losing it costs
only time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.engine.ingest import Located
from watersmeet.engine.kept_table import KeptTable, TableSpec, used_tables
from watersmeet.engine.lookup import lookup_share
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.task import join_share
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.kernel.lookup import LookupJoin
from watersmeet.log.files import open_files
from watersmeet.log.parents import find_attempt
from watersmeet.log.runs import RunReader
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Manifest, Start
from watersmeet.model.tally import Tally
from watersmeet.plan.pushes import decision_of
from watersmeet.schemes.register import SCHEMES
from watersmeet.schemes.scheme import Decision
from watersmeet.schemes.table.facts import PagePlan, TableVersion
from watersmeet.schemes.table.plan import TableFacts, checked_before, decisions_of, page_plan, table_before
from watersmeet.tables.catalogue import drop_tables, reuse

FindParent = Callable[[], Manifest | None]


class Desk(Protocol):
    # The clock of the operator that uses the desk now.
    clock: Callable[[], float]
    for_table: bool

    @property
    def is_open(self) -> bool:
        """Whether it holds pages or connections."""

    def locate(self, spec: JoinSpec, batch: BatchId, start: Start, parent: FindParent) -> Located | None:
        """The page index for the keys of this batch. The batch before decided it, for all tasks."""

    def observe(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None, task: int
    ) -> Any:
        """The facts that the scheme needs to plan this batch."""

    def repeated(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None
    ) -> Decision | None:
        """What an earlier attempt of this batch pushed and paid, if it is a replay."""

    def results(
        self, spec: JoinSpec, reader: RunReader, manifest: Manifest, task: int, tally: Tally
    ) -> Iterator[pa.RecordBatch]:
        """Yield all results of a task."""

    def begin_batch_join(self, spec: JoinSpec) -> None:
        """Prepare for a join of batch DataFrames."""

    def clean(self, spec: JoinSpec) -> None:
        """Remove files that no query needs any more."""

    def close(self) -> None:
        """Release pages, files and connections. They are opened again when needed."""


class StreamDesk:
    """A join of streams, or of batches: everything that it needs is in the runs."""

    is_open = False
    for_table = False

    def __init__(self, files: Files, clock: Callable[[], float]) -> None:
        self._files = files
        self.clock = clock

    def locate(self, spec: JoinSpec, batch: BatchId, start: Start, parent: FindParent) -> Located | None:
        return None

    def observe(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None, task: int
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

    def begin_batch_join(self, spec: JoinSpec) -> None:
        pass

    def clean(self, spec: JoinSpec) -> None:
        pass

    def close(self) -> None:
        pass


class TableDesk:
    """A join with a table: its open versions and pages, and the version that locates the rows of a batch."""

    for_table = True

    def __init__(self, files: Files, clock: Callable[[], float]) -> None:
        self._files = files
        self.clock = clock
        self._kept: KeptTable | None = None
        # A batch, the table version that locates its rows, and the decisions that it repeats if it is a replay.
        self._located: tuple[BatchId, TableVersion, PagePlan | None] | None = None

    @property
    def is_open(self) -> bool:
        return self._kept is not None

    def locate(self, spec: JoinSpec, batch: BatchId, start: Start, parent: FindParent) -> Located:
        version, _ = self._version(spec, batch, start, parent)
        return Located(self._table(spec, batch).at(version).table.index, version.version)

    def observe(
        self, spec: JoinSpec, batch: BatchId, start: Start, parent: Manifest | None, task: int
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


def desk_for(spec: JoinSpec, files: Files, clock: Callable[[], float]) -> Desk:
    return StreamDesk(files, clock) if spec.table is None else TableDesk(files, clock)


def _may_push(manifest: Manifest) -> bool:
    return SCHEMES[manifest.signature.scheme].pushes if manifest.signature.scheme in SCHEMES else False


def _table_of(spec: JoinSpec) -> TableSpec:
    assert spec.table is not None, "TableDesk serves joins with a table"
    return spec.table
