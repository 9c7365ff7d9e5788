"""Ingest: rows of one input partition in, sorted runs out.

Rows are gathered up to a size limit, stripped of null keys and late rows, sorted by order key and written as one run.
A large partition, or a large batch of it, becomes several runs, so the task's memory does not depend on its size.
The sort is stable, so that another attempt on another machine writes the same file (log/runs.py says why it must).

For the grid a run is cut into sections by a hash of the row's place in the stream. The cut is the same each time the
partition is read in the same order. It ignores the row's content, so no value can make one section larger than another.

Columns are cast to one Arrow type for each SQL type, whatever the session's time zone, its choice of large strings or
the nullability of a nested field. So runs of different starts of a query can be merged.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.window import Times, time_marks, window_times
from watersmeet.errors import UsageError
from watersmeet.kernel.bounds import coalesce, split
from watersmeet.kernel.keys import Keys, drop_null_keys, joined_keys, mix, order_keys, sections_of, words
from watersmeet.kernel.pages import page_orders
from watersmeet.kernel.rows import Sections, Sorted, sorted_order, take_rows
from watersmeet.log.runs import write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import BatchId, Descriptor, Run
from watersmeet.model.pages import PageIndex, pages_of
from watersmeet.model.signature import LOCATOR, InputSpec, Layout, Order
from watersmeet.model.types import canonical_arrow
from watersmeet.model.window import AT
from watersmeet.schemes.scheme import Indices, NewRun

# A row's place in the stream: the batch in the high bits, the place in the partition in the low bits.
_PLACE_BITS = 32

# Length of the text kept of a hot key's value, for display.
_LABEL_LENGTH = 40
LABELLED_SHARE = 128

# An arriving batch is cut only above this size, however small a run may be: Spark bounds batches in rows, and a run has
# fixed costs.
LEAST_CUT_BYTES = 1 << 20

# The limit of the 32-bit offsets of an Arrow array.
_MOST_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a batch of one input, as an ingest task gets it.

    Rows with a time below the `watermark` are late: they are counted and not stored.
    """

    batch: BatchId
    input: str
    number: int
    rows: Iterable[pa.RecordBatch]
    watermark: int | None = None


def ingest_partition(
    files: Files, spec: JoinSpec, part: Partition, table: Located | None = None
) -> Descriptor:
    """Store a partition as runs, once for each of the input's arrangements, and return its descriptor.

    With a table the rows are sorted by its pages. Rows whose key is in no page are counted, and stored only if the join
    emits rows without a match.
    """
    arrangements, scheme, settings = spec.arrangements(part.input), spec.scheme, spec.settings
    batch, partition, watermark = part.batch.number, part.number, part.watermark
    runs: list[Run] = []
    layout = scheme.layout
    origin = mix(np.array([(batch << _PLACE_BITS) + partition], np.uint64))
    seen = null_rows = late_rows = absent_rows = 0
    cut = split(part.rows, max(settings.run_bytes, LEAST_CUT_BYTES))
    for held in coalesce(cut, settings.run_rows, settings.run_bytes):
        first = (batch << _PLACE_BITS) + seen
        for place, one in enumerate(arrangements):
            if table is not None:
                arrived = sort_by_page(held, one, table.index, first)
            else:
                arrived = sort_rows(held, one, first, watermark, arrangements[0])
            rows = arrived.rows
            if place == 0:
                null_rows += held.num_rows - len(rows) - arrived.late_rows - arrived.absent_rows
                late_rows += arrived.late_rows
                absent_rows += arrived.absent_rows
            if not len(rows):
                continue
            label = f"p{partition:05d}-{len(runs):04d}"
            content = (
                rows
                if layout is None
                else cut_sections(rows, arrived.places + (origin + np.uint64(seen)), layout)
            )
            keys = rows.keys if layout is None else rows.keys[:0]
            labels = functools.partial(_labels, arrived, one)
            new = NewRun(keys, len(rows), labels, limits=settings.limits)
            stats = scheme.describe(new, settings.tasks)
            run = write_run(
                files, one.name, batch, label, content, marked=one.order != Order.HASH, stats=stats
            )
            runs.append(run if arrived.times is None else replace(run, times=time_marks([arrived.times])))
        seen += held.num_rows
    version = table.version if table else ""
    return Descriptor(
        part.input, partition, tuple(runs), null_rows, late_rows, watermark, absent_rows, version
    )


@dataclass(frozen=True, slots=True)
class Located:
    """The page index in which keys are looked up, and its table version."""

    index: PageIndex
    version: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """Rows as they are stored, by ascending order key, and the position of each in `source`, the rows that were taken.

    `times` are the window times of `source`, if the join has a window. `absent_rows` counts the rows that were left out
    because their keys are in no page of the table.
    """

    rows: Sorted
    places: Keys
    source: pa.RecordBatch
    times: Times | None = None
    late_rows: int = 0
    absent_rows: int = 0


def sort_by_page(batch: pa.RecordBatch, spec: InputSpec, index: PageIndex, first: int) -> Arrived:
    """Sort the stored columns by the page that can hold a row's key (kernel/pages.py)."""
    batch = canonical_rows(batch)
    if not spec.keeps_all:
        batch = drop_null_keys(batch, spec.keys)
    places = np.arange(batch.num_rows, dtype=np.uint64) + np.uint64(first)
    orders = page_orders(index, batch.select(list(spec.keys)), places)
    order = sorted_order(orders)
    taken = len(order)
    if not spec.keeps_all:
        taken = int(np.count_nonzero(pages_of(orders) < len(index)))
        order = order[:taken]
    rows = Sorted(orders[order], take_rows(batch.select([column.name for column in spec.stored]), order))
    return Arrived(rows, order.view(np.uint64), batch, absent_rows=batch.num_rows - taken)


def sort_rows(
    batch: pa.RecordBatch,
    spec: InputSpec,
    first: int = 0,
    watermark: int | None = None,
    primary: InputSpec | None = None,
) -> Arrived:
    """Sort the stored columns of the rows that are not late and have no null key or time.

    `first` is the place of the first row in the stream. `primary` is the input's first arrangement.
    """
    key_columns = (spec.hashed,) if spec.hashed else spec.required or spec.keys
    batch = drop_null_keys(canonical_rows(batch), key_columns)
    batch, times, late_rows = _timed(batch, spec, watermark)
    if spec.located:
        assert primary is not None
        batch = batch.append_column(LOCATOR, pa.array(_hashed(batch, primary).view(np.int64)))
    stored = batch.select([column.name for column in spec.stored])
    if spec.order == Order.ARRIVAL:
        places = np.arange(batch.num_rows, dtype=np.uint64)
        return Arrived(Sorted(places + np.uint64(first), stored), places, batch, times, late_rows)
    keys = words(batch.column(spec.keys[0])) if spec.order == Order.VALUE else _hashed(batch, spec)
    order = sorted_order(keys)
    rows = Sorted(keys[order], take_rows(stored, order))
    return Arrived(rows, order.view(np.uint64), batch, times, late_rows)


def _timed(
    batch: pa.RecordBatch, spec: InputSpec, watermark: int | None
) -> tuple[pa.RecordBatch, Times | None, int]:
    """The rows that the window takes, with their window times as a column, and the number of late rows.

    The window time of a window over rows is the row's place in its run: its number is known when the batch is planned.
    """
    if all(column.name != AT for column in spec.stored):
        return batch, None, 0
    if spec.time is None:
        times = np.arange(batch.num_rows, dtype=np.int64)
        return batch.append_column(AT, pa.array(times)), times, 0
    times, taken = window_times(batch.column(spec.time))
    late_rows = 0
    if watermark is not None:
        early = times < watermark if taken is None else taken & (times < watermark)
        late_rows = int(np.count_nonzero(early))
        if late_rows:
            taken = ~early if taken is None else taken & ~early
    if taken is not None:
        batch, times = batch.filter(pa.array(taken)), times[taken]
    return batch.append_column(AT, pa.array(times)), times, late_rows


def _labels(arrived: Arrived, spec: InputSpec, begin: Indices, counts: Indices) -> list[str]:
    """The values of hot keys as text, by first position and number of rows; empty for keys with few rows."""
    named = np.flatnonzero(counts * LABELLED_SHARE >= len(arrived.rows))
    labels = [""] * len(begin)
    values = take_rows(arrived.source.select(list(spec.keys)), arrived.places[begin[named]].astype(np.int64))
    for at, place in enumerate(named.tolist()):
        labels[place] = _label(values, at)
    return labels


def _label(keys: pa.RecordBatch, at: int) -> str:
    """A key as text; empty if Python cannot represent it, such as a date after the year 9999."""
    try:
        return ", ".join(str(column[at].as_py()) for column in keys.columns)[:_LABEL_LENGTH]
    except (OverflowError, ValueError):
        return ""


def cut_sections(rows: Sorted, places: Keys, layout: Layout) -> Sections:
    """The rows by section, each section in their present order."""
    numbers = sections_of(mix(places), layout.groups, layout.parts)
    order: npt.NDArray[np.int64] = np.argsort(numbers, kind="stable")
    sizes = np.bincount(numbers).tolist()
    return Sections(rows.keys[order], take_rows(rows.rows, order), tuple(sizes))


def _hashed(batch: pa.RecordBatch, spec: InputSpec) -> Keys:
    if spec.hashed:
        return mix(batch.column(spec.hashed).to_numpy().view(np.uint64))
    if not spec.keys:
        return order_keys([batch.column(key) for key in spec.suffix])
    keys = order_keys([batch.column(key) for key in spec.keys])
    return joined_keys(keys, order_keys([batch.column(key) for key in spec.suffix])) if spec.suffix else keys


def canonical_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows in the types in which they are stored."""
    kinds = [canonical_arrow(column.type) for column in batch.columns]
    if all(column.type == kind for column, kind in zip(batch.columns, kinds, strict=True)):
        return batch
    columns = [
        column if column.type == kind else _cast(name, column, kind)
        for name, column, kind in zip(batch.schema.names, batch.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _cast(name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column. Arrow cannot narrow the offsets of a slice behind 2 GiB of other values: copy it first."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        if column.nbytes < _MOST_BYTES:
            return column.take(pa.array(np.arange(len(column)))).cast(kind)
        raise UsageError(
            f"column {name} has a value of about {column.nbytes} bytes, but the state holds values of up to "
            f"{_MOST_BYTES}: shorten it, or leave the column out with select="
        ) from error
