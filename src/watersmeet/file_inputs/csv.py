"""One CSV file, as Spark reads it with its default options.

A line is a row. Values are separated by commas and may be in double quotes, in which a backslash escapes a quote and
a backslash. A value that is empty, quoted or not, is null. Blanks belong to their value. With a header the first line
has the names of the columns, which must be those of the schema: Spark takes columns by place and ignores the names.

Spark reads many files that are not well-formed, and guesses. Here a row with too few or too many values, a quote inside
a value, and a value that does not fit its column are errors that name the line.

How it works. Quotes are resolved for a whole block at a time: bytes between quotes are found by counting quotes, commas
outside of them become a separator that is not in the block, quotes and escapes are dropped. The rest needs no quotes,
and Arrow splits it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from watersmeet.errors import FileError
from watersmeet.file_inputs.lines import Lines, Malformed, parse_lines
from watersmeet.file_inputs.text_values import Unreadable, parse_texts

_COMMA, _QUOTE, _BACKSLASH, _NEW_LINE = b',"\\\n'
# Control characters, of which one that is not in a block can separate its values. Not those that end lines.
_SEPARATORS: Final = b"\x1f\x1e\x1d\x1c\x01\x02\x03\x04\x05\x06\x07\x0e\x0f\x10"
# What Arrow begins its messages with: the number is that of a row in a block.
_ROW_NUMBER: Final = re.compile(r"^CSV parse error: (Row #\d+: )?")


def read_csv(
    blocks: Iterable[Lines], given: pa.Schema, schema: pa.Schema, what: str, *, header: bool, zone: str
) -> Iterator[pa.RecordBatch]:
    """The columns of `schema` from a file whose columns are `given`."""

    def parse(lines: Lines) -> pa.RecordBatch:
        texts = _split(lines, given.names, schema.names)
        columns = []
        for field in schema:
            try:
                found = parse_texts(texts.column(field.name), field.type, zone)
            except Unreadable as error:
                raise Malformed(f"column {field.name}: {error}") from error
            assert found is not None, "checked by read_rows"
            columns.append(found)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    for place, lines in enumerate(blocks):
        if header and place == 0:
            _check_header(lines.part(0, 1), given.names, what)
            lines = lines.part(1, len(lines))
            if not len(lines):
                continue
        try:
            yield parse_lines(lines, parse, what, "read the column as STRING")
        except FileError:
            if not header and place == 0 and _is_header(lines.part(0, 1), given.names):
                raise FileError(
                    f"{what}, line 1 has the names of the columns, but is read as a row: give header=True"
                ) from None
            raise


def _is_header(line: Lines, names: list[str]) -> bool:
    try:
        return _same_names(_names_in(line), names)
    except Malformed:
        return False


def _names_in(line: Lines) -> list[str]:
    found = _split(line, None, None)
    return [str(value.as_py() or "") for value in (column[0] for column in found.columns)]


def _same_names(found: list[str], names: list[str]) -> bool:
    return [name.lower() for name in found] == [name.lower() for name in names]


def _check_header(line: Lines, names: list[str], what: str) -> None:
    try:
        written = _names_in(line)
    except Malformed as error:
        raise FileError(f"{what}, line {line.numbers[0]}, the header: {error}. Correct the file") from error
    if not _same_names(written, names):
        raise FileError(
            f"{what} has the columns {', '.join(written)} in its header, and schema= has "
            f"{', '.join(names)}. Columns are "
            "taken by their place: give them in the file's order and under its names"
        )


def _split(lines: Lines, names: list[str] | None, wanted: list[str] | None) -> pa.RecordBatch:
    """The values of some lines as texts, empty ones as null. Without `names` the line says how many there are."""
    content, separator = _without_quotes(lines)
    if names is None:
        names = [str(place) for place in range(int(np.count_nonzero(content == separator)) + 1)]
    elif len(names) > 1 and _has_empty_line(content):
        # Arrow would take it for a row of nulls.
        raise Malformed(f"Expected {len(names)} columns, got 1")
    try:
        found = csv.read_csv(
            pa.BufferReader(pa.py_buffer(content)),
            read_options=csv.ReadOptions(
                column_names=names, use_threads=False, block_size=max(1, len(content) + 1)
            ),
            parse_options=csv.ParseOptions(
                delimiter=chr(separator),
                quote_char=False,
                double_quote=False,
                newlines_in_values=False,
                # A line of one empty value in quotes is empty by now.
                ignore_empty_lines=False,
            ),
            convert_options=csv.ConvertOptions(
                include_columns=wanted or names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowInvalid as error:
        raise Malformed(_ROW_NUMBER.sub("", str(error))) from error
    return found.combine_chunks().to_batches()[0]


def _has_empty_line(content: npt.NDArray[np.uint8]) -> bool:
    ends = content == _NEW_LINE
    return bool(ends[0] or (ends[1:] & ends[:-1]).any())


def _without_quotes(lines: Lines) -> tuple[npt.NDArray[np.uint8], int]:
    """The lines without quotes around values, and the byte that separates their values."""
    content = lines.content
    quotes = np.flatnonzero(content == _QUOTE)
    if not len(quotes):
        return content, _COMMA
    present = np.bincount(content, minlength=256)
    separator = next((byte for byte in _SEPARATORS if not present[byte]), None)
    if separator is None:
        raise Malformed("it has too many kinds of control characters")
    ranks = _backslash_ranks(content) if present[_BACKSLASH] else None
    # An odd number of backslashes stands before a quote that is escaped.
    escaped = np.zeros(len(quotes), np.bool_) if ranks is None else ranks[quotes] % 2 == 1
    real = quotes[~escaped]
    inside = _between(content, real, lines.ends)
    if not inside[quotes[escaped]].all():
        raise Malformed("a quote is inside a value that does not begin with one")
    split = np.where((content == _COMMA) & ~inside, np.uint8(separator), content)
    kept = np.ones(len(content), np.bool_)
    kept[real] = False
    if ranks is not None:
        followed = np.isin(content[1:], (_BACKSLASH, _QUOTE))
        escapes = (content[:-1] == _BACKSLASH) & (ranks[:-1] % 2 == 0) & followed & inside[:-1]
        kept[:-1] &= ~escapes
    return split[kept], separator


def _backslash_ranks(content: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """For each byte the number of backslashes directly before it."""
    other = np.where(content != _BACKSLASH, np.arange(len(content)), -1)
    last_other = np.concatenate([[-1], np.maximum.accumulate(other)[:-1]])
    return np.arange(len(content)) - last_other - 1


def _between(
    content: npt.NDArray[np.uint8], real: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """For each byte whether it is between quotes; the first of two quotes counts, the second does not."""
    line = np.searchsorted(ends, real)
    rank = np.arange(len(real)) - np.searchsorted(line, line)
    opening, closing = real[rank % 2 == 0], real[rank % 2 == 1]
    if len(opening) != len(closing) or (line[rank % 2 == 0] != line[rank % 2 == 1]).any():
        raise Malformed("a quote is not closed; values cannot go on in the next line")
    before = np.where(opening > 0, content[opening - 1], _NEW_LINE)
    if (
        not np.isin(before, (_COMMA, _NEW_LINE)).all()
        or not np.isin(content[closing + 1], (_COMMA, _NEW_LINE)).all()
    ):
        raise Malformed('a quote is inside a value; escape it with a backslash, as in "a \\"b\\" c"')
    steps = np.zeros(len(content) + 1, np.int8)
    steps[opening] = 1
    steps[closing] = -1
    return np.cumsum(steps[:-1], dtype=np.int8).astype(np.bool_)
