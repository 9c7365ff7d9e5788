"""Run a job: prepare it (nothing is written), start it, follow it until it ends or is told to stop.

Stopping interrupts the current batch. Nothing is lost: Spark repeats the batch at the next start, and the join
continues from the state of the batch before.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Event

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import WatersmeetError
from watersmeet.jobs.arrived import count_rows_in
from watersmeet.jobs.failure import QueryError, plain_message
from watersmeet.jobs.frames import join_job, read_inputs, start_query
from watersmeet.jobs.model import Job, Source
from watersmeet.jobs.preflight import (
    Operators,
    check_beats,
    check_sink,
    check_state,
    find_checkpoint,
    operators_of,
    storage_of,
)
from watersmeet.jobs.progress import Batches, read_new
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.log.files import open_files
from watersmeet.log.status import JoinStatus, join_status
from watersmeet.model.signature import JoinSignature
from watersmeet.spark.file_frames import OpenInputs
from watersmeet.tables.spec import Table

# The longest time before a stop request is noticed.
_NOTICE_S = 0.2
# Interval of reports to the observer: as often as a person can read a line.
TICK_S = 1.0

Observer = Callable[[list[Batches], JoinStatus | None], None]


@dataclass(frozen=True)
class Prepared:
    """A job whose inputs, join and state have been checked."""

    job: Job
    inputs: OpenInputs
    joined: DataFrame
    operators: Operators
    checkpoint: Checkpoint | None

    @property
    def signature(self) -> JoinSignature:
        return self.operators.main.signature

    def columns(self, name: str) -> list[str]:
        """The columns of an input that is not a table, with their types."""
        frame = self.inputs[name]
        assert not isinstance(frame, Table), f"{name} is a table"
        return [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema]


def prepare(spark: SparkSession, job: Job, env: Mapping[str, str]) -> Prepared:
    """Build the join and check it against the state. All refusals of the library are raised here."""
    checkpoint = find_checkpoint(job)
    if checkpoint is not None:
        check_beats(job, checkpoint)
        check_sink(job, checkpoint)
    inputs = read_inputs(spark, job, env)
    plan, joined = join_job(job, inputs)
    operators = operators_of(plan)
    if checkpoint is not None:
        check_state(spark, job, operators, checkpoint)
    return Prepared(job, inputs, joined, operators, checkpoint)


class Followed:
    """A started query, whose batches are reported as they end."""

    def __init__(self, query: StreamingQuery):
        self.query = query
        self._seen = -1

    def new_batches(self) -> list[Batches]:
        """The batches that ended since the last call."""
        with query_errors():
            new = read_new(self.query.recentProgress, after=self._seen)
        if new:
            self._seen = new[-1].last
        return new

    def stop(self) -> None:
        """Stop the query and ignore its errors while it stops."""
        with query_errors():
            self.query.stop()

    def watch(self, report: Callable[[], None], stop: Event, until_s: float = math.inf) -> None:
        """Report until the query ends by itself, `stop` is set or the monotonic clock reaches `until_s`.

        Raise QueryError if the query fails.
        """
        while not self._ended_within(TICK_S, stop) and not stop.is_set() and time.monotonic() < until_s:
            report()
        report()

    def _ended_within(self, seconds: float, stop: Event) -> bool:
        deadline = time.monotonic() + seconds
        with query_errors():
            while time.monotonic() < deadline and not stop.is_set():
                if self.query.awaitTermination(_NOTICE_S):  # type: ignore[arg-type]
                    return True
        return False


class Running(Followed):
    """A started job."""

    def __init__(self, prepared: Prepared, env: Mapping[str, str]):
        self.job = prepared.job
        self._files = open_files(storage_of(self.job, env))
        self._shown = prepared.operators.main.name
        self._stages = prepared.operators.specs
        self._native = any(isinstance(one, Source) and one.native for one in self.job.inputs)
        super().__init__(start_query(prepared.job, prepared.joined, env))

    def follow(self, observer: Observer, stop: Event, until_s: float = math.inf) -> None:
        """Tell the observer about batches; see `watch`."""
        self.watch(lambda: self.report(observer), stop, until_s)

    def report(self, observer: Observer) -> None:
        """Tell the observer about the batches that ended since the last report."""
        new = self.new_batches()
        if new and self._native:
            with contextlib.suppress(OSError, WatersmeetError):
                new = count_rows_in(self._files, self._stages, str(self.query.id), new)
        observer(new, self.state())

    def catch_up(self, observer: Observer) -> None:
        """Wait until all present input is joined."""
        with query_errors():
            self.query.processAllAvailable()
        self.report(observer)

    def state(self) -> JoinStatus | None:
        """The status of the operator that stands for the join; None if it cannot be read from here."""
        try:
            return join_status(self._files, self._shown, str(self.query.id), now_s=time.time(), verify=False)
        except (OSError, WatersmeetError):
            return None


@contextlib.contextmanager
def query_errors() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise QueryError(plain_message(error)) from error
    except (Py4JError, ConnectionError) as error:
        raise QueryError(
            "Spark's process is gone; it may have run out of memory (spark.driver.memory)"
        ) from error
