"""Products in tables of every kind, a stream of sales, and Spark's own join of the two."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.unit.database_helpers import open_sqlite
from watersmeet.testing import assert_same_rows

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


def open_shop(spark: SparkSession, folder: Path) -> Shop:
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
