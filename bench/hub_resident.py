"""What the queries of a hub take in the memory of one worker; prints the bytes as JSON.

`python -m bench.hub_resident '{"state": "...", "load": "shapes", "queries": 10000}'`. A process of its own: it runs a small
hub, so that all code and libraries are there, and then a batch of the hub that is measured. What counts is the
anonymous memory that came with it. If `state` has a hub, this process only reads its catalogue, as most workers do.
Otherwise it also reads the texts of all queries, which come as commands of one batch.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.hub_load import VARIANTS, Load, shape_queries, template_queries, told
from bench.hub_local import MeasuredHub
from bench.memory import read_rollup

_SMALL = 20


@dataclass(frozen=True, slots=True)
class Resident:
    """`load` is templates or shapes."""

    state: str
    load: str
    queries: int


def measure(run: Resident) -> int:
    compared = run.load == "templates"
    load = Load(1_000_000, 200, compared)
    is_there = Path(run.state).exists()
    with tempfile.TemporaryDirectory(prefix="watersmeet-hub-") as scratch:
        hub = MeasuredHub(Path(scratch), load, _queries(compared, _SMALL))
        for _ in range(3):
            hub.short()
        commands = None if is_there else told(_queries(compared, run.queries))
        before = _anonymous()
        measured = MeasuredHub(Path(run.state), load, {})
        measured.hub.number = int(is_there)
        measured.short(commands)
        measured.short()
        return _anonymous() - before


def _queries(compared: bool, count: int) -> dict[str, str]:
    if not compared:
        return shape_queries(count)
    return template_queries(max(1, count // VARIANTS), min(count, VARIANTS))


def _anonymous() -> int:
    """Bytes of anonymous memory, without what allocators keep."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return read_rollup(os.getpid())["Anonymous"]


def main(given: Mapping[str, object]) -> None:
    print(json.dumps({"bytes": measure(Resident(**given))}))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
