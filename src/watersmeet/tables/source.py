"""A table as the engine sees it, wherever its rows are stored.

A `PreparedTable` is small and goes to the tasks; an `OpenTable` has handles and stays in one process. All columns have
canonical Arrow types (model/types.py) with nullable fields. The pages of an open table never change in number or
bounds: a change of files shows as a newer source, a change in a database as other rows within a page's bounds.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.log.storage import Files, Storage
from watersmeet.model.pages import PageIndex
from watersmeet.tables.catalogue import Catalogue, PagesIn, find_entry, killed_copies, open_catalogue
from watersmeet.tables.spec import Table

if TYPE_CHECKING:
    from watersmeet.tables.sql import SqlTable


class NotPrepared(TableError):
    """A table has changed, and its new version is not prepared yet."""


class NotSupported(TableError):
    """A table is stored in a way that cannot be read correctly here. Trying again later does not help."""


class Phase(StrEnum):
    """The steps of a preparation, as the progress bar names them."""

    SORTING = "sorting"
    WRITING = "writing"
    FINDING_PAGES = "finding pages"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far the preparation of a table is. `rows_in_all` is None while it is not known."""

    label: str
    phase: Phase
    rows: int
    rows_in_all: int | None


Report = Callable[[TableProgress], None]


def no_report(progress: TableProgress) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A prepared table that tasks can open. It can be pickled, without a credential that is in the environment.

    `place` and `cache` open the state, where `folder` has the index. Another `version` has another index. `origin` says
    where the rows come from; it is None for a DataFrame, which is taken as it was. `relation` is for a database only.
    """

    place: Storage | str
    folder: str
    version: str
    origin: Table | None = None
    cache: str | None = None
    relation: SqlTable | None = None

    def open(self) -> OpenTable:
        # The readers are open tables themselves, so they are above this module.
        from watersmeet.tables.database import OpenDatabase
        from watersmeet.tables.parquet import OpenParquet
        from watersmeet.tables.sorted_copy import OpenSortedCopy

        readers: dict[PagesIn, type[OpenTable]] = {
            PagesIn.SORTED_COPY: OpenSortedCopy,
            PagesIn.PARQUET: OpenParquet,
            PagesIn.DATABASE: OpenDatabase,
        }
        files = open_files(self.place, cache=self.cache)
        catalogue = open_catalogue(files, self.folder)
        return readers[PagesIn(catalogue.entry.kind)](self, files, catalogue)

    def published(self, folder: str) -> str | None:
        """The version of the table that a folder of this state has; None if it has none yet."""
        entry = find_entry(open_files(self.place, cache=self.cache), folder)
        return entry.version if entry else None

    def killed_copies(self, folder: str, now_s: float) -> int:
        """How many processes were killed while they made a sorted copy in a folder of this state."""
        return killed_copies(open_files(self.place, cache=self.cache), folder, now_s)

    def at(self, folder: str, version: str) -> PreparedTable:
        """The version of this table that another folder has.

        Files may be read in place in one version and from the sorted copy in another. A database has no rows in its
        folder, so it cannot stand for files, nor they for it.
        """
        if self.version == version:
            return self
        entry = find_entry(open_files(self.place, cache=self.cache), folder)
        # A folder that was removed and made anew has other pages under the same name.
        if entry is None or entry.version != version:
            raise TableError(
                f"version {version} of the table, in whose pages rows wait, is gone from {self.place}: restore its "
                "folder, or start with a new checkpoint"
            )
        of_database = entry.kind == PagesIn.DATABASE
        if of_database != (self.relation is not None) or (
            entry.kind == PagesIn.PARQUET and self.origin is None
        ):
            raise TableError(
                f"rows still wait on {entry.label}, and the query was started with a table of another kind: start it "
                "once more with the earlier table until no row waits (`watersmeet status` counts them), or take a new "
                "checkpoint"
            )
        return dataclasses.replace(self, folder=folder, version=version)


class OpenTable(ABC):
    """A table with its index, in one process, for one thread. It may be asked for more while `read_many` goes on."""

    def __init__(self, source: PreparedTable, files: Files, catalogue: Catalogue):
        self.source = source
        self.version = source.version
        self.schema: pa.Schema = catalogue.schema
        self.index: PageIndex = catalogue.index
        self._files = files
        self.label = catalogue.entry.label

    @abstractmethod
    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch:
        """The rows of a page with only the named columns, in any order, possibly with null keys.

        Where they are sorted by the hash of their key (`kernel/pages.key_hashes`), that hash is the first column, named
        as in runs (`kernel/rows.ORDER`), and no key is null.
        """

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The pages, in the order asked for. A thread reads the next one while one is being used.

        A caller that stops early waits for the read under way, so that nothing is read behind its back.
        """
        with ThreadPoolExecutor(1) as pool:
            ahead: Future[pa.RecordBatch] | None = None
            for place, page in enumerate(pages, 1):
                rows = self.read(page, columns) if ahead is None else ahead.result()
                ahead = pool.submit(self.read, pages[place], columns) if place < len(pages) else None
                yield page, rows

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch | None:
        """All rows that have one of these keys; None where rows cannot be asked for by key (files).

        `keys` has a column for each key column, in their order, by any names. Nulls match nothing.
        """
        return None

    def newest(self, *, make: bool = True) -> PreparedTable | None:
        """The table as it is now, if files were added, changed or removed; None if not.

        Without `make` it must have been prepared already: otherwise NotPrepared.
        """
        # Preparing is above the readers.
        from watersmeet.tables.prepare import newest_files

        return newest_files(self.source, self._files, make=make)

    @property
    def copy_folder(self) -> str:
        """The folder for a sorted copy of this version; empty if its pages are not decoded, or must stay in place."""
        return ""

    def decoded_bytes(self, page: int, columns: Sequence[str]) -> int:
        """The bytes of files that are decoded when a page is read; 0 for pages that are mapped or asked for."""
        return 0

    def copy(self, report: Report) -> None:
        """Write the sorted copy of this version into its folder. May run in a thread of its own."""
        from watersmeet.tables.prepare import copy_in_place

        copy_in_place(self.source, self.copy_folder, report)

    @abstractmethod
    def close(self) -> None:
        """Release files and connections."""
