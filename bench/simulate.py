"""Run the batches of a join as a cluster would: every task on some executor, through files that count.

The operator, the planner and the log are the real ones. Tasks run one after the other in this process, and each of them
leaves what it read, fetched, wrote and computed (`bench/counted.py`). As Spark does, every stage gives its tasks to the
executors in another order, so a task rarely finds what it read in the batch before.

A batch of more rows than this machine can hold is run at a scale: a tenth of the rows, with all limits of sizes and
rows at a tenth too. So there are as many files, merges and parts as with all rows, and bytes and times per row are
multiplied.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.counted import (
    AGREE,
    INGEST,
    JOIN,
    PHASES,
    CountedFiles,
    Executor,
    Recorder,
    Usage,
    files_of,
    running_on,
)
from bench.data import cache_dir
from papers.shared.zipf import rank_shares
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.bases import name_of
from watersmeet.log.descriptors import decode_told, encode_told
from watersmeet.log.files import open_files
from watersmeet.log.manifests import named_by_each
from watersmeet.log.seen import Seen
from watersmeet.log.turns import PlannedBefore, patience_s
from watersmeet.model.facts import BatchId
from watersmeet.model.limits import Limits
from watersmeet.model.tally import Tally

SEED = 20_260_101
SELECT = ("l.k", "l.id", "l.x", "r.id AS rid", "r.x AS y")
# Counted are the last eight: as many batches as runs make one of the next tier.
BATCHES, COUNTED = 10, 8
# A clean-up comes after eight batches here and keeps no older state, so that it has something to remove.
CLEAN_EVERY, RETAINED = 8, 1
# Tasks that really plan; the others are given what these did. Planning is the same for all of them.
PLANNERS = 8

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True, slots=True)
class Workload:
    """A join, and its keys, which follow from the rows of an input in a batch."""

    name: str
    on: str
    strategy: str
    left: Draw
    right: Draw


def _even(times: int) -> Draw:
    return lambda rng, rows: rng.integers(0, times * rows, rows)


def _zipf(times: int) -> Draw:
    def draw(rng: np.random.Generator, rows: int) -> np.ndarray:
        keys = times * rows
        reached = np.cumsum(rank_shares(keys, 1.0))
        ranks = np.minimum(np.searchsorted(reached, rng.random(rows)), keys - 1)
        # Which key is hot has nothing to do with its value, in all batches alike.
        return np.random.default_rng(SEED).permutation(keys)[ranks]

    return draw


# One match for each row after ten batches. With Zipf's law one input is skewed: with both, the results would be all work.
WORKLOADS = {
    one.name: one
    for one in (
        Workload("even keys", "l.k = r.k", "hypercube", _even(10), _even(10)),
        Workload("Zipf 1", "l.k = r.k", "hypercube", _zipf(10), _even(10)),
        Workload("band", "abs(l.k - r.k) <= 10", "range", _even(210), _even(210)),
        Workload("grid", "l.k = r.k", "grid", _even(10), _even(10)),
    )
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors, and how a join is cut: `partitions` of each input in a batch, `tasks` that join."""

    executors: int = 64
    cores: int = 2
    tasks: int = 64
    partitions: int = 64


@dataclass
class TaskUse:
    """What one task did, on which executor; the rows that it took in or gave out, as on the cluster."""

    executor: int
    phases: dict[str, Usage]
    rows: int
    # Of a task that planned while others waited for it: what it did until the manifest was there.
    to_agree: dict[str, Usage] = field(default_factory=dict)
    # How long it looked for another one's manifest before it planned.
    waited_s: float = 0.0


@dataclass
class BatchUse:
    ingest: list[TaskUse] = field(default_factory=list)
    join: list[TaskUse] = field(default_factory=list)
    # Bytes that go through Spark's shuffle to one join task, and runs and bytes of the manifest as it is stored.
    shuffled_bytes: int = 0
    live_runs: int = 0
    manifest_bytes: int = 0
    # CPU to read what a manifest names: a cleaner that comes to a new executor reads all of them.
    manifest_cpu_s: float = 0.0


def scaled(limits: Limits, scale: int) -> Limits:
    """Limits for a fraction of the rows: as many pieces, parts and tiers."""
    names = (
        *("piece_rows", "piece_bytes", "smallest_tier_rows", "part_rows", "part_bytes", "min_part_rows"),
        *("min_rewrite_rows", "min_budget_rows", "least_listed_rows", "least_saved_bytes"),
    )
    return replace(limits, **{name: max(1, getattr(limits, name) // scale) for name in names})


def simulate(
    workload: Workload, cluster: Cluster, rows: int, scale: int = 1, batches: int = BATCHES
) -> Iterator[BatchUse]:
    """The use of each batch of `rows` rows, half of them in each input."""
    rng = np.random.default_rng(SEED)
    schema = pa.schema({"k": pa.int64(), "id": pa.int64(), "x": pa.float64()})
    (cache_dir() / "scratch").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cluster-", dir=cache_dir() / "scratch") as scratch:
        whole = Settings(state=str(Path(scratch) / "state"), tasks=cluster.tasks)
        settings = replace(
            whole,
            limits=replace(scaled(whole.limits, scale), clean_every_batches=CLEAN_EVERY),
            run_rows=whole.run_rows // scale,
            run_bytes=whole.run_bytes // scale,
            retain_batches=RETAINED,
            grace_s=0.0,
        )
        join = LocalJoin(
            {"l": schema, "r": schema},
            on=workload.on,
            select=SELECT,
            state=settings.state,
            tasks=cluster.tasks,
            strategy=workload.strategy,
            settings=settings,
        )
        executors = [Executor(number) for number in range(cluster.executors)]
        recorder = Recorder(scale)
        for number in range(batches):
            each = rows // 2 // scale
            arriving = {
                name: pa.table({"k": draw(rng, each), "id": np.arange(each), "x": rng.random(each)}, schema)
                for name, draw in (("l", workload.left), ("r", workload.right))
            }
            yield _batch(join, number, arriving, cluster, executors, recorder, rng)


def _batch(
    join: LocalJoin,
    number: int,
    arriving: dict[str, pa.Table],
    cluster: Cluster,
    executors: list[Executor],
    recorder: Recorder,
    rng: np.random.Generator,
) -> BatchUse:
    use, batch = BatchUse(), BatchId(join.query, join.run, number)
    parts = [
        (name, partition, rows.slice(low, high - low))
        for name, rows in arriving.items()
        for partition, (low, high) in enumerate(_cuts(len(rows), cluster.partitions))
    ]
    sent = []
    for (name, partition, part), executor in zip(parts, _placed(len(parts), executors, rng), strict=True):
        recorder.begin(INGEST, number)
        with running_on(executor, recorder):
            descriptor = join.operator.ingest(batch, name, partition, join.arriving(name, part))
        # As spark/tasks.py sends it.
        sent.append(encode_told(descriptor))
        use.ingest.append(TaskUse(executor.number, recorder.end(), len(part) * recorder.scale))
    use.shuffled_bytes = sum(map(len, sent))
    settled, raced = {}, _Raced()
    placed = _placed(cluster.tasks, executors, rng)
    told = [decode_told(content) for content in sent]
    waiting = patience_s(1, cluster.tasks, told) > 0
    planner, before = _planner(placed, recorder.planner if waiting else None)
    # As on a cluster, where all tasks begin together: no task joins before all have agreed. Where others wait for a
    # planner, it goes first.
    for task in sorted(range(len(placed)), key=lambda task: task != planner):
        executor = placed[task]
        recorder.begin(AGREE, number)
        told = [decode_told(content) for content in sent]
        recorder.races = task == planner if waiting else task % (cluster.tasks // PLANNERS or 1) == 0
        with running_on(executor, recorder):
            if not recorder.races and not waiting:
                spec = join.operator.spec
                files = files_of(executor, recorder, spec.settings.storage)
                raced.fetch(files.under(spec.name, join.query))
            manifest = join.operator.agree_and_merge(batch, task, told)
        planned = recorder.planned
        phases = recorder.end()
        if recorder.races:
            raced.add(phases[AGREE], planned)
        elif not waiting:
            phases[AGREE] = raced.typical
        to_agree = recorder.to_agree if waiting and recorder.races else {}
        waited_s = patience_s(task, cluster.tasks, told, before) if to_agree else 0.0
        settled[task] = manifest, phases, to_agree, waited_s
    recorder.planner = placed[planner].number
    for task, executor in enumerate(placed):
        manifest, before_join, to_agree, waited_s = settled[task]
        recorder.begin(JOIN, number)
        with running_on(executor, recorder):
            found = sum(result.num_rows for result in join.operator.results(manifest, task, Tally()))
        phases = _together(before_join, recorder.end())
        use.join.append(TaskUse(executor.number, phases, found * recorder.scale, to_agree, waited_s))
    use.live_runs = len(manifest.history) + len(manifest.fresh)
    spec = join.operator.spec
    log = open_files(spec.settings.storage).under(spec.name, join.query)
    stored = name_of(manifest)
    use.manifest_bytes = len(log.read(stored.path))
    started = time.process_time()
    named_by_each(log, [stored], Seen())
    use.manifest_cpu_s = time.process_time() - started
    return use


def _planner(placed: Sequence[Executor], planned: int | None) -> tuple[int, PlannedBefore]:
    """The task that plans first where others wait: one on the executor that planned the batch before, or task 0."""
    if planned is None:
        return 0, PlannedBefore.UNKNOWN
    there = [task for task, executor in enumerate(placed) if executor.number == planned]
    return (there[0], PlannedBefore.HERE) if there else (0, PlannedBefore.ELSEWHERE)


class _Raced:
    """What the tasks that planned did, if all of them do. The others would have done the same at the same time."""

    def __init__(self) -> None:
        self._usages: list[Usage] = []
        self._paths: set[str] = set()

    def add(self, usage: Usage, planned: set[str]) -> None:
        self._usages.append(usage)
        self._paths |= planned

    @property
    def typical(self) -> Usage:
        """The planner with the median of CPU time."""
        return sorted(self._usages, key=lambda usage: usage.cpu_s)[len(self._usages) // 2]

    def fetch(self, files: CountedFiles) -> None:
        """Fetch what planners look into."""
        for path in sorted(self._paths):
            files.map_planned(path)


def _together(one: dict[str, Usage], other: dict[str, Usage]) -> dict[str, Usage]:
    return {
        phase: one.get(phase, Usage()) + other.get(phase, Usage())
        for phase in PHASES
        if {phase} & ({*one} | {*other})
    }


def _cuts(rows: int, pieces: int) -> list[tuple[int, int]]:
    bounds = [rows * piece // pieces for piece in range(pieces + 1)]
    return list(itertools.pairwise(bounds))


def _placed(tasks: int, executors: list[Executor], rng: np.random.Generator) -> list[Executor]:
    """An executor for each task: in turn, in an order that is drawn for each stage, as Spark's scheduler does."""
    order = rng.permutation(len(executors))
    return [executors[order[task % len(executors)]] for task in range(tasks)]
