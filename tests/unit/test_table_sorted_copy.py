"""Sorted copies of tables: all rows, sorted, found again, never half."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.table_helpers import (
    KEY_VALUES,
    Frame,
    all_rows,
    check_table,
    repeated_keys,
    same_rows,
    travelled,
)
from watersmeet.errors import CorruptFile, TableError
from watersmeet.kernel.rows import ORDER
from watersmeet.log.files import open_files
from watersmeet.tables import sorted_copy
from watersmeet.tables.catalogue import TABLES, drop_tables
from watersmeet.tables.parquet import find_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.sorted_copy import write_sorted_copy
from watersmeet.tables.source import PreparedTable, TableProgress, no_report
from watersmeet.tables.spec import Address, table


def write(path, rows: pa.Table, **options) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    return str(path)


def numbers(rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {"id": rng.integers(0, rows, rows), "x": rng.random(rows), "s": [f"row {n}" for n in range(rows)]}
    )


def form_of(tmp_path, rows: pa.Table, key, **options):
    source = write(tmp_path / "in.parquet", rows)
    return prepare(table(source, key, in_place=False, **options), open_files(tmp_path / "state")).open()


@pytest.mark.parametrize("kind", KEY_VALUES)
def test_keys_of_every_type_are_put_in_order(tmp_path, kind):
    rows = pa.table({"k": repeated_keys(kind, 200), "n": range(200)})
    opened = form_of(tmp_path, rows, "k", page_rows=16)
    assert len(opened.index) > 5
    assert opened.schema.field("k").type == KEY_VALUES[kind][0]
    check_table(opened, rows)


@pytest.mark.parametrize(
    "kinds", [("string", "int"), ("double", "binary"), ("boolean", "decimal(38,3)", "date")]
)
def test_several_key_columns_are_ordered_one_after_the_other(tmp_path, kinds):
    names = [f"k{place}" for place in range(len(kinds))]
    columns = {
        name: repeated_keys(kind, 300, seed)
        for seed, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    rows = pa.table({**columns, "n": range(300)})
    check_table(form_of(tmp_path, rows, names, page_rows=20), rows)


def test_one_key_may_fill_many_pages(tmp_path):
    rows = pa.table({"k": [1] * 5 + [2] * 100 + [3] * 5, "n": range(110)})
    opened = form_of(tmp_path, rows, "k", page_rows=10)
    assert len(opened.index) == 11
    assert opened.index.continues.tolist() == [True] * 10 + [False]
    check_table(opened, rows)


def test_a_page_and_a_file_have_about_the_bytes_asked_for(tmp_path):
    rows, state = numbers(20_000), open_files(tmp_path / "state")
    source = write(tmp_path / "in.parquet", rows)
    spec = table(source, "id", in_place=False, page_bytes=16_384)
    found = find_files(Address(str(source)))
    entry = write_sorted_copy(state, "tables/x", spec, found, no_report, part_bytes=100_000)
    opened = PreparedTable(str(tmp_path / "state"), "tables/x", entry.version).open()
    assert 16_000 < np.median(opened.index.bytes) < 24_000
    sizes = sorted(part.stat().st_size for part in (tmp_path / "state").rglob("part-*"))
    assert len(sizes) > 3 and 100_000 <= sizes[1] <= sizes[-1] < 150_000
    check_table(opened, rows)


def test_very_wide_rows_make_smaller_pages(tmp_path):
    """Else one page of a table with a few huge rows could be larger than any buffer."""
    rows = pa.table({"k": range(2_000), "s": ["x" * (20_000 if n > 1_900 else 10) for n in range(2_000)]})
    opened = form_of(tmp_path, rows, "k", page_bytes=100_000)
    assert opened.index.bytes.max() < 2_000_000
    check_table(opened, rows)


ODD_COLUMNS = {
    "u8": pa.array([1, None], pa.uint8()),
    "u64": pa.array([2**64 - 1, None], pa.uint64()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "large": pa.array(["a", None], pa.large_string()),
    "nanoseconds": pa.array([1_500, None], pa.timestamp("ns", "Europe/Paris")),
    "duration": pa.array([5, None], pa.duration("us")),
    "time": pa.array([5, None], pa.time32("ms")),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "list": pa.array([[1, None], None], pa.list_(pa.int16())),
    "struct": pa.array(
        [{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})
    ),
    "map": pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64())),
    "ID": pa.array([7, 8]),
    'quo"te': pa.array([True, None]),
}
CANONICAL = {
    "u8": pa.int16(),
    "u64": pa.decimal128(20, 0),
    "dictionary": pa.string(),
    "large": pa.string(),
    "nanoseconds": pa.timestamp("us", "UTC"),
    "duration": pa.duration("us"),
    "time": pa.time64("us"),
    "fixed": pa.binary(),
}


def test_columns_of_every_type_come_through_in_canonical_types(tmp_path):
    rows = pa.table({"id": [2, 1], **ODD_COLUMNS})
    opened = form_of(tmp_path, rows, "id")
    for name, column in ODD_COLUMNS.items():
        wanted = CANONICAL.get(name, column.type)
        assert opened.schema.field(name).type == wanted, name
        expected = pa.table({"id": [2, 1], name: column.cast(wanted, safe=False)})
        assert same_rows(all_rows(opened, ["id", name]), expected), name


def test_timestamps_as_spark_writes_them_are_moments(tmp_path):
    rows = pa.table({"k": pa.array([1, 2]), "t": pa.array([0, -(10**16)], pa.timestamp("us"))})
    source = write(tmp_path / "in.parquet", rows, use_deprecated_int96_timestamps=True)
    opened = prepare(table(source, "k", in_place=False), open_files(tmp_path / "state")).open()
    assert all_rows(opened, ["t"])["t"].cast(pa.int64()).to_pylist() == [0, -(10**16)]
    assert opened.schema.field("t").type == pa.timestamp("us", "UTC")


def test_a_directory_is_one_table_with_the_columns_of_its_folders(tmp_path):
    base = tmp_path / "in"
    write(base / "day=1" / "a.parquet", pa.table({"k": pa.array([3, 1], pa.int32())}))
    write(base / "day=2" / "b.parquet", pa.table({"k": pa.array([2, None], pa.int64()), "x": ["p", "q"]}))
    write(base / "_temporary" / "c.parquet", pa.table({"k": [9]}))
    (base / "_SUCCESS").touch()
    (base / ".d.parquet.crc").write_text("x")
    opened = prepare(table(base, "k"), open_files(tmp_path / "state")).open()
    expected = pa.table(
        {
            "k": [1, 2, 3],
            "day": pa.array([1, 2, 1], pa.int32()),
            "x": pa.array([None, "p", None], pa.string()),
        }
    )
    assert same_rows(all_rows(opened, ["k", "day", "x"]), expected)


def test_an_empty_table_has_no_pages(tmp_path):
    rows = pa.table({"k": pa.array([None], pa.string()), "x": [1]})
    opened = form_of(tmp_path, rows, "k")
    assert len(opened.index) == 0
    assert opened.index.first.schema.field("k").type == pa.string()
    assert all_rows(opened, ["x"]).num_rows == 0


def test_only_the_columns_asked_for_come_back(tmp_path):
    opened = form_of(tmp_path, numbers(100), "id")
    assert opened.read(0, ["s", "id"]).schema.names == [ORDER, "s", "id"]


def test_a_page_is_a_view_of_the_file(tmp_path):
    opened = form_of(tmp_path, numbers(10_000), "id")
    before = pa.total_allocated_bytes()
    pages = [page for _, page in opened.read_many(range(len(opened.index)), ["id", "s"])]
    assert sum(page.num_rows for page in pages) == 10_000
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_second_start_finds_what_the_first_prepared(tmp_path):
    source = write(tmp_path / "in.parquet", numbers(1_000))
    spec, files = table(source, "id", in_place=False), open_files(tmp_path / "state")
    reports: list[TableProgress] = []
    first = prepare(spec, files, report=reports.append)
    assert [report.phase for report in reports][:1] == ["sorting"]
    assert (reports[-1].phase, reports[-1].rows, reports[-1].rows_in_all) == ("writing", 1_000, 1_000)
    reports.clear()
    assert prepare(spec, files, report=reports.append) == first
    assert reports == []
    assert travelled(first) == first


def test_another_key_page_size_or_content_is_another_sorted_copy(tmp_path):
    source = write(tmp_path / "in.parquet", numbers(1_000))
    files = open_files(tmp_path / "state")
    specs = [table(source, "id"), table(source, "x"), table(source, "id", page_rows=7)]
    folders = [prepare(spec, files).folder for spec in specs]
    write(tmp_path / "in.parquet", numbers(1_001))
    folders.append(prepare(specs[0], files).folder)
    assert len(set(folders)) == 4
    dropped = drop_tables(files, folders[2:], now_s=1e12)
    assert sorted(dropped) == sorted(folders[:2])
    assert sorted(f"{TABLES}/{name}" for name in files.under(TABLES).folders()) == sorted(folders[2:])


def test_tables_in_use_or_just_made_are_not_dropped(tmp_path):
    source = write(tmp_path / "in.parquet", numbers(10))
    files = open_files(tmp_path / "state")
    made = prepare(table(source, "id"), files)
    modified = max(entry.modified_s for entry in files.entries(made.folder))
    assert drop_tables(files, [made.folder], now_s=1e12) == []
    assert drop_tables(files, [], now_s=modified + 60, grace_s=120) == []
    assert drop_tables(files, [], now_s=modified + 180, grace_s=120) == [made.folder]


def test_a_data_frame_that_is_being_written_is_not_dropped(tmp_path):
    files = open_files(tmp_path / "state")
    scratch = tmp_path / "state" / TABLES / "frame-1"
    written = scratch / "_temporary" / "0" / "part-0.parquet"
    written.parent.mkdir(parents=True)
    assert drop_tables(files, [], now_s=1e12) == []
    written.write_bytes(b"some")
    modified = written.stat().st_mtime
    assert drop_tables(files, [], now_s=modified + 60, grace_s=120) == []
    # Left behind by one that was killed.
    assert drop_tables(files, [], now_s=modified + 180, grace_s=120) == [f"{TABLES}/frame-1"]
    assert not scratch.exists()


def age(folder, hours: float) -> None:
    """Set back the times of all files."""
    for file in folder.iterdir():
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - hours * 3600))


def test_an_old_table_that_a_start_has_just_found_is_not_dropped(tmp_path):
    source = write(tmp_path / "in.parquet", numbers(10))
    files = open_files(tmp_path / "state")
    spec = table(source, "id")
    made = prepare(spec, files)
    folder = tmp_path / "state" / made.folder
    content = sorted(os.listdir(folder))
    for _ in range(3):
        age(folder, hours=10)
        for _ in range(2):
            assert prepare(spec, files) == made
        assert drop_tables(files, [], now_s=time.time()) == []
        check_table(made.open(), numbers(10))
        assert len(os.listdir(folder)) == len(content) + 1
    age(folder, hours=10)
    assert drop_tables(files, [], now_s=time.time()) == [made.folder]


KILLED = """
import sys
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table
from watersmeet.log.files import open_files
prepare(table(sys.argv[1], "id", in_place=False), open_files(sys.argv[2]))
"""


def test_a_preparation_that_is_killed_while_it_writes_leaves_nothing_that_counts(tmp_path):
    rows = numbers(1_000)
    source, state = write(tmp_path / "in.parquet", rows), tmp_path / "state"
    fault = {"WATERSMEET_FAILPOINTS": "table-half-written=kill"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, source, str(state)], env=os.environ | fault, timeout=60, check=False
    )
    assert done.returncode < 0 and list(state.rglob("*part-*"))
    check_table(prepare(table(source, "id", in_place=False), open_files(state)).open(), rows)


def test_a_preparation_that_ends_before_it_is_published_does_not_count(tmp_path, monkeypatch):
    rows = numbers(1_000)
    spec = table(write(tmp_path / "in.parquet", rows), "id", in_place=False)
    files, reports = open_files(tmp_path / "state"), []

    def fail(*_args, **_named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sorted_copy, "publish", fail)
        with pytest.raises(KeyboardInterrupt):
            prepare(spec, files)
    assert list((tmp_path / "state").rglob("part-*"))
    check_table(prepare(spec, files, report=reports.append).open(), rows)
    assert reports, "it was made anew"


def test_what_a_killed_preparation_left_is_removed_in_time(tmp_path):
    source = write(tmp_path / "in.parquet", numbers(100))
    spec, files = table(source, "id"), open_files(tmp_path / "state")
    folder = tmp_path / "state" / prepare(spec, files).folder
    old, young = (folder / f"part-00009-{letter * 16}.arrows" for letter in "ab")
    for path in (old, young):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    prepare(spec, files)
    assert not old.exists() and young.exists()


def damage(path, change) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.chmod(0o644)
    path.write_bytes(content)


def test_a_damaged_page_is_named_and_the_others_can_be_read(tmp_path):
    opened = form_of(tmp_path, numbers(1_000), "id", page_rows=100)
    (part,) = (tmp_path / "state").rglob("part-*")
    start, size = opened._start[5], opened._bytes[5]

    def flip(content):
        content[start + size // 2] ^= 1

    damage(part, flip)
    for page in (0, 4, 6, 9):
        assert opened.read(page, ["id"]).num_rows == 100
    with pytest.raises(TableError, match=rf"page 5, in .*{part.name}.*damaged.*prepared anew"):
        opened.read(5, ["id"])


def test_a_damaged_file_that_is_met_while_sorting_is_named(tmp_path):
    """Not the space that a sort needs."""
    path = tmp_path / "in.parquet"
    write(path, numbers(3_000), row_group_size=1_000, compression="zstd")
    column = pq.read_metadata(path).row_group(1).column(2)
    start = column.dictionary_page_offset or column.data_page_offset

    def overwrite(content):
        content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size

    damage(path, overwrite)
    with pytest.raises(
        TableError, match=r"(?s)in.parquet cannot be read: .*if a file was damaged"
    ) as failure:
        prepare(table(path, "id", in_place=False), open_files(tmp_path / "state"))
    assert "cannot be sorted" not in str(failure.value)


def test_a_truncated_or_missing_part_is_named(tmp_path):
    opened = form_of(tmp_path, numbers(1_000), "id", page_rows=100)
    (part,) = (tmp_path / "state").rglob("part-*")

    def halve(content):
        del content[len(content) // 2 :]

    damage(part, halve)
    assert opened.read(0, ["id"]).num_rows == 100
    with pytest.raises(TableError, match="page 9.*damaged"):
        opened.read(9, ["id"])
    opened.close()
    part.unlink()
    with pytest.raises(TableError, match=f"{part.name}.*is missing"):
        opened.read(0, ["id"])


def test_a_damaged_index_is_named(tmp_path):
    form_of(tmp_path, numbers(100), "id")
    (pages,) = (tmp_path / "state").rglob("pages-*")
    damage(pages, lambda content: content.__setitem__(50, content[50] ^ 1))
    spec = table(tmp_path / "in.parquet", "id", in_place=False)
    with pytest.raises(CorruptFile, match=pages.name):
        prepare(spec, open_files(tmp_path / "state")).open()


@pytest.mark.parametrize(
    "make, key, message",
    [
        (lambda d: d / "no.parquet", "id", "is not there"),
        (lambda d: (d / "empty").mkdir() or d / "empty", "id", "without Parquet files"),
        (
            lambda d: (d / "text").write_text("a,b") and d / "text",
            "id",
            "cannot be read as Parquet.* as a DataFrame",
        ),
        (lambda d: write(d / "a.parquet", numbers(3)), "ID", "has no column ID; did you mean id"),
        (lambda d: write(d / "a.parquet", numbers(3)), "q", "its columns are id, x, s"),
        (lambda d: write(d / "a.parquet", pa.table({"id": [[1]]})), "id", r"key id is of type array<bigint>"),
        (lambda d: "mars://x/y", "id", "cannot be opened"),
    ],
    ids=["missing", "empty", "no parquet", "near name", "far name", "key type", "scheme"],
)
def test_tables_that_cannot_be_used_say_why(tmp_path, make, key, message):
    with pytest.raises(TableError, match=message):
        prepare(table(make(tmp_path), key), open_files(tmp_path / "state"))


class Writer:
    """Writes a table of rows as Spark would."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def fingerprint(self, frame) -> str:
        return str(frame.rows.num_rows)

    def write(self, frame, place: str) -> None:
        os.makedirs(place)
        pq.write_table(frame.rows, f"{place}/part-0.parquet")
        self.written.append(place)


def test_a_data_frame_is_written_once_and_used_again(tmp_path):
    files, writer, rows = open_files(tmp_path / "state"), Writer(), numbers(500)
    source = prepare(table(Frame(rows), "id"), files, writer)
    check_table(source.open(), rows)
    assert source.open().newest() is None
    assert prepare(table(Frame(rows), "id"), files, writer) == source
    assert len(writer.written) == 1 and not os.path.exists(writer.written[0])
    assert travelled(source) == source
    with pytest.raises(TableError, match="has no column nr"):
        prepare(table(Frame(rows), "nr"), files, writer)
    assert files.under(TABLES).folders() == [source.folder.partition("/")[2]]
