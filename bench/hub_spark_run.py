"""One run of ten queries on Spark, in this process; prints figures as JSON.

`python -m bench.hub_spark_run '{"who": "hub", "files": "...", "scratch": "...", ...}'`. `hub` is one Spark query with ten
rows in its catalogue, `apart` are ten Spark queries of their own at once, each a chain of Spark's stream-stream joins.
Both read the same files in the same micro-batches into the same sink. The stream is run twice in one JVM, and the second
time counts, as in the other suites (README.md).
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from bench.hub_load import NAMES, SCHEMA
from bench.memory import Sampler
from bench.run import SETTINGS, forget_state, stop_session, versions

HUB, APART = "hub", "apart"
# The first batches of a run open what a new query needs.
FIRST_COUNTED = 1
_TYPES = ", ".join(f"{name} bigint" for name in SCHEMA.names)
_COUNTED = "hub"


@dataclass(frozen=True, slots=True)
class Run:
    who: str
    files: str
    scratch: str
    queries: Mapping[str, str]
    cores: int = 2
    heap_gb: int = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """`batch_s` is the mean time of a batch, `wall_s` of the whole stream, `answers` those of all queries."""

    batch_s: float
    wall_s: float
    cpu_s: float
    jvm_bytes: int
    python_bytes: int
    answers: int
    foreign: float
    versions: Mapping[str, str]


def measure(run: Run) -> Measured:
    spark = _session(run)
    try:
        _stream(spark, run, "first")
        forget_state()
        return _stream(spark, run, "second")
    finally:
        stop_session()


def _session(run: Run) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{run.cores}]").config(
        "spark.driver.memory", f"{run.heap_gb}g"
    )
    for key, value in (SETTINGS | {"spark.local.dir": f"{run.scratch}/local"}).items():
        builder = builder.config(key, value)
    return wm.configure(builder).getOrCreate()


def _stream(spark: SparkSession, run: Run, name: str) -> Measured:
    """All files, in batches of one file of each stream."""
    home = Path(run.scratch) / name
    frames = _hub(spark, run, home) if run.who == HUB else _apart(spark, run)
    with Sampler() as sampler:
        began_s = time.monotonic()
        running = [_start(frame, home / str(number)) for number, frame in enumerate(frames)]
        for query in running:
            query.awaitTermination()
        wall_s = time.monotonic() - began_s
    progress = [[json.loads(one.json) for one in query.recentProgress] for query in running]
    shutil.rmtree(home)
    usage = sampler.usage
    return Measured(
        statistics.fmean(
            one["durationMs"]["triggerExecution"] / 1000
            for mine in progress
            for one in mine
            if one["numInputRows"] and one["batchId"] >= FIRST_COUNTED
        ),
        wall_s,
        usage.jvm_cpu_s + usage.python_cpu_s,
        usage.jvm_rss_bytes,
        usage.workers_anon_bytes,
        sum(one["observedMetrics"][_COUNTED]["answers"] for mine in progress for one in mine),
        usage.foreign_cpu_share,
        versions(spark),
    )


def _hub(spark: SparkSession, run: Run, home: Path) -> list[DataFrame]:
    streams = {name: _read(spark, run, name) for name in NAMES}
    hub = wm.hub(streams, queries=dict(run.queries), state=str(home / "state"))
    return [hub.answers().where("event = 'answer'")]


def _apart(spark: SparkSession, run: Run) -> list[DataFrame]:
    """The texts as they are: each is one Spark query over streams of its own."""
    frames = []
    for text in run.queries.values():
        for name in NAMES:
            _read(spark, run, name).createOrReplaceTempView(name)
        frames.append(spark.sql(text))
    return frames


def _read(spark: SparkSession, run: Run, name: str) -> DataFrame:
    reader = spark.readStream.schema(_TYPES).option("maxFilesPerTrigger", 1)
    return reader.parquet(f"{run.files}/{name}")


def _start(frame: DataFrame, home: Path) -> StreamingQuery:
    counted = frame.observe(_COUNTED, F.count(F.lit(1)).alias("answers"))
    writer = counted.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(home / "checkpoint")).start()


def main(given: Mapping[str, Any]) -> None:
    print(json.dumps(asdict(measure(Run(**given)))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
