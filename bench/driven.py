"""One run on the local driver: time, rows, private memory and disk, batch by batch. No Spark.

Batches are made as they are needed and not timed. The disk is that of the whole state, whatever is in it: live runs,
runs that retained manifests name, and garbage that waits for its grace period.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psutil
import pyarrow as pa
import typer

from bench.data import side_batches
from bench.measured import write_measured
from bench.memory import busy_share, read_rollup
from bench.nexmark import EventWorkload
from bench.stored import stored_in
from bench.workloads import CORES, AnyWorkload, Workload, by_name
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, read_manifest

SAMPLE_SECONDS = 0.1
# How often the disk is looked at: it takes a listing of all files.
LOOK_BATCHES = 4


class PrivateMemory:
    """The most anonymous memory that this process has while a block runs: `with memory: ...; memory.most_bytes`."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self._stop = threading.Event()

    def __enter__(self) -> PrivateMemory:
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        pid = psutil.Process().pid
        while True:
            self.most_bytes = max(self.most_bytes, read_rollup(pid).get("Pss_Anon", 0))
            if self._stop.wait(SAMPLE_SECONDS):
                return


def batches_of(workload: AnyWorkload) -> Iterator[dict[str, pa.Table]]:
    """What each batch brings, by input, after the filters."""
    if isinstance(workload, Workload):
        sides = {name: side_batches(workload, number) for number, name in enumerate(workload.inputs)}
        for _ in range(workload.batches):
            yield {name: next(batches) for name, batches in sides.items()}
    elif isinstance(workload, EventWorkload):
        for batch in range(workload.batches):
            drawn = (workload.batch_of(number, batch) for number in range(len(workload.inputs)))
            yield {name: workload.kept(name, rows) for name, rows in zip(workload.inputs, drawn, strict=True)}
    else:
        raise TypeError(f"{workload.name}: no batches without files")


def measure(workload: AnyWorkload, state: Path) -> dict[str, Any]:
    batches: list[dict[str, Any]] = []
    disk: list[dict[str, int]] = []
    memory, join = PrivateMemory(), None
    before, own_before_s = psutil.cpu_times(), _own_cpu_s()
    for number, rows in enumerate(batches_of(workload)):
        if join is None:
            schemas = {name: one.schema for name, one in rows.items()}
            join = LocalJoin(
                schemas, on=workload.on, select=list(workload.select), state=str(state), tasks=CORES
            )
        with memory:
            started_s, cpu_s = time.perf_counter(), _own_cpu_s()
            results = join.count(**rows)
            seconds = time.perf_counter() - started_s
        batches.append(
            {
                "seconds": seconds,
                "cpu_s": _own_cpu_s() - cpu_s,
                "input_rows": sum(map(len, rows.values())),
                "results": results,
            }
        )
        if number % LOOK_BATCHES == 0 or number == workload.batches - 1:
            disk.append({"batch": number, "disk_bytes": _size_of(state), **_live(state)})
        print(json.dumps({"batch": number + 1, "of": workload.batches}), flush=True)
    busy, capacity = busy_share(before, psutil.cpu_times())
    own_s = _own_cpu_s() - own_before_s
    return {
        "driven": batches,
        "disk": disk,
        "most_bytes": memory.most_bytes,
        "foreign_cpu_share": max(0.0, busy - own_s) / capacity,
    }


def _own_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _live(state: Path) -> dict[str, int]:
    """What the last manifest says of the live runs."""
    (join,) = state.iterdir()
    (query,) = join.iterdir()
    files = open_files(str(query))
    return asdict(stored_in(read_manifest(files, list_manifests(files)[-1])))


def main(
    competitor: Annotated[str, typer.Option(help="Ours.")],
    workload: Annotated[str, typer.Option(help="A name of bench/workloads.py, NAME-quick or NAME@SIZE.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
) -> None:
    """Run a workload on the local driver and write what was measured as JSON."""
    work = by_name(workload)
    write_measured(out, competitor, workload, lambda scratch: measure(work, scratch / "state"))


if __name__ == "__main__":
    typer.run(main)
