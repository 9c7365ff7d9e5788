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

from watersmeet.engine.hub_operator import HubOperator, HubSpec
from watersmeet.engine.inputs import check_names
from watersmeet.engine.spec import Settings
from watersmeet.errors import UsageError
from watersmeet.hub.answers import ANSWERS
from watersmeet.local.stage import Rows, conform, record_batches
from watersmeet.log.probe import probe
from watersmeet.model.facts import BatchId, Descriptor
from watersmeet.model.types import Schema, type_of_arrow

COMMANDS: Final = pa.schema([("op", pa.string()), ("id", pa.string()), ("sql", pa.string())])
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass
class LocalHub:
    """Many continuous queries over some streams, in this process.

    `queries` are given at the start, by id. `time` names the column with the publication time of a stream's rows;
    without one it is the time of the batch.

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
    settings: Settings | None = None
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0

    def __post_init__(self) -> None:
        check_names(self.schemas)
        self._check_times()
        settings = self.settings or Settings(state=self.state, tasks=self.tasks)
        probe(settings.storage)
        schemas: dict[str, Schema] = {
            name: {one.name: type_of_arrow(one.type) for one in schema}
            for name, schema in self.schemas.items()
        }
        spec = HubSpec(
            self.name,
            self.run,
            schemas,
            settings,
            dict(self.time),
            tuple(self.queries.items()),
            int(self.clock() * 1000),
        )
        self.operator = HubOperator(spec, self.clock)

    def _check_times(self) -> None:
        for name, column in self.time.items():
            schema = self.schemas.get(name)
            if schema is None or column not in schema.names:
                raise UsageError(f"time names {name}.{column}, which is not a column of a stream")
            if not pa.types.is_timestamp(schema.field(column).type):
                raise UsageError(
                    f"the time {name}.{column} is {schema.field(column).type}: a hub needs a timestamp"
                )

    def batch(
        self,
        commands: Rows | None = None,
        at: datetime.datetime | None = None,
        **streams: Rows,
    ) -> pa.Table:
        """Run one micro-batch and return its answers and events. `commands` has the columns op, id and sql.

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
        streams: Mapping[str, Rows],
        commands: Rows | None = None,
        at: datetime.datetime | None = None,
    ) -> list[Descriptor]:
        """Store the rows and commands of a batch."""
        at_us = (at - _EPOCH) // _MICROSECOND if at is not None else int(self.clock() * 1_000_000)
        told = []
        for name, rows in streams.items():
            if name not in self.schemas:
                raise UsageError(f"there is no stream {name}; the streams are {', '.join(self.schemas)}")
            parts = self._partitions([conform(name, one, self.schemas[name]) for one in record_batches(rows)])
            told += [
                self.operator.ingest(batch, name, number, part, at_us) for number, part in enumerate(parts)
            ]
        if commands is not None:
            given = [conform("commands", one, COMMANDS) for one in record_batches(commands)]
            told.append(self.operator.command(batch, 0, given))
        return told

    def join(self, batch: BatchId, task: int, told: Sequence[Descriptor]) -> Iterator[pa.RecordBatch]:
        """Do one task of a batch: merge and clean up, then yield its share of the answers."""
        yield from self.operator.results(self.operator.agree_and_merge(batch, task, told), task)

    def _partitions(self, rows: list[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
        if self.partitions == 1 or not rows:
            return [rows]
        whole = pa.Table.from_batches(rows)
        cuts = [len(whole) * number // self.partitions for number in range(self.partitions + 1)]
        return [whole.slice(low, high - low).to_batches() for low, high in itertools.pairwise(cuts)]
