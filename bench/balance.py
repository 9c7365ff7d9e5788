"""`python -m bench balance`: one table of how evenly tasks are busy, for scheme x distribution x number of tasks.

Each case is a join on the local driver. A task's work is counted, not timed: the fresh rows that it looks up and the
results that it emits. The counts do not depend on the machine. The number of results is compared with the number that
follows from the keys.

Two ratios of the busiest task to the mean one are reported: over the whole run, and in the worst batch. The worst batch
is judged, because on a cluster each batch waits for its slowest task, and over a whole run hot keys that take turns
even out.

A ratio of few units of work is noise. Tasks of W independent units differ by 1 / sqrt(W), and the busiest of 200 is
about 2.8 times that above the mean: 1.09 with 1,000 units, 1.28 with 100. Rows of one key come together, so the noise
of real keys is larger. Batches below `LEAST_UNITS` for each task are not judged. The control for what chance does is
`hash` on even keys.

Not in the figures: reading history, merging runs, and what a row costs beside what a result costs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.data import cache_dir
from bench.report import DOCUMENT, markdown_table, replace_section, without_results
from bench.work import figures, run_tasks
from papers.shared.zipf import rank_shares

PICTURE = "balance-table.svg"
SEED = 20_260_101

HASH, CUBE, BICLIQUE, RANGE, GRID = SCHEMES = ("hash", "hypercube", "biclique", "range", "grid")
# What `auto` takes: for an equality, for a band, and for everything else. The others are controls.
JUDGED = (CUBE, RANGE, GRID)
TASKS = (2, 16, 48, 200)
MOST_UNEVEN = 1.25
# See the head of this file.
LEAST_UNITS = 1_000

KEYS = 100_000
# Enough rows that a task of 200 has some thousand units in the first batch, and no more results than take some seconds.
MOST_BATCH_ROWS, MOST_RESULTS = 200_000, 400_000_000

EQUAL, BAND, SUM = "l.k = r.k", "abs(l.k - r.k) <= 1", "l.k + r.k > 150000"

Keys = npt.NDArray[np.int64]
# The keys of the left and the right input in each batch.
Arrivals = list[tuple[Keys, Keys]]
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Keys by batch. `draw` gets a share of the full number of rows, 1 or less."""

    name: str
    draw: Callable[[float], Arrivals]
    schemes: tuple[str, ...] = SCHEMES
    # The predicate, if it is the same for every scheme.
    on: str | None = None
    partitions: int = 1

    def predicate(self, scheme: str) -> str:
        """The grid runs the equality: which rows a cell reads does not depend on the predicate."""
        return self.on or (BAND if scheme == RANGE else EQUAL)


@dataclass(frozen=True, slots=True)
class Case:
    distribution: str
    scheme: str
    tasks: int

    @property
    def name(self) -> str:
        return f"{self.scheme}, {self.distribution}, {self.tasks} tasks"


def zipf(alpha: float, share: float) -> Arrivals:
    """Which value is frequent has nothing to do with its size: hot values have cold neighbours."""
    shares = rank_shares(KEYS, alpha)
    rows = min(np.sqrt(MOST_RESULTS / float((shares**2).sum())) / 3, MOST_BATCH_ROWS)
    rng = np.random.default_rng((SEED, int(alpha * 100)))
    names = rng.permutation(KEYS)
    return _draw(lambda batch, count: names[_ranks(shares, count, rng)], 3, rows * share)


def one_key(share: float) -> Arrivals:
    return _draw(lambda batch, rows: np.zeros(rows, np.int64), 3, 6_000 * share)


def taking_turns(share: float) -> Arrivals:
    """Another key is hot in each batch, on a tenth of the rows."""
    return _with_hot_key(lambda batch: batch, 3, 100_000 * share, 0.1)


def from_the_middle(share: float) -> Arrivals:
    """Even keys in two batches; then one of them takes a tenth of the rows, in two more."""
    return _with_hot_key(lambda batch: 7 if batch >= 2 else None, 4, 100_000 * share, 0.1)


def many_partitions(share: float) -> Arrivals:
    """In both batches a new key has 3 % of the rows: 23 in a partition, too few to stand out there."""
    return _with_hot_key(lambda batch: batch, 2, 25_000 * share, 0.03)


def hot_values(share: float) -> Arrivals:
    """The most frequent values are neighbours: they meet each other within the band, too."""
    shares, rng = rank_shares(2_500, 1.0), np.random.default_rng((SEED, 1))
    return _draw(lambda batch, rows: _ranks(shares, rows, rng), 3, 28_000 * share)


def one_to_64(share: float) -> Arrivals:
    rng = np.random.default_rng((SEED, 2))
    rows = int(256_000 * share)
    return [(rng.integers(0, KEYS, rows), rng.integers(0, KEYS, rows // 64)) for _ in range(3)]


def even_keys(rows: float) -> Arrivals:
    rng = np.random.default_rng((SEED, 3))
    return _draw(lambda batch, count: rng.integers(0, KEYS, count), 3, rows)


def _zipf(alpha: float) -> Callable[[float], Arrivals]:
    return lambda share: zipf(alpha, share)


DISTRIBUTIONS = {
    one.name: one
    for one in (
        *(Distribution(f"Zipf {alpha:g}", _zipf(alpha)) for alpha in (0.0, 0.5, 1.0, 1.5, 2.0)),
        Distribution("one key", one_key),
        Distribution("keys take turns", taking_turns),
        Distribution("hot from the middle", from_the_middle),
        Distribution("32 partitions", many_partitions, partitions=32),
        Distribution("inputs of 64:1", one_to_64),
        Distribution("hot values in a band", hot_values, (RANGE, GRID), BAND),
        Distribution("no equality, no band", lambda share: even_keys(5_000 * share), (GRID,), SUM),
    )
}


def _draw(keys: Callable[[int, int], Keys], batches: int, rows: float) -> Arrivals:
    return [(keys(batch, int(rows)), keys(batch, int(rows))) for batch in range(batches)]


def _with_hot_key(hot: Callable[[int], int | None], batches: int, rows: float, part: float) -> Arrivals:
    """Even keys, and a key that takes `part` of the rows of a batch, if any does."""
    rng = np.random.default_rng((SEED, 4))

    def keys(batch: int, count: int) -> Keys:
        found = rng.integers(0, KEYS, count)
        chosen = hot(batch)
        return found if chosen is None else np.where(rng.random(count) < part, chosen, found)

    return _draw(keys, batches, rows)


def _ranks(shares: npt.NDArray[np.float64], rows: int, rng: np.random.Generator) -> Keys:
    return np.minimum(np.searchsorted(np.cumsum(shares), rng.random(rows), side="right"), len(shares) - 1)


def count_results(arrivals: Arrivals, on: str) -> int:
    """The number of results of all batches, from the keys alone."""
    left, right = (np.concatenate(side) for side in zip(*arrivals, strict=True))
    if on == SUM:
        return int((len(right) - np.searchsorted(np.sort(right), 150_000 - left, side="right")).sum())
    reach = 1 if on == BAND else 0
    counts = np.bincount(right, minlength=int(max(left.max(), right.max())) + 2)
    below = np.concatenate([[0], np.cumsum(counts)])
    return int((below[left + reach + 1] - below[np.maximum(left - reach, 0)]).sum())


def measure(case: Case, share: float = 1.0) -> Result:
    """Run one case and count what its tasks do."""
    distribution = DISTRIBUTIONS[case.distribution]
    arrivals, on = distribution.draw(share), distribution.predicate(case.scheme)
    batches = [{"l": pa.table({"k": left}), "r": pa.table({"k": right})} for left, right in arrivals]
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="balance-", dir=cache_dir() / "scratch") as state:
        probed, emitted = run_tasks(
            batches, case.scheme, case.tasks, Path(state) / "state", on, distribution.partitions
        )
    rows = sum(len(side) for pair in arrivals for side in pair)
    want = count_results(arrivals, on)
    return figures(probed, emitted) | judged(probed + emitted) | {"rows": rows, "want": want}


def judged(work: npt.NDArray[np.int64]) -> Result:
    """The worst of the batches that have enough work for a ratio; None if none has.

    >>> judged(np.array([[1, 9], [3000, 1000]]))
    {'judged': 1.5, 'judged_batches': 1, 'units': 2000}
    """
    mean, busiest = work.mean(axis=1), work.max(axis=1)
    enough = mean >= LEAST_UNITS
    return {
        "judged": float((busiest[enough] / mean[enough]).max()) if enough.any() else None,
        "judged_batches": int(enough.sum()),
        "units": int(mean[enough].min()) if enough.any() else 0,
    }


def cases(
    distributions: Sequence[str] = tuple(DISTRIBUTIONS),
    schemes: Sequence[str] = SCHEMES,
    tasks: Sequence[int] = TASKS,
) -> list[Case]:
    return [
        Case(name, scheme, count)
        for name in distributions
        for scheme in SCHEMES
        if scheme in schemes and scheme in DISTRIBUTIONS[name].schemes
        for count in tasks
    ]


Results = dict[Case, Result]


def run_cases(
    wanted: Sequence[Case], share: float, jobs: int, console: Console
) -> Iterator[tuple[Case, Result]]:
    """Results as they come. The longest cases start first: a process must not be left alone with one at the end."""
    ordered = sorted(wanted, key=lambda case: (case.scheme != GRID, -case.tasks))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        whole = progress.add_task("cases", total=len(ordered))
        running = {pool.submit(measure, case, share): case for case in ordered}
        for done in as_completed(running):
            progress.update(whole, advance=1, description=running[done].name)
            yield running[done], done.result()


def problems(results: Results) -> list[str]:
    """The cases that miss the demand: uneven where `auto` takes the scheme, or a wrong number of results."""
    found = []
    for case, result in results.items():
        if result["emitted"] != result["want"]:
            found.append(f"{case.name}: {result['emitted']:,} results instead of {result['want']:,}")
        if case.scheme not in JUDGED:
            continue
        if result["judged"] is None:
            found.append(f"{case.name}: no batch has {LEAST_UNITS:,} units of work for each task")
        elif result["judged"] > MOST_UNEVEN:
            found.append(f"{case.name}: {result['judged']:.2f}")
    return found


def table_rows(results: Results) -> list[list[str]]:
    """A line for each distribution and scheme: a ratio for each number of tasks, and the work of the last of them."""
    numbers = _numbers(results)
    rows = []
    for name in DISTRIBUTIONS:
        for scheme in SCHEMES:
            mine = {tasks: results.get(Case(name, scheme, tasks)) for tasks in numbers}
            found = [one for one in mine.values() if one]
            if found:
                cells = [_cell(one, scheme) if one else "-" for one in mine.values()]
                rows.append([name, scheme, *cells, f"{_work(found[-1]):.1f}"])
    return rows


def _cell(result: Result, scheme: str) -> str:
    text = f"{result['run']:.2f} ({'-' if result['judged'] is None else format(result['judged'], '.2f')})"
    missed = scheme in JUDGED and (result["judged"] is None or result["judged"] > MOST_UNEVEN)
    return f"**{text}**" if missed else text


def _work(result: Result) -> float:
    """All work, where 1 is a look-up of every row and every result once."""
    return float((result["probed"] + result["emitted"]) / (result["rows"] + result["want"]))


def head(results: Results) -> list[str]:
    numbers = _numbers(results)
    return ["distribution", "scheme", *(f"{tasks} tasks" for tasks in numbers), f"work, {numbers[-1]} tasks"]


def _numbers(results: Results) -> list[int]:
    return sorted({case.tasks for case in results})


def section(results: Results, date: str, picture: str) -> str:
    """The section of docs/benchmarks.md."""
    missed = problems(results)
    floor = min(result["units"] for result in results.values() if result["units"])
    verdict = (
        f"NOT MET in {len(missed)} of {sum(case.scheme in JUDGED for case in results)} judged cases (bold)."
        if missed
        else "Met everywhere."
    )
    right = not any("results instead" in text for text in missed)
    setting = f"Measured {date}, without Spark, seed {SEED}."
    legend = (
        "Busiest task / mean, by rows looked up and results emitted: over the whole run, in the worst batch in brackets. "
        f"The target is at most {MOST_UNEVEN:g} in the worst batch for what `auto` takes: `hypercube` for equalities, "
        "`range` for bands, `grid` for the rest. `hash` and `biclique` are controls. "
        f"Batches with less than {LEAST_UNITS:,} units of work for each task are not judged: below that the ratio is "
        f"noise. The smallest one judged has {floor:,}. {verdict}"
    )
    about = (
        "*Work* is all work of the tasks, where 1 is to look up each row and to emit each result once. `range` runs "
        f"`{BAND}` over the same keys, `grid` the equality: its cells do not look at values."
    )
    parts = [
        f"{setting} The numbers of results are those that follow from the keys." if right else setting,
        legend,
        about,
        markdown_table(head(results), table_rows(results)),
        f"![busiest task / mean in the worst batch]({picture})",
    ]
    return "\n\n".join(parts) + "\n"


def balance(
    only: Annotated[list[str] | None, typer.Option(help="Only this distribution, repeatable.")] = None,
    scheme: Annotated[list[str] | None, typer.Option(help="Only this scheme, repeatable.")] = None,
    tasks: Annotated[list[int] | None, typer.Option(help="Only this number of tasks, repeatable.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the rows: proves nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Cases that run at the same time.")] = 2,
    resume: Annotated[bool, typer.Option(help="Keep cases that the results have.")] = False,
    date: Annotated[str | None, typer.Option(help="Write docs/benchmarks.md, dated so.")] = None,
) -> None:
    """How evenly tasks are busy: five schemes, twelve distributions, 2 to 200 tasks, in one table (some minutes).

    Exits with 1 if the busiest task of what `auto` takes is above 1.25 times the mean in any batch.
    """
    if unknown := {*(only or ())} - {*DISTRIBUTIONS} | {*(scheme or ())} - {*SCHEMES}:
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    # Eighty columns, rich's guess for a pipe, would cut the table to pieces.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    wanted = cases(only or tuple(DISTRIBUTIONS), scheme or SCHEMES, tasks or TASKS)
    home = cache_dir() / "results" / ("balance-quick" if quick else "balance")
    home.mkdir(parents=True, exist_ok=True)
    known = load(home)
    if date and (without := [one.name for one in cases() if one not in known and one not in wanted]):
        raise typer.BadParameter(without_results(without))
    missing = [case for case in wanted if not resume or case not in known]
    for case, result in run_cases(missing, 0.1 if quick else 1.0, jobs, console):
        (home / f"{case.scheme}.{case.distribution}.{case.tasks}.json").write_text(
            json.dumps({"case": [case.distribution, case.scheme, case.tasks], "result": result}, indent=1)
        )
    results = load(home) if date else {case: found for case, found in load(home).items() if case in wanted}
    show(results, console)
    if date is not None and not quick:
        write(results, date, console)
    if problems(results):
        raise typer.Exit(1)


def load(home: Path) -> Results:
    found = [json.loads(path.read_text()) for path in sorted(home.glob("*.json"))]
    by_case = {Case(*one["case"]): one["result"] for one in found}
    numbers = sorted({case.tasks for case in by_case})
    return {case: by_case[case] for case in cases(tasks=numbers) if case in by_case}


def show(results: Results, console: Console) -> None:
    title = "Busiest task / mean: whole run (worst batch)"
    table = Table(*head(results), title=title, title_justify="left")
    last = ""
    for row in table_rows(results):
        if last and row[0] != last:
            table.add_section()
        styled = [f"[red]{cell.strip('*')}[/]" if cell.startswith("**") else cell for cell in row]
        table.add_row("" if row[0] == last else row[0], *styled[1:])
        last = row[0]
    console.print(table)
    for text in problems(results):
        console.print(f"[bold red]NOT MET[/] {text}")


def write(results: Results, date: str, console: Console) -> None:
    from bench.plot import draw_table

    picture = DOCUMENT.parent / "img" / PICTURE
    values = {
        (case.distribution, case.scheme, case.tasks): result["judged"] for case, result in results.items()
    }
    draw_table(values, tuple(DISTRIBUTIONS), SCHEMES, TASKS, JUDGED, MOST_UNEVEN, picture)
    text = section(results, date, f"img/{PICTURE}")
    DOCUMENT.write_text(replace_section(DOCUMENT.read_text(), "balance", text))
    console.print(f"wrote docs/{DOCUMENT.name} and docs/img/{PICTURE}")
