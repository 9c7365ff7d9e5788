"""A reproduction on the terminal: progress, then tables and verdicts."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as RichTable

from papers.shared.exhibit import Exhibit, Table, Verdict, summarise
from papers.shared.load import OtherLoad
from papers.shared.reproduction import Reproduction, Session, Stopped, choose, write
from watersmeet.cli.figures import clock
from watersmeet.cli.outcome import say
from watersmeet.cli.signals import StopRequest
from watersmeet.cli.views import is_watched

# Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
_PIPE_COLUMNS = 160


class LiveSteps:
    def __init__(self, progress: Progress, steps: int):
        self._progress = progress
        self._whole = progress.add_task("", total=steps, note="")
        self._done = -1

    def step(self, text: str) -> None:
        self._done += 1
        self._progress.update(self._whole, completed=self._done, description=text, note="")

    def batch(self, done: int, of: int) -> None:
        self._progress.update(self._whole, note=f"{done} of {of} batches")


class PlainSteps:
    """A line for each step, with the time since the start."""

    def __init__(self, console: Console):
        self._console = console
        self._started_s = time.monotonic()

    def step(self, text: str) -> None:
        say(self._console, f"{clock(time.monotonic() - self._started_s):>7}  {text}")
        self._console.file.flush()

    def batch(self, done: int, of: int) -> None:
        pass


def show(
    reproduction: Reproduction,
    *,
    out: Path,
    only: Sequence[str],
    data: Path | None,
    plain: bool,
    stop: StopRequest,
) -> bool:
    """Run, print, write; False if it was stopped before its end."""
    names = choose(only, reproduction.exhibits)
    reproduction.require(names)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_COLUMNS)
    out.mkdir(parents=True, exist_ok=True)
    data = data or out / "data"
    with tempfile.TemporaryDirectory(prefix=".work-", dir=out, ignore_cleanup_errors=True) as scratch:
        try:
            with _steps(console, reproduction.count_steps(names) + 1, plain=plain) as watch:
                home = Path(scratch).absolute()
                with OtherLoad() as watched:
                    exhibits = reproduction.run(names, Session(data, home, watch, stop.event, stop.arm))
                watch.step("pictures and page")
                page = write(exhibits, reproduction, watched.load, out)
        except Stopped:
            return False
    for exhibit in exhibits:
        _print(console, exhibit)
    say(console, watched.load.text)
    say(console, f"{summarise(exhibits)}; page, pictures and figures: {page}")
    return True


@contextlib.contextmanager
def _steps(console: Console, steps: int, *, plain: bool) -> Iterator[LiveSteps | PlainSteps]:
    if not is_watched(console, plain=plain):
        yield PlainSteps(console)
        return
    columns = (
        # On a narrow terminal the bar gives way, not the clock.
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=24),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.description}"),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveSteps(progress, steps)


def _print(console: Console, exhibit: Exhibit) -> None:
    console.rule(f"[bold]{escape(exhibit.title)}", align="left")
    console.print(escape(exhibit.how), style="dim")
    for table in exhibit.tables:
        # Not rich's own title, which breaks at the width of the table.
        console.print(f"\n[bold]{escape(table.title)}")
        console.print(_table(table), crop=False)
        if table.note:
            console.print(escape(table.note), style="dim")
    console.print()
    console.print(_verdicts(exhibit.verdicts))
    console.print()


def _table(table: Table) -> RichTable:
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, column in enumerate(table.columns):
        # Headings break between words where room is short; a figure is never cut.
        least = max(map(len, [*column.split(), *(row[place] for row in table.rows)]))
        shown.add_column(escape(column), justify="left" if place == 0 else "right", min_width=least)
    for row in table.rows:
        shown.add_row(*map(escape, row))
    return shown


def _verdicts(verdicts: Sequence[Verdict]) -> RichTable:
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for verdict in verdicts:
        style = "green" if verdict.agrees and not verdict.alike else "yellow"
        why = f" [dim]({escape(verdict.why)})[/]" if verdict.why else ""
        grid.add_row(f"[{style}]{verdict.word}[/]", f"paper: {escape(verdict.paper)}")
        grid.add_row("", f"here:  {escape(verdict.ours)}{why}")
        grid.add_row("", f"[dim]control: {escape(verdict.control)}[/]")
    return grid
