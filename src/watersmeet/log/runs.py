"""Run files: write sorted rows once, read them back verified and mapped.

A run is one uncompressed Arrow IPC file, the order key first. It is one record batch, or one for each section if it is
cut for the grid. Each record batch is sorted. The file name has the batch, the partition, the number within it, and the
checksum of the content. Batch and partition alone are not unique: Spark may run a task twice, and a zombie may finish
late. A file that no manifest names does not exist.

Why not a random name: the data that a task sends through a shuffle must be the same each time it runs. Otherwise Spark
(from 4.2 on, by its order-independent checksums) fails the job when an executor is lost after the first result task has
ended: https://issues.apache.org/jira/browse/SPARK-53575. So two attempts over the same rows write the same file and the
same description.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.errors import CorruptFile
from watersmeet.kernel.keys import Keys
from watersmeet.kernel.rows import ORDER, Sorted, open_sorted
from watersmeet.log.cache import CacheFull
from watersmeet.log.codec import checksum
from watersmeet.log.storage import Files
from watersmeet.model.facts import KeyRange, Run, RunStats

RUNS = "runs"

# Shares into which the marks cut a run's rows: enough to place a bound within a few per cent.
MARK_SHARES = 32
# Keys sampled for the marks of one section.
_MARK_SAMPLE = 1024


def attempt_id() -> str:
    return uuid.uuid4().hex[:16]


def write_run(
    files: Files,
    input: str,
    batch: int,
    label: str,
    rows: Sorted | Mapping[int, Sorted],
    group: str | None = None,
    *,
    marked: bool = False,
    stats: RunStats | None = None,
) -> Run:
    """Store sorted rows, or sorted rows by section number. None of them may be empty.

    `label` says where the run came from (partition or merge). No two runs of one task may share it, because they may
    hold the same rows. `marked` runs carry `marks`; `stats` is the scheme's record.
    """
    stem = f"{RUNS}/{input}/{batch:010d}-{label}"
    parts = [rows] if isinstance(rows, Sorted) else list(rows.values())
    schema = pa.schema([pa.field(ORDER, pa.uint64(), nullable=False), *parts[0].rows.schema], metadata=None)
    batches = [
        pa.RecordBatch.from_arrays([pa.array(part.keys), *part.rows.columns], schema=schema) for part in parts
    ]
    stored = files.write(stem, schema, batches)
    return Run(
        input=input,
        path=stored.path,
        group=group or stored.path,
        batch=batch,
        rows=sum(map(len, parts)),
        bytes=stored.bytes,
        low=min(int(part.keys[0]) for part in parts),
        high=max(int(part.keys[-1]) for part in parts),
        checksum=stored.checksum,
        row_bytes=sum(part.rows.nbytes + part.keys.nbytes for part in parts),
        sections=section_rows(rows),
        marks=_marks(parts) if marked else (),
        stats=stats,
    )


def section_rows(rows: Sorted | Mapping[int, Sorted]) -> tuple[int, ...]:
    """The number of rows of each section; empty for rows without sections."""
    if isinstance(rows, Sorted):
        return ()
    return tuple(len(rows[number]) if number in rows else 0 for number in range(max(rows) + 1))


def _marks(parts: Sequence[Sorted]) -> tuple[int, ...]:
    """Keys that cut the rows into equal shares, the lowest and the highest included."""
    sampled = [
        part.keys[np.linspace(0, len(part) - 1, min(len(part), _MARK_SAMPLE)).astype(int)] for part in parts
    ]
    keys = np.sort(np.concatenate(sampled))
    return tuple(keys[np.linspace(0, len(keys) - 1, MARK_SHARES + 1).astype(int)].tolist())


class RunReader:
    """Verified, mapped runs, kept open between batches. One per process and state directory."""

    def __init__(self, files: Files):
        self._files = files
        self._open: dict[str, dict[int, Sorted]] = {}

    def read(
        self, run: Run, range_: KeyRange, columns: tuple[str, ...], sections: Sequence[range] | None = None
    ) -> dict[int, Sorted]:
        """The rows of a run within a key range, with just these columns, by section. Nothing is copied.

        A run without sections is one section, number 0. `sections` selects some of them; None is all.
        """
        found = {}
        for number, section in self._whole(run).items():
            if sections is None or any(number in wanted for wanted in sections):
                part = section.between(range_)
                if len(part):
                    found[number] = Sorted(part.keys, part.rows.select(list(columns)))
        return found

    def keys(self, run: Run) -> Keys:
        """All order keys of a run that is not cut into sections, ascending."""
        return self._whole(run)[0].keys

    def forget_all_but(self, paths: Iterable[str]) -> None:
        """Unmap runs that are no longer live or have left the cache: only that frees their disk space."""
        alive = frozenset(paths)
        for path in [p for p in self._open if p not in alive or not self._files.has_copy(p)]:
            del self._open[path]

    def _whole(self, run: Run) -> dict[int, Sorted]:
        whole = self._open.get(run.path)
        if whole is None:
            whole = self._open[run.path] = self._verified(run)
        return whole

    def _verified(self, run: Run) -> dict[int, Sorted]:
        content = self._checked(run)
        if isinstance(content, str) and self._files.forget_copy(run.path):
            content = self._checked(run)
        if isinstance(content, str):
            raise CorruptFile(
                f"run {run.path} of batch {run.batch} in {self._files.place} {content}. {_ADVICE}"
            )
        file = pa.ipc.open_file(content)
        numbers = [number for number, rows in enumerate(run.sections) if rows] or [0]
        return {number: open_sorted(file.get_batch(place)) for place, number in enumerate(numbers)}

    def _mapped(self, path: str) -> pa.Buffer:
        try:
            return self._files.map(path)
        except CacheFull:
            # Dropped copies take up space as long as they are mapped here. Those in use stay.
            self._open.clear()
        return self._files.map(path)

    def _checked(self, run: Run) -> pa.Buffer | str:
        """The run's bytes if they are intact, else what is wrong with them."""
        try:
            content = self._mapped(run.path)
        except FileNotFoundError:
            return "is missing"
        if content.size != run.bytes:
            return f"is truncated or padded: {content.size} bytes instead of {run.bytes}"
        if checksum(content) != run.checksum:
            return "is damaged: its checksum does not match"
        return content


_ADVICE = "Restore the file from a copy, or start the query with a new checkpoint to rebuild the state"
