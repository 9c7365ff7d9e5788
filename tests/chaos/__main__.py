"""`python -m tests.chaos`: what can go wrong around the state goes wrong, and every result must still be right."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.kills import PLACES
from tests.chaos.run import Tally, run_all
from tests.chaos.scenarios import SCENARIOS
from tests.s3 import environment, s3_process

SEED = "WATERSMEET_CHAOS_SEED"
# Eighty columns, rich's guess for a pipe, would cut the tables to pieces.
WIDTH = 140
_REPEAT = "scripts/run --without-java python -m tests.chaos"

# A unit may count nothing: its life may not come by the place of its kill. If none of many does, that is a fault.
LEAST_UNITS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    wanted = set(options.only) if options.only else {scenario.name for scenario in SCENARIOS}
    tallies = [
        Tally(scenario, getattr(options, scenario.name.replace("-", "_")))
        for scenario in SCENARIOS
        if scenario.name in wanted
    ]
    console.print(f"chaos with seed {options.seed}, {options.jobs} process(es) at a time")
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-chaos-", dir=_scratch()) as folder,
        s3_process() as endpoint,
        Progress(
            TextColumn("{task.description:12}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=console,
            # A thread that draws would be lost in the forks.
            auto_refresh=False,
            disable=not console.is_terminal,
        ) as progress,
    ):
        # For this process and its children.
        os.environ.update(environment(endpoint))
        bars = {
            tally.scenario.name: progress.add_task(tally.scenario.name, total=tally.target)
            for tally in tallies
        }
        run_all(
            tallies,
            seed=options.seed,
            jobs=options.jobs,
            folder=Path(folder),
            seconds=options.seconds,
            unit=options.unit,
            most_failures=options.failures,
            cases=options.cases,
            report=lambda: _show(progress, tallies, bars),
        )
    _conclude(console, tallies, options, time.monotonic() - began)
    failed = any(tally.failures for tally in tallies)
    if options.unit is None and not failed:
        failed = _incomplete(console, tallies) if options.seconds is None else _idle(console, tallies)
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    # Not the clock's last digits alone: two runs that begin together shall differ.
    default_seed = int(os.environ.get(SEED) or int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--seed", type=int, default=default_seed, help=f"default: ${SEED}, or a random one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="units that run at a time")
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever was reached")
    parser.add_argument(
        "--only", action="append", choices=[s.name for s in SCENARIOS], help="may be repeated"
    )
    parser.add_argument("--cases", default="", help="lives of the cases whose names begin so, such as hub")
    parser.add_argument("--unit", type=int, help="run this unit of each scenario, and no other")
    parser.add_argument("--failures", type=int, default=1, help="go on until this many units have failed")
    for scenario in SCENARIOS:
        parser.add_argument(
            f"--{scenario.name}", type=int, default=scenario.target, help=f"{scenario.says} (%(default)s)"
        )
    return parser.parse_args(arguments)


def _scratch() -> str | None:
    """Memory, where there is some: thousands of small files are made and removed."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _show(progress: Progress, tallies: Sequence[Tally], bars: dict[str, TaskID]) -> None:
    for tally in tallies:
        progress.update(bars[tally.scenario.name], completed=tally.count)
    progress.refresh()


def _conclude(
    console: Console, tallies: Sequence[Tally], options: argparse.Namespace, seconds: float
) -> None:
    seed = options.seed
    for tally in tallies:
        for index, text in tally.failures:
            name = tally.scenario.name
            console.print(f"[bold red]{name}, unit {index}[/]: {escape(text)}")
            command = f"{_REPEAT} --seed {seed} --only {name} --unit {index}"
            if options.cases:
                command += f" --cases {options.cases}"
            console.print(f"again: {shlex.join(shlex.split(command))}", highlight=False)
    shown = Table(
        "scenario",
        "what",
        "done",
        "counted",
        "failed",
        "seconds",
        title=f"chaos, seed {seed}, {seconds:.0f} s",
    )
    for tally in tallies:
        counted = ", ".join(
            f"{count} {what}" for what, count in sorted(tally.counts.items()) if not what.startswith("at ")
        )
        shown.add_row(
            tally.scenario.name,
            tally.scenario.says,
            f"{tally.count}/{tally.target}",
            counted,
            str(len(tally.failures)),
            f"{tally.seconds:.0f}",
        )
    console.print(shown)
    _show_places(console, tallies)


def _show_places(console: Console, tallies: Sequence[Tally]) -> None:
    for tally in tallies:
        if tally.scenario.name == "kills" and tally.count:
            hit = {place: tally.counts[f"at {place}"] for place in PLACES}
            least = sorted(hit.items(), key=lambda item: item[1])[:6]
            console.print(
                f"kills at {sum(map(bool, hit.values()))} of {len(PLACES)} places; fewest: "
                + ", ".join(f"{place} {count}" for place, count in least)
            )


def _incomplete(console: Console, tallies: Sequence[Tally]) -> bool:
    """A place that no kill has hit, or a target that was not reached, is a failure of a full run."""
    problems = [f"{t.scenario.name}: {t.count} of {t.target}" for t in tallies if t.count < t.target]
    for tally in tallies:
        if tally.scenario.name == "kills" and tally.target >= tally.scenario.target:
            problems += [f"no kill at {place}" for place in PLACES if not tally.counts[f"at {place}"]]
    for problem in problems:
        console.print(f"[bold red]incomplete[/]: {problem}")
    return bool(problems)


def _idle(console: Console, tallies: Sequence[Tally]) -> bool:
    """A scenario that ran and did nothing is a failure, also of a short run."""
    idle = [tally.scenario.name for tally in tallies if tally.units >= LEAST_UNITS and not tally.count]
    for name in idle:
        console.print(f"[bold red]idle[/]: {name} ran and counted nothing")
    return bool(idle)


if __name__ == "__main__":
    sys.exit(main())
