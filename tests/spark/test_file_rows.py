"""Files read here against Spark's own readers: the same columns, types, rows and nulls.

Each test puts many cases into one file, because a Spark job costs more than any of them.
"""

from __future__ import annotations

import decimal
import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.unit.file_helpers import read, written
from watersmeet.errors import FileError
from watersmeet.file_inputs.csv import read_csv
from watersmeet.file_inputs.ddl import parse_schema
from watersmeet.file_inputs.json import read_json
from watersmeet.file_inputs.lines import Lines, read_lines
from watersmeet.file_inputs.text_values import Unreadable, parse_texts

pytestmark = pytest.mark.spark

ZONE = "Europe/Paris"


def assert_as_spark_reads(path: Path, frame, schema: object = None, **options) -> pa.Table:
    """Compare all rows with their types; floats by their text, so that NaN is NaN and -0.0 is not 0.0."""
    found = read(path, schema, **options)
    expected = frame.toArrow()
    assert found.schema == parse_schema(frame.schema)
    assert expected.num_rows
    for name in found.column_names:
        assert shown(found.column(name)) == shown(expected.column(name)), name
    return found


def shown(column: pa.ChunkedArray) -> list[str]:
    """The values of a column as texts. Moments are shown in UTC, whatever the zone of the column."""
    return [repr(value) for value in canonical(column).to_pylist()]


def canonical(column: pa.ChunkedArray) -> pa.ChunkedArray:
    (field,) = parse_schema(pa.schema([pa.field("c", column.type)]))
    return column.cast(field.type)


EVERY_TYPE = """
SELECT id,
  CASE id WHEN 0 THEN true WHEN 1 THEN false END AS flag,
  CAST(CASE id WHEN 0 THEN -128 WHEN 1 THEN 127 END AS TINYINT) AS tiny,
  CAST(CASE id WHEN 0 THEN -32768 WHEN 1 THEN 32767 END AS SMALLINT) AS small,
  CAST(CASE id WHEN 0 THEN -2147483648 WHEN 1 THEN 2147483647 END AS INT) AS whole,
  CASE id WHEN 0 THEN -9223372036854775807L WHEN 1 THEN 9223372036854775807L END AS big,
  CAST(CASE id WHEN 0 THEN 'NaN' WHEN 1 THEN '-0.0' WHEN 2 THEN 'Infinity' END AS FLOAT) AS real,
  CAST(CASE id WHEN 0 THEN 'NaN' WHEN 1 THEN '-0.0' WHEN 2 THEN '4.9E-324' END AS DOUBLE) AS wide,
  CAST(CASE id WHEN 0 THEN '-9999999.99' WHEN 1 THEN '0.01' END AS DECIMAL(9, 2)) AS dec9,
  CAST(CASE id WHEN 0 THEN '-99999999999999.9999' END AS DECIMAL(18, 4)) AS dec18,
  CAST(CASE id WHEN 1 THEN '99999999999999999999999999999999999999' END AS DECIMAL(38, 0)) AS dec38,
  CASE id WHEN 0 THEN '' WHEN 1 THEN 'häß 😀' END AS text,
  CASE id WHEN 0 THEN X'' WHEN 1 THEN X'00FF' END AS bytes,
  CASE id WHEN 0 THEN DATE'0001-01-01' WHEN 1 THEN DATE'9999-12-31' WHEN 2 THEN DATE'1582-10-10' END AS day,
  CASE id WHEN 0 THEN TIMESTAMP'0001-01-02 00:00:00Z' WHEN 1 THEN TIMESTAMP'9999-12-30 23:59:59.999Z'
       WHEN 2 THEN TIMESTAMP'1899-12-31 12:00:00.001Z' END AS moment,
  CASE id WHEN 0 THEN TIMESTAMP_NTZ'0001-01-01 00:00:00' WHEN 1 THEN TIMESTAMP_NTZ'2024-03-31 02:30:00.000001' END
    AS local,
  CASE id WHEN 0 THEN INTERVAL '-1 02:03:04.000005' DAY TO SECOND END AS span,
  CASE id WHEN 0 THEN array(1, NULL, 3) WHEN 1 THEN array() END AS list,
  CASE id WHEN 0 THEN map('a', 1.5D, 'b', NULL) WHEN 1 THEN map() END AS map,
  CASE id WHEN 0 THEN named_struct('x', 1, 'inner', named_struct('days', array(DATE'2024-01-01', NULL)))
       WHEN 1 THEN named_struct('x', NULL, 'inner', NULL) END AS struct,
  CASE id WHEN 0 THEN array(map('k', named_struct('at', TIMESTAMP'2024-01-01 00:00:00Z'))) END AS deep
FROM range(4)
"""


def part_of(folder: Path) -> Path:
    (part,) = folder.glob("part-*")
    return part


@pytest.fixture(scope="module")
def every_type(spark, tmp_path_factory) -> Path:
    """A directory with a Parquet file of Spark that has every type."""
    folder = tmp_path_factory.mktemp("every") / "in"
    spark.sql(EVERY_TYPE).coalesce(1).write.parquet(str(folder))
    return folder


def test_parquet_files_of_spark_have_every_type(spark, every_type, tmp_path):
    assert_as_spark_reads(part_of(every_type), spark.read.parquet(str(every_type)))
    moments = spark.sql(EVERY_TYPE).select("id", "moment", "deep").coalesce(1)
    for kind in ("INT96", "TIMESTAMP_MILLIS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        moments.write.parquet(str(tmp_path / kind))
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        assert_as_spark_reads(part_of(tmp_path / kind), spark.read.parquet(str(tmp_path / kind)))


def test_every_type_goes_through_a_join(spark, every_type, tmp_path):
    """Straight into the state, and as a DataFrame where only Spark computes the key."""
    frame = spark.read.parquet(str(every_type))
    expected = frame.toArrow()
    for on in ("l.id = r.id", "l.id = r.id AND upper(l.text) <=> upper(r.text)"):
        joined = wm.join(
            {"l": wm.files(every_type, stream=False), "r": frame},
            on=on,
            select=["l.*"],
            state=str(tmp_path / "state"),
        )
        assert joined.schema.simpleString() == frame.schema.simpleString()
        found = joined.toArrow().sort_by("id")
        for name in expected.column_names:
            assert shown(found.column(name)) == shown(expected.column(name)), (on, name)


OTHER_WRITERS = pa.table(
    {
        "u8": pa.array([255, None], pa.uint8()),
        "u16": pa.array([65_535, None], pa.uint16()),
        "u32": pa.array([2**32 - 1, None], pa.uint32()),
        "u64": pa.array([2**64 - 1, None], pa.uint64()),
        "dictionary": pa.array(["a", None]).dictionary_encode(),
        "large": pa.array(["a", None], pa.large_string()),
        "view": pa.array(["a", None], pa.string_view()),
        "fixed": pa.array([b"abc", None], pa.binary(3)),
        "seconds": pa.array([-1, None], pa.timestamp("s")),
        "millis": pa.array([-1, None], pa.timestamp("ms", "Asia/Tokyo")),
        "day": pa.array([86_400_000, None], pa.date64()),
        "span": pa.array([5, None], pa.duration("ms")),
        "nothing": pa.nulls(2),
        "narrow": pa.array([decimal.Decimal("1.5"), None], pa.decimal32(5, 1)),
        "fixed_list": pa.array([[1, 2], None], pa.list_(pa.int16(), 2)),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.uint16())),
        "a.b": pa.array([1, 2]),
        "a": pa.array([{"b": 1, "c d": None}, None], pa.struct({"b": pa.uint8(), "c d": pa.string()})),
    }
)


def test_parquet_files_of_other_writers_have_the_types_that_spark_infers(spark, tmp_path):
    path = written(tmp_path / "t.parquet", OTHER_WRITERS)
    assert_as_spark_reads(path, spark.read.parquet(str(path)))


WIDENED = {
    "tiny_small": (pa.int8(), "SMALLINT", [5, None]),
    "tiny_int": (pa.int8(), "INT", [5, None]),
    "tiny_big": (pa.int8(), "BIGINT", [-5, None]),
    "int_small": (pa.int32(), "SMALLINT", [5, None]),
    "int_big": (pa.int32(), "BIGINT", [-5, None]),
    "int_double": (pa.int32(), "DOUBLE", [2**31 - 1, None]),
    "int_dec10": (pa.int32(), "DECIMAL(10, 0)", [-5, None]),
    "int_dec": (pa.int32(), "DECIMAL(22, 3)", [-5, None]),
    "u8_int": (pa.uint8(), "INT", [255, None]),
    "u8_double": (pa.uint8(), "DOUBLE", [255, None]),
    "big_dec20": (pa.int64(), "DECIMAL(20, 0)", [-5, None]),
    "big_dec": (pa.int64(), "DECIMAL(38, 3)", [2**63 - 1, None]),
    "big_span": (pa.int64(), "INTERVAL DAY TO SECOND", [-5, None]),
    "float_double": (pa.float32(), "DOUBLE", [0.1, None]),
    "dec_dec": (pa.decimal128(5, 2), "DECIMAL(12, 4)", [decimal.Decimal("-1.25"), None]),
    "dec_wide": (pa.decimal128(5, 2), "DECIMAL(38, 20)", [decimal.Decimal("-1.25"), None]),
    "dec18_wide": (pa.decimal128(18, 2), "DECIMAL(20, 4)", [decimal.Decimal("-1.25"), None]),
    "day_local": (pa.date32(), "TIMESTAMP_NTZ", [-5, None]),
    "local_moment": (pa.timestamp("us"), "TIMESTAMP", [-5, None]),
    "moment_local": (pa.timestamp("ms", "UTC"), "TIMESTAMP_NTZ", [-5, None]),
    "text_bytes": (pa.string(), "BINARY", ["x", None]),
    "bytes_text": (pa.binary(), "STRING", ["ä".encode(), None]),
    "nothing": (pa.null(), "INT", [None, None]),
    "CASE": (pa.int32(), "INT", [1, 2]),
    "struct": (
        pa.struct({"x": pa.int32(), "y": pa.string(), "gone": pa.int32()}),
        "STRUCT<Y: STRING, more: INT, x: BIGINT>",
        [{"x": 1, "y": "q", "gone": 1}, None],
    ),
    "other_struct": (pa.struct({"x": pa.int32()}), "STRUCT<y: INT>", [{"x": 1}, None]),
    "list": (
        pa.list_(pa.struct({"x": pa.int8()})),
        "ARRAY<STRUCT<x: INT, y: DATE>>",
        [[{"x": 1}, None], None],
    ),
    "map": (pa.map_(pa.string(), pa.int32()), "MAP<STRING, BIGINT>", [[("a", 1), ("b", None)], None]),
}


def test_parquet_types_are_widened_as_spark_widens_them(spark, tmp_path):
    table = pa.table({name: pa.array(values, kind) for name, (kind, _, values) in WIDENED.items()})
    # Two row groups, and slices of them: offsets count.
    path = written(tmp_path / "t.parquet", pa.concat_tables([table] * 3), row_group_size=4)
    asked = ["missing STRING", *(f"{name.lower()} {wanted}" for name, (_, wanted, _) in WIDENED.items())]
    schema = ", ".join(reversed(asked))
    assert_as_spark_reads(path, spark.read.schema(schema).parquet(str(path)), schema)


CSV_VALUES = {
    "text": (
        "STRING",
        [
            "a",
            "",
            '""',
            " a ",
            '"a, b"',
            '"a \\"b\\""',
            '"\\\\"',
            '"a\\\\\\\\b\\\\"',
            '"a\\nb"',
            "a\\nb",
            "a\\",
            "'a'",
            "#a",
            "null",
            "NaN",
            "häß 😀",
            '" "',
            "\t",
            "a\x1fb",
        ],
    ),
    "tiny": ("TINYINT", ["-128", "127", ""]),
    "small": ("SMALLINT", ["-32768", "+32767"]),
    "whole": ("INT", ["-2147483648", "2147483647", "+5", "-0", "007"]),
    "big": ("BIGINT", ["-9223372036854775808", "9223372036854775807", '"5"']),
    "real": ("FLOAT", ["0.1", "16777217", "1e40", "NaN", "Inf", "-Inf", "1.00000017881393432617187499"]),
    "wide": (
        "DOUBLE",
        ["1", "-1.5", "NaN", "Inf", "-Infinity", "+Infinity", "1e400", "1e-400", ".5", "5.", "+1", "-0.0"],
    ),
    "dec": (
        "DECIMAL(10, 2)",
        ["1", "1.235", "-1.235", "0.005", "-0.005", "1e3", "+1", ".5", "5.", "99999999.99", '"1,234.5"'],
    ),
    "bytes": ("BINARY", ["a", "ä", '"b"']),
    "flag": ("BOOLEAN", ["true", "TRUE", "False"]),
    "day": ("DATE", ["2024-02-29", "0001-01-01", "1582-10-10", "9999-12-31"]),
    "moment": (
        "TIMESTAMP",
        [
            "2024-01-05",
            "2024-01-05 01:02:03",
            "2024-01-05T01:02",
            "2024-01-05T01:02:03.1",
            "2024-01-05T01:02:03.123456789",
            "2024-01-05T01:02:03Z",
            "2024-01-05T01:02:03.5+02:00",
            "2024-10-27T02:30:00",
            "1950-01-01 00:00:00",
            "9999-12-30 23:59:59.999999",
            "1850-01-01 00:00:00",
            "0001-01-02 00:00:00",
        ],
    ),
    "local": (
        "TIMESTAMP_NTZ",
        ["2024-01-05", "2024-03-31 02:30:00", "2024-01-05T01:02:03.1234567", "0001-01-01 00:00:00"],
    ),
}


@pytest.fixture
def in_paris(spark):
    """Local times of text files are those of the session's zone."""
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("header", [False, True])
def test_csv_values_are_those_that_spark_reads(in_paris, tmp_path, header):
    rows = max(len(texts) for _, texts in CSV_VALUES.values())
    columns = [[*texts, *[""] * (rows - len(texts))] for _, texts in CSV_VALUES.values()]
    lines = [",".join(row) for row in zip(*columns, strict=True)]
    content = "\r\n".join(
        [*([",".join(CSV_VALUES).upper()] if header else []), *lines[:5], "", "  ", *lines[5:]]
    )
    path = written(tmp_path / "t.csv", "\ufeff" + content)
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in CSV_VALUES.items())
    frame = in_paris.read.schema(schema).csv(str(path), header=header)
    found = assert_as_spark_reads(path, frame, schema, header=header, zone=ZONE)
    for name, (_, texts) in CSV_VALUES.items():
        read_as_null = [
            text for text, value in zip(texts, found.column(name).to_pylist(), strict=False) if value is None
        ]
        assert set(read_as_null) <= {"", '""'}, "a value that Spark cannot read is no case"


JSON_LINES = [
    '{"whole": 1, "wide": 1, "real": 0.1, "text": "a", "flag": true, "day": "2024-02-29", "moment": "2024-01-05"}',
    '{"whole": -2147483648, "wide": "NaN", "real": "Infinity", "text": "", "flag": false, "day": "1582-10-10"}',
    '  {"whole": null, "wide": "-Infinity", "real": 1.00000017881393432617187499, "text": "\\ud83d\\ude00 \\n"}  ',
    '{"wide": -0.0, "real": 16777217, "dec": 1.235, "moment": "2024-01-05T01:02:03.1234567Z", "other": {"a": [1]}}',
    '{"wide": NaN, "dec": "-1.235", "moment": "2024-10-27 02:30:00", "local": "2024-03-31T02:30:00"}',
    '{"dec": 1e3, "big": 9223372036854775807, "list": [1, null], "struct": {"x": 1, "inner": [{"at": "2024-01-05"}]}}',
    '{"dec": 0.005, "list": [], "struct": {"X": 1, "y": "\\"wide\\": \\"NaN\\""}}',
    '{"struct": {}, "list": null, "WHOLE": 5, "moment": "1850-01-01T00:00:00", "wide": "+INF", "real": "-INF"}',
    "{}",
    "",
    '{"struct": null, "text": "x:\\"NaN\\"", "wide": 1e-400, "big": -1}',
]
JSON_SCHEMA = (
    "whole INT, big BIGINT, wide DOUBLE, real FLOAT, dec DECIMAL(10, 2), text STRING, flag BOOLEAN, day DATE, "
    "moment TIMESTAMP, local TIMESTAMP_NTZ, list ARRAY<INT>, "
    "struct STRUCT<x INT, y STRING, inner ARRAY<STRUCT<at: TIMESTAMP, d: DATE>>>, missing STRING"
)


def test_json_values_are_those_that_spark_reads(in_paris, tmp_path):
    path = written(tmp_path / "t.json", "\n".join(JSON_LINES))
    frame = in_paris.read.schema(JSON_SCHEMA).json(str(path))
    assert_as_spark_reads(path, frame, JSON_SCHEMA, zone=ZONE)


def test_text_files_are_joined_in_the_zone_of_the_session(in_paris, tmp_path):
    for folder, content in (
        ("c", "id,at,odd\n1,2024-01-05 01:02:03,x\n2,,y\n"),
        ("j", '{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n{"id": 3}\n'),
    ):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "part", content)
    odd = "MAP<STRING, INT>"
    c = wm.files(
        tmp_path / "c",
        "csv",
        schema=f"id INT, at TIMESTAMP, odd {odd}",
        columns=["id", "at"],
        header=True,
        stream=False,
    )
    j = wm.files(tmp_path / "j", "json", schema="id INT, name STRING", where="name <> 'b'", stream=False)
    joined = wm.join(
        {"c": c, "j": j}, on="c.id = j.id", select=["j.name", "c.at"], state=str(tmp_path / "state")
    )
    assert [tuple(row) for row in joined.selectExpr("name", "string(at)").collect()] == [
        ("a", "2024-01-05 01:02:03")
    ]


# Pieces of which values of each type are made, good and bad ones.
PIECES = {
    "STRING": ["a", '"', "\\", '\\"', '""', " ", "ä", "#", "\t", "'", ";", "\x1f"],
    "INT": ["1", "0", "-", "+", "x", " ", ".", "e", "99999"],
    "DOUBLE": ["1", "0", "-", "+", ".", "e", "E", "f", "d", "NaN", "Inf", "inity", " ", "x", "99"],
    "DECIMAL(6, 2)": ["1", "0", "-", "+", ".", "e", "E", "5", " ", "99"],
    "BOOLEAN": ["true", "FALSE", "t", "1", " ", "e"],
    "DATE": ["2024-01-", "0001-02-", "1600-12-", "05", "31", "9", "T", " "],
    "TIMESTAMP": [
        "2024-01-31",
        "1900-01-01",
        " 12:30",
        "T00:00:01",
        ":59",
        ".5",
        ".1234567",
        "Z",
        "+02:00",
        "-0100",
    ],
    "TIMESTAMP_NTZ": ["2024-03-31", "0001-01-01", " 02:30", "T00:00:01", ":59", ".5", ".1234567", "Z"],
}
DRAWS, SEED = 1_500, 7


def drawn(pieces: Sequence[str], most: int) -> list[str]:
    """Texts of up to a number of pieces, each once."""
    chance = random.Random(SEED)
    return sorted({"".join(chance.choices(pieces, k=chance.randint(1, most))) for _ in range(DRAWS)})


def accepted(texts: Iterable[str], parse: Callable[[str], object]) -> list[str]:
    """The texts that are read here. Spark reads null for the others, or guesses."""

    def is_read(text: str) -> bool:
        try:
            parse(text)
        except (FileError, Unreadable):
            return False
        return True

    return [text for text in texts if is_read(text)]


def lines_of(text: str) -> Iterator[Lines]:
    return read_lines(io.BytesIO(text.encode()), "t", 1 << 20)


def test_random_csv_lines_are_read_as_spark_reads_them_or_refused(in_paris, tmp_path):
    schema = parse_schema("a STRING, b STRING")
    lines = accepted(
        (line for line in drawn([*PIECES["STRING"], *'",,'], 7) if line.strip()),
        lambda line: list(read_csv(lines_of(line), schema, schema, "t", header=False, zone=ZONE)),
    )
    assert len(lines) > 50
    path = written(tmp_path / "all.csv", "\n".join(lines))
    frame = in_paris.read.schema("a STRING, b STRING").csv(str(path))
    assert_as_spark_reads(path, frame, schema)


def test_random_values_are_read_as_spark_reads_them_or_refused(in_paris, tmp_path):
    """A value that is read here is one that Spark reads too, and not as null."""
    columns = {}
    for kind, pieces in PIECES.items():
        if kind != "STRING":
            (wanted,) = parse_schema(f"a {kind}").types
            columns[kind] = accepted(
                drawn(pieces, 5), lambda text, wanted=wanted: parse_texts(pa.array([text]), wanted, ZONE)
            )
            assert len(columns[kind]) > 1, kind
    rows = max(map(len, columns.values()))
    filled = [[*texts, *[""] * (rows - len(texts))] for texts in columns.values()]
    schema = ", ".join(f"c{number} {kind}" for number, kind in enumerate(columns))
    path = written(tmp_path / "all.csv", "\n".join(",".join(row) for row in zip(*filled, strict=True)))
    found = assert_as_spark_reads(path, in_paris.read.schema(schema).csv(str(path)), schema, zone=ZONE)
    for texts, column in zip(columns.values(), found.columns, strict=True):
        assert column.null_count == rows - len(texts)


# For each column of JSON lines values that fit it, and further ones that fit none or some.
JSON_VALUES = {
    "a INT": ["1", "-5", "0", "null", "2147483647"],
    "b DOUBLE": ["1", "1.5", "-1e-7", '"NaN"', "NaN", '"-Infinity"', '"+INF"', "0"],
    "c STRING": ['"a"', '""', '"\\u00e4\\t"', '"a\\"b\\":\\"NaN\\""', '"NaN"', '"{}"'],
    "d DECIMAL(6, 2)": ["1", "-1.555", "1e2", '"2.345"', "0.005"],
    "e DATE": ['"2024-01-31"', '"1582-10-10"'],
    "f TIMESTAMP": [
        '"2024-01-31"',
        '"2024-01-31 12:30:00"',
        '"2024-01-31T12:30:00.5Z"',
        '"1900-01-01T00:00:00"',
    ],
    "g ARRAY<DOUBLE>": ["[]", "[1, null]", "[1.5, -2]", "null"],
    "h STRUCT<a: INT, c: STRING>": [
        "{}",
        '{"a": 1, "c": "x"}',
        '{"A": 1, "c": "\\"b\\": \\"NaN\\""}',
        '{"c": null}',
    ],
}
OTHER_VALUES = [
    "99999999999",
    "true",
    '"1"',
    '"2024-02-30"',
    "[",
    "{",
    '"x',
    "1, ",
    '["NaN"]',
    "1.0",
    "{}",
    '""',
]


def test_random_json_lines_are_read_as_spark_reads_them_or_refused(in_paris, tmp_path):
    chance = random.Random(SEED)

    def member(column: str) -> str:
        values = OTHER_VALUES if chance.random() < 0.1 else JSON_VALUES[column]
        name = chance.choice([*column[0] * 9, column[0].upper()])
        return f'"{name}"{chance.choice([":", ": ", " :  "])}{chance.choice(values)}'

    def line() -> str:
        members = map(member, chance.sample(list(JSON_VALUES), chance.randint(0, 4)))
        return chance.choice(["", " "]) + "{" + chance.choice([", ", ","]).join(members) + "}"

    schema = parse_schema(", ".join(JSON_VALUES))
    lines = accepted(
        sorted({line() for _ in range(DRAWS)}),
        lambda text: list(read_json(lines_of(text), schema, "t", zone=ZONE)),
    )
    assert len(lines) > DRAWS // 3
    path = written(tmp_path / "all.json", "\n".join(lines))
    frame = in_paris.read.schema(", ".join(JSON_VALUES)).json(str(path))
    assert_as_spark_reads(path, frame, schema, zone=ZONE)
