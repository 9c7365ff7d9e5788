"""What each task of a simulated cluster reads, fetches and writes: a `Files` that counts, and executors with caches.

Every executor is its own process as far as the operator can see: it has its own mapped runs and seen manifests, and its
own set of run files that it need not fetch again. All of them share one local directory.

On a cluster all tasks of a stage begin at the same time, and here they run one after the other. So the manifest of the
batch is hidden from a task that `races` until the task has tried to publish it: it plans, as all tasks do in the race.
(Where descriptors are published, only task 0 plans, and the others wait for its manifest: `bench/costs.py`.)

Requests that the operator has under way together (`Files.each`) are waited for together: `waits` counts how often a task
waits for a request, and `stream_bytes` the bytes of the longest stream of each such group.

Phases follow from what a task does with its files:

    ingest     all of `Operator.ingest`
    agree      `Operator.settle` until the task has the manifest of the batch
    merge      the rest of `settle`: merged runs and their receipts
    clean-up   from the first listing or removal after that
    new rows   fetching runs of this batch, to plan or to join
    history    fetching older runs, except to merge them
    join       the rest of `Operator.results`
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from unittest.mock import patch

import pyarrow as pa

from watersmeet.engine import operator as engine
from watersmeet.log.files import open_files
from watersmeet.log.key_bytes import KEY_BYTES
from watersmeet.log.names import MANIFESTS, keys_copy
from watersmeet.log.remote import AT_ONCE, CHUNK_BYTES
from watersmeet.log.sections import key_bytes_of
from watersmeet.log.storage import LEAST_BYTES, FileInfo, Files, Storage, StoredFile

INGEST, AGREE, NEW, HISTORY, JOIN, MERGE, CLEAN = PHASES = (
    "ingest", "agree", "new rows", "history", "join", "merge", "clean-up",
)  # fmt: skip

# Requests of one operation of log/remote.py, counted with an S3 server on loopback. Arrow lists 1,000 names at a time,
# and looks for a folder where a file is absent.
READ_REQUESTS, PUT_REQUESTS, EXISTS_REQUESTS, ABSENT_REQUESTS = 1, 1, 1, 2
LISTED_NAMES = REMOVED_NAMES = 1_000
# Round trips to a file server, from the calls of log/files.py: open, read, close; create, write, close, rename or link
# and unlink. A listing asks for the attributes of about a hundred names at a time.
READ_TRIPS, WRITE_TRIPS, PUBLISH_TRIPS, NAME_TRIPS, TRIP_NAMES = 3, 4, 5, 1, 100

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Usage:
    """What a task did in one phase. Bytes of runs grow with the rows, bytes of facts (JSON) do not."""

    calls: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    waits: float = 0.0
    stream_bytes: float = 0.0
    trips: int = 0
    run_bytes_read: int = 0
    run_bytes_written: int = 0
    fact_bytes: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.requests + other.requests,
            self.waits + other.waits,
            self.stream_bytes + other.stream_bytes,
            self.trips + other.trips,
            self.run_bytes_read + other.run_bytes_read,
            self.run_bytes_written + other.run_bytes_written,
            self.fact_bytes + other.fact_bytes,
            self.cpu_s + other.cpu_s,
        )

    @property
    def moved_bytes(self) -> int:
        return self.run_bytes_read + self.run_bytes_written + self.fact_bytes


@dataclass
class Executor:
    """A machine: run files that it holds, and what its Python process keeps between tasks."""

    number: int
    held: set[str] = field(default_factory=set)
    kept: dict = field(default_factory=dict)


class Recorder:
    """Counts for the task that runs now. `scale` is how many rows of the cluster one simulated row stands for."""

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale
        self.usage: dict[str, Usage] = {}
        self.phase = JOIN
        self.batch = 0
        self.races = True
        self.tried = False
        # The runs that the task looked into in order to plan, whether it held them or not.
        self.planned: set[str] = set()
        # Where the keys of runs begin, and their bytes. A run that would be small on the cluster is fetched whole.
        self.keys: dict[str, tuple[int, int]] = {}
        # The executor that planned the batch before.
        self.planner: int | None = None
        # What the task did until it had the manifest.
        self.to_agree: dict[str, Usage] = {}
        self._since = 0.0
        # The part of a request that the task waits for: less than one if others are under way beside it.
        self._share = 1.0

    def begin(self, phase: str, batch: int) -> None:
        self.usage, self.planned, self.to_agree = {}, set(), {}
        self.phase, self.batch, self.tried, self.races = phase, batch, False, True
        self._since = time.process_time()

    def enter(self, phase: str) -> None:
        now = time.process_time()
        self.of(self.phase).cpu_s += now - self._since
        self.phase, self._since = phase, now

    def end(self) -> dict[str, Usage]:
        self.enter(self.phase)
        return self.usage

    def of(self, phase: str) -> Usage:
        return self.usage.setdefault(phase, Usage())

    def count(
        self, call: str, requests: int, trips: int, moved_bytes: int = 0, phase: str | None = None
    ) -> Usage:
        usage = self.of(phase or self.phase)
        usage.calls[call] += 1
        usage.requests += requests
        usage.waits += requests * self._share
        usage.stream_bytes += moved_bytes * self._share
        usage.trips += trips
        return usage

    @contextlib.contextmanager
    def together(self, items: int) -> Iterator[None]:
        """Count the requests of `items` items as under way together, at most AT_ONCE of them."""
        self._share = math.ceil(items / AT_ONCE) / max(1, items)
        try:
            yield
        finally:
            self._share = 1.0

    @property
    def hides_manifest(self) -> bool:
        return self.phase == AGREE and self.races and not self.tried

    def is_manifest(self, path: str) -> bool:
        """Whether this is the manifest of the current batch."""
        return path.startswith(f"{MANIFESTS}/") and f"-{self.batch:012d}-" in path

    def is_fresh(self, path: str) -> bool:
        """Whether ingest tasks of the current batch wrote this run."""
        return f"/{self.batch:010d}-p" in path

    def agreed(self) -> None:
        if self.phase == AGREE:
            self.enter(MERGE)
            self.to_agree = {phase: usage + Usage() for phase, usage in self.usage.items()}

    def looks_around(self) -> None:
        """A listing or a removal after the merges is clean-up."""
        if self.phase == MERGE:
            self.enter(CLEAN)


@dataclass(frozen=True)
class CountedFiles:
    """The files of one executor: a local directory in place of the shared storage."""

    inner: Files
    executor: Executor
    recorder: Recorder
    prefix: str = ""

    @property
    def place(self) -> str:
        return self.inner.place

    @property
    def storage(self) -> Storage:
        return self.inner.storage

    @property
    def machine(self) -> str:
        return f"executor {self.executor.number}"

    @property
    def remote(self) -> bool:
        return True

    def make(self) -> None:
        self.inner.make()

    def under(self, *parts: str) -> CountedFiles:
        return CountedFiles(
            self.inner.under(*parts), self.executor, self.recorder, f"{self.prefix}{'/'.join(parts)}/"
        )

    def read(self, path: str) -> bytes:
        mine = self.recorder.is_manifest(path)
        try:
            if mine and self.recorder.hides_manifest:
                raise FileNotFoundError(path)
            content = self.inner.read(path)
        except FileNotFoundError:
            self.recorder.count("read", READ_REQUESTS, NAME_TRIPS)
            raise
        self.recorder.count("read", READ_REQUESTS, READ_TRIPS, len(content)).fact_bytes += len(content)
        if mine:
            self.recorder.agreed()
        return content

    def map(self, path: str) -> pa.Buffer:
        if self.recorder.phase == AGREE:
            self.recorder.planned.add(path)
        content = self.inner.map(path)
        self._fetch(path, self.prefix + path, content.size)
        return content

    def map_keys(self, path: str, start: int, length: int) -> pa.Buffer:
        if self.recorder.phase == AGREE:
            self.recorder.planned.add(path)
        self._fetch(path, keys_copy(self.prefix + path), length)
        return self.inner.map_keys(path, start, length)

    def map_planned(self, path: str) -> None:
        """Fetch what a planner looks into of a run that is not here."""
        if not self.has_copy(path):
            if path in self.recorder.keys:
                self.map_keys(path, *self.recorder.keys[path])
            else:
                self.map(path)

    def _fetch(self, path: str, copy: str, size: int) -> None:
        if copy in self.executor.held:
            return
        size *= self.recorder.scale
        phase = self.recorder.phase
        if phase in (AGREE, JOIN):
            phase = NEW if self.recorder.is_fresh(path) else HISTORY
        usage = self.recorder.count("fetch", math.ceil(size / CHUNK_BYTES), READ_TRIPS, size, phase)
        usage.run_bytes_read += size
        self.executor.held.add(copy)

    def forget_copy(self, path: str) -> bool:
        self.executor.held -= {self.prefix + path, keys_copy(self.prefix + path)}
        return self.inner.forget_copy(path)

    def has_copy(self, path: str) -> bool:
        return self.prefix + path in self.executor.held

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> StoredFile:
        stored = self.inner.write(stem, schema, batches)
        size = stored.bytes * self.recorder.scale
        self.recorder.count("write", PUT_REQUESTS, WRITE_TRIPS, size).run_bytes_written += size
        self.executor.held.add(self.prefix + stored.path)
        keys = key_bytes_of(self.inner.map(stored.path)) if size >= LEAST_BYTES else None
        if keys is not None:
            self.recorder.keys[stored.path] = keys.at, KEY_BYTES * sum(batch.num_rows for batch in batches)
        return replace(stored, keys=keys)

    def publish(self, path: str, content: bytes) -> bool:
        created = self.inner.publish(path, content)
        size = len(content)
        self.recorder.count("publish", PUT_REQUESTS, PUBLISH_TRIPS, size).fact_bytes += size
        if self.recorder.is_manifest(path):
            self.recorder.tried = True
            if created:
                self.recorder.agreed()
        return created

    def leave(self, path: str, content: bytes) -> None:
        self.inner.leave(path, content)
        size = len(content)
        self.recorder.count("publish", PUT_REQUESTS, PUBLISH_TRIPS, size).fact_bytes += size

    def exists(self, path: str) -> bool:
        self.recorder.looks_around()
        found = self.inner.exists(path)
        self.recorder.count("exists", EXISTS_REQUESTS if found else ABSENT_REQUESTS, NAME_TRIPS)
        return found

    def entries(self, folder: str) -> list[FileInfo]:
        self.recorder.looks_around()
        found = self.inner.entries(folder)
        pages = max(1, math.ceil(len(found) / LISTED_NAMES))
        self.recorder.count("list", pages, max(1, math.ceil(len(found) / TRIP_NAMES)))
        return found

    def folders(self) -> list[str]:
        self.recorder.count("list", 1, NAME_TRIPS)
        return self.inner.folders()

    def delete(self, path: str) -> None:
        for _ in self.delete_many([path]):
            pass

    def delete_many(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        self.recorder.looks_around()
        for start in range(0, len(paths), REMOVED_NAMES):
            gone = paths[start : start + REMOVED_NAMES]
            for path in gone:
                self.executor.held -= {self.prefix + path, keys_copy(self.prefix + path)}
            usage = self.recorder.count("delete", 1, NAME_TRIPS * len(gone))
            usage.calls["removed"] += len(gone)
            for path in gone:
                self.inner.delete(path)
            yield gone

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        with self.recorder.together(len(items)):
            return [action(item) for item in items]

    def delete_folder(self, name: str) -> None:
        self.recorder.looks_around()
        self.recorder.count("delete", 1, NAME_TRIPS)
        self.inner.delete_folder(name)


def files_of(executor: Executor, recorder: Recorder, storage: Storage) -> CountedFiles:
    return CountedFiles(open_files(storage), executor, recorder)


@contextlib.contextmanager
def running_on(executor: Executor, recorder: Recorder) -> Iterator[None]:
    """Run operator calls as if in this executor: with its caches, and through files that count."""

    def opened(storage: Storage) -> Files:
        return files_of(executor, recorder, storage)

    # The two names by which the operator opens files and remembers what it has opened. Fails if one of them is gone.
    with patch.multiple(engine, open_files=opened, _KEPT=executor.kept):
        yield
