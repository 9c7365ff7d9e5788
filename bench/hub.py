"""`python -m bench hub`: thousands of queries on one hub. Spark only in the part `spark`; under ten minutes.

check        answers against DuckDB at a small size (hub_check.py)
templates    10,000 queries of 100 templates: rows per second, and against 100 queries with the same answers
shapes       10,000 queries of random shapes: rows per second, and against 1,000 of them (hub_rates.py)
commands     queries added while it runs, planning without commands, bytes per query (hub_commands.py)
spark        ten queries on one hub, and as Spark queries of their own (hub_spark.py)

What the streams and queries are, hub_load.py says.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from bench.data import cache_dir
from bench.hub_check import checked
from bench.hub_commands import commands
from bench.hub_rates import shapes, templates
from bench.hub_spark import beside_spark
from bench.report import DOCUMENT, NO_TARGET, Finding, markdown_table, replace_section, without_results

PARTS = ("check", "templates", "shapes", "commands", "spark")


def hub(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of everything: proves nothing.")
    ] = False,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """Thousands of queries on one hub: rows per second, commands, bytes, and ten queries beside Spark. Ten minutes.

    Exits with 1 if a demand is not met.
    """
    if unknown := set(only or ()) - set(PARTS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    home = cache_dir() / "results" / ("hub-quick" if quick else "hub")
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
                console.print(note)
            findings += found
            stored = {"notes": notes, "findings": [asdict(one) for one in found]}
            (home / f"{part}.json").write_text(json.dumps(stored, indent=1))
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{one.verdict}[/]")
    console.print(table)
    if date is not None and not quick:
        DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), "hub", section(home, date)))
        console.print(f"wrote docs/{DOCUMENT.name}")
    if not all(one.met or one.target == NO_TARGET for one in findings):
        raise typer.Exit(1)


def measure(part: str, quick: bool, say: Callable[[str], None]) -> list[Finding]:
    match part:
        case "check":
            return checked(quick)
        case "templates":
            return templates(quick, say)
        case "shapes":
            return shapes(quick, say)
        case "commands":
            return commands(quick, say)
        case "spark":
            return beside_spark(quick, say)
    raise ValueError(f"part must be one of {', '.join(PARTS)}, got {part!r}")


def section(home: Path, date: str) -> str:
    """The section of docs/benchmarks.md: the demands of all parts, and the setting of each."""
    parts = [json.loads((home / f"{part}.json").read_text()) for part in PARTS]
    findings = [Finding(**one) for part in parts for one in part["findings"]]
    rows = [(one.demand, one.target, one.measured, one.verdict) for one in findings]
    table = markdown_table(("demand", "target", "measured", "verdict"), rows)
    notes = "\n".join(f"- {note}." for part in parts for note in part["notes"])
    return (
        f"Measured {date} with Python {platform.python_version()}, pyarrow {pa.__version__}, numpy {np.__version__}, "
        f"DuckDB {duckdb.__version__}, {os.cpu_count()} cores; without Spark but for the ten queries beside it. Rates and "
        "times without Spark are CPU of one process, which does both tasks one after the other; hubs that are compared "
        "take turns, batch by batch.\n\n"
        f"{table}\n\nThe settings, and medians of the rounds:\n\n{notes}\n"
    )
