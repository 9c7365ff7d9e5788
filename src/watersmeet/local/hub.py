"""A hub in this process, without Spark: the same operator, driven batch by batch."""

from __future__ import annotations

import datetime
import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from watersmeet.engine.hub import HubOptions, build_hub
from watersmeet.engine.hub_ingest import BATCH_TIME
from watersmeet.engine.kept_table import PAGE_MEMORY
from watersmeet.engine.operator import Operator
from watersmeet.engine.spec import SessionSettings, Settings, SqlSettings
from watersmeet.errors import UsageError
from watersmeet.hubs.answers import ANSWERS
from watersmeet.hubs.stored import COMMANDS
from watersmeet.local.stage import GivenRows, conform, record_batches
from watersmeet.log.descriptors import Told
from watersmeet.log.probe import probe
from watersmeet.model.facts import BatchId
from watersmeet.model.keep import Keep
from watersmeet.model.types import Schema, type_of_arrow
from watersmeet.predicate.window import Length
from watersmeet.schemes.grid.policy import dynamic

COMMAND_SCHEMA: Final = pa.schema(
    [("op", pa.string()), ("id", pa.string()), ("sql", pa.string()), ("at", pa.int64())]
)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass
class LocalHub:
    """Many continuous queries over some streams, in this process.

    `queries` are given at the start, by id. `time` names the column with the publication time of a stream's rows;
    without one it is the time of the batch. Rows may be `lateness` behind the newest row of their stream. They are kept for
    `retain` longer than queries need them.

    >>> import pyarrow as pa, tempfile
    >>> schemas = {"R": pa.schema({"k": pa.int64(), "x": pa.int64()}), "S": pa.schema({"k": pa.int64()})}
    >>> text = "SELECT R.x FROM R, S WHERE R.k = S.k AND R.x > 5"
    >>> with tempfile.TemporaryDirectory() as state:
    ...     hub = LocalHub(schemas, state=state, queries={"large": text})
    ...     _ = hub.batch(R=pa.table({"k": [1, 2], "x": [3, 9]}))
    ...     hub.batch(S=pa.table({"k": [1, 2]})).select(["query", "answer"]).to_pylist()
    [{'query': 'large', 'answer': '{"x":9}'}]
    """

    schemas: Mapping[str, pa.Schema]
    state: str
    queries: Mapping[str, str] = field(default_factory=dict)
    name: str = "hub"
    tasks: int = 2
    # Every stream of a batch is cut into this many partitions.
    partitions: int = 1
    clock: Callable[[], float] = time.time
    time: Mapping[str, str] = field(default_factory=dict)
    query: str = "local"
    lateness: Length | None = None
    retain: Length | None = None
    keep: str = Keep.AUTO
    settings: Settings | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0

    def __post_init__(self) -> None:
        settings = self.settings or Settings(state=self.state, tasks=self.tasks)
        probe(settings.storage)
        schemas: dict[str, Schema] = {
            name: {one.name: type_of_arrow(one.type) for one in schema}
            for name, schema in self.schemas.items()
        }
        session = SessionSettings(
            sql=SqlSettings(),
            has_place=True,
            operator=lambda: settings,
            memory=lambda: PAGE_MEMORY,
            adapting=dynamic,
            keeping=lambda: self.keep,
        )
        options = HubOptions(
            self.queries,
            self.state,
            self.name,
            self.tasks,
            self.time,
            lateness=self.lateness,
            retain=self.retain,
        )
        self.operator = Operator(
            build_hub(options, schemas, session, instance=self.run, clock=self.clock), self.clock
        )

    def batch(
        self,
        commands: GivenRows | None = None,
        at: datetime.datetime | None = None,
        **streams: GivenRows,
    ) -> pa.Table:
        """Run one micro-batch and return its answers and events. `commands` has the columns op, id and sql.

        It may have a column `at`, an integer: the order in which the commands of the batch take effect.

        `at` is the time of the batch. Who replays a batch gives the same time again.
        """
        batch = BatchId(self.query, self.run, self.number)
        told = self.ingest(batch, streams, commands, at)
        found = [rows for task in range(self.tasks) for rows in self.join(batch, task, told)]
        self.number += 1
        return pa.Table.from_batches(found, ANSWERS)

    def ingest(
        self,
        batch: BatchId,
        streams: Mapping[str, GivenRows],
        commands: GivenRows | None = None,
        at: datetime.datetime | None = None,
    ) -> list[Told]:
        """Store the rows and commands of a batch."""
        at_us = (at - _EPOCH) // _MICROSECOND if at is not None else int(self.clock() * 1_000_000)
        told: list[Told] = []
        for name, rows in streams.items():
            if name not in self.schemas:
                raise UsageError(f"there is no stream {name}; the streams are {', '.join(self.schemas)}")
            parts = self._partitions(
                [_timed(conform(name, one, self.schemas[name]), at_us) for one in record_batches(rows)]
            )
            told += [self.operator.ingest(batch, name, number, part) for number, part in enumerate(parts)]
        if commands is not None:
            given = [conform("commands", _ordered(one), COMMAND_SCHEMA) for one in record_batches(commands)]
            told.append(self.operator.ingest(batch, COMMANDS, 0, given))
        return told

    def join(self, batch: BatchId, task: int, told: Sequence[Told]) -> Iterator[pa.RecordBatch]:
        """Do one task of a batch: merge and clean up, then yield its share of the answers."""
        yield from self.operator.results(self.operator.agree_and_merge(batch, task, told), task)

    def _partitions(self, rows: list[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
        if self.partitions == 1 or not rows:
            return [rows]
        whole = pa.Table.from_batches(rows)
        cuts = [len(whole) * number // self.partitions for number in range(self.partitions + 1)]
        return [whole.slice(low, high - low).to_batches() for low, high in itertools.pairwise(cuts)]


def _ordered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Commands with a column `at`, null if they came without one."""
    if "at" in rows.schema.names:
        return rows
    return rows.append_column("at", pa.nulls(rows.num_rows, pa.int64()))


def _timed(rows: pa.RecordBatch, at_us: int) -> pa.RecordBatch:
    """Rows as Spark hands them to ingest: with the time of the batch."""
    at = pa.repeat(pa.scalar(at_us, pa.timestamp("us", "UTC")), rows.num_rows)
    return rows.append_column(BATCH_TIME, at)
