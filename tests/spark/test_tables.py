"""Streams and batches joined with tables on a real session, against Spark's own batch join of the same rows.

Several joins run in one query, each under a name of its own, because starting a query takes longer than a batch.
Rows of both sides have numbers, so that a result names the pair that it is of.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import watersmeet as wm
from tests.delayed_pages import rows_that_wait
from tests.spark.shop import (
    COLUMNS,
    PICKED,
    STREAM,
    Case,
    Shop,
    arrow,
    assert_same,
    expected,
    join,
    joined,
    sales,
    table,
    tables_in,
    together,
)
from tests.spark.state_helpers import failure, newest, renew_workers
from tests.unit.database_helpers import open_postgresql, open_sqlite, server  # noqa: F401
from tests.waiting import wait_until
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.testing import StreamScript, assert_same_rows

SMALL = {"page_rows": 20, "in_place": False}
STREAMED = {
    # Said explicitly: without it the table may be copied in the background once that pays.
    "in-place": Case("sorted", "s.k = p.id AND s.x < p.y + 3", of={"in_place": True}),
    "left": Case(
        "sorted", "p.id = s.k AND s.x > 20 AND p.y < 70 AND s.c = p.c", how="left", first="p", of=SMALL
    ),
    "frame": Case("frame", "CAST(s.t AS INT) = p.id AND s.c <> p.c", of={"page_rows": 20}),
    "sqlite": Case("sqlite", "s.k = p.id AND s.x < p.y", how="left", of={"page_rows": 20}),
    "spark-checks": Case(
        "unsorted", "s.k = p.id AND upper(s.c) = upper(p.c) AND s.t LIKE concat(' ', p.id)", of=SMALL
    ),
    "composite": Case("unsorted", "p.c = s.c AND s.k + 1 = p.id", how="left", key=("c", "id"), of=SMALL),
    "mesh": Case("unsorted", "s.k = p.id", how="left", of=SMALL, more={"strategy": "mesh"}),
    "index": Case("sqlite", "s.k = p.id", of={"page_rows": 20}, more={"strategy": "index"}),
}


def test_streams_with_tables_of_every_kind_give_sparks_batch_join(spark, tmp_path, shop):
    """Four batches, one of them empty, and a restart with other tasks; tables are prepared once."""
    rng = random.Random(11)
    state = tmp_path / "state"
    tasks = iter([2, 3])
    batches = [sales(rng, 1_000 * number, 0 if number == 1 else 120) for number in range(4)]
    with StreamScript(spark, tmp_path, s=STREAM) as script:
        script.start(lambda s: joined(s, shop, STREAMED, state, tasks=next(tasks)))
        for number, rows in enumerate(batches):
            script.batch(s=rows)
            if number == 1:
                prepared = tables_in(state)
                script.restart()
        results = script.results()
    assert tables_in(state) == prepared, "a table was prepared again"
    s = spark.createDataFrame([row for rows in batches for row in rows], STREAM)
    assert_same(results, expected(s, shop.frame, STREAMED), STREAMED)

    status = {one.name: one for one in wm.status(str(state)).joins}
    assert set(status) == set(STREAMED)
    assert {status[name].strategy for name in STREAMED} == {"table"}
    pages = {name: plan for name in STREAMED if isinstance(plan := status[name].plan, PagePlan)}
    assert {name: pages[name].reading for name in ("left", "mesh", "index")} == {
        "left": "hybrid",
        "mesh": "mesh",
        "index": "index",
    }
    # 1,940 rows have an id. In place there are the row groups as they are, 2,000 rows by 300.
    assert pages["left"].table.pages == 97 and pages["in-place"].table.pages == 7
    assert 0 < pages["left"].pages_read < 97
    assert not any(one.waiting_rows for one in pages.values())
    assert not any(status[name].damage for name in STREAMED)


@pytest.fixture(scope="module")
def postgresql(server, shop) -> str:  # noqa: F811
    database = open_postgresql(server)
    database.fill("products", shop.rows)
    database.run("CREATE INDEX ON products (id)", "CREATE INDEX ON products (c, id)", "ANALYZE products")
    database.close()
    return server.uri()


def test_a_stream_with_postgresql(spark, tmp_path, shop, postgresql):
    cases = {
        "left": Case("", "s.k = p.id AND s.x < p.y", how="left"),
        "composite": Case("", "s.c = p.c AND CAST(s.t AS INT) = p.id", key=("c", "id")),
        "mesh": Case("", "s.k = p.id", more={"strategy": "mesh"}),
    }
    rng = random.Random(12)
    batches = [sales(rng, 1_000 * number, 150) for number in range(3)]

    def build(s: DataFrame) -> DataFrame:
        return together(
            {
                name: join(
                    {"s": s, "p": table(postgresql, case.key, table="products", page_rows=50)},
                    on=case.on,
                    how=case.how,
                    select=PICKED,
                    state=str(tmp_path / "state"),
                    name=name,
                    **case.more,
                )
                for name, case in cases.items()
            }
        )

    with StreamScript(spark, tmp_path, s=STREAM) as script:
        script.start(build)
        script.batch(s=batches[0]).batch(s=batches[1]).restart().batch(s=batches[2])
        results = script.results()
    s = spark.createDataFrame([row for rows in batches for row in rows], STREAM)
    assert_same(results, expected(s, shop.frame, cases), cases)


SHAPES: list[tuple[str, list[str] | None]] = [
    ("inner", None),
    ("left", None),
    ("left", ["s.n"]),
    ("left", ["p.no"]),
    ("inner", ["p.y - s.x AS gap", "upper(p.c) AS c", "s.k", "p.id"]),
    ("left", ["s.n AS n", "1 AS one", "coalesce(p.c, 'none') AS c"]),
    ("left", ["1 AS one"]),
]


def test_columns_come_out_as_from_sparks_own_join(spark, tmp_path, shop):
    """With and without select, of a DataFrame that does not stream, and with no more to read than is needed."""
    s = spark.createDataFrame(sales(random.Random(3), 0, 60), STREAM).coalesce(1)
    on = "s.k = p.id AND s.x < p.y"
    for number, (how, select) in enumerate(SHAPES):
        by_spark = s.alias("s").join(shop.frame.alias("p"), F.expr(on), how)
        if select is None:
            by_spark = by_spark.select(F.struct("s.*").alias("s"), F.struct("p.*").alias("p"))
        else:
            by_spark = by_spark.selectExpr(*select)
        ours = join(
            {"s": s, "p": table(shop.sorted, key="id")},
            on=on,
            how=how,
            select=select,
            state=str(tmp_path / "state"),
            name=f"shape{number}",
            tasks=1,
        )
        assert not ours.isStreaming
        assert ours.schema.simpleString() == by_spark.schema.simpleString()
        assert_same_rows(ours.collect(), by_spark.collect())


def test_a_batch_does_not_wait(spark, tmp_path, shop):
    """There is no later batch in which rows could be answered."""
    s = spark.createDataFrame(sales(random.Random(3), 0, 60), STREAM)
    cases = {
        "left": Case("unsorted", "s.k = p.id", how="left", of=SMALL),
        "in-place": Case("sorted", "s.k = p.id", of={"in_place": True}),
    }
    ours = joined(s, shop, cases, tmp_path / "state", max_delay="1 hour")
    assert_same(ours.collect(), expected(s, shop.frame, cases), cases)


DELAY_S = 3.0
# A batch of the heartbeat comes every second.
HEARTBEAT_S = 1.0


class Timed(StreamScript):
    """Remembers when each batch came out."""

    def __init__(self, *args: Any, **schemas: str):
        super().__init__(*args, **schemas)  # type: ignore[arg-type]
        self.times: dict[int, float] = {}

    def _collect(self, frame: DataFrame, number: int) -> None:
        super()._collect(frame, number)
        self.times[number] = time.time()

    def seen(self, n: int) -> float | None:
        """When the row with this number came out, if it has."""
        number = self.batch_of(n)
        return None if number is None else self.times[number]

    def batch_of(self, n: int) -> int | None:
        """The batch in which the row with this number came out, if it has."""
        found = (
            number for number in list(self.collected) if any(row.n == n for row in self.collected[number])
        )
        return next((number for number in found if number in self.times), None)


def test_rows_wait_for_others_but_not_longer_than_asked(spark, tmp_path, shop):
    """What many rows need comes at once, and what is nowhere; the rest in time, though nothing new arrives."""
    state = tmp_path / "state"
    case = {"left": Case("unsorted", "s.k = p.id", how="left", of=SMALL)}
    present = sorted(set(shop.rows["id"].drop_null().to_pylist()) - set(range(490, 510)))
    hot = [(n, 500, "a", None, n) for n in range(60)]
    absent = [(60, None, "a", None, 0), (61, -5, "a", None, 0)]
    alone = [(70 + place, key, "a", None, 0) for place, key in enumerate(present[::60])]
    later = [(200 + place, key, "a", None, 0) for place, key in enumerate(present[::90])]

    def build(s: DataFrame) -> DataFrame:
        with rows_that_wait():
            return joined(s, shop, case, state, max_delay=f"{DELAY_S:g} seconds")

    def waiting() -> int:
        (one,) = wm.status(str(state)).joins
        return one.plan.waiting_rows if isinstance(one.plan, PagePlan) else 0

    with Timed(spark, tmp_path, s=STREAM) as script:
        script.start(build)
        begun = time.time()
        script.add(s=[*hot, *absent, *alone])
        wait_until(lambda: script.seen(0), "the first batch")
        assert all(script.seen(n) for n in (*range(62),)), "rows that need not wait did"
        assert waiting() == len(alone) and script.seen(70) is None
        wait_until(lambda: script.seen(70), "rows that wait alone")
        assert script.seen(70) - begun > DELAY_S
        # In the first batch after their time, however long batches take: the batch before had begun by then, so the one
        # before that had ended.
        answered = script.batch_of(70)
        assert script.times.get(answered - 2, 0) < script.seen(0) + DELAY_S + HEARTBEAT_S
        assert waiting() == 0

        script.add(s=later)
        wait_until(waiting, "rows that wait")
        # A query that is started again goes on with what waits, not before its time.
        script.restart()
        wait_until(lambda: script.seen(200), "rows that waited over a restart")
        last = max(script.collected)
        wait_until(lambda: max(script.collected) >= last + 2, "batches without rows")
        results = script.results()
    s = spark.createDataFrame([*hot, *absent, *alone, *later], STREAM)
    assert_same(results, expected(s, shop.frame, case), case)
    manifest = newest(state, "left")
    assert manifest.plan.scheme.arrivals == () and not manifest.live


def test_a_table_that_changes_is_seen_within_its_refresh(spark, tmp_path):
    """New files of a directory, in place and in the sorted copy, and new rows of a database; without refresh, none."""
    folder = tmp_path / "products"
    folder.mkdir()
    first, second = (arrow([(n, n + add, "a", 0) for n in range(add, add + 40)], COLUMNS) for add in (0, 100))
    pq.write_table(first, folder / "1.parquet")
    database = open_sqlite(tmp_path / "shop.db")
    database.fill("products", first)
    database.run("CREATE INDEX by_id ON products (id)")
    state = tmp_path / "state"

    def build(s: DataFrame) -> DataFrame:
        tables = {
            "in-place": table(folder, "id", in_place=True, refresh=0.001),
            "sorted-copy": table(folder, "id", in_place=False, page_rows=10, refresh="1 millisecond"),
            "sqlite": table(f"sqlite:///{tmp_path / 'shop.db'}", "id", table="products", refresh=0),
            "not": table(folder, "id", in_place=True),
        }
        return together(
            {
                name: join(
                    {"s": s, "p": one}, "s.k = p.id", select=["s.n", "p.no"], state=str(state), name=name
                )
                for name, one in tables.items()
            }
        )

    with StreamScript(spark, tmp_path, s=STREAM) as script:
        script.start(build)

        def found(number: int) -> set[str]:
            """What sees a row of each file; asked with two rows that nobody asked with before."""
            script.batch(s=[(number, 5, "a", None, 0), (number + 1, 105, "a", None, 0)])
            rows = [tuple(row) for row in script.results() if row.n in (number, number + 1)]
            assert {case for n, no, case in rows if n == number and no == 5} == {
                "in-place",
                "sorted-copy",
                "sqlite",
                "not",
            }
            assert all(no == 205 for n, no, _ in rows if n == number + 1)
            assert len(rows) == len(set(rows))
            return {case for n, _, case in rows if n == number + 1}

        assert found(0) == set()
        pq.write_table(second, folder / "_2.parquet")
        (folder / "_2.parquet").rename(folder / "2.parquet")
        database.add("products", second)
        database.close()
        # A batch takes longer than any refresh. This one finds the change, the next one uses it; or one more, if the
        # task that plans the first may not bring a table into order.
        assert found(10) <= {"sqlite"}
        assert found(20) <= {"in-place", "sorted-copy", "sqlite"}
        assert found(24) == {"in-place", "sorted-copy", "sqlite"}
        script.restart()
        assert found(30) == {"in-place", "sorted-copy", "sqlite", "not"}


def test_a_frame_that_is_started_again_sees_a_database_as_it_is_now(spark, tmp_path):
    """Without refresh a page stays as it was read, by one start of the query; workers live longer."""
    database = open_sqlite(tmp_path / "shop.db")
    database.fill("products", arrow([(n, n, "old", 0) for n in range(40)], COLUMNS))
    database.run("CREATE INDEX by_id ON products (id)")
    made: list[DataFrame] = []

    def build(s: DataFrame) -> DataFrame:
        """The same frame each time, whatever it is given."""
        if not made:
            products = table(f"sqlite:///{tmp_path / 'shop.db'}", "id", table="products", page_rows=40)
            made.append(
                join(
                    {"s": s, "p": products},
                    "s.k = p.id",
                    select=PICKED,
                    state=str(tmp_path / "state"),
                    tasks=1,
                )
            )
        return made[0]

    with StreamScript(spark, tmp_path, s=STREAM) as script:
        script.start(build)
        # Enough for each worker to have the page.
        for number in range(4):
            script.batch(s=[(number, k, "a", None, 0) for k in range(20)])
        database.run("UPDATE products SET c = 'new' WHERE id = 7")
        database.close()
        script.restart().batch(s=[(9, k, "a", None, 0) for k in range(20)])
        results = script.results()
    assert len(made) == 1 and len(results) == 100
    assert {row.c for row in results if row.no == 7 and row.n < 4} == {"old"}
    assert {row.c for row in results if row.no == 7 and row.n == 9} == {"new"}


def test_damage_is_named_and_what_is_mended_goes_on(spark, tmp_path, shop):
    """A damaged page of the sorted copy, and a file that is gone: the query ends with what to do, and resumes."""
    state = tmp_path / "state"
    here = Shop(tmp_path / "shop", shop.rows, shop.frame)
    here.folder.mkdir()
    pq.write_table(shop.rows.sort_by("id"), here.sorted, row_group_size=300)
    pq.write_table(shop.rows, here.unsorted)
    cases = {"sorted-copy": Case("unsorted", "s.k = p.id", of=SMALL), "files": Case("sorted", "s.k = p.id")}
    rng = random.Random(4)
    batches = [sales(rng, 1_000 * number, 60) for number in range(4)]
    with StreamScript(spark, tmp_path, s=STREAM) as script:
        script.start(lambda s: joined(s, here, cases, state, tasks=1))
        script.batch(s=batches[0])
        (part,) = (state / "tables").rglob("part-*")
        whole = part.read_bytes()
        with part.open("r+b") as content:
            for place in range(0, len(whole), 256):
                content.seek(place)
                content.write(bytes([whole[place] ^ 1]))
        renew_workers()
        said = failure(lambda: script.batch(s=batches[1]))
        assert "TableError: table" in said and f"{part.name} of {state}, is damaged: its checksum" in said
        assert "remove the folder tables/" in said and "the table is prepared anew" in said
        part.write_bytes(whole)
        renew_workers()
        script.restart().process()

        here.sorted.rename(here.folder / "away")
        renew_workers()
        said = failure(lambda: script.batch(s=batches[2]))
        assert f"{here.sorted}, cannot be read: the file was removed since the table was opened" in said
        script.stop()
        with pytest.raises(
            wm.TableError, match=r"sorted\.parquet' is not there|sorted\.parquet is not there"
        ):
            script.start()
        (here.folder / "away").rename(here.sorted)
        script.start().batch(s=batches[3])
        results = script.results()
    s = spark.createDataFrame([row for rows in batches for row in rows], STREAM)
    assert_same(results, expected(s, shop.frame, cases), cases)
