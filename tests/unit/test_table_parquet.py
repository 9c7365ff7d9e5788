"""Parquet files used in place: row groups as pages, or a clear word why not; new files are seen."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tests.unit.table_helpers import (
    KEY_VALUES,
    all_rows,
    check_table,
    numbers,
    repeated_keys,
    same_rows,
    travelled,
)
from watersmeet.engine.kept_table import Opened
from watersmeet.errors import TableError
from watersmeet.log.files import open_files
from watersmeet.tables import parquet
from watersmeet.tables.parquet import find_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.sorted_copy import OpenSortedCopy
from watersmeet.tables.spec import Address, table


def sorted_by(rows: pa.Table, keys) -> pa.Table:
    """In the order of the keys, -0.0 and 0.0 in any order, rows without a key last."""
    return rows.take(pc.sort_indices(rows, [(key, "ascending") for key in keys]))


def opened(tmp_path, source, key, **options):
    options = {"in_place": True, **options}
    return travelled(prepare(table(source, key, **options), open_files(tmp_path / "state"))).open()


@pytest.mark.parametrize("statistics", [True, False], ids=["statistics", "no statistics"])
@pytest.mark.parametrize("kind", KEY_VALUES)
def test_row_groups_are_pages_for_keys_of_every_type(tmp_path, kind, statistics):
    rows = sorted_by(pa.table({"k": repeated_keys(kind, 200), "n": range(200)}), ["k"])
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=16, write_statistics=statistics)
    found = opened(tmp_path, tmp_path / "t.parquet", "k")
    with_keys = 200 - rows["k"].null_count
    # A row group without any key is no page.
    assert len(found.index) == -(-with_keys // 16)
    check_table(found, rows)
    assert not list((tmp_path / "state").rglob("part-*"))


@pytest.mark.parametrize("kinds", [("string", "int"), ("double", "binary"), ("boolean", "date")])
def test_several_key_columns_may_share_the_first(tmp_path, kinds):
    names = [f"k{place}" for place in range(len(kinds))]
    keys = {
        name: repeated_keys(kind, 300, seed)
        for seed, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    rows = sorted_by(pa.table({**keys, "n": range(300)}), names)
    rows = rows.filter(pc.is_valid(rows["k0"])).filter(
        pc.is_valid(rows.filter(pc.is_valid(rows["k0"]))["k1"])
    )
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=20)
    check_table(opened(tmp_path, tmp_path / "t.parquet", names), rows)


def test_neither_the_order_of_files_nor_that_of_rows_matters(tmp_path):
    pieces = [numbers(*range(20, 30)), numbers(*range(10)), numbers(*range(10, 20))]
    for number, piece in enumerate(pieces):
        shuffled = piece.take(np.random.default_rng(number).permutation(10))
        pq.write_table(shuffled, tmp_path / f"{number}.parquet")
    found = opened(tmp_path, tmp_path, "id")
    assert found.index.first.column(0).to_pylist() == [0, 10, 20]
    check_table(found, pa.concat_tables(pieces))


def test_files_may_differ_in_columns_and_widths(tmp_path):
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([3], pa.int64()), "x": [1.5]}), tmp_path / "b.parquet")
    expected = pa.table({"id": [1, 2, 3], "x": [None, None, 1.5]})
    assert same_rows(all_rows(opened(tmp_path, tmp_path, "id"), ["id", "x"]), expected)


def test_small_sorted_row_groups_are_used_in_place_without_asking(tmp_path):
    pq.write_table(numbers(*range(2_000)), tmp_path / "t.parquet", row_group_size=500)
    spec = table(tmp_path / "t.parquet", "id")
    assert isinstance(prepare(spec, open_files(tmp_path / "state")).open(), parquet.OpenParquet)


@pytest.mark.parametrize(
    "options, constants, reason",
    [
        ({"row_group_size": 100}, {}, "fewer than 256 rows"),
        ({"row_group_size": 1_000}, {"MOST_BYTES": 5_000}, "its largest row group"),
    ],
    ids=["too small", "too large"],
)
def test_row_groups_of_unsuited_size_are_used_in_place_only_if_asked(
    tmp_path, monkeypatch, options, constants, reason
):
    for name, value in constants.items():
        monkeypatch.setattr(parquet, name, value)
    rows, files = numbers(*range(2_000)), open_files(tmp_path / "state")
    pq.write_table(rows, tmp_path / "t.parquet", **options)
    by_default = prepare(table(tmp_path / "t.parquet", "id"), files)
    assert isinstance(by_default.open(), OpenSortedCopy)
    check_table(by_default.open(), rows)
    check_table(opened(tmp_path, tmp_path / "t.parquet", "id"), rows)
    found = parquet.plan_in_place(find_files(Address(str(tmp_path / "t.parquet"))), ["id"], insist=False)
    assert reason in found


def test_overlapping_row_groups_are_refused_in_place_and_put_in_order_otherwise(tmp_path):
    rows = pa.concat_tables([numbers(*range(600)), numbers(*range(500, 1_000))])
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=600)
    with pytest.raises(
        TableError, match=r"row group 0 of t.parquet and row group 1 of t.parquet overlap.*Sort it by id"
    ):
        opened(tmp_path, tmp_path / "t.parquet", "id")
    check_table(opened(tmp_path, tmp_path / "t.parquet", "id", in_place=None), rows)


def test_a_partitioned_directory_is_not_used_in_place(tmp_path):
    (tmp_path / "t" / "day=1").mkdir(parents=True)
    pq.write_table(numbers(*range(10)), tmp_path / "t" / "day=1" / "a.parquet")
    with pytest.raises(TableError, match="names of its folders"):
        opened(tmp_path, tmp_path / "t", "id")


def test_a_row_group_that_is_not_what_its_statistics_say_is_refused(tmp_path, monkeypatch):
    """Such as a table whose writer took the order on trust. That is checked once, where the page is joined."""
    pq.write_table(numbers(*range(100)), tmp_path / "t.parquet", row_group_size=50)
    found = opened(tmp_path, tmp_path / "t.parquet", "id")
    monkeypatch.setattr(found, "_group", found._group[::-1])
    rows = found.read(0, ["id", "s"])
    with pytest.raises(TableError, match="page 0 of the table holds the key.*not sorted"):
        Opened(found).page(0, rows, ["id"])


class TwoPieces:
    """A row group with a column of more than 2 GB, as Arrow gives it: what cannot be in one piece stays in several."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = pa.concat_tables([rows.slice(0, 10), rows.slice(10)])

    def combine_chunks(self) -> pa.Table:
        return self._rows


def in_two_pieces(patch: pytest.MonkeyPatch) -> None:
    read = pq.ParquetFile.read_row_group
    patch.setattr(pq.ParquetFile, "read_row_group", lambda *at, **how: TwoPieces(read(*at, **how)))


def test_a_row_group_that_is_too_large_for_one_piece_is_named(tmp_path, monkeypatch):
    """Not taken for an empty one."""
    pq.write_table(numbers(*range(100)), tmp_path / "t.parquet", row_group_size=50)
    found = opened(tmp_path, tmp_path / "t.parquet", "id")
    in_two_pieces(monkeypatch)
    with pytest.raises(TableError, match=r"page 1, row group 1 of .*t.parquet.*smaller row groups"):
        found.read(1, ["id", "s"])


def test_keys_of_a_row_group_that_are_too_large_for_one_piece_are_not_taken_for_its_first(
    tmp_path, monkeypatch
):
    pq.write_table(numbers(*range(100)), tmp_path / "t.parquet", row_group_size=50, write_statistics=False)
    in_two_pieces(monkeypatch)
    with pytest.raises(TableError, match=r"row group 0 of t.parquet.*smaller row groups"):
        opened(tmp_path, tmp_path / "t.parquet", "id")


def test_a_damaged_row_group_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(numbers(*range(3_000)), path, row_group_size=1_000, compression="zstd")
    found = opened(tmp_path, path, "id")
    column = pq.read_metadata(path).row_group(1).column(1)
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    stat = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert found.read(0, ["id", "s"]).num_rows == 1_000
    with pytest.raises(TableError, match=r"page 1, row group 1 of .*t.parquet, cannot be read"):
        found.read(1, ["id", "s"])


@pytest.mark.parametrize("change, word", [("remove", "was removed"), ("rewrite", "was changed")])
def test_a_file_that_is_not_the_one_indexed_is_refused(tmp_path, change, word):
    path = tmp_path / "t.parquet"
    pq.write_table(numbers(*range(100)), path)
    found = opened(tmp_path, path, "id")
    path.unlink()
    if change == "rewrite":
        pq.write_table(numbers(*range(5, 120)), path)
    with pytest.raises(TableError, match=f"t.parquet.*{word}.*refresh="):
        found.read(0, ["id"])


@pytest.mark.parametrize("known", [True, False], ids=["while listed", "at once"])
def test_a_place_that_cannot_be_looked_at_is_named(tmp_path, monkeypatch, known):
    here = fs.LocalFileSystem()

    class Away:
        def get_file_info(self, path):
            if known and isinstance(path, str):
                return here.get_file_info(path)
            raise OSError("no route to ada:s3cret@host")

    monkeypatch.setattr(parquet, "place_of", lambda _: (Away(), str(tmp_path)))
    with pytest.raises(
        TableError, match=r"table s3://.*/t cannot be read: no route.*Check that it is reachable"
    ) as failure:
        find_files(Address("s3://ada:s3cret@bucket/t"))
    assert "s3cret" not in str(failure.value)


@pytest.mark.parametrize(
    "look",
    [
        lambda found: found.schema,
        lambda found: found.rows(),
        lambda found: parquet.plan_in_place(found, ["id"], insist=True),
    ],
    ids=["columns", "rows", "row groups"],
)
def test_a_file_that_goes_away_while_it_is_looked_at_is_named(tmp_path, look):
    """Where a table is looked at again while the query runs, that is no reason to end it."""
    path = tmp_path / "t.parquet"
    pq.write_table(numbers(*range(100)), path)
    found = find_files(Address(str(path)))
    assert found.dataset.schema.names == ["id", "s"]
    path.unlink()
    with pytest.raises(TableError, match=r"t.parquet.* cannot be read.*Check that it is reachable"):
        look(found)


def test_more_files_than_are_kept_open(tmp_path):
    for number in range(5):
        pq.write_table(numbers(*range(number * 10, number * 10 + 10)), tmp_path / f"{number}.parquet")
    found = opened(tmp_path, tmp_path, "id")
    found.most_open = 2
    for order in ([0, 1, 2, 3, 4], [4, 0, 4, 1]):
        assert [page.column(0)[0].as_py() for _, page in found.read_many(order, ["id"])] == [
            n * 10 for n in order
        ]
    assert len(found._open) == 2
    found.close()
    assert found.read(0, ["id"]).num_rows == 10


def test_more_may_be_read_while_pages_are_on_their_way(tmp_path):
    pq.write_table(numbers(*range(10_000)), tmp_path / "t.parquet", row_group_size=100)
    found = opened(tmp_path, tmp_path / "t.parquet", "id")
    for number, page in found.read_many(range(100), ["id", "s"]):
        again = found.read(number, ["id", "s"])
        assert again.equals(page) and page.column("id")[0].as_py() == number * 100


def test_a_failed_read_ahead_reaches_the_caller_in_its_turn(tmp_path):
    for number in range(3):
        pq.write_table(numbers(*range(number * 10, number * 10 + 10)), tmp_path / f"{number}.parquet")
    found = opened(tmp_path, tmp_path, "id")
    (tmp_path / "1.parquet").unlink()
    pages = found.read_many([0, 1, 2], ["id"])
    assert next(pages)[0] == 0
    with pytest.raises(TableError, match="1.parquet"):
        next(pages)


@pytest.mark.parametrize("mode", [True, False], ids=["in place", "sorted copy"])
def test_new_changed_and_removed_files_make_a_newer_source(tmp_path, mode):
    data = tmp_path / "t"
    data.mkdir()
    pq.write_table(numbers(*range(100)), data / "a.parquet")
    first = opened(tmp_path, data, "id", in_place=mode)
    assert first.newest() is None
    pq.write_table(numbers(*range(100, 150)), data / "b.parquet")
    second = first.newest()
    assert second is not None and second.version != first.version
    check_table(second.open(), numbers(*range(150)))
    assert second.open().newest() is None
    check_table(first, numbers(*range(100)))
    pq.write_table(numbers(*range(200, 210)), data / "b.parquet")
    third = second.open().newest()
    assert third is not None
    check_table(third.open(), pa.concat_tables([numbers(*range(100)), numbers(*range(200, 210))]))
    (data / "a.parquet").unlink()
    fourth = third.open().newest()
    assert fourth is not None
    check_table(fourth.open(), numbers(*range(200, 210)))
    pq.write_table(numbers(*range(100)), data / "a.parquet")
    fifth = fourth.open().newest()
    assert fifth is not None
    check_table(fifth.open(), pa.concat_tables([numbers(*range(100)), numbers(*range(200, 210))]))


def test_a_relative_path_means_the_drivers_directory(tmp_path, monkeypatch):
    pq.write_table(numbers(*range(10)), tmp_path / "t.parquet")
    monkeypatch.chdir(tmp_path)
    source = travelled(prepare(table("t.parquet", "id", in_place=True), open_files(tmp_path / "state")))
    monkeypatch.chdir("/")
    assert source.open().read(0, ["id"]).num_rows == 10
