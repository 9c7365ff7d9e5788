"""Ingest of a hub: a partition of a stream as one run in arrival order, and an index for each column that needs one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.ingest import LEAST_CUT_BYTES, canonical_rows
from watersmeet.engine.window import Times, time_marks, window_times
from watersmeet.hubs.rows import as_late, row_numbers
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.stored import COMMANDS
from watersmeet.kernel.bounds import coalesce, split
from watersmeet.kernel.keys import Keys, order_keys
from watersmeet.kernel.rows import Sorted, sorted_order
from watersmeet.log.runs import write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import Descriptor, Run
from watersmeet.model.signature import LOCATOR
from watersmeet.model.window import AT

# The arriving column with the time of the batch. It is not stored.
BATCH_TIME = "__wm_now"


@dataclass(frozen=True, slots=True)
class HubPartition:
    """A partition of a batch. `needed` are the runs that live queries need, `in_force` is their catalogue.

    `at_us` is the time of the batch, for a stream without a column of times. Rows with a time below the `watermark` are
    late. They are stored only if a query `counts_late` ones.
    """

    batch: int
    number: int
    in_force: str
    watermark: int | None = None
    needed: Collection[str] = ()
    counts_late: bool = False
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The rows that are stored, with their numbers and times, how many were not, and the newest time of all.

    `late_kept` of those that are stored are late.
    """

    rows: pa.RecordBatch
    numbers: Keys
    times: Times
    null_rows: int
    late_rows: int
    newest: int | None
    late_kept: int = 0


def store_stream(
    files: Files,
    attributes: Attributes,
    stream: str,
    time: str | None,
    part: HubPartition,
    incoming: Iterable[pa.RecordBatch],
    run_rows: int,
    run_bytes: int,
) -> Descriptor:
    """Store a partition of a stream, and return its descriptor. Rows that no live query reads are only counted.

    Their times count all the same: which rows are late must not depend on the queries.
    """
    runs: list[Run] = []
    newest: dict[str, int] = {}
    seen = absent_rows = null_rows = late_rows = late_kept_rows = 0
    cut = split(incoming, max(run_bytes, LEAST_CUT_BYTES))
    for held in coalesce(cut, run_rows, run_bytes):
        first, seen = seen, seen + held.num_rows
        arrived = _arrived(held, time, part, first)
        if arrived.newest is not None:
            newest[stream] = max(arrived.newest, newest.get(stream, arrived.newest))
        if stream not in part.needed:
            absent_rows += held.num_rows
            continue
        null_rows += arrived.null_rows
        late_rows += arrived.late_rows
        late_kept_rows += arrived.late_kept
        if not arrived.rows.num_rows:
            continue
        label = f"p{part.number:05d}-{len(runs):04d}"
        written = [write_run(files, stream, part.batch, label, Sorted(arrived.numbers, arrived.rows))]
        for name, index in _indexes(arrived, attributes, stream, part.needed):
            written.append(write_run(files, name, part.batch, label, index))
        marks = time_marks([arrived.times])
        # An index may lack rows with a null: its times are then a little too wide, which is safe.
        runs += [replace(run, times=marks) for run in written]
    return Descriptor(
        stream,
        part.number,
        tuple(runs),
        null_rows,
        late_rows,
        part.watermark,
        absent_rows,
        part.in_force,
        newest=newest,
        late_kept_rows=late_kept_rows,
    )


def store_commands(files: Files, part: HubPartition, incoming: Iterable[pa.RecordBatch]) -> Descriptor:
    """Store a partition of the commands."""
    runs: list[Run] = []
    seen = 0
    for held in incoming:
        first, seen = seen, seen + held.num_rows
        numbers = row_numbers(part.batch, part.number, first, held.num_rows)
        label = f"p{part.number:05d}-{len(runs):04d}"
        runs.append(write_run(files, COMMANDS, part.batch, label, Sorted(numbers, held)))
    return Descriptor(COMMANDS, part.number, tuple(runs), 0, table=part.in_force)


def _arrived(held: pa.RecordBatch, time: str | None, part: HubPartition, first: int) -> _Arrived:
    """The rows that have a time, and are not late or wanted all the same. Their times become a column."""
    rows = canonical_rows(held)
    numbers = row_numbers(part.batch, part.number, first, rows.num_rows)
    if time is None:
        # Never below the watermark, also if the clock went back.
        at_us = part.at_us if part.watermark is None else max(part.at_us, part.watermark)
        times = np.full(rows.num_rows, at_us, np.int64)
        return _Arrived(rows.append_column(AT, pa.array(times)), numbers, times, 0, 0, at_us)
    times, taken = window_times(rows.column(time))
    rows = rows.append_column(AT, pa.array(times))
    if taken is not None:
        rows, numbers, times = rows.filter(pa.array(taken)), numbers[taken], times[taken]
    null_rows, newest = held.num_rows - len(times), int(times.max()) if len(times) else None
    late = times < part.watermark if part.watermark is not None else np.zeros(len(times), np.bool_)
    late_rows = int(np.count_nonzero(late))
    if late_rows and part.counts_late:
        return _Arrived(rows, as_late(numbers, late), times, null_rows, 0, newest, late_rows)
    if late_rows:
        rows, numbers, times = rows.filter(pa.array(~late)), numbers[~late], times[~late]
    return _Arrived(rows, numbers, times, null_rows, late_rows, newest)


def _indexes(
    arrived: _Arrived, attributes: Attributes, stream: str, needed: Collection[str]
) -> Iterator[tuple[str, Sorted]]:
    for attribute, (owner, column) in enumerate(attributes.columns):
        name = attributes.index_of(attribute)
        if owner != stream or name not in needed:
            continue
        index = index_rows(arrived.rows.column(column), arrived.numbers, arrived.times)
        if index is not None:
            yield name, index


def index_rows(values: pa.Array, numbers: Keys, times: Times) -> Sorted | None:
    """The entries of an index for some rows; None if all values are null."""
    if values.null_count:
        valid = values.is_valid()
        mask = valid.to_numpy(zero_copy_only=False)
        values, numbers, times = values.filter(valid), numbers[mask], times[mask]
    if not len(numbers):
        return None
    keys = order_keys([values])
    order = sorted_order(keys)
    located = [pa.array(numbers[order].view(np.int64)), pa.array(times[order])]
    return Sorted(keys[order], pa.RecordBatch.from_arrays(located, [LOCATOR, AT]))
