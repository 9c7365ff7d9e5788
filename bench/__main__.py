"""The command line of the benchmarks: `python -m bench equality --help`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.adaptive import adaptive
from bench.data import cache_dir
from bench.jobs import Job, Terms, run_jobs
from bench.report import (
    DEFAULT,
    FLOOR,
    OURS,
    ROCKSDB,
    Results,
    find_all,
    markdown,
    print_findings,
    replace_section,
)
from bench.workloads import CHECK, TIMED

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "img"

# Who runs where. RocksDB on 10M rows takes a quarter of an hour and no demand asks for it.
ENTRANTS = {
    "check": (OURS, DEFAULT, ROCKSDB),
    "uniform-2m": (OURS, DEFAULT, ROCKSDB, FLOOR),
    "uniform-10m": (OURS, DEFAULT, FLOOR),
    "small": (OURS, DEFAULT, FLOOR),
}

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
# Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
console = Console(width=None if sys.stdout.isatty() else 150)


def plan_jobs(only: set[str], competitors: set[str], repeat: int, is_quick: bool) -> list[Job]:
    """Verification first, then A B C, A B C ...: noise of the machine falls on all alike."""

    def label(workload: str) -> str:
        return f"{workload}-quick" if is_quick else workload

    def entrants(workload: str) -> Iterator[str]:
        return (c for c in ENTRANTS[workload] if c in competitors)

    checks = [Job(label(CHECK.name), c, 0, verify=True) for c in entrants(CHECK.name) if CHECK.name in only]
    # Our results are also compared at the size at which they are timed.
    checks += [Job(label(w), OURS, 0, verify=True) for w in TIMED if w in only and OURS in competitors]
    timed = [Job(label(w), c, r) for w in TIMED if w in only for r in range(repeat) for c in entrants(w)]
    return checks + timed


app.command()(adaptive)


@app.command()
def equality(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(ENTRANTS)}.")
    ] = None,
    competitor: Annotated[list[str] | None, typer.Option(help="Only this competitor, repeatable.")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Interleaved repetitions of each timed run.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the rows: minutes, proves nothing.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Keep runs that the results directory already has.")] = False,
    patience: Annotated[
        int, typer.Option(help="Seconds to wait, before each timed run, for a quiet machine.")
    ] = 0,
    retry_noisy: Annotated[
        int, typer.Option(help="Repeat a run so often while others take too much of the machine.")
    ] = 0,
    conf: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE of Spark for every competitor, repeatable.")
    ] = None,
    label: Annotated[str, typer.Option(help="Name of the results directory.")] = "equality",
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """The equality join: ours, Spark's own with two state stores, and the floor.

    Runs each competitor in its own process, prints every demand with target, measured and verdict,
    and exits with 1 if a demand is not met. Takes about 12 minutes with --repeat 1.
    """
    everybody = {c for entrants in ENTRANTS.values() for c in entrants}
    parts, who = set(only or ENTRANTS), set(competitor or everybody)
    if unknown := (parts - set(ENTRANTS)) | (who - everybody):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    home = cache_dir() / "results" / (f"{label}-quick" if quick else label)
    home.mkdir(parents=True, exist_ok=True)
    jobs = plan_jobs(parts, who, repeat, quick)
    if not resume:
        forget(jobs, home)
    run_jobs(jobs, home, Terms(patience, retry_noisy, tuple(conf or ())), console)
    conclude(Results.load(home), None if quick else date)


def forget(jobs: list[Job], home: Path) -> None:
    """Remove all earlier runs of what is about to run; other parts' results stay."""
    for stale in {f"{job.workload}.{job.competitor}.*" for job in jobs}:
        for path in home.glob(stale):
            path.unlink()


@app.command()
def report(
    label: Annotated[str, typer.Option(help="Name of the results directory.")] = "equality",
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """Print the verdicts of earlier runs again, and write the document with --date."""
    conclude(Results.load(cache_dir() / "results" / label), date)


def conclude(results: Results, date: str | None) -> None:
    print_findings(console, results)
    if date is not None:
        write_document(results, date)
    if any(f.met is False for f in find_all(results)):
        raise typer.Exit(1)


def write_document(results: Results, date: str) -> None:
    from bench.plot import draw

    images = [IMAGES / f"equality-{w}.svg" for w in TIMED]
    drawn = [i for i, w in zip(images, TIMED, strict=True) if draw(results, w, i)]
    links = [str(i.relative_to(DOCUMENT.parent)) for i in drawn]
    document = DOCUMENT.read_text() if DOCUMENT.exists() else "# Benchmarks\n"
    DOCUMENT.write_text(replace_section(document, "equality", markdown(results, date, links)))
    console.print(f"wrote {DOCUMENT.relative_to(ROOT)} and {len(drawn)} pictures")


if __name__ == "__main__":
    app()
