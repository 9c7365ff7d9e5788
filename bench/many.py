"""`python -m bench many`: many tasks, many partitions, many runs, many batches. No Spark, a few minutes.

README.md says what is real and what is not. Each part prints every demand with its verdict.
"""

from __future__ import annotations

from typing import Annotated

import typer

from bench.many_batches import one_row_batches
from bench.many_plans import PLANNED_ROWS, cube_plans
from bench.many_runs import cleaning, live_runs
from bench.many_shares import key_shares
from bench.many_tasks import ALPHAS, BATCHES, KEYS_FETCHED, ROWS, traffic, whole_plan
from bench.parts import Benchmark, Outcome, Say
from bench.report import Finding, markdown_table

PARTS = ("plan", "tasks", "runs", "cleaning", "batches", "shares")


def many(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything: proves nothing.")] = False,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """What a batch costs with 200 tasks, 10,000 runs or many batches before it; prints every demand with its verdict."""
    Benchmark("many", PARTS, measure, section).run(only, quick, date)


def measure(part: str, quick: bool, say: Say) -> list[Finding]:
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


def section(found: Outcome, date: str) -> str:
    """The section of docs/benchmarks.md: the demands of all parts, and what was counted."""
    rows = [(one.demand, one.target, one.measured, one.verdict) for one in found.findings]
    notes = "\n".join(f"- {note}" for note in found.notes)
    table = markdown_table(("demand", "target", "measured", "verdict"), rows)
    return f"Measured {date}, without Spark, times in CPU milliseconds.\n\n{table}\n\n{notes}\n"
