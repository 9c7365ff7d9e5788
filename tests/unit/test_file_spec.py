"""What `files()` takes, refuses and shows, and the schemas that it reads."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from tests.unit.table_helpers import travelled
from watersmeet.errors import UsageError
from watersmeet.file_inputs.ddl import parse_schema
from watersmeet.file_inputs.spec import FileFormat, FileOrder, files


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"path": 5}, "path must be a directory.*not int"),
        ({"path": " "}, "path must be a directory"),
        ({"path": "postgresql://db/shop"}, "is a database: pass it as wm.table"),
        ({"path": "d", "format": "parket"}, "format must be .*got 'parket'; did you mean parquet"),
        ({"path": "d", "format": None}, "format must be parquet, arrow, csv or json, got None"),
        ({"path": "d", "format": "csv"}, "add schema="),
        ({"path": "d", "format": "json"}, "add schema="),
        ({"path": "d", "schema": 3}, "schema must be a text.*not int"),
        ({"path": "d", "schema": "id"}, "a type expected at the end"),
        ({"path": "d", "schema": ""}, "the name of a column expected at the end"),
        ({"path": "d", "schema": pa.schema([])}, "schema has no columns"),
        ({"path": "d", "schema": "id INT, ID BIGINT"}, "several columns named ID, id"),
        ({"path": "d", "schema": "id INT; x INT"}, "a comma or the end expected at '; x INT'"),
        ({"path": "d", "schema": "v VARIANT"}, "can be read from files expected at 'VARIANT'"),
        ({"path": "d", "schema": "t TIME(6)"}, "can be read from files expected at 'TIME"),
        ({"path": "d", "schema": pa.schema({"t": pa.time64("us")})}, "column t is of type time64"),
        ({"path": "d", "schema": "s VARCHAR(3)"}, "can be read from files expected"),
        ({"path": "d", "schema": "d DECIMAL(39, 2)"}, "0 <= s <= p <= 38"),
        ({"path": "d", "schema": "d DECIMAL(3, 4)"}, "0 <= s <= p <= 38"),
        ({"path": "d", "schema": "d DECIMAL(1,2,3)"}, "0 <= s <= p <= 38"),
        ({"path": "d", "schema": "d DECIMAL(1,x)"}, "a number expected at 'x"),
        ({"path": "d", "schema": "d INTERVAL YEAR TO MONTH"}, "INTERVAL of days to seconds"),
        ({"path": "d", "schema": "a ARRAY<INT"}, "'>' expected at the end"),
        (
            {"path": "d", "schema": pa.schema({"a": pa.struct({"b": pa.null()})})},
            "column a.b is of type null, which.*give another type",
        ),
        ({"path": "d", "schema": pa.schema({"a": pa.decimal256(50, 2)})}, "column a is of type decimal256"),
        ({"path": "d", "columns": []}, "name the columns as a list"),
        ({"path": "d", "columns": "id"}, "name the columns as a list"),
        ({"path": "d", "columns": ["id", "ID"]}, "names a column twice"),
        ({"path": "d", "columns": ["prize"], "schema": "Price INT"}, "names prize.*did you mean Price"),
        ({"path": "d", "where": ""}, "where must be a condition"),
        ({"path": "d", "moved_from": " "}, "moved_from must be a directory, as a path or a URI, got ' '"),
        ({"path": "d", "max_files_per_batch": 0}, "max_files_per_batch must be.*got 0"),
        ({"path": "d", "max_bytes_per_batch": True}, "max_bytes_per_batch must be.*got True"),
        ({"path": "d", "order": "size"}, "order must be name or time, got 'size'"),
        ({"path": "d", "header": True}, "header= is for CSV"),
        ({"path": "d", "format": "csv", "schema": "id INT", "header": "yes"}, "header must be True or False"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments, word):
    with pytest.raises(UsageError, match=word):
        files(**arguments)


def test_files_say_what_they_are_without_their_credentials_and_travel_whole():
    spec = files(
        "s3://key:secret@bucket/orders",
        "CSV",
        schema="id INT, at TIMESTAMP",
        columns=["at", "ID"],
        where="id > 0",
        max_files_per_batch=3,
        order="time",
        header=True,
    )
    assert (spec.format, spec.order, spec.header) == (FileFormat.CSV, FileOrder.TIME, True)
    assert "secret" not in repr(spec) + spec.label + repr(spec.address)
    assert travelled(spec) == spec


ALL_TYPES = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10, 2), i STRING, j BINARY, "
    "k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n INTERVAL DAY TO SECOND, p ARRAY<INT>, "
    "q MAP<STRING, ARRAY<BIGINT>>, r STRUCT<x: INT, `y z`: STRUCT<deep: DATE>>, `odd ``name` INT, s DECIMAL(5)"
)


def test_a_schema_means_the_same_as_text_struct_and_arrow():
    from pyspark.sql.pandas.types import to_arrow_schema

    fields = [
        ("a", T.BooleanType()), ("b", T.ByteType()), ("c", T.ShortType()), ("d", T.IntegerType()),
        ("e", T.LongType()), ("f", T.FloatType()), ("g", T.DoubleType()), ("h", T.DecimalType(10, 2)),
        ("i", T.StringType()), ("j", T.BinaryType()), ("k", T.DateType()), ("l", T.TimestampType()),
        ("m", T.TimestampNTZType()), ("n", T.DayTimeIntervalType()),
        ("p", T.ArrayType(T.IntegerType())), ("q", T.MapType(T.StringType(), T.ArrayType(T.LongType()))),
        ("r", T.StructType().add("x", T.IntegerType()).add("y z", T.StructType().add("deep", T.DateType()))),
        ("odd `name", T.IntegerType()), ("s", T.DecimalType(5, 0)),
    ]  # fmt: skip
    struct = T.StructType([T.StructField(name, kind) for name, kind in fields])
    expected = to_arrow_schema(struct, timezone="UTC")
    assert parse_schema(ALL_TYPES) == parse_schema(struct) == parse_schema(expected)
    assert parse_schema(ALL_TYPES) == parse_schema(f"struct<{ALL_TYPES}>")
    plain = [place for place, kind in enumerate(expected.types) if not pa.types.is_nested(kind)]
    assert [parse_schema(struct).types[place] for place in plain] == [
        expected.types[place] for place in plain
    ]


def test_a_type_that_no_file_holds_is_refused_with_its_column():
    odd = T.StructType([T.StructField("a", T.StructType([T.StructField("b", T.VariantType())]))])
    with pytest.raises(UsageError, match="column a.b is of type variant, which cannot be read"):
        parse_schema(odd)


def test_a_collation_is_refused():
    given = T.StructType([T.StructField("s", T.StringType("UTF8_LCASE"))])
    with pytest.raises(UsageError, match="column s has a collation"):
        parse_schema(given)
    with pytest.raises(UsageError, match="expected at 'COLLATE"):
        parse_schema("s STRING COLLATE UTF8_LCASE")


def test_nullability_and_comments_of_a_schema_are_ignored():
    assert parse_schema("id LONG NOT NULL COMMENT 'the \\' key', n int") == parse_schema("id BIGINT, n INT")
