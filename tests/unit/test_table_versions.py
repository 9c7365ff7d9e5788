"""A table that changes under a running join: versions, what waits, and what is removed."""

from __future__ import annotations

import os
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import life
from tests.life import Clock
from watersmeet import TableError, status, table
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.model.limits import Limits
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.tables import parquet
from watersmeet.tables.catalogue import TABLES

STREAM = pa.schema({"k": pa.int64(), "n": pa.int64()})


@pytest.fixture
def files(tmp_path):
    """A directory of Parquet files; call it to add one."""
    folder = tmp_path / "table"
    folder.mkdir()

    def add(name: str, keys: list[int]) -> None:
        pq.write_table(
            pa.table({"id": keys, "v": [f"{name}{key}" for key in keys]}), folder / f"{name}.parquet"
        )

    add("a", [1, 2, 3])
    add.folder = folder
    return add


def start(files, state, clock, **how) -> LocalJoin:
    return LocalJoin(
        {"s": STREAM, "t": table(files.folder, key="id", refresh="10 seconds", in_place=False)},
        on="s.k = t.id",
        select=["s.n", "t.v"],
        state=str(state),
        clock=clock,
        **how,
    )


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in pairs], "n": [n for _, n in pairs]}, schema=STREAM)


def answers(found: pa.Table) -> list[tuple]:
    return sorted(zip(found["n"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_new_file_is_seen_two_batches_after_the_refresh(files, tmp_path):
    clock = Clock()
    join = start(files, tmp_path / "state", clock)
    assert answers(join.batch(s=rows((1, 0), (7, 1)))) == [(0, "a1")]
    files("b", [7])
    assert answers(join.batch(s=rows((7, 2)))) == []
    clock.now += 11
    assert answers(join.batch(s=rows((7, 3)))) == []
    assert answers(join.batch(s=rows((7, 4), (1, 5)))) == [(4, "b7"), (5, "a1")]


def test_without_refresh_a_new_file_waits_for_the_next_start(files, tmp_path):
    clock = Clock()
    schemas = {"s": STREAM, "t": table(files.folder, key="id", in_place=False)}
    terms = {"on": "s.k = t.id", "select": ["s.n", "t.v"], "state": str(tmp_path / "state"), "clock": clock}
    join = LocalJoin(schemas, **terms)
    join.batch(s=rows((1, 0)))
    files("b", [7])
    clock.now += 1_000
    for _ in range(3):
        assert answers(join.batch(s=rows((7, 1)))) == []
    assert answers(life.restarted(join).batch(s=rows((7, 2)))) == [(2, "b7")]


def test_what_waits_is_answered_before_the_version_changes(files, tmp_path):
    clock = Clock()
    join = start(files, tmp_path / "state", clock, how="left", max_delay=60.0)
    assert answers(join.batch(s=rows((1, 0)))) == []
    (seen,) = status(tmp_path / "state").joins
    assert isinstance(seen.plan, PagePlan) and seen.plan.waiting_rows == 1
    files("b", [7])
    clock.now += 11
    # Located in the old version, answered with it; the next batch is located in the new one.
    assert answers(join.batch(s=rows((7, 1)))) == [(0, "a1"), (1, None)]
    assert answers(join.batch(s=rows((7, 2)))) == []
    clock.now += 61
    assert answers(join.batch(s=rows())) == [(2, "b7")]


def test_a_start_with_another_version_first_answers_what_waits(files, tmp_path):
    clock = Clock()
    join = start(files, tmp_path / "state", clock, max_delay=60.0)
    assert answers(join.batch(s=rows((1, 0)))) == []
    files("b", [7])
    join = life.restarted(join)
    assert answers(join.batch(s=rows((7, 1)))) == [(0, "a1")]
    join.batch(s=rows((7, 2)))
    clock.now += 61
    assert answers(join.batch(s=rows())) == [(2, "b7")]


@pytest.mark.parametrize("first", ["database", "files"])
def test_rows_that_wait_on_one_kind_of_table_are_not_sought_in_another(files, tmp_path, first):
    pytest.importorskip("adbc_driver_sqlite")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(key, f"d{key}") for key in range(5)])
    tables = {
        "database": table(f"sqlite:///{tmp_path}/t.db", key="id", table="t", page_rows=2),
        "files": table(files.folder, key="id", in_place=False),
    }
    (second,) = tables.keys() - {first}
    clock = Clock()
    join = LocalJoin(
        {"s": STREAM, "t": tables[first]},
        on="s.k = t.id",
        select=["s.n", "t.v"],
        state=str(tmp_path / "state"),
        clock=clock,
        max_delay=60.0,
    )
    assert answers(join.batch(s=rows((1, 0)))) == []

    def with_other(join: LocalJoin) -> LocalJoin:
        return life.restarted(join, schemas={"s": STREAM, "t": tables[second]})

    with pytest.raises(
        TableError, match="rows still wait on table .*start it once more with the earlier table"
    ):
        with_other(join).batch(s=rows((2, 1)))
    join = life.restarted(join)
    clock.now += 61
    assert answers(join.batch(s=rows())) == [(0, f"{first[0].replace('f', 'a')}1")]
    join = with_other(join)
    join.batch(s=rows((2, 2)))
    clock.now += 61
    assert answers(join.batch(s=rows())) == [(2, f"{second[0].replace('f', 'a')}2")]


def test_versions_that_no_query_reads_are_removed(files, tmp_path):
    clock, place = Clock(), str(tmp_path / "state")
    settings = Settings(state=place, tasks=2, limits=Limits(clean_every_batches=1))
    join = start(files, place, clock, settings=settings)
    join.batch(s=rows((1, 0)))
    # The state was made now, by the clock of the file system.
    clock.now = os.stat(tmp_path / "state").st_mtime
    for number in range(3):
        files(f"b{number}", [7 + number])
        clock.now += 11
        for _ in range(2):
            join.batch(s=rows((1, 0)))
    prepared = open_files(str(tmp_path / "state")).under(TABLES)
    assert len(prepared.folders()) == 4
    clock.now += 7 * 3600
    join.batch(s=rows((1, 0)))
    # The one in use, and the one that this start was given.
    assert len(prepared.folders()) == 2
    assert answers(join.batch(s=rows((9, 1), (1, 2)))) == [(1, "b29"), (2, "a1")]


def test_a_start_takes_no_page_over_from_the_one_before(tmp_path):
    """A worker may serve both; without refresh a page stays as it was read until the query is started again."""
    pytest.importorskip("adbc_driver_sqlite")
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(key, "old") for key in range(20)])
    join = LocalJoin(
        {"s": STREAM, "t": table(f"sqlite:///{tmp_path}/t.db", key="id", table="t")},
        on="s.k = t.id",
        select=["s.n", "t.v"],
        state=str(tmp_path / "state"),
        # By page, not by key.
        settings=Settings(state=str(tmp_path / "state"), tasks=2, limits=Limits(rows_per_lookup=10**9)),
    )
    every = rows(*((key, key) for key in range(20)))
    assert {v for _, v in answers(join.batch(s=every))} == {"old"}
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.execute("UPDATE t SET v = 'new'")
    assert {v for _, v in answers(join.batch(s=every))} == {"old"}
    assert {v for _, v in answers(life.restarted(join).batch(s=every))} == {"new"}


@pytest.mark.parametrize(
    "changed, words",
    [
        (pa.table({"id": [7], "v": [1]}), "column v of table t was string when the .* and is int64 now"),
        (pa.table({"id": [7]}), None),
    ],
    ids=["other type", "without a column"],
)
def test_columns_that_change_under_a_running_query(files, tmp_path, changed, words):
    """A file without a column gives nulls, as Spark has it; another type is an error that says so."""
    clock = Clock()
    join = start(files, tmp_path / "state", clock, how="left")
    join.batch(s=rows((1, 0)))
    for path in files.folder.iterdir():
        if words is not None:
            path.unlink()
    pq.write_table(changed, files.folder / "b.parquet")
    clock.now += 11
    if words is None:
        join.batch(s=rows((1, 0)))
        assert answers(join.batch(s=rows((7, 1), (1, 2)))) == [(1, None), (2, "a1")]
        return
    with pytest.raises(TableError, match=words):
        join.batch(s=rows((1, 0)))


def test_a_place_that_is_away_is_looked_at_again_later(files, tmp_path, monkeypatch):
    class Away:
        def get_file_info(self, path):
            raise OSError("no route to host")

    clock = Clock()
    join = start(files, tmp_path / "state", clock)
    join.batch(s=rows((1, 0)))
    files("b", [7])
    clock.now += 11
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "place_of", lambda _: (Away(), "t"))
        assert answers(join.batch(s=rows((1, 1)))) == [(1, "a1")]
    clock.now += 11
    join.batch(s=rows())
    assert answers(join.batch(s=rows((7, 2)))) == [(2, "b7")]


def test_a_file_in_place_that_was_rewritten_before_it_was_seen_fails_the_batch_once(files, tmp_path):
    files("b", [7])
    clock = Clock()
    given = table(files.folder, key="id", refresh="10 seconds", in_place=True)
    join = LocalJoin(
        {"s": STREAM, "t": given},
        on="s.k = t.id",
        select=["s.n", "t.v"],
        state=str(tmp_path / "state"),
        clock=clock,
    )
    assert answers(join.batch(s=rows((1, 0)))) == [(0, "a1")]
    (files.folder / "b.parquet").unlink()
    files("b", [7, 8])
    with pytest.raises(
        TableError, match="b.parquet.*was changed since the table was opened. Call wm.join again"
    ):
        join.batch(s=rows((7, 1)))
    assert answers(life.restarted(join).batch(s=rows((7, 1), (8, 2)))) == [(1, "b7"), (2, "b8")]


def test_a_file_that_is_half_written_is_looked_at_again_later(files, tmp_path):
    clock = Clock()
    join = start(files, tmp_path / "state", clock)
    join.batch(s=rows((1, 0)))
    half = files.folder / "b.parquet"
    half.write_bytes(b"PAR1 not yet")
    clock.now += 11
    assert answers(join.batch(s=rows((1, 1)))) == [(1, "a1")]
    half.unlink()
    files("b", [7])
    assert answers(join.batch(s=rows((7, 2)))) == []
    clock.now += 11
    join.batch(s=rows())
    assert answers(join.batch(s=rows((7, 3)))) == [(3, "b7")]
