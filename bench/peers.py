"""The competitors: each builds one streaming DataFrame from the same two sources.

What differs between them is only what is in this file. Session settings, sources, trigger, sink
and checkpoint directory's disk come from `run.py` and are the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import schema_ddl
from bench.workloads import CORES, ON, SELECT

STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True, slots=True)
class Competitor:
    """A name, how it builds its result from (left, right, state directory), its own settings."""

    name: str
    build: Callable[[DataFrame, DataFrame, Path], DataFrame]
    settings: dict[str, str] = field(default_factory=dict)
    joins: bool = True


def source(spark: SparkSession, side: str, directory: Path) -> DataFrame:
    """One input as a stream of one file per micro-batch."""
    reader = spark.readStream.schema(schema_ddl(side)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory / side))


def watersmeet_join(left: DataFrame, right: DataFrame, state: Path) -> DataFrame:
    """Ours; the state goes to the disk that also holds everybody's checkpoint."""
    import watersmeet as wm

    inputs = {"l": left, "r": right}
    return wm.join(inputs, on=ON, select=list(SELECT), state=str(state), name="j", tasks=CORES)


def spark_join(left: DataFrame, right: DataFrame, state: Path) -> DataFrame:
    """Spark's own symmetric hash join; its state is in the query's checkpoint."""
    return left.alias("l").join(right.alias("r"), F.expr(ON)).selectExpr(*SELECT)


def floor(left: DataFrame, right: DataFrame, state: Path) -> DataFrame:
    """Only read, shuffle by key and pass the rows through Python and back: no join, no state.

    What any operator written with `mapInArrow` after a shuffle pays before it does any work.
    """

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = left.withColumnRenamed("x", "v").unionAll(right.withColumnRenamed("y", "v"))
    return rows.repartition(CORES, "k").mapInArrow(identity, rows.schema)


def batch_join(spark: SparkSession, directory: Path) -> DataFrame:
    """The truth for verification: Spark's batch join over all files at once."""
    sides = {s: spark.read.schema(schema_ddl(s)).parquet(str(directory / s)) for s in ("l", "r")}
    return sides["l"].alias("l").join(sides["r"].alias("r"), F.expr(ON)).selectExpr(*SELECT)


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
    )
}
