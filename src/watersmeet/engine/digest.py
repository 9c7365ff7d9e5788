"""A digest of rows that does not depend on their order or on how they are cut into batches.

Spark may read the rows of a batch DataFrame again, in another order and in other partitions. The digest of the whole
is the sum of the digests of its parts, so equal multisets of rows have equal digests.

DuckDB hashes every type that Spark sends, nested ones too. For a text it is thirty times as fast as `kernel/keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.kernel.rows import all_row_bytes, cut_by_bytes

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Sums of 64-bit hashes wrap here.
MODULUS = 1 << 128

# Rows are hashed in pieces, so that DuckDB's copies of nested values stay small beside a task's other memory.
_PIECE_BYTES = 16 << 20
# DuckDB copies a list into buffers of up to twice its size, at each level of nesting.
_MEMORY_FACTOR = 16


class RowDigest:
    """The running sum over the rows that pass through `watch`."""

    def __init__(self) -> None:
        self.total = 0

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported here because only batch joins need it.
        import duckdb

        # A task has one core. DuckDB must not write to disk or fetch anything.
        settings = {
            "threads": "1",
            "memory_limit": f"{_MEMORY_FACTOR * _PIECE_BYTES}B",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            for batch in batches:
                self.total = (self.total + _digest(connection, batch)) % MODULUS
                yield batch


def _digest(connection: DuckDBPyConnection, batch: pa.RecordBatch) -> int:
    sizes = all_row_bytes(batch)
    total = 0
    for piece in cut_by_bytes(sizes, _PIECE_BYTES):
        size = int(sizes[piece].sum())
        if size > _PIECE_BYTES:
            # One huge row.
            connection.execute(f"SET memory_limit = '{_MEMORY_FACTOR * size}B'")
        total += _sum_of_hashes(connection, batch.slice(piece.start, piece.stop - piece.start))
    return total


def _sum_of_hashes(connection: DuckDBPyConnection, batch: pa.RecordBatch) -> int:
    # A row without columns still counts. Columns are numbered: DuckDB could read a user's column name as the whole row.
    columns = batch.columns or [pa.nulls(batch.num_rows)]
    names = [f"c{number}" for number in range(len(columns))]
    connection.register("arrived", pa.table(columns, names))
    try:
        ((total,),) = connection.execute(f"SELECT sum(hash({', '.join(names)})) FROM arrived").fetchall()
        return int(total)
    finally:
        connection.unregister("arrived")
