"""One file of JSON lines, as Spark reads it with its default options.

A line is an object, and a row. Fields are found by their exact names; one that is missing is null, others are passed
over. Dates and times are texts, decimals numbers or texts.

Arrow parses more than one object in a line, and objects over several lines; Spark reads the first, or null. Both are
refused: every line begins with `{` and ends with `}`, so no object goes over a line end, and there are as many rows as
lines. Values that do not fit their column are errors that name the line. Spark reads null, or the text of a number or
an object for a STRING. Maps and binary values are refused: Arrow does not read them from objects and base64.
One difference is left: an integer `-0` in a float column is -0.0 here, and 0.0 in Spark. SQL takes both for equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import json

from watersmeet.file_inputs.fit import fit
from watersmeet.file_inputs.lines import Lines, Malformed, parse_lines
from watersmeet.file_inputs.text_values import WIDE_DECIMAL, Unreadable, parse_texts, round_decimals

_OPEN, _CLOSE = b"{}"
_BLANK: Final = 32


def read_json(
    blocks: Iterable[Lines], schema: pa.Schema, what: str, *, zone: str
) -> Iterator[pa.RecordBatch]:
    """The columns of a schema."""
    carrier = pa.schema([pa.field(field.name, _carrier(field.type)) for field in schema])
    names_of_floats = sorted(set(_float_names(pa.struct(list(schema)))))
    not_finite = _not_finite_pattern(names_of_floats)

    def fit_value(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
        if pa.types.is_decimal(wanted):
            return round_decimals(column, wanted)
        return parse_texts(column, wanted, zone)

    def parse(lines: Lines) -> pa.RecordBatch:
        rows = _objects(lines, carrier, not_finite)
        try:
            columns = [
                fit(rows.column(place), field.type, field.name, what, fit_value)
                for place, field in enumerate(schema)
            ]
        except Unreadable as error:
            raise Malformed(str(error)) from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    for lines in blocks:
        yield parse_lines(lines, parse, what, "give the column another type in schema=")


def _carrier(kind: pa.DataType) -> pa.DataType:
    """The type in which Arrow reads a column: what it reads otherwise than Spark stays text, or wider."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _carrier(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_carrier(kind.value_type))
    if pa.types.is_decimal(kind):
        return WIDE_DECIMAL
    return pa.string() if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else kind


def _float_names(kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            if pa.types.is_floating(field.type):
                yield field.name
            else:
                yield from _float_names(field.type)
    elif pa.types.is_list(kind):
        yield from _float_names(kind.value_type)


def _not_finite_pattern(names: list[str]) -> re.Pattern[bytes] | None:
    """Finds `"x": "NaN"` for a float x: Spark writes and reads such numbers as text, Arrow reads them without quotes.

    No such text is inside a value: a quote there has a backslash before it.
    """
    if not names:
        return None
    listed = b"|".join(re.escape(name.encode()) for name in names)
    return re.compile(rb'(?<!\\)("(?:' + listed + rb')"\s*:\s*)"(NaN|[+]?INF|[+]?Infinity|-INF|-Infinity)"')


def _objects(lines: Lines, schema: pa.Schema, not_finite: re.Pattern[bytes] | None) -> pa.RecordBatch:
    _check_shape(lines)
    content = lines.content.tobytes()
    if not_finite is not None and (b'"NaN"' in content or b'INF"' in content or b'Infinity"' in content):
        content = not_finite.sub(_bare, content)
    try:
        # Arrow does not check texts, and readers further on rely on it.
        content.decode()
        found = json.read_json(
            pa.BufferReader(content),
            read_options=json.ReadOptions(use_threads=False, block_size=len(content) + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error
    if found.num_rows != len(lines):
        raise Malformed("a line holds more than one object")
    return found.combine_chunks().to_batches()[0]


def _bare(match: re.Match[bytes]) -> bytes:
    return match[1] + match[2].lstrip(b"+").replace(b"INF", b"Infinity")


def _check_shape(lines: Lines) -> None:
    """Every line is one object, apart from blanks around it."""
    content, ends = lines.content, lines.ends
    visible = np.flatnonzero(content > _BLANK)
    starts = np.concatenate([[0], ends[:-1] + 1])
    first = content[visible[np.searchsorted(visible, starts)]]
    last = content[visible[np.searchsorted(visible, ends) - 1]]
    if (first != _OPEN).any() or (last != _CLOSE).any():
        raise Malformed("a line is not one JSON object")
