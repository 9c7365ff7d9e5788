"""Record batches put together up to a size: many small ones cost time on every border they cross."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from watersmeet.kernel.sizes import all_row_bytes, cut_by_bytes


def coalesce(
    batches: Iterable[pa.RecordBatch], rows: int, size: int, alone: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Concatenate neighbours up to `rows` rows and `size` bytes; empty ones are dropped.

    From `alone` rows on a batch is large enough to go as it is, uncopied.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if alone is not None and batch.num_rows >= alone:
            yield batch
            continue
        if held and (held_rows + batch.num_rows > rows or held_bytes + batch.nbytes > size):
            yield _one(held)
            held, held_rows, held_bytes = [], 0, 0
        held.append(batch)
        held_rows += batch.num_rows
        held_bytes += batch.nbytes
    if held:
        yield _one(held)


def split(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most about this many bytes, as views; a row that exceeds them is alone."""
    for batch in batches:
        if batch.nbytes <= size:
            yield batch
            continue
        for part in cut_by_bytes(all_row_bytes(batch), size):
            yield batch.slice(part.start, part.stop - part.start)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Arrow would copy even a single batch."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
