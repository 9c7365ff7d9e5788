"""Record batches put together up to a size: many small ones cost time on every border they cross."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def coalesce(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Concatenate neighbours as long as they stay within so many rows and bytes; empty ones are dropped."""
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if held and (held_rows + batch.num_rows > rows or held_bytes + batch.nbytes > size):
            yield pa.concat_batches(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
    if held:
        yield pa.concat_batches(held)
