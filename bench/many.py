"""`python -m bench many`: many tasks, many partitions, many runs, many batches. No Spark, a few minutes.

`many_state.py` says what is real and what is not. Each part prints every demand with its verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.many_batches import one_row_batches
from bench.many_plans import PLANNED_ROWS, cube_plans
from bench.many_runs import cleaning, live_runs
from bench.many_shares import key_shares
from bench.many_tasks import ALPHAS, BATCHES, traffic, whole_plan
from bench.report import Finding

PARTS = ("plan", "tasks", "runs", "cleaning", "batches", "shares")


def many(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything: proves nothing.")] = False,
) -> None:
    """What a batch costs with 200 tasks, 10,000 runs or many batches before it; prints every demand with its verdict."""
    if unknown := set(only or ()) - set(PARTS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    findings = measure(set(only or PARTS), quick, lambda text: console.print(text, highlight=False))
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        verdict = {True: "PASS", False: "NOT MET", None: "not measured"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{verdict}[/]")
    console.print(table)
    if not all(one.met for one in findings):
        raise typer.Exit(1)


def measure(parts: set[str], quick: bool, say: Callable[[str], None]) -> list[Finding]:
    small = 10 if quick else 1
    findings: list[Finding] = []
    if "plan" in parts:
        findings += cube_plans(say, PLANNED_ROWS // small, ALPHAS[1:4:2] if quick else ALPHAS)
    if "tasks" in parts:
        size, alphas = 200 // small, ALPHAS[2:3] if quick else ALPHAS
        for alpha in alphas:
            findings += traffic(size, 6 if quick else BATCHES, alpha, say)
        findings += [whole_plan(size, 6 if quick else 12, alpha) for alpha in alphas]
    if "runs" in parts:
        findings += live_runs(10_000 // small, 12 if quick else 60, say)
    if "cleaning" in parts:
        findings += cleaning(10_000 // small, 100 // small, say)
    if "batches" in parts:
        findings += one_row_batches(20_000 // small, say)
    if "shares" in parts:
        findings += key_shares(16, 1_000 // small, 5, say)
    return findings
