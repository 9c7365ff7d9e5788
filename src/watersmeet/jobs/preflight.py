"""Check before the first batch that the state belongs to this checkpoint and was written by this join.

The join's tasks make the same checks (`log/parents.py`, `plan/compatible.py`) when the first batch runs. Here the
driver makes them, so that a changed predicate, key or schema is refused before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.config import read_settings, session_conf
from watersmeet.credentials import hide
from watersmeet.engine.choose import Choice
from watersmeet.engine.spec import JoinSpec, Settings
from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.jobs.model import HubJob, Job, Sink, Source
from watersmeet.jobs.secrets import expand_all
from watersmeet.log.checkpoint import Checkpoint, read_checkpoint
from watersmeet.log.files import open_files
from watersmeet.log.folders import SINK_LOG
from watersmeet.log.parents import find_parent
from watersmeet.log.starts import next_number
from watersmeet.log.storage import Storage
from watersmeet.model.facts import BatchId, Start
from watersmeet.plan.compatible import check_compatible
from watersmeet.spark.operator import PlannedJoin

# Spark may reach this place through Hadoop while `pyarrow.fs` does not know it.
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")


def storage_of(job: Job | HubJob, env: Mapping[str, str]) -> Storage:
    """The location of the job's state, opened as its file says."""
    given = expand_all(job.spark, env, f"{job.file.name}: [spark]")
    return read_settings(given.get, state=job.state, tasks=1).storage


@dataclass(frozen=True, slots=True)
class Operators:
    """What the tasks of a job run: an operator for each stage, in the order in which they run.

    `main` stands for the whole join: the join of the streams, or the last lookup. `choice` is its strategy.
    """

    specs: tuple[JoinSpec, ...]
    main: JoinSpec
    choice: Choice


def operators_of(plan: PlannedJoin) -> Operators:
    specs = tuple(built.operator_spec for built in plan.built)
    return Operators(specs, specs[plan.chain.main], plan.built[plan.chain.main].choice)


def find_checkpoint(job: Job | HubJob) -> Checkpoint | None:
    """The query's checkpoint; None if it cannot be read from here, which leaves the check to the tasks."""
    try:
        return read_checkpoint(job.checkpoint)
    except (OSError, ValueError, WatersmeetError):
        if _REMOTE.match(job.checkpoint):
            return None
        raise


def check_beats(job: Job, checkpoint: Checkpoint) -> None:
    """Refuse to add the source that starts batches while the streams are idle, or to drop it: Spark cannot."""
    streams = sum(isinstance(source, Source) for source in job.inputs)
    if checkpoint.sources != streams + (not job.beats):
        return
    given = "pay_within" if job.join.pay_within is not None or job.join.max_delay is None else "max_delay"
    said = "without" if job.beats else "with"
    names = given if job.beats else "pay_within or max_delay"
    raise ConfigError(
        f"{job.file.name}: [join]: the checkpoint {hide(job.checkpoint)} was begun {said} {names}, which needs a source "
        f"beside the inputs, and Spark cannot {'add' if job.beats else 'drop'} one. "
        f"{'Leave it out' if job.beats else 'Put it back'}, or start with a new checkpoint"
    )


def check_sink(job: Job | HubJob, checkpoint: Checkpoint) -> None:
    """Refuse a new checkpoint for a folder in which Spark's file sink has the batches of another one.

    Spark would skip as many batches without running the join: their rows would be in no result and in no state. Only
    local folders are looked into. Before the first batch of this checkpoint is planned, nothing there can be of it.
    """
    if not isinstance(job.sink, Sink) or not job.sink.path or checkpoint.query is not None:
        return
    log = Path(job.sink.path) / SINK_LOG
    if log.is_dir() and any(name.name.partition(".")[0].isdigit() for name in log.iterdir()):
        raise ConfigError(
            f"{job.file.name}: [sink]: {job.sink.path} has the results of another checkpoint, and Spark would skip as "
            f"many batches of the new one, {hide(job.checkpoint)}. Write to a new folder, or put the checkpoint back"
        )


def check_state(spark: SparkSession, job: Job, operators: Operators, checkpoint: Checkpoint) -> None:
    """Raise StateMissing, StateBehind, StateMismatch or CorruptFile if the query could not continue."""
    if checkpoint.query is None:
        return
    settings = read_settings(session_conf(spark), state=job.state, tasks=job.join.tasks)
    for spec in operators.specs:
        check_operator(settings, spec, checkpoint.query, checkpoint.next_batch)


def check_operator(settings: Settings, spec: JoinSpec, query: str, next_batch: int) -> None:
    """Raise as `check_state`, for one operator."""
    files = open_files(settings.storage).under(spec.name, query)
    # The run gets its id at the start. It is a new one, so no manifest can carry it.
    batch = BatchId(query, run="", number=next_batch)
    start = Start(next_number(files), batch.run, batch.number)
    parent = find_parent(files, batch, start, settings.accept_gap)
    if parent is not None:
        check_compatible(parent.signature, spec.signature)
