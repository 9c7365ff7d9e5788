"""`python -m bench cluster`: a cluster of 64 executors, simulated over the real planner and the real log.

What each task reads, fetches and writes is counted (`simulate.py`, `counted.py`), its CPU time is measured, and storage
and Spark are parameters (`costs.py`). `--date` writes the tables and the picture of docs/cluster.md. `--resume` keeps
what was simulated before: with other costs, only the arithmetic is done again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.cluster_page import (
    CLUSTERS,
    MB,
    SIZES,
    TIME_HEAD,
    USE_HEAD,
    Found,
    Model,
    Trial,
    answer,
    section,
    time_rows,
    trials,
    use_rows,
)
from bench.costs import FILE_SERVER, OBJECT_STORE, SEGMENTS
from bench.counted import Usage
from bench.data import cache_dir
from bench.report import replace_section
from bench.simulate import BATCHES, COUNTED, WORKLOADS, BatchUse, TaskUse, simulate

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "cluster.md"
PICTURE = "cluster-batch.svg"


def run_trial(trial: Trial, batches: int = BATCHES) -> list[BatchUse]:
    """The counted batches of a trial."""
    uses = simulate(WORKLOADS[trial.workload], trial.cluster, trial.rows, trial.scale, batches)
    return list(uses)[-COUNTED:]


def run_trials(wanted: Sequence[Trial], jobs: int, home: Path, console: Console) -> None:
    """Each in a process of its own. The largest clusters take longest and begin."""
    ordered = sorted(wanted, key=lambda trial: (-trial.cluster.tasks, -trial.rows))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        whole = progress.add_task("simulating", total=len(ordered))
        running = {pool.submit(run_trial, trial): trial for trial in ordered}
        for done in as_completed(running):
            save(home / f"{running[done].name}.json", done.result())
            progress.update(whole, advance=1, description=running[done].text)


def save(path: Path, uses: Sequence[BatchUse]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # `asdict` would take a counter for a list of pairs.
    path.write_text(json.dumps(uses, default=vars))


def load(path: Path) -> list[BatchUse]:
    def usages(found: dict[str, Any]) -> dict[str, Usage]:
        return {
            phase: Usage(**(usage | {"calls": Counter(usage["calls"])})) for phase, usage in found.items()
        }

    def task(found: dict[str, Any]) -> TaskUse:
        return TaskUse(
            found["executor"],
            usages(found["phases"]),
            found["rows"],
            usages(found["to_agree"]),
            found["waited_s"],
        )

    return [
        BatchUse(**(use | {stage: [task(one) for one in use[stage]] for stage in ("ingest", "join")}))
        for use in json.loads(path.read_text())
    ]


def cluster(
    only: Annotated[list[str] | None, typer.Option(help="Only this join, repeatable.")] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Only batches of this many rows, repeatable.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases that are simulated at the same time.")] = 2,
    resume: Annotated[bool, typer.Option(help="Keep what was simulated before.")] = False,
    request_ms: Annotated[float, typer.Option(help="A request to the object store.")] = 20.0,
    stream_mb: Annotated[float, typer.Option(help="MB/s of a stream from the object store.")] = 100.0,
    trip_ms: Annotated[float, typer.Option(help="A round trip to the file server.")] = 0.5,
    server_mb: Annotated[float, typer.Option(help="MB/s of the file server, for all executors.")] = 5_000.0,
    date: Annotated[str | None, typer.Option(help="Write docs/cluster.md, dated so.")] = None,
) -> None:
    """A cluster of 64 executors: what each task reads, fetches and writes, and the time of a batch by phase.

    Simulated over the real planner and the real log. About a quarter of an hour.
    """
    wanted = [t for t in trials() if (not only or t.workload in only) and (not rows or t.rows in rows)]
    if not wanted:
        raise typer.BadParameter(f"nothing to run: joins are {', '.join(WORKLOADS)}, sizes {[*SIZES]}")
    # Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 170)
    home = cache_dir() / "results" / "cluster"
    run_trials(
        [t for t in wanted if not resume or not (home / f"{t.name}.json").exists()], jobs, home, console
    )
    found = {
        trial: load(home / f"{trial.name}.json")
        for trial in trials()
        if (home / f"{trial.name}.json").exists()
    }
    storages = (
        replace(FILE_SERVER, request_s=trip_ms / 1000, total_bytes_s=server_mb * MB),
        replace(OBJECT_STORE, request_s=request_ms / 1000, stream_bytes_s=stream_mb * MB),
    )
    model = Model(storages)
    show(found, model, console)
    if date is not None:
        write(found, model, date, console)


def show(found: Found, model: Model, console: Console) -> None:
    for head, lines in ((TIME_HEAD, time_rows(found, model)), (USE_HEAD, use_rows(found))):
        table = Table(*head)
        for line in lines:
            table.add_row(*(cell.strip("*") for cell in line))
        console.print(table)
    console.print(answer(found, model).replace("**", ""))


def write(found: Found, model: Model, date: str, console: Console) -> None:
    from bench.plot import draw_stacks

    bars = {
        storage.name: {
            trial.text: model.times(found, trial, storage) for trial in found if trial.cluster == CLUSTERS[0]
        }
        for storage in model.storages
    }
    draw_stacks(bars, SEGMENTS, DOCUMENT.parent / "img" / PICTURE)
    text = replace_section(DOCUMENT.read_text(), "answer", answer(found, model))
    text = replace_section(text, "cluster", section(found, model, date, f"img/{PICTURE}"))
    DOCUMENT.write_text(text)
    console.print(f"wrote docs/{DOCUMENT.name} and docs/img/{PICTURE}")
