"""Read the rows of a hub's stream whose columns may have changed since they were stored (hubs/changes.py)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import FULL_RANGE, KeyRange, Run
from watersmeet.model.signature import StoredColumn
from watersmeet.model.types import arrow_of, parse_type


def read_columns(
    reader: RunReader, run: Run, range_: KeyRange, wanted: Sequence[StoredColumn]
) -> dict[int, Sorted]:
    """The rows of a run within a key range. A column that it has not, or with another type, is null."""
    stored = reader.schema(run)
    kinds = {one.name: arrow_of(parse_type(one.type)) for one in wanted}
    fitting = tuple(
        name
        for name, kind in kinds.items()
        if name in stored.names and kind in (None, stored.field(name).type)
    )
    found = reader.read(run, range_, fitting)
    if len(fitting) == len(kinds):
        return found
    return {number: Sorted(part.keys, _filled(part.rows, kinds)) for number, part in found.items()}


def whole_runs(reader: RunReader, runs: Sequence[Run], wanted: Sequence[StoredColumn]) -> list[Sorted]:
    """All rows of some runs."""
    return [read_columns(reader, run, FULL_RANGE, wanted)[0] for run in runs]


def _filled(rows: pa.RecordBatch, kinds: dict[str, pa.DataType | None]) -> pa.RecordBatch:
    columns = {
        name: rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows, kind or pa.null())
        for name, kind in kinds.items()
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
