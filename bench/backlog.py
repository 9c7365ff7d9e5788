"""A backlog in one go: all files of a workload in one batch, by a join with `wm.files`, or read and sorted by DuckDB.

DuckDB has the same files, two threads and a database on the same disk. It sorts each input by its key and keeps it as a
table, and counts the results of the join. That is less than a join does, and a bound for what reading and sorting take.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

from bench.data import input_dir, schema_of
from bench.measured import write_measured
from bench.memory import Sampler, busy_share
from bench.peers import COMPETITORS, JOIN, Inputs, condition_of
from bench.report import DUCKDB, FILES
from bench.run import require_memory, start_session, stop_session, versions
from bench.stored import stored_by
from bench.workloads import CORES, AnyWorkload, by_name


def fill(workload: AnyWorkload, files: Path, scratch: Path) -> dict[str, Any]:
    """One batch over all files, into a sink that drops the results, in a new session."""
    import watersmeet as wm

    competitor = COMPETITORS[FILES]
    spark = start_session(competitor, workload, scratch, {}, configured=True)
    try:
        given: Inputs[Any] = Inputs(spark, workload, files, scratch / "state")
        inputs = {
            name: wm.files(given.path(name), schema=schema_of(workload, name)) for name in workload.inputs
        }
        joined = wm.join(
            inputs,
            on=workload.on,
            select=list(workload.select),
            state=str(given.state),
            name=JOIN,
            tasks=CORES,
        )
        writer = joined.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
        with Sampler() as sampler:
            started_s = time.monotonic()
            query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
            query.awaitTermination()
            seconds = time.monotonic() - started_s
        took = [json.loads(one.json)["durationMs"] for one in query.recentProgress]
        return {
            "filled": {
                "seconds": seconds,
                "batches": len([one for one in took if one.get("addBatch")]),
                "duration_ms": took,
                "stored": stored_by(given.state / JOIN),
                "usage": sampler.as_dict(),
            },
            "versions": versions(spark),
        }
    finally:
        stop_session()


def sort(workload: AnyWorkload, files: Path, scratch: Path) -> dict[str, Any]:
    import duckdb

    seconds = {}
    before, own = psutil.cpu_times(), psutil.Process().cpu_times()
    with duckdb.connect(str(scratch / "sorted.duckdb")) as engine:
        engine.execute(f"SET threads = {CORES}")
        engine.execute("SET memory_limit = '4GB'")
        engine.execute(f"SET temp_directory = '{scratch / 'spill'}'")
        started_s = time.monotonic()
        for name in workload.inputs:
            engine.execute(f"CREATE TABLE {name} AS FROM '{files / name}/*.parquet' ORDER BY k")
        engine.execute("CHECKPOINT")
        seconds["sorted"] = time.monotonic() - started_s
        names = ", ".join(workload.inputs)
        (counted,) = engine.execute(f"SELECT count(*) FROM {names} WHERE {condition_of(workload)}").fetchall()
        seconds["joined"] = time.monotonic() - started_s
    busy, capacity = busy_share(before, psutil.cpu_times())
    after = psutil.Process().cpu_times()
    own_s = after.user + after.system - own.user - own.system
    return {
        "filled": {
            "seconds": seconds["sorted"],
            "with_join_s": seconds["joined"],
            "results": counted[0],
            "usage": {"foreign_cpu_share": max(0.0, busy - own_s) / capacity},
        }
    }


def main(
    competitor: Annotated[str, typer.Option(help=f"{FILES} or {DUCKDB}.")],
    workload: Annotated[str, typer.Option(help="A name of bench/workloads.py, NAME-quick or NAME@SIZE.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
) -> None:
    """Take in a backlog and write what was measured as JSON."""
    work = by_name(workload)
    require_memory(work)
    files = input_dir(work)
    write_measured(
        out,
        competitor,
        workload,
        lambda scratch: (sort if competitor == DUCKDB else fill)(work, files, scratch),
    )


if __name__ == "__main__":
    typer.run(main)
