"""A task's share of a join with a table: the pages that its rows wait on, read once and joined with all of them.

A process keeps the tables that it has opened and, under a budget, the pages that it uses most. Both are caches: an
empty one costs time only. A page is never older than the table's `refresh` when it is used.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import TableError, UsageError
from watersmeet.kernel import pairs
from watersmeet.kernel.lookup import LookupJoin, Page, check_page, join_pages, open_page, pages_of_rows
from watersmeet.kernel.pages import Indices, homes, needed_pages, pages_of
from watersmeet.kernel.sorted import ORDER, Sorted, concatenate, cut, take_rows
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.files import Files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest, Run
from watersmeet.model.lookup import PagePlan, TableVersion, batches_of
from watersmeet.model.pages import HASH_SHIFT, PAGE_SHIFT
from watersmeet.plan.buffer import PageBuffer
from watersmeet.plan.lookup import TableFacts, waiting_rows
from watersmeet.plan.pages import PagePolicy
from watersmeet.tables.catalogue import TABLES
from watersmeet.tables.source import NotPrepared, OpenTable, Source
from watersmeet.tables.spec import Table
from watersmeet.tables.versions import source_at

_LOG = logging.getLogger(__name__)

# What a task keeps of the table's pages, if nothing else is said.
PAGE_MEMORY = 64 << 20

# How a table is read: the pages that rows wait on, all of it in every batch, or by key.
HYBRID, MESH, INDEX = "hybrid", "mesh", "index"

# In a database: a key is looked up by itself where the rows of its page are so many times the keys sought in it. A page
# of 1,100 rows costs as much as 140 (SQLite) to 800 (PostgreSQL, rows not in order) look-ups. About so many rows are
# asked for at a time: in between, as it is not known how the rows lie.
LOOKUP_ROWS = 4
LOOKUP_KEYS = 500

# A batch join is over by then. As long as a table is kept that nothing names (tables/catalogue.py).
_BATCH_JOIN_S = 6 * 3600.0

# Versions of a table that a process has open: the one in use, and the one before while a batch is repeated.
_OPEN_VERSIONS = 2


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as tasks get it. `columns` are what is read of it, its keys first.

    `memory` is what a task may keep of it, and as much for rows that wait.
    """

    name: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    source: Source
    given: TableVersion
    policy: PagePolicy
    refresh_ms: int | None = None
    memory: int = PAGE_MEMORY
    strategy: str = HYBRID


@dataclass
class KeptTable:
    """What a process keeps of one table between tasks, for one start of a query: the next takes nothing over."""

    spec: TableSpec
    clock: Callable[[], float]
    # Of the join, and Spark's id of the start: one DataFrame may be started several times.
    instance: str
    run: str
    opened: dict[str, _Opened] = field(default_factory=dict)
    # The version whose pages are in the buffer.
    held: str = ""
    # When a changed table was last brought into order here, or tried to be.
    made_ms: int = 0

    def __post_init__(self) -> None:
        self.buffer: PageBuffer[Page] = PageBuffer(self.spec.memory)

    def at(self, version: TableVersion) -> _Opened:
        found = self.opened.get(version.version)
        if found is None:
            while len(self.opened) >= _OPEN_VERSIONS:
                oldest = next(iter(self.opened))
                self.opened.pop(oldest).table.close()
            found = self.opened[version.version] = _Opened(
                source_at(self.spec.source, version.folder, version.version).open()
            )
        return found

    def close(self) -> None:
        """Let go of pages, files and connections. What is needed later is opened again."""
        for opened in self.opened.values():
            opened.table.close()
        self.opened.clear()
        self.buffer.clear()

    def look_again(
        self, current: TableVersion, checked_ms: int | None, now_ms: int, *, search: bool
    ) -> TableFacts:
        """The table for the batch that is planned now, and what the next one shall use.

        A changed table may have to be brought into order first, which one task does, the one that may `search`. Where
        another plans the batch it takes what is there already; if that is to be made yet, `make_ready` does it, and
        the next batch looks again. What is found half written, or not at all, is looked for after the next refresh.
        The batch is planned at `now_ms`; the last one that looked was at `checked_ms`.
        """
        opened = self.at(current)
        facts = TableFacts(
            version=current,
            page_bytes=opened.table.index.bytes,
            newest=current,
            checked_ms=checked_ms or now_ms,
            name=self.spec.name,
            strategy=self.spec.strategy,
            reads_all=self.spec.strategy == MESH,
        )
        if self.spec.given != current and checked_ms is None:
            return dataclasses.replace(facts, newest=self.spec.given, checked_ms=now_ms)
        refresh_ms = self.spec.refresh_ms
        if refresh_ms is None or now_ms < facts.checked_ms + refresh_ms:
            return facts
        try:
            newer = opened.table.newest(make=search)
        except NotPrepared:
            return facts
        except TableError as error:
            _LOG.warning("table %s is kept as it was: %s", self.spec.name, error)
            newer = None
        newest = current if newer is None else self._checked(newer, opened.table.schema)
        return dataclasses.replace(facts, newest=newest, checked_ms=now_ms)

    def make_ready(self, plan: PagePlan, planned_ms: int) -> None:
        """Bring a changed table into order, if a batch was planned by a task that could not."""
        now_ms, refresh_ms = int(self.clock() * 1000), self.spec.refresh_ms
        if refresh_ms is None or now_ms < max(plan.checked_ms, self.made_ms) + refresh_ms:
            return
        if plan.checked_ms == planned_ms:
            # Looked at for this very batch: with a refresh of 0 it is always time for another look.
            return
        self.made_ms = now_ms
        try:
            self.at(plan.table).table.newest()
        except TableError as error:
            _LOG.warning("table %s is kept as it was: %s", self.spec.name, error)

    def _checked(self, newer: Source, schema: pa.Schema) -> TableVersion:
        """The join was built for these types: another one would come out under the wrong name of its type."""
        table = newer.open()
        try:
            for column in self.spec.columns:
                at = table.schema.get_field_index(column)
                found = table.schema.field(at).type if at >= 0 else None
                if found != schema.field(column).type:
                    raise TableError(
                        f"column {column} of table {self.spec.name} was {schema.field(column).type} when the join was "
                        f"made and is {found or 'gone'} now: undo the change, or call wm.join again and start that"
                    )
            return TableVersion(newer.folder, newer.version, len(table.index))
        finally:
            table.close()

    def pages(self, opened: _Opened, numbers: Indices) -> Iterator[Page]:
        """The pages, those that are at hand first."""
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
        for number, rows in opened.table.read_many(missing, self.spec.columns):
            page = opened.page(number, rows, self.spec.keys)
            self.buffer.put(number, page, bytes=page.bytes, read_at=now_s)
            yield page

    def holds(self, opened: _Opened, numbers: Indices) -> npt.NDArray[np.bool_]:
        """Which pages are in the buffer. It counts as no request."""
        held = self.held == opened.table.version
        return np.array([held and number in self.buffer for number in numbers.tolist()], np.bool_)

    def look_up(self, opened: _Opened, keys: pa.RecordBatch, pages: Indices) -> Iterator[Page]:
        """The rows of some keys, asked for by key; the keys of a page, which are together, at one time."""
        borders = np.flatnonzero(np.diff(pages, prepend=-1))
        low = 0
        while low < len(pages):
            later = borders[borders >= low + LOOKUP_KEYS]
            high = int(later[0]) if len(later) else len(pages)
            rows = opened.table.lookup(keys.slice(low, high - low), self.spec.columns)
            if rows is not None and rows.num_rows:
                yield from pages_of_rows(opened.table.index, rows, self.spec.keys)
            low = high


class _Opened:
    """An open table, and for each of its pages where the first key begins."""

    def __init__(self, table: OpenTable):
        self.table = table
        self.homes = homes(table.index)

    @property
    def is_database(self) -> bool:
        """Whether rows can be asked for by key."""
        return not self.table.index.gaps

    def page(self, number: int, rows: pa.RecordBatch, keys: Sequence[str]) -> Page:
        if not rows.num_columns or rows.schema.names[0] != ORDER:
            # Files that were not brought into order here may not be what their statistics say.
            check_page(self.table.index, number, rows)
        return open_page(number, rows, keys, int(self.homes[number]))


def version_of(source: Source) -> TableVersion:
    opened = source.open()
    try:
        return TableVersion(source.folder, source.version, len(opened.index))
    finally:
        opened.close()


def used_tables(state: Files, now_s: float) -> set[str]:
    """The folders of the tables that the newest batch of some query in this state has to do with.

    A batch join counts for some hours only: nothing says that it is over, and its files stay for a day.
    """
    used = set()
    for name in state.folders():
        for query in state.under(name).folders() if name != TABLES else ():
            files = state.under(name, query)
            for newest in list_manifests(files)[-1:]:
                manifest = read_manifest(files, newest)
                is_over = query.startswith(BATCH_FOLDER) and manifest.written_ms < 1000 * (
                    now_s - _BATCH_JOIN_S
                )
                pages = manifest.plan.pages
                if pages is not None and not is_over:
                    used |= {pages.table.folder, pages.next_table.folder}
    return used


def kept_while_rows_wait(table: Table) -> Table:
    """A table of files for rows that wait: they were located in the files as they are now; in the state those stay so."""
    if table.address is None or table.is_database:
        return table
    if table.in_place:
        raise UsageError(
            "in_place=True does not go with max_delay: files that change while rows wait would leave those without an "
            "answer. Leave in_place out, and the table is brought into the state, or leave max_delay out"
        )
    return dataclasses.replace(table, in_place=False)


def lookup_share(
    reader: RunReader,
    manifest: Manifest,
    join: LookupJoin,
    columns: tuple[str, ...],
    task: int,
    kept: KeptTable,
) -> Iterator[pa.RecordBatch]:
    """All results that this task owes, in bounded batches. `columns` are the stored ones of the stream."""
    plan = manifest.plan.pages
    if plan is None:
        raise TableError("the state was written by a join without a table: give this one another name=")
    mine = manifest.plan.ranges[task]
    waiting = list(_waiting(reader, manifest, plan, mine, columns))
    yield from _answers(kept, plan, join, mine, waiting)
    if task == 0:
        kept.make_ready(plan, manifest.written_ms)


def _answers(
    kept: KeptTable, plan: PagePlan, join: LookupJoin, mine: KeyRange, waiting: list[Sorted]
) -> Iterator[pa.RecordBatch]:
    opened = kept.at(plan.table)
    rows = sum(map(len, waiting))
    if not rows:
        return
    width = sum(part.rows.nbytes for part in waiting) // rows + 1
    limit = max(1, min(pairs.PIECE_ROWS, pairs.PIECE_BYTES // width))
    for range_ in cut([waiting], [1], limit):
        here = [part for whole in waiting if len(part := whole.between(range_))]
        if here:
            pending = concatenate(here)
            piece = KeyRange(max(range_.low, mine.low), min(range_.high, mine.high))
            pages = _pages(kept, opened, pending, piece, join)
            yield from join_pages(pending, pages, join, opened.table.schema)


def _pages(
    kept: KeptTable, opened: _Opened, pending: Sorted, range_: KeyRange, join: LookupJoin
) -> Iterator[Page]:
    """What the pending rows, all that there are in this range, meet of the table."""
    index = opened.table.index
    keys = pending.rows.select([stream for stream, _ in join.verify])
    needed = needed_pages(index, pending.keys, keys)
    if kept.spec.strategy == MESH:
        first, behind = range_.low >> PAGE_SHIFT, -(-range_.high >> PAGE_SHIFT)
        return kept.pages(opened, np.union1d(needed, np.arange(first, min(behind, len(index)))))
    pages = pages_of(pending.keys)
    if kept.spec.strategy == INDEX:
        return _key_by_key(kept, opened, keys, needed, pages)
    if not opened.is_database:
        return kept.pages(opened, needed)
    # As good as counting keys: two of one page seldom share their hash.
    found, counts = np.unique(pages_of(np.unique(pending.keys >> _SALT) << _SALT), return_counts=True)
    inside = found < len(index)
    few = found[inside][counts[inside] * LOOKUP_ROWS < index.rows[found[inside]]]
    few = few[~kept.holds(opened, few)]
    asked = np.flatnonzero(np.isin(pages, few))
    return itertools.chain(
        kept.pages(opened, np.setdiff1d(needed, few)),
        kept.look_up(opened, take_rows(keys, asked), pages[asked]),
    )


_SALT = np.uint64(HASH_SHIFT)


def _key_by_key(
    kept: KeptTable, opened: _Opened, keys: pa.RecordBatch, needed: Indices, pages: Indices
) -> Iterator[Page]:
    """An index nested loop: every row by itself. Files have no look-up by key: each row reads its page again."""
    if opened.is_database:
        inside = np.searchsorted(pages, len(opened.table.index))
        yield from kept.look_up(opened, keys.slice(0, inside), pages[:inside])
        return
    times = dict(zip(*(found.tolist() for found in np.unique(pages, return_counts=True)), strict=True))
    for number in needed.tolist():
        for _ in range(times.get(number, 1)):
            rows = opened.table.read(number, kept.spec.columns)
        yield opened.page(number, rows, kept.spec.keys)


def _waiting(
    reader: RunReader, manifest: Manifest, plan: PagePlan, range_: KeyRange, columns: tuple[str, ...]
) -> Iterator[Sorted]:
    """The rows that this batch answers, as slices of runs."""
    before, after = batches_of(plan.before), batches_of(plan.after)
    for run in manifest.live:
        if range_.overlaps(run):
            for part in reader.read(run, range_, columns).values():
                yield part if not plan.after else _due(part, run, before, after == manifest.batch.number)


def _due(part: Sorted, run: Run, before: Indices, read: np.ndarray) -> Sorted:
    due = waiting_rows(part.keys, before, run.batch)
    due &= read[(part.keys >> np.uint64(PAGE_SHIFT)).astype(np.int64)]
    if due.all():
        return part
    at = np.flatnonzero(due)
    return Sorted(part.keys[at], take_rows(part.rows, at))
