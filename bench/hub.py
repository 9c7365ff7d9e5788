"""`python -m bench hub`: thousands of queries on one hub. Spark only in the part `spark`; under ten minutes.

check        answers against DuckDB at a small size (hub_check.py)
templates    10,000 queries of 100 templates: rows per second, and against 100 queries with the same answers
shapes       10,000 queries of random shapes: rows per second, and against 1,000 of them (hub_rates.py)
commands     queries added while it runs, planning without commands, bytes per query (hub_commands.py)
spark        ten queries on one hub, and as Spark queries of their own (hub_spark.py)

What the streams and queries are, hub_load.py says.
"""

from __future__ import annotations

import os
import platform
from typing import Annotated

import duckdb
import numpy as np
import pyarrow as pa
import typer

from bench.hub_check import checked
from bench.hub_commands import commands
from bench.hub_rates import shapes, templates
from bench.hub_spark import beside_spark
from bench.parts import Benchmark, Outcome, Say
from bench.report import Finding, markdown_table

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
    Benchmark("hub", PARTS, measure, section).run(only, quick, date)


def measure(part: str, quick: bool, say: Say) -> list[Finding]:
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


def section(found: Outcome, date: str) -> str:
    """The section of docs/benchmarks.md: the demands of all parts, and the setting of each."""
    rows = [(one.demand, one.target, one.measured, one.verdict) for one in found.findings]
    table = markdown_table(("demand", "target", "measured", "verdict"), rows)
    notes = "\n".join(f"- {note}." for note in found.notes)
    return (
        f"Measured {date} with Python {platform.python_version()}, pyarrow {pa.__version__}, numpy {np.__version__}, "
        f"DuckDB {duckdb.__version__}, {os.cpu_count()} cores; without Spark but for the ten queries beside it. Rates and "
        "times without Spark are CPU of one process, which does both tasks one after the other; hubs that are compared "
        "take turns, batch by batch.\n\n"
        f"{table}\n\nThe settings, and medians of the rounds:\n\n{notes}\n"
    )
