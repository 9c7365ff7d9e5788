"""200 tasks and 200 partitions: what a batch shuffles and reads, and what it takes to plan (`--only tasks`).

Keys are real, from even to very skewed. Every task is a process of its own and all begin at once. Another process plans
each batch, as on a cluster, so that it lacks statistics. Then one process plans every batch, and its time counts.

The log is descriptors, manifests, bases and statistics. The keys that a planner fetches of runs have lines of their own:
they grow with the rows, and the log does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.many_state import Count, CountedFiles, FetchedKeys, Timed, ZipfSimulation, scratch
from bench.report import Finding
from watersmeet.log.descriptors import Told, encode_told, publish_descriptor
from watersmeet.log.manifests import waits
from watersmeet.log.turns import PlannedBefore, patience_s
from watersmeet.model.facts import Manifest, Run

MOST_SHUFFLED, MOST_READ, MOST_REQUESTS = 5e6, 20e6, 1_000
MOST_PLAN_MS = 100.0
ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0)
KEYS_FETCHED = (
    "keys that the planner fetches: the hypercube counts keys in the runs themselves, the log has only the most frequent "
    "ones. So the bytes follow the rows: {rows:,} in each partition here, of 24 bytes, a third of them "
    "keys. The process that planned the batch before plans the next one and holds the keys of all other runs: it fetches "
    "those of the batch and of runs that were merged since. Another one, which takes over if that process gets no task, "
    "fetches those of all live runs"
)
# Rows of a partition in a batch.
ROWS = 20_000
# Batches in which runs become those of two tiers; the first ones, with few old runs, do not count.
BATCHES, WARM_UP = 18, 3


def traffic(size: int, batches: int, alpha: float, say: Callable[[str], None]) -> list[Finding]:
    """What all tasks together shuffle and read in a batch, the largest one."""
    with scratch() as folder:
        sim = ZipfSimulation(folder, size, alpha)
        counts = [Count() for _ in range(size)]
        processes = [sim.process(count) for count in counts]
        ingest = Count()
        files: Any = CountedFiles(sim.files, ingest)
        shuffled, read, requests, fetched, anew, moving = [], [], [], [], [], []
        # A planner that stays, beside the one that changes in every batch.
        same = Count()
        stays = FetchedKeys(sim.keys, same)
        for number in range(batches):
            told = _told(sim, files, number, size)
            for count in counts:
                count.clear()
            planner = number % size
            manifest, spent = sim.agree(processes[planner], number, told, 0)
            for task in range(1, size):
                sim.agree(processes[(planner + task) % size], number, told, task)
            same.clear()
            for run in manifest.live:
                stays.fetch(run)
            _merge(sim, manifest)
            if number >= WARM_UP:
                shuffled.append(sum(len(encode_told(one)) + 4 for one in told) * size)
                read.append(sum(count.read_bytes for count in counts))
                looks = _looks(spent.cpu_ms / 1e3, size, told)
                requests.append(sum(count.reads for count in counts) + looks)
                fetched.append(Fetched.of([same], manifest.fresh))
                anew.append(Fetched.of(counts, manifest.fresh))
                moving.append(spent)
        say(
            f"{size} x {size}, Zipf {alpha:g}: {len(manifest.live)} live runs, descriptors of "
            f"{ingest.written_bytes / ingest.requests['publish'] / 1e3:.0f} KB, manifest "
            f"{len(sim.files.read(sim.manifest_path(number))) / 1e3:.0f} KB; requests include looks for the manifest "
            "while it is planned"
        )
    name = f"{size} tasks x {size} partitions, Zipf {alpha:g}"
    return [
        _at_most(f"{name}: shuffled a batch", max(shuffled), MOST_SHUFFLED, "MB", 1e6),
        _at_most(f"{name}: read from the log a batch", max(read), MOST_READ, "MB", 1e6),
        _at_most(f"{name}: requests to read a batch", max(requests), MOST_REQUESTS, ""),
        fetched_to_plan(f"{name}: keys that the planner fetches", fetched, max(requests)),
        fetched_to_plan(f"{name}: the same, of a planner that takes over", anew, max(requests)),
        _planned(f"{name}: find, read, plan, publish, by another process in each batch", moving),
    ]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one planner fetched of the keys of runs, and the rows that the batch brought."""

    bytes: int
    requests: int
    fresh_rows: int

    @staticmethod
    def of(counts: Sequence[Count], fresh: Sequence[Run]) -> Fetched:
        return Fetched(
            sum(count.fetched_bytes for count in counts),
            sum(count.fetches for count in counts),
            sum(run.rows for run in fresh),
        )


def fetched_to_plan(demand: str, batches: Sequence[Fetched], log_requests: int) -> Finding:
    """The batch in which the planner fetched most keys, against the same limits as all that is read from the log."""
    most = max(batches, key=lambda one: one.bytes)
    mean = statistics.mean(one.bytes for one in batches)
    shown = (
        f"{most.bytes / 1e6:,.0f} MB, {mean / 1e6:,.0f} MB in the mean; keys of the batch's {most.fresh_rows:,} rows are "
        f"{8 * most.fresh_rows / 1e6:,.0f} MB; {most.requests:,} requests, {most.requests + log_requests:,} with the log's"
    )
    met = most.bytes <= MOST_READ and most.requests + log_requests <= MOST_REQUESTS
    limits = f"at most {MOST_READ / 1e6:.0f} MB, {MOST_REQUESTS:,} requests with the log's"
    return Finding(demand, limits, shown, met)


def whole_plan(size: int, batches: int, alpha: float) -> Finding:
    """All that one process does to plan each batch, the scheme's plan included."""
    with scratch() as folder:
        sim = ZipfSimulation(folder, size, alpha)
        planner, spent = sim.process(), []
        for number in range(batches):
            told = _told(sim, sim.files, number, size)
            manifest, took = sim.agree(planner, number, told, 0)
            _merge(sim, manifest)
            spent.append(took)
    late = spent[WARM_UP:]
    return _planned(f"{size} tasks x {size} partitions, Zipf {alpha:g}: find, read, plan, publish", late)


def _planned(demand: str, spent: Sequence[Timed]) -> Finding:
    whole = statistics.median(one.cpu_ms for one in spent)
    return Finding(demand, f"under {MOST_PLAN_MS:.0f} ms", _ms(spent), whole < MOST_PLAN_MS)


def _ms(spent: Sequence[Timed]) -> str:
    whole, scheme = (
        statistics.median(ms) for ms in zip(*((one.cpu_ms, one.scheme_ms) for one in spent), strict=True)
    )
    return f"{whole:.0f} ms ({scheme:.0f} of them the scheme's)"


def _told(sim: ZipfSimulation, files: Any, number: int, size: int) -> list[Told]:
    batch = sim.batch_id(number)
    return [publish_descriptor(files, batch, one) for one in sim.descriptors(number, size, ROWS)]


def _merge(sim: ZipfSimulation, manifest: Manifest) -> None:
    sim.keys.forget_all_but(manifest.named_paths)
    sim.merge(manifest)


def _looks(plan_s: float, tasks: int, told: Sequence[Told]) -> int:
    """How often all others look for the manifest in vain while task 0 plans."""
    missed = 0
    for task in range(1, tasks):
        missed += 1
        waited = 0.0
        for pause_s in waits(patience_s(task, tasks, told, PlannedBefore.ELSEWHERE)):
            waited += pause_s
            missed += waited < plan_s
    return missed


def _at_most(demand: str, measured: float, most: float, unit: str, scale: float = 1.0) -> Finding:
    shown = f"{measured / scale:,.1f} {unit}" if unit else f"{measured:,.0f}"
    return Finding(demand, f"at most {most / scale:,.0f} {unit}".strip(), shown, measured <= most)
