"""Name the only batch of a join of batch DataFrames.

Spark gives such a join no batch number. It may also run any part of it again later, under another execution id: a
second `collect()` of one DataFrame reuses the shuffle, and a lost partition of a cached result is recomputed.
So the id depends on the rows that were read, not on when:

- All executions of one DataFrame share a folder. Run files are named by their content, so an ingest task that runs
  again over the same rows in the same order writes the same files.
- The manifest is named by the rows that arrived, in any order and partitioning (`RowDigest`). Every join task
  receives all descriptors. A task that runs again finds the manifest that the other tasks used, even if the rows were
  read in another order. Grids and heavy keys are cut by position, so tasks that used two manifests would miss pairs.
  An execution that read other rows gets its own manifest.

A result cannot be recomputed once its files are removed, a day after they were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.kernel.sizes import all_row_bytes, cut_by_bytes
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.codec import checksum
from watersmeet.log.descriptors import Told
from watersmeet.model.facts import BatchId
from watersmeet.plan.batch import count_arrived

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# An ingest task does not know what the other tasks read. It needs only the folder.
_INGESTING = "ingest"

# Sums of 64-bit hashes wrap here.
_MODULUS = 1 << 128

# Rows are hashed in pieces, so that DuckDB's copies of nested values stay small beside a task's other memory.
_PIECE_BYTES = 16 << 20
# DuckDB copies a list into buffers of up to twice its size, at each level of nesting.
_MEMORY_FACTOR = 16


def id_for_ingest(instance: str) -> BatchId:
    return BatchId(query=BATCH_FOLDER + instance, run=_INGESTING, number=0)


def id_for_join(instance: str, descriptors: Sequence[Told]) -> BatchId:
    """Return the id shared by all executions that read these rows."""
    totals: Counter[str] = Counter()
    for descriptor in descriptors:
        totals[descriptor.input] += int(descriptor.digest or "0", 16)
    rows = count_arrived(descriptors)
    read = [f"{name} {rows[name]} {totals[name] % _MODULUS:x}" for name in sorted(rows)]
    return BatchId(query=BATCH_FOLDER + instance, run=checksum("\n".join(read).encode()), number=0)


class RowDigest:
    """The digest of the rows that pass through `watch`, whatever their order and their batches.

    Spark may read the rows of a batch DataFrame again, in another order and in other partitions. The digest of the
    whole is the sum of the digests of its parts, so equal multisets of rows have equal digests.

    DuckDB hashes every type that Spark sends, nested ones too. For a text it is thirty times as fast as
    `kernel/keys.py`.
    """

    def __init__(self, piece_bytes: int = _PIECE_BYTES) -> None:
        self.total = 0
        self.piece_bytes = piece_bytes

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Imported here because only batch joins need it.
        import duckdb

        # A task has one core. DuckDB must not write to disk or fetch anything.
        settings = {
            "threads": "1",
            "memory_limit": f"{_MEMORY_FACTOR * self.piece_bytes}B",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            for batch in batches:
                self.total = (self.total + _digest(connection, batch, self.piece_bytes)) % _MODULUS
                yield batch


def _digest(connection: DuckDBPyConnection, batch: pa.RecordBatch, piece_bytes: int) -> int:
    sizes = all_row_bytes(batch)
    total = 0
    for piece in cut_by_bytes(sizes, piece_bytes):
        size = int(sizes[piece].sum())
        if size > piece_bytes:
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
