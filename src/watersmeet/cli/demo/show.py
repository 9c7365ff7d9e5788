"""The steps of the demo: start the market, join, watch, stop the market, join the rest, check.

The join is an ordinary job file, run by the same runner as `watersmeet run`: the demo shows what a user gets.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from watersmeet.cli.demo.oracle import Verdict, compare
from watersmeet.cli.demo.panel import DemoPanel
from watersmeet.cli.demo.producer import Producer
from watersmeet.cli.demo.sink import ResultFiles
from watersmeet.cli.figures import batches, clock
from watersmeet.cli.figures import seconds as in_seconds
from watersmeet.cli.job import prepared_job
from watersmeet.cli.meters import Meters, state_words
from watersmeet.cli.outcome import say, say_error
from watersmeet.cli.plans import plan_table
from watersmeet.cli.run_panel import FIRST_ROWS
from watersmeet.cli.signals import StopRequest
from watersmeet.cli.views import View, choose_view, is_watched
from watersmeet.errors import UsageError, WatersmeetError
from watersmeet.jobs.failure import QueryError
from watersmeet.jobs.file import parse_job
from watersmeet.jobs.model import Job
from watersmeet.jobs.progress import Batches
from watersmeet.jobs.runner import Running
from watersmeet.log.status import JoinStatus
from watersmeet.model.figures import count

_TITLES = {"b": "buys", "s": "sells"}

# Buys and sells of a first batch, in which Spark starts its Python workers and compiles: it takes seconds.
_WARM_UP_ROWS = (100, 200)

_JOB = """\
# Buy offers, and the sell offers of the same lot that ask for no more.

[inputs.b]
format = "parquet"
path = "buys"
schema = "id BIGINT, lot STRING, px DOUBLE, qty BIGINT"
{native}
[inputs.s]
format = "parquet"
path = "sells"
schema = "id BIGINT, lot STRING, px DOUBLE, qty BIGINT"
{native}

[join]
on = "b.lot = s.lot AND s.px <= b.px"
select = ["b.lot", "b.id AS buy", "s.id AS sell", "s.px", "(b.px - s.px) * s.qty AS saved"]
name = "deals"
strategy = "hypercube"   # a few lots have most of the offers: all tasks share them
tasks = 4

[sink]
format = "parquet"
path = "results"

[job]
name = "demo"
checkpoint = "checkpoint"

[spark]
spark.master = "local[2]"
spark.driver.memory = "1g"
spark.ui.enabled = false
"""


_NATIVE = "native = true   # the tasks of the join read the files themselves\n"


def _job_text() -> str:
    """The job file. Before Spark 4.2 the JVM has to read the files."""
    is_new = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
    return _JOB.format(native=_NATIVE if is_new else "")


@dataclass
class _Parts:
    folder: Path
    job: Job
    producer: Producer
    meters: Meters
    panel: DemoPanel
    results: ResultFiles


def show(*, seconds: int, plain: bool, keep: Path | None, seed: int, stop: StopRequest) -> bool:
    """Run the demo. True if every result was right."""
    console = Console(highlight=False)
    with _folder(keep) as folder:
        parts = _prepare(folder, seconds, seed)
        parts.producer.write(*_WARM_UP_ROWS)
        with prepared_job(parts.job, folder / "spark.log", console, plain=plain) as prepared:
            stop.arm()
            with choose_view(parts.panel, console, plain=plain) as view:
                try:
                    _run(parts, Running(prepared, os.environ), view, stop)
                except QueryError as error:
                    raise QueryError(f"{error}\nwith --keep DIR Spark's log is kept in DIR") from error
                verdict = _check(parts)
                parts.panel.phase = "done"
        say(console, _figures(parts))
        if not is_watched(console, plain=plain):
            _print_heaviest(console, parts.meters.state)
        _pronounce(console, verdict)
        if keep is not None:
            say(console, f"kept in {folder}")
        return verdict.equal


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The directory for everything: the one to keep, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="watersmeet-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep {keep} exists already; give a new directory")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


def _prepare(folder: Path, seconds: int, seed: int) -> _Parts:
    file = folder / "job.toml"
    text = _job_text()
    file.write_text(text)
    job = parse_job(text, file, os.environ)
    meters = Meters()
    return _Parts(
        folder=folder,
        job=job,
        producer=Producer(folder, seed),
        meters=meters,
        panel=DemoPanel(job.join, _TITLES, seconds, meters),
        results=ResultFiles(folder / "results"),
    )


def _run(parts: _Parts, running: Running, view: View, stop: StopRequest) -> None:
    def observe(new: Sequence[Batches], state: JoinStatus | None) -> None:
        parts.meters.add(new, state)
        view.observe(new, parts.meters)

    running.catch_up(observe)
    parts.panel.phase = None
    parts.meters.started_s = time.monotonic()
    parts.producer.start()
    try:
        running.follow(observe, stop.event, until_s=time.monotonic() + parts.panel.seconds)
    finally:
        parts.producer.stop()
    if parts.producer.error is not None:
        raise WatersmeetError(f"the market's feed failed: {parts.producer.error}") from parts.producer.error
    parts.panel.phase = "joining the rest"
    running.catch_up(observe)
    running.stop()
    parts.meters.end()
    parts.panel.phase = "checking"


def _check(parts: _Parts) -> Verdict:
    parts.results.update()
    inputs = {name: parts.folder / title for name, title in _TITLES.items()}
    join = parts.job.join
    return compare(inputs, str(join.on), join.select or (), list(parts.results.committed))


def _figures(parts: _Parts) -> str:
    meters, rows = parts.meters, parts.producer.rows
    # The first batch is the warm-up.
    times = [batch.ms for batch in meters.recent if batch.first > 0] or [0]
    return (
        f"{clock(meters.elapsed_s)}: {count(rows['buys'])} buys and {count(rows['sells'])} sells in, "
        f"{count(meters.rows_out)} results out, {batches(meters.batches)}\n"
        f"a batch took {in_seconds(statistics.median(times))} (median), {in_seconds(max(times))} at most; "
        f"{state_words(meters.state)}"
    )


def _print_heaviest(console: Console, state: JoinStatus | None) -> None:
    """Print the heaviest keys without a panel, which would keep showing them."""
    if state is not None and state.shown is not None:
        say(console, state.shown.summary)
        ascii_only = console.options.ascii_only
        console.print(plan_table(state.shown, FIRST_ROWS, console.width, ascii_only=ascii_only))


def _pronounce(console: Console, verdict: Verdict) -> None:
    if verdict.equal:
        say(console, (f"{count(verdict.results)} results, all equal to DuckDB's", "green"))
        return
    for example in verdict.examples:
        say(console, example)
    say_error(
        f"{count(verdict.results)} results differ from DuckDB's: "
        f"{count(verdict.missing)} are missing, {count(verdict.unexpected)} should not be there"
    )
