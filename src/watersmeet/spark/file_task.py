"""What an executor does with the files of its partition: read them with Arrow, and store the rows or hand them out."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle

from watersmeet.engine.arriving import ArrivingRows
from watersmeet.engine.spec import JoinSpec
from watersmeet.file_inputs.offsets import FilePart
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.read import read_rows
from watersmeet.file_inputs.spec import FileInput
from watersmeet.file_inputs.taken import read_taken
from watersmeet.file_inputs.where import Filter
from watersmeet.spark.tasks import stored

# Tasks that a worker remembers: more than the inputs of the queries that it serves at a time.
_REMEMBERED = 32


@dataclass(frozen=True)
class FileTask:
    """What is read of one file input of one join.

    `schema` is that of the files, `columns` are those to read, `zone` is the session's time zone. With `spec` and
    `arriving` the rows go straight into the state of that join. Otherwise they come out as `row_schema`, which Spark
    compares with theirs.
    """

    given: FileInput
    schema: pa.Schema
    columns: tuple[str, ...]
    where: Filter | None
    zone: str
    row_schema: pa.Schema
    spec: JoinSpec | None = None
    arriving: ArrivingRows | None = None

    def encode(self) -> str:
        """The task as an option of a data source. A condition in Python may be among what the join has."""
        return base64.b64encode(cloudpickle.dumps(self)).decode()

    def read(self, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        """What a task of Spark returns for its files."""
        rows = read_taken(self.given.address, parts, self._read_part)
        if self.spec is not None and self.arriving is not None:
            return stored(self.spec, self.arriving.input, map(self.arriving, rows))
        return (self._as_spark_wants(batch) for batch in rows)

    def _as_spark_wants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema.equals(self.row_schema) else batch.cast(self.row_schema)

    def _read_part(self, place: Place, part: FilePart) -> Iterator[pa.RecordBatch]:
        given = self.given
        return read_rows(
            place,
            given.format,
            self.schema,
            self.columns,
            self.where,
            header=given.header,
            zone=self.zone,
            takes=part.takes,
        )


@functools.lru_cache(maxsize=_REMEMBERED)
def decode_task(text: str) -> FileTask:
    """The task of an option, decoded once in a worker."""
    task: FileTask = cloudpickle.loads(base64.b64decode(text))
    return task
