"""One operator on one query, on Spark: its time, and what its manifests say of the rows that were read.

The state is removed afterwards, but for the figures that its manifests hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from papers.adaptive.operators import arguments
from papers.shared.queries import Inputs
from papers.shared.reads import BatchReads, read_batches
from papers.shared.timed import NAME, STATE, remove, run_timed


@dataclass(frozen=True, slots=True)
class Setting:
    """How the operator runs: the number of cells of the grid, and of the Spark tasks that join them."""

    cells: int
    tasks: int


@dataclass(frozen=True, slots=True)
class SparkRun:
    """What one run took, batch by batch, or several of the same join (`fastest`). `results` is None unless they were counted."""

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

    @property
    def rows_by_task(self) -> float:
        """Of what arrived, read by the task that read the most, summed over batches."""
        return float(sum(batch.by_task.max() for batch in self.reads))


def fastest(runs: Sequence[SparkRun]) -> SparkRun:
    """Of several runs of the same join each batch's best time: what disturbs a run only adds to it."""
    seconds = zip(*(run.seconds for run in runs), strict=True)
    return replace(runs[0], seconds=tuple(map(min, seconds)))


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
    """Join the streams in `files` (one file for each input and batch) and return what it took."""
    remove(scratch)
    try:
        how = {"tasks": setting.tasks, **arguments(operator, inputs, setting.cells)}
        timed = run_timed(spark, inputs, files, scratch, how, count=count, stop=stop, watch=watch)
        return SparkRun(
            operator=operator,
            query=inputs.query.name,
            rows=inputs.rows,
            seconds=timed.seconds,
            reads=tuple(read_batches(scratch / STATE, NAME, setting.tasks)),
            results=timed.results,
        )
    finally:
        remove(scratch)
