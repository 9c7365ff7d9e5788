"""The disk-resident relation: products in a SQLite file, clustered by their key, made once and kept.

A page is a range of keys, fetched through the index as Arrow; the file is the same for every size of page. What a read
costs is what the database, its driver and the disk take. Usually the operating system's cache holds the whole file after it
was written or read once, so that the disk has no part in it; `cold` drops the file from that cache before each read. Then
all of a page comes from the disk, or from a cache of the disk's own, which no program can drop.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from papers.hybrid import paper
from papers.hybrid.sales import products
from papers.shared.tpch import INSTALL
from watersmeet.errors import UsageError
from watersmeet.model.pages import PageIndex

KEY = "id"
_QUERY = f"SELECT {KEY}, warehouse_key, price, description FROM products WHERE {KEY} >= ? AND {KEY} < ?"
_PIECE_ROWS = 250_000
# Of the driver: a page is to come as one batch.
_BATCH_ROWS = "adbc.sqlite.query.batch_rows"


def require_driver() -> None:
    try:
        import adbc_driver_sqlite.dbapi  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the relations need adbc-driver-sqlite, which is not installed: {INSTALL}"
        ) from error


def make_relation(home: Path, rows: int, told: Callable[[int], None] = lambda done: None) -> Path:
    """The file of `rows` products; made only if it is not there. `told` gets the rows done."""
    from adbc_driver_sqlite import dbapi

    path = home / f"products-{rows}.db"
    if path.exists():
        return path
    home.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with dbapi.connect(str(unfinished)) as connection, connection.cursor() as cursor:
        # A table with such a key is stored in its order, like a primary key of MySQL.
        cursor.execute(
            f"CREATE TABLE products ({KEY} INTEGER PRIMARY KEY, warehouse_key INTEGER, price REAL, description TEXT)"
        )
        for done in range(0, rows, _PIECE_ROWS):
            piece = products(min(_PIECE_ROWS, rows - done), first=done + 1)
            cursor.adbc_ingest("products", piece, mode="append")
            told(done + len(piece))
        connection.commit()
    unfinished.rename(path)
    return path


class Relation:
    """An open relation in pages of `page_rows`; what the step machines read from.

    `reading_s` is the time of all reads, `aside_s` that of dropping the file from the cache, which is no part of them. `clock` is
    that of the processor, which stands still while a shared machine works for others; a disk takes time without it.
    """

    def __init__(self, path: Path, rows: int, page_rows: int, *, cold: bool = False):
        from adbc_driver_sqlite import dbapi

        self.index = page_index(rows, page_rows)
        self.reading_s = self.aside_s = 0.0
        self.clock: Callable[[], float] = time.perf_counter if cold else time.process_time
        self._firsts = self.index.first.column(0).to_numpy()
        self._page_rows = page_rows
        self._connection = dbapi.connect(str(path))
        self._cursor: Any = self._connection.cursor()
        self._cursor.adbc_statement.set_options(**{_BATCH_ROWS: str(page_rows)})
        self._cold_file = os.open(path, os.O_RDONLY) if cold else None
        if self._cold_file is not None:
            # What was written but lately is not on the disk yet, and would stay in the cache.
            os.fsync(self._cold_file)

    def read(self, page: int) -> pa.RecordBatch:
        if self._cold_file is not None:
            started = self.clock()
            os.posix_fadvise(self._cold_file, 0, 0, os.POSIX_FADV_DONTNEED)
            self.aside_s += self.clock() - started
        started = self.clock()
        first = int(self._firsts[page])
        self._cursor.execute(_QUERY, (first, first + self._page_rows))
        (batch,) = self._cursor.fetch_arrow_table().to_batches()
        self.reading_s += self.clock() - started
        return batch

    def close(self) -> None:
        self._cursor.close()
        self._connection.close()
        if self._cold_file is not None:
            os.close(self._cold_file)

    def __enter__(self) -> Relation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def page_index(rows: int, page_rows: int) -> PageIndex:
    """Keys are 1 to `rows`, none missing, so it needs no look at the file."""
    first = np.arange(1, rows + 1, page_rows)
    last = np.minimum(first + page_rows - 1, rows)
    counts = last - first + 1
    return PageIndex(
        (KEY,),
        pa.record_batch({KEY: first}),
        pa.record_batch({KEY: last}),
        rows=counts,
        bytes=counts * paper.ROW_BYTES,
    )


def warm(path: Path) -> None:
    """Bring the whole file into the operating system's cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
