"""Reading one file: which rows and columns, what is skipped, what is refused and how."""

from __future__ import annotations

import datetime
import gzip
import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.file_helpers import read, written
from watersmeet.errors import FileError, PredicateError
from watersmeet.file_inputs.parquet import row_groups
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.read import read_rows
from watersmeet.file_inputs.schema import schema_of_file
from watersmeet.file_inputs.spec import FileFormat
from watersmeet.file_inputs.unpack import is_mapped
from watersmeet.file_inputs.where import parse_where
from watersmeet.tables.spec import Address

TEN = pa.table(
    {
        "k": pa.array(range(10), pa.int32()),
        "day": pa.array(range(10), pa.date32()),
        "name": pa.array([f"n{number}" if number % 3 else None for number in range(10)]),
        "x": pa.array([float("nan") if number == 4 else number / 2 for number in range(10)]),
    }
)
FORMATS = {
    "parquet": lambda path: written(path / "t.parquet", TEN, row_group_size=3),
    "arrow": lambda path: written(path / "t.arrow", TEN, max_chunksize=3),
    "csv": lambda path: written(
        path / "t.csv",
        "".join(
            f"{row['k']},{row['day']},{row['name'] or ''},{'NaN' if row['x'] != row['x'] else row['x']}\n"
            for row in TEN.to_pylist()
        ),
    ),
    "json": lambda path: written(
        path / "t.json",
        "".join(
            f'{{"k": {row["k"]}, "day": "{row["day"]}"'
            + (f', "name": "{row["name"]}"' if row["name"] else "")
            + (', "x": "NaN"}\n' if row["x"] != row["x"] else f', "x": {row["x"]}}}\n')
            for row in TEN.to_pylist()
        ),
    ),
}
SCHEMA = "k INT, day DATE, name STRING, x DOUBLE"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "where, kept",
    [
        ("k >= 3 AND K < 5", [3, 4]),
        ("day = DATE '1970-01-04' OR k IN (8, 9)", [3, 8, 9]),
        ("name IS NULL", [0, 3, 6, 9]),
        ("NOT (name = 'n1')", [2, 4, 5, 7, 8]),
        ("name <> 'n1' OR k = 0", [0, 2, 4, 5, 7, 8]),
        ("x > 4", [4, 9]),
        ("x > 4.4D", [4, 9]),
        ("k = 77", []),
        ("false", []),
        ("k + 1 > 9", [9]),
    ],
)
def test_a_condition_keeps_the_rows_for_which_it_is_true(tmp_path, format, where, kept):
    path = FORMATS[format](tmp_path)
    assert read(path, SCHEMA, ["x", "k"], where).column("k").to_pylist() == kept
    assert read(path, SCHEMA, ["NAME"], where).column_names == ["NAME"]


def test_row_groups_in_which_a_condition_cannot_hold_are_not_read(tmp_path):
    looked_at = {
        "k = 4": [1],
        "4 > k": [0, 1],
        "k > 8": [3],
        "k IN (0, 9)": [0, 3],
        "day < DATE '1970-01-03'": [0],
        "k = 1 OR k = 7": [0, 2],
        # The last row group has no name, so no statistics of it.
        "name >= 'n8'": [2, 3],
        # NaN is above all, and not in the statistics.
        "x > 4.4D": [0, 1, 2, 3],
        "NOT (k > 3)": [0, 1, 2, 3],
        "k <> 3": [0, 1, 2, 3],
    }
    with pq.ParquetFile(FORMATS["parquet"](tmp_path)) as parquet:
        for where, expected in looked_at.items():
            assert row_groups(parquet, TEN.schema, parse_where(where, TEN.schema)) == expected, where


def test_statistics_of_another_type_rule_nothing_out(tmp_path):
    path = written(tmp_path / "t.parquet", pa.table({"k": pa.array([5, 6], pa.int32())}))
    assert read(path, "k DECIMAL(12,2)", where="k = 5.0").column("k").to_pylist() == [5]
    assert read(path, "k DOUBLE", where="k = 5").num_rows == 1


def test_statistics_that_do_not_bound_the_values_rule_nothing_out(tmp_path):
    """Nanoseconds are cut off downwards, and the statistics are not; a field of a struct is not a column."""
    before_1970 = pa.table({"at": pa.array([-500], pa.timestamp("ns"))})
    path = written(tmp_path / "t.parquet", before_1970)
    where = "at <= TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'"
    assert read(path, where=where).num_rows == 1
    path = written(tmp_path / "t.parquet", pa.table({"a": [{"b": 100}]}))
    assert read(path, "`a.b` BIGINT", where="`a.b` > 5 OR `a.b` IS NULL").num_rows == 1
    path = written(tmp_path / "t.parquet", pa.table({"a.b": [5], "a": [{"b": 100}]}))
    assert read(path, columns=["a.b"], where="`a.b` = 5").to_pylist() == [{"a.b": 5}]


@pytest.mark.parametrize("where", ["upper(name) = 'N1'", "k = '5'", "day > '1970-01-02'", "k > NULL"])
def test_a_condition_that_only_spark_evaluates_is_refused_at_its_place(where):
    with pytest.raises(PredicateError, match="cannot be evaluated while files are read"):
        parse_where(f"k > 1 AND {where}", TEN.schema)


def test_a_condition_names_columns_and_nothing_else():
    with pytest.raises(PredicateError, match="qty is not a column of the files.*\n.*\n.*\nthey have k, day"):
        parse_where("qty > 1", TEN.schema)


def test_times_in_a_condition_are_in_the_zone_of_the_session(tmp_path):
    moments = pa.array([0, 3_600_000_000], pa.timestamp("us", "UTC"))
    schema = pa.schema({"at": moments.type})
    rows = pa.RecordBatch.from_arrays([moments], schema=schema)
    for zone, kept in (("UTC", 1), ("Europe/Paris", 2)):
        where = parse_where("at > TIMESTAMP '1970-01-01 00:30:00'", schema, zone=zone)
        assert where.rows(rows).num_rows == kept


@pytest.mark.parametrize("format", FORMATS)
def test_large_files_come_in_small_batches(tmp_path, format):
    numbers = [f"{number:05}" for number in range(5_000)]
    table = pa.table({"k": numbers})
    lines = numbers if format == "csv" else [f'{{"k": "{number}"}}' for number in numbers]
    path = written(tmp_path / f"t.{format}", table if FileFormat(format).has_schema else "\n".join(lines))
    place = Place(Address(str(path)))
    batches = list(read_rows(place, FileFormat(format), table.schema, ["k"], batch_bytes=4096))
    assert max(batch.nbytes for batch in batches) <= 3 * 4096
    assert pa.Table.from_batches(batches).equals(table)


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("texts", [[6_000], [10, 3_000]], ids=str)
def test_texts_that_a_file_has_once_do_not_fill_the_memory(tmp_path, format, texts):
    """Rows take what their texts take, which the size of the file does not tell."""
    each = 25_000
    keys = pa.array(range(each * len(texts)))
    codes = pa.array([code for code in range(len(texts)) for _ in range(each)], pa.int32())
    coded = pa.DictionaryArray.from_arrays(codes, ["x" * length for length in texts])
    path = written(tmp_path / f"a.{format}", pa.table({"k": keys, "s": coded}))
    place, schema = Place(Address(str(path))), pa.schema({"k": pa.int64(), "s": pa.string()})
    batches = read_rows(place, FileFormat(format), schema, ["k", "s"], batch_bytes=1 << 20)
    next_key, held = 0, []
    for batch in batches:
        assert batch.column("k").to_pylist() == list(range(next_key, next_key + batch.num_rows))
        assert len(batch.column("s")[0].as_py()) == texts[next_key // each]
        next_key += batch.num_rows
        held.append(batch.nbytes)
    assert next_key == len(keys)
    # Only the first batch, and the one in which texts become longer, may be larger.
    *others, _ = sorted(held)
    assert max(others) <= 2 << 20
    assert max(held) <= 8_192 * max(texts) * 1.1


def test_a_local_arrow_file_is_not_read_as_a_whole(tmp_path):
    rows = pa.table({"k": range(2_000_000), "s": ["0123456789"] * 2_000_000})
    path = written(tmp_path / "a.arrow", rows, max_chunksize=len(rows))
    del rows
    place, schema = Place(Address(str(path))), pa.schema({"k": pa.int64(), "s": pa.string()})
    before = pa.total_allocated_bytes()
    batches = read_rows(place, FileFormat.ARROW, schema, ["k", "s"], batch_bytes=1 << 20)
    most, first = 0, next(batches)
    for _ in batches:
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 8 << 20
    # What came out is a copy: the file may be written to once it was compared with what was taken.
    path.write_bytes(bytes(path.stat().st_size))
    assert first.column("k").to_pylist() == list(range(len(first)))


@pytest.mark.parametrize("packed", [None, "lz4", "zstd"])
def test_a_file_is_mapped_unless_it_is_compressed(tmp_path, monkeypatch, packed):
    """Whatever other threads of the process allocate meanwhile, or free."""
    rows = TEN.append_column("day_name", TEN["name"].dictionary_encode())
    path = tmp_path / "a.arrow"
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with pa.ipc.new_file(path, rows.schema, options=options) as sink:
        sink.write_table(pa.concat_tables([rows] * 1_000).combine_chunks())
    for change in (1 << 30, -(1 << 30)):
        allocated = itertools.count(1 << 40, change)
        monkeypatch.setattr(pa, "total_allocated_bytes", lambda allocated=allocated: next(allocated))
        assert is_mapped(Place(Address(str(path)))) == (packed is None)


def test_columns_that_a_file_lacks_are_null(tmp_path):
    for path in (FORMATS["parquet"](tmp_path), FORMATS["arrow"](tmp_path), FORMATS["json"](tmp_path)):
        rows = read(path, "more STRUCT<a: INT>, k BIGINT, other STRING")
        assert rows.column("k").to_pylist() == list(range(10))
        assert rows.column("more").null_count == rows.column("other").null_count == 10
        assert read(path, "more INT, other STRING").num_rows == 10


REFUSED_TYPES = [
    (pa.array([1]), "INT", "column a is of type bigint in this file and cannot be read as int.*schema="),
    (pa.array([1]), "DOUBLE", "of type bigint .* as double"),
    (pa.array([1]), "TIMESTAMP", "of type bigint .* as timestamp"),
    (pa.array([70_000], pa.int32()), "SMALLINT", "of type int .* as smallint because of its values"),
    (pa.array([1], pa.int32()), "DECIMAL(9,0)", "of type int .* as decimal"),
    (pa.array([1], pa.int32()), "FLOAT", "of type int .* as float"),
    (pa.array([1], pa.int32()), "STRING", "of type int .* as string"),
    (pa.array([1], pa.uint32()), "INT", "of type uint32 .* as int"),
    (pa.array([1.5]), "FLOAT", "of type double .* as float"),
    (pa.array(["x"]), "INT", "of type string .* as int"),
    (pa.array([b"\xff"]), "STRING", "of type binary .* because of its values.*UTF8"),
    (pa.array([True]), "INT", "of type boolean .* as int"),
    (pa.array([1], pa.date32()), "TIMESTAMP", "of type date .* as timestamp"),
    (pa.array([1], pa.timestamp("us")), "DATE", "of type timestamp_ntz .* as date"),
    (pa.nulls(1, pa.decimal128(20, 2)), "DECIMAL(20,1)", "decimal\\(20,2\\) .* as decimal\\(20,1\\)"),
    (pa.array([[1]]), "INT", "of type array<bigint> .* as int"),
    (pa.array([[1]]), "ARRAY<INT>", "column a.element is of type bigint .* as int"),
    (pa.array([{"x": 1}]), "STRUCT<x: INT>", "column a.x is of type bigint .* as int"),
]


@pytest.mark.parametrize("column, wanted, word", REFUSED_TYPES, ids=lambda value: str(value)[:20])
def test_a_type_that_spark_does_not_widen_is_refused(tmp_path, column, wanted, word):
    path = written(tmp_path / "t.parquet", pa.table({"a": column}))
    with pytest.raises(FileError, match=f"t.parquet: .*{word}"):
        read(path, f"a {wanted}")


def test_columns_that_differ_in_letter_case_only_are_refused(tmp_path):
    path = written(tmp_path / "t.parquet", pa.table({"a": [1], "A": [2]}))
    with pytest.raises(FileError, match="the columns a and A, which differ in letter case only"):
        read(path, "a BIGINT")
    with pytest.raises(FileError, match="the columns a and A, which differ in letter case only"):
        schema_of_file(Place(Address(str(path))), FileFormat.PARQUET)


@pytest.mark.parametrize(
    "kind", [pa.float16(), pa.uuid(), pa.time32("ms"), pa.time64("us"), pa.decimal256(50, 0)], ids=str
)
def test_columns_that_spark_cannot_read_are_refused_unless_left_out(tmp_path, kind):
    path = written(tmp_path / "t.parquet", pa.table({"k": [1], "odd": pa.nulls(1, kind)}))
    with pytest.raises(FileError, match="column odd .*Name the columns that you need in schema="):
        read(path)
    assert read(path, "k BIGINT").to_pylist() == [{"k": 1}]


BROKEN = {
    "cut.parquet": lambda whole: whole[: len(whole) // 2],
    "no-footer.parquet": lambda whole: whole[:-8],
    "empty.parquet": lambda whole: b"",
    "text.parquet": lambda whole: b"a,b\n1,2\n" * 10,
    "text.arrow": lambda whole: b"a,b\n1,2\n" * 10,
    "empty.arrow": lambda whole: b"",
    "cut.csv.gz": lambda whole: gzip.compress(b"1\n" * 10_000)[:-12],
    "text.csv.gz": lambda whole: b"1\n2\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_half_written_and_foreign_files_are_refused(tmp_path, name):
    whole = FORMATS["parquet"](tmp_path).read_bytes()
    path = written(tmp_path / name, BROKEN[name](whole))
    with pytest.raises(FileError, match=f"{name} cannot be read as .*rename them when they are complete"):
        read(path, "a INT")


def test_an_arrow_file_that_is_cut_off_and_a_stream_are_refused(tmp_path):
    whole = FORMATS["arrow"](tmp_path).read_bytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TEN.schema) as writer:
        writer.write_table(TEN)
    for content in (whole[:-40], sink.getvalue().to_pybytes()):
        with pytest.raises(FileError, match="cannot be read as a whole Arrow IPC file"):
            read(written(tmp_path / "bad.arrow", content))


def test_a_removed_file_and_an_unknown_packing_are_refused(tmp_path):
    with pytest.raises(FileError, match="gone.csv was removed before it was read"):
        read(tmp_path / "gone.csv", "a INT")
    with pytest.raises(FileError, match="packed as .lz4, which is not read here: pack it as .gz"):
        read(written(tmp_path / "a.csv.lz4", b"x"), "a INT")


def spark_2(table: pa.Table, version: str = "2.4.8", **more: str) -> pa.Table:
    return table.replace_schema_metadata({"org.apache.spark.version": version, **more})


OLD_DAY, DAY = datetime.date(1582, 10, 14), datetime.date(1582, 10, 15)
OLD_TIME, TIME = datetime.datetime(1899, 12, 31), datetime.datetime(1900, 1, 1)
UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    "table, options",
    [
        (spark_2(pa.table({"a": [OLD_DAY]})), {}),
        (spark_2(pa.table({"a": [[OLD_DAY]]})), {}),
        (spark_2(pa.table({"a": [{"b": OLD_DAY}]})), {}),
        (spark_2(pa.table({"a": pa.array([OLD_TIME], UTC)})), {}),
        (spark_2(pa.table({"a": [OLD_TIME]}), "3.0.1"), {"use_deprecated_int96_timestamps": True}),
        (spark_2(pa.table({"a": [OLD_DAY]}), "3.5.0", **{"org.apache.spark.legacyDateTime": ""}), {}),
        (
            spark_2(pa.table({"a": [OLD_TIME]}), "3.5.0", **{"org.apache.spark.legacyINT96": ""}),
            {"use_deprecated_int96_timestamps": True},
        ),
    ],
    ids=["date", "in an array", "in a struct", "timestamp", "int96", "marked dates", "marked int96"],
)
def test_dates_of_the_old_calendar_are_refused(tmp_path, table, options):
    path = written(tmp_path / "t.parquet", table, **options)
    with pytest.raises(FileError, match="column a.* in the calendar of Spark 2.*write it again"):
        read(path)


def test_dates_on_which_both_calendars_agree_are_read_from_old_files(tmp_path):
    table = pa.table({"a": [DAY], "b": pa.array([TIME], UTC), "k": [1]})
    assert read(written(tmp_path / "t.parquet", spark_2(table))).num_rows == 1
    new = spark_2(pa.table({"a": [OLD_DAY], "b": pa.array([OLD_TIME], UTC)}), "3.2.0")
    assert read(written(tmp_path / "t.parquet", new)).column("a").to_pylist() == [OLD_DAY]
    beside = spark_2(pa.table({"a": [OLD_DAY], "k": [1]}))
    assert read(written(tmp_path / "t.parquet", beside), columns=["k"]).to_pylist() == [{"k": 1}]


@pytest.mark.s3
def test_a_file_is_read_from_an_object_store(tmp_path, bucket):
    from pyarrow import fs

    from watersmeet.tables.places import place_of

    address = Address(f"{bucket}/in")
    filesystem, base = place_of(address)
    for name, make in FORMATS.items():
        path = make(tmp_path)
        fs.copy_files(str(path), f"{base}/{path.name}", destination_filesystem=filesystem)
        rows = list(read_rows(Place(address, path.name), FileFormat(name), TEN.schema, ["k"]))
        assert pa.Table.from_batches(rows).column("k").to_pylist() == list(range(10))
    with pytest.raises(FileError, match="gone.parquet"):
        list(read_rows(Place(address, "gone.parquet"), FileFormat.PARQUET, TEN.schema, ["k"]))
