"""Start the runs one after the other, each in a process of its own, and show how far they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from bench.data import input_dir
from bench.memory import await_quiet
from bench.report import NOISY_SHARE
from bench.workloads import FIRST_COUNTED, by_name

ROOT = Path(__file__).resolve().parent.parent
LOG_TAIL_LINES = 3
# Kinds of jobs. All but the first two have a module of their own.
TIMED, VERIFY, BALANCE, PAGES, ORDERS = "timed", "verify", "balance", "pages", "orders"
DRIVEN, FILLED = "driven", "filled"
COUNTING = {
    BALANCE: "bench.work",
    PAGES: "bench.pages",
    ORDERS: "bench.orders",
    DRIVEN: "bench.driven",
    FILLED: "bench.backlog",
}
# A machine less busy than this is as quiet as a shared one gets.
QUIET_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Job:
    """One process to start: a competitor on a workload, timed, verified, or counted without Spark."""

    workload: str
    competitor: str
    repetition: int = 0
    kind: str = TIMED

    @property
    def name(self) -> str:
        kind = f"run{self.repetition}" if self.kind == TIMED else self.kind
        return f"{self.workload}.{self.competitor}.{kind}"

    @property
    def command(self) -> list[str]:
        module = COUNTING.get(self.kind, "bench.run")
        chosen = ["--competitor", self.competitor, "--workload", self.workload]
        return [sys.executable, "-m", module, *chosen, *(["--verify"] if self.kind == VERIFY else [])]


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every job alike.

    A noisy run is repeated whatever its figure and whoever's it is, and of the attempts the one
    with the least noise is kept, not the fastest: so repeating favours nobody.
    """

    patience_s: int = 0
    retries_if_noisy: int = 0
    conf: tuple[str, ...] = ()
    warm: bool = True
    configured: bool = True


def run_jobs(jobs: list[Job], home: Path, terms: Terms, console: Console) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        whole = progress.add_task("all runs", total=len(jobs), note="")
        for job in jobs:
            out = home / f"{job.name}.json"
            if not out.exists():
                task = progress.add_task(job.name, total=None, note="")
                found = run_until_quiet(job, out, terms, progress, task)
                out.write_text(json.dumps(found, indent=1))
                progress.update(task, total=1, completed=1, note=_brief(found))
            progress.advance(whole)


def run_until_quiet(job: Job, out: Path, terms: Terms, progress: Progress, task: TaskID) -> dict[str, Any]:
    """The least noisy of at most `retries_if_noisy` + 1 attempts; the first if it is quiet."""
    attempts: list[dict[str, Any]] = []
    while len(attempts) <= terms.retries_if_noisy:
        if terms.patience_s and job.kind == TIMED:
            progress.update(task, note="waiting for quiet")
            await_quiet(terms.patience_s, QUIET_SHARE)
        attempts.append(run_job(job, out, terms, progress, task))
        if _noise(attempts[-1]) <= NOISY_SHARE:
            break
    return min(attempts, key=_noise)


def _noise(found: dict[str, Any]) -> float:
    """Share of the machine that others had; only what is timed can be noisy."""
    return float(found["usage"]["foreign_cpu_share"]) if "usage" in found else 0.0


def run_job(job: Job, out: Path, terms: Terms, progress: Progress, task: TaskID) -> dict[str, Any]:
    """Start one process, follow it, return what it measured; a failure is a result of its own."""
    if job.kind != DRIVEN:
        input_dir(by_name(job.workload))
    log, draft = out.with_suffix(".log"), out.with_suffix(".draft")
    command = [*job.command, "--out", str(draft)]
    if job.kind not in COUNTING:
        command += [part for pair in terms.conf for part in ("--conf", pair)]
        command += [] if terms.warm else ["--no-warm"]
        command += [] if terms.configured else ["--plain"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                at = json.loads(line)
                note = f"batch {at['batch']}/{at['of']}"
                progress.update(task, total=at["of"], completed=at["batch"], note=note)
    if process.wait() == 0:
        found: dict[str, Any] = json.loads(draft.read_text())
        draft.unlink()
        return found
    reason = " ".join(log.read_text().splitlines()[-LOG_TAIL_LINES:])[-300:]
    return {"competitor": job.competitor, "workload": job.workload, "failed": f"{reason} (see {log})"}


def _brief(found: dict[str, Any]) -> str:
    if "failed" in found:
        return "[red]failed[/]"
    if "equal" in found:
        return "equal" if found["equal"] else "[red]results differ[/]"
    if "balance" in found:
        return ", ".join(f"{b['run']:.2f} at {tasks}" for tasks, b in found["balance"].items()) + " tasks"
    if "paging" in found:
        reads, stray = (sum(b[what] for b in found["paging"]) for what in ("reads", "stray"))
        return f"{reads:,} pages read, {stray:,} without a key of the batch"
    if "orders" in found:
        return f"{len(found['orders'])} runs"
    if "driven" in found:
        return f"{sum(one['seconds'] for one in found['driven']):.1f} s"
    if "filled" in found:
        return f"{found['filled']['seconds']:.1f} s"
    seconds = [b["seconds"] for b in found["batches"][FIRST_COUNTED:]]
    return f"{sum(seconds) / len(seconds):.3f} s per batch, others took {_noise(found):.0%}"
