"""A join with a table in SQLite: pages, look-ups by key, and both for one batch, give the same."""

from __future__ import annotations

import sqlite3

import numpy as np
import pyarrow as pa
import pytest

from watersmeet import table
from watersmeet.engine import lookup
from watersmeet.local.join import LocalJoin

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
def test_pages_and_keys_give_the_same(shop, tmp_path, monkeypatch, strategy, at_once, ratio):
    monkeypatch.setattr(lookup, "LOOKUP_KEYS", at_once)
    monkeypatch.setattr(lookup, "LOOKUP_ROWS", ratio)
    rng = np.random.default_rng(3)
    # Dense at the beginning, sparse behind it, some nowhere, some null.
    keys = [*rng.integers(0, 60, 200).tolist(), *rng.integers(0, 2 * ROWS, 60).tolist(), None, -5, None]
    assert answers(shop, tmp_path, keys, strategy=strategy) == expected(keys)


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
