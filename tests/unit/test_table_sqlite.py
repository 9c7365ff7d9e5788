"""What is SQLite's own: loose types, collations, a file that may be missing."""

from __future__ import annotations

import os
import re
import sqlite3

import pyarrow as pa
import pytest

from tests.unit.table_helpers import all_rows, check_table, same_rows, travelled
from watersmeet.errors import ConfigError, TableError
from watersmeet.kernel.lookup import check_page
from watersmeet.log.files import open_files
from watersmeet.tables import sql
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import PAGE_BYTES, table


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    yield connection
    connection.close()


def opened(tmp_path, key="id", *, uri=None, **options):
    spec = table(uri or f"sqlite:///{tmp_path}/shop.db", key, **{"table": "t", **options})
    return travelled(prepare(spec, open_files(tmp_path / "state"))).open()


def test_declared_types_say_what_columns_are(tmp_path, database):
    database.execute(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a VARCHAR(9), b DOUBLE, c BLOB, d BOOLEAN, e DATE, f DECIMAL(9,2), "
        "g TEXT, h, i)"
    )
    database.execute("INSERT INTO t VALUES (1, 'x', 1, x'00ff', 1, '2024-01-01', '12.5', 7, 3, 'y')")
    database.execute("INSERT INTO t (id, h) VALUES (2, 2.5)")
    expected = pa.table(
        {
            "id": [1, 2],
            "a": ["x", None],
            "b": [1.0, None],
            "c": [b"\x00\xff", None],
            "d": [True, None],
            "e": ["2024-01-01", None],
            "f": [12.5, None],
            "g": ["7", None],
            "h": [3.0, 2.5],
            "i": ["y", None],
        }
    )
    assert same_rows(all_rows(opened(tmp_path), expected.column_names), expected)


def test_a_column_that_is_null_for_thousands_of_rows_keeps_its_type(tmp_path, database):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
    rows = [(n, None if n < 3_000 else f"row {n}") for n in range(4_000)]
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    database.execute("COMMIT")
    expected = pa.table({"id": [n for n, _ in rows], "s": [s for _, s in rows]})
    check_table(opened(tmp_path, page_rows=4_000), expected)
    check_table(opened(tmp_path, page_rows=500), expected)


@pytest.mark.parametrize(
    "declared, value, kind, shown",
    [
        ("INTEGER", "many", "bigint", "text 'many'"),
        ("INTEGER", 2.5, "bigint", "real 2.5"),
        ("NUMERIC", "abc", "double", "text 'abc'"),
        ("DECIMAL(9,2)", "12,5", "double", "text '12,5'"),
        ("REAL", b"1.5", "double", "blob X'312E35'"),
        ("NUMERIC", 2**60 + 1, "double", "integer 1152921504606846977"),
        ("DECIMAL", 2**63 - 1, "double", "integer 9223372036854775807"),
        ("BOOLEAN", 7, "boolean", "integer 7"),
        ("BOOLEAN", "true", "boolean", "text 'true'"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_value_that_does_not_fit_its_column_is_named(tmp_path, database, declared, value, kind, shown):
    database.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, n {declared})")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(1, 1), (2, None), (3, value)])
    with pytest.raises(TableError, match=f"column n.*cannot be read as {kind}.*{re.escape(shown)}"):
        opened(tmp_path).read(0, ["n"])
    database.execute("UPDATE t SET n = 0 WHERE id = 3")
    assert opened(tmp_path).read(0, ["n"]).column("n").to_pylist() == [1, None, 0]


def test_numbers_that_a_double_holds_are_read_exactly(tmp_path, database):
    exact = [0.1, 5e-324, -1.7976931348623157e308, float("inf"), 2**60, -(2**63), 2**53, 3, -0.5]
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a NUMERIC, b DECIMAL(38,2), c REAL, d)")
    database.executemany("INSERT INTO t VALUES (?, ?2, ?2, ?2, ?2)", list(enumerate(exact)))
    read = opened(tmp_path).read(0, list("abcd"))
    for column in read.columns:
        assert column.type == pa.float64() and column.to_pylist() == [float(value) for value in exact]


def test_whole_numbers_beside_a_double_are_not_rounded(tmp_path, database):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n)")
    rows = [(n, 2**60 + 1 + n) for n in range(1_000)]
    database.executemany("INSERT INTO t VALUES (?, ?)", [*rows, (1_000, 3.0)])
    with pytest.raises(TableError, match="column n.*cannot be read as bigint.*real 3.0"):
        opened(tmp_path).read(0, ["n"])


def test_text_under_another_collation_needs_an_index_by_its_bytes(tmp_path, database):
    database.execute("CREATE TABLE t (name TEXT COLLATE NOCASE, n INTEGER)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(name, n) for n, name in enumerate("bAaBcC")])
    database.execute("CREATE INDEX wrong ON t (name)")
    with pytest.raises(TableError, match="no index") as caught:
        opened(tmp_path, "name")
    # What the message says helps.
    database.execute(str(caught.value).partition("rows: ")[2])
    found = opened(tmp_path, "name", page_rows=2)
    check_table(found, pa.table({"name": list("bAaBcC"), "n": range(6)}))
    assert found.lookup(pa.record_batch({"k": ["a", "B"]}), ["name"]).num_rows == 2


@pytest.mark.parametrize("declared", ["DATETIME", "DATE", "TIME", "", "STRING"])
def test_text_keys_that_sqlite_stores_as_numbers_are_compared_as_text(tmp_path, database, declared):
    database.execute(f"CREATE TABLE t (k {declared}, n INTEGER)")
    keys = ["x", *range(900)]
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(key, n) for n, key in enumerate(keys)])
    database.execute("COMMIT")
    database.execute("CREATE INDEX t_k ON t (k)")
    with pytest.raises(TableError, match="no index on its key") as caught:
        opened(tmp_path, "k", page_rows=10)
    database.execute(str(caught.value).partition("rows: ")[2])
    found = opened(tmp_path, "k", page_rows=10)
    assert len(found.index) > 80
    expected = pa.table({"k": list(map(str, keys)), "n": range(901)})
    check_table(found, expected)
    assert sorted(found.lookup(pa.record_batch({"k": ["7", "899", "no", "07"]}), ["n"])["n"].to_pylist()) == [
        8,
        900,
    ]


def test_several_keys_that_no_index_of_sqlite_finds_are_refused(tmp_path, database):
    database.execute("CREATE TABLE t (d DATE, n INTEGER)")
    database.execute("CREATE INDEX t_k ON t (CAST(d AS TEXT), n)")
    with pytest.raises(TableError, match=r'compared as CAST\("d" AS TEXT\): declare text keys as TEXT'):
        opened(tmp_path, ["d", "n"])


def test_a_key_in_another_order_than_ours_is_refused(tmp_path, database):
    database.execute("CREATE TABLE t (k BLOB PRIMARY KEY)")
    database.executemany("INSERT INTO t VALUES (?)", [("a",), ("b",), (b"a!",)])
    with pytest.raises(TableError, match=r"orders \(b'b',\) before \(b'a!',\).*key k would be missed: give"):
        opened(tmp_path, "k", page_rows=1)


def test_the_order_is_checked_at_every_bound_that_was_found(tmp_path, database):
    """Text is before binary in SQLite. All keys fit one page, whose bound alone would show nothing."""
    database.execute("CREATE TABLE t (k BLOB PRIMARY KEY, x TEXT)")
    keys = [*(f"{n:03d}" for n in range(0, 980, 7)), *(f"1{n:03d}".encode() for n in range(460))]
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(key, "x" * 700) for key in keys])
    database.execute("COMMIT")
    with pytest.raises(
        TableError, match=r"orders \(b'6..',\) before \(b'1...',\).*key k would be missed: give"
    ):
        opened(tmp_path, "k")


def test_a_key_in_another_order_within_a_page_is_named_with_what_helps(tmp_path, database):
    database.execute("CREATE TABLE t (k BLOB PRIMARY KEY)")
    database.executemany("INSERT INTO t VALUES (?)", [("a",), ("b",), (b"a!",)])
    found = opened(tmp_path, "k", page_rows=2)
    with pytest.raises(
        TableError, match=r"the key \{'k': b'b'\} in page 0.*one type for all its values"
    ) as caught:
        check_page(found.index, 0, found.read(0, ["k"]))
    assert "in_place" not in str(caught.value) and "sort it" not in str(caught.value)


def test_a_file_that_takes_the_place_of_another_is_read(tmp_path, database):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(n, "old") for n in range(10)])
    found = opened(tmp_path, page_rows=5)
    assert all_rows(found, ["s"]).column("s").to_pylist() == ["old"] * 10
    with sqlite3.connect(tmp_path / "next.db") as following:
        following.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, s TEXT)")
        following.executemany("INSERT INTO t VALUES (?, ?)", [(n, "new") for n in range(100)])
    following.close()
    os.replace(tmp_path / "next.db", tmp_path / "shop.db")
    assert all_rows(found, ["s"]).column("s").to_pylist() == ["new"] * 100
    assert found.lookup(pa.record_batch({"k": [50]}), ["s"]).to_pydict() == {"s": ["new"]}
    newer = found.newest()
    assert newer is not None and len(newer.open().index) == 20
    # While there is none, the last one is as good as any.
    (tmp_path / "shop.db").unlink()
    assert found.lookup(pa.record_batch({"k": [50]}), ["s"]).num_rows == 1


def test_a_missing_file_is_named_and_not_made(tmp_path):
    with pytest.raises(TableError, match="there is no database .*shop.db"):
        opened(tmp_path)
    assert not (tmp_path / "shop.db").exists()


def test_a_relative_path_means_the_drivers_directory(tmp_path, database, monkeypatch):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    monkeypatch.chdir(tmp_path)
    source = prepare(table("sqlite:///shop.db", "id", table="t"), open_files(tmp_path / "state"))
    monkeypatch.chdir("/")
    assert travelled(source).open().read(0, ["id"]).num_rows == 1


def test_a_path_with_odd_letters(tmp_path):
    odd = tmp_path / "a b?c#d%e.db"
    with sqlite3.connect(odd) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    connection.close()
    assert opened(tmp_path, uri=f"sqlite:///{odd}").read(0, ["id"]).num_rows == 0


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "shop.db").write_text("this is no database, whatever its name may say" * 100)
    with pytest.raises(TableError, match="not a database"):
        opened(tmp_path)


def test_without_the_driver_it_is_said_what_to_install(tmp_path, database, monkeypatch):
    database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(sql.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=r"watersmeet\[databases\]"):
        opened(tmp_path)


def test_another_kind_of_database_in_the_environment_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WM_SHOP", "mysql://u:secret5@h/x")
    with pytest.raises(TableError, match="mysql is not a known database") as caught:
        opened(tmp_path, uri="env:WM_SHOP")
    assert "secret5" not in str(caught.value)


@pytest.fixture
def results(monkeypatch):
    """The bytes of every result of every query."""
    sizes, run = [], sql.DatabaseSession.run

    def counted(self, *arguments):
        found = run(self, *arguments)
        sizes.append(found.nbytes)
        return found

    monkeypatch.setattr(sql.DatabaseSession, "run", counted)
    return sizes


def with_rows(tmp_path, database, rows, **options):
    database.execute("CREATE TABLE t (k INTEGER, x BLOB)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?, ?)", rows)
    database.execute("COMMIT")
    database.execute("CREATE INDEX t_k ON t (k)")
    return opened(tmp_path, "k", **options)


@pytest.mark.parametrize("page_bytes", [None, 100_000])
def test_a_page_has_about_the_bytes_asked_for_or_the_default(tmp_path, database, page_bytes):
    found = with_rows(tmp_path, database, ((k, b"x" * 100) for k in range(60_000)), page_bytes=page_bytes)
    rows = found.index.rows
    assert (rows[:-1] == rows[0]).all() and rows.sum() == 60_000 and len(rows) > 5
    assert found.index.bytes[0] == pytest.approx(page_bytes or PAGE_BYTES, rel=0.02)
    assert all_rows(found, ["k"]).column("k").to_pylist() == list(range(60_000))


def test_a_hot_key_is_not_read_while_pages_are_found(tmp_path, database, results):
    """Half of the table is one key, after a quarter of the others."""
    rows = ((k if k < 7_500 else max(k - 25_000, 7_500), b"x" * 500) for k in range(55_000))
    found = with_rows(tmp_path, database, rows)
    assert found.index.rows.max() > 25_000
    assert max(results) < 1 << 20


def test_wide_rows_are_not_all_read_to_know_how_wide_they_are(tmp_path, database, results):
    found = with_rows(tmp_path, database, ((k, bytes(3 << 20)) for k in range(20)))
    assert len(found.index) == 20
    assert max(results) < 8 << 20
