"""The canonical type for a column of any Arrow type (`model/types.py`): what Spark would hand to Python for it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.model.types import MAX_DECIMAL_DIGITS
from watersmeet.tables.columns import table_type

_READABLE: Final = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_floating,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_duration,
)


def spark_schema(schema: pa.Schema, what: str) -> pa.Schema:
    """Columns of any Arrow types in canonical ones; `what` names them in messages."""
    return pa.schema([pa.field(field.name, spark_type(field.type, field.name, what)) for field in schema])


def spark_type(arrow: pa.DataType, path: str, what: str) -> pa.DataType:
    """The canonical type for a column of an Arrow type: Spark has no unsigned integers, nanoseconds or dictionaries."""
    if pa.types.is_struct(arrow):
        return pa.struct(
            [pa.field(field.name, spark_type(field.type, f"{path}.{field.name}", what)) for field in arrow]
        )
    if pa.types.is_map(arrow):
        return pa.map_(spark_type(arrow.key_type, path, what), spark_type(arrow.item_type, path, what))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return pa.list_(spark_type(arrow.value_type, path, what))
    too_long = pa.types.is_decimal(arrow) and not 0 <= arrow.scale <= arrow.precision <= MAX_DECIMAL_DIGITS
    found = table_type(arrow)
    if too_long or not any(is_readable(found) for is_readable in _READABLE):
        raise UsageError(
            f"{what}: column {path} is of type {arrow}, which cannot be joined: give another type, or leave the column "
            "out"
        )
    return found
