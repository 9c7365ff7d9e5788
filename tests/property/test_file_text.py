"""Text files under Hypothesis: lines, quotes, and values that come back as they were written."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.errors import FileError
from watersmeet.file_inputs.csv import read_csv
from watersmeet.file_inputs.json import read_json
from watersmeet.file_inputs.lines import Lines, read_lines
from watersmeet.file_inputs.text_values import Unreadable, parse_texts
from watersmeet.file_inputs.where import parse_where

# No line ends, no surrogates, no NUL. Half of the texts are of the characters that mean something.
TEXT = st.text(st.sampled_from('"\\,a'), max_size=6) | st.text(
    st.one_of(st.sampled_from(" \t\x1f{}:"), st.characters(exclude_categories=["Cs", "Cc"])), max_size=6
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def blocks(text: str) -> Iterator[Lines]:
    return read_lines(io.BytesIO(text.encode()), "f", 16)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(text: str) -> bool:
    return '"' not in text and "," not in text


@given(st.lists(st.tuples(st.text("ab \t", max_size=4), ENDS), max_size=12), st.integers(1, 9))
def test_lines_are_the_same_in_blocks_of_any_size(written, block):
    text = "".join(line + end for line, end in written)
    found = []
    for lines in read_lines(io.BytesIO(text.encode()), "f", block):
        found += zip(lines.numbers.tolist(), lines.content.tobytes().decode().split("\n")[:-1], strict=True)
    expected = io.StringIO(text, newline=None).read().split("\n")
    assert found == [(number, line) for number, line in enumerate(expected, 1) if line.strip()]


@given(st.lists(st.tuples(TEXT, TEXT, st.booleans()), min_size=1, max_size=6), ENDS)
def test_csv_values_come_back_as_they_were_written(rows, end):
    lines = [
        ",".join(value if plain(value) and not always else quoted(value) for value in (one, other))
        for one, other, always in rows
    ]
    schema = pa.schema({"a": pa.string(), "b": pa.string()})
    content = blocks(end.join(lines))
    found = [
        row
        for batch in read_csv(content, schema, schema, "f", header=False, zone="UTC")
        for row in batch.to_pylist()
    ]
    assert found == [{"a": one or None, "b": other or None} for one, other, _ in rows]


@given(st.text('ab",\\\n', max_size=12))
def test_csv_with_quotes_anywhere_is_read_or_refused(text):
    """Nothing but a FileError comes out, and never a quote that does not belong to a value."""
    schema = pa.schema({"a": pa.string()})
    try:
        rows = [
            row["a"] or ""
            for batch in read_csv(blocks(text), schema, schema, "f", header=False, zone="UTC")
            for row in batch.to_pylist()
        ]
    except FileError:
        return
    lines = [line for line in text.split("\n") if line.strip()]
    assert len(rows) == len(lines)
    for value, line in zip(rows, lines, strict=True):
        assert value == line or line.startswith('"')


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "i": st.none() | st.integers(-(2**31), 2**31 - 1),
                "x": st.none() | st.floats(),
                "s": st.none() | TEXT,
                "n": st.none()
                | st.fixed_dictionaries({}, optional={"l": st.lists(st.none() | st.booleans(), max_size=3)}),
            },
        ),
        min_size=1,
        max_size=5,
    )
)
def test_json_objects_come_back_as_they_were_written(rows):
    def written(value):
        if isinstance(value, dict):
            return {name: written(inner) for name, inner in value.items()}
        special = isinstance(value, float) and not np.isfinite(value)
        return ("NaN" if value != value else "Infinity" if value > 0 else "-Infinity") if special else value

    text = "\n".join(json.dumps(written(row)) for row in rows)
    kinds = {
        "i": pa.int32(),
        "x": pa.float64(),
        "s": pa.string(),
        "n": pa.struct({"l": pa.list_(pa.bool_())}),
    }
    schema = pa.schema(kinds)
    found = pa.Table.from_batches(read_json(blocks(text), schema, "f", zone="UTC"))
    assert found.equals(pa.Table.from_pylist(rows, schema)) or repr(found.to_pylist()) == repr(
        pa.Table.from_pylist(rows, schema).to_pylist()
    )


VALUES = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1), str),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1), "{:+d}".format),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False), repr),
    (pa.bool_(), st.booleans(), str),
    (pa.date32(), st.dates(), str),
    (pa.timestamp("us"), st.datetimes(), str),
    (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(datetime.timezone.utc)),
        datetime.datetime.isoformat,
    ),
]


@pytest.mark.parametrize("kind, values, shown", VALUES, ids=lambda value: str(value)[:20])
def test_values_come_back_from_their_texts(kind, values, shown):
    @given(st.lists(st.none() | values, max_size=5))
    def check(given_values):
        texts = pa.array([None if value is None else shown(value) for value in given_values], pa.string())
        assert parse_texts(texts, kind, "UTC").to_pylist() == given_values

    check()


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**8), max_value=10**8, places=6))
@example(Decimal("-0.005"))
@example(Decimal("0.0049999"))
def test_decimals_are_rounded_half_up(value):
    expected = value.quantize(Decimal("0.01"), ROUND_HALF_UP)
    found = parse_texts(pa.array([str(value)]), pa.decimal128(12, 2), "UTC")
    assert found.to_pylist() == [expected]


@given(st.text("0123456789+-.eExXfdNaInity T:Z", max_size=12), st.sampled_from([kind for kind, *_ in VALUES]))
def test_a_text_is_a_value_or_refused(text, kind):
    """Python's own parsers are the judges of numbers."""
    try:
        (found,) = parse_texts(pa.array([text]), kind, "UTC").to_pylist()
    except Unreadable:
        return
    if pa.types.is_integer(kind):
        assert found == int(text)
    elif pa.types.is_floating(kind):
        assert repr(found) == repr(float(text))


COMPARISONS = st.tuples(
    st.sampled_from(["=", "<", "<=", ">", ">=", "<>"]), st.integers(-3, 3), st.booleans()
).map(lambda part: f"k {part[0]} {part[1]}" if part[2] else f"{part[1]} {part[0]} k")
IN_LISTS = st.lists(st.integers(-3, 3), min_size=1, max_size=3).map(
    lambda v: f"k IN ({', '.join(map(str, v))})"
)
PARTS = COMPARISONS | IN_LISTS | COMPARISONS.map(lambda part: f"NOT ({part})")
# One part alone comes most often: beside others a wrong answer for it does not show.
CONDITIONS = st.tuples(st.lists(PARTS, min_size=1, max_size=3), st.sampled_from([" AND ", " OR "])).map(
    lambda whole: whole[1].join(whole[0])
)


@given(CONDITIONS, st.lists(st.none() | st.integers(-4, 4), min_size=1, max_size=4))
def test_bounds_never_rule_out_a_row_that_satisfies_a_condition(text, values):
    schema = pa.schema({"k": pa.int32()})
    where = parse_where(text, schema)
    kept = where.rows(pa.RecordBatch.from_pydict({"k": values}, schema)).num_rows
    known = [value for value in values if value is not None]
    bounds = {"k": (min(known), max(known))} if known else {}
    assert where.can_hold(bounds) or not kept
