"""What a task of the grid reads, searches and takes, under three mappings: a part of `python -m bench adaptive`.

STATICMID has a square mapping, STATICOPT the best one for the sizes, DYNAMIC finds it. The load of a task is the rows
that it reads (Elseidy et al. 2014, 3.3), so a mapping that reads less must take less time. Where all pairs are compared
the work is the area of a cell, which is the same for every mapping: there it must take no longer.

No Spark: the tasks run one after the other in this process, by the same code over the same files. Each has a reader of
its own, as in a cluster with a process for each task, so what tasks would do at the same time is not done once for all.

Rows and searches (a piece of new rows sought in one slice, or compared with it) are counted in the last batch. The time
is CPU time: the median of the later half of the batches for each task, then the slowest task. The three operators take
turns, batch by batch. Planning, merging and clean-up are not in it: they are the same for all.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.report import Finding
from papers.adaptive.operators import DYNAMIC, STATICMID, STATICOPT
from watersmeet.engine.task import join_share
from watersmeet.kernel import band, equal, pieces, theta
from watersmeet.kernel.rows import Keyed
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import BatchId, KeyRange, Manifest, Run
from watersmeet.model.tally import Tally
from watersmeet.schemes.grid.facts import GridPlan
from watersmeet.schemes.grid.policy import GridPolicy, dynamic, static_mid, static_opt

MAPPINGS = "mappings"
OPERATORS = (STATICMID, STATICOPT, DYNAMIC)
TASKS = (16, 64)
RATIOS = (1, 8, 64)
BATCHES = 12
# Less than this much of STATICMID's rows is "reads less": hashing spreads rows unevenly by about a per cent.
READS_LESS = 0.95
# Where all pairs are compared, times may differ by what they differ between runs.
NO_LONGER = 1.1

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "id": pa.int64(), "s": pa.string()})


@dataclass(frozen=True, slots=True)
class Predicate:
    """A kind of join, the rows of a batch, and the number of different keys: results are few."""

    name: str
    on: str
    rows: int
    keys: int = 10_000_000
    all_pairs: bool = False


# All pairs are compared by any condition, so it has fewer rows.
PREDICATES = (
    Predicate("equality", "l.k = r.k", 195_000),
    Predicate("band", "abs(l.k - r.k) <= 3", 195_000),
    Predicate("any condition", "l.k = r.k OR l.x = r.x", 24_000, keys=100_000_000, all_pairs=True),
)


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
class Operation:
    """One operator over its own state, batch by batch."""

    join: LocalJoin
    readers: list[CountingReader]
    searches: int = 0
    results: int = 0
    shape: tuple[int, int] = (0, 0)
    # CPU seconds, by batch and task.
    seconds: list[list[float]] = field(default_factory=list)

    @classmethod
    def of(cls, predicate: Predicate, tasks: int, policy: GridPolicy, state: Path) -> Operation:
        join = LocalJoin(
            {"l": SCHEMA, "r": SCHEMA},
            on=predicate.on,
            select=["l.id AS a", "r.id AS b"],
            state=str(state),
            tasks=tasks,
            cells=tasks,
            partitions=2,
            strategy="grid",
            policy=policy,
        )
        files = open_files(join.operator.spec.settings.storage).under(join.name, join.query)
        return cls(join, [CountingReader(files) for _ in range(tasks)])

    def run(self, number: int, inputs: dict[str, pa.Table]) -> None:
        batch = BatchId(self.join.query, self.join.run, number)
        descriptors = [
            self.join.operator.ingest(batch, name, partition, self.join.arriving(name, part))
            for name, rows in inputs.items()
            for partition, part in enumerate(halves(rows))
        ]
        manifest = [self.join.operator.settle(batch, task, descriptors) for task in range(self.join.tasks)][
            -1
        ]
        plan = manifest.plan.scheme
        assert isinstance(plan, GridPlan)
        self.shape = plan.shapes[0].rows, plan.shapes[0].cols
        counter = Searches()
        self.results = 0
        with counter.counted():
            self.seconds.append([self._task(manifest, task) for task in range(self.join.tasks)])
        self.searches = counter.count

    def _task(self, manifest: Manifest, task: int) -> float:
        reader = self.readers[task]
        reader.rows = 0
        reader.forget_all_but(manifest.named_paths)
        started = time.process_time()
        for result in join_share(reader, manifest, self.join.operator.spec, task, Tally()):
            self.results += result.num_rows
        return time.process_time() - started

    def figures(self) -> dict[str, Any]:
        later = np.array(self.seconds[len(self.seconds) // 2 :])
        return {
            "mapping": self.shape,
            "rows_read": max(reader.rows for reader in self.readers),
            "searches": self.searches,
            "slowest_ms": 1e3 * float(np.median(later, axis=0).max()),
            "mean_ms": 1e3 * float(np.median(later, axis=0).mean()),
            "results": self.results,
        }


def halves(rows: pa.Table) -> list[pa.Table]:
    middle = len(rows) // 2
    return [rows.slice(0, middle), rows.slice(middle)]


def arriving(predicate: Predicate, count: int, batch: int, side: int) -> pa.Table:
    rng = np.random.default_rng([batch, side])
    keys, other = rng.integers(0, predicate.keys, (2, count))
    texts = pa.array([f"value {number:07d}" for number in range(1000)])
    ids = batch * predicate.rows + np.arange(count)
    return pa.table([keys, other, ids, texts.take(pa.array(ids % 1000))], schema=SCHEMA)


def measure(
    predicate: Predicate, tasks: int, ratio: int, batches: int, scratch: Path
) -> dict[str, dict[str, Any]]:
    """The figures of the three operators, on the same rows."""
    left = max(1, predicate.rows // (1 + ratio))
    right = predicate.rows - left
    policies = {STATICMID: static_mid(), STATICOPT: static_opt(left, right), DYNAMIC: dynamic()}
    with tempfile.TemporaryDirectory(prefix="mappings-", dir=scratch) as folder:
        operations = {
            name: Operation.of(predicate, tasks, policy, Path(folder) / name)
            for name, policy in policies.items()
        }
        for batch in range(batches):
            inputs = {"l": arriving(predicate, left, batch, 0), "r": arriving(predicate, right, batch, 1)}
            turned = OPERATORS[batch % 3 :] + OPERATORS[: batch % 3]
            for name in turned:
                operations[name].run(batch, inputs)
        return {name: operations[name].figures() for name in OPERATORS}


def measure_all(console: Console, batches: int, share: float, scratch: Path) -> list[dict[str, Any]]:
    """Every predicate, number of tasks and ratio. `share` makes batches smaller, to check that everything runs."""
    found = []
    for predicate in PREDICATES:
        small = replace(predicate, rows=int(predicate.rows * share))
        for tasks in TASKS:
            for ratio in RATIOS:
                figures = measure(small, tasks, ratio, batches, scratch)
                found.append(
                    {"predicate": predicate.name, "tasks": tasks, "ratio": ratio, "operators": figures}
                )
                console.print(f"{predicate.name}, {tasks} tasks, 1:{ratio}: {_line(figures)}")
    return found


def _line(figures: dict[str, dict[str, Any]]) -> str:
    return ", ".join(f"{name} {one['slowest_ms']:.2f} ms" for name, one in figures.items())


def show(found: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(
        "join", "tasks", "sizes", "operator", "mapping", "rows read", "searches", "slowest task, ms"
    )
    for one in found:
        for name, figures in one["operators"].items():
            rows, cols = figures["mapping"]
            table.add_row(
                one["predicate"],
                str(one["tasks"]),
                f"1:{one['ratio']}",
                name,
                f"({rows}, {cols})",
                f"{figures['rows_read']:,}",
                f"{figures['searches']:,}",
                f"{figures['slowest_ms']:.2f}",
            )
    console.print(table)


def find(found: Sequence[dict[str, Any]]) -> list[Finding]:
    """Whoever reads less than STATICMID must take less time, with the same results."""
    findings = []
    by_area = {predicate.name for predicate in PREDICATES if predicate.all_pairs}
    for one in found:
        mid, title = (
            one["operators"][STATICMID],
            f"{one['predicate']}, {one['tasks']} tasks, 1:{one['ratio']}",
        )
        for name in (STATICOPT, DYNAMIC):
            other = one["operators"][name]
            assert other["results"] == mid["results"], f"{title}: results differ"
            less = other["rows_read"] / mid["rows_read"]
            if less > READS_LESS:
                continue
            time_ = other["slowest_ms"] / mid["slowest_ms"]
            same_area = one["predicate"] in by_area
            findings.append(
                Finding(
                    f"{title}: {name} reads {less:.2f} of the rows",
                    f"at most {NO_LONGER} of the time" if same_area else "less time",
                    f"{time_:.2f} ({other['slowest_ms']:.2f} / {mid['slowest_ms']:.2f} ms)",
                    time_ <= NO_LONGER if same_area else time_ < 1,
                )
            )
    return findings
