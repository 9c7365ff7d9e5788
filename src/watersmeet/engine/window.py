"""The window of a compiled join: the column of window times, their marks, and the reader of live rows.

The kernel tests a window over time pair by pair, unless all pairs of the batch are known to pass. A window over rows
needs no test: only history from the floor on is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.keys import Mask, whole_numbers
from watersmeet.kernel.rows import Keyed, Merged, Same, Sections, Sorted
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest, Run
from watersmeet.model.ranges import Ranges
from watersmeet.model.signature import StoredColumn
from watersmeet.model.types import BIGINT, Schema
from watersmeet.model.window import AT, FARTHEST, Window, over_time
from watersmeet.plan.window import all_within, reading_floors

if TYPE_CHECKING:
    # A worker compiles nothing, and loading the parser would take as long as all the rest of a task's imports.
    from watersmeet.engine.compile import Compiled


Times = npt.NDArray[np.int64]

# Shares into which a run's times are cut: the number of rows below a time is known to an eighth.
TIME_SHARES = 8
# Times sampled for the inner marks of one section. The smallest and the largest are exact.
_SAMPLE = 4096


def add_window(
    compiled: Compiled, window: Window, times: Mapping[str, str], schemas: Mapping[str, Schema]
) -> Compiled:
    """Put the join under a window. `times` names each input's time column, for a window over time."""
    at = StoredColumn(AT, str(BIGINT))
    inputs = tuple(
        replace(spec, stored=(*spec.stored, at), time=times.get(spec.input))
        for spec in compiled.signature.inputs
    )
    arriving = {
        name: tuple(
            column for column in schema if column in compiled.arriving[name] or column == times.get(name)
        )
        for name, schema in schemas.items()
    }
    signature = replace(compiled.signature, inputs=inputs, window=window)
    return replace(compiled, signature=signature, arriving=arriving)


def tested_width(manifest: Manifest) -> int | None:
    """The largest time difference of a pair; None if no pair of this batch needs the test."""
    window = manifest.signature.window
    return window.width if window and over_time(window) and not all_within(manifest) else None


@dataclass(frozen=True, slots=True)
class WindowReader:
    """Reads runs as `RunReader` does, but drops rows below the floor of their input.

    Only the few runs in which the floor lies are searched.
    """

    reader: RunReader
    floors: Mapping[str, int]

    def read(
        self, run: Run, range_: KeyRange, columns: tuple[str, ...], sections: Sequence[range] | None = None
    ) -> dict[int, Sorted]:
        found = self.reader.read(run, range_, columns, sections)
        floor = self.floors.get(run.input)
        return found if floor is None else from_floor(run, found, floor)

    def slices(
        self,
        run: Run,
        range_: KeyRange,
        columns: tuple[str, ...],
        sections: Sequence[range] | None = None,
        *,
        sort: bool = True,
    ) -> Iterator[Keyed]:
        found = self.reader.slices(run, range_, columns, sections, sort=sort)
        floor = self.floors.get(run.input)
        if floor is None or run.times[0] >= floor:
            return found
        kept = (_from(part, floor - run.base) for part in found)
        return (part for part in kept if len(part))

    def read_ahead(self, run: Run, ranges: Ranges, columns: tuple[str, ...]) -> None:
        self.reader.read_ahead(run, ranges, columns)


def reader_for(reader: RunReader, manifest: Manifest) -> RunReader | WindowReader:
    floors = reading_floors(manifest.signature.window, manifest.fresh, manifest.totals)
    return WindowReader(reader, floors) if floors else reader


def from_floor(run: Run, found: dict[int, Sorted], floor: int) -> dict[int, Sorted]:
    """The rows whose window time is at least `floor`, by section. Empty sections are left out."""
    if run.times[0] >= floor:
        return found
    kept = {number: _from(part, floor - run.base) for number, part in found.items()}
    return {number: part for number, part in kept.items() if len(part)}


def _from(part: Same, floor: int) -> Same:
    keep = np.flatnonzero(stored_times(part) >= floor)
    return part if len(keep) == len(part) else part.at(keep)


def stored_times(part: Keyed | Sections) -> Times:
    """The window times of the rows, in the order of their keys."""
    times: Times = part.rows.column(AT).to_numpy()
    return times[part.order] if isinstance(part, Merged) else times


def numbered(part: Sorted, base: int) -> Sorted:
    """The rows with `base` added to their stored window times."""
    if not base:
        return part
    place = part.rows.schema.get_field_index(AT)
    return Sorted(part.keys, part.rows.set_column(place, AT, pa.array(stored_times(part) + base)))


def window_times(column: pa.Array) -> tuple[Times, Mask | None]:
    """Timestamps, dates or integers as whole numbers, and a mask of the usable ones, None if all are.

    A null is not usable, nor a time so large that a difference might not fit 64 bits.
    """
    column, valid = whole_numbers(column), None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    times = column.to_numpy()
    if len(times) and (times.min() < -FARTHEST or times.max() > FARTHEST):
        near = (times >= -FARTHEST) & (times <= FARTHEST)
        valid = near if valid is None else valid & near
    return times, valid


def time_marks(parts: Sequence[Times]) -> tuple[int, ...]:
    """Times that cut the rows into equal shares, from the smallest to the largest. No part may be empty."""
    sampled = [part[:: max(1, len(part) // _SAMPLE)] for part in parts]
    times = np.sort(np.concatenate(sampled))
    marks = times[np.linspace(0, len(times) - 1, TIME_SHARES + 1).astype(int)].tolist()
    return (min(int(p.min()) for p in parts), *marks[1:-1], max(int(p.max()) for p in parts))
