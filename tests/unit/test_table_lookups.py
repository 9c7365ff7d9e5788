"""What a join reads of a table, what a process keeps of it, and what is let go.

In SQLite pages, look-ups by key, and both for one batch, give the same.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import life
from watersmeet import table
from watersmeet.engine import operator as engine
from watersmeet.engine.desk import TableDesk
from watersmeet.engine.kept_table import KeptTable, used_tables
from watersmeet.engine.operator import Operator
from watersmeet.engine.spec import Settings
from watersmeet.kernel.lookup import Page
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.model.facts import BatchId
from watersmeet.model.limits import Limits
from watersmeet.tables.dialects import SQLite

pytest.importorskip("adbc_driver_sqlite")

ROWS = 3_000
STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Every key three times."""
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE products (id INTEGER, name TEXT)")
        connection.executemany(
            "INSERT INTO products VALUES (?, ?)", ((key // 3 * 2, f"name {key}") for key in range(ROWS))
        )
        connection.execute("CREATE INDEX by_id ON products (id)")
    return f"sqlite:///{path}"


def answers(shop, state, keys, **how) -> list[tuple]:
    join = LocalJoin(
        {"s": STREAM, "p": table(shop, key="id", table="products", page_rows=100)},
        on="s.k = p.id",
        select=["s.n", "p.name"],
        state=str(state),
        how="left",
        **how,
    )
    found = join.batch(s=pa.table({"k": keys, "n": np.arange(len(keys))}, schema=STREAM))
    return sorted(zip(found["n"].to_pylist(), found["name"].to_pylist(), strict=True), key=str)


def expected(keys) -> list[tuple]:
    named: dict[int, list[str]] = {}
    for key in range(ROWS):
        named.setdefault(key // 3 * 2, []).append(f"name {key}")
    found = [(n, name) for n, key in enumerate(keys) for name in named.get(key, [None])]
    return sorted(found, key=str)


@pytest.mark.parametrize("strategy", ["hybrid", "mesh", "index"])
@pytest.mark.parametrize("at_once", [1, 7, 500])
@pytest.mark.parametrize("ratio", [0, 16, 10**9], ids=["by key", "both", "by page"])
def test_pages_and_keys_give_the_same(shop, tmp_path, strategy, at_once, ratio):
    limits = Limits(lookup_keys=at_once, rows_per_lookup=ratio)
    settings = Settings(state=str(tmp_path), tasks=2, limits=limits)
    rng = np.random.default_rng(3)
    # Dense at the beginning, sparse behind it, some nowhere, some null.
    keys = [*rng.integers(0, 60, 200).tolist(), *rng.integers(0, 2 * ROWS, 60).tolist(), None, -5, None]
    assert answers(shop, tmp_path, keys, strategy=strategy, settings=settings) == expected(keys)


def test_few_keys_are_looked_up_and_many_are_read_by_page(shop, tmp_path, monkeypatch):
    asked, read = [], []
    from watersmeet.tables.database import OpenDatabase

    look, page = OpenDatabase.lookup, OpenDatabase.read
    monkeypatch.setattr(
        OpenDatabase,
        "lookup",
        lambda self, keys, columns: asked.append(keys.num_rows) or look(self, keys, columns),
    )
    monkeypatch.setattr(
        OpenDatabase, "read", lambda self, number, columns: read.append(number) or page(self, number, columns)
    )
    dense = list(range(0, 60, 2))
    assert answers(shop, tmp_path / "1", dense, tasks=1) == expected(dense)
    assert asked == []
    assert read == [0]
    read.clear()
    sparse = [200, 900, 1800]
    assert answers(shop, tmp_path / "2", sparse, tasks=1) == expected(sparse)
    assert asked == [3]
    assert read == []


def test_mesh_reads_every_page_once_over_all_tasks(shop, tmp_path, monkeypatch):
    from watersmeet.tables.database import OpenDatabase

    read, page = [], OpenDatabase.read
    monkeypatch.setattr(
        OpenDatabase, "read", lambda self, number, columns: read.append(number) or page(self, number, columns)
    )
    keys = list(range(0, 2 * ROWS // 3, 2))
    assert answers(shop, tmp_path, keys, tasks=3, strategy="mesh", memory=1) == expected(keys)
    # Where two tasks share a page, both read it.
    assert len(read) <= len(set(read)) + 2
    assert len(set(read)) == ROWS // 100


PRODUCTS = pa.schema({"id": pa.int64(), "name": pa.string()})
FEW, MANY = 10_000, 60_000


def products(folder: Path, kind: str) -> dict:
    """What `wm.table` is told of 30 pages of a hundred rows, some four kilobytes each."""
    rows = pa.table({"id": np.arange(ROWS) // 3 * 2, "name": [f"name {key:>20}" for key in range(ROWS)]})
    if kind != "sqlite":
        pq.write_table(rows.cast(PRODUCTS), folder / "products.parquet", row_group_size=100)
        how = {"in_place": True} if kind == "in place" else {"in_place": False, "page_rows": 100}
        return {"source": folder / "products.parquet", **how}
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("CREATE TABLE products (id INTEGER, name TEXT)")
        pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        connection.executemany("INSERT INTO products VALUES (?, ?)", pairs)
        connection.execute("CREATE INDEX by_id ON products (id)")
    return {"source": f"sqlite:///{folder / 'shop.db'}", "table": "products", "page_rows": 100}


def size_of(page: Page) -> int:
    """All buffers of a page, one by one; those of a slice as a whole."""
    buffers = [buffer for column in page.rows.columns for buffer in column.buffers() if buffer is not None]
    return sum(buffer.size for buffer in buffers) + page.keys.nbytes


@pytest.mark.parametrize("kind", ["sorted copy", "in place", "sqlite"])
@pytest.mark.parametrize("memory", [FEW, MANY])
def test_what_is_kept_of_a_table_stays_within_its_memory(tmp_path, kind, memory):
    given = products(tmp_path, kind)
    join = LocalJoin(
        {"s": STREAM, "p": table(key="id", **given)},
        on="s.k = p.id",
        select=["s.n", "p.name"],
        state=str(tmp_path / "state"),
        tasks=2,
        memory=memory,
    )
    rng = np.random.default_rng(5)
    for number in range(12):
        # All keys of some pages, so that those of a database are read as pages too: half of the time the same ones.
        pages = rng.choice(5 if number % 2 else 30, 4, replace=False)
        keys = np.concatenate([np.arange(100 * page, 100 * page + 100) // 3 * 2 for page in pages])
        rows = pa.table({"k": keys, "n": np.arange(len(keys))}, schema=STREAM)
        assert join.count(s=rows) == 3 * len(keys)
        kept = kept_table(join)
        assert kept is not None
        held = [size_of(one.page) for one in kept.buffer._held.values()]
        assert 0 < sum(held) <= memory, f"{len(held)} pages"
    assert sum(held) > memory / 2, "what may be kept is hardly used"
    gc.collect()
    before, pages = pa.total_allocated_bytes(), len(held)
    kept.close()
    gc.collect()
    freed = before - pa.total_allocated_bytes()
    # The sorted copy is mapped and takes nothing of its own.
    assert freed == 0 if kind == "sorted copy" else 0 < freed <= memory, f"{pages} pages"


def kept_table(join: LocalJoin) -> KeptTable | None:
    desk = engine._kept(join.operator.spec, life.batch_of(join), join.clock).desk
    assert isinstance(desk, TableDesk)
    return desk._kept


@pytest.fixture
def connections(monkeypatch) -> list:
    """All that are made to SQLite."""
    made: list = []
    connect = SQLite.connect

    def remembered(self, uri):
        made.append(connect(self, uri))
        return made[-1]

    monkeypatch.setattr(SQLite, "connect", remembered)
    monkeypatch.setattr(engine, "_KEPT", {})
    return made


def still_open(connections: list) -> int:
    return sum(not connection._closed for connection in connections)


def joined(shop: str, state: Path, query: str, **more) -> LocalJoin:
    return LocalJoin(
        {"s": STREAM, "p": table(shop, key="id", table="products", page_rows=100)},
        on="s.k = p.id",
        select=["s.n", "p.name"],
        state=str(state),
        query=query,
        **more,
    )


DENSE = pa.table({"k": np.arange(0, 60, 2), "n": np.arange(30)}, schema=STREAM)


def test_a_batch_join_leaves_no_connection_and_no_pages(shop, tmp_path, connections):
    for number in range(3):
        join = joined(shop, tmp_path, f"batch-{number}")
        operator = Operator(replace(join.operator.spec, streaming=False), time.time)
        batch = BatchId(join.query, "batch", 0)
        described = [life.ingest(join, batch, "s", DENSE)]
        found = sum(rows.num_rows for task in (0, 1) for rows in operator.join(batch, task, described))
        assert found == 3 * len(DENSE)
        assert still_open(connections) == 0
        assert kept_table(join) is None


def test_only_the_tables_of_the_last_queries_stay_open(shop, tmp_path, connections):
    """A worker outlives the queries that it serves, and nobody tells it that one has ended."""
    joins = [joined(shop, tmp_path, f"query-{number}") for number in range(engine._KEPT_PLACES + 4)]
    for join in joins:
        assert join.count(s=DENSE) == 3 * len(DENSE)
        assert still_open(connections) <= engine._KEPT_DESKS + 1
    assert len(engine._KEPT) == engine._KEPT_PLACES
    assert still_open(connections) == engine._KEPT_DESKS + 1


def test_queries_that_take_turns_keep_their_tables(shop, tmp_path, connections):
    """Also those that began before many others."""
    joins = [joined(shop, tmp_path, f"query-{number}") for number in range(5)]
    for _ in range(2):
        assert [join.count(s=DENSE) for join in joins] == 5 * [3 * len(DENSE)]
    made = len(connections)
    kept = [kept_table(join) for join in joins]
    for _ in range(3):
        assert [join.count(s=DENSE) for join in joins] == 5 * [3 * len(DENSE)]
    assert len(connections) == made and still_open(connections) == 5
    assert [kept_table(join) for join in joins] == kept


def test_what_is_used_is_not_put_away_for_what_comes_and_goes(shop, tmp_path, connections):
    """A stream beside many batch joins keeps what it has mapped."""
    stream = joined(shop, tmp_path, "stream")
    stream.count(s=DENSE)
    mine = engine._kept(stream.operator.spec, life.batch_of(stream), time.time)
    for number in range(engine._KEPT_PLACES + 1):
        joined(shop, tmp_path, f"batch-{number}").count(s=DENSE)
        stream.count(s=DENSE)
    assert engine._kept(stream.operator.spec, life.batch_of(stream), time.time) is mine


def test_a_start_reads_a_database_anew_also_of_the_same_frame(tmp_path):
    """A DataFrame may be started twice: the join in it is one, the starts are two."""
    given = products(tmp_path, "sqlite")
    join = joined(given["source"], tmp_path / "state", "query", tasks=1)

    def answers(run: str, number: int) -> set[str]:
        batch = BatchId("query", run, number)
        found = join.operator.join(batch, 0, [life.ingest(join, batch, "s", DENSE)])
        return {name for rows in found for name in rows.column(1).to_pylist()}

    before = answers("first", 0)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("UPDATE products SET name = 'changed' WHERE id = 6")
    assert answers("first", 1) == before and "changed" not in before
    assert "changed" in answers("second", 2)


def test_batch_joins_remove_tables_that_nobody_needs(tmp_path):
    """Each may have a table of its own: a DataFrame that reads no file is written anew every time."""
    now, hour = time.time(), 3600.0

    def run(query: str, at_s: float, name: str = "join") -> Path:
        path = tmp_path / f"{query}-{name}.parquet"
        pq.write_table(pa.table({"id": [1], "name": [query]}, schema=PRODUCTS), path)
        join = LocalJoin(
            {"s": STREAM, "p": table(path, key="id", in_place=False)},
            on="s.k = p.id",
            state=str(tmp_path / "state"),
            query=query,
            name=name,
            clock=lambda: at_s,
        )
        assert join.count(s=pa.table({"k": [1], "n": [1]}, schema=STREAM)) == 1
        assert join.operator.spec.table is not None
        folder = tmp_path / "state" / join.operator.spec.table.given.folder
        for path in folder.iterdir():
            os.utime(path, (at_s, at_s))
        return folder

    stream = run("stream", now)
    over = run("batch-1", now), run("batch-2", now, "other")
    recent = run("batch-3", now + hour)
    assert all(folder.exists() for folder in (stream, *over, recent))
    last = run("batch-4", now + 6.5 * hour)
    assert not any(folder.exists() for folder in over)
    # Of the same age: one in use by a query that goes on, one by a batch join that may not be over yet.
    assert all(folder.exists() for folder in (stream, recent, last))


def test_an_input_that_becomes_a_table_before_the_first_batch(shop, tmp_path):
    """The process keeps something for each state: it must not take the new join for the old one."""
    streams = LocalJoin({"s": STREAM, "p": STREAM}, on="s.k = p.k", state=str(tmp_path))
    batch = BatchId(streams.query, streams.run, 0)
    life.ingest(streams, batch, "s", pa.table({"k": [1], "n": [0]}, schema=STREAM))
    for path in (tmp_path / "join" / "local" / "starts").iterdir():
        path.unlink()
    assert answers(shop, tmp_path, [2, 5]) == expected([2, 5])


def test_queries_of_an_old_format_keep_no_table_alive(tmp_path):
    files = open_files(tmp_path).under("join", "old")
    files.publish("manifests/000000-000000000000-run.json", b'{"watersmeet": 1, "bytes": 2, "xxh3": "0"}\n{}')
    assert list(used_tables(open_files(tmp_path))) == []
