"""The competitors: each builds one streaming DataFrame from the same two sources.

What differs between them is only what is in this file. Session settings, sources, trigger, sink
and checkpoint directory's disk come from `run.py` and are the same for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import schema_ddl
from bench.report import STRATEGIES
from bench.workloads import CORES, SELECT, Workload

STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True, slots=True)
class Competitor:
    """A name, how it builds its result from (left, right, state directory), its own settings."""

    name: str
    build: Callable[[DataFrame, DataFrame, Path, Workload], DataFrame]
    settings: dict[str, str] = field(default_factory=dict)
    joins: bool = True


def source(spark: SparkSession, side: str, directory: Path) -> DataFrame:
    """One input as a stream of one file per micro-batch."""
    reader = spark.readStream.schema(schema_ddl(side)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory / side))


def watersmeet_join(
    left: DataFrame, right: DataFrame, state: Path, workload: Workload, strategy: str = "auto"
) -> DataFrame:
    """Ours; the state goes to the disk that also holds everybody's checkpoint."""
    import watersmeet as wm

    return wm.join(
        {"l": left, "r": right},
        on=workload.on,
        select=list(SELECT),
        state=str(state),
        name="j",
        tasks=CORES,
        strategy=strategy,
    )


def spark_join(left: DataFrame, right: DataFrame, state: Path, workload: Workload) -> DataFrame:
    """Spark's own symmetric hash join; its state is in the query's checkpoint."""
    return left.alias("l").join(right.alias("r"), F.expr(workload.on)).selectExpr(*SELECT)


def spark_buckets(left: DataFrame, right: DataFrame, state: Path, workload: Workload) -> DataFrame:
    """What people do today: Spark refuses a band, so the rows are joined by the bucket of their key.

    A bucket is as wide as the band reaches; a left row is in one, a right one in its own and both neighbours.
    The distance is checked afterwards. The equality lets Spark's symmetric hash join run.
    """
    bucket = f"k div {workload.reach}"
    return _by_bucket(left, right, bucket, f"array({bucket} - 1, {bucket}, {bucket} + 1)", workload)


# Width of a bucket in reaches: the fastest of 2, 8 and 32.
TUNED_REACHES = 8


def spark_buckets_tuned(left: DataFrame, right: DataFrame, state: Path, workload: Workload) -> DataFrame:
    """The same, by somebody who has tuned it: wider buckets, and a right row only in those that it reaches."""
    reach, width = workload.reach, TUNED_REACHES * workload.reach
    near = f"sequence((k - {reach}) div {width}, (k + {reach}) div {width})"
    return _by_bucket(left, right, f"k div {width}", near, workload)


def _by_bucket(left: DataFrame, right: DataFrame, own: str, near: str, workload: Workload) -> DataFrame:
    one = left.withColumn("bucket", F.expr(own)).alias("l")
    other = right.withColumn("bucket", F.explode(F.expr(near))).alias("r")
    return one.join(other, F.expr(f"l.bucket = r.bucket AND {workload.on}")).selectExpr(*SELECT)


def floor(left: DataFrame, right: DataFrame, state: Path, workload: Workload) -> DataFrame:
    """Only read, shuffle by key and pass the rows through Python and back: no join, no state.

    What any operator written with `mapInArrow` after a shuffle pays before it does any work.
    """

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = left.withColumnRenamed("x", "v").unionAll(right.withColumnRenamed("y", "v"))
    return rows.repartition(CORES, "k").mapInArrow(identity, rows.schema)


def batch_join(spark: SparkSession, directory: Path, workload: Workload) -> DataFrame:
    """The truth for verification: Spark's batch join over all files at once."""
    if workload.reach:
        return _batch_band(spark, directory, workload)
    sides = {s: spark.read.schema(schema_ddl(s)).parquet(str(directory / s)) for s in ("l", "r")}
    return sides["l"].alias("l").join(sides["r"].alias("r"), F.expr(workload.on)).selectExpr(*SELECT)


def _batch_band(spark: SparkSession, directory: Path, workload: Workload) -> DataFrame:
    """The same for a band, by DuckDB: Spark would compare all pairs."""
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("SET memory_limit = '4GB'")
        for side in ("l", "r"):
            engine.execute(f"CREATE VIEW {side} AS FROM '{directory}/{side}/*.parquet'")
        band = f"l.k BETWEEN r.k - {workload.reach} AND r.k + {workload.reach}"
        found = engine.sql(f"SELECT {', '.join(SELECT)} FROM l JOIN r ON {band}").to_arrow_table()
    return spark.createDataFrame(found)


COMPETITORS = {
    c.name: c
    for c in (
        Competitor("watersmeet", watersmeet_join),
        Competitor(
            "spark-default",
            spark_join,
            {STATE_PROVIDER: f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider"},
        ),
        Competitor(
            "spark-rocksdb",
            spark_join,
            {STATE_PROVIDER: f"{STATE_PACKAGE}.RocksDBStateStoreProvider"},
        ),
        Competitor("floor", floor, joins=False),
        Competitor("watersmeet-grid", functools.partial(watersmeet_join, strategy="grid")),
        *(
            Competitor(name, functools.partial(watersmeet_join, strategy=strategy))
            for name, strategy in STRATEGIES.items()
        ),
        *(
            Competitor(name, build, {STATE_PROVIDER: f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider"})
            for name, build in (
                ("spark-buckets", spark_buckets),
                ("spark-buckets-tuned", spark_buckets_tuned),
            )
        ),
    )
}
