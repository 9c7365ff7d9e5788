"""`python -m bench similar`: the similarity join against brute force, over generated histograms.

The histograms are joined with themselves, arriving on both sides in the same batches, exploded into the buckets of
each table. Candidates are the pairs that share a bucket, counted for each table in which they do; the kernel looks at
them twice, since each picture stands on both sides, and measures those that `l.id < r.id` and the first meeting leave.

The local driver runs its tasks one after the other: its time is that of the work, whatever the number of tasks. On
Spark it is that of the query, sink `noop`, after one that was thrown away. Found pairs are counted in a run of their
own on Spark, since counting costs time for each of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from papers.hypercube.histograms import as_matrix, close_pairs, histograms
from watersmeet.local.join import LocalJoin
from watersmeet.similar import Buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SELECT = ("l.id AS one", "r.id AS other")
# What the family promises of pairs at the radius, and so at least of all within it.
RECALL = 0.9


@dataclass(frozen=True, slots=True)
class Trial:
    """What is run; `strategy` and `tasks` are the arguments of `wm.join`."""

    radius: float
    rows: int = 15_000
    strategy: str = "auto"
    tasks: int = 48
    batches: int = 5
    seed: int = 0

    @property
    def buckets(self) -> Buckets:
        return Buckets(self.radius, dimensions=64, seed=self.seed)

    @property
    def on(self) -> str:
        return f"{self.buckets.near('l.v', 'r.v')} AND l.id < r.id"

    def parts(self) -> Iterator[pa.Table]:
        """The rows of each batch."""
        table, size = histograms(self.rows), -(-self.rows // self.batches)
        return (table.slice(start, size) for start in range(0, self.rows, size))


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a radius without a join. `fullest` is the share of all rows in the fullest bucket."""

    candidates: int
    fullest: float
    true_pairs: int
    brute_force_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a join found, and the seconds that it took."""

    pairs: int
    seconds: float


def know(trial: Trial) -> Known:
    vectors = as_matrix(histograms(trial.rows))
    sizes = [np.unique(codes, return_counts=True)[1] for codes in trial.buckets.codes(vectors).T]
    start = time.perf_counter()
    true_pairs = len(close_pairs(vectors, trial.radius))
    return Known(
        candidates=sum(int((size * (size - 1) // 2).sum()) for size in sizes),
        fullest=max(int(size.max()) for size in sizes) / trial.rows,
        true_pairs=true_pairs,
        brute_force_s=time.perf_counter() - start,
    )


def join_locally(trial: Trial) -> Found:
    """With the local driver. Every found pair is a true one: the join measures it."""
    buckets, pairs, seconds = trial.buckets, 0, 0.0
    schema = _exploded(histograms(1), buckets)[0].schema
    with tempfile.TemporaryDirectory() as state:
        join = LocalJoin(
            {"l": schema, "r": schema}, trial.on, state, SELECT, tasks=trial.tasks, strategy=trial.strategy
        )
        for part in trial.parts():
            start = time.perf_counter()
            arriving = _exploded(part, buckets)
            pairs += len(join.batch(l=arriving, r=arriving))
            seconds += time.perf_counter() - start
    return Found(pairs, seconds)


def join_on_spark(trial: Trial, spark: SparkSession) -> Found:
    """As a stream, in as many batches. The first run warms the session up, the last one counts."""
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(trial.parts()):
            (Path(folder) / "in").mkdir(exist_ok=True)
            pq.write_table(part, f"{folder}/in/{number:05}.parquet")
        counted: list[int] = []
        seconds = [_stream(trial, spark, f"{folder}/in", _drop) for _ in range(2)][-1]
        _stream(trial, spark, f"{folder}/in", lambda frame, number: counted.append(frame.count()))
    return Found(sum(counted), seconds)


def _stream(trial: Trial, spark: SparkSession, files: str, sink: Callable[[DataFrame, int], None]) -> float:
    """Seconds of all batches, by Spark's own clock."""
    reader = spark.readStream.schema("id BIGINT, v ARRAY<FLOAT>").option("maxFilesPerTrigger", 1)
    arriving = trial.buckets.of(reader.parquet(files), "v")
    with tempfile.TemporaryDirectory() as folder:
        near = wm.join(
            {"l": arriving, "r": arriving},
            on=trial.on,
            select=SELECT,
            state=f"{folder}/state",
            tasks=trial.tasks,
            strategy=trial.strategy,
        )
        writer = near.writeStream.foreachBatch(sink).option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(step["durationMs"]["triggerExecution"] for step in query.recentProgress) / 1_000


def _drop(frame: DataFrame, number: int) -> None:
    frame.write.format("noop").mode("append").save()


def _exploded(rows: pa.Table, buckets: Buckets) -> list[pa.RecordBatch]:
    return [batch for part in rows.to_batches() for batch in buckets.explode(part, "v")]


def similar(
    radius: Annotated[list[float] | None, typer.Option(help="The distance, repeatable.")] = None,
    rows: Annotated[int, typer.Option(min=2, help="Histograms.")] = 15_000,
    strategy: Annotated[list[str] | None, typer.Option(help="Of wm.join, repeatable.")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of the local driver.")] = 48,
    on_spark: Annotated[bool, typer.Option("--spark", help="Also on Spark, with two tasks.")] = False,
) -> None:
    """The similarity join against brute force: candidates, pairs, recall and time.

    Exits with 1 if fewer than nine of ten pairs are found. About 20 seconds for each radius and strategy.
    """
    table = Table("radius", "fullest", "candidates", "true pairs", "brute s", "join", "found", "recall", "s")
    worst = 1.0
    for trial in (Trial(r, rows, tasks=tasks) for r in radius or (0.01, 0.02, 0.05, 0.1)):
        known = know(trial)
        for label, found in _runs(trial, strategy or ["auto"], on_spark):
            recall = found.pairs / max(1, known.true_pairs)
            worst = min(worst, recall)
            table.add_row(
                f"{trial.radius:g}",
                f"{known.fullest:.1%}",
                f"{known.candidates:,}",
                f"{known.true_pairs:,}",
                f"{known.brute_force_s:.1f}",
                label,
                f"{found.pairs:,}",
                f"{recall:.1%}",
                f"{found.seconds:.2f}",
            )
    Console(highlight=False, width=120).print(table)
    if worst < RECALL:
        raise typer.Exit(1)


def _runs(trial: Trial, strategies: list[str], on_spark: bool) -> Iterator[tuple[str, Found]]:
    for strategy in strategies:
        chosen = replace(trial, strategy=strategy)
        yield f"{strategy}, {trial.tasks} tasks", join_locally(chosen)
    if on_spark:
        from pyspark.sql import SparkSession

        # Spark's workers shall be this Python, whatever `python3` is on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        quiet = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        spark = quiet.master("local[2]").getOrCreate()
        for strategy in strategies:
            yield f"{strategy}, Spark", join_on_spark(replace(trial, strategy=strategy, tasks=2), spark)
