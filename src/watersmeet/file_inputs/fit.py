"""Fit the columns of a file into the columns of a schema, as Spark's Parquet reader does.

Columns and fields of structs are found by name, without regard to case; one that the file lacks is null. A type is
widened where Spark widens it and the values stay the same:

    tinyint, smallint, int                any wider integer, double, a decimal with 10 digits before the point
    bigint                                a decimal with 20 digits before the point
    float                                 double
    decimal(p, s)                         a decimal with as many digits before and behind the point
    date                                  timestamp_ntz, at midnight
    timestamp, timestamp_ntz              each other: the same number of microseconds since 1970
    string, binary                        each other
    a column of nulls                     any

Spark also narrows int to smallint and tinyint, and wraps around. Here a value that does not fit is an error. Everything
else is an error in Spark too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import FileError
from watersmeet.model.types import type_of_arrow

# Digits before the point that a decimal needs to hold every value of an integer, as Spark counts them.
_INT_DIGITS: Final = 10
_BIGINT_DIGITS: Final = 20

_SMALL_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())
_MICROS: Final = pa.timestamp("us")

# Takes a column that is not nested and the type to give it; None if that type cannot hold it.
FitValue = Callable[[pa.Array, pa.DataType], "pa.Array | None"]


def fit_columns(rows: pa.RecordBatch, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """The columns of a schema from the rows of a file; `what` names the file in messages."""
    places = find_fields(rows.schema, schema, "", what)
    columns = [
        pa.nulls(rows.num_rows, field.type)
        if place is None
        else fit(rows.column(place), field.type, field.name, what)
        for field, place in zip(schema, places, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def find_fields(
    found: Sequence[pa.Field], wanted: Sequence[pa.Field], path: str, what: str
) -> list[int | None]:
    """Where each wanted field is among those found; None if it is missing."""
    places: dict[str, list[int]] = {}
    for place, field in enumerate(found):
        places.setdefault(field.name.lower(), []).append(place)
    result: list[int | None] = []
    for field in wanted:
        same = places.get(field.name.lower(), [])
        if len(same) > 1:
            names = " and ".join(f"{path}{found[place].name}" for place in same)
            raise FileError(
                f"{what} has the columns {names}, which differ in letter case only: rename one, or rewrite the file"
            )
        result.append(same[0] if same else None)
    return result


def fit(
    column: pa.Array, wanted: pa.DataType, path: str, what: str, fit_value: FitValue | None = None
) -> pa.Array:
    """A column in another type; `path` names it in messages. `fit_value` converts the values, by default as above."""
    if column.type == wanted:
        return column
    if isinstance(column, pa.ExtensionArray):
        return fit(column.storage, wanted, path, what, fit_value)
    if pa.types.is_dictionary(column.type):
        return fit(column.dictionary_decode(), wanted, path, what, fit_value)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), wanted)
    if pa.types.is_nested(wanted) or pa.types.is_nested(column.type):
        return _fit_nested(column, wanted, path, what, fit_value)
    try:
        fitted = (fit_value or widened)(column, wanted)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise FileError(
            f"{_both(column, wanted, path, what)} because of its values: {error}. Give the column a wider type in "
            "schema=, or rewrite the file"
        ) from error
    if fitted is None:
        raise FileError(
            f"{_both(column, wanted, path, what)}. Give the column a type in schema= that holds all "
            "files, or rewrite the "
            "file"
        )
    return fitted


def _both(column: pa.Array, wanted: pa.DataType, path: str, what: str) -> str:
    return (
        f"{what}: column {path} is of type {type_of_arrow(column.type)} in this file and cannot be read as "
        f"{type_of_arrow(wanted)}"
    )


def _fit_nested(
    column: pa.Array, wanted: pa.DataType, path: str, what: str, fit_value: FitValue | None
) -> pa.Array:
    kind = column.type
    # Without an offset: the parts below are taken from the whole array.
    column = pa.concat_arrays([column])
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        parts = column.flatten()
        fields = [
            pa.nulls(len(column), field.type)
            if place is None
            else fit(parts[place], field.type, f"{path}.{field.name}", what, fit_value)
            for field, place in zip(
                wanted, find_fields(list(kind), list(wanted), f"{path}.", what), strict=True
            )
        ]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=column.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        keys = fit(column.keys, wanted.key_type, f"{path}.key", what, fit_value)
        items = fit(column.items, wanted.item_type, f"{path}.value", what, fit_value)
        return pa.MapArray.from_arrays(column.offsets, keys, items, wanted, mask=column.is_null())
    if _is_list(kind) and pa.types.is_list(wanted):
        plain = column if pa.types.is_list(kind) else column.cast(pa.list_(kind.value_type))
        values = fit(plain.values, wanted.value_type, f"{path}.element", what, fit_value)
        return pa.ListArray.from_arrays(plain.offsets, values, type=wanted, mask=plain.is_null())
    raise FileError(
        f"{_both(column, wanted, path, what)}. Give the column the file's type in schema=, or rewrite the file"
    )


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def widened(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """A column that is not nested in another type; None if Spark does not read the one as the other."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(wanted) if _holds_integer(kind, wanted) else _fit_interval(column, wanted)
    if pa.types.is_duration(kind):
        return _fit_interval(column, wanted)
    if pa.types.is_floating(kind):
        wider = pa.types.is_floating(wanted) and wanted.bit_width >= kind.bit_width
        return column.cast(wanted) if wider else None
    if pa.types.is_decimal(kind):
        return column.cast(wanted) if _holds_decimal(kind, wanted) else None
    if pa.types.is_timestamp(kind):
        return _to_micros(column).view(wanted) if pa.types.is_timestamp(wanted) else None
    if pa.types.is_date(kind):
        as_moment = pa.types.is_timestamp(wanted) and wanted.tz is None
        return column.cast(wanted) if pa.types.is_date(wanted) or as_moment else None
    if _is_bytes(kind):
        fixed_text = pa.types.is_fixed_size_binary(kind) and pa.types.is_string(wanted)
        return column.cast(wanted) if _is_bytes(wanted) and not fixed_text else None
    return None


def _holds_integer(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(wanted):
        return kind in _SMALL_INTEGERS or (kind == pa.uint32() and wanted == pa.int64())
    if kind == pa.uint64():
        return bool(wanted == pa.decimal128(_BIGINT_DIGITS, 0))
    if pa.types.is_decimal(wanted):
        needed = _INT_DIGITS if kind in _SMALL_INTEGERS else _BIGINT_DIGITS
        return kind != pa.uint32() and wanted.precision - wanted.scale >= needed
    return kind in _SMALL_INTEGERS and wanted == pa.float64()


def _holds_decimal(kind: pa.DataType, wanted: pa.DataType) -> bool:
    return (
        pa.types.is_decimal(wanted)
        and wanted.scale >= kind.scale
        and wanted.precision - wanted.scale >= kind.precision - kind.scale
    )


def _fit_interval(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """Spark stores an interval as a bigint of microseconds; Arrow may read a bigint as a duration of its own unit."""
    if column.type == pa.int64() and wanted == pa.duration("us"):
        return column.view(wanted)
    if pa.types.is_duration(column.type) and wanted == pa.int64():
        return column.view(wanted)
    if pa.types.is_duration(column.type) and wanted == pa.duration("us"):
        return column.cast(wanted)
    return None


def _is_bytes(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_large_string,
            pa.types.is_large_binary,
            pa.types.is_string_view,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )


def _to_micros(column: pa.Array) -> pa.Array:
    """Microseconds since 1970 without a zone. Nanoseconds are cut off downwards, as Spark cuts those of INT96."""
    if column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    # Casting drops the zone only if the unit differs; the numbers are the same with any zone.
    return column.cast(pa.timestamp("us", column.type.tz)).view(_MICROS)
