"""`python -m bench many`: many tasks, many partitions, many runs, many batches. No Spark, a few minutes.

The log is real: files, claims, descriptors, manifests, bases, receipts and cleaning are those of the product, on a local
disk, behind a wrapper that counts requests and bytes. Rows are not: a run is a fact without a file. Where a
scheme's plan is timed, its keys are real, drawn by Zipf's law (`bench/zipf_runs.py`), and so are its statistics.
Elsewhere its keys lie evenly, and its statistics are those that a run of its size may have. A merge's outputs are made
when a task would write them. Each simulated process has its own memory of the log.

Times are CPU times of this process, so that background load does not count; wall times are in brackets.
"""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from bench.report import Finding
from bench.zipf_runs import ZipfRuns
from watersmeet.engine import operator as engine
from watersmeet.engine.desk import desk_for
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.clean import Cleaner
from watersmeet.log.descriptors import Told, encode_told, patience_s, publish_descriptor
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import waits
from watersmeet.log.receipts import publish_receipt
from watersmeet.log.seen import Seen
from watersmeet.log.starts import claim_start
from watersmeet.log.storage import Files
from watersmeet.model.facts import (
    KEY_SPACE,
    BatchId,
    BatchSpan,
    Descriptor,
    KeyRange,
    Manifest,
    Merge,
    Receipt,
    Run,
)
from watersmeet.schemes.hypercube.census import Stored
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.hot_keys import HotKeys
from watersmeet.schemes.hypercube.plan import plan_cube

PARTS = ("plan", "tasks", "runs", "cleaning", "batches")

# The demands.
MOST_SHUFFLED, MOST_READ, MOST_REQUESTS = 5e6, 20e6, 1_000
MOST_PLAN_MS, MOST_SEEN_MS, MOST_COLD_MS = 100.0, 50.0, 500.0
MOST_CUBE_MS = 3.0
# A batch after many others against one after few, beyond the noise of a shared machine.
MOST_GROWTH = 1.25

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

    @property
    def reads(self) -> int:
        return sum(count for kind, count in self.requests.items() if kind != "publish")


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


class Keys:
    """Stands for a reader of runs, for all processes: the keys of a run lie evenly between its first and its last."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def expect(self, runs: Any) -> None:
        """Nothing is fetched."""

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
        files: Any = CountedFiles(self.files, count or Count())
        seen = Seen()
        reader: Any = self.keys
        spec = self.join.operator.spec
        return engine._Kept(files, seen, reader, Cleaner(files, seen), desk_for(spec, files, time.time))

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


# --- The hypercube's own plan -----------------------------------------------------------------------------------------

PLANNED_TASKS, PLANNED_ROWS = 48, 200_000
# Batches that are not timed, and those that are. All runs of an input become one every so many batches.
WARM_UP, TIMED, MERGE_EVERY = 3, 15, 5


def cube_plans(small: int, say: Callable[[str], None]) -> list[Finding]:
    """Plan batches of 48 tasks, for keys from even to very skewed, in few or many partitions."""
    findings = []
    for partitions in (2, 8):
        for alpha in (0.0, 0.5, 1.0, 1.5, 2.0):
            spent, plan = time_cube(PLANNED_TASKS, partitions, PLANNED_ROWS // small, alpha)
            demand = f"hypercube: plan of {PLANNED_TASKS} tasks, {partitions} partitions, Zipf {alpha:g}"
            shown = f"{statistics.median(spent):.2f} ms ({len(plan.heavy)} heavy keys)"
            findings.append(
                Finding(
                    demand, f"under {MOST_CUBE_MS:.0f} ms", shown, statistics.median(spent) < MOST_CUBE_MS
                )
            )
    say(
        f"the hypercube's own plan: {PLANNED_ROWS // small:,} rows of each input a batch, CPU time, median of {TIMED} "
        f"batches; all runs of an input become one every {MERGE_EVERY} batches"
    )
    return findings


def time_cube(tasks: int, partitions: int, rows: int, alpha: float) -> tuple[list[float], CubePlan]:
    """CPU ms of each plan after the warm-up, and the last plan."""
    shelf = ZipfRuns(alpha, tasks, SEED)
    old: dict[str, list[Run]] = {"l": [], "r": []}
    plan, spent = None, []
    for number in range(WARM_UP + TIMED):
        new = {
            side: [
                shelf.store(side, number, f"p{part:05d}", shelf.draw(rows // partitions))
                for part in range(partitions)
            ]
            for side in old
        }
        stored = {side: Stored(old[side], new[side]) for side in old}
        gc.freeze()
        began = time.process_time()
        plan = plan_cube(plan, stored, shelf.keys, tasks, number)
        spent.append(1e3 * (time.process_time() - began))
        old = {side: [*old[side], *new[side]] for side in old}
        if number % MERGE_EVERY == MERGE_EVERY - 1:
            old = {side: [_all_in_one(shelf, side, runs)] for side, runs in old.items()}
            shelf.forget_all_but(run.path for runs in old.values() for run in runs)
    assert plan is not None
    return spent[WARM_UP:], plan


def _all_in_one(shelf: ZipfRuns, side: str, runs: Sequence[Run]) -> Run:
    keys = shelf.merged([run.path for run in runs], KeyRange(0, KEY_SPACE))
    return shelf.store(side, runs[-1].batch, "m", keys)


# --- 200 tasks and 200 partitions -------------------------------------------------------------------------------------


def tasks_and_partitions(size: int, batches: int, say: Callable[[str], None]) -> list[Finding]:
    """Every task is a process of its own and all begin at once.

    Another process plans each batch, so that it lacks statistics; then one process plans several.
    """
    with scratch() as folder:
        sim = Simulation(folder, size, hot_keys=700)
        counts = [Count() for _ in range(size)]
        processes = [sim.process(count) for count in counts]
        shuffled, read, requests, moving = [], [], [], []
        ingest = Count()
        files: Any = CountedFiles(sim.files, ingest)
        for number in range(2 * batches):
            told = [
                publish_descriptor(files, sim.batch_id(number), one)
                for one in sim.descriptors(number, size, rows=20_000)
            ]
            for count in counts:
                count.requests.clear()
                count.read_bytes = 0
            planner = number % size
            manifest, spent = sim.agree(processes[planner], number, told, 0)
            looks = _looks(spent.around_ms / 1e3, size, told)
            for task in range(1, size):
                sim.agree(processes[(planner + task) % size], number, told, task)
            sim.keys.forget_all_but(manifest.named_paths)
            sim.merge(manifest)
            if number >= batches:
                shuffled.append(sum(len(encode_told(one)) + 4 for one in told) * size)
                read.append(sum(count.read_bytes for count in counts))
                requests.append(sum(count.reads for count in counts) + looks)
                moving.append(spent)
        staying = []
        for number in range(2 * batches, 3 * batches):
            given = sim.descriptors(number, size, rows=20_000)
            told = [publish_descriptor(files, sim.batch_id(number), one) for one in given]
            manifest, spent = sim.agree(processes[planner], number, told, 0)
            sim.merge(manifest)
            staying.append(spent)
        name = f"{size} tasks x {size} partitions"
        say(
            f"{name}: {len(manifest.live)} live runs, descriptors of "
            f"{ingest.written_bytes / ingest.requests['publish'] / 1e3:.0f} KB, manifest "
            f"{len(sim.files.read(_path(sim, number))) / 1e3:.0f} KB; the hypercube's own plan takes "
            f"{statistics.median(one.scheme_ms for one in staying):.0f} ms, all else of a planner that did not plan "
            f"before {statistics.median(one.around_ms for one in moving):.0f} ms; requests include looks for the "
            "manifest while it is planned, the scheme's own time left out"
        )
    plan_ms = [one.around_ms for one in staying[1:]]
    return [
        _at_most(f"{name}: shuffled a batch", max(shuffled), MOST_SHUFFLED, "MB", 1e6),
        _at_most(f"{name}: read from the log a batch", max(read), MOST_READ, "MB", 1e6),
        _at_most(f"{name}: requests to read a batch", max(requests), MOST_REQUESTS, ""),
        Finding(
            f"{name}: find, read, plan around the scheme, publish",
            f"under {MOST_PLAN_MS:.0f} ms",
            f"{min(plan_ms):.0f} ms at best, median {statistics.median(plan_ms):.0f}",
            min(plan_ms) < MOST_PLAN_MS,
        ),
    ]


def whole_plan(size: int, batches: int, alpha: float) -> Finding:
    """The same by one process that plans every batch, the scheme's plan included: runs with real keys."""
    with scratch() as folder:
        sim = ZipfSimulation(folder, size, alpha)
        planner, spent = sim.process(), []
        for number in range(batches):
            given = sim.descriptors(number, size, rows=20_000)
            told = [publish_descriptor(sim.files, sim.batch_id(number), one) for one in given]
            manifest, took = sim.agree(planner, number, told, 0)
            sim.keys.forget_all_but(manifest.named_paths)
            sim.merge(manifest)
            spent.append(took)
    # The first batches have few old runs.
    late = spent[WARM_UP:]
    whole, scheme = (
        statistics.median(ms) for ms in zip(*((one.cpu_ms, one.scheme_ms) for one in late), strict=True)
    )
    return Finding(
        f"{size} tasks x {size} partitions, Zipf {alpha:g}: find, read, plan, publish",
        f"under {MOST_PLAN_MS:.0f} ms",
        f"{whole:.0f} ms ({scheme:.0f} of them the scheme's)",
        whole < MOST_PLAN_MS,
    )


def _looks(plan_s: float, tasks: int, told: Sequence[Told]) -> int:
    """How often all others look for the manifest in vain while task 0 plans."""
    missed = 0
    for task in range(1, tasks):
        missed += 1
        waited = 0.0
        for pause_s in waits(patience_s(task, tasks, told)):
            waited += pause_s
            missed += waited < plan_s
    return missed


def _path(sim: Simulation, number: int) -> str:
    return f"manifests/{sim.start.number:06d}-{number:012d}-{sim.join.run}.json"


# --- 10,000 live runs -------------------------------------------------------------------------------------------------


def _grown(folder: Path, runs: int) -> Simulation:
    """A state with many live runs that are not merged: its merges are planned and never done."""
    sim = Simulation(folder, tasks=16, hot_keys=20)
    first = sim.process()
    sim.agree(first, 0, sim.descriptors(0, runs, rows=1_000), 0)
    sim.agree(first, 1, [], 0)
    return sim


def live_runs(runs: int, batches: int, say: Callable[[str], None]) -> list[Finding]:
    with scratch() as folder:
        sim = _grown(folder, runs)
        planner, other = sim.process(), sim.process()
        sim.agree(planner, 2, [], 0)
        sim.agree(other, 2, [], 1)
        planned, joined, cold_planned, cold_joined = [], [], [], []
        sizes = []
        for number in range(3, 3 + batches):
            told = sim.descriptors(number, 2, rows=1_000)
            planned.append(sim.agree(planner, number, told, 0)[1])
            joined.append(sim.agree(other, number, told, 1)[1])
            sizes.append(len(sim.files.read(_path(sim, number))))
            if number % 10 == 0:
                cold_joined.append(sim.agree(sim.process(), number, told, 2)[1])
                path = sim.files.root / _path(sim, number)
                content = path.read_bytes()
                path.unlink()
                cold_planned.append(sim.agree(sim.process(), number, told, 0)[1])
                # The others have seen the first one.
                path.write_bytes(content)
        bases = len(sim.files.entries("bases"))
        say(
            f"{runs:,} live runs of 20 hot keys, 2 new ones a batch: manifests of {statistics.median(sizes) / 1e3:.0f} KB, "
            f"{bases} bases in {batches} batches, the slowest planner {max(one.around_ms for one in planned):.0f} ms, the "
            f"hypercube's own plan {statistics.median(one.scheme_ms for one in planned):.0f} ms"
        )
    name = f"{runs:,} live runs"
    return [
        _time(f"{name}: a task that saw the last manifest plans", planned, MOST_SEEN_MS),
        _time(f"{name}: a task that saw the last manifest finds the next", joined, MOST_SEEN_MS),
        _time(f"{name}: a task that saw nothing plans", cold_planned, MOST_COLD_MS),
        _time(f"{name}: a task that saw nothing finds the manifest", cold_joined, MOST_COLD_MS),
    ]


def cleaning(runs: int, retained: int, say: Callable[[str], None]) -> list[Finding]:
    with scratch() as folder:
        sim = _grown(folder, runs)
        planner, count = sim.process(), Count()
        process = sim.process(count)
        spent = []
        for number in range(2, 2 + 2 * retained):
            manifest, _ = sim.agree(planner, number, sim.descriptors(number, 2, rows=1_000), 0)
            if number >= retained and number % max(1, retained // 6) == 0:
                began = time.process_time()
                process.cleaner.clean(manifest, retain=retained, now_s=time.time())
                spent.append(1e3 * (time.process_time() - began))
        most = max(times for path, times in count.paths.items() if path.startswith("manifests/"))
        say(
            f"cleaning, {retained} retained manifests of {runs:,} runs: the first in a process takes {spent[0]:.0f} ms, a "
            f"later one {statistics.median(spent[1:]):.0f} ms"
        )
    return [
        Finding("cleaning: reads of one manifest in a process", "at most 1", str(most), most <= 1),
    ]


# --- Many batches -----------------------------------------------------------------------------------------------------


def one_row_batches(count: int, say: Callable[[str], None]) -> list[Finding]:
    """Real batches of one row of each input on the local driver, and the same on a state of a million such rows."""
    with scratch() as folder:
        early, late, files = _drive(folder / "few", count, 0)
        grown, _, _ = _drive(folder / "million", min(count, 2_000), 1_000_000)
    say(
        f"{count:,} real batches of one row of each input, two tasks, files left in each folder: "
        f"{', '.join(f'{name} {number}' for name, number in files.items())}. The state of a million is fabricated: "
        "its rows come in one batch, numbered as the one after a million"
    )
    return [
        _growth(f"one-row batches: the last of {count:,} against those after the first 1,000", early, late),
        _growth("one-row batches: on a state of a million rows against the same", early, grown),
    ]


def _drive(folder: Path, count: int, rows_before: int) -> tuple[float, float, dict[str, int]]:
    """Median CPU ms of a batch after the first 1,000 (or a tenth) and at the end, and the files that are left."""
    first, began_s = rows_before, time.time()
    # The clock runs fast, so that the grace period passes.
    built = False
    join = LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.x", "r.x AS y"],
        state=str(folder),
        strategy="hash",
        settings=Settings(state=str(folder), tasks=2, accept_gap=(BatchSpan(0, first - 1),) if first else ()),
        number=first,
        clock=lambda: began_s + 10.0 * (join.number - first if built else 0),
    )
    built = True
    if rows_before:
        keys = np.random.default_rng(SEED).permutation(rows_before)
        whole = pa.table({"k": keys, "x": keys})
        join.batch(l=whole, r=whole)
    spent = []
    for number in range(count):
        row = pa.table({"k": [number], "x": [number]}, schema=SCHEMA)
        began = time.process_time()
        join.batch(l=row, r=row)
        spent.append(1e3 * (time.process_time() - began))
    state = LocalFiles(folder / "join" / "local")
    files = {
        name: len(state.entries(name)) for name in ("manifests", "receipts", "starts", "runs/l", "bases")
    }
    tenth = max(1, min(1_000, count // 4))
    return statistics.mean(spent[tenth : 2 * tenth]), statistics.mean(spent[-tenth:]), files


# --- Verdicts -----------------------------------------------------------------------------------------------------------


def _at_most(demand: str, measured: float, most: float, unit: str, scale: float = 1.0) -> Finding:
    shown = f"{measured / scale:,.1f} {unit}" if unit else f"{measured:,.0f}"
    return Finding(demand, f"at most {most / scale:,.0f} {unit}".strip(), shown, measured <= most)


def _time(demand: str, spent: Sequence[Timed], most_ms: float) -> Finding:
    found = statistics.median(one.around_ms for one in spent)
    wall = statistics.median(one.wall_ms for one in spent)
    return Finding(
        demand, f"under {most_ms:.0f} ms", f"{found:.1f} ms ({wall:.0f} with the scheme)", found < most_ms
    )


def _growth(demand: str, early_ms: float, late_ms: float) -> Finding:
    ratio = late_ms / early_ms
    shown = f"{ratio:.2f} ({early_ms:.2f} and {late_ms:.2f} ms)"
    return Finding(demand, f"at most {MOST_GROWTH}", shown, ratio <= MOST_GROWTH)


def many(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Only this part, repeatable: {', '.join(PARTS)}.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything: proves nothing.")] = False,
) -> None:
    """What a batch costs with 200 tasks, 10,000 runs or many batches before it; prints every demand with its verdict."""
    if unknown := set(only or ()) - set(PARTS):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    findings = measure(set(only or PARTS), quick, lambda text: console.print(text, highlight=False))
    table = Table("demand", "target", "measured", "verdict")
    for one in findings:
        style = {True: "green", False: "red", None: "yellow"}[one.met]
        verdict = {True: "PASS", False: "NOT MET", None: "not measured"}[one.met]
        table.add_row(one.demand, one.target, one.measured, f"[{style}]{verdict}[/]")
    console.print(table)
    if not all(one.met for one in findings):
        raise typer.Exit(1)


def measure(parts: set[str], quick: bool, say: Callable[[str], None]) -> list[Finding]:
    small = 10 if quick else 1
    findings: list[Finding] = []
    if "plan" in parts:
        findings += cube_plans(small, say)
    if "tasks" in parts:
        findings += tasks_and_partitions(200 // small, 6, say)
        findings += [whole_plan(200 // small, 12, alpha) for alpha in (0.0, 0.5, 1.0, 1.5, 2.0)]
    if "runs" in parts:
        findings += live_runs(10_000 // small, 60, say)
    if "cleaning" in parts:
        findings += cleaning(10_000 // small, 100 // small, say)
    if "batches" in parts:
        findings += one_row_batches(20_000 // small, say)
    return findings
