"""Read one file of an input into Arrow: the rows, types and nulls that Spark's own reader would give.

The types are those in which Spark hands rows to Python (`model/types.py`, with times in UTC), so a run does not tell
whether its rows came from a file or from a DataFrame. Rows come in batches of some megabytes, whatever the size of the
file. What Spark reads by guessing is refused with an error that names the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from watersmeet.errors import FileError
from watersmeet.file_inputs.csv import read_csv
from watersmeet.file_inputs.fit import find_fields, fit_columns
from watersmeet.file_inputs.json import read_json
from watersmeet.file_inputs.lines import read_lines
from watersmeet.file_inputs.parquet import Takes, read_parquet
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.spec import FileFormat
from watersmeet.file_inputs.unpack import is_mapped, open_arrow, open_parquet_file, open_text, reading_file
from watersmeet.file_inputs.where import Filter
from watersmeet.kernel.bounds import split
from watersmeet.model.types import type_of_arrow

# What a batch takes in memory, about: small beside a run, large beside the cost of a call.
BATCH_BYTES: Final = 16 << 20
# Rows of an Arrow file with dictionaries that are spelled out at a time: a value of a kilobyte in each makes 8 MB.
_DICTIONARY_ROWS: Final = 8_192
# Rows whose sizes are looked at together, some 20 bytes each.
_VIEW_ROWS: Final = 131_072
# Types without a text form that Spark and this reader agree on.
_NOT_IN_CSV: Final = (pa.types.is_nested, pa.types.is_duration)
_NOT_IN_JSON: Final = (pa.types.is_map, pa.types.is_duration, pa.types.is_binary)


def read_rows(
    place: Place,
    format: FileFormat,
    schema: pa.Schema,
    columns: Sequence[str],
    where: Filter | None = None,
    *,
    header: bool = False,
    zone: str = "UTC",
    batch_bytes: int = BATCH_BYTES,
    takes: Takes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that satisfy a condition, with these columns of the schema, in this order.

    `header` is for CSV. `zone` is the session's time zone, for times without one in text files: the name of a place,
    UTC or an offset such as +02:00 (`predicate.normal_zone`). `takes` says which row groups of a Parquet file are
    read.
    """
    what = repr(place)
    chosen = [_field(schema, name, what) for name in columns]
    more = [
        name for name in (where.columns if where is not None else ()) if name not in {f.name for f in chosen}
    ]
    read = pa.schema([*chosen, *(schema.field(name) for name in more)])
    with reading_file(place, format):
        for batch in _batches(place, format, schema, read, where, header, zone, batch_bytes, takes):
            rows = batch if where is None else where.rows(batch)
            if rows.num_rows:
                yield rows.select(list(range(len(chosen)))).rename_columns(list(columns))


def _field(schema: pa.Schema, name: str, what: str) -> pa.Field:
    place = find_fields(list(schema), [pa.field(name, pa.null())], "", what)[0]
    if place is None:
        raise FileError(f"{what}: there is no column {name}; the schema has {', '.join(schema.names)}")
    return schema.field(place)


def _batches(
    place: Place,
    format: FileFormat,
    schema: pa.Schema,
    read: pa.Schema,
    where: Filter | None,
    header: bool,
    zone: str,
    batch_bytes: int,
    takes: Takes | None,
) -> Iterator[pa.RecordBatch]:
    """The columns of `read`. Parquet skips row groups in which the condition cannot hold."""
    what = repr(place)
    match format:
        case FileFormat.PARQUET:
            with open_parquet_file(place) as parquet:
                yield from read_parquet(parquet, read, where, what, batch_bytes, takes)
        case FileFormat.ARROW:
            yield from _arrow_batches(place, read, what, batch_bytes)
        case FileFormat.CSV:
            check_text_types(format, read, what)
            with open_text(place) as stream:
                lines = read_lines(stream, what, batch_bytes)
                yield from read_csv(lines, schema, read, what, header=header, zone=zone)
        case FileFormat.JSON:
            check_text_types(format, read, what)
            with open_text(place) as stream:
                yield from read_json(read_lines(stream, what, batch_bytes), read, what, zone=zone)


def _arrow_batches(place: Place, read: pa.Schema, what: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    with open_arrow(place) as reader:
        found = find_fields(list(reader.schema), list(read), "", what)
        # Without any field Arrow would read them all; one tells how many rows there are.
        present = sorted(number for number in found if number is not None) or [0]
    mapped = is_mapped(place)
    # Of a mapped file what is not used is not read; Arrow would copy the fields that it is asked for.
    with open_arrow(place, None if mapped else present) as reader:
        stored = (reader.get_batch(number) for number in range(reader.num_record_batches))
        if mapped:
            stored = (batch.select(present) for batch in stored)
        for batch in split(_stepwise(stored), batch_bytes):
            for rows in split([fit_columns(batch, read, what)], batch_bytes):
                # Copied before the file is compared with what was taken: it may be mapped, and be written to later.
                yield pa.ipc.read_record_batch(rows.serialize(), rows.schema)


def _stepwise(stored: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Views of few rows. Of batches with dictionaries very few: spelled out, they may be much larger."""
    for batch in stored:
        spelled = any(map(pa.types.is_dictionary, batch.schema.types))
        rows = _DICTIONARY_ROWS if spelled else _VIEW_ROWS
        yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def check_text_types(format: FileFormat, schema: pa.Schema, what: str) -> None:
    """Refuse columns of types that are not read from text."""
    refused = _NOT_IN_CSV if format is FileFormat.CSV else _NOT_IN_JSON
    for field in schema:
        for kind in _kinds(field.type):
            if any(is_kind(kind) for is_kind in refused):
                raise FileError(
                    f"{what}: column {field.name} is of type {type_of_arrow(field.type)}, which is not "
                    f"read from {format} "
                    "files: leave it out with columns=, read it as STRING, or pass the input as a DataFrame"
                )


def _kinds(kind: pa.DataType) -> Iterator[pa.DataType]:
    """A type and those inside it."""
    yield kind
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _kinds(field.type)
    elif pa.types.is_list(kind):
        yield from _kinds(kind.value_type)
