"""A hub on the local driver that is measured: a history, and batches whose CPU time is taken by phase.

The history is stored and not joined: `history` takes rows in and agrees on their manifest, as every batch does, and
leaves out the answers. That makes it cheap, and changes nothing for later batches. Tasks run one after the other in this
process, and the CPU time of all of them is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from bench.hub_load import NAMES, SCHEMA, Load
from watersmeet.engine.hub_status import open_hub
from watersmeet.hubs.answers import ANSWERS
from watersmeet.hubs.keep import keeps_of
from watersmeet.hubs.kept import KEPT
from watersmeet.local.hub import LocalHub
from watersmeet.log.descriptors import Told
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.model.keep import Keep

T = TypeVar("T")
TASKS = 2
# The time of a batch moves on by as much, under a clock of the benchmark's own.
BATCH_S = 10.0


@dataclass(frozen=True, slots=True)
class Timed:
    """CPU seconds of a batch: taking rows in, agreeing on the manifest (the first task plans it), and the answers of
    each task."""

    ingest_s: float
    plan_s: float
    answer_s: tuple[float, ...]
    answers: pa.Table

    @property
    def cpu_s(self) -> float:
        return self.ingest_s + self.plan_s + sum(self.answer_s)

    @property
    def spread_s(self) -> float:
        """The same with both tasks at once, each on a core of its own."""
        return self.ingest_s + self.plan_s + max(self.answer_s)

    @property
    def found(self) -> int:
        """Answers without the events of commands."""
        return sum(1 for event in self.answers.column("event").to_pylist() if event == "answer")


class MeasuredHub:
    """A hub with some queries over the rows of a load."""

    def __init__(self, folder: Path, load: Load, queries: Mapping[str, str], keep: str = Keep.NEVER) -> None:
        self.load, self.folder, self._now_s = load, folder, 1_000_000.0
        self.hub = LocalHub(
            dict.fromkeys(NAMES, SCHEMA),
            state=str(folder),
            queries=queries,
            tasks=TASKS,
            keep=keep,
            clock=lambda: self._now_s,
        )

    def kept(self) -> tuple[int, int]:
        """How many templates keep something, and the rows that are kept."""
        found = open_hub(str(self.folder))
        rows = sum(run.rows for run in found.manifest.live if run.input == KEPT)
        return int(keeps_of(found.catalogue).sum()), rows

    def history(self, batches: int) -> None:
        """Store the next batches of the load, without their answers."""
        for _ in range(batches):
            batch = self._batch()
            told = self.hub.ingest(batch, self.load.batch(batch.number))
            for task in range(TASKS):
                self._agree(batch, task, told)
            self.hub.number += 1

    def short(self, commands: pa.Table | None = None) -> Timed:
        """The next batch, of a tenth of the rows."""
        few = replace(self.load, batch_rows=self.load.batch_rows // 10)
        return self._run(few.batch(self.hub.number), commands)

    def timed(self, commands: pa.Table | None = None) -> Timed:
        """The next batch of the load, with commands if there are any."""
        return self._run(self.load.batch(self.hub.number), commands)

    def _run(self, rows: Mapping[str, pa.Table], commands: pa.Table | None = None) -> Timed:
        batch = self._batch()
        ingest_s, told = cpu(lambda: self.hub.ingest(batch, rows, commands))
        plan_s, first = cpu(lambda: self._agree(batch, 0, told))
        manifests: list[Manifest] = [first]
        spent, parts = [], []
        for task in range(TASKS):
            began_s = time.process_time()
            if task:
                manifests.append(self._agree(batch, task, told))
            parts += list(self._results(manifests[task], task))
            spent.append(time.process_time() - began_s)
        self.hub.number += 1
        return Timed(ingest_s, plan_s, tuple(spent), pa.Table.from_batches(parts, ANSWERS))

    def _batch(self) -> BatchId:
        self._now_s += BATCH_S
        return BatchId(self.hub.query, self.hub.run, self.hub.number)

    def _agree(self, batch: BatchId, task: int, told: list[Told]) -> Manifest:
        return self.hub.operator.agree_and_merge(batch, task, told)

    def _results(self, manifest: Manifest, task: int) -> Iterator[pa.RecordBatch]:
        return self.hub.operator.results(manifest, task)


def cpu(what: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds of this process while something runs, and what it returns."""
    began_s = time.process_time()
    found = what()
    return time.process_time() - began_s, found
