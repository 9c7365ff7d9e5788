"""Joins with tables among many inputs on a real session, against Spark's own batch joins of the same rows.

Several joins run in one query, each under a name of its own, because starting a query takes longer than a batch.
"""

from __future__ import annotations

import random
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.cli.main import app
from watersmeet.errors import PredicateError, UsageError
from watersmeet.tables.spec import Table
from watersmeet.testing import StreamScript, assert_same_rows

pytestmark = pytest.mark.spark

STREAM = "n int, k int, x int, t string, at timestamp_ntz"
ITEMS = ["s.n", "c.n AS m", "p.label", "g.title", "s.x + c.x - coalesce(p.v, 0) AS gap"]
PICKED = ", ".join(ITEMS)
EARLY = "s.k = c.k AND s.x = p.id AND p.cat = g.id AND s.x + c.x > p.v"
LEFT_TABLES = (
    "s JOIN c ON s.k = c.k AND s.x > 2 LEFT JOIN p ON s.x = p.id LEFT JOIN g ON p.cat = g.id AND g.id > 0"
)
NEAR = "s.at - c.at BETWEEN INTERVAL '-20' SECOND AND INTERVAL '20' SECOND"
LATE = "s.k = c.k AND s.x + c.x = p.id AND c.x % 3 = g.id AND upper(concat(s.t, c.t)) <> p.label"
# The condition, further arguments, and what Spark's own join reads.
CASES: dict[str, tuple[str, dict, str]] = {
    "left": (
        "s.k = c.k AND s.x > 2 AND s.x = p.id AND p.cat = g.id AND g.id > 0",
        {"how": "left", "within": "20 seconds", "time": {"s": "at", "c": "at"}, "lateness": "1 hour"},
        f"{LEFT_TABLES} WHERE {NEAR}",
    ),
    # Spark evaluates the last condition, over both streams and a table that is looked up after their join.
    "late": (LATE, {"strategy": "hash"}, f"p, s, c, g WHERE {LATE}"),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    products: list[tuple] = [(number, number % 4, number * 2, f"P{number % 5}") for number in range(25)]
    products += [(3, 1, 0, "AB"), (None, 1, 0, "none")]
    columns = list(zip(*products, strict=True))
    types = {"id": pa.int32(), "cat": pa.int32(), "v": pa.int32(), "label": pa.string()}
    pq.write_table(
        pa.table([pa.array(c, t) for c, t in zip(columns, types.values(), strict=True)], names=list(types)),
        folder / "p.parquet",
    )
    groups = pa.table({"id": pa.array(range(3), pa.int32()), "title": ["zero", "one", "two"]})
    pq.write_table(groups, folder / "g.parquet")
    return folder


def tables(shop: Path) -> dict[str, Table]:
    return {
        "p": wm.table(shop / "p.parquet", key="id", page_rows=4, in_place=False),
        "g": wm.table(shop / "g.parquet", key="id"),
    }


def draw(rng: random.Random, count: int) -> list[tuple]:
    def row() -> tuple:
        key = None if rng.random() < 0.1 else rng.randrange(6)
        second = f"2026-01-01 00:0{rng.randrange(3)}:{rng.randrange(60):02d}"
        return rng.randrange(10**6), key, rng.randrange(30), rng.choice("ab"), second

    return [row() for _ in range(count)]


def frame(spark, rows: list[tuple]) -> DataFrame:
    text = spark.createDataFrame(rows, STREAM.replace("timestamp_ntz", "string"))
    return text.withColumn("at", F.col("at").cast("timestamp_ntz"))


def inputs(shop: Path, s: DataFrame, c: DataFrame) -> dict[str, DataFrame | Table]:
    given = tables(shop)
    return {"p": given["p"], "s": s, "c": c, "g": given["g"]}


def expected(spark, shop: Path, s: DataFrame, c: DataFrame, items: str, source: str) -> list:
    for name, rows in (("s", s), ("c", c), *((n, spark.read.parquet(f"{shop}/{n}.parquet")) for n in "pg")):
        rows.createOrReplaceTempView(name)
    return spark.sql(f"SELECT {items} FROM {source}").collect()


def test_streams_with_tables_among_them_give_sparks_batch_join(spark, tmp_path, shop):
    """The first batch has no rows of c and the second none of s: the lookups of an idle stream still take part."""
    rng = random.Random(3)
    batches = [{"s": draw(rng, 40)}, {"c": draw(rng, 40)}]
    state = tmp_path / "state"

    def build(s: DataFrame, c: DataFrame) -> DataFrame:
        found = (
            wm.join(inputs(shop, s, c), on=on, select=ITEMS, state=str(state), name=name, **how).withColumn(
                "case", F.lit(name)
            )
            for name, (on, how, _) in CASES.items()
        )
        return reduce(DataFrame.unionByName, found)

    with StreamScript(spark, tmp_path, s=STREAM, c=STREAM) as script:
        script.start(build)
        for number, batch in enumerate(batches):
            script.batch(**{name: frame(spark, rows) for name, rows in batch.items()})
            if number == 0:
                script.restart()
        results = script.results()
    s, c = (frame(spark, [row for batch in batches for row in batch.get(name, [])]) for name in "sc")
    for name, (_, _, source) in CASES.items():
        wanted = expected(spark, shop, s, c, f"{PICKED}, '{name}' AS case", source)
        assert wanted
        assert_same_rows([row for row in results if row["case"] == name], wanted)
    names = {one.name for one in wm.status(state).joins}
    assert names == {name + stage for name in CASES for stage in ("", "~p", "~g")}
    shown = CliRunner().invoke(app, ["status", str(state)])
    assert shown.exit_code == 0 and "a lookup of the join late" in shown.output


def test_batches_with_tables_among_them_give_sparks_batch_join(spark, tmp_path, shop):
    rng = random.Random(9)
    s, c = (frame(spark, draw(rng, 40)) for _ in "sc")
    whole = ", ".join(f"struct({name}.*) AS {name}" for name in "pscg")
    wanted = expected(spark, shop, s, c, whole, f"p, s, c, g WHERE {EARLY}")
    assert wanted
    for how in ({}, {"strategy": "hypercube"}):
        joined = wm.join(inputs(shop, s, c), on=EARLY, state=str(tmp_path), **how)
        assert joined.columns == ["p", "s", "c", "g"]
        assert_same_rows(joined.collect(), wanted)
    query = "SELECT s.n, c.n AS m, g.title FROM s JOIN c USING (k) JOIN p ON s.x = p.id, g WHERE g.id = p.cat"
    named = {"s": s, "c": c, **tables(shop)}
    wanted = expected(spark, shop, s, c, "s.n, c.n AS m, g.title", query.split("FROM ")[1])
    assert_same_rows(wm.sql(query, named, state=str(tmp_path)).collect(), wanted)

    text = wm.explain(inputs(shop, s, c), on=EARLY, strategy="hypercube")
    assert text == "hypercube: you asked for it; looked up first: p for rows of s, then g for rows of s"
    late = wm.explain(inputs(shop, s, c), on="s.k = c.k AND s.x + c.x = p.id AND p.cat = g.id")
    assert late.startswith("spark: ") and late.endswith("; looked up in the results: p, then g")
    alone = wm.explain({"s": s, **tables(shop)}, on="s.x = p.id AND p.cat = g.id")
    assert alone.startswith("hybrid: ") and alone.endswith("; looked up first: p for rows of s, then g")


def test_refusals_of_joins_with_tables(spark, tmp_path, shop):
    s, c = (frame(spark, draw(random.Random(1), 2)) for _ in "sc")
    given = {name: one for name, one in inputs(shop, s, c).items() if name != "g"}
    for on, how, problem in (
        ("s.k = c.k", {}, "nothing joins the table p to s, c"),
        ("s.k = c.k AND s.x = p.no", {}, "no is not a column of p"),
        ("s.k = c.k AND s.x = p.id AND c.x < p.v", {"how": "left"}, "may read one stream"),
    ):
        with pytest.raises(PredicateError, match=problem) as refused:
            wm.join(given, on=on, state=str(tmp_path), **how)
        assert refused.value.text == on
    with pytest.raises(UsageError, match="is not for a table: use one of"):
        wm.join(
            {"s": s, **tables(shop)}, on="s.x = p.id AND s.k = g.id", state=str(tmp_path), strategy="hash"
        )


JOB = """
[inputs.s]
format = "parquet"
path = "s"
[inputs.p]
path = "{shop}/p.parquet"
key = "id"
[inputs.c]
format = "parquet"
path = "c"
[join]
on = "s.k = c.k AND s.x = p.id"
select = ["s.n", "c.n AS m", "p.label"]
[sink]
format = "parquet"
path = "out"
[job]
checkpoint = "checkpoint"
trigger = "once"
"""


def test_a_job_file_with_a_table_among_streams(spark, tmp_path, shop):
    rng = random.Random(5)
    s, c = (frame(spark, draw(rng, 20)) for _ in "sc")
    s.write.parquet(f"{tmp_path}/s")
    c.write.parquet(f"{tmp_path}/c")
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(shop=shop))
    checked = CliRunner().invoke(app, ["run", str(job), "--check"])
    assert checked.exit_code == 0, checked.output
    assert "name in the state: s-p-c~p, s-p-c" in checked.stdout and "stored: n, k, x" in checked.stdout
    done = CliRunner().invoke(app, ["run", str(job)])
    assert done.exit_code == 0, done.output
    source = "s JOIN c ON s.k = c.k JOIN p ON s.x = p.id"
    wanted = expected(spark, shop, s, c, "s.n, c.n AS m, p.label", source)
    assert_same_rows(spark.read.parquet(f"{tmp_path}/out").collect(), wanted)
    # A changed condition is refused before the first batch, wherever it is tested.
    job.write_text(JOB.format(shop=shop).replace("= p.id", "= p.id AND p.v > 3"))
    refused = CliRunner().invoke(app, ["run", str(job), "--check"])
    assert refused.exit_code == 2 and "the state was written by another join" in refused.stderr
