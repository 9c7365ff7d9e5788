"""The columns of a table: the types in which they are joined, and the operations on key columns.

Every kind of table converts its rows to the types that Spark would give them, so a column means the same wherever the
table is stored: unsigned integers get the next wider type, dictionaries their values, times microseconds.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import TableError
from watersmeet.kernel.keys import drop_null_keys
from watersmeet.model.pages import PageIndex
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

_KEY_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


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


def table_schema(schema: pa.Schema) -> pa.Schema:
    """The columns in canonical types, all nullable."""
    return pa.schema([pa.field(field.name, table_type(field.type)) for field in schema])


def select_fields(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(column) for column in columns])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def conform(rows: pa.RecordBatch, schema: pa.Schema, label: str) -> pa.RecordBatch:
    """The columns of a schema, in its types; a column that the rows lack is null."""
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
    """Refuse columns that the table does not have, or has twice."""
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
    """Refuse keys that the table does not have, or whose type has no order."""
    check_columns(schema, keys, label)
    for key in keys:
        arrow = schema.field(key).type
        if not any(is_key_type(arrow) for is_key_type in _KEY_TYPES):
            raise TableError(
                f"{label}: the key {key} is of type {type_of_arrow(arrow)}; a key is a number, a text, a date, a "
                "timestamp, a boolean or binary: take another column, or convert this one"
            )


def normal_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """The key columns as SQL compares them: -0.0 is 0.0, every NaN is one NaN. The rows have no null keys."""
    return pa.RecordBatch.from_arrays([_normal(rows.column(key)) for key in keys], names=list(keys))


def _normal(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    floats = column.to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    floats[np.isnan(floats)] = np.nan
    return pa.array(floats, column.type)


def bounds(rows: pa.RecordBatch, keys: Sequence[str]) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
    """The smallest and the largest key of some rows, one row each; None if no row has a key."""
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
    order = key_order(found.columns)
    return found.take(pa.array(order[:1])), found.take(pa.array(order[-1:]))


def sort_keys(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Normal keys in ascending order, each once."""
    ordered = keys.take(pa.array(key_order(keys.columns)))
    return ordered.filter(pa.array(first_of_equals(ordered)))


def key_order(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """The order that sorts rows of these columns."""
    # By number: Arrow would take a name that begins with a dot for a path.
    names = [str(number) for number in range(len(columns))]
    rows = pa.RecordBatch.from_arrays(columns, names=names)
    return pc.sort_indices(rows, [(name, "ascending") for name in names]).to_numpy().astype(np.int64)


def first_of_equals(keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each row of normal keys whether it differs from the one before."""
    is_new = np.ones(keys.num_rows, np.bool_)
    if keys.num_rows > 1:
        each = np.ones(keys.num_rows, np.int64)
        # A page of one row continues if the next one has its key.
        is_new[1:] = ~PageIndex(tuple(keys.schema.names), keys, keys, each, each).continues[:-1]
    return is_new


def zero_key(kind: pa.DataType) -> pa.Array:
    """One value of a key's type: 0, false or empty."""
    # As long as the widest key type, and as two offsets of text.
    zeros = pa.py_buffer(bytes(16))
    return pa.Array.from_buffers(kind, 1, [None, *[zeros] * (kind.num_buffers - 1)])
