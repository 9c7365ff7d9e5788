"""What the operator sees of a table, whatever it is stored in.

A `Source` is small and goes to the tasks; an `OpenTable` has handles and stays in one process. All columns have
canonical Arrow types (model/types.py) with nullable fields. The pages of an open table never change their number or
bounds: what changes in the table shows as a newer source (files) or as other rows within a page's bounds (databases).

`read` gives the rows of a page with just the columns asked for, in any order, null keys possibly among them. Where
they are already sorted by the hash of their key (`kernel/pages.key_hashes`), that hash is the first column, named as
in runs (`kernel/rows.ORDER`), and no key is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.log.files import Storage
from watersmeet.model.pages import PageIndex


class NotPrepared(TableError):
    """A table has changed, and its sorted copy is not made yet."""


class NotSupported(TableError):
    """A table is stored in a way that cannot be read correctly here: to try again later does not help."""


class Source(Protocol):
    """A table that tasks can open. Can be pickled; without credentials if they come from the environment."""

    @property
    def version(self) -> str:
        """What was known of the table when this source was made: another version, another index."""
        ...

    @property
    def folder(self) -> str:
        """Where the state has its index."""
        ...

    @property
    def place(self) -> Storage | str:
        """What opens the state."""
        ...

    @property
    def cache(self) -> str | None: ...

    def open(self) -> OpenTable: ...


class OpenTable(Protocol):
    """A table with its index, in one process, for one thread. It may be asked for more while `read_many` goes on."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def index(self) -> PageIndex: ...

    @property
    def version(self) -> str: ...

    def read(self, page: int, columns: Sequence[str]) -> pa.RecordBatch: ...

    def read_many(self, pages: Sequence[int], columns: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The pages, in the order asked for. The next one may be on its way while one is being used."""
        ...

    def lookup(self, keys: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch | None:
        """All rows that have one of these keys, asked for by key; None where a source cannot do that (files).

        `keys` has a column for each key column, in their order, by any names. Nulls match nothing.
        """
        ...

    def newest(self, *, make: bool = True) -> Source | None:
        """The table as it is now, if files were added, changed or removed; None if not.

        Without `make` only what was prepared already; NotPrepared if that is still to be done.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the sorting of a table is. `rows_in_all` is None while it is not known."""

    label: str
    stage: str
    rows: int
    rows_in_all: int | None


Report = Callable[[Progress], None]


def no_report(progress: Progress) -> None:
    """For callers that show nothing."""
