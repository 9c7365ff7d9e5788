"""Tables in databases, the same for each kind: pages, look-ups, changes, errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.database_helpers import open_postgresql, open_sqlite, server  # noqa: F401
from tests.unit.table_helpers import KEY_VALUES, all_rows, check_table, repeated_keys, same_rows, travelled
from watersmeet.errors import TableError, UsageError
from watersmeet.log.files import open_files
from watersmeet.tables.prepare import prepare
from watersmeet.tables.source import Progress
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


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [f"row {n}" for n in ids]})


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


def test_an_empty_table_has_no_pages_until_there_are_rows(tmp_path, database):
    database.fill("t", numbers(1).slice(0, 0))
    database.run("CREATE INDEX t_k ON t (id)")
    found = opened(tmp_path, database, "id")
    assert len(found.index) == 0 and found.newest() is None
    database.add("t", numbers(7))
    newer = found.newest()
    assert newer is not None
    check_table(newer.open(), numbers(7))


def test_a_second_start_walks_no_index(tmp_path, database):
    database.fill("t", numbers(*range(100)))
    database.run("CREATE INDEX t_k ON t (id)")
    reports: list[Progress] = []
    spec, files = table(database.uri, "id", table="t"), open_files(tmp_path / "state")
    first = prepare(spec, files, report=reports.append)
    assert [report.stage for report in reports] == ["finding pages"] * 2
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
