"""A digest of rows that does not depend on their order or on how they are cut into batches.

Spark may read the rows of a batch DataFrame again, in another order and in other partitions. The digest of the whole is
the sum of the digests of its parts: equal for the same rows, however often each of them is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Sums of 64-bit hashes wrap here.
MODULUS = 1 << 128


class RowDigest:
    """Adds up the rows that pass through `watch`."""

    def __init__(self) -> None:
        self.total = 0

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Only batch joins need it: workers of a stream do without.
        import duckdb

        with duckdb.connect() as connection:
            for batch in batches:
                if batch.num_rows:
                    self.total = (self.total + _sum_of_hashes(connection, batch)) % MODULUS
                yield batch


def _sum_of_hashes(connection: DuckDBPyConnection, batch: pa.RecordBatch) -> int:
    """DuckDB hashes every type that Spark sends, nested ones too, many rows at a time."""
    # A row without columns is a row all the same.
    rows = pa.Table.from_batches([batch]) if batch.num_columns else pa.table({"": pa.nulls(batch.num_rows)})
    connection.register("arrived", rows)
    try:
        ((total,),) = connection.execute("SELECT sum(hash(arrived)) FROM arrived").fetchall()
        return int(total)
    finally:
        connection.unregister("arrived")
