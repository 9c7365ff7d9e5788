"""What is demanded of large states: time per row that stays flat, bounded memory, bounded disk; and a backlog."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.report import (
    DUCKDB,
    EARLY,
    FILES,
    LATE_COUNT,
    MB,
    NOISY_SHARE,
    OURS,
    Finding,
    Results,
    Run,
    markdown_table,
    memory,
)
from bench.workloads import SCALE_50M, SCALE_LOCAL, Workload, base_name, by_name

MOST_GROWTH = 1.1
MOST_PRIVATE = 600 * MB
# Bytes on disk for each byte of live runs.
MOST_DISK = 2.5


def demands(results: Results) -> list[Finding]:
    return [
        *(flat(results, SCALE_50M.name, us) for us in (OURS, FILES)),
        *(memory(results, SCALE_50M.name, MOST_PRIVATE, us) for us in (OURS, FILES)),
        *_local(results),
        *disk(results, SCALE_LOCAL.name),
    ]


def flat(results: Results, workload: str, us: str) -> Finding:
    """Time per row in and out on Spark, whose sink does not count rows: those of even keys are known by their mean."""
    demand = f"{workload}{', wm.files' if us == FILES else ''}: time per row in and out"
    target = f"last ten <= {MOST_GROWTH:g}x batches 3 to 10"
    runs = results.timed(workload, us)
    if not runs:
        return Finding(demand, target, "-", None)
    work = by_name(runs[0]["workload"])
    assert isinstance(work, Workload)
    curves = [
        [
            one["seconds"] / (one["input_rows"] + mean_results(work, batch))
            for batch, one in enumerate(run["batches"])
        ]
        for run in runs
    ]
    return _growth(demand, target, curves, max(run["usage"]["foreign_cpu_share"] for run in runs))


def mean_results(workload: Workload, batch: int) -> float:
    """How many results a batch has on average: its rows meet those before it and each other."""
    return (2 * batch + 1) * workload.batch_rows**2 / workload.keys


def _growth(demand: str, target: str, curves: Sequence[Sequence[float]], foreign: float) -> Finding:
    ratio = statistics.median(
        statistics.fmean(one[-LATE_COUNT:]) / statistics.fmean(one[EARLY]) for one in curves
    )
    late_ns = statistics.median(statistics.fmean(one[-LATE_COUNT:]) for one in curves) * 1e9
    noise = f", NOISY, others took up to {foreign:.0%}" if foreign > NOISY_SHARE else ""
    return Finding(demand, target, f"{ratio:.2f}x ({late_ns:.0f} ns per row{noise})", ratio <= MOST_GROWTH)


def _local(results: Results) -> list[Finding]:
    runs = driven(results, SCALE_LOCAL.name)
    demand, target = (
        f"{SCALE_LOCAL.name}: time per row in and out",
        f"last ten <= {MOST_GROWTH:g}x batches 3 to 10",
    )
    private, below = f"{SCALE_LOCAL.name}: private memory", f"< {MOST_PRIVATE / MB:.0f} MB"
    counted, exact = (
        f"{SCALE_LOCAL.name}: results",
        "as many as the keys give, within six standard deviations",
    )
    if not runs:
        return [
            Finding(demand, target, "-", None),
            Finding(private, below, "-", None),
            Finding(counted, exact, "-", None),
        ]
    curves = [
        [one["seconds"] / (one["input_rows"] + one["results"]) for one in run["driven"]] for run in runs
    ]
    most = max(run["most_bytes"] for run in runs)
    found = sum(one["results"] for one in runs[0]["driven"])
    work = by_name(runs[0]["workload"])
    assert isinstance(work, Workload)
    mean = work.rows**2 / work.keys
    return [
        _growth(demand, target, curves, max(run["foreign_cpu_share"] for run in runs)),
        Finding(private, below, f"{most / MB:.0f} MB, with the rows of a batch", most < MOST_PRIVATE),
        Finding(
            counted, exact, f"{found:,}, {mean:,.0f} on average", abs(found - mean) < 6 * _deviation(work)
        ),
    ]


def _deviation(workload: Workload) -> float:
    """Of the number of results, for keys drawn evenly: the pairs of a row in common vary together."""
    pairs = workload.rows**2 / workload.keys
    return float((pairs * (1 + 2 * workload.rows / workload.keys)) ** 0.5)


def driven(results: Results, workload: str) -> list[Run]:
    return [run for run in results.of(workload, OURS) if "driven" in run]


def disk(results: Results, workload: str) -> list[Finding]:
    demand, target = f"{workload}: disk", f"<= {MOST_DISK:g}x the live runs, at any time"
    runs = driven(results, workload)
    if not runs:
        return [Finding(demand, target, "-", None)]
    looks = [look for run in runs for look in run["disk"]]
    worst = max(looks, key=lambda look: look["disk_bytes"] / look["live_bytes"])
    last = looks[-1]
    measured = (
        f"{_ratio(worst):.2f}x after {worst['batch'] + 1} batches ({worst['disk_bytes'] / MB:,.0f} MB for "
        f"{worst['live_bytes'] / MB:,.0f} MB), {_ratio(last):.2f}x at the end"
    )
    return [Finding(demand, target, measured, _ratio(worst) <= MOST_DISK)]


def _ratio(look: dict[str, Any]) -> float:
    return float(look["disk_bytes"] / look["live_bytes"])


def tables(results: Results) -> list[str]:
    """The backlog, and how the local run went."""
    found = [run for run in results.runs if "filled" in run and base_name(run["workload"]) == SCALE_50M.name]
    lines = []
    if found:
        work = by_name(found[0]["workload"])
        assert isinstance(work, Workload)
        lines += [
            (
                f"A backlog of {2 * work.rows:,} rows, all files in one batch, beside DuckDB on the same files. DuckDB "
                "sorts both inputs by key and keeps them as tables, with two threads; ours also joins them. In a new JVM."
            ),
            markdown_table(
                ("who", "what", "seconds", "rows per second and core", "background load"),
                [row for run in found for row in _filled(run, 2 * work.rows)],
            ),
        ]
    for run in driven(results, SCALE_LOCAL.name):
        lines += [
            f"{run['workload']} on the local driver, without Spark; every tenth batch.",
            markdown_table(
                ("batch", "s", "rows in", "results", "ns per row in and out"),
                [
                    [
                        str(batch + 1),
                        f"{one['seconds']:.2f}",
                        f"{one['input_rows']:,}",
                        f"{one['results']:,}",
                        f"{one['seconds'] / (one['input_rows'] + one['results']) * 1e9:.0f}",
                    ]
                    for batch, one in enumerate(run["driven"])
                    if (batch + 1) % 10 == 0
                ],
            ),
        ]
    return lines


def _filled(run: Run, rows: int) -> list[list[str]]:
    found = run["filled"]
    load = f"{found['usage']['foreign_cpu_share']:.0%}"

    def line(who: str, what: str, seconds: float) -> list[str]:
        return [who, what, f"{seconds:.1f}", f"{rows / seconds / 2:,.0f}", load]

    if run["competitor"] == DUCKDB:
        return [
            line(DUCKDB, "read, sorted, stored", found["seconds"]),
            line(DUCKDB, f"and joined, {found['results']:,} results counted", found["with_join_s"]),
        ]
    return [
        line(
            run["competitor"], f"read, sorted, stored, joined in {found['batches']} batches", found["seconds"]
        )
    ]
