"""The columns of a table: in which types they are joined, and which of them can be keys.

Every source brings its rows into the types that Spark would give them, so that a column means the same wherever the
table is: unsigned integers get the next wider type, dictionaries their values, times microseconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.model.types import canonical_arrow, type_of_arrow

_PLAIN = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.time64("ns"): pa.time64("us"),
}


def table_type(arrow: pa.DataType) -> pa.DataType:
    """The canonical type in which a column of this type is joined.

    >>> table_type(pa.dictionary(pa.int8(), pa.large_string()))
    DataType(string)
    """
    if arrow in _PLAIN:
        return _PLAIN[arrow]
    if isinstance(arrow, pa.BaseExtensionType):
        return table_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow):
        return table_type(arrow.value_type)
    if pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if pa.types.is_decimal(arrow):
        return pa.decimal128(min(arrow.precision, 38), arrow.scale)
    if pa.types.is_duration(arrow):
        return pa.duration("us")
    if pa.types.is_map(arrow):
        return pa.map_(table_type(arrow.key_type), table_type(arrow.item_type))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return pa.list_(table_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, table_type(field.type)) for field in arrow])
    return canonical_arrow(arrow)


def conform(rows: pa.RecordBatch, schema: pa.Schema, label: str) -> pa.RecordBatch:
    """The columns of a schema, in its types; a column that these rows do not have is null."""
    columns = []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        columns.append(
            pa.nulls(rows.num_rows, field.type) if at < 0 else _cast(rows.column(at), field, label)
        )
    if not columns:
        return rows.select([])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, label: str) -> pa.Array:
    if column.type == field.type:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), field.type)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    try:
        # Times are cut to microseconds as Spark does; anything else that does not fit is an error.
        return column.cast(field.type, safe=not pa.types.is_temporal(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{label}: column {field.name} of type {column.type} cannot be read as {type_of_arrow(field.type)}: "
            f"{error}. Convert the column, or make a view without it"
        ) from error


def check_columns(schema: pa.Schema, columns: Sequence[str], label: str) -> None:
    """Refuse columns that are not there."""
    for column in columns:
        found = schema.names.count(column)
        if found > 1:
            raise TableError(f"{label} has {found} columns named {column}: rename them")
        if not found:
            close = difflib.get_close_matches(column.lower(), [name.lower() for name in schema.names], n=1)
            guess = next((name for name in schema.names if [name.lower()] == close), None)
            hint = f"; did you mean {guess}?" if guess else f"; its columns are {', '.join(schema.names)}"
            raise TableError(f"{label} has no column {column}{hint}")


def check_keys(schema: pa.Schema, keys: Sequence[str], label: str) -> None:
    """Refuse keys that are not there or have no order."""
    check_columns(schema, keys, label)
    for key in keys:
        arrow = schema.field(key).type
        if not _can_be_key(arrow):
            raise TableError(
                f"{label}: the key {key} is of type {type_of_arrow(arrow)}; a key is a number, a text, a date, a "
                "timestamp, a boolean or binary: take another column, or convert this one"
            )


def _can_be_key(arrow: pa.DataType) -> bool:
    return (
        pa.types.is_boolean(arrow)
        or pa.types.is_integer(arrow)
        or pa.types.is_floating(arrow)
        or pa.types.is_decimal(arrow)
        or pa.types.is_date32(arrow)
        or pa.types.is_timestamp(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_binary(arrow)
    )


def normal_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """The key columns as SQL compares them: -0.0 is 0.0, every NaN is one NaN. There are no nulls."""
    return pa.RecordBatch.from_arrays([_normal(rows.column(key)) for key in keys], names=list(keys))


def _normal(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    floats = column.to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    floats[np.isnan(floats)] = np.nan
    return pa.array(floats, column.type)


def bounds(rows: pa.RecordBatch, keys: Sequence[str]) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
    """The smallest and the largest key of some rows, as a row each; None if no row has a key."""
    found = normal_keys(drop_null_keys(rows, keys), keys)
    if not found.num_rows:
        return None
    if len(keys) == 1 and not pa.types.is_floating(found.column(0).type):
        ends = pc.min_max(found.column(0))
        low, high = (
            pa.RecordBatch.from_arrays([pa.array([ends[end]], found.column(0).type)], names=list(keys))
            for end in ("min", "max")
        )
        return low, high
    order = pc.sort_indices(pa.Table.from_batches([found]), [(key, "ascending") for key in keys])
    return found.take(order.slice(0, 1)), found.take(order.slice(len(order) - 1, 1))
