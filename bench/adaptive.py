"""`python -m bench adaptive`: the adaptive grid against one that is told the sizes, on the paper's five joins.

One process and one session for all runs, after a run that is thrown away; the two operators take turns, in
turned order (A B, B A), so that a slow minute of the machine falls on both. Files, batches, trigger, sink and
settings are the same. Before it is timed, each join is run once more with its results counted, and the count
compared with one made by sorting (`Inputs.count_results`).

Rows read are counted from the manifests: for every batch and cell, what the plan makes the cell read of the
rows that arrived. History is held, not read again: its rows are the input-load factor.

The part `mappings` needs no Spark: what a task reads, searches and takes under three mappings (bench/mappings.py).
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench import mappings
from bench.data import cache_dir
from bench.mappings import MAPPINGS
from bench.memory import Sampler
from bench.report import DOCUMENT, NOISY_SHARE, Finding, replace_section
from papers.adaptive.operators import DYNAMIC, STATICOPT
from papers.adaptive.spark_run import Setting, SparkRun, run_on_spark
from papers.adaptive.trials import SKEWED, UNIFORM, Size, Trial, batch_ends
from papers.shared.arrival import write_streams
from papers.shared.queries import B_CI, FLUCT, QUERIES, Inputs, materialise
from papers.shared.timed import CORES, SETTINGS
from papers.shared.tpch import tables
from watersmeet.jobs.session import spark_session

OPERATORS = (DYNAMIC, STATICOPT)
# The demands: times of STATICOPT in time and in rows read; results a second of B_CI.
TIMES_OPT, RESULTS_PER_S = 1.1, 5_000_000
FLUCT_K = 4
# B_CI's results grow with the square of the scale: at 1 there are half a billion.
B_CI_SCALE_SHARE = 0.5

Runs = dict[str, list[dict[str, Any]]]


def adaptive(
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this join or part, repeatable: {', '.join((*QUERIES, MAPPINGS))}."),
    ] = None,
    scale: Annotated[float, typer.Option(help="TPC-H scale factor; 1 is 6M lineitems.")] = 1.0,
    batches: Annotated[int, typer.Option(min=1, help="Micro-batches of a run.")] = 20,
    cells: Annotated[int, typer.Option(min=1, help="Cells of the grid.")] = 16,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each operator, in turns.")] = 3,
    label: Annotated[str, typer.Option(help="Name of the results directory.")] = "adaptive",
    resume: Annotated[bool, typer.Option(help="Run nothing that the results have.")] = False,
    date: Annotated[
        str | None, typer.Option(help="Write the table of mappings into docs/benchmarks.md, dated so.")
    ] = None,
) -> None:
    """The adaptive grid (DYNAMIC) against the best fixed one (STATICOPT), five joins of the paper.

    Prints every demand with target, measured and verdict, and exits with 1 if a demand is not met. Earlier
    results of joins that are not run again are kept. A join takes about two minutes, the mappings six.
    """
    chosen = only or [*QUERIES, MAPPINGS]
    if unknown := set(chosen) - {*QUERIES, MAPPINGS}:
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    # Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    home = cache_dir() / "results" / label
    home.mkdir(parents=True, exist_ok=True)
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    if resume:
        chosen = [name for name in chosen if not (home / f"{name}.json").exists()]
    if MAPPINGS in chosen:
        parts = mappings.measure_all(console, mappings.BATCHES, min(1.0, scale), cache_dir() / "scratch")
        (home / f"{MAPPINGS}.json").write_text(json.dumps(parts, indent=1))
    if joins := [name for name in chosen if name != MAPPINGS]:
        with (
            tempfile.TemporaryDirectory(prefix="adaptive-", dir=cache_dir() / "scratch") as scratch,
            spark_session("bench adaptive", SETTINGS, Path(scratch) / "spark.log") as session,
        ):
            bench = _Bench(session.spark, Path(scratch), Setting(cells, CORES), console)
            for name in joins:
                factor = scale * B_CI_SCALE_SHARE if name == B_CI.name else scale
                found = bench.measure(name, factor, batches, repeat)
                (home / f"{name}.json").write_text(json.dumps(found, indent=1))
    if date:
        found = json.loads((home / f"{MAPPINGS}.json").read_text())
        DOCUMENT.write_text(
            replace_section(DOCUMENT.read_text(), MAPPINGS, mappings.section(found, date)), encoding="utf-8"
        )
    if not conclude(home, console):
        raise typer.Exit(1)


class _Bench:
    def __init__(self, spark: Any, scratch: Path, setting: Setting, console: Console):
        self._spark = spark
        self._scratch = scratch
        self._setting = setting
        self._console = console

    def measure(self, name: str, scale: float, batches: int, repeat: int) -> dict[str, Any]:
        query = QUERIES[name]
        trial = Trial(
            name,
            SKEWED if query.equality and query is not FLUCT else UNIFORM,
            DYNAMIC,
            self._setting.cells,
            FLUCT_K if query is FLUCT else 0,
        )
        inputs = materialise(tables(cache_dir() / "tpch", scale), query, trial.z)
        files = self._scratch / "files"
        shutil.rmtree(files, ignore_errors=True)
        write_streams(inputs, batch_ends(inputs, trial, Size(scale, batches, batches, (), rounds=1)), files)
        want = inputs.count_results()
        # This run also warms up: it starts the workers and compiles the code that the timed ones use.
        got = self._run(DYNAMIC, inputs, files, count=True)["results"]
        runs: Runs = {operator: [] for operator in OPERATORS}
        for turn in range(repeat):
            for operator in OPERATORS if turn % 2 == 0 else OPERATORS[::-1]:
                runs[operator].append(self._run(operator, inputs, files))
        return {
            "query": name,
            "scale": scale,
            "z": trial.z,
            "rows": inputs.rows,
            "cells": self._setting.cells,
            "tasks": self._setting.tasks,
            "want_results": want,
            "got_results": got,
            "runs": runs,
        }

    def _run(self, operator: str, inputs: Inputs, files: Path, *, count: bool = False) -> dict[str, Any]:
        with Sampler() as sampler:
            run = run_on_spark(
                self._spark, operator, inputs, files, self._setting, self._scratch / "run", count=count
            )
        found = _facts(run) | {"others_cpu": sampler.as_dict()["foreign_cpu_share"]}
        self._console.print(
            f"{inputs.query.name:6} {operator:9} {found['seconds']:6.2f} s"
            f"{' (results counted)' if count else ''}, others took {found['others_cpu']:.0%}"
        )
        return found


def _facts(run: SparkRun) -> dict[str, Any]:
    return {
        "seconds": run.total_s,
        "batch_seconds": run.seconds,
        "rows_read": run.rows_read,
        "held_rows": float(run.reads[-1].held.max()),
        "mapping": run.reads[-1].shape,
        "results": run.results,
    }


def conclude(home: Path, console: Console) -> bool:
    """Print all demands over the results so far; False if one is not met."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(home.glob("*.json"))}
    findings = [finding for name in QUERIES if name in found for finding in find(found[name])]
    if B_CI.name in found:
        findings.append(find_rate(found[B_CI.name]))
    if MAPPINGS in found:
        mappings.show(found[MAPPINGS], console)
        findings += mappings.find(found[MAPPINGS])
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{one.verdict}[/]")
    console.print(table)
    return all(one.met is not False for one in findings)


def find(result: dict[str, Any]) -> list[Finding]:
    """Results, time and rows read of one join."""
    name = result["query"]
    equal = result["got_results"] == result["want_results"]
    time, noise = {o: _median(result, o, "seconds") for o in OPERATORS}, _noise(result)
    read = {o: _median(result, o, "rows_read") for o in OPERATORS}
    slower, more = time[DYNAMIC] / time[STATICOPT], read[DYNAMIC] / read[STATICOPT]
    return [
        Finding(
            f"{name}: results",
            "as counted by sorting",
            f"{result['got_results']:,} of {result['want_results']:,}",
            equal,
        ),
        Finding(
            f"{name}: time, DYNAMIC / STATICOPT",
            f"at most {TIMES_OPT}",
            f"{slower:.3f} ({time[DYNAMIC]:.2f} s / {time[STATICOPT]:.2f} s{noise})",
            slower <= TIMES_OPT,
        ),
        Finding(
            f"{name}: rows read, DYNAMIC / STATICOPT",
            f"at most {TIMES_OPT}",
            f"{more:.3f} ({read[DYNAMIC]:,.0f} / {read[STATICOPT]:,.0f})",
            more <= TIMES_OPT,
        ),
    ]


def find_rate(result: dict[str, Any]) -> Finding:
    rate = result["want_results"] / _median(result, DYNAMIC, "seconds")
    return Finding(
        "B_CI: result rows a second, two cores",
        f"at least {RESULTS_PER_S:,}",
        f"{rate:,.0f} ({result['want_results']:,} rows{_noise(result)})",
        rate >= RESULTS_PER_S,
    )


def _median(result: dict[str, Any], operator: str, figure: str) -> float:
    return statistics.median(run[figure] for run in result["runs"][operator])


def _noise(result: dict[str, Any]) -> str:
    worst = max(run["others_cpu"] for runs in result["runs"].values() for run in runs)
    return f"; NOISY, others took up to {worst:.0%}" if worst > NOISY_SHARE else ""
