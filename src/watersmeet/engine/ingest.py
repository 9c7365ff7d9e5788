"""Ingest: rows of one input partition in, sorted runs out.

Rows are gathered up to a set size, stripped of null keys, sorted by order key and written as one run; a
large partition becomes several runs, so the memory of the task does not depend on it. For the grid a run is cut
into sections by a hash of the row's place in the stream: the same each time the partition is read in the same
order, and blind to the row's content, so that no value can make one section larger than another. Columns are brought to
one Arrow type for each SQL type, whatever the session's time zone, its choice of large strings or the
nullability of a nested field: runs of different starts of a query can then be merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.spec import Settings
from watersmeet.kernel.batches import coalesce
from watersmeet.kernel.hot import hot_keys
from watersmeet.kernel.order import drop_null_keys, mix, order_keys
from watersmeet.kernel.sections import sections_of
from watersmeet.kernel.sorted import Keys, Sorted, take_rows
from watersmeet.kernel.words import words
from watersmeet.log.files import Files
from watersmeet.log.runs import write_run
from watersmeet.model.cube import HotKey
from watersmeet.model.facts import BY_ARRIVAL, BY_HASH, BY_VALUE, Descriptor, InputSpec, Layout, Run
from watersmeet.model.types import canonical_arrow
from watersmeet.plan.hypercube import listing_floor

# A row's place in the stream: the batch, and under it the place in the partition.
_PLACE_BITS = 32

# Of a hot key's value so much is kept, for people to know it by.
_LABEL_LENGTH = 40


def ingest_partition(
    files: Files,
    spec: InputSpec,
    batch: int,
    partition: int,
    incoming: Iterable[pa.RecordBatch],
    settings: Settings,
    layout: Layout | None = None,
) -> Descriptor:
    """Store a partition; the descriptor is all that travels on."""
    runs: list[Run] = []
    origin = mix(np.array([(batch << _PLACE_BITS) + partition], np.uint64))
    seen = null_rows = 0
    for held in coalesce(incoming, settings.run_rows, settings.run_bytes):
        arrived = sort_rows(held, spec, (batch << _PLACE_BITS) + seen)
        rows = arrived.rows
        null_rows += held.num_rows - len(rows)
        if len(rows):
            label = f"p{partition:05d}-{len(runs):04d}"
            if layout is not None:
                content = cut_sections(rows, arrived.places + (origin + np.uint64(seen)), layout)
                run = write_run(files, spec.name, batch, label, content, marked=spec.order != BY_HASH)
            elif spec.order != BY_HASH:
                run = write_run(files, spec.name, batch, label, rows, marked=True)
            else:
                floor = listing_floor(len(rows), settings.tasks)
                hot = _hot(arrived, spec, floor)
                run = write_run(files, spec.name, batch, label, rows, hot=hot, hot_floor=floor)
            runs.append(run)
        seen += held.num_rows
    return Descriptor(spec.name, partition, tuple(runs), null_rows)


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows as they are stored, by ascending order key; and where each was among those that came with a key."""

    rows: Sorted
    places: Keys
    source: pa.RecordBatch


def sort_rows(batch: pa.RecordBatch, spec: InputSpec, first: int = 0) -> Arrived:
    """The stored columns of the rows whose keys are not null, sorted.

    `first` is the place of the first row in the stream.
    """
    key_columns = (spec.hashed,) if spec.hashed else spec.keys
    batch = drop_null_keys(_canonical(batch), key_columns)
    stored = batch.select([column.name for column in spec.stored])
    if spec.order == BY_ARRIVAL:
        places = np.arange(batch.num_rows, dtype=np.uint64)
        return Arrived(Sorted(places + np.uint64(first), stored), places, batch)
    keys = words(batch.column(spec.keys[0])) if spec.order == BY_VALUE else _hashed(batch, spec)
    order = np.argsort(keys)
    return Arrived(Sorted(keys[order], take_rows(stored, order)), order.view(np.uint64), batch)


def _hot(arrived: Arrived, spec: InputSpec, floor: int) -> tuple[HotKey, ...]:
    """The keys of at least `floor` rows, with the values that they stand for."""
    begin, counts = hot_keys(arrived.rows.keys, floor)
    if not len(begin):
        return ()
    values = take_rows(arrived.source.select(list(spec.keys)), arrived.places[begin].astype(np.int64))
    labels = [", ".join(map(str, row.values()))[:_LABEL_LENGTH] for row in values.to_pylist()]
    found = zip(arrived.rows.keys[begin].tolist(), counts.tolist(), labels, strict=True)
    return tuple(HotKey(key, rows, label) for key, rows, label in found)


def cut_sections(rows: Sorted, places: Keys, layout: Layout) -> dict[int, Sorted]:
    """The rows by section, each in the order that they have; sections without rows are left out."""
    numbers = sections_of(mix(places), layout.groups, layout.parts)
    order: npt.NDArray[np.int64] = np.argsort(numbers, kind="stable")
    sorted_ = Sorted(rows.keys[order], take_rows(rows.rows, order))
    counts = np.bincount(numbers, minlength=len(layout.groups) * layout.parts)
    ends = np.cumsum(counts)
    return {
        number: sorted_.slice(int(ends[number] - counts[number]), int(ends[number]))
        for number in np.flatnonzero(counts).tolist()
    }


def _hashed(batch: pa.RecordBatch, spec: InputSpec) -> Keys:
    if spec.hashed:
        return mix(batch.column(spec.hashed).to_numpy().view(np.uint64))
    return order_keys([batch.column(key) for key in spec.keys])


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = [canonical_arrow(column.type) for column in batch.columns]
    if all(column.type == kind for column, kind in zip(batch.columns, kinds, strict=True)):
        return batch
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
