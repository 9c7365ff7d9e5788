"""Where the time of a warm batch goes: Spark's bookkeeping, its work, and ours.

Spark reports how long each part of a batch takes: finding new files, planning, writing its two logs, and running the
jobs. The CPU time of the JVM and of Python is sampled. Within the jobs, the join tasks have left tallies. `sources` reads
the same files and does nothing else: what is in its row no join of this many streams can avoid.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.report import Results, Run, markdown_table
from bench.workloads import CORES, FIRST_COUNTED
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests
from watersmeet.log.tallies import read_tallies

# Spark's names for the parts of a batch, in groups.
_PARTS = {
    "find files": ("latestOffset",),
    "plan": ("getBatch", "queryPlanning"),
    "logs": ("walCommit", "commitOffsets"),
    "run": ("addBatch",),
}


def task_ms(join: Path) -> float | None:
    """The milliseconds of the busiest join task, mean over the batches that count; None without tallies."""
    if not join.exists():
        return None
    (query,) = join.iterdir()
    files = open_files(str(query))
    busiest = []
    for name in list_manifests(files):
        found = read_tallies(files, name.run_seq, name.batch, range(CORES))
        if name.batch >= FIRST_COUNTED and found:
            busiest.append(max(one.reading_ms + one.probing_ms + one.merging_ms for one in found))
    return statistics.fmean(busiest) if busiest else None


def table(results: Results, workloads: Sequence[str]) -> list[str]:
    """One line for each workload and competitor whose figures are there, in milliseconds per batch."""
    head = ["workload", "competitor", "batch", *_PARTS, "JVM CPU", "Python CPU", "of it busiest join task"]
    runs = {
        (workload, who): results.timed(workload, who)
        for workload in workloads
        for who in dict.fromkeys(run["competitor"] for run in results.runs)
    }
    rows = [[*pair, *_figures(found)] for pair, found in runs.items() if found]
    if not rows:
        return []
    legend = (
        "Where the time of a batch goes, in milliseconds: the parts as Spark reports them, and the CPU time of all "
        "processes. The busiest join task finds, merges and builds results in Python."
    )
    return [legend, markdown_table(head, rows)]


def _figures(runs: Sequence[Run]) -> list[str]:
    """Of the run with the median time."""
    run = sorted(runs, key=lambda run: statistics.fmean(_seconds(run)))[len(runs) // 2]
    counted = run["batches"][FIRST_COUNTED:]
    parts = [
        statistics.fmean(sum(batch["duration_ms"].get(name, 0) for name in names) for batch in counted)
        for names in _PARTS.values()
    ]
    usage, batches = run["usage"], len(run["batches"])
    cpu = [1000 * usage[which] / batches for which in ("jvm_cpu_s", "python_cpu_s")]
    task = run.get("task_ms")
    figures = [1000 * statistics.fmean(_seconds(run)), *parts, *cpu]
    return [*(f"{figure:.0f}" for figure in figures), "-" if task is None else f"{task:.0f}"]


def _seconds(run: Run) -> list[float]:
    return [batch["seconds"] for batch in run["batches"][FIRST_COUNTED:]]
