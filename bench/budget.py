"""`python -m bench memory`: a join of three inputs whose state is four times its budget of memory. No Spark.

The paper's stream (Liu, Rundensteiner 2005) with join ratios 4, 2 and 1, a third of the partition groups each.

policy    results of the normal run, against the join without a budget and against pushing the groups with most output.
          Counted, under a virtual clock: the same on every machine
limited   time of the normal run in a process whose state may stay in memory up to the budget only (residency.py)
remote    bytes fetched from an S3 server on loopback, with a cache as large as the budget

What a join without `memory=` takes since there is such an argument, `python -m bench versions` measures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench.budget_run import Measured, Run
from bench.report import Finding, markdown_table, replace_section
from papers.state.cases import FULL, HIGH, LOW, QUICK, RANDOM, Size, mixed_ratios
from papers.state.run import ROW_BYTES, UNLIMITED_ROWS, Case, CaseRun, run_case
from tests.s3 import environment, make_bucket, s3_process

PARTS = ("policy", "limited", "remote")
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
# The budget, as a share of the state at the end.
BUDGET = 0.25
LEAST_RESULTS, LEAST_GAIN, MOST_TIME, MOST_FETCHED = 0.5, 5.0, 0.5, 1 / 3
PAIRS = 3
# Of a stored row besides its payload: its join value, and the place of the payload in its column.
_ROW_BYTES = 12

Say = Callable[[str], None]


def memory(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A fifth of the rows: proves nothing.")] = False,
    pairs: Annotated[int, typer.Option(min=1, help="Runs of each join in a limited process.")] = PAIRS,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """A join whose state is four times its budget: results in time, time in a limited process, bytes fetched. Minutes.

    Exits with 1 if a demand is not met.
    """
    if unknown := set(only or ()) - set(PARTS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    parts = set(only or PARTS)
    findings: list[Finding] = []
    lines: list[tuple[str, ...]] = []
    for name, measure in (("policy", _policy), ("limited", _limited), ("remote", _remote)):
        if name in parts:
            more, rows = measure(quick, pairs, lambda text: console.print(text))
            findings, lines = [*findings, *more], [*lines, *rows]
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{one.verdict}[/]")
    console.print(table)
    if date is not None and not quick and parts == set(PARTS):
        DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), "memory", section(findings, lines, date)))
    if not all(one.met for one in findings):
        raise typer.Exit(1)


def section(findings: list[Finding], lines: list[tuple[str, ...]], date: str) -> str:
    demands = markdown_table(
        ("demand", "target", "measured", "verdict"),
        [(one.demand, one.target, one.measured, one.verdict) for one in findings],
    )
    runs = markdown_table(
        ("part", "join", "results", "of all", "s", "CPU s", "read from disk", "fetched"), lines
    )
    return (
        f"Measured {date}, {os.cpu_count()} cores, no Spark.\n\n{demands}\n\nMedians of the runs:\n\n{runs}\n"
    )


def _policy(quick: bool, pairs: int, say: Say) -> tuple[list[Finding], list[tuple[str, ...]]]:
    """Counts of the paper's stream over 50 minutes, under a virtual clock."""
    size = QUICK if quick else FULL
    unlimited = _run_case(mixed_ratios(None), size)
    memory_rows = round(BUDGET * float(unlimited.active_bytes[-1].sum()) / ROW_BYTES)
    runs: dict[str, CaseRun] = {"no budget": unlimited}
    for policy in (LOW, HIGH, RANDOM):
        runs[str(policy)] = _run_case(mixed_ratios(policy), size, memory_rows)
    low, high = runs[str(LOW)], runs[str(HIGH)]
    gain = low.total / max(1, high.total)
    say(f"policy: {', '.join(f'{name} {run.total:,}' for name, run in runs.items())} of {low.full:,} results")
    findings = [
        Finding(
            "results in the normal run",
            f">= {LEAST_RESULTS:.0%} of all",
            f"{low.share:.1%} ({low.total:,} of {low.full:,})",
            low.share >= LEAST_RESULTS,
        ),
        Finding(
            "against high-output",
            f">= {LEAST_GAIN:g}x its results",
            f"{gain:.1f}x ({low.total:,} vs {high.total:,})",
            gain >= LEAST_GAIN,
        ),
    ]
    return findings, [
        ("policy", name, f"{run.total:,}", f"{run.share:.1%}", "", f"{run.seconds.sum():.1f}", "", "")
        for name, run in runs.items()
    ]


class _Quiet:
    def step(self, text: str) -> None: ...

    def batch(self, done: int, of: int) -> None: ...


def _run_case(case: Case, size: Size, memory_rows: int = UNLIMITED_ROWS) -> CaseRun:
    with tempfile.TemporaryDirectory(prefix="watersmeet-memory-") as scratch:
        return run_case(
            replace(size.sized(case), memory_rows=memory_rows), Path(scratch) / "state", _Quiet(), Event()
        )


def _limited(quick: bool, pairs: int, say: Say) -> tuple[list[Finding], list[tuple[str, ...]]]:
    """Pairs of runs, each in a process of its own, in turned order."""
    rows, payload = (100_000 if quick else 500_000), 400
    budget = _quarter(rows, payload)
    found: dict[str, list[Measured]] = {"no budget": [], str(LOW): []}
    for number in range(pairs):
        names = list(found) if number % 2 == 0 else list(found)[::-1]
        for name in names:
            with tempfile.TemporaryDirectory(prefix="watersmeet-memory-") as scratch:
                memory_bytes = None if name == "no budget" else budget
                run = Run(f"{scratch}/state", rows, 25, payload, memory_bytes, limit_bytes=budget)
                found[name].append(_in_a_process(run, {}))
                say(f"limited: {name}: {found[name][-1]}")
    ratio = statistics.median(
        mine.seconds / theirs.seconds
        for mine, theirs in zip(found[str(LOW)], found["no budget"], strict=True)
    )
    finding = Finding(
        "time in a process limited to the budget",
        f"<= {MOST_TIME:g}x that without a budget",
        f"{ratio:.2f}x ({_median(found[str(LOW)], 'seconds'):.1f} s vs {_median(found['no budget'], 'seconds'):.1f} s)",
        ratio <= MOST_TIME,
    )
    return [finding], [_line("limited", name, runs) for name, runs in found.items()]


def _remote(quick: bool, pairs: int, say: Say) -> tuple[list[Finding], list[tuple[str, ...]]]:
    rows, payload = (20_000 if quick else 100_000), 100
    budget = _quarter(rows, payload)
    found: dict[str, list[Measured]] = {}
    with s3_process() as endpoint, tempfile.TemporaryDirectory(prefix="watersmeet-memory-") as scratch:
        for number, (name, memory_bytes) in enumerate((("no budget", None), (str(LOW), budget))):
            state, cache = make_bucket(f"memory-{number}", endpoint), f"{scratch}/{number}"
            run = Run(state, rows, 20, payload, memory_bytes, cache=cache, cache_bytes=budget)
            found[name] = [_in_a_process(run, environment(endpoint))]
            say(f"remote: {name}: {found[name][0]}")
    mine, theirs = found[str(LOW)][0].fetched_bytes, found["no budget"][0].fetched_bytes
    finding = Finding(
        "bytes fetched with a cache of the budget",
        f"<= {MOST_FETCHED:.0%} of those without a budget",
        f"{mine / max(1, theirs):.0%} ({mine / 1e6:,.0f} MB vs {theirs / 1e6:,.0f} MB)",
        mine <= MOST_FETCHED * theirs,
    )
    return [finding], [_line("remote", name, runs) for name, runs in found.items()]


def _quarter(rows: int, payload: int) -> int:
    return int(BUDGET * 3 * rows * (payload + _ROW_BYTES))


def _in_a_process(run: Run, variables: Mapping[str, str]) -> Measured:
    done = subprocess.run(
        [sys.executable, "-m", "bench.budget_run", json.dumps(asdict(run))],
        capture_output=True,
        text=True,
        env=os.environ | dict(variables),
        check=False,
    )
    if done.returncode:
        raise typer.BadParameter(f"a run failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Measured(**found)


def _median(runs: list[Measured], what: str) -> float:
    return statistics.median(getattr(run, what) for run in runs)


def _line(part: str, name: str, runs: list[Measured]) -> tuple[str, ...]:
    one = runs[0]
    return (
        part,
        name,
        f"{one.results:,}",
        f"{one.results / one.expected:.1%}",
        f"{_median(runs, 'seconds'):.1f}",
        f"{_median(runs, 'cpu_s'):.1f}",
        f"{_median(runs, 'read_bytes') / 1e6:,.0f} MB",
        f"{_median(runs, 'fetched_bytes') / 1e6:,.0f} MB" if part == "remote" else "",
    )
