"""The data source of files without a session: offsets, shares of tasks, changed files, and which way rows take."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

import watersmeet as wm
from watersmeet.engine.build import parse
from watersmeet.engine.file_way import choose_file_way
from watersmeet.engine.options import JoinOptions
from watersmeet.engine.spec import SessionSettings, SqlSettings
from watersmeet.errors import FileError
from watersmeet.file_inputs import offsets
from watersmeet.file_inputs.ddl import parse_schema
from watersmeet.file_inputs.file_log import FileLog
from watersmeet.file_inputs.offsets import ChangedFile, FilePart, IntakeLimit, ListedFile, Reread
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.stream import StreamSpec
from watersmeet.file_inputs.taken import check_unchanged
from watersmeet.file_inputs.where import parse_where
from watersmeet.log.files import LocalFiles
from watersmeet.log.storage import Storage
from watersmeet.model.types import parse_type
from watersmeet.schemes.grid.policy import dynamic
from watersmeet.spark.file_source import FileSource, options_of
from watersmeet.spark.file_task import FileTask
from watersmeet.tables.spec import Address

SCHEMA = parse_schema("k BIGINT, at TIMESTAMP, tags ARRAY<STRING>, m MAP<STRING, STRUCT<a: INT>>")


def write(place: Path, *keys: int) -> None:
    rows = {"k": keys, "at": [10**15] * len(keys), "tags": [["x", None]] * len(keys)}
    table = pa.table({**rows, "m": [[("y", {"a": 1})]] * len(keys)}, schema=SCHEMA)
    pq.write_table(table, place)


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    for number in range(3):
        write(place / f"{number}.parquet", number, number + 10)
    return place


def reader_for(
    folder, columns=("k", "at", "tags", "m"), where=None, state=None, **more
) -> DataSourceStreamReader:
    given = wm.files(folder, schema=SCHEMA, **more)
    condition = parse_where(where, SCHEMA) if where else None
    rows = to_arrow_schema(from_arrow_schema(SCHEMA.empty_table().select(columns).schema), timezone="UTC")
    task = FileTask(given, SCHEMA, columns, condition, "UTC", rows)
    limit = IntakeLimit(given.max_files_per_batch, given.max_bytes_per_batch)
    storage = Storage(state or str(folder.parent / "state"))
    stream = StreamSpec(given.address, storage, limit, False, 4, True, 10, given.moved_from)
    return FileSource(options_of(task.encode(), stream, None)).streamReader(None)  # type: ignore[arg-type]


def read_all(reader: DataSourceStreamReader, start: dict, end: dict) -> list[int]:
    found = []
    for share in reader.partitions(start, end):
        executor = cloudpickle.loads(cloudpickle.dumps(reader))
        for batch in executor.read(share):
            found += batch.column("k").to_pylist()
    return found


def test_batches_follow_the_limit_and_a_restart_goes_on(folder):
    reader = reader_for(folder, max_files_per_batch=2)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxFiles(2)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert read_all(reader, start, first) == [0, 10, 1, 11]
    reader = reader_for(folder, max_files_per_batch=2)
    second = reader.latestOffset(first, limit)
    assert read_all(reader, first, second) == [2, 12]
    assert reader.latestOffset(second, limit) == second
    # The first batch again, as after a crash before its commit.
    assert read_all(reader, start, first) == [0, 10, 1, 11]


def test_all_is_taken_without_a_limit_and_with_once(folder):
    for limits in ({}, {"max_bytes_per_batch": 1}):
        reader = reader_for(folder, **limits)
        expected = ReadMaxBytes(1) if limits else ReadAllAvailable()
        assert reader.getDefaultReadLimit() == expected
        start = reader.initialOffset()
        assert len(read_all(reader, start, reader.latestOffset(start, ReadAllAvailable()))) == 6


def test_rows_that_do_not_satisfy_the_condition_are_not_read(folder):
    reader = reader_for(folder, ("k",), "k > 1")
    start = reader.initialOffset()
    assert read_all(reader, start, reader.latestOffset(start, ReadAllAvailable())) == [10, 11, 2, 12]


def test_rows_for_spark_have_the_schema_that_it_compares_with(folder):
    wanted = to_arrow_schema(from_arrow_schema(SCHEMA), timezone="UTC")
    reader = reader_for(folder)
    start = reader.initialOffset()
    (share,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    for batch in reader.read(share):
        assert batch.schema.equals(wanted)
        assert batch.column("m").to_pylist() == [[("y", {"a": 1})]] * 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda path: write(path, 1, 2, 3, 4, 5), "now it has"),
        (lambda path: os.utime(path, (7, 7)), "now it has .* 1970-01-01"),
        (lambda path: path.unlink(), "it is gone"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "now it has 50 bytes"),
    ],
    ids=["it grew", "it was replaced", "it is gone", "it was cut off"],
)
def test_a_file_that_changed_after_it_was_taken_is_an_error(folder, change, says):
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    change(folder / "1.parquet")
    with pytest.raises(FileError, match=rf"1\.parquet had .* when it was taken into a batch, and {says}"):
        read_all(reader, start, end)


class Starts:
    """Instead of the log of a join: whether another start has planned the batch, and what tasks record."""

    def __init__(self, state: Path) -> None:
        self.state = LocalFiles(state)
        self.planned = False

    def record(self, part: FilePart, changed: ChangedFile) -> bool:
        if not self.planned and part.part == 0:
            FileLog(self.state, changed.log).record(Reread(changed.was, part.file))
        return not self.planned


@pytest.fixture
def starts(folder, monkeypatch) -> Starts:
    found = Starts(folder.parent / "state")
    monkeypatch.setattr(FileTask, "_record", lambda task, part, changed: found.record(part, changed))
    return found


def test_a_file_that_changed_before_its_batch_was_planned_is_read_as_it_is(folder, starts):
    """By the next start: it may have been taken while it was written. From then on it is watched as it was read."""
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    write(folder / "1.parquet", *range(50, 90))
    reader = reader_for(folder)
    # A start that dies: the next one reads the file as it is by then.
    assert sorted(read_all(reader, start, end)) == [0, 2, 10, 12, *range(50, 90)]
    write(folder / "1.parquet", *range(50, 60))
    # The tasks of one start read the same, whenever they begin.
    with pytest.raises(FileError, match=r"1\.parquet had .* when it is complete"):
        read_all(reader, start, end)
    reader = reader_for(folder)
    for _ in range(2):
        assert sorted(read_all(reader, start, end)) == [0, 2, 10, 12, *range(50, 60)]
    starts.planned = True
    for number in (3, 4):
        # In the process that read it, and in another one, which may read the first batch again too.
        write(folder / f"{number}.parquet", number)
        later = reader.latestOffset(end, ReadAllAvailable())
        assert read_all(reader, end, later) == [number]
        reader, end = reader_for(folder), later
    assert len(read_all(reader, start, end)) == 16
    write(folder / "1.parquet", *range(50, 91))
    write(folder / "5.parquet", 5)
    with pytest.raises(FileError, match=r"1\.parquet had .* these rows are in no result"):
        reader.latestOffset(end, ReadAllAvailable())


def test_a_file_that_changed_after_its_batch_was_planned_is_refused(folder, starts):
    starts.planned = True
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    before = (folder / "1.parquet").read_bytes()
    at_ns = (folder / "1.parquet").stat().st_mtime_ns
    write(folder / "1.parquet", *range(50, 90))
    for _ in range(2):
        with pytest.raises(
            FileError, match=r"1\.parquet had .* results with the rows that it had may be out"
        ):
            read_all(reader_for(folder), start, end)
    (folder / "1.parquet").write_bytes(before)
    os.utime(folder / "1.parquet", ns=(at_ns, at_ns))
    assert len(read_all(reader_for(folder), start, end)) == 6


@pytest.mark.parametrize("empties", [Path.unlink, Path.touch], ids=["gone", "empty"])
def test_a_file_that_is_gone_or_empty_before_it_is_read_is_an_error(folder, empties):
    """Also at the next start: its rows are missed."""
    for number in (0, 2):
        (folder / f"{number}.parquet").unlink()
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (folder / "1.parquet").unlink()
    if empties is Path.touch:
        (folder / "1.parquet").touch()
    for again in (reader, reader_for(folder)):
        with pytest.raises(FileError, match=r"1\.parquet had .* when it was taken"):
            read_all(again, start, end)


def test_a_file_that_grows_while_it_is_read_is_an_error(folder):
    reader = reader_for(folder)
    start = reader.initialOffset()
    (share,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = reader.read(share)
    next(rows)
    with (folder / "0.parquet").open("ab") as growing:
        growing.write(b"more")
    with pytest.raises(FileError, match="0.parquet had .* when it is complete"):
        next(rows)


def test_a_file_that_grows_after_its_batch_stops_the_query(folder):
    """At the next listing of this process, and of the next one."""
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(read_all(reader, start, end)) == 6
    whole = (folder / "1.parquet").read_bytes()
    with (folder / "1.parquet").open("ab") as growing:
        growing.write(b"more")
    write(folder / "3.parquet", 3)
    for again in (reader, reader, reader_for(folder)):
        with pytest.raises(
            FileError, match=r"1\.parquet had .* are in no result.* into a new file, remove this"
        ):
            again.latestOffset(end, ReadAllAvailable())
    # What the message says helps: put it back (at another time), or remove it.
    (folder / "1.parquet").write_bytes(whole)
    reader = reader_for(folder)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert read_all(reader, end, later) == [3]
    write(folder / "1.parquet", *range(50))
    (folder / "0.parquet").write_bytes(b"")
    (folder / "1.parquet").unlink()
    write(folder / "4.parquet", 4)
    assert read_all(reader, later, reader.latestOffset(later, ReadAllAvailable())) == [4]


def test_a_file_that_shrinks_after_its_batch_stops_the_query(folder):
    """Nothing was added to it, so the message does not say so."""
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    whole = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(whole[:50])
    write(folder / "3.parquet", 3)
    expected = (
        rf"had {len(whole)} bytes .* now it has 50: it was cut short or replaced\. .* stay in the results"
    )
    with pytest.raises(FileError, match=expected) as error:
        reader.latestOffset(end, ReadAllAvailable())
    assert "was written to later" not in str(error.value)


def test_files_of_the_last_intakes_are_watched(folder, monkeypatch):
    monkeypatch.setattr("watersmeet.file_inputs.stream.WATCHED_FILES", 2)
    reader = reader_for(folder)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    write(folder / "0.parquet", *range(50))
    write(folder / "3.parquet", 3)
    end = reader.latestOffset(end, ReadAllAvailable())
    write(folder / "2.parquet", *range(50))
    write(folder / "4.parquet", 3)
    with pytest.raises(FileError, match=r"2\.parquet had"):
        reader.latestOffset(end, ReadAllAvailable())


def test_files_in_a_bucket_are_read_and_watched(bucket, tmp_path, monkeypatch):
    filesystem, base = fs.FileSystem.from_uri(f"{bucket}/in")

    def put(name: str, *keys: int) -> None:
        write(tmp_path / "draft", *keys)
        with filesystem.open_output_stream(f"{base}/{name}") as sink:
            sink.write((tmp_path / "draft").read_bytes())

    put("a", 1, 2)
    put("b", 3)
    reader = reader_for(f"{bucket}/in", state=f"{bucket}/state")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read_all(reader, start, end) == [1, 2, 3]
    # A listing may show more digits of a time than a look at one object.
    size, seconds = filesystem.get_file_info(f"{base}/a").size, filesystem.get_file_info(f"{base}/a").mtime
    place = Place(Address(f"{bucket}/in"), "a")
    second_ns = int(seconds.timestamp()) * 10**9
    check_unchanged(place, FilePart(ListedFile("a", size, second_ns + 123_000_000)))
    with pytest.raises(FileError, match="now it has"):
        check_unchanged(place, FilePart(ListedFile("a", size, second_ns - 1)))
    put("a", *range(50))
    with pytest.raises(FileError, match="in/a had .* now it has"):
        read_all(reader, start, end)
    recorded: list[ChangedFile] = []
    monkeypatch.setattr(FileTask, "_record", lambda task, part, changed: recorded.append(changed) or True)
    reader = reader_for(f"{bucket}/in", state=f"{bucket}/state")
    assert sorted(read_all(reader, start, end)) == sorted([3, *range(50)])
    assert [one.was.name for one in recorded] == ["a"]


def test_another_directory_is_refused_unless_it_was_moved(folder):
    reader = reader_for(folder, max_files_per_batch=2)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxFiles(2))
    moved = folder.rename(folder.parent / "new")
    reader = reader_for(moved)
    with pytest.raises(FileError, match=rf'moved with its files, pass moved_from="{folder}"'):
        reader.latestOffset(first, ReadAllAvailable())
    with pytest.raises(FileError, match=rf"has taken files from {folder}, and its input now is {moved}"):
        reader.partitions(start, first)
    for told in (folder, f"{folder}/"):
        reader = reader_for(moved, moved_from=told)
        assert read_all(reader, start, first) == [0, 10, 1, 11]
        second = reader.latestOffset(first, ReadAllAvailable())
        assert read_all(reader, first, second) == [2, 12]
    # What comes after the move has the new name. Written otherwise, it is the same directory.
    write(moved / "3.parquet", 7)
    third = reader.latestOffset(second, ReadAllAvailable())
    reader = reader_for(f"file://{moved}/", state=str(folder.parent / "state"))
    assert read_all(reader, second, third) == [7]


def test_a_link_and_a_copy_are_files_of_their_own(folder):
    """As in Spark: a file is what a name says."""
    (folder / "3.parquet").hardlink_to(folder / "0.parquet")
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sorted(read_all(reader, start, end)) == [0, 0, 1, 2, 10, 10, 11, 12]


def test_a_backlog_is_shared_by_all_tasks(folder, monkeypatch):
    monkeypatch.setattr(offsets, "LEAST_TASK_BYTES", 1)
    reader = reader_for(folder)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(reader.partitions(start, end)) == 4, (
        "a file in two parts, of which one is empty: it has one row group"
    )
    assert sorted(read_all(reader, start, end)) == [0, 1, 2, 10, 11, 12]
    table = pq.read_table(folder / "0.parquet")
    pq.write_table(pa.concat_tables([table] * 50), folder / "large.parquet", row_group_size=5)
    more = reader.latestOffset(end, ReadAllAvailable())
    shares = reader.partitions(end, more)
    assert [len(list(reader.read(share))) for share in shares] == [5, 5, 5, 5]
    assert Counter(read_all(reader, end, more)) == {0: 50, 10: 50}


SETTINGS = SessionSettings(
    sql=SqlSettings(zone="UTC"),
    has_place=True,
    operator=lambda: None,  # type: ignore[arg-type,return-value]
    memory=lambda: 0,
    adapting=lambda: dynamic(),
)
COLUMNS = {"k": "bigint", "i": "int", "s": "string", "v": "array<int>", "unused": "string"}


@pytest.mark.parametrize(
    ("on", "columns", "why"),
    [
        ("l.k = r.k AND l.s < r.s", {"k", "s"}, "go straight .* no part"),
        ("abs(l.k - r.k) <= 3", {"k"}, "go straight"),
        ("l.i = r.k", {"i"}, "go straight"),
        ("l.k + 1 = r.k AND l.s > 'x'", {"k", "s"}, "go straight"),
        ("l.k = r.k AND length(l.s) > 3", {"k", "s"}, "pass through Spark, because only Spark .* length"),
        ("upper(l.s) = r.s", {"s"}, "pass through Spark, because only Spark can compute"),
        ("l.v = r.v", set(COLUMNS), "pass through Spark, because Spark hashes its nested keys"),
    ],
)
def test_rows_go_straight_unless_only_spark_can_compute_something(on, columns, why):
    schemas = {name: {column: parse_type(kind) for column, kind in COLUMNS.items()} for name in "lr"}
    parsed = parse(JoinOptions(on=on, select=["r.k"]), schemas, SETTINGS)
    way = choose_file_way(parsed.compiled, "l", schemas["l"], ansi=True)
    assert set(way.columns) == columns
    assert re.search(why, way.explain("l")), way.explain("l")
