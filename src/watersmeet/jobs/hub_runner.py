"""Run the job of a hub: prepare it, start it, and report its batches, queries and refused commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.config import read_settings, session_conf
from watersmeet.engine.hub_status import HubState
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.jobs.frames import complaints, read_streams, start_writing, triggered
from watersmeet.jobs.model import Delivery, HubJob
from watersmeet.jobs.preflight import check_operator, check_sink, find_checkpoint
from watersmeet.jobs.progress import METRIC, ROWS_OUT, Batches
from watersmeet.jobs.runner import Followed
from watersmeet.log.checkpoint import Checkpoint
from watersmeet.spark.hub import Hub, make_hub, plan_hub

HubObserver = Callable[[list[Batches], HubState | None], None]


@dataclass(frozen=True)
class PreparedHub:
    """A job whose streams, hub and state have been checked."""

    job: HubJob
    hub: Hub
    checkpoint: Checkpoint | None


def prepare_hub(spark: SparkSession, job: HubJob, env: Mapping[str, str]) -> PreparedHub:
    """Build the hub and check it against the state. All refusals of the library are raised here."""
    checkpoint = find_checkpoint(job)
    if checkpoint is not None:
        check_sink(job, checkpoint)
    streams = read_streams(spark, job, env)
    with complaints(f"{job.file.name}: [hub]"):
        hub = make_hub(streams, job.commands, job.hub)
        if isinstance(job.sink, Delivery):
            hub.deliver(job.sink.path, job.sink.format)
    if checkpoint is not None and checkpoint.query is not None:
        _check_sources(job, hub, checkpoint)
        settings = read_settings(session_conf(spark), state=job.state, tasks=job.hub.tasks)
        check_operator(settings, plan_hub(streams, job.hub), checkpoint.query, checkpoint.next_batch)
    return PreparedHub(job, hub, checkpoint)


def _check_sources(job: HubJob, hub: Hub, checkpoint: Checkpoint) -> None:
    """Refuse to add a stream or to drop one: Spark cannot."""
    sources = len(hub.streams) + (hub.commands is not None or hub.folder is not None)
    if checkpoint.sources not in (None, sources):
        raise ConfigError(
            f"{job.file.name}: the checkpoint was begun with {checkpoint.sources} sources, and now there are {sources}, "
            "with that of the commands. Spark cannot add or drop one: start with a new checkpoint"
        )


class RunningHub(Followed):
    """A started job of a hub."""

    def __init__(self, prepared: PreparedHub, env: Mapping[str, str]):
        self.job, self.hub = prepared.job, prepared.hub
        super().__init__(_start(prepared, env))

    def follow(self, observer: HubObserver, stop: Event) -> None:
        """Tell the observer about batches until the query ends or `stop` is set."""
        self.watch(lambda: self.report(observer), stop)

    def report(self, observer: HubObserver) -> None:
        new = self.new_batches()
        if new:
            observer(new, state_of(self.hub))


def state_of(hub: Hub) -> HubState | None:
    """The hub after its last batch; None before the first one, and if it cannot be read from here."""
    try:
        return hub.state()
    except (OSError, WatersmeetError):
        return None


def _start(prepared: PreparedHub, env: Mapping[str, str]) -> StreamingQuery:
    job, hub = prepared.job, prepared.hub
    counted: DataFrame = hub.answers().observe(METRIC, F.count_if(F.col("event") == "answer").alias(ROWS_OUT))
    if not isinstance(job.sink, Delivery):
        return start_writing(counted, job, job.sink, env)
    with complaints(f"{job.file.name}: [deliver]"):
        return triggered(counted, job).foreachBatch(hub.deliver(job.sink.path, job.sink.format)).start()
