"""The hops of a hub's rows, in two ways: `python -m bench.hub_hops`.

*In one task*: a task follows its fresh rows through all hops by reading the log. It is the walk of a hub on the local
driver: the answers of a batch, without ingest and planning.

*A stage per hop*: before each hop the bindings go to the task that has the rows they look for, by a shuffle of Spark. A
binding is sent once for each look-up, which several steps may share: a group, the order key of the value that is
sought, and the number of each row that is bound, eight bytes each. Only the sending is measured, in a job with as many
shuffles as hops, of as many rows of that width. Nothing is looked up, so it is what stages cost alone. With Python, the
rows of each stage pass through a task that gives them back: where a hop would read the index.

CPU time is that of all tasks, and of the JVM and Python's workers. The machine may be busy, so CPU time is what counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from bench.hub_load import SEED, Load, domain_for, shape_queries, template_queries
from bench.hub_local import TASKS, MeasuredHub
from bench.many_state import scratch
from watersmeet.hubs.bindings import Bindings
from watersmeet.hubs.walk import Walk

ROUNDS, WARM_UP, HISTORY, WORD_BYTES = 5, 3, 6, 8
# A job of so few rows shows what its stages cost by themselves.
FEW = 100


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    load: Load
    queries: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Spent:
    """Medians of a batch: seconds that it takes, and CPU seconds.

    Without Spark the tasks run one after the other, and a batch takes the CPU time of the slower one.
    """

    wall_s: float
    cpu_s: float


def cases(batch_rows: int) -> list[Case]:
    """As in `python -m bench hub`: about one answer a row, 100 templates of 100 queries each, or 1,000 shapes."""
    mean = round(batch_rows * (HISTORY + ROUNDS / 2))

    def load(chains: float, *, compared: bool) -> Load:
        return Load(domain_for(batch_rows, chains, batch_rows, mean), batch_rows, compared)

    return [
        Case("10,000 queries of 100 templates", load(2.5, compared=True), template_queries(100)),
        Case("1,000 queries of random shapes", load(1_000, compared=False), shape_queries(1_000)),
    ]


def in_one_task(case: Case, folder: Path) -> tuple[Spent, list[int]]:
    """What the answers of a batch take, and the bindings of a batch that go into each hop."""
    hub = MeasuredHub(folder, case.load, case.queries)
    hub.history(HISTORY)
    hub.short()
    counted: Counter[int] = Counter()
    with mock.patch.object(Walk, "follow", _counting(counted)):
        hub.timed()
    batches = [hub.timed() for _ in range(ROUNDS)]
    wall_s = statistics.median(max(one.answer_s) for one in batches)
    cpu_s = statistics.median(sum(one.answer_s) for one in batches)
    return Spent(wall_s, cpu_s), [counted[depth] for depth in sorted(counted) if counted[depth]]


def _counting(counted: Counter[int]) -> Callable[[Walk, Bindings], Iterator[object]]:
    """`Walk.follow` that counts what bindings look up, by the rows that they have bound."""
    follow = Walk.follow

    def counting(self: Walk, bound: Bindings) -> Iterator[object]:
        counted[len(bound.rows)] += int(self.forest.probes.counts(bound.group).sum())
        yield from follow(self, bound)

    return counting


def shuffled(spark: SparkSession, hops: list[int], *, python: bool) -> Spent:
    """What a job with a shuffle before each hop takes."""
    frame = _job(spark, hops, python=python)
    found = []
    for number in range(WARM_UP + ROUNDS):
        began_s, cpu_s = time.perf_counter(), _cpu_s()
        frame.write.format("noop").mode("overwrite").save()
        if number >= WARM_UP:
            found.append(Spent(time.perf_counter() - began_s, _cpu_s() - cpu_s))
    return Spent(
        statistics.median(one.wall_s for one in found), statistics.median(one.cpu_s for one in found)
    )


def _job(spark: SparkSession, hops: list[int], *, python: bool) -> DataFrame:
    """Rows that become as many as each hop has; row i of n becomes rows i / n to (i + 1) / n of the next."""
    frame = spark.range(hops[0], numPartitions=TASKS).withColumnRenamed("id", "row1")
    for depth, rows in enumerate(hops, 1):
        if depth > 1:
            low, high = (f"(row{depth - 1} + {add}L) * {rows}L div {hops[depth - 2]}L" for add in (0, 1))
            none = "cast(array() AS array<bigint>)"
            more = F.expr(f"CASE WHEN {high} > {low} THEN sequence({low}, {high} - 1L) ELSE {none} END")
            frame = frame.withColumn(f"row{depth}", F.explode(more))
        bound = [f"row{number}" for number in range(1, depth + 1)]
        sent = frame.select(
            *bound, F.xxhash64(f"row{depth}").alias("sought"), (F.col("row1") % 1000).alias("group")
        )
        frame = sent.repartition(TASKS, "sought")
        if python:
            frame = frame.mapInArrow(_as_they_are, frame.schema)
    return frame


def _as_they_are(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows


def _cpu_s() -> float:
    """CPU seconds of this process and all below it: the JVM, and the workers that it keeps."""
    whole = 0.0
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        whole += times.user + times.system + times.children_user + times.children_system
    return whole


def _session() -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(TASKS),
        # A micro-batch of a stream has none.
        "spark.sql.adaptive.enabled": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{TASKS}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hub_hops", description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch (%(default)s)")
    options = parser.parse_args()
    measured = {}
    for case in cases(options.rows):
        with scratch() as folder:
            measured[case.name] = in_one_task(case, Path(folder))
    spark = _session()
    table = Table(
        "case", "way", "bindings by hop", "MB sent", "time", "CPU", title=f"seed {SEED}, {TASKS} tasks"
    )
    for name, (spent, hops) in measured.items():
        _add(table, name, "one task through all hops", hops, spent, sent=False)
        _add(table, "", "stage per hop, sending alone", hops, shuffled(spark, hops, python=False))
        _add(table, "", "the same through Python", hops, shuffled(spark, hops, python=True))
    few = [FEW] * len(hops)
    for python, way in ((False, "stage per hop, sending alone"), (True, "the same through Python")):
        _add(table, "" if python else "hardly any row", way, few, shuffled(spark, few, python=python))
    spark.stop()
    Console(width=140).print(table)
    print(f"load average {os.getloadavg()[0]:.1f}")


def _add(table: Table, name: str, way: str, hops: list[int], spent: Spent, *, sent: bool = True) -> None:
    size = sum(rows * WORD_BYTES * (depth + 2) for depth, rows in enumerate(hops, 1)) / 1e6 if sent else 0
    shown = ", ".join(f"{rows:,}" for rows in hops)
    table.add_row(name, way, shown, f"{size:.1f}", f"{spent.wall_s:.2f} s", f"{spent.cpu_s:.2f} s")


if __name__ == "__main__":
    main()
