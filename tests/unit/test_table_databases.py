"""Tables in databases, the same for each kind: pages, look-ups, changes, errors."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.database_helpers import open_postgresql, open_sqlite, server  # noqa: F401
from tests.unit.table_helpers import (
    KEY_VALUES,
    all_rows,
    check_table,
    numbers,
    repeated_keys,
    same_rows,
    travelled,
)
from watersmeet.errors import TableError, UsageError
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.tables.database import OpenDatabase
from watersmeet.tables.prepare import prepare
from watersmeet.tables.source import NotPrepared, TableProgress
from watersmeet.tables.spec import table
from watersmeet.tables.sql import quote


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    if request.param == "sqlite":
        opened = open_sqlite(tmp_path / "shop.db")
    else:
        opened = open_postgresql(request.getfixturevalue("server"))
        opened.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    yield opened
    opened.close()


def opened(tmp_path, database, key, *, name="t", **options):
    spec = table(database.uri, key, table=name, **options)
    return travelled(prepare(spec, open_files(tmp_path / "state"))).open()


# What SQLite has no type for.
NOT_IN_SQLITE = {"boolean", "decimal(9,2)", "decimal(38,3)", "date", "timestamp", "timestamp_ntz"}
# Types that SQLite stores in a wider one.
WIDER = {"tinyint": pa.int64(), "smallint": pa.int64(), "int": pa.int64(), "float": pa.float64()}


def keys_for(database, kind: str, rows: int, seed: int = 0) -> pa.Array:
    keys = repeated_keys(kind, rows, seed)
    if database.kind == "sqlite":
        if kind in NOT_IN_SQLITE:
            pytest.skip(f"SQLite has no {kind}")
        keys = keys.cast(WIDER.get(kind, keys.type))
        if kind in ("float", "double"):
            # SQLite stores NaN as null, and -0.0 as 0.
            keys = pc.add(keys, 0.0)
            keys = pc.if_else(pc.is_nan(keys), pa.scalar(None, keys.type), keys)
    elif kind == "string":
        # PostgreSQL has no text with a zero byte.
        keys = pc.if_else(pc.equal(keys, "a\x00"), "b", keys)
    elif kind == "tinyint":
        keys = keys.cast(pa.int16())
    return keys


@pytest.mark.parametrize("kind", KEY_VALUES)
def test_keys_of_every_type_are_paged_and_looked_up(tmp_path, database, kind):
    rows = pa.table({"k": keys_for(database, kind, 200), "n": pa.array(range(200), pa.int64())})
    database.fill("t", rows)
    if kind.startswith("decimal"):
        digits = kind.removeprefix("decimal")
        database.run(f"ALTER TABLE t ALTER k TYPE numeric{digits}")
    database.run("CREATE INDEX t_k ON t (k)")
    found = opened(tmp_path, database, "k", page_rows=16)
    assert found.schema.field("k").type == rows["k"].type
    assert len(found.index) >= min(len(KEY_VALUES[kind][1]), 200 // 16) - 2
    assert not found.index.gaps
    check_table(found, rows)
    distinct = pc.unique(rows["k"]).drop_null()
    for keys in (distinct[:1], distinct, pa.array([None], distinct.type)):
        looked_up = found.lookup(pa.record_batch({"any": keys}), ["k", "n"])
        expected = rows.filter(is_in(rows["k"], keys))
        assert same_rows(pa.Table.from_batches([looked_up]), expected)


def is_in(column, keys) -> pa.Array:
    """As SQL finds equal: NaN is NaN, -0.0 is 0.0, null is nothing."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_floating(column.type):
        text = {repr(key + 0.0) for key in keys.to_pylist() if key is not None}
        return pa.array([key is not None and repr(key + 0.0) in text for key in column.to_pylist()])
    return pc.fill_null(pc.is_in(column, value_set=keys, skip_nulls=True), False)


@pytest.mark.parametrize("kinds", [("string", "int"), ("double", "binary"), ("bigint", "string", "int")])
def test_several_key_columns_are_paged_and_looked_up(tmp_path, database, kinds):
    names = [f"k {place}" for place in range(len(kinds))]
    keys = {
        name: keys_for(database, kind, 300, seed)
        for seed, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    rows = pa.table({**keys, "n": pa.array(range(300), pa.int64())})
    database.fill("t", rows)
    columns = ", ".join(map(quote, names))
    database.run(f"CREATE INDEX t_k ON t ({columns})")
    found = opened(tmp_path, database, names, page_rows=20)
    check_table(found, rows)
    asked = rows.select(names).slice(0, 40).combine_chunks().to_batches()[0]
    looked_up = found.lookup(asked, [*names, "n"])
    wanted = {repr(row) for row in _plain(asked.to_pylist()) if None not in row}
    expected = rows.filter(pa.array([repr(row) in wanted for row in _plain(rows.select(names).to_pylist())]))
    assert expected.num_rows and same_rows(pa.Table.from_batches([looked_up]), expected)


def _plain(rows):
    return [tuple(v + 0.0 if isinstance(v, float) else v for v in row.values()) for row in rows]


def test_pages_are_as_large_as_asked_for(tmp_path, database):
    database.fill("t", numbers(*range(1_000)))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=100)
    assert found.index.rows.tolist() == [100] * 10
    assert found.index.first.column("id").to_pylist() == list(range(0, 1_000, 100))
    assert (found.index.bytes > 100 * 12).all()
    assert [page.num_rows for _, page in found.read_many(range(10), ["id"])] == [100] * 10
    assert len(opened(tmp_path, database, "id", page_bytes=1_000).index) > 15
    assert len(opened(tmp_path, database, "id").index) == 1


def test_only_the_columns_asked_for_come_back(tmp_path, database):
    database.fill("t", numbers(1, 2, 3))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id")
    assert found.read(0, ["s"]).schema.names == ["s"]
    assert found.read(0, ["s", "id"]).num_rows == 3
    assert found.lookup(pa.record_batch({"k": [2]}), ["s"]).to_pydict() == {"s": ["row 2"]}


def test_rows_that_come_later_are_found_in_their_page(tmp_path, database):
    database.fill("t", numbers(*range(100, 200)))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=10)
    later = numbers(-5, 0, 105, 9_999)
    database.add("t", later)
    database.run("DELETE FROM t WHERE id = 150", "UPDATE t SET s = 'new' WHERE id = 160")
    rows = pa.concat_tables([numbers(*(n for n in range(100, 200) if n not in (150, 160))), later])
    expected = pa.concat_tables([rows, pa.table({"id": [160], "s": ["new"]})])
    check_table(found, expected)
    assert found.newest() is None


def test_a_table_that_has_outgrown_its_pages_gets_new_ones(tmp_path, database):
    database.fill("t", numbers(*range(100)))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=10)
    assert found.newest() is None
    database.add("t", numbers(*range(100, 400)))
    # What PostgreSQL knows of a table's size is as old as its statistics.
    database.run("ANALYZE t")
    newer = found.newest()
    assert newer is not None and newer.version != found.version
    assert len(newer.open().index) == 40
    check_table(newer.open(), numbers(*range(400)))


@pytest.mark.parametrize("kind", KEY_VALUES)
def test_rows_that_come_into_an_empty_table_are_found(tmp_path, database, kind):
    keys = keys_for(database, kind, 60)
    rows = pa.table({"k": keys, "n": pa.array(range(60), pa.int64())})
    database.fill("t", rows.slice(0, 0))
    if kind.startswith("decimal"):
        database.run(f"ALTER TABLE t ALTER k TYPE numeric{kind.removeprefix('decimal')}")
    database.run("CREATE INDEX t_k ON t (k)")
    found = opened(tmp_path, database, "k")
    assert len(found.index) == 1 and found.newest() is None
    assert found.read(0, ["k", "n"]).num_rows == 0
    database.add("t", rows)
    check_table(found, rows)
    newer = found.newest()
    assert newer is not None and newer.version != found.version
    check_table(newer.open(), rows)
    assert newer.open().newest() is None


STREAM = pa.schema({"k": pa.int64()})


def joined(tmp_path, database, **options) -> LocalJoin:
    return LocalJoin(
        {"s": STREAM, "p": table(database.uri, "id", table="t", **options)},
        on="s.k = p.id",
        select=["p.s"],
        state=str(tmp_path / "state"),
        tasks=1,
        memory=1,
    )


def answers(join: LocalJoin, *keys: int) -> list[str]:
    return sorted(join.batch(s=pa.table({"k": keys}, schema=STREAM))["s"].to_pylist())


def test_a_join_finds_rows_that_came_after_it_was_built(tmp_path, database):
    database.fill("t", numbers(1).slice(0, 0))
    database.run("CREATE INDEX t_k ON t (id)")
    join = joined(tmp_path, database)
    assert answers(join, 7, -3) == []
    database.add("t", numbers(7, -3))
    assert answers(join, 7, -3, 5) == ["row -3", "row 7"]


def test_a_page_that_is_seen_to_have_grown_is_not_read_for_a_few_keys(tmp_path, database, monkeypatch):
    read, page = [], OpenDatabase.read
    monkeypatch.setattr(
        OpenDatabase, "read", lambda self, number, columns: read.append(number) or page(self, number, columns)
    )
    database.fill("t", numbers(*range(2_000)))
    database.run("CREATE INDEX t_k ON t (id)")
    join = joined(tmp_path, database, page_rows=100)
    database.add("t", numbers(*range(2_000, 4_000)))
    keys = range(2_000, 2_030)
    for _ in range(3):
        assert answers(join, *keys) == sorted(f"row {n}" for n in keys)
    assert read == [19]


@pytest.mark.parametrize(
    ("rows", "later", "removed", "pages"),
    [
        (range(1_000), range(1_000, 1_800), None, 18),
        (range(1_000), range(-800, 0), None, 18),
        (range(1_000), range(1_000, 1_800), "id < 800", 10),
        (range(1_000), range(1_000, 3_000), None, 30),
        (range(1_000), range(0), "id >= 400", 4),
    ],
    ids=["at the end", "at the beginning", "moving on", "all over", "removed"],
)
def test_pages_are_cut_anew_when_they_no_longer_fit(tmp_path, database, rows, later, removed, pages):
    database.fill("t", numbers(*rows))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=100)
    assert found.newest() is None
    if later:
        database.add("t", numbers(*later))
    if removed:
        database.run(f"DELETE FROM t WHERE {removed}")
    with pytest.raises(NotPrepared, match="outgrown"):
        found.newest(make=False)
    newer = found.newest()
    assert newer is not None and newer.version != found.version
    assert found.newest(make=False) == newer == found.newest()
    cut = newer.open()
    assert cut.index.rows.tolist() == [100] * pages
    assert cut.newest() is None
    # So does a start.
    assert opened(tmp_path, database, "id", page_rows=100).version == newer.version
    everything = [*rows, *later]
    kept = {"id < 800": lambda n: n >= 800, "id >= 400": lambda n: n < 400}.get(removed, lambda n: True)
    check_table(cut, numbers(*filter(kept, everything)))


def test_pages_are_kept_while_they_fit(tmp_path, database):
    """No power of two is a border, neither is a page that has grown a little."""
    database.fill("t", numbers(*range(1_020)))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=100)
    for low, high in ((1_020, 1_030), (1_030, 1_300)):
        database.add("t", numbers(*range(low, high)))
        assert found.newest() is None
        assert opened(tmp_path, database, "id", page_rows=100).version == found.version
    database.run("DELETE FROM t WHERE id < 700")
    assert found.newest() is None
    check_table(found, numbers(*range(700, 1_300)))


def test_a_last_key_that_fills_many_pages_is_no_reason_to_cut_them_anew(tmp_path, database):
    database.fill("t", numbers(*range(100), *[100] * 900))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id", page_rows=10)
    assert found.index.rows.tolist() == [10] * 10 + [900]
    assert found.newest() is None
    assert opened(tmp_path, database, "id", page_rows=10).version == found.version


@pytest.mark.parametrize("name", ["t", "v"])
def test_a_table_that_is_not_counted_grows_in_the_middle(tmp_path, database, name):
    """PostgreSQL estimates the size of views and of tables that were never analysed, unless they seem to be small."""
    database.fill("t", numbers(*range(0, 60_000, 3)))
    database.run("CREATE INDEX t_k ON t (id)", "CREATE VIEW v AS SELECT id, s FROM t")
    found = opened(tmp_path, database, "id", name=name, page_rows=1_000)
    assert found.newest() is None
    database.add("t", numbers(*(n for n in range(60_000) if n % 3)))
    newer = found.newest()
    assert newer is not None and len(newer.open().index) == 60


def test_what_a_killed_start_left_is_removed(tmp_path, database):
    database.fill("t", numbers(1))
    database.run("CREATE INDEX t_k ON t (id)")
    opened(tmp_path, database, "id")
    [facts] = (tmp_path / "state").rglob("table.json")
    orphan, young = (facts.with_name(f"pages-{letter * 16}.arrow") for letter in "ab")
    for path in (orphan, young):
        path.write_bytes(b"")
    os.utime(orphan, (time.time() - 86_400,) * 2)
    assert all_rows(opened(tmp_path, database, "id"), ["id"]).num_rows == 1
    assert young.exists() and not orphan.exists()


def test_each_key_is_asked_for_once_and_in_order(tmp_path, database, monkeypatch):
    database.fill("t", pa.table({".a.b": ["x", "y", "x"], "f": [1.5, -0.0, float("inf")]}))
    database.run('CREATE INDEX t_k ON t (".a.b", f)')
    found = opened(tmp_path, database, [".a.b", "f"])
    asked, lookups = [], type(found._dialect).lookups

    def seen(self, relation, keys, columns):
        asked.append(keys.to_pylist())
        return lookups(self, relation, keys, columns)

    monkeypatch.setattr(type(found._dialect), "lookups", seen)
    keys = pa.record_batch({"a": ["y", "x", None, "x", "y"], "b": [0.0, 1.5, 1.0, 1.5, -0.0]})
    assert found.lookup(keys, ["f"]).num_rows == 2
    assert asked == [[{".a.b": "x", "f": 1.5}, {".a.b": "y", "f": 0.0}]]


def test_a_second_start_walks_no_index(tmp_path, database):
    database.fill("t", numbers(*range(100)))
    database.run("CREATE INDEX t_k ON t (id)")
    reports: list[TableProgress] = []
    spec, files = table(database.uri, "id", table="t"), open_files(tmp_path / "state")
    first = prepare(spec, files, report=reports.append)
    assert [report.phase for report in reports] == ["finding pages"] * 2
    assert prepare(spec, files, report=reports.append) == first
    assert len(reports) == 2


def test_odd_names_are_quoted(tmp_path, database):
    rows = pa.table({'k"; DROP TABLE t; --': [1, 2], "select": ["a", "b"], "A b": [None, 1.5]})
    database.fill('odd "name" (x)', rows)
    database.run('CREATE INDEX odd ON "odd ""name"" (x)" ("k""; DROP TABLE t; --")')
    check_table(opened(tmp_path, database, 'k"; DROP TABLE t; --', name='"odd ""name"" (x)"'), rows)
    with pytest.raises(UsageError, match="schema.table"):
        opened(tmp_path, database, "k", name='odd "name" (x)')


def test_a_view_is_a_table(tmp_path, database):
    database.fill("t", numbers(*range(50)))
    database.run("CREATE INDEX t_k ON t (id)", "CREATE VIEW few AS SELECT id, s FROM t WHERE id < 20")
    check_table(opened(tmp_path, database, "id", name="few", page_rows=5), numbers(*range(20)))


def test_a_table_without_an_index_on_its_key_is_refused(tmp_path, database):
    database.fill("t", numbers(1, 2))
    database.run("CREATE INDEX t_s ON t (s)")
    with pytest.raises(TableError, match=r'no index.*CREATE INDEX.*"t" \("id"\)'):
        opened(tmp_path, database, "id")


@pytest.mark.parametrize(
    "name, key, message",
    [
        ("T", "id", "is not there: name it.*t"),
        ("t", "nr", "has no column nr; its columns are id, s"),
        ("t", "ID", "did you mean id"),
    ],
)
def test_tables_and_columns_that_are_not_there_are_named(tmp_path, database, name, key, message):
    database.fill("t", numbers(1))
    if database.kind == "sqlite" and name == "T":
        name = "u"
    with pytest.raises(TableError, match=message):
        opened(tmp_path, database, key, name=name)


def test_more_keys_than_one_query_takes(tmp_path, database):
    database.fill("t", numbers(*range(25_000)))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id")
    wanted = np.random.default_rng(1).integers(-5_000, 30_000, 22_000)
    looked_up = found.lookup(pa.record_batch({"k": pa.array(wanted, pa.int64())}), ["id"])
    expected = [n for n in np.unique(wanted).tolist() if 0 <= n < 25_000]
    assert sorted(looked_up.column("id").to_pylist()) == expected


def test_a_closed_table_opens_itself_again(tmp_path, database):
    database.fill("t", numbers(1))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id")
    assert all_rows(found, ["id"]).num_rows == 1
    found.close()
    assert all_rows(found, ["id"]).num_rows == 1
