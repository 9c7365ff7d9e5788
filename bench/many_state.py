"""A join over a real log with runs that are facts without a file: what a batch costs beside its rows.

Files, claims, descriptors, manifests, bases, receipts and cleaning are those of the product, on a local disk, behind a
wrapper that counts requests and bytes. A run's keys are real where a plan is timed or traffic is counted, drawn by
Zipf's law (`bench/zipf_runs.py`), and so are its statistics. Elsewhere its keys lie evenly, and its statistics are those
that a run of its size may have. A merge's outputs are made when a task would write them. Each simulated process has
its own memory of the log.

Times are CPU times of this process, so that background load does not count.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.zipf_runs import ZipfRuns
from watersmeet.engine import operator as engine
from watersmeet.engine.desk import desk_for
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.clean import Cleaner
from watersmeet.log.descriptors import Told
from watersmeet.log.files import LocalFiles
from watersmeet.log.names import ManifestName
from watersmeet.log.receipts import publish_receipt
from watersmeet.log.remote import CHUNK_BYTES
from watersmeet.log.seen import Seen
from watersmeet.log.starts import claim_start
from watersmeet.log.storage import Files
from watersmeet.model.facts import KEY_SPACE, BatchId, Descriptor, Manifest, Merge, Receipt, Run
from watersmeet.schemes.hypercube.hot_keys import HotKeys

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
SEED = 7
SPACE = KEY_SPACE


# --- Counting ---------------------------------------------------------------------------------------------------------


@dataclass
class Count:
    requests: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    written_bytes: int = 0
    # Runs that a planner fetched to look keys up, and the requests that took.
    fetched_bytes: int = 0
    fetches: int = 0

    @property
    def reads(self) -> int:
        return sum(count for kind, count in self.requests.items() if kind != "publish")

    def clear(self) -> None:
        """Count what is read from now on, beside what was counted of paths and writes."""
        self.requests.clear()
        self.read_bytes = self.fetched_bytes = self.fetches = 0


class CountedFiles:
    """`Files` that counts what is asked of the storage."""

    def __init__(self, files: Files, count: Count):
        self._files, self.count = files, count

    def read(self, path: str) -> bytes:
        self.count.requests["read"] += 1
        content = self._files.read(path)
        self.count.paths[path] += 1
        self.count.read_bytes += len(content)
        return content

    def publish(self, path: str, content: bytes) -> bool:
        self.count.requests["publish"] += 1
        self.count.written_bytes += len(content)
        return self._files.publish(path, content)

    def exists(self, path: str) -> bool:
        self.count.requests["exists"] += 1
        return self._files.exists(path)

    def entries(self, folder: str) -> Any:
        self.count.requests["list"] += 1
        return self._files.entries(folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)


class FetchedKeys:
    """The reader of one process over runs of all, as `RunReader` fetches: the first that is missing makes all be fetched.

    A planner fetches the keys of a run, once, and no rows.
    """

    def __init__(self, shelf: Any, count: Count):
        self._shelf, self.count = shelf, count
        self._held: set[str] = set()
        self._expected: Callable[[], Iterable[Run]] = tuple

    def expect_keys(self, runs: Callable[[], Iterable[Run]]) -> None:
        self._expected = runs

    def keys_alone(self, run: Run) -> Any:
        if run.path not in self._held:
            expected = list(self._expected())
            for one in expected if run in expected else [run]:
                self.fetch(one)
        return self._shelf.keys(run)

    def fetch(self, run: Run) -> None:
        if run.path not in self._held:
            self._held.add(run.path)
            key_bytes = 8 * run.rows
            self.count.fetched_bytes += key_bytes
            self.count.fetches += math.ceil(key_bytes / CHUNK_BYTES)


class Keys:
    """Stands for a reader of runs, for all processes: the keys of a run lie evenly between its first and its last."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def keys(self, run: Run) -> Any:
        if run.path not in self._known:
            self._known[run.path] = np.linspace(run.low, run.high, run.rows).astype(np.uint64)
        return self._known[run.path]

    def forget_all_but(self, paths: Any) -> None:
        alive = frozenset(paths)
        for path in [path for path in self._known if path not in alive]:
            del self._known[path]


# --- A state without rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timed:
    cpu_ms: float
    wall_ms: float
    scheme_ms: float = 0.0

    @property
    def around_ms(self) -> float:
        """CPU time without the scheme's own plan."""
        return self.cpu_ms - self.scheme_ms


class Simulation:
    """A join by hypercube over a real log, with invented runs."""

    def __init__(self, folder: Path, tasks: int, hot_keys: int):
        self.join = LocalJoin(
            {"l": SCHEMA, "r": SCHEMA},
            on="l.k = r.k",
            select=["l.x"],
            state=str(folder),
            strategy="hypercube",
            tasks=tasks,
            settings=Settings(state=str(folder), tasks=tasks),
        )
        self.files = LocalFiles(folder / "join" / "local")
        self.tasks, self.hot_keys = tasks, hot_keys
        self.rng = np.random.default_rng(SEED)
        self.hot = self.rng.integers(0, SPACE - 1, 4 * hot_keys, dtype=np.uint64)
        self.start = claim_start(self.files, self.join.run, 0)
        self.scheme_s = 0.0
        self.keys: Any = Keys()
        self._time_the_scheme()

    def _time_the_scheme(self) -> None:
        spec = self.join.operator.spec
        simulation = self

        class TimedScheme(type(spec.scheme)):  # type: ignore[misc]
            __slots__ = ()

            def plan(self, facts: Any) -> Any:
                began = time.process_time()
                try:
                    return super().plan(facts)
                finally:
                    simulation.scheme_s += time.process_time() - began

        object.__setattr__(spec.scheme, "__class__", TimedScheme)

    def process(self, count: Count | None = None) -> engine._Kept:
        """The memory of a process that has seen nothing."""
        count = count or Count()
        files: Any = CountedFiles(self.files, count)
        seen = Seen()
        reader: Any = FetchedKeys(self.keys, count)
        spec = self.join.operator.spec
        return engine._Kept(
            self.join.run, files, seen, reader, Cleaner(files, seen), desk_for(spec, files, reader, time.time)
        )

    def manifest_path(self, number: int) -> str:
        return ManifestName(self.start.number, number, self.join.run).path

    def batch_id(self, number: int) -> BatchId:
        return BatchId("local", self.join.run, number)

    def run(self, side: str, number: int, label: str, rows: int, group: str | None = None) -> Run:
        mark = f"{int(self.rng.integers(0, SPACE - 1, dtype=np.uint64)):016x}"
        path = f"runs/{side}/{number:010d}-{label}-{mark}.arrow"
        picked = np.sort(self.rng.choice(self.hot, self.hot_keys, replace=False))
        counts = self.rng.integers(32, 400, self.hot_keys)
        labels = tuple(str(key % 997) if place < 8 else "" for place, key in enumerate(picked.tolist()))
        stats = HotKeys(tuple(picked.tolist()), tuple(counts.tolist()), labels, 32)
        low, high = np.sort(self.rng.integers(0, SPACE - 1, 2, dtype=np.uint64)).tolist()
        return Run(
            side, path, group or path, number, rows, 24 * rows, low, high, mark, 16 * rows, stats=stats
        )

    def descriptors(self, number: int, partitions: int, rows: int) -> list[Descriptor]:
        """Half of the partitions belong to each input."""
        return [
            Descriptor(side, part, (self.run(side, number, f"p{part:05d}-0000", rows),), 0, start=self.start)
            for side in "lr"
            for part in range(partitions // 2)
        ]

    def agree(
        self, kept: engine._Kept, number: int, told: Sequence[Told], task: int
    ) -> tuple[Manifest, Timed]:
        self.scheme_s = 0.0
        # As in a worker, which has not the memory of all others to look through.
        gc.freeze()
        wall, cpu = time.perf_counter(), time.process_time()
        manifest = self.join.operator._agree(kept, self.batch_id(number), told, task)
        spent = Timed(
            1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall), 1e3 * self.scheme_s
        )
        kept.last = manifest
        return manifest, spent

    def merge(self, manifest: Manifest) -> int:
        """Write the receipts of all parts that the plan assigns."""
        merges = {merge.id: merge for merge in manifest.merges}
        for job in manifest.plan.assignments:
            merge = merges[job.merge]
            label = f"m{job.part:05d}-{random.randrange(SPACE):016x}"
            output = self.merged(merge, job.part, manifest.batch.number, label)
            columns = manifest.signature.columns(merge.input)
            publish_receipt(self.files, Receipt(job.merge, job.part, (output,), columns), "a")
        return len(manifest.plan.assignments)

    def merged(self, merge: Merge, part: int, number: int, label: str) -> Run:
        """The output of one part of a merge."""
        parts = len(merge.parts)
        rows = merge.rows // parts + (part < merge.rows % parts)
        return self.run(merge.input, number, label, rows, merge.id)


class ZipfSimulation(Simulation):
    """The same with real keys."""

    def __init__(self, folder: Path, tasks: int, alpha: float):
        super().__init__(folder, tasks, hot_keys=1)
        self.keys = ZipfRuns(alpha, tasks, SEED)

    def run(self, side: str, number: int, label: str, rows: int, group: str | None = None) -> Run:
        return self.keys.store(side, number, label, self.keys.draw(rows), group)

    def merged(self, merge: Merge, part: int, number: int, label: str) -> Run:
        keys = self.keys.merged(merge.runs, merge.parts[part].range)
        return self.keys.store(merge.input, number, label, keys, merge.id)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="watersmeet-many-") as folder:
        yield Path(folder)
