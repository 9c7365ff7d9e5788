"""`python -m bench timeline`: a warm batch task by task, and one picture of it.

All competitors run in turn in one session, so that none has a JVM of its own to warm: the first rounds are not counted.
They also share Python workers. One that has run a task of ours keeps its modules out of garbage collections
(`watersmeet/spark/worker.py`), which helps the floor as much as us.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

import watersmeet as wm
from bench.data import cache_dir, input_dir
from bench.peers import COMPETITORS, Inputs
from bench.report import replace_section
from bench.run import SETTINGS, forget_state, stop_session, versions
from bench.timeline_daemon import FOLDER
from bench.timeline_facts import read_batches
from bench.timeline_page import DATAFRAMES, FILES, FLOOR, Measured, demands, draw, section
from bench.workloads import CORES, FIRST_COUNTED, by_name

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, IMAGES = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "img"
WORKLOADS = ("small", "uniform-2m")
ENTRANTS = (FLOOR, DATAFRAMES, FILES)
# Rounds that warm the JVM, and rounds that count.
WARM_UP, ROUNDS = 2, 3
WAIT_S = 600


@contextmanager
def session(scratch: Path, heap_gb: int, extra: Mapping[str, str], *, traced: bool) -> Iterator[SparkSession]:
    """A session with the advised settings; with notes of tasks if it is `traced`."""
    settings = SETTINGS | {
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    if traced:
        for name in ("events", "notes"):
            (scratch / name).mkdir()
        os.environ[FOLDER] = str(scratch / "notes")
        settings |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{scratch / 'events'}",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.python.daemon.module": "bench.timeline_daemon",
        }
    settings |= extra
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("bench timeline")
        .config("spark.driver.memory", f"{heap_gb}g")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        yield wm.configure(builder).getOrCreate()
    finally:
        stop_session()
        os.environ.pop(FOLDER, None)


def measure(
    workloads: Sequence[str],
    entrants: Sequence[str],
    scratch: Path,
    extra: Mapping[str, str],
    *,
    warm_up: int,
    rounds: int,
    traced: bool,
) -> tuple[list[Measured], dict[str, str]]:
    found = {(work, who): Measured(work, who) for work in workloads for who in entrants}
    progress: dict[tuple[str, str], list[list[dict[str, Any]]]] = {pair: [] for pair in found}
    heap_gb = max(by_name(workload).heap_gb for workload in workloads)
    with session(scratch, heap_gb, extra, traced=traced) as spark:
        about = versions(spark)
        for number in range(warm_up + rounds):
            # The order alternates: nobody always runs behind the same one.
            pairs = list(found) if number % 2 == 0 else list(found)[::-1]
            for workload, competitor in pairs:
                batches = _run_stream(spark, workload, competitor, scratch / "run")
                print(workload, competitor, round(_mean_ms(batches)), flush=True)
                if number >= warm_up:
                    found[workload, competitor].round_ms.append(_mean_ms(batches))
                    progress[workload, competitor].append(batches)
    if traced:
        (log,) = (scratch / "events").iterdir()
        notes = [line for file in (scratch / "notes").iterdir() for line in file.read_text().splitlines()]
        lines = log.read_text().splitlines()
        for pair, streams in progress.items():
            for batches in streams:
                found[pair].batches += read_batches(batches, lines, notes)
    return list(found.values()), about


def _mean_ms(batches: Sequence[dict[str, Any]]) -> float:
    return statistics.fmean(one["durationMs"]["triggerExecution"] for one in batches)


def _run_stream(spark: SparkSession, workload: str, competitor: str, scratch: Path) -> list[dict[str, Any]]:
    """Run the stream once from its beginning, and return Spark's progress of the batches that count."""
    work = by_name(workload)
    given: Inputs[Any] = Inputs(spark, work, input_dir(work), scratch / "state")
    chosen = COMPETITORS[competitor]
    for key, value in chosen.settings.items():
        spark.conf.set(key, value)
    writer = chosen.build(given).writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
    try:
        if not query.awaitTermination(WAIT_S):
            raise RuntimeError(f"{competitor} on {workload} takes longer than {WAIT_S} s")
        progress = [json.loads(one.json) for one in query.recentProgress]
    finally:
        query.stop()
        for key in chosen.settings:
            spark.conf.unset(key)
        forget_state()
        shutil.rmtree(scratch)
    # The last report can be of an idle trigger.
    return [one for one in progress if "addBatch" in one["durationMs"]][FIRST_COUNTED:]


def timeline(
    workload: Annotated[list[str] | None, typer.Option(help="Of bench/workloads.py, repeatable.")] = None,
    competitor: Annotated[list[str] | None, typer.Option(help="Of bench/peers.py, repeatable.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count.")] = ROUNDS,
    warm_up: Annotated[int, typer.Option(min=0, help="Rounds before them.")] = WARM_UP,
    traced: Annotated[bool, typer.Option(help="Note tasks; without, only batches are timed.")] = True,
    conf: Annotated[list[str] | None, typer.Option(help="KEY=VALUE of Spark, repeatable.")] = None,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the figures as JSON.")] = None,
) -> None:
    """A warm batch of 1,000 and of 200,000 rows, from its planning to its commit, task by task (five minutes)."""
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="timeline-", dir=cache_dir() / "scratch"))
    try:
        measured, about = measure(
            workload or WORKLOADS,
            competitor or ENTRANTS,
            scratch,
            dict(pair.split("=", 1) for pair in conf or ()),
            warm_up=warm_up,
            rounds=rounds,
            traced=traced,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if out is not None:
        out.write_text(json.dumps({"versions": about, "measured": [asdict(one) for one in measured]}))
    picture = IMAGES / "timeline.svg"
    if date is not None and traced:
        draw(measured, picture)
    link = str(picture.relative_to(DOCUMENT.parent)) if traced else None
    text = section(measured, about, date or "now", link)
    if date is not None:
        DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), "timeline", text))
    print(text)
    if any(one.met is False for one in demands(measured)):
        raise typer.Exit(1)
