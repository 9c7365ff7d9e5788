"""A hub as a DataFrame transform: streams and commands in, the answers of all queries out.

    stream R ── columns, time of the batch ── mapInArrow(ingest) ─┐
    stream S ── columns, time of the batch ── mapInArrow(ingest) ─┼─ repartitionById ── mapInArrow(answer)
    commands ── op, id, sql ───────────────── mapInArrow(ingest) ─┘

The tasks are those of a join. The time of a batch is Spark's own, which the offset log keeps: a replay finds the same
one again.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.config import read_session, session_conf
from watersmeet.engine.hub import HubOptions, build_hub
from watersmeet.engine.hub_ingest import BATCH_TIME
from watersmeet.engine.spec import JoinSpec
from watersmeet.engine.together import share_tasks
from watersmeet.errors import UsageError
from watersmeet.hubs.stored import COMMAND_COLUMNS, COMMANDS
from watersmeet.log.probe import probe
from watersmeet.predicate.write import quoted
from watersmeet.spark.frames import schema_of, stored_rows, stored_together
from watersmeet.spark.tasks import JoinTask

_OUT: Final = "query string, event string, batch bigint, oldest timestamp, newest timestamp, answer string, message string"


def hub_answers(
    streams: Mapping[str, DataFrame], commands: DataFrame | None, options: HubOptions
) -> DataFrame:
    """The answers of many queries over some streams, and what becomes of commands, as one streaming DataFrame."""
    check_streams(streams, commands)
    spec = plan_hub(streams, options)
    probe(spec.settings.storage)
    arriving = {name: _timed(frame) for name, frame in streams.items()}
    if commands is not None:
        arriving[COMMANDS] = commands.select(
            *(F.col(column).cast("string").alias(column) for column in COMMAND_COLUMNS)
        )
    if share_tasks(len(arriving), spec.settings.tasks):
        told = stored_together(arriving, spec)
    else:
        each = (stored_rows(frame, name, spec) for name, frame in arriving.items())
        told = functools.reduce(DataFrame.unionByName, each)
    placed = told.repartitionById(spec.settings.tasks, F.col("task"))
    return placed.mapInArrow(JoinTask(spec), _OUT)


def plan_hub(streams: Mapping[str, DataFrame], options: HubOptions) -> JoinSpec:
    """The hub as its tasks get it. Arguments that do not fit are refused."""
    session = read_session(
        session_conf(next(iter(streams.values())).sparkSession),
        state=options.state,
        tasks=options.tasks,
        options=options.options,
    )
    schemas = {name: schema_of(name, frame) for name, frame in streams.items()}
    return build_hub(options, schemas, session, instance=uuid.uuid4().hex, clock=time.time)


def check_streams(streams: Mapping[str, DataFrame], commands: DataFrame | None) -> None:
    """Refuse what is no streaming DataFrame, and commands without their columns."""
    if not isinstance(streams, Mapping) or not streams:
        raise UsageError(
            'a hub needs streams by name: write for example wm.hub({"R": r, "S": s}, queries={...})'
        )
    given = dict(streams) if commands is None else {**streams, "commands": commands}
    for name, frame in given.items():
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(f"{name} is a {type(frame).__name__}, not a Spark DataFrame")
        if not frame.isStreaming:
            raise UsageError(f"{name} is not streaming: a hub reads streams. Read it with spark.readStream")
    if commands is not None:
        missing = [column for column in COMMAND_COLUMNS if column not in commands.columns]
        if missing:
            raise UsageError(
                f"the commands have no column {missing[0]}: they need the columns {', '.join(COMMAND_COLUMNS)}"
            )


def _timed(frame: DataFrame) -> DataFrame:
    """The columns of a stream, and the time of the batch."""
    columns = [F.col(quoted(column)) for column in frame.columns]
    return frame.select(*columns, F.current_timestamp().alias(BATCH_TIME))
