"""The Arrow type in which a column is stored follows from its SQL type, however it arrives."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.model.types import SqlType, arrow_of, canonical_arrow, parse_type, type_of_arrow

ARRIVING = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32()),
    *(pa.timestamp("us", "Europe/Paris"), pa.timestamp("us"), pa.decimal128(9, 2), pa.decimal128(38, 0)),
    pa.list_(pa.field("element", pa.timestamp("us", "Asia/Tokyo"))),
    pa.large_list(pa.large_string()),
    pa.map_(pa.string(), pa.list_(pa.date32())),
    pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.decimal128(5, 1))]))]),
]


@pytest.mark.parametrize("arriving", ARRIVING, ids=str)
def test_a_column_that_was_stored_has_the_type_that_is_expected_of_it(arriving):
    kind = type_of_arrow(arriving)
    assert arrow_of(kind) == canonical_arrow(arriving)
    # The state has it as a text.
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("text", ["varchar(10)", "char(3)", "string collate UNICODE_CI"])
def test_texts_of_all_kinds_are_stored_alike(text):
    assert arrow_of(parse_type(text)) == pa.string()


@pytest.mark.parametrize(
    "text", ["variant", "interval day to second", "time(6)", "void", "array<variant>", "struct<a:void>"]
)
def test_other_types_have_none(text):
    """So a column of one of them is read as it was stored."""
    assert arrow_of(parse_type(text)) is None


def test_a_decimal_without_digits_has_those_of_spark():
    assert arrow_of(SqlType("decimal")) == pa.decimal128(10, 0)
