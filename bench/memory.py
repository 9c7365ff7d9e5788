"""Sample the memory and CPU of one run's processes while it runs.

What counts as a Python worker's private memory is `Pss_Anon` of /proc/<pid>/smaps_rollup: its
anonymous pages, with pages still shared with the forking daemon divided among the sharers, so the
sum over workers and daemon counts every page once. `Private_Dirty` would be wrong: it also counts
pages of mapped run files that the kernel has not written back yet. Mapped files (`Pss_File`, and
`Pss_Shmem` when they lie on tmpfs) are the kernel's to evict and are reported apart.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

SAMPLE_SECONDS = 0.2
KIB = 1024


@dataclass(slots=True)
class Usage:
    """Maxima over the samples of one run (bytes), its CPU seconds, and the share that others took."""

    samples: int = 0
    workers_anon_bytes: int = 0
    worker_anon_bytes: int = 0
    workers_mapped_bytes: int = 0
    workers: int = 0
    jvm_rss_bytes: int = 0
    jvm_cpu_s: float = 0.0
    python_cpu_s: float = 0.0
    foreign_cpu_share: float = 0.0


def read_rollup(pid: int) -> dict[str, int]:
    """The fields of smaps_rollup in bytes; empty when the process has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    return {field: int(rest.split()[0]) * KIB for field, rest in (x.split(":") for x in lines)}


BUSY_FIELDS = ("user", "nice", "system", "irq", "softirq", "steal")


def busy_share(before: Any, after: Any) -> tuple[float, float]:
    """Busy and total CPU seconds of the whole machine between two `psutil.cpu_times()`."""
    busy = sum(getattr(after, n) - getattr(before, n) for n in BUSY_FIELDS)
    return busy, busy + (after.idle - before.idle) + (after.iowait - before.iowait)


def await_quiet(patience_s: float, share: float, look_s: float = 5.0) -> bool:
    """Wait until the machine is busy for less than `share` of a look; False if patience ended."""
    deadline = time.monotonic() + patience_s
    while True:
        before = psutil.cpu_times()
        time.sleep(look_s)
        busy, total = busy_share(before, psutil.cpu_times())
        if busy < share * total:
            return True
        if time.monotonic() > deadline:
            return False


class Sampler:
    """A thread that watches the children of this process: `with Sampler() as s: ...; s.usage`."""

    def __init__(self) -> None:
        self.usage = Usage()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bench-sampler", daemon=True)
        self._cpu_s: dict[int, tuple[bool, float]] = {}
        self._clock_s: list[float] = []
        self._series_s: list[float] = []

    def __enter__(self) -> Sampler:
        self._before = psutil.cpu_times()
        self._sample()
        self._jvm_before_s, self._python_before_s = self._by_kind_s()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        self._account_cpu()

    def as_dict(self) -> dict[str, float]:
        return asdict(self.usage)

    def cpu_between(self, start_s: float, end_s: float) -> float:
        """CPU seconds of the run between two times of the wall clock, interpolated."""
        start, end = np.interp([start_s, end_s], self._clock_s, self._series_s)
        return float(end - start)

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        anon, mapped, jvm = [], [], 0
        for process in psutil.Process().children(recursive=True):
            try:
                # By command line, not by name: a child that the JVM is just forking to run
                # `chmod` shares the whole heap for a moment and is no Python worker.
                command = process.cmdline()
                is_jvm = "org.apache.spark.deploy.SparkSubmit" in command
                if not is_jvm and "pyspark.daemon" not in command:
                    continue
                times = process.cpu_times()
                # The JVM also pays for the commands it runs (`chmod` for each file of a log). A
                # daemon's ended children are workers, which have an entry of their own.
                commands_s = times.children_user + times.children_system if is_jvm else 0.0
                self._cpu_s[process.pid] = (is_jvm, times.user + times.system + commands_s)
                if is_jvm:
                    jvm = max(jvm, process.memory_info().rss)
                    continue
            except psutil.Error:
                continue
            rollup = read_rollup(process.pid)
            anon.append(rollup.get("Pss_Anon", 0) + rollup.get("SwapPss", 0))
            mapped.append(rollup.get("Pss_File", 0) + rollup.get("Pss_Shmem", 0))
        self._clock_s.append(time.time())
        self._series_s.append(self._own_cpu_s())
        seen = self.usage
        seen.samples += 1
        seen.workers = max(seen.workers, len(anon))
        seen.workers_anon_bytes = max(seen.workers_anon_bytes, sum(anon))
        seen.worker_anon_bytes = max(seen.worker_anon_bytes, *anon, 0)
        seen.workers_mapped_bytes = max(seen.workers_mapped_bytes, sum(mapped))
        seen.jvm_rss_bytes = max(seen.jvm_rss_bytes, jvm)

    def _own_cpu_s(self) -> float:
        return sum(seconds for _, seconds in self._cpu_s.values())

    def _account_cpu(self) -> None:
        """How much of the machine's busy time was somebody else's: the noise of this run."""
        busy, capacity = busy_share(self._before, psutil.cpu_times())
        seen = self.usage
        jvm_s, python_s = self._by_kind_s()
        # The JVM and its workers may have run another stream before.
        seen.jvm_cpu_s, seen.python_cpu_s = jvm_s - self._jvm_before_s, python_s - self._python_before_s
        own = seen.jvm_cpu_s + seen.python_cpu_s
        seen.foreign_cpu_share = max(0.0, busy - own) / capacity if capacity else 0.0

    def _by_kind_s(self) -> tuple[float, float]:
        jvm_s = sum(seconds for is_jvm, seconds in self._cpu_s.values() if is_jvm)
        return jvm_s, self._own_cpu_s() - jvm_s
