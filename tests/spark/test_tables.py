"""Streams and batches joined with tables on a real session, against Spark's own batch join of the same rows.

Several joins run in one query, each under a name of its own, because starting a query takes longer than a batch.
Rows of both sides have numbers, so that a result names the pair that it is of.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import failure, newest, renew_workers
from tests.unit.database_helpers import open_postgresql, open_sqlite, server  # noqa: F401
from watersmeet.spark.table_frames import Frames
from watersmeet.testing import StreamScript, assert_same_rows

NAN = float("nan")
UTC = dt.timezone.utc

# The same functions, for calls that a type checker would refuse before Python does.
join: Any = wm.join
table: Any = wm.table

STREAM = "n int, k int, c string, t string, x int"
COLUMNS = pa.schema([("id", pa.int32()), ("no", pa.int64()), ("c", pa.string()), ("y", pa.int32())])
IDS = 1_000
PICKED = ["s.n", "p.no", "p.c"]


@dataclass(frozen=True)
class Case:
    """A join of the stream `s` with a table, and what is said of it besides; `first` is named first."""

    table: str
    on: str
    how: str = "inner"
    first: str = "s"
    key: str | tuple[str, ...] = "id"
    of: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


def products() -> pa.Table:
    """Some ids have many rows, most have one to three, some have none; and some rows have no id."""
    rng = random.Random(5)
    ids = [*(rng.randrange(IDS) for _ in range(1_500)), *[7] * 400, *[500] * 40, *[None] * 60]
    rng.shuffle(ids)
    rows = [(key, no, rng.choice("abc"), rng.randrange(100)) for no, key in enumerate(ids)]
    return arrow(rows, COLUMNS)


def arrow(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    return pa.table(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )


def sales(rng: random.Random, first: int, count: int) -> list[tuple]:
    """A third of the rows have one of two keys, a few none, and some one that no product has."""

    def key() -> int | None:
        chance = rng.random()
        return (
            rng.choice([7, 500]) if chance < 0.3 else None if chance < 0.35 else rng.randrange(-50, IDS + 50)
        )

    keys = [key() for _ in range(count)]
    return [
        (first + place, k, rng.choice("abc"), None if k is None else f" {k}", rng.randrange(100))
        for place, k in enumerate(keys)
    ]


@dataclass(frozen=True)
class Shop:
    """The products, wherever they are."""

    folder: Path
    rows: pa.Table
    frame: DataFrame

    @property
    def sorted(self) -> Path:
        return self.folder / "sorted.parquet"

    @property
    def unsorted(self) -> Path:
        return self.folder / "unsorted.parquet"

    @property
    def sqlite(self) -> str:
        return f"sqlite:///{self.folder / 'shop.db'}"

    def table(self, case: Case) -> Any:
        if case.table == "sqlite":
            return table(self.sqlite, case.key, table="products", **case.of)
        if case.table == "frame":
            return table(self.frame, case.key, **case.of)
        return table(self.folder / f"{case.table}.parquet", case.key, **case.of)


@pytest.fixture(scope="module")
def shop(spark, tmp_path_factory) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    rows = products()
    pq.write_table(rows, folder / "unsorted.parquet", row_group_size=500)
    pq.write_table(rows.sort_by("id"), folder / "sorted.parquet", row_group_size=300)
    database = open_sqlite(folder / "shop.db")
    database.fill("products", rows)
    database.run("CREATE INDEX by_id ON products (id)")
    database.close()
    return Shop(folder, rows, spark.read.parquet(str(folder / "unsorted.parquet")))


def joined(s: DataFrame, shop: Shop, cases: dict[str, Case], state: Path, **more: Any) -> DataFrame:
    """All joins in one: the pairs of each, under its name."""
    return together(
        {
            name: join(
                {"s": s, "p": shop.table(case)} if case.first == "s" else {"p": shop.table(case), "s": s},
                on=case.on,
                how=case.how,
                select=PICKED,
                state=str(state),
                name=name,
                **{**more, **case.more},
            )
            for name, case in cases.items()
        }
    )


def together(frames: dict[str, DataFrame]) -> DataFrame:
    return reduce(
        DataFrame.unionByName, (frame.withColumn("case", F.lit(name)) for name, frame in frames.items())
    )


def expected(s: DataFrame, p: DataFrame, cases: dict[str, Case]) -> list[Row]:
    """The same by Spark's own join."""
    return together(
        {
            name: s.alias("s").join(p.alias("p"), F.expr(case.on), case.how).selectExpr(*PICKED)
            for name, case in cases.items()
        }
    ).collect()


def assert_same(actual: list[Row], wanted: list[Row], cases: dict[str, Case], least: int = 50) -> None:
    """Case by case, so that a failure names the one."""
    for name in cases:
        rows = [tuple(row) for row in wanted if row.case == name]
        assert len(rows) >= least, f"{name}: {len(rows)} results show little"
        try:
            assert_same_rows([tuple(row) for row in actual if row.case == name], rows)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def tables_in(state: Path) -> dict[Path, int]:
    """The prepared tables, and when each of their files was written."""
    return {path: path.stat().st_mtime_ns for path in (state / "tables").rglob("*") if path.is_file()}


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)


SMALL = {"page_rows": 20, "in_place": False}
STREAMED = {
    "in-place": Case("sorted", "s.k = p.id AND s.x < p.y + 3"),
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
    assert {name: status[name].strategy for name in ("left", "mesh", "index")} == {
        "left": "hybrid",
        "mesh": "mesh",
        "index": "index",
    }
    pages = {name: status[name].table for name in STREAMED}
    # 1,940 rows have an id. In place there are the row groups as they are, 2,000 rows by 300.
    assert pages["left"].pages == 97 and pages["in-place"].pages == 7
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


PREFIX = "the same beginning of every text, longer than any word; "
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
HOURS = [dt.datetime(1969, 12, 31), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]
FLOATS = [0.0, -0.0, NAN, 1.5, 0.1, float("inf"), -float("inf"), -2.5]


@dataclass(frozen=True)
class Kind:
    """A key: its type in the stream and in the table, and the values there."""

    stream: str
    table: str
    stream_values: list[Any]
    table_values: list[Any]


def same(kind: str, *values: Any) -> Kind:
    return Kind(kind, kind, [*values, None], [*values, None, values[0]])


def zoned(times: list[dt.datetime]) -> list[dt.datetime]:
    return [time.replace(tzinfo=UTC) for time in times]


KINDS = [
    same("tinyint", 1, -1, 127, -128),
    Kind("int", "bigint", [1, -1, 2**31 - 1, 0, None], [1, -1, 2**31 - 1, 2**40, None, -(2**63)]),
    Kind("bigint", "smallint", [1, -1, 2**40, 65_537, None], [1, -1, 32_767, None]),
    Kind("string", "int", ["1", "02", " -3", None], [1, 2, -3, None]),
    same("double", *FLOATS),
    Kind("float", "double", [*FLOATS, None], [*FLOATS, 16_777_217.0, None]),
    Kind("double", "float", [*FLOATS, 16_777_217.0, None], [*FLOATS, 16_777_216.0, None]),
    Kind("int", "double", [0, 1, 2**31 - 1, None], [0.0, -0.0, 1.0, 1.5, 2.0**31 - 1, NAN, None]),
    same("decimal(10,2)", Decimal("1.10"), Decimal("-1.10"), Decimal("0")),
    Kind(
        "decimal(10,2)",
        "decimal(22,4)",
        [Decimal("1.1"), Decimal("2"), None],
        [Decimal("1.1"), Decimal("2.0001"), Decimal("2"), None],
    ),
    same("decimal(38,10)", Decimal("1.1"), Decimal("2" + "0" * 20), Decimal("-1.1"), Decimal("1.1000000001")),
    same("boolean", True, False),
    same(
        "string",
        "",
        "a",
        "A",
        "ä",
        "a\x00b",
        *(f"{PREFIX}{n}" for n in range(9)),
        PREFIX,
        "\U0001f600",
        "\uffff",
    ),
    same(
        "binary", b"", b"a", b"\x00", b"\x00\x00", b"\xff", *(PREFIX.encode() + bytes([n]) for n in range(9))
    ),
    same("date", *DAYS),
    same("timestamp", *zoned(HOURS)),
    same("timestamp_ntz", *HOURS),
    Kind("date", "timestamp_ntz", [*DAYS[1:], None], [*HOURS, None]),
]
# Numbers of kinds, in the order of the table's key.
COMPOSITE = [(12, 4), (10, 14, 0), (15, 13), (11, 12)]


def values_at(values: list[Any], number: int, place: int) -> Any:
    """Columns of different lengths turn at different speeds, so that composite keys meet in many ways."""
    return values[(number + number // len(values) * (place % 3)) % len(values)]


def test_keys_of_every_type_join_as_in_spark(spark, tmp_path):
    rows = 44
    s = spark.createDataFrame(
        [(n, *(values_at(kind.stream_values, n, at) for at, kind in enumerate(KINDS))) for n in range(rows)],
        ", ".join(["n int", *(f"k{at} {kind.stream}" for at, kind in enumerate(KINDS))]),
    ).coalesce(1)
    p = spark.createDataFrame(
        [(n, *(values_at(kind.table_values, n, at) for at, kind in enumerate(KINDS))) for n in range(rows)],
        ", ".join(["no int", *(f"k{at} {kind.table}" for at, kind in enumerate(KINDS))]),
    )
    p.coalesce(1).write.parquet(str(tmp_path / "table"))
    keys = [*((at,) for at in range(len(KINDS))), *COMPOSITE]
    pairs = {}
    wanted = {}
    for key in keys:
        name = "-".join(str(at) for at in key)
        on = " AND ".join(f"s.k{at} = p.k{at}" for at in key)
        pairs[name] = join(
            {"s": s, "p": table(tmp_path / "table", [f"k{at}" for at in key], page_rows=3, in_place=False)},
            on=on,
            how="left",
            select=["s.n", "p.no"],
            state=str(tmp_path / "state"),
            name=name,
            tasks=1,
        )
        wanted[name] = s.alias("s").join(p.alias("p"), F.expr(on), "left").select("s.n", "p.no")
    results, by_spark = together(pairs).collect(), together(wanted).collect()
    for key in keys:
        name = "-".join(str(at) for at in key)
        mine = [row for row in by_spark if row.case == name]
        assert any(row.no is not None for row in mine) and any(row.no is None for row in mine)
        try:
            assert_same_rows([row for row in results if row.case == name], mine)
        except AssertionError as error:
            raise AssertionError(f"{[KINDS[at] for at in key]}: {error}") from None


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
# A batch of the heartbeat comes every second; the rest is for a slow machine.
SLACK_S = 12.0


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
        found = (
            number for number in list(self.collected) if any(row.n == n for row in self.collected[number])
        )
        return next((self.times[number] for number in found if number in self.times), None)


def test_rows_wait_for_others_but_not_longer_than_asked(spark, tmp_path, shop):
    """What many rows need comes at once, and what is nowhere; the rest in time, though nothing new arrives."""
    state = tmp_path / "state"
    case = {"left": Case("unsorted", "s.k = p.id", how="left", of=SMALL)}
    present = sorted(set(shop.rows["id"].drop_null().to_pylist()) - set(range(490, 510)))
    hot = [(n, 500, "a", None, n) for n in range(60)]
    absent = [(60, None, "a", None, 0), (61, -5, "a", None, 0)]
    alone = [(70 + place, key, "a", None, 0) for place, key in enumerate(present[::60])]
    later = [(200 + place, key, "a", None, 0) for place, key in enumerate(present[::90])]

    def waiting() -> int:
        (one,) = wm.status(str(state)).joins
        return one.table.waiting_rows if one.table else 0

    with Timed(spark, tmp_path, s=STREAM) as script:
        script.start(lambda s: joined(s, shop, case, state, max_delay=f"{DELAY_S:g} seconds"))
        begun = time.time()
        script.add(s=[*hot, *absent, *alone])
        wait_until(lambda: script.seen(0), "the first batch")
        assert all(script.seen(n) for n in (*range(62),)), "rows that need not wait did"
        assert waiting() == len(alone) and script.seen(70) is None
        wait_until(lambda: script.seen(70), "rows that wait alone", DELAY_S + SLACK_S)
        assert DELAY_S < script.seen(70) - begun < DELAY_S + SLACK_S
        assert waiting() == 0

        script.add(s=later)
        wait_until(waiting, "rows that wait")
        # A query that is started again goes on with what waits, not before its time.
        script.restart()
        wait_until(lambda: script.seen(200), "rows that waited over a restart", DELAY_S + SLACK_S)
        last = max(script.collected)
        wait_until(lambda: max(script.collected) >= last + 2, "batches without rows")
        results = script.results()
    s = spark.createDataFrame([*hot, *absent, *alone, *later], STREAM)
    assert_same(results, expected(s, shop.frame, case), case)
    manifest = newest(state, "left")
    assert manifest.plan.pages.arrivals == () and not manifest.live


def test_a_table_that_changes_is_seen_within_its_refresh(spark, tmp_path):
    """New files of a directory, in place and in the form, and new rows of a database; without refresh, none."""
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
            "in-place": table(folder, "id", in_place=True, refresh=0.1),
            "form": table(folder, "id", in_place=False, page_rows=10, refresh="1 second"),
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
                "form",
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
        time.sleep(1)
        # This batch finds the change, the next one uses it; or one more, if the task that plans the first may not
        # bring a table into order.
        assert found(10) <= {"sqlite"}
        assert found(20) <= {"in-place", "form", "sqlite"}
        assert found(24) == {"in-place", "form", "sqlite"}
        script.restart()
        assert found(30) == {"in-place", "form", "sqlite", "not"}


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
    """A damaged page of the form, and a file that is gone: the query ends with what to do, and resumes."""
    state = tmp_path / "state"
    here = Shop(tmp_path / "shop", shop.rows, shop.frame)
    here.folder.mkdir()
    pq.write_table(shop.rows.sort_by("id"), here.sorted, row_group_size=300)
    pq.write_table(shop.rows, here.unsorted)
    cases = {"form": Case("unsorted", "s.k = p.id", of=SMALL), "files": Case("sorted", "s.k = p.id")}
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


def test_a_dataframe_is_not_taken_for_another(spark):
    """Python gives the same id to one object after the other."""
    frames = Frames(spark)
    assert len({frames.fingerprint(spark.range(3)) for _ in range(20)}) == 20
    kept = spark.range(3)
    assert frames.fingerprint(kept) == frames.fingerprint(kept)


def test_a_dataframe_of_files_is_known_until_one_is_rewritten_under_its_name(spark, tmp_path):
    frames, folder = Frames(spark), tmp_path / "a b%#é"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name} +.csv").write_text("1,a\n2,b\n")

    def read() -> str:
        return frames.fingerprint(spark.read.schema("id INT, v STRING").csv(str(folder)).where("id > 0"))

    known = read()
    assert read() == known
    (folder / "two +.csv").write_text("1,a\n2,c\n")
    assert read() != known


BAD: list[Any] = [
    pytest.param({"key": "idd"}, wm.TableError, r"has no column idd; did you mean id\?", id="key"),
    pytest.param(
        {"key": ["id", "C"]}, wm.TableError, r"has no column C; did you mean c\?", id="case of a key"
    ),
    pytest.param(
        {"on": "s.k = p.idd"}, wm.PredicateError, r"(?s)not a column of p.*did you mean id\?", id="column"
    ),
    pytest.param(
        {"on": "s.c = p.c"}, wm.PredicateError, "add s.<column> = p.id", id="no equality with the key"
    ),
    pytest.param({"on": "s.k > p.id"}, wm.PredicateError, "add s.<column> = p.id", id="an inequality"),
    pytest.param({"on": "s.k = p.id + 1"}, wm.PredicateError, "add s.<column> = p.id", id="a computed key"),
    pytest.param({"on": "s.k = p.id OR s.c = p.c"}, wm.PredicateError, "add s.<column> = p.id", id="or"),
    pytest.param(
        {"key": ["id", "c"]}, wm.PredicateError, "add s.<column> = p.c", id="half of a composite key"
    ),
    pytest.param(
        {"key": "c", "on": "s.k = p.c"}, wm.PredicateError, r"CAST\(`s`.`k` AS STRING\) = p.c", id="types"
    ),
    pytest.param(
        {"on": "s.k + 0.5 = p.id"},
        wm.PredicateError,
        r"CAST\(`s`.`k` \+ 0.5BD AS INT\) = p.id",
        id="computed type",
    ),
    pytest.param({"on": lambda s, p: None}, wm.UsageError, "a table is found by its key", id="a function"),
    pytest.param({"how": "outer"}, wm.UsageError, "how='outer' is not known for a table", id="how"),
    pytest.param({"within": "1 hour"}, wm.UsageError, "within= is for a join of two streams", id="within"),
    pytest.param({"cells": 4}, wm.UsageError, "cells= is for a join of two streams", id="cells"),
    pytest.param({"name": "tables"}, wm.UsageError, "name='tables'", id="name"),
    pytest.param({"strategy": "hash"}, wm.UsageError, "'hash' is not for a table: use one of", id="strategy"),
    pytest.param({"max_delay": "soon"}, wm.UsageError, "max_delay='soon' is no length of time", id="delay"),
    pytest.param(
        {"max_delay": 5, "of": {"in_place": True}},
        wm.UsageError,
        "in_place=True does not go with max_delay: files that change while rows wait",
        id="waiting in place",
    ),
    pytest.param({"memory": "much"}, wm.UsageError, "memory", id="memory"),
    pytest.param(
        {"how": "left", "on": "s.k = p.id AND upper(s.c) = upper(p.c)"},
        wm.PredicateError,
        'only Spark can evaluate: use how="inner"',
        id="left with a part for Spark",
    ),
    pytest.param(
        {"of": {"in_place": True}, "file": "unsorted.parquet"},
        wm.TableError,
        "cannot be used in place: the keys of row group .* overlap. Sort it by id",
        id="not sorted",
    ),
    pytest.param({"file": "none.parquet"}, wm.TableError, "is not there: check the path", id="no file"),
    pytest.param({"file": "shop.db"}, wm.TableError, "cannot be read as Parquet", id="no Parquet"),
]


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(STREAM).parquet(str(tmp_path_factory.mktemp("stream")))


@pytest.mark.parametrize(("bad", "kind", "message"), BAD)
def test_what_is_wrong_is_refused_at_once(stream, shop, tmp_path, bad, kind, message):
    said = {"on": "s.k = p.id", "state": str(tmp_path), **bad}
    file, key, of = (
        said.pop(name, usual) for name, usual in (("file", "sorted.parquet"), ("key", "id"), ("of", {}))
    )
    with pytest.raises(kind, match=message):
        join({"s": stream, "p": table(shop.folder / file, key, **of)}, **said)


def test_what_cannot_be_an_input_is_refused(stream, shop, tmp_path):
    with pytest.raises(wm.UsageError, match="a table does not stream"):
        table(stream, key="k")
    both = {"p": table(shop.sorted, key="id"), "q": table(shop.unsorted, key="id")}
    with pytest.raises(wm.UsageError, match="inputs p and q are both tables"):
        join(both, "p.id = q.id", state=str(tmp_path))
    with pytest.raises(wm.UsageError, match=r"make it a table, wm.table\(p, key=...\)"):
        join({"s": stream, "p": shop.frame}, "s.k = p.id", state=str(tmp_path))
    with pytest.raises(wm.UsageError, match='two DataFrames are joined with how="inner"'):
        join({"l": stream, "r": stream}, "l.k = r.k", state=str(tmp_path), how="left")
    with pytest.raises(wm.UsageError, match="max_delay= is for a join with a wm.table"):
        join({"l": stream, "r": stream}, "l.k = r.k", state=str(tmp_path), max_delay=5)
    with pytest.raises(wm.TableError, match="has no column idd; did you mean id"):
        join({"s": stream, "p": table(shop.frame, key="idd")}, "s.k = p.idd", state=str(tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], (
        "a refused join left something behind"
    )


def test_the_advice_on_types_is_good(stream, shop, tmp_path):
    on = "CAST(s.k AS STRING) = p.c"
    given = {"s": stream, "p": table(shop.sorted, key="c")}
    assert join(given, on, state=str(tmp_path)).columns == ["s", "p"]
