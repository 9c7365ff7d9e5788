"""The competitors: each builds one streaming DataFrame from the same inputs: streams, or a stream and a table.

What differs between them is only what is in this file. Session settings, sources, trigger, sink
and checkpoint directory's disk come from `run.py` and are the same for all. What a competitor does before its
DataFrame is there, such as bringing a table into order or into the cache, is timed by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.data import schema_of
from bench.graphs import GraphWorkload, chained, sided
from bench.nexmark import EventWorkload
from bench.report import (
    ADAPTIVE,
    CACHED,
    CHAIN,
    CHOSEN,
    FILES,
    IN_PLACE,
    LOOKUPS,
    SHUFFLED,
    SOURCES,
    SPARK_CHAIN,
    STATIC,
    STRATEGIES,
)
from bench.windows import WindowWorkload
from bench.workloads import CORES, AnyWorkload, Drawn, TableWorkload, Workload

STATE_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STATE_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
# The table stands for one that is too large to be broadcast.
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
# A join with a static table has no state: as Spark ships, it may be planned again between its stages.
AS_SHIPPED = {"spark.sql.adaptive.streaming.stateless.enabled": "true"}
# Our operator's name inside the state.
JOIN = "j"


W = TypeVar("W", Workload, TableWorkload, GraphWorkload, EventWorkload, WindowWorkload)


@dataclass(frozen=True, slots=True)
class Inputs(Generic[W]):
    """What a competitor starts from: a workload, its files, and a directory for state of its own."""

    spark: SparkSession
    workload: W
    files: Path
    state: Path

    def stream(self, name: str) -> DataFrame:
        """One input as a stream of one file per micro-batch."""
        reader = self.spark.readStream.schema(schema_of(self.workload, name)).option("maxFilesPerTrigger", 1)
        return self._filtered(name, reader.parquet(self.path(name)))

    def whole(self, name: str) -> DataFrame:
        """All files of an input at once."""
        return self._filtered(name, self.spark.read.parquet(self.path(name)))

    def _filtered(self, name: str, rows: DataFrame) -> DataFrame:
        condition = self.workload.filters.get(name)
        return rows if condition is None else rows.where(condition)

    def path(self, name: str) -> str:
        return str(self.files / name)


@dataclass(frozen=True, slots=True)
class Competitor:
    """A name, how it builds its result, its own settings.

    Without `counts_rows` Spark's progress does not know the rows of a batch, because they do not pass through the JVM.
    """

    name: str
    build: Callable[[Inputs[Any]], DataFrame]
    settings: dict[str, str] = field(default_factory=dict)
    counts_rows: bool = True


def watersmeet_join(given: Inputs[Workload], strategy: str = "auto") -> DataFrame:
    """Ours; the state goes to the disk that also holds everybody's checkpoint."""
    return _watersmeet(given, {name: given.stream(name) for name in given.workload.inputs}, strategy)


def watersmeet_files(given: Inputs[Any]) -> DataFrame:
    """Ours with the directories themselves as inputs: workers read the files, and the JVM sees only descriptors."""
    import watersmeet as wm

    inputs = {
        name: wm.files(
            given.path(name),
            schema=schema_of(given.workload, name),
            where=given.workload.filters.get(name),
            max_files_per_batch=1,
        )
        for name in given.workload.inputs
    }
    return _watersmeet(given, inputs, "auto")


def watersmeet_lookup(
    given: Inputs[TableWorkload], strategy: str, in_place: bool | None = False
) -> DataFrame:
    """Ours with a table, which is sorted into the state first unless it is said otherwise."""
    import watersmeet as wm

    # In place would do for the small tables of quick runs: what is measured shall be the same at any size.
    table = wm.table(given.path("p"), key=given.workload.key, in_place=in_place)
    return _watersmeet(given, {"s": given.stream("s"), "p": table}, strategy)


def _watersmeet(given: Inputs[Any], inputs: dict[str, Any], strategy: str) -> DataFrame:
    import watersmeet as wm

    window = given.workload.window
    bounds: dict[str, Any] = {}
    if window is not None:
        bounds = {"within": window.within, "time": window.time, "lateness": window.lateness}
    return wm.join(
        inputs,
        on=given.workload.on,
        select=list(given.workload.select),
        state=str(given.state),
        name=JOIN,
        tasks=CORES,
        strategy=strategy,
        **bounds,
    )


def spark_join(given: Inputs[Workload]) -> DataFrame:
    """Spark's own symmetric hash join; its state is in the query's checkpoint. A window has a watermark on both sides."""
    window = given.workload.window
    streams = {name: given.stream(name) for name in given.workload.inputs}
    if window is not None:
        streams = {
            name: rows.withWatermark(window.time[name], window.lateness) for name, rows in streams.items()
        }
    return _join(given.workload, *streams.values())


def spark_static(given: Inputs[TableWorkload]) -> DataFrame:
    """Spark's stream-static join: it reads and shuffles the whole table in every batch."""
    return _join(given.workload, given.stream("s"), given.whole("p"))


def spark_shuffled(given: Inputs[TableWorkload]) -> DataFrame:
    """The same by somebody who has tuned it: the batch is hashed, so that the table need not be sorted."""
    return _join(given.workload, given.stream("s").hint("shuffle_hash"), given.whole("p"))


def spark_cached(given: Inputs[TableWorkload]) -> DataFrame:
    """The same with the table in Spark's cache, all of it, before the query starts."""
    table = given.whole("p").cache()
    table.count()
    return _join(given.workload, given.stream("s"), table)


def _join(workload: AnyWorkload, one: DataFrame, other: DataFrame) -> DataFrame:
    first, second = workload.inputs
    return (
        one.alias(first)
        .join(other.alias(second), F.expr(condition_of(workload)))
        .selectExpr(*workload.select)
    )


def condition_of(workload: AnyWorkload) -> str:
    """The whole condition of a join, its window as a condition too: as Spark and DuckDB need it."""
    window = workload.window
    return workload.on if window is None or not window.bounds else f"{workload.on} AND {window.condition()}"


def spark_buckets(given: Inputs[Workload]) -> DataFrame:
    """What people do today: Spark refuses a band, so the rows are joined by the bucket of their key.

    A bucket is as wide as the band reaches; a left row is in one, a right one in its own and both neighbours.
    The distance is checked afterwards. The equality lets Spark's symmetric hash join run.
    """
    bucket = f"k div {given.workload.reach}"
    return _by_bucket(given, bucket, f"array({bucket} - 1, {bucket}, {bucket} + 1)")


# Width of a bucket in reaches: the fastest of 2, 8 and 32.
TUNED_REACHES = 8


def spark_buckets_tuned(given: Inputs[Workload]) -> DataFrame:
    """The same, by somebody who has tuned it: wider buckets, and a right row only in those that it reaches."""
    reach = given.workload.reach
    width = TUNED_REACHES * reach
    near = f"sequence((k - {reach}) div {width}, (k + {reach}) div {width})"
    return _by_bucket(given, f"k div {width}", near)


def _by_bucket(given: Inputs[Workload], own: str, near: str) -> DataFrame:
    one = given.stream("l").withColumn("bucket", F.expr(own)).alias("l")
    other = given.stream("r").withColumn("bucket", F.explode(F.expr(near))).alias("r")
    on = F.expr(f"l.bucket = r.bucket AND {given.workload.on}")
    return one.join(other, on).selectExpr(*given.workload.select)


def floor(given: Inputs[Workload]) -> DataFrame:
    """Only read, shuffle by key and pass the rows through Python and back: no join, no state.

    What any operator written with `mapInArrow` after a shuffle pays before it does any work.
    """

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    left, right = given.stream("l"), given.stream("r")
    rows = left.withColumnRenamed("x", "v").unionAll(right.withColumnRenamed("y", "v"))
    return rows.repartition(CORES, "k").mapInArrow(identity, rows.schema)


def watersmeet_chained(given: Inputs[GraphWorkload]) -> DataFrame:
    """A join of a join of a join, all of them ours: every intermediate result is stored."""
    import watersmeet as wm

    def link(left: DataFrame, right: DataFrame, on: str, step: int) -> DataFrame:
        columns = [*(f"l.{name}" for name in left.columns), *(f"r.{name}" for name in right.columns)]
        on = sided(on, left.columns)
        return wm.join(
            {"l": left, "r": right},
            on=on,
            select=columns,
            state=str(given.state),
            name=f"{JOIN}{step}",
            tasks=CORES,
        )

    return chained(given.workload, given.stream, link)


def spark_chained(given: Inputs[GraphWorkload]) -> DataFrame:
    """Spark's own join, one after the other."""
    return chained(given.workload, given.stream, lambda left, right, on, _: left.join(right, F.expr(on)))


def sources(given: Inputs[GraphWorkload]) -> DataFrame:
    """Only read all inputs: what Spark needs for this many sources."""
    streams = [
        given.stream(one.name).select(F.col(one.columns[0][0]).alias("k")) for one in given.workload.relations
    ]
    return functools.reduce(DataFrame.unionAll, streams)


def batch_join(given: Inputs[Any]) -> DataFrame:
    """The truth for verification, over all files at once: Spark's batch join, or DuckDB's.

    DuckDB's where Spark is a competitor that has no other, and for a band: Spark would compare all pairs.
    """
    if isinstance(given.workload, Drawn):
        return _by_duckdb(given, condition_of(given.workload))
    if isinstance(given.workload, Workload) and given.workload.reach:
        reach = given.workload.reach
        return _by_duckdb(given, f"l.k BETWEEN r.k - {reach} AND r.k + {reach}")
    return _join(given.workload, *(given.whole(name) for name in given.workload.inputs))


def _by_duckdb(given: Inputs[Any], on: str) -> DataFrame:
    import duckdb

    names, filters = given.workload.inputs, given.workload.filters
    results = given.state.with_name("duckdb.parquet")
    with duckdb.connect() as engine:
        engine.execute("SET memory_limit = '4GB'")
        engine.execute(f"SET temp_directory = '{given.state.with_name('duckdb')}'")
        for name in names:
            rows = f"FROM '{given.path(name)}/*.parquet' WHERE {filters.get(name, 'true')}"
            engine.execute(f"CREATE VIEW {name} AS {rows}")
        columns = ", ".join(given.workload.select)
        query = f"SELECT {columns} FROM {', '.join(names)} WHERE {on}"
        # In a file: the answers with all texts of the events take more than the memory that is left.
        engine.execute(f"COPY ({query}) TO '{results}' (FORMAT parquet)")
    return given.spark.read.parquet(str(results))


COMPETITORS = {
    c.name: c
    for c in (
        Competitor("watersmeet", watersmeet_join),
        Competitor(FILES, watersmeet_files, counts_rows=False),
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
        Competitor("floor", floor),
        Competitor(CHAIN, watersmeet_chained),
        Competitor(
            SPARK_CHAIN, spark_chained, {STATE_PROVIDER: f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider"}
        ),
        Competitor(SOURCES, sources),
        Competitor("watersmeet-grid", functools.partial(watersmeet_join, strategy="grid")),
        *(
            Competitor(name, functools.partial(watersmeet_join, strategy=strategy))
            for name, strategy in STRATEGIES.items()
        ),
        *(
            Competitor(name, functools.partial(watersmeet_lookup, strategy=strategy))
            for name, strategy in LOOKUPS.items()
        ),
        *(
            Competitor(name, functools.partial(watersmeet_lookup, strategy="auto", in_place=in_place))
            for name, in_place in ((CHOSEN, None), (IN_PLACE, True))
        ),
        *(
            Competitor(name, build, NO_BROADCAST)
            for name, build in ((STATIC, spark_static), (SHUFFLED, spark_shuffled), (CACHED, spark_cached))
        ),
        Competitor(ADAPTIVE, spark_static, NO_BROADCAST | AS_SHIPPED),
        *(
            Competitor(name, build, {STATE_PROVIDER: f"{STATE_PACKAGE}.HDFSBackedStateStoreProvider"})
            for name, build in (
                ("spark-buckets", spark_buckets),
                ("spark-buckets-tuned", spark_buckets_tuned),
            )
        ),
    )
}
