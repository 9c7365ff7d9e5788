"""`python -m bench many`: many tasks, many partitions, many runs, many batches. No Spark, a few minutes.

README.md says what is real and what is not. Each part prints every demand with its verdict.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.data import cache_dir
from bench.many_batches import one_row_batches
from bench.many_plans import PLANNED_ROWS, cube_plans
from bench.many_runs import cleaning, live_runs
from bench.many_shares import key_shares
from bench.many_tasks import ALPHAS, BATCHES, KEYS_FETCHED, ROWS, traffic, whole_plan
from bench.report import DOCUMENT, NO_TARGET, Finding, markdown_table, replace_section, without_results

PARTS = ("plan", "tasks", "runs", "cleaning", "batches", "shares")


def many(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything: proves nothing.")] = False,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """What a batch costs with 200 tasks, 10,000 runs or many batches before it; prints every demand with its verdict."""
    if unknown := set(only or ()) - set(PARTS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    home = cache_dir() / "results" / ("many-quick" if quick else "many")
    home.mkdir(parents=True, exist_ok=True)
    if date and (
        missing := [p for p in PARTS if p not in (only or PARTS) and not (home / f"{p}.json").exists()]
    ):
        raise typer.BadParameter(without_results(missing))
    findings: list[Finding] = []
    for part in PARTS:
        if part in set(only or PARTS):
            notes: list[str] = []
            found = measure(part, quick, notes.append)
            for note in notes:
                console.print(note, highlight=False)
            findings += found
            stored = {"notes": notes, "findings": [asdict(one) for one in found]}
            (home / f"{part}.json").write_text(json.dumps(stored, indent=1))
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{one.verdict}[/]")
    console.print(table)
    if date is not None and not quick:
        DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), "many", section(home, date)))
        console.print(f"wrote docs/{DOCUMENT.name}")
    if not all(one.met or one.target == NO_TARGET for one in findings):
        raise typer.Exit(1)


def measure(part: str, quick: bool, say: Callable[[str], None]) -> list[Finding]:
    small = 10 if quick else 1
    match part:
        case "plan":
            return cube_plans(say, PLANNED_ROWS // small, ALPHAS[1:4:2] if quick else ALPHAS)
        case "tasks":
            size, alphas = 200 // small, ALPHAS[2:3] if quick else ALPHAS
            found = [one for a in alphas for one in traffic(size, 6 if quick else BATCHES, a, say)]
            say(KEYS_FETCHED.format(rows=ROWS))
            return [*found, *(whole_plan(size, 6 if quick else 12, alpha) for alpha in alphas)]
        case "runs":
            return live_runs(10_000 // small, 12 if quick else 60, say)
        case "cleaning":
            return cleaning(10_000 // small, 100 // small, say)
        case "batches":
            return one_row_batches(200, say, 16, 2) if quick else one_row_batches(20_000, say)
        case "shares":
            return key_shares(8, 100, 3, say) if quick else key_shares(16, 1_000, 5, say)
    raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")


def section(home: Path, date: str) -> str:
    """The section of docs/benchmarks.md: the demands of all parts, and what was counted."""
    parts = [json.loads((home / f"{part}.json").read_text()) for part in PARTS]
    findings = [Finding(**one) for part in parts for one in part["findings"]]
    rows = [(one.demand, one.target, one.measured, one.verdict) for one in findings]
    notes = "\n".join(f"- {note}" for part in parts for note in part["notes"])
    table = markdown_table(("demand", "target", "measured", "verdict"), rows)
    return f"Measured {date}, without Spark, times in CPU milliseconds.\n\n{table}\n\n{notes}\n"
