"""A hub as a DataFrame transform: streams and commands in, the answers of all queries out.

    stream R ── columns, time of the batch ── mapInArrow(ingest) ─┐
    stream S ── columns, time of the batch ── mapInArrow(ingest) ─┼─ repartitionById ── mapInArrow(answer)
    commands ── op, id, sql, at ───────────── mapInArrow(ingest) ─┘

Commands are a stream like the others, or a folder of JSON lines (engine/hub_commands.py). Spark can neither add nor drop
a source of an existing checkpoint, so a hub without commands has a folder of its own from the beginning if its state is
in a directory.

The tasks are those of a join. The time of a batch is Spark's own, which the offset log keeps: a replay finds the same
one again.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.config import read_session, session_conf
from watersmeet.credentials import hide
from watersmeet.engine.hub import HUB, HubOptions, build_hub
from watersmeet.engine.hub_commands import (
    COMMAND_FIELDS,
    check_command,
    default_folder,
    make_folder,
    write_command,
)
from watersmeet.engine.hub_ingest import BATCH_TIME
from watersmeet.engine.hub_status import HubState, HubStatus, hub_status, open_hub
from watersmeet.engine.spec import JoinSpec, Settings
from watersmeet.engine.together import share_tasks
from watersmeet.errors import PredicateError, UsageError
from watersmeet.hubs.catalogue import ADD, REMOVE
from watersmeet.hubs.stored import COMMANDS
from watersmeet.hubs.streams import HubStreams
from watersmeet.hubs.templates import TemplateReader
from watersmeet.log.probe import probe
from watersmeet.log.storage import SCHEME, Storage
from watersmeet.predicate.write import quoted
from watersmeet.spark.foreach_batch import ForeachBatch, is_connect, wrap
from watersmeet.spark.frames import schema_of, stored_rows, stored_together
from watersmeet.spark.hub_delivery import HubDelivery, read_answers
from watersmeet.spark.tasks import JoinTask
from watersmeet.spark.there import call_there

_OUT: Final = (
    "query string, event string, batch bigint, oldest timestamp, newest timestamp, answer string, message string, "
    "text bigint"
)
# Spark passes over files of a folder that are so much older than the newest one that it has seen, by default seven days.
# A command may be written long before it gets its name, and a clock may be wrong: ten thousand years are never over.
_OLDEST_COMMAND: Final = "3650000d"

# The columns that commands must have.
_NEEDED: Final = ("op", "id", "sql")

# Queries of a start that are read before it. A new text takes up to a millisecond, and there may be a hundred thousand.
_READ_AHEAD: Final = 1_000

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hub:
    """Many continuous queries over the same streams: what `wm.hub` returns.

    `commands` is the stream of commands, if it was given, and `folder` where they are read from otherwise. `texts` reads
    texts as the hub does.
    """

    streams: Mapping[str, DataFrame]
    commands: DataFrame | None
    folder: str | None
    options: HubOptions = field(repr=False)
    settings: Settings = field(repr=False)
    texts: TemplateReader = field(repr=False)

    def answers(self) -> DataFrame:
        """The answers of all queries, and what becomes of commands, as one streaming DataFrame.

        Columns: `query` (its id), `event` (answer, added, removed or refused), `batch`, `oldest` and `newest` (the
        publication times of the answer's rows), `answer` (JSON with the query's own columns), `message` (why a command
        was refused) and `text` (a number for the query's text, which tells the answers of an id apart that was added again
        with another text). Start one Spark query on it: two would each run the hub, with a state of its own.
        """
        return self._answers

    @functools.cached_property
    def _answers(self) -> DataFrame:
        commands = self.commands
        if self.folder is not None:
            # Spark reads no folder that is not there. Made any earlier, commands would be put where nobody reads them.
            if not SCHEME.match(self.folder):
                own = default_folder(self.settings.storage, self.options.name or HUB)
                _make(self._session, self.folder, self.settings.storage if self.folder == str(own) else None)
            commands = _from_folder(self._session, self.folder)
        return hub_answers(self.streams, commands, self.options)

    def deliver(
        self, place: str | os.PathLike[str], format: str = "parquet", *, query_name: str | None = None
    ) -> ForeachBatch:
        """A function for `foreachBatch` that writes the answers of each query into a folder of its own.

        Answers go to `place/answers/query=ID/batch=N`, what becomes of commands to `place/events/batch=N`. A batch that
        Spark repeats replaces what it wrote before, so every answer is there once. It works on Spark Connect too, where
        `query_name` tells several queries apart, as in `wm.foreach_batch`.

        Example:
            >>> writer = hub.answers().writeStream.foreachBatch(hub.deliver("/data/out"))   # doctest: +SKIP
        """
        return wrap(HubDelivery(os.fspath(place), format, self.settings.tasks), query_name)

    def read(
        self, query: str, place: str | os.PathLike[str], sql: str | None = None, format: str = "parquet"
    ) -> DataFrame:
        """The answers of one query that were delivered to a place, as a batch DataFrame with the query's own columns.

        Before these stand `batch`, `oldest` and `newest`, with an underscore in front if the query has such a column. If an
        id was added again with another text, only the answers to one text are read: the live one, or `sql`.

        Args:
            query: the id of a live query; or of a removed one, with its text.
            place, format: as given to `deliver`.
            sql: the text of a query that was removed or replaced, letter for letter.
        """
        found = self.state()
        reader = found.reader(ansi=self.texts.ansi, case_sensitive=self.texts.case_sensitive)
        return read_answers(found, reader, self._session, query, os.fspath(place), sql, format)

    def add(self, query: str, sql: str) -> None:
        """Add a query: put a command into the folder. The next batch reads it, and the query counts rows after that.

        The text is checked here: PredicateError if it cannot be used. A live query with another text is not replaced:
        remove it first. UsageError if commands come as a stream, or `answers()` has not made the folder yet.

        Example:
            >>> hub.add("large", "SELECT o.id FROM orders o WHERE o.amount > 900")      # doctest: +SKIP
        """
        self._command(ADD, query, sql)

    def remove(self, query: str) -> None:
        """Remove a query: put a command into the folder. It has no answers after the batch that reads it.

        Its delivered answers stay. UsageError if commands come as a stream, or `answers()` has not made the folder yet.

        Example:
            >>> hub.remove("large")                                         # doctest: +SKIP
        """
        self._command(REMOVE, query)

    def _command(self, op: str, query: str, sql: str | None = None) -> None:
        if self.folder is None or SCHEME.match(self.folder):
            source = "no local folder" if self.folder is None else hide(self.folder)
            raise UsageError(
                f"this hub reads its commands from {source}, and {op}() writes a file into a local one: send a row with op, "
                "id and sql to where the hub reads them"
            )
        check_command(op, query, sql, self.texts)
        command = functools.partial(write_command, Path(self.folder), op, query, sql, unique=uuid.uuid4().hex)
        if is_connect(self._session):
            # The client may be on another machine. Spark may repeat the task.
            call_there(self._session, functools.partial(_call, command))
        else:
            command()

    def with_warnings(self) -> Hub:
        """This hub, after a warning for each of its first queries whose text cannot be used.

        The hub refuses them in its first batch, as events. Who looks for answers only would not see why there are none.
        """
        for query, sql in itertools.islice(self.options.queries.items(), _READ_AHEAD):
            try:
                check_command(ADD, query, sql, self.texts)
            except (PredicateError, UsageError) as error:
                _LOG.warning("the hub will refuse the query %s: %s", query, error)
        return self

    def status(self) -> HubStatus:
        """The queries, streams and indexes of the hub, refused commands, and what answers and costs most.

        StateError before the first batch. It only reads the state, and needs no running query.
        """
        return hub_status(self.state())

    def state(self) -> HubState:
        """The hub as its newest manifest has it; StateError before the first batch."""
        return open_hub(self.settings.storage, self.options.name or HUB)

    @property
    def _session(self) -> SparkSession:
        return next(iter(self.streams.values())).sparkSession


def make_hub(
    streams: Mapping[str, DataFrame], commands: DataFrame | str | os.PathLike[str] | None, options: HubOptions
) -> Hub:
    """A hub over some streams, checked as far as no row is needed."""
    given = commands if isinstance(commands, str | os.PathLike) else None
    frame = None if given is not None else cast("DataFrame | None", commands)
    check_streams(streams, frame)
    spec = plan_hub(streams, options)
    settings = spec.settings
    probe(settings.storage)
    place: str | None = None
    if given is not None:
        place = os.fspath(given)
        if not SCHEME.match(place):
            place = str(Path(place).absolute())
    elif frame is None:
        own = default_folder(settings.storage, options.name or HUB)
        place = None if own is None else str(own)
    if frame is None and place is None and not options.queries:
        raise UsageError(
            f"a hub without queries needs commands, and the state {settings.storage} is no directory, so it has no folder "
            "for them: give commands= a folder that Spark can list, or a stream"
        )
    assert isinstance(spec.join, HubStreams), "a hub's streams"
    return Hub(dict(streams), frame, place, options, settings, spec.join.reader())


def _make(spark: SparkSession, place: str, state: Storage | None = None) -> None:
    """Make a folder of commands: on Spark Connect in a task, as the client may be on another machine."""
    if is_connect(spark):
        call_there(spark, functools.partial(_make_there, place, state))
    else:
        make_folder(Path(place), state)


def _make_there(place: str, state: Storage | None, number: int) -> None:
    make_folder(Path(place), state)


def _call(command: Callable[[], object], number: int) -> None:
    command()


def _from_folder(spark: SparkSession, place: str) -> DataFrame:
    """Commands as JSON lines. Without a time of its own a command has that of its file."""
    rows = spark.readStream.schema(COMMAND_FIELDS).option("maxFileAge", _OLDEST_COMMAND).json(place)
    written = _nanoseconds(F.col("_metadata.file_modification_time"))
    return rows.select(*_NEEDED, F.coalesce(F.col("at"), written).alias("at"))


def hub_answers(
    streams: Mapping[str, DataFrame], commands: DataFrame | None, options: HubOptions
) -> DataFrame:
    """The answers of many queries over some streams, and what becomes of commands, as one streaming DataFrame."""
    check_streams(streams, commands)
    spec = plan_hub(streams, options)
    probe(spec.settings.storage)
    arriving = {name: _timed(frame) for name, frame in streams.items()}
    if commands is not None:
        arriving[COMMANDS] = _told(commands)
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
        missing = [column for column in _NEEDED if column not in commands.columns]
        if missing:
            raise UsageError(
                f"the commands have no column {missing[0]}: they need the columns {', '.join(_NEEDED)}, and may have at"
            )
        _at(commands)


def _told(commands: DataFrame) -> DataFrame:
    """The commands with their columns as they are stored."""
    texts = (F.col(column).cast("string").alias(column) for column in _NEEDED)
    return commands.select(*texts, _at(commands).alias("at"))


def _at(commands: DataFrame) -> Column:
    """What orders the commands of a batch: Spark reads the files of a batch by size, not by age."""
    kind = commands.schema["at"].dataType.simpleString() if "at" in commands.columns else None
    if kind is None:
        return F.lit(None).cast("bigint")
    if kind == "timestamp":
        return _nanoseconds(F.col("at"))
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return F.col("at").cast("bigint")
    raise UsageError(
        f"the column at of the commands is {kind}: it orders the commands, so it is a timestamp or an integer"
    )


def _nanoseconds(moment: Column) -> Column:
    """Since 1970; null for a moment that 64 bits do not reach: an error would end the batch, and each replay."""
    return F.try_multiply(F.unix_micros(moment), F.lit(1000))


def _timed(frame: DataFrame) -> DataFrame:
    """The columns of a stream, and the time of the batch."""
    columns = [F.col(quoted(column)) for column in frame.columns]
    return frame.select(*columns, F.current_timestamp().alias(BATCH_TIME))
