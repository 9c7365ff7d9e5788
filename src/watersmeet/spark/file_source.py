"""Files as a Python data source: what Spark calls, a thin layer around `file_inputs/` and the operator.

    driver       latestOffset, partitions, commit    ── file_inputs/stream.py
    executors    read: files with Arrow              ── spark/file_task.py
                 straight: the operator stores them, and one row for each join task comes out
                 as rows: the rows come out

Spark keeps the offsets in its checkpoint and asks for the same files again if a batch fails. One Python process of the
driver serves an input for as long as its query runs.

Everything that the source needs travels as options, pickled: a source is made from options alone. Spark starts several
processes for a source, and most of them only pass it on. So this module imports nothing of ours, and each process
unpacks only what it uses.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa

    from watersmeet.file_inputs.offsets import FilePart
    from watersmeet.file_inputs.stream import FileStream, StreamSpec

NAME = "watersmeet_files"
# The options: what executors do, how the driver finds files, and the files of a batch join, divided among tasks.
_TASK, _STREAM, _SHARES = "task", "stream", "shares"

Shares = Sequence[Sequence["FilePart"]]


def options_of(task: str, stream: StreamSpec | None, shares: Shares | None) -> dict[str, str]:
    """The options of a source that streams, or of one that reads these shares of files."""
    return {_TASK: task, _STREAM: _packed(stream), _SHARES: _packed(shares)}


def _packed(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(text: str) -> Any:
    # From the options that this library made.
    return pickle.loads(base64.b64decode(text))  # noqa: S301


class FileSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FileReader(self.options[_TASK], self.options[_SHARES])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _FileStreamReader(self.options[_TASK], self.options[_STREAM])


def _read(task: str, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from watersmeet.spark.file_task import decode_task

    return decode_task(task).read(partition.value)


class _FileReader(DataSourceReader):
    def __init__(self, task: str, shares: str):
        self._task = task
        self._shares = shares

    def partitions(self) -> list[InputPartition]:
        # An empty list would be read as one partition without a value.
        return [InputPartition(share) for share in _unpacked(self._shares)] or [InputPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._task, partition)


class _FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, task: str, packed: str):
        self._task = task
        self._packed = packed
        self._opened: tuple[StreamSpec, FileStream] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors only read.
        return {"_task": self._task, "_packed": "", "_opened": None}

    def _open(self) -> tuple[StreamSpec, FileStream]:
        if self._opened is None:
            spec: StreamSpec = _unpacked(self._packed)
            self._opened = spec, spec.open()
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        from watersmeet.file_inputs.offsets import BEGINNING

        return BEGINNING.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._open()[0].limit
        if limit.files is not None:
            return ReadMaxFiles(limit.files)
        return ReadAllAvailable() if limit.bytes is None else ReadMaxBytes(limit.bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open()[1].hold()

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        from watersmeet.file_inputs.offsets import FileOffset
        from watersmeet.file_inputs.stream import NO_LIMIT

        spec, stream = self._open()
        # Spark asks for all with the trigger `once`. Otherwise it repeats our limit, of which it knows one half.
        most = NO_LIMIT if isinstance(limit, ReadAllAvailable) else spec.limit
        return stream.latest(FileOffset.from_json(start), most).to_json()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        from watersmeet.file_inputs.offsets import FileOffset

        spec, stream = self._open()
        first, last = FileOffset.from_json(start), FileOffset.from_json(end)
        shares = stream.shares(first, last, spec.tasks, splits=spec.splits)
        return [InputPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._task, partition)

    def commit(self, end: Any) -> None:
        from watersmeet.file_inputs.offsets import FileOffset

        self._open()[1].commit(FileOffset.from_json(end))
