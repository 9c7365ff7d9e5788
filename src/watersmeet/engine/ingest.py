"""Ingest: rows of one input partition in, sorted runs out.

Rows are gathered up to a set size, stripped of null keys, sorted by order key and written as one run; a
large partition becomes several runs, so the memory of the task does not depend on it. Columns are brought to
one Arrow type for each SQL type, whatever the session's time zone, its choice of large strings or the
nullability of a nested field: runs of different starts of a query can then be merged.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from watersmeet.engine.spec import Settings
from watersmeet.kernel.batches import coalesce
from watersmeet.kernel.order import drop_null_keys, mix, order_keys
from watersmeet.kernel.sorted import Keys, Sorted, take_rows
from watersmeet.log.files import Files
from watersmeet.log.runs import write_run
from watersmeet.model.facts import Descriptor, InputSpec, Run
from watersmeet.model.types import canonical_arrow


def ingest_partition(
    files: Files,
    spec: InputSpec,
    batch: int,
    partition: int,
    incoming: Iterable[pa.RecordBatch],
    settings: Settings,
) -> Descriptor:
    """Store a partition; the descriptor is all that travels on."""
    runs: list[Run] = []
    null_rows = 0
    for held in coalesce(incoming, settings.run_rows, settings.run_bytes):
        rows = sort_rows(held, spec)
        null_rows += held.num_rows - len(rows)
        if len(rows):
            runs.append(write_run(files, spec.name, batch, f"p{partition:05d}-{len(runs):04d}", rows))
    return Descriptor(spec.name, partition, tuple(runs), null_rows)


def sort_rows(batch: pa.RecordBatch, spec: InputSpec) -> Sorted:
    """The stored columns of the rows whose keys are not null, by ascending order key."""
    key_columns = (spec.hashed,) if spec.hashed else spec.keys
    batch = drop_null_keys(_canonical(batch), key_columns)
    keys = _order(batch, spec)
    order = np.argsort(keys)
    stored = batch.select([column.name for column in spec.stored])
    return Sorted(keys[order], take_rows(stored, order))


def _order(batch: pa.RecordBatch, spec: InputSpec) -> Keys:
    if spec.hashed:
        return mix(batch.column(spec.hashed).to_numpy().view(np.uint64))
    return order_keys([batch.column(key) for key in spec.keys])


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = [canonical_arrow(column.type) for column in batch.columns]
    if all(column.type == kind for column, kind in zip(batch.columns, kinds, strict=True)):
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
