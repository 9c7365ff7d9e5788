"""Tasks of the grid, run one after the other in this process without Spark: what each reads, searches and takes.

The operator is the one that runs on Spark, over the same files. Each task has a reader of its own, as in a cluster with a
process for each task, so what tasks would do at the same time is not done once for all. Seconds are those of the processor:
on a shared machine a task that has to stand aside is not slower. Several operators take turns task by task, within
milliseconds, so that a slow moment of the machine falls on all of them. When all tasks have had their turn they may have
another one, each with another reader, and the better time counts: what disturbs a task only adds to its time.

Planning, merging and clean-up are not in a task's time: they are the same for every mapping.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.engine.task import join_share
from watersmeet.kernel import band, equal, pieces, theta
from watersmeet.kernel.rows import Keyed
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import BatchId, KeyRange, Manifest, Run
from watersmeet.model.tally import Tally
from watersmeet.schemes.grid.facts import GridPlan


class CountingReader(RunReader):
    """Counts the rows that a task reads."""

    rows = 0

    def slices(
        self,
        run: Run,
        range_: KeyRange,
        columns: tuple[str, ...],
        sections: Sequence[range] | None = None,
        *,
        sort: bool = True,
    ) -> Iterator[Keyed]:
        for found in super().slices(run, range_, columns, sections, sort=sort):
            self.rows += len(found)
            yield found


@dataclass
class Searches:
    count: int = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the pairs of pieces that the kernels go through."""
        real = pieces.owed_pieces

        def counting(*args: Any, **how: Any) -> Iterator[Any]:
            for pair in real(*args, **how):
                self.count += 1
                yield pair

        def put(rule: Any) -> None:
            for kernel in (band, equal, theta):
                vars(kernel)["owed_pieces"] = rule

        put(counting)
        try:
            yield
        finally:
            put(real)


@dataclass
class GridTasks:
    """One operator over its own state, batch by batch: counts of the last batch, CPU seconds of all of them."""

    join: LocalJoin
    # By turn and task.
    readers: list[list[CountingReader]]
    results: int = 0
    shape: tuple[int, int] = (0, 0)
    # CPU seconds of taking rows in, by batch; of joining, by batch and task.
    ingest_s: list[float] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    _searches: Searches = field(default_factory=Searches)
    _manifest: Manifest | None = None

    @classmethod
    def of(cls, join: LocalJoin, turns: int = 1) -> GridTasks:
        files = open_files(join.operator.spec.settings.storage).under(join.name, join.query)
        return cls(join, [[CountingReader(files) for _ in range(join.tasks)] for _ in range(turns)])

    @property
    def rows_read(self) -> list[int]:
        """By task."""
        return [reader.rows for reader in self.readers[0]]

    @property
    def searches(self) -> int:
        return self._searches.count

    def begin(self, number: int, inputs: Mapping[str, pa.Table]) -> None:
        """Take a batch in and plan it."""
        batch, started = BatchId(self.join.query, self.join.run, number), time.process_time()
        descriptors = [
            self.join.operator.ingest(batch, name, partition, self.join.arriving(name, part))
            for name, rows in inputs.items()
            for partition, part in enumerate(halves(rows))
        ]
        self.ingest_s.append(time.process_time() - started)
        for task in range(self.join.tasks):
            self._manifest = self.join.operator.agree_and_merge(batch, task, descriptors)
        assert self._manifest is not None
        plan = self._manifest.plan.scheme
        assert isinstance(plan, GridPlan)
        self.shape = plan.shapes[0].rows, plan.shapes[0].cols
        self._searches, self.results = Searches(), 0
        self.seconds.append([math.inf] * self.join.tasks)

    def run_task(self, task: int, turn: int) -> None:
        assert self._manifest is not None
        reader, results = self.readers[turn][task], 0
        reader.rows = 0
        reader.forget_all_but(self._manifest.named_paths)
        searches = Searches()
        with searches.counted():
            started = time.process_time()
            for result in join_share(reader, self._manifest, self.join.operator.spec, task, Tally()):
                results += result.num_rows
            taken_s = time.process_time() - started
        self.seconds[-1][task] = min(self.seconds[-1][task], taken_s)
        if turn == 0:
            self._searches.count += searches.count
            self.results += results


def run_batch(operators: Sequence[GridTasks], number: int, inputs: Mapping[str, pa.Table]) -> None:
    """A batch of several operators with as many tasks and turns each."""
    for operator in operators:
        operator.begin(number, inputs)
    for turn, task in itertools.product(range(len(operators[0].readers)), range(operators[0].join.tasks)):
        first = (number + turn + task) % len(operators)
        for operator in (*operators[first:], *operators[:first]):
            operator.run_task(task, turn)


def halves(rows: pa.Table) -> list[pa.Table]:
    """As two tasks of a source would have them."""
    middle = len(rows) // 2
    return [rows.slice(0, middle), rows.slice(middle)]
