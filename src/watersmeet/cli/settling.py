"""Settle a job on the terminal. This module imports Spark, so the command imports it only when needed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from watersmeet.cli.figures import moment
from watersmeet.cli.outcome import say
from watersmeet.cli.views import is_watched
from watersmeet.jobs.model import Job
from watersmeet.jobs.preflight import storage_of
from watersmeet.jobs.secrets import expand_all
from watersmeet.jobs.session import spark_session
from watersmeet.jobs.settle import Debtor, Owing, debtor_of, owing_of, settle_debtor, stop_jobs
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.model.figures import count

# How often the display looks what Spark has done, and how often plain lines say so.
_LOOK_S = 0.5
_LINE_S = 10.0

# Spark cancels its tasks within a second or two.
_STOP_S = 10.0

T = TypeVar("T")


def print_debts(job: Job, *, plain: bool) -> None:
    """Print how much is owed. Nothing is changed."""
    console = Console(highlight=False)
    with _debtor(job, console, plain=plain) as debtor:
        owing = _unless_stopped(debtor, lambda: owing_of(debtor))
    say(console, f"{job.name}: after batch {owing.batch} {_figures(owing)}")
    if owing.uncommitted is not None:
        say(
            console,
            f"Spark has not committed batch {owing.uncommitted}, which the state has: it is not counted, and must be "
            "finished before anything is settled (watersmeet run JOB.TOML --once)",
        )
    if owing.lost:
        say(console, ("damage: ", "bold red"), owing.lost)


def settle_job(job: Job, to: str, *, accept_loss: bool, plain: bool) -> None:
    console = Console(highlight=False)
    with _debtor(job, console, plain=plain) as debtor:
        outcome = _unless_stopped(
            debtor,
            lambda: settle_debtor(
                debtor,
                job,
                to,
                os.environ,
                accept_loss=accept_loss,
                say=lambda text: _say_step(console, text),
                watch=lambda write, shares, paid: _watch(write, shares, paid, console, plain=plain),
            ),
        )
    done = outcome.settlement
    where = f"{count(done.rows)} results in {done.folder}"
    if outcome.before:
        say(
            console,
            f"{job.name}: nothing is owed. Batch {done.batch} was settled before, {moment(done.at_ms)}: {where}",
        )
        return
    if outcome.lost:
        say(console, ("lost: ", "bold red"), outcome.lost)
    say(console, f"{job.name}: settled after batch {done.batch}: {where}")


def _figures(owing: Owing) -> str:
    if not owing.rows:
        return "nothing is owed"
    return f"{count(owing.rows)} rows owe results, at most {count(owing.most_results)}"


def _say_step(console: Console, text: str) -> None:
    say(console, (text, "dim"))
    console.file.flush()


class Aborted(Exception):
    """Ctrl-C, after which Spark still ends as it should: after a KeyboardInterrupt its process is killed, and complains."""


@contextlib.contextmanager
def _debtor(job: Job, console: Console, *, plain: bool) -> Iterator[Debtor]:
    """The join of a job, in a Spark session that ends with the block."""
    settings = expand_all(job.spark, os.environ, f"{job.file.name}: [spark]")
    waiting = console.status("starting Spark ...") if is_watched(console, plain=plain) else None
    with contextlib.ExitStack() as stack:
        with waiting or contextlib.nullcontext():
            session = stack.enter_context(spark_session(job.name, settings, _log_file(job)))
            debtor = debtor_of(session.spark, job, os.environ)
        yield debtor


def _unless_stopped(debtor: Debtor, function: Callable[[], T]) -> T:
    """Call a function in a thread, so that Ctrl-C does not tear apart what this process and Spark say to each other."""
    found: list[T] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            found.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_S)
    except KeyboardInterrupt:
        stop_jobs(debtor.spark)
        thread.join(_STOP_S)
        raise Aborted from None
    if failed:
        raise failed[0]
    return found[0]


def _log_file(job: Job) -> Path:
    """The file for Spark's own messages, beside the state if that is a local folder."""
    files = open_files(storage_of(job, os.environ))
    beside = isinstance(files, LocalFiles) and files.root.is_dir()
    folder = (
        files.root
        if isinstance(files, LocalFiles) and beside
        else Path(tempfile.mkdtemp(prefix="watersmeet-"))
    )
    return folder / f"spark-{re.sub(r'[^A-Za-z0-9_.-]', '_', job.name)}-settle.log"


def _watch(
    write: Callable[[], None], shares: int, paid: Callable[[], int], console: Console, *, plain: bool
) -> None:
    """Run the write, and show how many shares of the debts are paid."""
    written, ended = threading.Event(), threading.Event()
    follow = _follow_live if is_watched(console, plain=plain) else _follow_in_lines
    follower = threading.Thread(target=follow, args=(shares, paid, written, ended, console), daemon=True)
    follower.start()
    try:
        write()
        written.set()
    finally:
        ended.set()
        follower.join()


def _follow_live(
    shares: int,
    paid: Callable[[], int],
    written: threading.Event,
    ended: threading.Event,
    console: Console,
) -> None:
    columns = (
        TextColumn("paying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("shares"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("paying", total=shares)
        while not ended.wait(_LOOK_S):
            progress.update(task, completed=paid())
        if written.is_set():
            progress.update(task, completed=shares)


def _follow_in_lines(
    shares: int,
    paid: Callable[[], int],
    written: threading.Event,
    ended: threading.Event,
    console: Console,
) -> None:
    while not ended.wait(_LINE_S):
        _say_step(console, f"paid {paid()} of {shares} shares")
