"""Run a job on the terminal. This module imports Spark, so the command modules import it only when needed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from watersmeet.cli.explain import explain
from watersmeet.cli.figures import batches, clock
from watersmeet.cli.meters import Meters
from watersmeet.cli.outcome import say
from watersmeet.cli.run_panel import RunPanel
from watersmeet.cli.signals import StopRequest
from watersmeet.cli.views import View, choose_view, is_watched
from watersmeet.credentials import hide
from watersmeet.jobs.failure import QueryError
from watersmeet.jobs.model import HubJob, Job
from watersmeet.jobs.preflight import storage_of
from watersmeet.jobs.progress import Batches
from watersmeet.jobs.runner import Prepared, Running, prepare
from watersmeet.jobs.secrets import expand_all
from watersmeet.jobs.session import spark_session
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.status import JoinStatus
from watersmeet.model.figures import count

# The JVM of this sink prints the results itself, which would break a live display.
_PRINTING_SINK = "console"


def check_job(job: Job) -> None:
    """Check a job as `run_job` does, and print what it would do."""
    console = Console(highlight=False)
    with (
        tempfile.TemporaryDirectory(prefix="watersmeet-") as folder,
        prepared_job(job, Path(folder) / "spark.log", console, plain=False) as prepared,
    ):
        explain(console, prepared)


def run_job(job: Job, stop: StopRequest, *, plain: bool) -> None:
    """Run a job until it ends or is stopped."""
    console = Console(highlight=False)
    log = log_file(job)
    plain = plain or job.sink.format.lower() == _PRINTING_SINK
    meters = Meters()
    with prepared_job(job, log, console, plain=plain) as prepared:
        stop.arm()
        with choose_view(RunPanel(job, meters), console, plain=plain) as view:
            view.say(_first_words(prepared))
            try:
                follow(Running(prepared, os.environ), view, meters, stop)
            except QueryError as error:
                raise with_log(error, log) from error
    say(console, _last_words(meters, stopped=stop.event.is_set()))


def with_log(error: QueryError, log: Path) -> QueryError:
    """Add the log file to the message, if there is one: a session that was there before us writes elsewhere."""
    return QueryError(f"{error}\nSpark's log: {log}") if log.exists() else error


def follow(running: Running, view: View, meters: Meters, stop: StopRequest) -> None:
    """Show the query until it ends; stop it when asked to."""

    def observe(new: Sequence[Batches], state: JoinStatus | None) -> None:
        meters.add(new, state)
        view.observe(new, meters)

    running.follow(observe, stop.event)
    if stop.event.is_set():
        view.say("stopping ...")
        running.stop()
    meters.end()


@contextlib.contextmanager
def prepared_job(job: Job, log: Path, console: Console, *, plain: bool) -> Iterator[Prepared]:
    """The checked job, in a Spark session that ends with the block. A terminal shows that Spark is starting."""
    settings = expand_all(job.spark, os.environ, f"{job.file.name}: [spark]")
    show_stdout = job.sink.format.lower() == _PRINTING_SINK
    waiting = console.status("starting Spark ...") if is_watched(console, plain=plain) else None
    with contextlib.ExitStack() as stack:
        with waiting or contextlib.nullcontext():
            session = stack.enter_context(spark_session(job.name, settings, log, show_stdout=show_stdout))
            prepared = prepare(session.spark, job, os.environ)
        yield prepared


def log_file(job: Job | HubJob) -> Path:
    """The file for Spark's own messages, beside the state if that is local. The previous start's log is kept too."""
    files = open_files(storage_of(job, os.environ))
    folder = files.root if isinstance(files, LocalFiles) else Path(tempfile.mkdtemp(prefix="watersmeet-"))
    files.make()
    log = folder / f"spark-{re.sub(r'[^A-Za-z0-9_.-]', '_', job.name)}.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    return log


def _first_words(prepared: Prepared) -> str:
    job = prepared.job
    state, checkpoint = hide(job.state), hide(job.checkpoint)
    if prepared.checkpoint is None:
        return f"{job.name}: starts from the checkpoint {checkpoint}, state in {state}"
    if prepared.checkpoint.fresh:
        return f"{job.name}: starts from the beginning, state in {state}"
    return f"{job.name}: continues with batch {prepared.checkpoint.next_batch}, state in {state}"


def _last_words(meters: Meters, *, stopped: bool) -> str:
    done = (
        f"{count(meters.rows_in)} rows in, {count(meters.rows_out)} out, "
        f"{batches(meters.batches)} in {clock(meters.elapsed_s)}"
    )
    if stopped:
        return f"stopped: {done}; the next start continues from there"
    return f"done: {done}; all present input is joined"
