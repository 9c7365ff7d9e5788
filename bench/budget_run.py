"""One run of a join of three inputs with or without a budget, in this process; prints figures as JSON.

`python -m bench.budget_run '{"state": "/tmp/x", "rows": 100000, "batches": 20}'`. The harness (`budget.py`) starts one
process for each run: what a run keeps in memory is its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from bench.residency import Residency
from papers.state.stream import Stream, count_results, mixed
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.remote import RemoteFiles
from watersmeet.schemes.budget.policy import Pushing, PushPolicy

INPUTS = "abc"
RATIOS, GROUPS, SEED = (4.0, 2.0, 1.0), 300, 2005
# The stream is half a tuple range long: a value of the partitions with ratio 4 has two rows of each input.
RANGES = 0.5
_BATCH_S = 10.0


@dataclass(frozen=True, slots=True)
class Run:
    """`rows` of each input in batches, with a payload of some bytes. Without `memory` there is no budget. At most
    `limit_bytes` of the state stay in memory between batches; 0 is no limit."""

    state: str
    rows: int
    batches: int
    payload_bytes: int = 100
    memory: int | None = None
    policy: str = str(PushPolicy.LOW_OUTPUT)
    limit_bytes: int = 0
    cache: str | None = None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    results: int
    expected: int
    seconds: float
    cpu_s: float
    state_bytes: int
    most_resident_bytes: int
    fetched_bytes: int
    read_bytes: int


class _Fetches:
    """Counts what is fetched from remote state: runs, and keys of runs."""

    def __init__(self) -> None:
        self.bytes = 0
        self._real = RemoteFiles._add

    def __call__(
        self, files: RemoteFiles, copy: str, size: int, chunks: Callable[[], Iterable[bytes]]
    ) -> pa.Buffer:
        content = self._real(files, copy, size, chunks)
        self.bytes += content.size
        return content


def measure(run: Run) -> Measured:
    stream = Stream(mixed(RATIOS, GROUPS), round(run.rows / RANGES), 1.0, seed=SEED)
    schema = pa.schema({"k": pa.int64(), "v": pa.binary()})
    settings = Settings(state=run.state, tasks=1, cache=run.cache, cache_bytes=run.cache_bytes)
    now = [1_000_000.0]
    join = LocalJoin(
        dict.fromkeys(INPUTS, schema),
        on="a.k = b.k AND b.k = c.k",
        select=["a.k", *(f"{name}.v AS {name}" for name in INPUTS)],
        state=run.state,
        tasks=1,
        settings=settings,
        memory=run.memory,
        strategy="auto" if run.memory is None else "budget",
        pushing=Pushing(groups=GROUPS, policy=PushPolicy(run.policy)),
        clock=lambda: now[0],
    )
    limit = Residency(Path(run.state), run.limit_bytes) if run.limit_bytes else None
    payload = np.random.default_rng(SEED).bytes(run.payload_bytes * 2 * (run.rows // run.batches))
    came: dict[str, list[np.ndarray]] = {name: [] for name in INPUTS}
    step, seconds, cpu_s, results, resident, read = run.rows // run.batches, 0.0, 0.0, 0, 0, 0
    fetches = _Fetches()
    with patch.object(RemoteFiles, "_add", lambda *what: fetches(*what)):
        for number in range(run.batches):
            batch = {}
            for place, name in enumerate(INPUTS):
                values = stream.draw(place, number * step, (number + 1) * step)
                came[name].append(values)
                batch[name] = _table(values, payload, run.payload_bytes)
            now[0] += _BATCH_S
            read -= _read_bytes()
            began_s, cpu_began_s = time.perf_counter(), time.process_time()
            results += join.count(**batch)
            seconds += time.perf_counter() - began_s
            cpu_s += time.process_time() - cpu_began_s
            read += _read_bytes()
            if limit is not None:
                resident = max(resident, limit.enforce())
    every = [np.concatenate(parts) for parts in came.values()]
    return Measured(
        results, count_results(every), seconds, cpu_s, _size(run.state), resident, fetches.bytes, read
    )


def _table(values: np.ndarray, payload: bytes, width: int) -> pa.Table:
    offsets = pa.py_buffer(np.arange(len(values) + 1, dtype=np.int32) * width)
    texts = pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(payload)])
    return pa.table({"k": values, "v": texts})


def _read_bytes() -> int:
    """What this process has had read from disks so far, page faults included."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def _size(state: str) -> int:
    """The bytes of a local state; 0 if it is remote."""
    return sum(path.stat().st_size for path in Path(state).rglob("*") if path.is_file())


def main(given: Mapping[str, object]) -> None:
    print(json.dumps(asdict(measure(Run(**given)))))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
