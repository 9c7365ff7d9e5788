"""Run files: write sorted rows once, read them back verified and mapped.

A run is one uncompressed Arrow IPC file with one record batch, the order key first. Its name carries the
batch, the partition, its number within it, and the checksum of its content: Spark may run a task twice, and a
zombie may finish late, so batch and partition alone are not unique. What no manifest names does not exist.

Why not a random name: what a task sends through a shuffle must be the same each time it is run. Spark (from
4.2 on, by its order-independent checksums) fails the job otherwise, when an executor is lost after the first
result task has ended: https://issues.apache.org/jira/browse/SPARK-53575. Two attempts over the same rows now
write the same file and describe it in the same words.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pyarrow as pa

from watersmeet.errors import CorruptFile
from watersmeet.kernel.sorted import ORDER, Sorted, open_sorted
from watersmeet.log.codec import checksum
from watersmeet.log.files import Files
from watersmeet.model.facts import KeyRange, Run

RUNS = "runs"


def attempt_id() -> str:
    return uuid.uuid4().hex[:16]


def write_run(
    files: Files, input: str, batch: int, label: str, rows: Sorted, group: str | None = None
) -> Run:
    """Store sorted rows. `label` tells where the run came from (partition or merge); no two runs that come out
    of one task may share it, as they may hold the same rows.
    """
    stem = f"{RUNS}/{input}/{batch:010d}-{label}"
    order = pa.array(rows.keys)
    schema = pa.schema([pa.field(ORDER, pa.uint64(), nullable=False), *rows.rows.schema], metadata=None)
    stored = files.write(stem, schema, pa.RecordBatch.from_arrays([order, *rows.rows.columns], schema=schema))
    return Run(
        input=input,
        path=stored.path,
        group=group or stored.path,
        batch=batch,
        rows=len(rows),
        bytes=stored.bytes,
        low=int(rows.keys[0]),
        high=int(rows.keys[-1]),
        checksum=stored.checksum,
    )


def batch_of(name: str) -> int:
    """The batch that a run's file name carries."""
    return int(name.rpartition("/")[2].partition("-")[0])


class RunReader:
    """Verified, mapped runs, kept open between batches. One per process and state directory."""

    def __init__(self, files: Files):
        self._files = files
        self._open: dict[str, Sorted] = {}

    def read(self, run: Run, range_: KeyRange, columns: tuple[str, ...]) -> Sorted:
        """The rows of a run within a key range, with just these columns. Nothing is copied."""
        whole = self._open.get(run.path)
        if whole is None:
            whole = self._open[run.path] = self._verified(run)
        part = whole.between(range_)
        return Sorted(part.keys, part.rows.select(list(columns)))

    def forget_all_but(self, paths: Iterable[str]) -> None:
        """Unmap what is no longer live, so that its disk space can be given back."""
        alive = frozenset(paths)
        for path in [p for p in self._open if p not in alive]:
            del self._open[path]

    def _verified(self, run: Run) -> Sorted:
        content = self._checked(run)
        if isinstance(content, str) and self._files.forget_copy(run.path):
            content = self._checked(run)
        if isinstance(content, str):
            raise CorruptFile(
                f"run {run.path} of batch {run.batch} in {self._files.place} {content}. {_ADVICE}"
            )
        return open_sorted(pa.ipc.open_file(content).get_batch(0))

    def _checked(self, run: Run) -> pa.Buffer | str:
        """The run's bytes if they are the ones written, else what is wrong with them."""
        try:
            content = self._files.map(run.path)
        except FileNotFoundError:
            return "is missing"
        if content.size != run.bytes:
            return f"is truncated or padded: {content.size} bytes instead of {run.bytes}"
        if checksum(content) != run.checksum:
            return "is damaged: its checksum is not the one written"
        return content


_ADVICE = "Restore the file from a copy, or start the query with a new checkpoint to rebuild the state"
