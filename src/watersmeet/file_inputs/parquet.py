"""One Parquet file: its columns as Spark would infer them, and its rows in batches of bounded size.

The types come from the schema that Spark leaves in the footer, if it wrote the file, otherwise from the physical and
logical types of the columns. What other writers leave there for themselves is passed over: Arrow reads a column of its
durations as such, Spark as the numbers that are stored.

Old calendars. Until version 3 Spark counted days in the Julian calendar before 15 October 1582, and moments before 1900
may be off by minutes. A file says so in its metadata, and Spark converts such values. Here a file with such values is
refused; in a file with later values only both calendars agree.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.errors import FileError, UsageError
from watersmeet.file_inputs.ddl import schema_of_struct
from watersmeet.file_inputs.fit import find_fields, fit_columns
from watersmeet.file_inputs.spark_types import spark_type
from watersmeet.file_inputs.where import Filter
from watersmeet.kernel.bounds import coalesce

_BATCH_ROWS: Final = 131_072
# A value that a dictionary holds once may be in every row, and the file does not say how often: 100 bytes of it can
# become gigabytes. Columns with a dictionary of texts are read in steps, each as long as the last one allows. So what
# is read at once exceeds the bound only where values become longer all of a sudden, by the rows of one step. Steps are
# put together again: 8,192 rows a step take a tenth longer to read than 131,072.
_FIRST_ROWS: Final = 1_024
_STEP_ROWS: Final = 8_192

_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION: Final = b"org.apache.spark.version"
_LEGACY_DATES: Final = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96: Final = b"org.apache.spark.legacyINT96"
# The first versions that write dates and moments, and INT96, in the calendar of today.
_NEW_DATES: Final = (3, 0)
_NEW_INT96: Final = (3, 1)
# From here on both calendars agree: the first day of the Gregorian calendar, and the last moment at which some zone's
# offset differed between Java's two calendars.
_FIRST_DAY: Final = datetime.date(1582, 10, 15)
_FIRST_MOMENT: Final = datetime.datetime(1900, 1, 1)

_OF_ANY_LENGTH: Final = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_TEXTS: Final = ("STRING", "ENUM", "JSON")
# Logical types that Spark's reader refuses, and so does this one.
_REFUSED: Final = ("INTERVAL", "UUID", "FLOAT16", "GEOMETRY", "GEOGRAPHY", "VARIANT", "TIME")
_UTC: Final = pa.timestamp("us", "UTC")

# (row group, number of row groups) -> whether the row group belongs to the part of the file that a task reads.
Takes = Callable[[int, int], bool]


def schema_of_parquet(parquet: pq.ParquetFile, what: str) -> pa.Schema:
    """The columns that Spark would infer for a file, in canonical types; a UsageError for one that cannot be read."""
    metadata = parquet.metadata.metadata or {}
    if _SPARK_SCHEMA in metadata:
        return schema_of_struct(json.loads(metadata[_SPARK_SCHEMA]), what)
    leaves = (parquet.schema.column(place) for place in range(len(parquet.schema.names)))
    return pa.schema([_infer(field, field.name, leaves, what) for field in parquet.schema_arrow])


def _infer(field: pa.Field, path: str, leaves: Iterator[Any], what: str) -> pa.Field:
    """A field in the type that Spark infers. The leaves of the file's schema are those of Arrow's, in order."""
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.field(
            field.name, pa.struct([_infer(part, f"{path}.{part.name}", leaves, what) for part in kind])
        )
    if pa.types.is_map(kind):
        key, item = (_infer(part, path, leaves, what) for part in (kind.key_field, kind.item_field))
        return pa.field(field.name, pa.map_(key.type, item.type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.field(field.name, pa.list_(_infer(kind.value_field, path, leaves, what).type))
    return pa.field(field.name, _infer_value(kind, path, next(leaves), what))


def _infer_value(kind: pa.DataType, path: str, leaf: Any, what: str) -> pa.DataType:
    logical = leaf.logical_type.type
    if logical in _REFUSED:
        raise UsageError(f"{what}: column {path} is of type {logical}, which Spark does not read")
    if leaf.physical_type == "INT96":
        return _UTC
    if pa.types.is_null(kind) and leaf.physical_type == "INT32":
        # A column of nulls alone: Arrow writes it as integers.
        return pa.int32()
    if leaf.physical_type == "BYTE_ARRAY" and logical in _TEXTS:
        return pa.string()
    if pa.types.is_duration(kind):
        return pa.int64()
    return spark_type(kind, path, what)


def read_parquet(
    parquet: pq.ParquetFile,
    schema: pa.Schema,
    where: Filter | None,
    what: str,
    batch_bytes: int,
    takes: Takes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns of a schema, row group by row group, in batches of about `batch_bytes`."""
    found = parquet.schema_arrow
    places = find_fields(list(found), list(schema), "", what)
    present = [found.field(place).name for place in places if place is not None]
    legacy = _legacy(parquet)
    for group in row_groups(parquet, schema, where, takes):
        facts = parquet.metadata.row_group(group)
        if not present:
            yield from _without_columns(facts.num_rows, schema)
            continue
        rows = _rows_together(facts, present, batch_bytes)
        in_steps = _repeats_texts(facts, present)
        # One thread: the tasks of a batch use all cores already.
        stored = parquet.iter_batches(
            min(rows, _FIRST_ROWS) if in_steps else rows,
            row_groups=[group],
            columns=present,
            use_threads=False,
        )
        fitting = _fitting(stored, schema, legacy, what)
        if in_steps:
            fitting = coalesce(_in_steps(fitting, parquet, batch_bytes), _BATCH_ROWS, batch_bytes)
        yield from fitting


def _fitting(
    stored: Iterator[pa.RecordBatch], schema: pa.Schema, legacy: tuple[bool, bool], what: str
) -> Iterator[pa.RecordBatch]:
    for batch in stored:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _refuse_old(name, column, legacy, what)
        yield fit_columns(batch, schema, what)


def _in_steps(
    batches: Iterator[pa.RecordBatch], parquet: pq.ParquetFile, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The same batches; the next one has as many rows as `batch_bytes` hold, by the last one."""
    for batch in batches:
        held = batch_bytes * batch.num_rows // max(1, batch.nbytes)
        # Arrow asks for the size before each batch.
        parquet.reader.set_batch_size(max(1, min(_STEP_ROWS, held)))
        yield batch


def row_groups(
    parquet: pq.ParquetFile, schema: pa.Schema, where: Filter | None, takes: Takes | None = None
) -> list[int]:
    """The row groups that this task takes, that have rows, and in which the condition can hold."""
    facts = [parquet.metadata.row_group(group) for group in range(parquet.metadata.num_row_groups)]
    return [
        group
        for group, fact in enumerate(facts)
        if fact.num_rows
        and (takes is None or takes(group, len(facts)))
        and (where is None or where.can_hold(_bounds(fact, schema, where)))
    ]


def _without_columns(rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a file that has none of the columns."""
    for first in range(0, rows, _BATCH_ROWS):
        columns = [pa.nulls(min(_BATCH_ROWS, rows - first), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows_together(facts: pq.RowGroupMetaData, present: Sequence[str], batch_bytes: int) -> int:
    size = sum(column.total_uncompressed_size for column in _chunks(facts, present))
    return max(1, min(_BATCH_ROWS, batch_bytes * facts.num_rows // max(1, size)))


def _repeats_texts(facts: pq.RowGroupMetaData, present: Sequence[str]) -> bool:
    """Whether rows may be much larger than what is stored of them."""
    return any(
        column.has_dictionary_page and column.physical_type in _OF_ANY_LENGTH
        for column in _chunks(facts, present)
    )


def _chunks(facts: pq.RowGroupMetaData, present: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    """What a row group stores of these columns."""
    for place in range(facts.num_columns):
        column = facts.column(place)
        if column.path_in_schema.split(".")[0] in present or column.path_in_schema in present:
            yield column


def _bounds(facts: pq.RowGroupMetaData, schema: pa.Schema, where: Filter) -> dict[str, tuple[Any, Any]]:
    """The smallest and the largest value of the columns of a condition, where statistics tell them."""
    # A dot may be in the name of a column, or stand before a field of a struct.
    wanted = {name.lower(): name for name in where.columns if "." not in name}
    bounds = {}
    for place in range(facts.num_columns):
        column = facts.column(place)
        name = wanted.get(column.path_in_schema.lower())
        if name is None or not column.is_stats_set or not column.statistics.has_min_max:
            continue
        kind = schema.field(name).type
        try:
            ends = [pa.scalar(end, kind).as_py() for end in (column.statistics.min, column.statistics.max)]
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            # Of another type than the schema's, or beyond what Python can express: the row group is read.
            continue
        bounds[name] = (ends[0], ends[1])
    return bounds


def _legacy(parquet: pq.ParquetFile) -> tuple[bool, bool]:
    """Whether a file holds dates and moments, and INT96, in Spark's old calendar."""
    metadata = parquet.metadata.metadata or {}
    written = re.match(rb"(\d+)\.(\d+)", metadata.get(_SPARK_VERSION, b""))
    version = (int(written[1]), int(written[2])) if written else None
    old_dates = version is not None and version < _NEW_DATES
    old_int96 = version is not None and version < _NEW_INT96
    return old_dates or _LEGACY_DATES in metadata, old_int96 or _LEGACY_INT96 in metadata


def _refuse_old(name: str, column: pa.Array, legacy: tuple[bool, bool], what: str) -> None:
    """Refuse values for which the calendars differ, in a file of the old one."""
    old_dates, old_int96 = legacy
    if not (old_dates or old_int96):
        return
    for path, leaf in _leaves(name, column):
        if pa.types.is_date(leaf.type):
            early = old_dates and _before(leaf.cast(pa.date32()), _FIRST_DAY)
        elif pa.types.is_timestamp(leaf.type):
            # Arrow gives INT96 no zone, and no file of the old calendar has other moments without one.
            applies = old_int96 if leaf.type.tz is None else old_dates
            micros = leaf.cast(pa.timestamp("us", leaf.type.tz), safe=False).view(pa.timestamp("us"))
            early = applies and _before(micros, _FIRST_MOMENT)
        else:
            early = False
        if early:
            raise FileError(
                f"{what}: column {path} holds dates before 1582 or times before 1900 in the calendar of "
                "Spark 2, which is "
                "not converted here. Read the file with spark.read and write it again, or pass the input as a DataFrame"
            )


def _leaves(path: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_struct(column.type):
        for field, part in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", part)
    elif pa.types.is_map(column.type):
        yield from _leaves(f"{path}.key", column.keys)
        yield from _leaves(f"{path}.value", column.items)
    elif pa.types.is_list(column.type):
        yield from _leaves(f"{path}.element", column.flatten())
    else:
        yield path, column


def _before(column: pa.Array, first: datetime.date) -> bool:
    return bool(pc.any(pc.less(column, pa.scalar(first, column.type))).as_py())
