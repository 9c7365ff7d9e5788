"""A streaming query driven step by step: add a batch, wait until it is processed, restart, inspect."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

# A file per partition of a step. Zero-padded so that names sort in the order of the steps.
_FILE = "{step:05d}-{part:03d}-{unique}.parquet"


class StreamScript:
    """Streams named by keyword, each with a schema; a query over them; results collected exactly once.

    Every `batch` call writes the given rows as files of the streams and waits until the query has processed them.
    `restart` stops the query and starts it again from its checkpoint. Results are kept by batch number, so a replayed
    batch replaces its first attempt, as in an idempotent sink.
    """

    def __init__(self, spark: SparkSession, folder: str | Path, **schemas: str):
        self.spark = spark
        self.folder = Path(folder)
        self.schemas = schemas
        self.collected: dict[int, list[Row]] = {}
        self.query: StreamingQuery | None = None
        self._build: Callable[..., DataFrame] | None = None
        self._step = 0
        for name in schemas:
            (self.folder / "in" / name).mkdir(parents=True, exist_ok=True)

    def start(
        self, build: Callable[..., DataFrame] | None = None, checkpoint: str = "checkpoint"
    ) -> StreamScript:
        """Start the query that `build` makes from the streams, which it receives by name."""
        self._build = build or self._build
        if self._build is None:
            raise ValueError("start needs a function that builds the query the first time")
        streams = {name: self._stream(name) for name in self.schemas}
        writer = self._build(**streams).writeStream.foreachBatch(self._collect)
        self.query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        return self

    def batch(self, **rows: Sequence[Any] | DataFrame) -> StreamScript:
        """Add rows to the named streams and process them. Rows are tuples, or a DataFrame."""
        self.add(**rows)
        self.process()
        return self

    def add(self, **rows: Sequence[Any] | DataFrame) -> StreamScript:
        """Add rows without waiting; they become part of the next micro-batch."""
        for name in rows:
            if name not in self.schemas:
                raise ValueError(f"there is no stream {name}; the streams are {', '.join(self.schemas)}")
        for name, values in rows.items():
            if isinstance(values, DataFrame):
                self._write(name, values)
            else:
                self._write(name, self.spark.createDataFrame(list(values), self.schemas[name]).coalesce(1))
        self._step += 1
        return self

    def process(self) -> None:
        assert self.query is not None, "call start first"
        self.query.processAllAvailable()

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.query = None

    def restart(self, build: Callable[..., DataFrame] | None = None) -> StreamScript:
        self.stop()
        return self.start(build)

    def results(self) -> list[Row]:
        """All rows that the query has emitted so far."""
        return [row for number in sorted(self.collected) for row in self.collected[number]]

    def __enter__(self) -> StreamScript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _stream(self, name: str) -> DataFrame:
        return self.spark.readStream.schema(self.schemas[name]).parquet(str(self.folder / "in" / name))

    def _collect(self, frame: DataFrame, number: int) -> None:
        self.collected[number] = frame.collect()

    def _write(self, name: str, frame: DataFrame) -> None:
        """Write outside the stream's folder, then move: the stream never sees half a file."""
        draft = self.folder / "drafts" / uuid.uuid4().hex
        frame.write.parquet(str(draft))
        for part, written in enumerate(sorted(draft.glob("part-*.parquet"))):
            target = _FILE.format(step=self._step, part=part, unique=time.time_ns())
            written.rename(self.folder / "in" / name / target)
