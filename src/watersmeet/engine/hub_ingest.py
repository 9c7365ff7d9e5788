"""Ingest of a hub: a partition of a stream as one run in arrival order, and an index for each column that needs one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.engine.ingest import LEAST_CUT_BYTES, canonical_rows
from watersmeet.engine.window import window_times
from watersmeet.hubs.rows import row_numbers
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

    `at_us` is the time of the batch, for a stream without a column of times.
    """

    batch: int
    number: int
    needed: Collection[str]
    in_force: str
    at_us: int


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
    """Store a partition of a stream, and return its descriptor. Rows that no live query reads are only counted."""
    runs: list[Run] = []
    seen = absent_rows = null_rows = 0
    cut = split(incoming, max(run_bytes, LEAST_CUT_BYTES))
    for held in coalesce(cut, run_rows, run_bytes):
        first, seen = seen, seen + held.num_rows
        if stream not in part.needed:
            absent_rows += held.num_rows
            continue
        rows, numbers = _timed(held, time, part, first)
        null_rows += held.num_rows - rows.num_rows
        if not rows.num_rows:
            continue
        label = f"p{part.number:05d}-{len(runs):04d}"
        runs.append(write_run(files, stream, part.batch, label, Sorted(numbers, rows)))
        for name, index in _indexes(rows, numbers, attributes, stream, part.needed):
            runs.append(write_run(files, name, part.batch, label, index))
    return Descriptor(
        stream, part.number, tuple(runs), null_rows, absent_rows=absent_rows, table=part.in_force
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


def _timed(
    held: pa.RecordBatch, time: str | None, part: HubPartition, first: int
) -> tuple[pa.RecordBatch, Keys]:
    """The rows that have a time, with it as a column, and their numbers."""
    rows = canonical_rows(held)
    numbers = row_numbers(part.batch, part.number, first, rows.num_rows)
    if time is None:
        at = np.full(rows.num_rows, part.at_us, np.int64)
        return rows.append_column(AT, pa.array(at)), numbers
    times, taken = window_times(rows.column(time))
    rows = rows.append_column(AT, pa.array(times))
    return (rows, numbers) if taken is None else (rows.filter(pa.array(taken)), numbers[taken])


def _indexes(
    rows: pa.RecordBatch, numbers: Keys, attributes: Attributes, stream: str, needed: Collection[str]
) -> Iterator[tuple[str, Sorted]]:
    for attribute, (owner, column) in enumerate(attributes.columns):
        name = attributes.index_of(attribute)
        if owner != stream or name not in needed:
            continue
        values, mine = rows.column(column), numbers
        if values.null_count:
            valid = values.is_valid()
            values, mine = values.filter(valid), numbers[valid.to_numpy(zero_copy_only=False)]
        if not len(mine):
            continue
        keys = order_keys([values])
        order = sorted_order(keys)
        located = pa.array(mine[order].view(np.int64))
        yield name, Sorted(keys[order], pa.RecordBatch.from_arrays([located], [LOCATOR]))
