"""Manifests of ten thousand live runs: planned, found, and cleaned up (`python -m bench many --only runs`)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.many_state import Count, Simulation, Timed, scratch
from bench.report import Finding

MOST_SEEN_MS, MOST_COLD_MS = 50.0, 500.0


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
            sizes.append(len(sim.files.read(sim.manifest_path(number))))
            if number % 10 == 0:
                cold_joined.append(sim.agree(sim.process(), number, told, 2)[1])
                path = sim.files.root / sim.manifest_path(number)
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


def _time(demand: str, spent: Sequence[Timed], most_ms: float) -> Finding:
    found = statistics.median(one.around_ms for one in spent)
    wall = statistics.median(one.wall_ms for one in spent)
    return Finding(
        demand, f"under {most_ms:.0f} ms", f"{found:.1f} ms ({wall:.0f} with the scheme)", found < most_ms
    )
