"""Run ONE competitor on ONE workload in this process and write what was measured as JSON.

`python -m bench.run --competitor floor --workload small --out x.json`. The harness starts one such
process per run, so that no competitor inherits another's heap, compiled code or Python workers.

Why the timing is fair. All competitors get the same files in the same micro-batches, the same
`availableNow` trigger, session settings, heap, number of shuffle partitions and the `noop` sink,
which takes every row and keeps none. A batch's time is Spark's own `triggerExecution`: listing,
planning, both logs, the work and the commit, everything between two batches' starts. Everybody's
stream is run twice in one JVM and timed the second time, see `measure`. Verification is a separate,
untimed run (`--verify`) through a Parquet sink, so its cost falls on nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from bench.data import cache_dir, input_dir, stream_file
from bench.graphs import GraphWorkload
from bench.memory import Sampler
from bench.nexmark import EventWorkload
from bench.pages import pages_needed
from bench.peers import COMPETITORS, JOIN, STATE_PACKAGE, Competitor, Inputs, batch_join
from bench.stored import rows_by_batch, stored_by
from bench.warm import task_ms
from bench.workloads import CORES, AnyWorkload, by_name

POLL_SECONDS = 1.0
JVM_EXIT_SECONDS = 10
GB = 1 << 30
# Beside the heap: metaspace, RocksDB, Arrow's direct memory, Python workers.
BESIDE_HEAP_GB = 2

# The same for everybody, beside the settings of `wm.configure`.
SETTINGS = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:-UsePerfData",
}


def start_session(
    competitor: Competitor, workload: AnyWorkload, scratch: Path, extra: dict[str, str], *, configured: bool
) -> SparkSession:
    """A session with everybody's settings, then the competitor's own, then those of `wm.configure` if `configured`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName(f"bench {competitor.name} {workload.name}")
        .config("spark.driver.memory", f"{workload.heap_gb}g")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    )
    for key, value in (SETTINGS | extra | competitor.settings).items():
        builder = builder.config(key, value)
    return (wm.configure(builder) if configured else builder).getOrCreate()


def stop_session() -> None:
    """Stop Spark and see its JVM end: after a RocksDB run it outlives this process otherwise.

    A JVM left behind would take memory and cores from the next run.
    """
    session, gateway = SparkSession.getActiveSession(), SparkContext._gateway
    if session is not None:
        session.stop()
    if gateway is None:
        return
    jvm = gateway.proc
    gateway.shutdown()
    jvm.stdin.close()
    try:
        jvm.wait(JVM_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def await_query(query: StreamingQuery, batches: int, before: int = 0) -> None:
    """Wait for the end and tell the harness, on standard output, how far the run is."""
    while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
        last = query.lastProgress
        at = before + (last.batchId + 1 if last else 0)
        print(json.dumps({"batch": at, "of": before + batches}), flush=True)


def measure(given: Inputs[Any], competitor: Competitor, scratch: Path, *, warm: bool) -> dict:
    """Run the stream into `noop` and return per-batch facts; if `warm`, those of a second time in the same JVM.

    HotSpot compiles Spark's code for minutes: on two cores it takes up to a third of the CPU of a run's first
    twenty batches, from everybody, and most from those whose batches are short. A query that runs for days has
    that behind it. What the first time took is kept beside.
    """
    if not warm:
        return _run_stream(given, competitor, scratch)
    first = _run_stream(replace(given, state=scratch / "first" / "state"), competitor, scratch / "first")
    forget_state()
    shutil.rmtree(scratch / "first")
    second = _run_stream(given, competitor, scratch, before=given.workload.batches)
    return warm_figures(first, second)


def warm_figures(first: dict, second: dict) -> dict:
    """What counts of two times in one JVM.

    The heap that the first time asked for is seldom given back: the second would look as large as both.
    """
    usage = second["usage"] | {
        "jvm_rss_bytes": first["usage"]["jvm_rss_bytes"],
        "foreign_cpu_share": max(one["usage"]["foreign_cpu_share"] for one in (first, second)),
    }
    return second | {"usage": usage, "prepare_s": first["prepare_s"], "cold": first["batches"]}


def forget_state() -> None:
    """Spark keeps the ended query's state on the heap for a minute: the next one must not pay for it."""
    jvm = SparkContext._jvm
    assert jvm is not None
    getattr(jvm, f"{STATE_PACKAGE}.StateStore").stop()
    jvm.java.lang.System.gc()


def _run_stream(given: Inputs[Any], competitor: Competitor, scratch: Path, before: int = 0) -> dict:
    workload, started = given.workload, time.monotonic()
    rows = competitor.build(given)
    prepare_s = time.monotonic() - started
    writer = rows.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
    with Sampler() as sampler:
        started = time.monotonic()
        query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
        await_query(query, workload.batches, before)
        wall_s = time.monotonic() - started
    batches = [_facts(p) for p in map(json.loads, (q.json for q in query.recentProgress))]
    batches = [b | {"cpu_s": _cpu_s(b, sampler)} for b in batches if b["input_rows"]]
    if not competitor.counts_rows:
        arrived = rows_by_batch(given.state / JOIN)
        batches = [b | {"input_rows": rows} for b, rows in zip(batches, arrived, strict=True)]
    _expect_all_rows(batches, given, competitor)
    state_bytes = sum(f.stat().st_size for f in scratch.rglob("*") if f.is_file())
    return {
        "prepare_s": prepare_s,
        "wall_s": wall_s,
        "batches": batches,
        "disk_bytes": state_bytes,
        "usage": sampler.as_dict(),
        "needed": pages_needed(given.state / JOIN),
        "stored": stored_by(given.state / JOIN),
        "task_ms": task_ms(given.state / JOIN),
    }


def _facts(progress: dict[str, Any]) -> dict[str, Any]:
    return {
        "batch": progress["batchId"],
        "input_rows": progress["numInputRows"],
        "seconds": progress["durationMs"].get("triggerExecution", 0) / 1000,
        "duration_ms": progress["durationMs"],
        "started": progress["timestamp"],
        "state_bytes": sum(op["memoryUsedBytes"] for op in progress["stateOperators"]),
    }


def _cpu_s(batch: dict[str, Any], sampler: Sampler) -> float:
    """CPU of one batch: unlike its time, hardly changed by what others do on the machine."""
    start = datetime.fromisoformat(batch["started"].replace("Z", "+00:00")).timestamp()
    return sampler.cpu_between(start, start + batch["seconds"])


def _expect_all_rows(batches: list[dict[str, Any]], given: Inputs[Any], competitor: Competitor) -> None:
    """A run that batched the input otherwise than planned must not be compared with others."""
    workload, got = given.workload, [b["input_rows"] for b in batches]
    want: list[int]
    if workload.filters and not competitor.counts_rows:
        # Manifests have the rows that the filters left.
        want = rows_after_filters(workload, given.files)
    elif isinstance(workload, GraphWorkload | EventWorkload):
        want = workload.new_rows
    else:
        want = [len(workload.streams) * workload.batch_rows] * workload.batches
    if got != want:
        raise RuntimeError(f"{workload.name}: batches of {got} rows instead of {want}")


def rows_after_filters(workload: AnyWorkload, files: Path) -> list[int]:
    """For each batch the rows that the filters of its inputs leave."""
    import duckdb

    def count(name: str, batch: int) -> int:
        rows = f"FROM '{stream_file(files, name, batch)}' WHERE {workload.filters.get(name, 'true')}"
        return int(duckdb.execute(f"SELECT count(*) {rows}").fetchall()[0][0])

    return [sum(count(name, batch) for name in workload.streams) for batch in range(workload.batches)]


def verify(given: Inputs[Any], competitor: Competitor, scratch: Path) -> dict:
    """Write the stream's results to Parquet and compare their fingerprint with the batch join's."""
    results, select = scratch / "results", given.workload.select
    writer = competitor.build(given).writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
    await_query(writer.start(str(results)), given.workload.batches)
    # Read through the sink's own log: only what the query committed counts.
    got = fingerprint(given.spark.read.parquet(str(results)), select)
    want = fingerprint(batch_join(given), select)
    return {"got": got, "want": want, "equal": got == want}


def fingerprint(rows: DataFrame, select: Sequence[str]) -> dict[str, str]:
    """Count and two order-independent checksums: equal for equal multisets.

    Sums do not cancel duplicates as an exclusive or would; two hash functions make an accidental
    match of different multisets implausible.
    """
    columns = [c.split(" AS ")[-1].split(".")[-1] for c in select]
    wide = "decimal(38,0)"
    sums = [F.sum(h(*columns).cast(wide)).alias(n) for n, h in (("xx", F.xxhash64), ("mm", F.hash))]
    found = rows.agg(F.count(F.lit(1)).alias("rows"), *sums).first()
    assert found is not None
    return {name: str(value) for name, value in found.asDict().items()}


def versions(spark: SparkSession) -> dict[str, str]:
    """What a reader needs to repeat the run."""
    import platform

    import numpy
    import pyarrow

    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").first()
    assert java is not None
    return {
        "spark": spark.version,
        "java": java[0],
        "python": platform.python_version(),
        "pyarrow": pyarrow.__version__,
        "numpy": numpy.__version__,
        "cores": f"{CORES} of {psutil.cpu_count()}",
        "kernel": platform.release(),
    }


def require_memory(workload: AnyWorkload) -> None:
    """Without swap a heap that does not fit kills a neighbour: refuse instead."""
    need_gb = workload.heap_gb + BESIDE_HEAP_GB
    free_gb = psutil.virtual_memory().available / GB
    if free_gb < need_gb:
        sys.exit(f"{workload.name} needs {need_gb} GB, {free_gb:.1f} GB are available: wait, or use --quick")


def main(
    competitor: Annotated[str, typer.Option(help=f"One of: {', '.join(COMPETITORS)}.")],
    workload: Annotated[str, typer.Option(help="A name of bench/workloads.py, or NAME-quick.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of Spark, repeatable.")] = None,
    check: Annotated[bool, typer.Option("--verify", help="Compare results; no timing.")] = False,
    warm: Annotated[
        bool, typer.Option(help="Run the stream twice in one JVM and time the second time.")
    ] = True,
    configured: Annotated[
        bool, typer.Option("--configured/--plain", help="With the settings of `wm.configure`, or without.")
    ] = True,
) -> None:
    """Run one competitor on one workload and write the measurements as JSON."""
    chosen, work = COMPETITORS[competitor], by_name(workload)
    extra = dict(pair.split("=", 1) for pair in conf or ())
    require_memory(work)
    files = input_dir(work)
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{competitor}-{workload}-", dir=cache_dir() / "scratch"))
    try:
        spark = start_session(chosen, work, scratch, extra, configured=configured)
        given: Inputs[Any] = Inputs(spark, work, files, scratch / "state")
        found = verify(given, chosen, scratch) if check else measure(given, chosen, scratch, warm=warm)
        head = {
            "competitor": competitor,
            "workload": workload,
            "conf": extra,
            "configured": configured,
            "versions": versions(spark),
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(head | found, indent=1))
    finally:
        stop_session()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
