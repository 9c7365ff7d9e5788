"""A table as a process keeps it between tasks: open versions, and the pages that it uses most, within a budget.

Both are caches: losing them costs only time. A page is never older than the table's `refresh` when it is used.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import OldFormat, TableError, UsageError
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.lookup import Page, check_page, open_page, pages_of_rows
from watersmeet.kernel.pages import homes
from watersmeet.kernel.rows import ORDER
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.names import is_join_folder
from watersmeet.log.storage import Files
from watersmeet.schemes.table.buffer import PageBuffer
from watersmeet.schemes.table.facts import Decoding, PagePlan, Reading, TableVersion
from watersmeet.schemes.table.plan import TableFacts, tables_used
from watersmeet.schemes.table.worth import Measured
from watersmeet.tables.catalogue import TABLES
from watersmeet.tables.copying import MOST_KILLED, Copier
from watersmeet.tables.source import NotPrepared, NotSupported, OpenTable, PreparedTable
from watersmeet.tables.spec import Table

_LOG = logging.getLogger(__name__)

# Default memory of a task for the table's pages.
PAGE_MEMORY = 64 << 20

# Table versions that a process keeps open: the one in use, and the one before while a batch is repeated.
_OPEN_VERSIONS = 2


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as tasks get it. `columns` are the columns to read, keys first.

    `memory` bounds the pages that a task keeps, and also the rows that wait. `beside` are the folders of the tables
    that other stages of the join read. They are named by no manifest before those stages have planned their first
    batch.
    """

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    source: PreparedTable
    given: TableVersion
    refresh_ms: int | None = None
    memory: int = PAGE_MEMORY
    reading: Reading = Reading.HYBRID
    beside: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        return self.given.folder, *self.beside


@dataclass
class KeptTable:
    """One table as a process keeps it between tasks, for one start of a query."""

    spec: TableSpec
    clock: Callable[[], float]
    # The join's instance and Spark's id of the start: one DataFrame may be started several times.
    instance: str
    run: str
    opened: dict[str, Opened] = field(default_factory=dict)
    # The version whose pages are in the buffer.
    held: str = ""
    # When a changed table was last sorted here, or an attempt was made.
    made_ms: int = 0
    # The costs of joins in this process, for the batches that it plans.
    measured: Measured = field(default_factory=Measured)
    # Seconds spent on reading pages and on look-ups, in all.
    read_s: float = 0.0
    find_s: float = 0.0
    # Bytes of files that were decoded, in all.
    decoded_bytes: int = 0
    copier: Copier = field(default_factory=Copier)

    def __post_init__(self) -> None:
        self.buffer: PageBuffer[Page] = PageBuffer(self.spec.memory)

    def at(self, version: TableVersion) -> Opened:
        found = self.opened.get(version.version)
        if found is None:
            while len(self.opened) >= _OPEN_VERSIONS:
                oldest = next(iter(self.opened))
                self.opened.pop(oldest).table.close()
            found = self.opened[version.version] = Opened(
                self.spec.source.at(version.folder, version.version).open()
            )
        return found

    def close(self) -> None:
        """Release pages, files and connections. They are opened again when needed."""
        for opened in self.opened.values():
            opened.table.close()
        self.opened.clear()
        self.buffer.clear()

    def look_again(
        self,
        current: TableVersion,
        checked_ms: int | None,
        now_ms: int,
        *,
        search: bool,
        decoding: Decoding | None = None,
    ) -> TableFacts:
        """The table for the batch that is planned now, and the version for the next batch.

        A changed table may have to be sorted first. Only the task that may `search` does that. If another task plans
        the batch, it takes the version that is there; `make_ready` sorts the new one, and the next batch looks again.
        A table that is half written or missing is looked for after the next refresh. The batch is planned at `now_ms`.
        `checked_ms` is the time of the last look, None or 0 if this start has not looked yet. `decoding` is the parent's
        record of what reading in place has cost: once a copy was chosen and is there, it is the newest version.
        """
        opened = self.at(current)
        copy_folder = self._copy_folder(opened.table)
        copied = self._copied(opened.table, copy_folder, decoding)
        facts = TableFacts(
            version=current,
            page_bytes=opened.table.index.bytes,
            newest=copied or current,
            checked_ms=checked_ms or now_ms,
            name=self.spec.name,
            reading=self.spec.reading,
            reads_all=self.spec.reading == Reading.MESH,
            measured=self.measured,
            copy_folder=copy_folder,
            copy_given_up=copied is None and self._is_given_up(opened.table, decoding),
        )
        if self.spec.given != current and not checked_ms:
            return dataclasses.replace(facts, newest=self.spec.given, checked_ms=now_ms)
        refresh_ms = self.spec.refresh_ms
        if refresh_ms is None or now_ms < facts.checked_ms + refresh_ms:
            return facts
        try:
            newer = opened.table.newest(make=search)
        except NotPrepared:
            return facts
        except NotSupported:
            # If this were only a warning, the table would never be refreshed again.
            raise
        except TableError as error:
            _LOG.warning(
                "table %s could not be refreshed, its old version stays in use: %s", self.spec.name, error
            )
            newer = None
        newest = facts.newest if newer is None else self._checked(newer, opened.table.schema)
        return dataclasses.replace(facts, newest=newest, checked_ms=now_ms)

    def as_repeated(self, plan: PagePlan) -> TableFacts:
        """The table as an earlier attempt at this batch found it. The next batch takes what this start has found."""
        return TableFacts(
            version=plan.table,
            page_bytes=self.at(plan.table).table.index.bytes,
            newest=plan.next_table,
            checked_ms=0,
            name=self.spec.name,
            reading=self.spec.reading,
            reads_all=self.spec.reading == Reading.MESH,
            repeated=plan,
        )

    def _copy_folder(self, table: OpenTable) -> str:
        """Where the sorted copy belongs; empty where the files are to stay in place, as in the paper's experiments."""
        return table.copy_folder if self.spec.reading == Reading.HYBRID else ""

    def _copied(self, table: OpenTable, folder: str, decoding: Decoding | None) -> TableVersion | None:
        """The sorted copy of this version, if it was chosen and is ready."""
        if not folder or decoding is None or not decoding.is_chosen or decoding.copy_folder != folder:
            return None
        version = table.source.published(folder)
        return None if version is None else self._checked(table.source.at(folder, version), table.schema)

    def _is_given_up(self, table: OpenTable, decoding: Decoding | None) -> bool:
        """Whether the copy was chosen and cannot be made, because processes are killed too early."""
        if decoding is None or not decoding.is_chosen or decoding.copy_folder != self._copy_folder(table):
            return False
        return table.source.killed_copies(decoding.copy_folder, time.time()) >= MOST_KILLED

    def make_ready(self, plan: PagePlan, planned_ms: int) -> None:
        """Sort a changed table if a task that could not sort it planned the batch. Begin the copy that was chosen."""
        if plan.decoding and plan.decoding.is_chosen and plan.next_table == plan.table:
            table = self.at(plan.table).table
            if self._copy_folder(table) == plan.decoding.copy_folder:
                self.copier.begin(table)
        now_ms, refresh_ms = int(self.clock() * 1000), self.spec.refresh_ms
        if refresh_ms is None or now_ms < max(plan.checked_ms, self.made_ms) + refresh_ms:
            return
        if plan.checked_ms == planned_ms:
            # This very batch has looked: with a refresh of 0 another look is always due.
            return
        self.made_ms = now_ms
        try:
            self.at(plan.table).table.newest()
        except NotSupported:
            raise
        except TableError as error:
            _LOG.warning(
                "table %s could not be refreshed, its old version stays in use: %s", self.spec.name, error
            )

    def _checked(self, newer: PreparedTable, schema: pa.Schema) -> TableVersion:
        """Refuse a changed column type: the join was built for the old types."""
        table = newer.open()
        try:
            for column in self.spec.columns:
                at = table.schema.get_field_index(column)
                found = table.schema.field(at).type if at >= 0 else None
                if found != schema.field(column).type:
                    raise TableError(
                        f"column {column} of table {self.spec.name} was {schema.field(column).type} when the join was "
                        f"built and is {found or 'gone'} now: undo the change, or call wm.join again and start that"
                    )
            return TableVersion(newer.folder, newer.version, len(table.index))
        finally:
            table.close()

    def pages(self, opened: Opened, numbers: Indices) -> Iterator[Page]:
        """The pages, those in the buffer first."""
        now_s = self.clock()
        if self.spec.refresh_ms is not None:
            self.buffer.drop_older(now_s - self.spec.refresh_ms / 1000)
        if self.held != opened.table.version:
            self.buffer.clear()
            self.held = opened.table.version
        missing = []
        for number in numbers.tolist():
            page = self.buffer.get(number)
            if page is None:
                missing.append(number)
            else:
                yield page
        began = self.clock()
        for number, rows in opened.table.read_many(missing, self.spec.columns):
            page = opened.page(number, rows, self.spec.keys)
            self.buffer.put(number, page, bytes=page.bytes, read_at=now_s)
            self.read_s += self.clock() - began
            self.decoded_bytes += opened.table.decoded_bytes(number, self.spec.columns)
            yield page
            began = self.clock()

    def holds(self, opened: Opened, numbers: Indices) -> npt.NDArray[np.bool_]:
        """Which pages are in the buffer. This does not count as a use."""
        held = self.held == opened.table.version
        return np.array([held and number in self.buffer for number in numbers.tolist()], np.bool_)

    def look_up(self, opened: Opened, keys: pa.RecordBatch, pages: Indices, at_once: int) -> Iterator[Page]:
        """Look up rows by key, about `at_once` keys in a query. The keys of a page are adjacent, and stay together."""
        borders = np.flatnonzero(np.diff(pages, prepend=-1))
        low = 0
        while low < len(pages):
            later = borders[borders >= low + at_once]
            high = int(later[0]) if len(later) else len(pages)
            began = self.clock()
            rows = opened.table.lookup(keys.slice(low, high - low), self.spec.columns)
            is_empty = rows is None or not rows.num_rows
            found = [] if is_empty else pages_of_rows(opened.table.index, rows, self.spec.keys)
            self.find_s += self.clock() - began
            yield from found
            low = high


class Opened:
    """An open table, and the order key at which each of its pages begins."""

    def __init__(self, table: OpenTable):
        self.table = table
        self.homes = homes(table.index)

    @property
    def is_database(self) -> bool:
        """Whether rows can be looked up by key."""
        return not self.table.index.gaps

    def page(self, number: int, rows: pa.RecordBatch, keys: Sequence[str]) -> Page:
        if not rows.num_columns or rows.schema.names[0] != ORDER:
            # Files that were not sorted here may not match their statistics.
            check_page(self.table.index, number, rows)
        return open_page(number, rows, keys, int(self.homes[number]))


def version_of(source: PreparedTable) -> TableVersion:
    opened = source.open()
    try:
        return TableVersion(source.folder, source.version, len(opened.index))
    finally:
        opened.close()


def used_tables(state: Files) -> Iterator[str]:
    """The folders of the tables that the newest batch of some streaming query in this state uses.

    Batch joins are left out, because there may be hundreds a day. Each marks its table when it begins
    (`catalogue.reuse`), which keeps the table as long as a batch join may take.
    """
    for name in state.folders():
        if name == TABLES or not is_join_folder(name):
            continue
        for query in state.under(name).folders():
            if query.startswith(BATCH_FOLDER) or not is_join_folder(query):
                continue
            files = state.under(name, query)
            for newest in list_manifests(files)[-1:]:
                try:
                    used = tables_used(read_manifest(files, newest))
                except OldFormat:
                    # Such a query cannot be continued.
                    continue
                yield from (version.folder for version in used)


def kept_while_rows_wait(table: Table) -> Table:
    """A table of files for rows that wait, copied into the state: rows were located in the files as they are now."""
    if table.address is None or table.is_database:
        return table
    if table.in_place:
        raise UsageError(
            "in_place=True cannot be combined with max_delay: if a file changes while rows wait, those rows would get "
            "no result. Leave in_place out, and the table is sorted into the state, or leave max_delay out"
        )
    return dataclasses.replace(table, in_place=False)
