"""A join of two streams on Spark, into a sink that drops every row, timed batch by batch.

A batch's time is Spark's own `triggerExecution`: listing, planning, logs, joining and commit.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from papers.shared.queries import Inputs
from papers.shared.reproduction import Stopped

# One Spark session for all runs that are compared, the same for every paper.
CORES = 2
SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    # The same everywhere, like the seed.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.log.level": "ERROR",
}

NAME, STATE = "reproduce", "state"
_POLL_S = 0.2
# After a stop tasks may go on for some seconds on a busy machine.
_REMOVALS = 50
_COUNTED = "counted"


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of each batch. `results` is None unless they were counted."""

    seconds: tuple[float, ...]
    results: int | None

    @property
    def total_s(self) -> float:
        return sum(self.seconds)


def run_timed(
    spark: SparkSession,
    inputs: Inputs,
    files: Path,
    scratch: Path,
    arguments: Mapping[str, Any],
    *,
    count: bool = False,
    stop: Event | None = None,
    watch: Callable[[int], None] = lambda done: None,
) -> Timed:
    """Join the streams in `files` (one file for each input and batch); `arguments` are more ones of `wm.join`.

    The state stays in `scratch`/STATE. Counting results costs time for each of them: do not compare times of
    runs with and without.
    """
    joined = wm.join(
        {side: _source(spark, side, files) for side in inputs.query.sides},
        on=inputs.query.on,
        select=list(inputs.query.select),
        state=str(scratch / STATE),
        name=NAME,
        **arguments,
    )
    if count:
        joined = joined.observe(_COUNTED, F.count(F.lit(1)).alias("rows"))
    progress = _run(joined, scratch, stop, watch)
    return Timed(
        seconds=tuple(p["durationMs"]["triggerExecution"] / 1000 for p in progress),
        results=sum(p["observedMetrics"][_COUNTED]["rows"] for p in progress) if count else None,
    )


def remove(scratch: Path) -> None:
    """All that a run left, also what tasks of a stopped query still write."""
    for _ in range(_REMOVALS):
        shutil.rmtree(scratch, ignore_errors=True)
        if not scratch.exists():
            return
        time.sleep(_POLL_S)


def _source(spark: SparkSession, side: str, files: Path) -> DataFrame:
    schema = spark.read.parquet(str(files / side / "00000.parquet")).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files / side))


def _run(
    joined: DataFrame, scratch: Path, stop: Event | None, watch: Callable[[int], None]
) -> Sequence[dict[str, Any]]:
    writer = joined.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
    try:
        # A query may end before it was once waited for in vain: a stop counts then too.
        is_done = False
        while not is_done:
            is_done = bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type]
            if stop is not None and stop.is_set():
                raise Stopped("stopped")
            last = query.lastProgress
            watch(last.batchId + 1 if last else 0)
    finally:
        query.stop()
    return [p for p in (json.loads(q.json) for q in query.recentProgress) if p["numInputRows"]]
