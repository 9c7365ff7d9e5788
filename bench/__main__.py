"""The command line of the benchmarks: `python -m bench equality --help`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.adaptive import adaptive
from bench.balance import balance
from bench.budget import memory
from bench.cluster import cluster
from bench.data import cache_dir
from bench.hub import hub
from bench.jobs import BALANCE, DRIVEN, FILLED, ORDERS, PAGES, VERIFY, Job, Terms, run_jobs
from bench.many import many
from bench.report import DOCUMENT, Finding, Results, markdown, print_findings, replace_section
from bench.similar import similar
from bench.suites import BAND, EQUALITY, GRAPH, NEXMARK, SCALE, SKEW, SUITES, TABLES, WINDOW, Suite
from bench.timeline import timeline
from bench.versions import versions
from bench.wide import wide

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "img"

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
# Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
console = Console(width=None if sys.stdout.isatty() else 150)


Only = Annotated[list[str] | None, typer.Option(help="Only this part (a workload), repeatable.")]
Competitors = Annotated[list[str] | None, typer.Option(help="Only this competitor, repeatable.")]
Repeat = Annotated[int, typer.Option(min=1, help="Interleaved repetitions of each timed run.")]
Size = Annotated[
    int | None,
    typer.Option(
        help="The number of events, or of rows of each input, instead of a workload's own, where it can."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A tenth of the rows: minutes, proves nothing.")]
Resume = Annotated[bool, typer.Option(help="Keep runs that the results directory already has.")]
Patience = Annotated[int, typer.Option(help="Seconds to wait, before each timed run, for a quiet machine.")]
Retries = Annotated[
    int, typer.Option(help="Repeat a run so often while others take too much of the machine.")
]
Warm = Annotated[bool, typer.Option(help="Run each stream twice in one JVM and time the second time.")]
Configured = Annotated[
    bool, typer.Option("--configured/--plain", help="With the settings of `wm.configure`, or without.")
]
Conf = Annotated[list[str] | None, typer.Option(help="KEY=VALUE of Spark for every competitor, repeatable.")]
Label = Annotated[str | None, typer.Option(help="Name of the results directory; the suite's by default.")]
Date = Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a suite shall run, and how."""

    only: list[str] | None
    competitors: list[str] | None
    repeat: int
    quick: bool
    size: int | None
    resume: bool
    label: str | None
    date: str | None


app.command()(adaptive)
app.command()(many)
app.command()(memory)
app.command()(balance)
app.command()(cluster)
app.command()(hub)
app.command()(similar)
app.command()(timeline)
app.command()(versions)
app.command()(wide)


def add_command(suite: Suite, about: str) -> None:
    """A command named like the suite; all suites take the same options."""

    def run(
        only: Only = None,
        competitor: Competitors = None,
        repeat: Repeat = 1,
        quick: Quick = False,
        size: Size = None,
        resume: Resume = False,
        patience: Patience = 0,
        retry_noisy: Retries = 0,
        warm: Warm = True,
        configured: Configured = True,
        conf: Conf = None,
        label: Label = None,
        date: Date = None,
    ) -> None:
        wanted = Wanted(only, competitor, repeat, quick, size, resume, label, date)
        run_suite(suite, wanted, Terms(patience, retry_noisy, tuple(conf or ()), warm, configured))

    app.command(suite.name, help=f"{about}\n\n{_ABOUT_ALL}")(run)


_ABOUT_ALL = """Runs each competitor in its own process, prints every demand with target, measured and verdict, and
exits with 1 if a demand is not met."""

add_command(
    EQUALITY,
    "The equality join: ours, Spark's own with two state stores, and the floor. About 25 minutes with --repeat 1.",
)
add_command(
    BAND,
    "The band join: ours by ranges and on the grid, and the bucket workaround on Spark's own join. About 12 "
    "minutes with --repeat 1.",
)
add_command(
    SKEW,
    "Skewed equality joins: how evenly the tasks are busy over Zipf's alpha, and the time against Spark's own join. "
    "About an hour.",
)
add_command(
    TABLES,
    "A stream against a table too large to broadcast: ours by three strategies and Spark's stream-static join, and "
    "which pages are read. About 40 minutes with --repeat 1.",
)

add_command(
    GRAPH,
    "Joins of three to ten inputs: ours, a chain of our joins and a chain of Spark's. About an hour with --repeat 1.",
)

add_command(
    NEXMARK,
    "The joins of NEXMark's queries 3, 8, 9 and 20 on 5M generated events, or --size events: ours, ours with wm.files, "
    "and Spark's own. About 25 minutes with --repeat 1.",
)

add_command(
    WINDOW,
    "Equality within a minute, watermarks on both sides: ours and Spark's own join with two state stores. About 10 "
    "minutes with --repeat 1.",
)

add_command(
    SCALE,
    "Large states: 50M x 50M rows on Spark, as many as --size on the local driver, and a backlog of 100M rows in one "
    "batch. It needs 20 GB of disk, and 80 for --only scale-local.",
)


def run_suite(suite: Suite, wanted: Wanted, terms: Terms) -> None:
    parts, who = set(wanted.only or suite.parts), set(wanted.competitors or suite.competitors)
    if unknown := (parts - set(suite.parts)) | (who - suite.competitors):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    label = wanted.label or suite.name
    if wanted.quick and wanted.size is not None:
        raise typer.BadParameter("give --quick or --size")
    suffix = "-quick" if wanted.quick else "" if wanted.size is None else f"@{wanted.size}"
    home = cache_dir() / "results" / f"{label}{suffix}"
    home.mkdir(parents=True, exist_ok=True)
    jobs = plan_jobs(suite, parts, who, wanted.repeat, suffix)
    if not wanted.resume:
        forget(jobs, home)
    run_jobs(jobs, home, terms, console)
    conclude(suite, Results.load(home), None if wanted.quick else wanted.date)


def plan_jobs(
    suite: Suite, only: set[str], competitors: set[str], repeat: int, suffix: str = ""
) -> list[Job]:
    """Verification first, then A B C, A B C ...: noise of the machine falls on all alike."""

    def label(workload: str) -> str:
        return f"{workload}{suffix}"

    def entrants(who: tuple[str, ...]) -> list[str]:
        return [c for c in who if c in competitors]

    checks = [
        Job(label(w), c, kind=VERIFY) for w, who in suite.checked.items() if w in only for c in entrants(who)
    ]
    # Our results are also compared at the size at which they are timed.
    checks += [
        Job(label(w), suite.ours, kind=VERIFY)
        for w, who in suite.timed.items()
        if w in only and w not in suite.unverified and suite.ours in entrants(who)
    ]
    counted = [
        Job(label(w), c, kind=kind)
        for kind, entries in (
            (BALANCE, suite.balanced),
            (PAGES, suite.paged),
            (ORDERS, suite.ordered),
            (DRIVEN, suite.driven),
            (FILLED, suite.filled),
        )
        for w, who in entries.items()
        if w in only
        for c in entrants(who)
    ]
    timed = [
        Job(label(w), c, r)
        for w, who in suite.timed.items()
        if w in only
        for r in range(max(repeat, suite.rounds.get(w, 1)))
        for c in entrants(who)
    ]
    return checks + counted + timed


def forget(jobs: list[Job], home: Path) -> None:
    """Remove all earlier runs of what is about to run; other parts' results stay."""
    for stale in {f"{job.workload}.{job.competitor}.*" for job in jobs}:
        for path in home.glob(stale):
            path.unlink()


@app.command()
def report(
    suite: Annotated[str, typer.Argument(help=f"One of: {', '.join(SUITES)}.")] = EQUALITY.name,
    label: Label = None,
    date: Date = None,
) -> None:
    """Print the verdicts of earlier runs again, and write the document with --date."""
    if suite not in SUITES:
        raise typer.BadParameter(f"no suite {suite}: use one of {', '.join(SUITES)}")
    chosen = SUITES[suite]
    conclude(chosen, Results.load(cache_dir() / "results" / (label or chosen.name)), date)


def conclude(suite: Suite, results: Results, date: str | None) -> None:
    findings = suite.demands(results)
    print_findings(console, results, findings)
    if date is not None:
        write_document(suite, results, findings, date)
    if any(f.met is False for f in findings):
        raise typer.Exit(1)


def write_document(suite: Suite, results: Results, findings: list[Finding], date: str) -> None:
    links = [
        str(image.relative_to(DOCUMENT.parent))
        for image in suite.draw(results, list(suite.timed), IMAGES, suite.name)
    ]
    document = DOCUMENT.read_text() if DOCUMENT.exists() else "# Benchmarks\n"
    section = markdown(results, findings, date, links, suite.tables(results))
    DOCUMENT.write_text(replace_section(document, suite.name, section))
    console.print(f"wrote {DOCUMENT.relative_to(ROOT)} and {len(links)} pictures")


if __name__ == "__main__":
    app()
