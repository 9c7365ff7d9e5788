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
from watersmeet.file_inputs.file_log import FileLog
from watersmeet.file_inputs.offsets import ChangedFile, FilePart, Reread
from watersmeet.file_inputs.place import Place
from watersmeet.file_inputs.read import read_rows
from watersmeet.file_inputs.spec import FileInput
from watersmeet.file_inputs.taken import read_taken
from watersmeet.file_inputs.where import Filter
from watersmeet.log.files import open_files
from watersmeet.log.parents import planned_by_another
from watersmeet.spark.micro_batch import micro_batch
from watersmeet.spark.tasks import stored, task_context

# Tasks that a worker remembers: more than the inputs of the queries that it serves at a time.
_REMEMBERED = 32


@dataclass(frozen=True)
class FileTask:
    """What is read of one file input of one join.

    `schema` is that of the files, `columns` are those to read, `zone` is the session's time zone. With `arriving` the
    rows go straight into the state of the join of `spec`. Otherwise they come out as `row_schema`, which Spark compares
    with theirs. A batch join by Spark alone has no `spec`.
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
        rows = read_taken(self.given.address, parts, self._read_part, self._record)
        if self.arriving is not None:
            assert self.spec is not None, "rows go straight into the state of a join"
            return stored(self.spec, self.arriving.input, map(self.arriving, rows))
        return (self._as_spark_wants(batch) for batch in rows)

    def _as_spark_wants(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.schema.equals(self.row_schema) else batch.cast(self.row_schema)

    def _record(self, part: FilePart, changed: ChangedFile) -> bool:
        """Record that a changed file is read, unless another start of the query has planned the batch of this task."""
        assert self.spec is not None and self.spec.streaming, "a batch join takes its files when it is made"
        batch = micro_batch(task_context().getLocalProperty)
        state = open_files(self.spec.settings.storage)
        if planned_by_another(state.under(self.spec.name, batch.query), batch):
            return False
        if part.part == 0:
            FileLog(state, changed.log).record(Reread(changed.was, part.file))
        return True

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
