"""What the busiest task of a walk fetches from remote state, with shares of the keys and without (`--only shares`).

Every task is a machine of its own with an empty cache, as where the state is larger than the cache: it fetches all runs
that it reads. The files count what is fetched (`counted.py`). The first batch is as large as many later ones, so that
most of the state is merged, as after a long time. Rows and limits are at a scale, so that there are as many runs and
merged parts as with more rows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa

from bench.counted import AGREE, HISTORY, INGEST, JOIN, NEW, Executor, Recorder, running_on
from bench.many_state import scratch
from bench.report import Finding
from bench.simulate import SEED, scaled
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import BatchId, Manifest
from watersmeet.model.tally import Tally
from watersmeet.schemes.delta.scheme import Delta

# The columns of each input, and the conditions.
GRAPHS = {
    "path of three": ({"a": "x", "b": "xy", "c": "y"}, "a.x = b.x AND b.y = c.y"),
    "star of four": ({"f": "xyz", "a": "x", "b": "y", "c": "z"}, "f.x = a.x AND f.y = b.y AND f.z = c.z"),
    "triangle": ({"a": "xy", "b": "yz", "c": "zx"}, "a.y = b.y AND b.z = c.z AND c.x = a.x"),
}
# The first batch: partitions, and the rows of each in those of another batch. As many partitions are merged at once.
FIRST_PARTITIONS, FIRST_TIMES = 8, 4
# A task should fetch less than this part of what it would without shares, or they are not worth their work.
MOST_READ = 0.6


@dataclass(frozen=True, slots=True)
class SharedRun:
    """The last batch: the bytes that each task fetched to join, the rows that each looked up; and all results."""

    fetched_bytes: tuple[int, ...]
    looked_rows: tuple[int, ...]
    results: Counter[tuple]
    given: dict[str, pa.Table]
    manifest: Manifest


def run_shared(
    folder: Path, graph: str, tasks: int, rows: int, batches: int, scale: int, *, sharing: bool = True
) -> SharedRun:
    """Run batches of `rows` rows of each input in tasks that are machines of their own, after a large one."""
    inputs, on = GRAPHS[graph]
    rng, recorder = np.random.default_rng(SEED), Recorder()
    schemas = {
        name: pa.schema({one: pa.int64() for one in ("id", *columns)}) for name, columns in inputs.items()
    }
    settings = Settings(state=str(folder), tasks=tasks)
    # All merges are done at once.
    limits = replace(scaled(settings.limits, scale), min_budget_rows=1 << 40)
    settings = replace(settings, limits=limits)
    select = [f"{name}.id AS {name}" for name in inputs]
    join = LocalJoin(schemas, on=on, select=select, state=str(folder), tasks=tasks, settings=settings)
    given: dict[str, list[pa.Table]] = {name: [] for name in inputs}
    found: Counter[tuple] = Counter()
    # One match for each row at the end.
    keys = rows * (FIRST_PARTITIONS * FIRST_TIMES + batches - 1)
    with mock.patch.object(Delta, "_shares", Delta._shares if sharing else lambda *_: None):
        for number in range(batches):
            batch = BatchId(join.query, join.run, number)
            partitions, times = (1, 1) if number else (FIRST_PARTITIONS, FIRST_TIMES)
            recorder.begin(INGEST, number)
            with running_on(Executor(0), recorder):
                told = []
                for name, partition in itertools.product(inputs, range(partitions)):
                    first = sum(map(len, given[name]))
                    given[name].append(_drawn(rng, schemas[name], first, rows * times, keys))
                    arriving = join.arriving(name, given[name][-1])
                    told.append(join.operator.ingest(batch, name, partition, arriving))
            fetched, looked = [], []
            for task in range(tasks):
                machine, tally = Executor(task), Tally()
                with running_on(machine, recorder):
                    recorder.begin(AGREE, number)
                    recorder.races = False
                    manifest = join.operator.agree_and_merge(batch, task, told)
                    recorder.end()
                machine = Executor(task)
                with running_on(machine, recorder):
                    recorder.begin(JOIN, number)
                    for result in join.operator.results(manifest, task, tally):
                        found.update(zip(*(column.to_pylist() for column in result.columns), strict=True))
                    usage = recorder.end()
                fetched.append(sum(usage[phase].run_bytes_read for phase in (NEW, HISTORY) if phase in usage))
                looked.append(tally.looked_rows)
    tables = {name: pa.concat_tables(parts) for name, parts in given.items()}
    return SharedRun(tuple(fetched), tuple(looked), found, tables, manifest)


def _drawn(rng: np.random.Generator, schema: pa.Schema, first: int, rows: int, keys: int) -> pa.Table:
    """Rows with ids from `first` on, and even keys."""
    drawn = [rng.integers(0, keys, rows) for _ in schema.names[1:]]
    return pa.table([first + np.arange(rows), *drawn], schema=schema)


def key_shares(tasks: int, rows: int, batches: int, say: Callable[[str], None]) -> list[Finding]:
    findings = []
    for graph in GRAPHS:
        runs = []
        for sharing in (False, True):
            with scratch() as folder:
                runs.append(
                    run_shared(folder, graph, tasks, rows, batches, scale=1_000_000 // rows, sharing=sharing)
                )
        whole, shared = runs
        most = [max(one.fetched_bytes) for one in runs]
        looked = sum(shared.looked_rows) / max(1, sum(whole.looked_rows))
        say(
            f"{graph}, {tasks} tasks: sides {shared.manifest.plan.scheme.shares and shared.manifest.plan.scheme.shares.sides}"  # type: ignore[attr-defined]
            f", {looked:.2f} times the rows looked up"
        )
        measured = f"{most[1] / 1e6:.2f} MB instead of {most[0] / 1e6:.2f} MB"
        same = whole.results == shared.results
        findings.append(
            Finding(
                f"{graph}: fetched by the busiest of {tasks} tasks",
                f"<= {MOST_READ:g}x of it without shares",
                measured if same else "other results",
                same and most[1] <= MOST_READ * most[0],
            )
        )
    return findings
