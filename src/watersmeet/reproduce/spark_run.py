"""One operator on one query, on Spark: the stream runs into a sink that drops every row, and is timed.

A batch's time is Spark's own `triggerExecution`: listing, planning, logs, joining and commit. The state is
removed afterwards, but for the figures that its manifests hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet.reproduce.operators import arguments
from watersmeet.reproduce.queries import Inputs
from watersmeet.reproduce.reads import BatchReads, read_batches

_NAME = "reproduce"
_POLL_S = 0.2
_COUNTED = "counted"


class Stopped(WatersmeetError):
    """The run was asked to end before its last batch."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How the operator runs: so many cells of the grid, joined by so many Spark tasks."""

    cells: int
    tasks: int


@dataclass(frozen=True, slots=True)
class SparkRun:
    """What one run took, batch by batch. `results` is None unless they were counted."""

    operator: str
    query: str
    rows: tuple[int, int]
    seconds: tuple[float, ...]
    reads: tuple[BatchReads, ...]
    results: int | None

    @property
    def total_s(self) -> float:
        return sum(self.seconds)

    @property
    def rows_read(self) -> float:
        """Of what arrived, summed over batches and joiners."""
        return float(sum(batch.fresh.sum() for batch in self.reads))


def run_on_spark(
    spark: SparkSession,
    operator: str,
    inputs: Inputs,
    files: Path,
    setting: Setting,
    scratch: Path,
    *,
    count: bool = False,
    stop: Event | None = None,
    watch: Callable[[int], None] = lambda done: None,
) -> SparkRun:
    """Join the streams in `files` (one file for each input and batch) and return what it took.

    Counting results costs time for each of them: do not compare times of runs with and without.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    state = scratch / "state"
    try:
        joined = wm.join(
            {side: _source(spark, inputs, side, files) for side in inputs.query.sides},
            on=inputs.query.on,
            select=list(inputs.query.select),
            state=str(state),
            name=_NAME,
            tasks=setting.tasks,
            **arguments(operator, inputs, setting.cells),
        )
        if count:
            joined = joined.observe(_COUNTED, F.count(F.lit(1)).alias("rows"))
        progress = _run(joined, scratch, stop, watch)
        return SparkRun(
            operator=operator,
            query=inputs.query.name,
            rows=inputs.rows,
            seconds=tuple(p["durationMs"]["triggerExecution"] / 1000 for p in progress),
            reads=tuple(read_batches(state, _NAME, setting.tasks)),
            results=sum(p["observedMetrics"][_COUNTED]["rows"] for p in progress) if count else None,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _source(spark: SparkSession, inputs: Inputs, side: str, files: Path) -> DataFrame:
    schema = spark.read.parquet(str(files / side / "00000.parquet")).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files / side))


def _run(
    joined: DataFrame, scratch: Path, stop: Event | None, watch: Callable[[int], None]
) -> Sequence[dict]:
    writer = joined.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
    try:
        while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
            if stop is not None and stop.is_set():
                raise Stopped("stopped")
            last = query.lastProgress
            watch(last.batchId + 1 if last else 0)
    finally:
        query.stop()
    return [p for p in (json.loads(q.json) for q in query.recentProgress) if p["numInputRows"]]
