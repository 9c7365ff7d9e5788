"""Text files that are not well-formed: refused with the line, where Spark would guess or read null."""

from __future__ import annotations

import pytest

from tests.unit.file_helpers import read, written
from watersmeet.errors import FileError

GOOD = ["1,a,2024-01-05", ',"b, \\"c\\"",', "2,,2024-01-06"] * 40
SCHEMA = "id INT, name STRING, day DATE"

BAD_LINES = {
    "1,a": "Expected 3 columns, got 2",
    '""': "Expected 3 columns, got 1",
    "1,a,2024-01-05,x": "Expected 3 columns, got 4",
    "1.0,a,": "column id: '1.0' cannot be read as int|column id: a value cannot be read as int.*1.0",
    "0x1F,a,": "column id: '0x1F' cannot be read as int",
    " 1,a,": "column id: a value cannot be read as int",
    "3000000000,a,": "column id: a value cannot be read as int.*3000000000",
    "1,a,2024-1-5": "column day: '2024-1-5' cannot be read as date",
    "1,a,2024-02-30": "column day: a value cannot be read as date",
    '1,"a,2024-01-05': "a quote is not closed",
    '1,"a"b,2024-01-05': "a quote is inside a value",
    '1,"a""b",2024-01-05': "a quote is inside a value",
    '1,a"b",': "a quote is inside a value",
    '1,a\\"b,': "a quote is inside a value",
    '1, "a",': "a quote is inside a value",
    '1,"a\\",2024-01-05': "a quote is not closed",
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_csv_line_that_is_no_row_is_named(tmp_path, bad):
    """Blank lines count in the number, and the line is found wherever it is."""
    path = written(tmp_path / "t.csv", "\n".join([*GOOD, "", bad, *GOOD]))
    word = f"t.csv, line {len(GOOD) + 2}: .*({BAD_LINES[bad]}).*Spark would read null"
    with pytest.raises(FileError, match=word):
        read(path, SCHEMA)


def test_a_block_without_a_free_separator_is_refused(tmp_path):
    """Every line is good alone, but no control character is left to separate the values of all."""
    lines = [f'"{chr(code)}",x' for code in range(1, 32) if chr(code) not in "\n\r"]
    with pytest.raises(FileError, match="line 1: .*too many kinds of control characters"):
        read(written(tmp_path / "t.csv", "\n".join([*lines, ""])), "a STRING, b STRING")


def test_columns_that_are_not_read_are_not_converted(tmp_path):
    path = written(tmp_path / "t.csv", "x,a,never\n2,b,2024-01-05")
    assert read(path, SCHEMA, ["name"]).to_pylist() == [{"name": "a"}, {"name": "b"}]


def test_a_header_must_name_the_columns_of_the_schema(tmp_path):
    path = written(tmp_path / "t.csv", "ID,Name,DAY\n1,a,2024-01-05\n")
    assert read(path, SCHEMA, ["id"], header=True).to_pylist() == [{"id": 1}]
    for header in ("id,day,name", "id,name", "id,name,day,more"):
        path = written(tmp_path / "t.csv", f'{header}\n1,a,"x"\n')
        with pytest.raises(
            FileError, match=f"the columns {header.replace(',', ', ')} in its header.*by their place"
        ):
            read(path, SCHEMA, header=True)
    with pytest.raises(FileError, match="line 1, the header: a quote is not closed"):
        read(written(tmp_path / "t.csv", 'id,"name,day\n'), SCHEMA, header=True)
    assert read(written(tmp_path / "t.csv", "id,name,day\n"), SCHEMA, header=True).num_rows == 0
    assert read(written(tmp_path / "t.csv", ""), SCHEMA, header=True).num_rows == 0


def test_a_header_that_is_read_as_a_row_is_told(tmp_path):
    path = written(tmp_path / "t.csv", "ID,name,day\n1,a,2024-01-05\n")
    with pytest.raises(FileError, match="t.csv.*line 1 has the names of the columns.*header=True"):
        read(path, SCHEMA)
    with pytest.raises(FileError, match="line 1: column id: .*'ID'"):
        read(written(tmp_path / "t.csv", "ID,x,day\n"), SCHEMA)


@pytest.mark.parametrize(
    "format, kind",
    [
        ("csv", "ARRAY<INT>"),
        ("csv", "STRUCT<x: INT>"),
        ("csv", "MAP<STRING, INT>"),
        ("csv", "INTERVAL DAY TO SECOND"),
        ("json", "BINARY"),
        ("json", "ARRAY<MAP<STRING, INT>>"),
        ("json", "STRUCT<x: INTERVAL DAY TO SECOND>"),
    ],
)
def test_types_that_are_not_read_from_text_are_refused(tmp_path, format, kind):
    path = written(tmp_path / f"t.{format}", "")
    with pytest.raises(FileError, match=f"column odd .* is not read from {format} files.*DataFrame"):
        read(path, f"id INT, odd {kind}")
    assert read(path, f"id INT, odd {kind}", ["id"]).num_rows == 0


GOOD_JSON = ['{"id": 1, "name": "a", "s": {"d": "2024-01-05"}}', '{"id": null, "x": "NaN"}', "{}"] * 40
JSON_SCHEMA = "id INT, name STRING, x DOUBLE, dec DECIMAL(4, 2), s STRUCT<d: DATE>"
BAD_OBJECTS = {
    '{"id": 1': "not one JSON object",
    '{"id": 1} {"id": 2}': "more than one object",
    '{"id": 1}{"id": 2}': "more than one object",
    '[{"id": 1}]': "not one JSON object",
    '{"id": 1} x': "not one JSON object",
    '{"id": 1.0}': "1.0",
    '{"id": "1"}': "changed from number to string",
    '{"id": 3000000000}': "3000000000",
    '{"id": 1, "id": 2}': "twice",
    '{"name": 5}': "changed from string to number",
    '{"name": {"a": 1}}': "changed from string to object",
    "{'id': 1}": "name",
    '{"id": 1,}': "name",
    '{"x": "nan"}': "changed from number to string",
    '{"dec": 123.4}': "a value cannot be read as decimal",
    '{"s": {"d": "5 May"}}': "'5 May' cannot be read as date",
    '{"s": 5}': "changed from object to number",
}


@pytest.mark.parametrize("bad", BAD_OBJECTS)
def test_a_json_line_that_is_no_row_is_named(tmp_path, bad):
    path = written(tmp_path / "t.json", "\n".join([*GOOD_JSON, "", bad, *GOOD_JSON]))
    with pytest.raises(FileError, match=f"t.json, line {len(GOOD_JSON) + 2}: .*{BAD_OBJECTS[bad]}"):
        read(path, JSON_SCHEMA)


def test_an_object_over_several_lines_is_refused(tmp_path):
    path = written(tmp_path / "t.json", '{"id": 1}\n{"id":\n2}\n')
    with pytest.raises(FileError, match="line 2: a line is not one JSON object"):
        read(path, "id INT")


@pytest.mark.parametrize("name", ["t.csv", "t.json"])
def test_text_that_is_not_utf_8_is_refused(tmp_path, name):
    content = b'{"a": "x"}\n{"a": "\xff"}\n' if name == "t.json" else b"x\n\xff\n"
    with pytest.raises(FileError, match=f"{name}, line 2: .*(UTF8|utf-8)"):
        read(written(tmp_path / name, content), "a STRING")


def test_local_times_that_a_zone_skips_are_refused(tmp_path):
    path = written(tmp_path / "t.csv", "2024-03-31 03:00:00\n2024-03-31 02:30:00\n")
    assert read(path, "at TIMESTAMP").num_rows == 2
    with pytest.raises(
        FileError, match="line 2: column at: a local time without a zone is no moment in Europe/Paris"
    ):
        read(path, "at TIMESTAMP", zone="Europe/Paris")


def test_moments_that_spark_does_not_read_are_refused(tmp_path):
    for text in ("2024-01-05 01:02+02:00", "2024-01-05 24:00:00", "2024-02-30 00:00:00", "12:30:00", "now"):
        with pytest.raises(FileError, match="line 1: column at: .* cannot be read as timestamp"):
            read(written(tmp_path / "t.csv", text), "at TIMESTAMP")
    with pytest.raises(FileError, match="cannot be read as timestamp_ntz"):
        read(written(tmp_path / "t.csv", "2024-01-05 01:02:03Z"), "at TIMESTAMP_NTZ")


def test_packed_text_is_unpacked(tmp_path):
    import bz2
    import gzip

    for name, pack in (("t.csv.gz", gzip.compress), ("t.csv.bz2", bz2.compress)):
        assert read(written(tmp_path / name, pack("\n".join(GOOD).encode())), SCHEMA).num_rows == len(GOOD)
