"""From runs to ratios, verdicts, a table for the terminal and a section for docs/benchmarks.md.

A run's figure is the mean of its batches from the third on (the median for `small`, whose batches
are short enough for one hiccup to count), of the second time that the stream ran in one JVM; the first
time is reported beside it. A competitor's figure is the median of its runs. Runs of all competitors are
interleaved, so a slow hour of the machine falls on all of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.workloads import FIRST_COUNTED, SEED, base_name, by_name

OURS, DEFAULT, ROCKSDB, FLOOR = "watersmeet", "spark-default", "spark-rocksdb", "floor"
# Ours with `wm.files` instead of DataFrames as inputs.
FILES = "watersmeet-files"
GRID, BUCKETS, TUNED = "watersmeet-grid", "spark-buckets", "spark-buckets-tuned"
HASH, CUBE, BICLIQUE = "watersmeet-hash", "watersmeet-hypercube", "watersmeet-biclique"
# The strategies of an equality join, asked for by name.
STRATEGIES = {HASH: "hash", CUBE: "hypercube", BICLIQUE: "biclique"}
HYBRID, MESH, INDEX = "watersmeet-hybrid", "watersmeet-mesh", "watersmeet-index"
# A table without any argument, and always read in place.
CHOSEN, IN_PLACE = "watersmeet-table", "watersmeet-in-place"
STATIC, ADAPTIVE = "spark-static", "spark-static-adaptive"
SHUFFLED, CACHED = "spark-static-hash", "spark-static-cached"
CHAIN, SPARK_CHAIN, SOURCES = "watersmeet-chained", "spark-chained", "sources"
# What a backlog is compared with.
DUCKDB = "duckdb"
# The strategies of a join with a table.
LOOKUPS = {HYBRID: "hybrid", MESH: "mesh", INDEX: "index"}
MB = 1_000_000
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
# Above this share of the machine taken by other processes a run is marked: repeat it.
NOISY_SHARE = 0.15
# "Batches three to ten" and "the last ten" of the growth demand.
EARLY, LATE_COUNT = slice(2, 10), 10

# The keys of a run under which its batches are: those that count, and those of the first time in the JVM.
BATCHES, COLD = "batches", "cold"

# The target of a figure that stands beside the demands.
NO_TARGET = "no target"

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One demand: what was asked, what was measured; `met` is None when it was not measured, or if there is no target."""

    demand: str
    target: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        if self.target == NO_TARGET:
            return NO_TARGET
        return {True: "met", False: "NOT MET", None: "not measured"}[self.met]


@dataclass(frozen=True, slots=True)
class Results:
    """All runs of one session of the harness; quick ones answer to the full workload's name."""

    runs: Sequence[Run]

    @classmethod
    def load(cls, directory: Path) -> Results:
        return cls([json.loads(p.read_text()) for p in sorted(directory.glob("*.json"))])

    @property
    def is_quick(self) -> bool:
        return any(r["workload"].endswith("-quick") for r in self.runs)

    def timed(self, workload: str, competitor: str) -> list[Run]:
        return [r for r in self.of(workload, competitor) if "batches" in r]

    def balance(self, workload: str, competitor: str) -> dict[str, Any] | None:
        """How evenly tasks were busy, by their number as text."""
        return next((r for r in self.of(workload, competitor) if "balance" in r), None)

    def paging(self, workload: str, competitor: str) -> list[Run]:
        """For each batch which pages were needed, planned and read, counted without Spark."""
        return next((r["paging"] for r in self.of(workload, competitor) if "paging" in r), [])

    def checks(self) -> list[Run]:
        return [r for r in self.runs if "equal" in r]

    def failures(self) -> list[Run]:
        return [r for r in self.runs if "failed" in r]

    def seconds_per_batch(self, workload: str, competitor: str, part: str = BATCHES) -> float | None:
        """Of the time that counts, or of the first time in a JVM (`COLD`)."""
        runs = [r for r in self.timed(workload, competitor) if part in r]
        figure = statistics.median if workload == "small" else statistics.fmean
        return statistics.median(figure(_counted(r, part=part)) for r in runs) if runs else None

    def comparable(self, workload: str, *competitors: str) -> bool:
        """Whether all of these ran in JVMs that were equally warm."""
        return len({COLD in r for c in competitors for r in self.timed(workload, c)}) < 2

    def batch_curve(self, workload: str, competitor: str) -> list[float]:
        """Median over the runs, batch by batch, from the first batch on."""
        runs = [[b["seconds"] for b in r["batches"]] for r in self.timed(workload, competitor)]
        return [statistics.median(column) for column in zip(*runs, strict=True)]

    def of(self, workload: str, competitor: str) -> list[Run]:
        return [
            r for r in self.runs if base_name(r["workload"]) == workload and r["competitor"] == competitor
        ]


def _counted(run: Run, figure: str = "seconds", part: str = BATCHES) -> list[float]:
    return [b[figure] for b in run[part][FIRST_COUNTED:]]


def _first_s(run: Run) -> float:
    """The first batch of a process, which starts the workers and compiles."""
    return float(run[COLD if COLD in run else BATCHES][0]["seconds"])


def check_equal(results: Results, us: str = OURS) -> Finding:
    done = results.checks()
    failed = [r for r in results.failures() if r["competitor"] == us]
    wrong = [f"{r['competitor']} on {r['workload']}" for r in (*done, *failed) if not r.get("equal")]
    ours_on = [f"{r['workload']} ({int(r['want']['rows']):,} rows)" for r in done if r["competitor"] == us]
    peers = sorted({r["competitor"] for r in done} - {us})
    equal = f"equal: ours on {', '.join(ours_on) or 'nothing'}" + (
        f"; {', '.join(peers)} too" if peers else ""
    )
    measured = f"differ: {', '.join(wrong)}" if wrong else equal
    met = False if wrong else (True if ours_on else None)
    return Finding(
        "results as a multiset", "equal to the batch join", measured if done or wrong else "-", met
    )


def times_faster(results: Results, workload: str, peer: str, times: float, us: str = OURS) -> Finding:
    return _compared(results, workload, us, peer, f"{_who(workload, us)}: against {peer}", times, faster=True)


def over_floor(results: Results, workload: str, times: float) -> Finding:
    return at_most(results, workload, FLOOR, times, OURS, "the floor")


def at_most(results: Results, workload: str, peer: str, times: float, us: str, name: str = "") -> Finding:
    demand = f"{_who(workload, us)}: against {name or peer}"
    return _compared(results, workload, us, peer, demand, times, faster=False)


def cpu_per_batch(results: Results, workload: str, competitor: str) -> float | None:
    """CPU seconds of a batch, the median of the runs; None if a run did not record them."""
    runs = results.timed(workload, competitor)
    if not runs or any("cpu_s" not in batch for run in runs for batch in run["batches"]):
        return None
    return statistics.median(statistics.fmean(_counted(run, "cpu_s")) for run in runs)


def _who(workload: str, us: str) -> str:
    return f"{workload}, wm.files" if us == FILES else workload


def _compared(
    results: Results, workload: str, us: str, peer: str, demand: str, times: float, *, faster: bool
) -> Finding:
    """Ours against a peer's; the JVM's first time is said too, but decides nothing."""
    target = f">= {times:g}x faster" if faster else f"<= {times:g}x its time"
    ours, theirs = (results.seconds_per_batch(workload, c) for c in (us, peer))
    if ours is None or theirs is None:
        return _unmeasured(results, workload, demand, target, _seconds_text(ours, theirs), us)
    if not results.comparable(workload, us, peer):
        return Finding(demand, target, "some of the JVMs were warm, some not: run both again", None)
    ratio = theirs / ours if faster else ours / theirs
    said = [_seconds_text(ours, theirs)]
    cold = [results.seconds_per_batch(workload, c, COLD) for c in (us, peer)]
    if cold[0] is not None and cold[1] is not None:
        said.append(f"cold {cold[1] / cold[0] if faster else cold[0] / cold[1]:.2f}x")
    cpu = [cpu_per_batch(results, workload, c) for c in (us, peer)]
    if cpu[0] and cpu[1]:
        # It hardly depends on the background load.
        said.append(f"CPU time {cpu[1] / cpu[0] if faster else cpu[0] / cpu[1]:.2f}x")
    said += _noise_texts(results, workload, us, peer)
    return Finding(
        demand, target, f"{ratio:.2f}x ({'; '.join(said)})", ratio >= times if faster else ratio <= times
    )


def growth(results: Results, workload: str, times: float) -> Finding:
    demand, target = f"{workload}: growth", f"last ten <= {times:g}x batches 3 to 10"
    runs = results.timed(workload, OURS)
    if not runs:
        return _unmeasured(results, workload, demand, target)
    seconds = [[b["seconds"] for b in r["batches"]] for r in runs]
    ratio = statistics.median(statistics.fmean(s[-LATE_COUNT:]) / statistics.fmean(s[EARLY]) for s in seconds)
    return Finding(demand, target, f"{ratio:.2f}x", ratio <= times)


def memory(results: Results, workload: str, limit_bytes: int, us: str = OURS, made_of: str = "") -> Finding:
    """`made_of` says how the limit comes about."""
    limit = f"{limit_bytes / MB:.0f} MB" + (f" ({made_of})" if made_of else "")
    demand, target = f"{workload}: private memory of Python", f"< {limit}"
    usages = [r["usage"] for r in results.timed(workload, us)]
    if not usages:
        return _unmeasured(results, workload, demand, target, us=us)
    total = max(u["workers_anon_bytes"] for u in usages)
    single = max(u["worker_anon_bytes"] for u in usages)
    measured = f"{total / MB:.0f} MB all workers, {single / MB:.0f} MB the largest"
    return Finding(demand, target, measured, total < limit_bytes)


def _unmeasured(
    results: Results, workload: str, demand: str, target: str, seen: str = "-", us: str = OURS
) -> Finding:
    """Our failure misses the demand; a peer's failure proves nothing about our speed."""
    if any(r in results.failures() for r in results.of(workload, us)):
        return Finding(demand, target, "ours failed", False)
    return Finding(demand, target, seen, None)


def _noise_texts(results: Results, workload: str, *competitors: str) -> list[str]:
    """A verdict from noisy runs says so: it may be the neighbours'."""
    runs = [run for name in competitors for run in results.timed(workload, name)]
    worst = max((float(run["usage"]["foreign_cpu_share"]) for run in runs), default=0.0)
    return [f"NOISY, others took up to {worst:.0%}"] if worst > NOISY_SHARE else []


def _seconds_text(ours: float | None, theirs: float | None) -> str:
    return " vs ".join("-" if s is None else f"{s:.3f} s" for s in (ours, theirs))


def print_findings(console: Console, results: Results, findings: Sequence[Finding]) -> None:
    """The verdicts, then one line per competitor and workload."""
    title = "Demands (quick: shapes only, proves nothing)" if results.is_quick else "Demands"
    table = Table("demand", "target", "measured", "verdict", title=title, title_justify="left")
    colours = {True: "green", False: "red", None: "yellow"}
    for f in findings:
        table.add_row(f.demand, f.target, f.measured, f"[{colours[f.met]}]{f.verdict}[/]")
    console.print(table)
    console.print(_as_table(run_rows(results)))
    for run in results.failures():
        console.print(f"[red]failed[/] {run['competitor']} on {run['workload']}: {run['failed']}")


RUN_COLUMNS = (
    "workload", "competitor", "runs", "s/batch", "min-max", "CPU s/batch", "last s", "cold s/batch", "first s",
    "JVM MB", "Python MB", "disk MB", "background load",
)  # fmt: skip


def run_rows(results: Results) -> list[list[str]]:
    """One row of figures per workload and competitor that ran."""
    pairs = dict.fromkeys((base_name(r["workload"]), r["competitor"]) for r in results.runs if "batches" in r)
    return [_run_row(results, workload, competitor) for workload, competitor in sorted(pairs)]


def _run_row(results: Results, workload: str, competitor: str) -> list[str]:
    runs = results.timed(workload, competitor)
    means = [statistics.fmean(_counted(r)) for r in runs]
    curve = results.batch_curve(workload, competitor)
    peak = {k: max(r["usage"][k] for r in runs) for k in runs[0]["usage"]}
    cpu_s = statistics.median(statistics.fmean(_counted(r, "cpu_s")) for r in runs)
    noise = peak["foreign_cpu_share"]
    cold = results.seconds_per_batch(workload, competitor, COLD)
    return [
        workload,
        competitor,
        str(len(runs)),
        f"{results.seconds_per_batch(workload, competitor):.3f}",
        f"{min(means):.3f}-{max(means):.3f}",
        f"{cpu_s:.3f}",
        f"{curve[-1]:.3f}",
        "-" if cold is None else f"{cold:.3f}",
        f"{statistics.median(map(_first_s, runs)):.1f}",
        f"{peak['jvm_rss_bytes'] / MB:.0f}",
        f"{peak['workers_anon_bytes'] / MB:.0f}",
        f"{max(r['disk_bytes'] for r in runs) / MB:.0f}",
        f"{noise:.0%}{' noisy' if noise > NOISY_SHARE else ''}",
    ]


def _as_table(rows: Iterable[Sequence[str]]) -> Table:
    table = Table(
        *RUN_COLUMNS,
        title="Runs (seconds per batch from the third on; cold: the first time in a JVM)",
        title_justify="left",
    )
    for row in rows:
        table.add_row(*row)
    return table


def _made_by(results: Results) -> str:
    """Which runs had the settings of `wm.configure`. Those of before it existed do not say so."""
    configured = {run.get("configured", False) for run in results.runs if "versions" in run}
    if len(configured) > 1:
        return "those of `wm.configure` in some runs only"
    return "those of `wm.configure`" if configured == {True} else "Spark's defaults"


def markdown(
    results: Results,
    findings: Sequence[Finding],
    date: str,
    images: Sequence[str],
    tables: Sequence[str] = (),
) -> str:
    """The section of docs/benchmarks.md; the date is an argument because code reads no clock."""
    facts = next(r["versions"] for r in results.runs if "versions" in r)
    extra = sorted({f"`{k}={v}`" for r in results.runs for k, v in r.get("conf", {}).items()})
    names = dict.fromkeys(r["workload"] for r in results.runs)
    workloads = [by_name(name) for name in names]
    sizes = ", ".join(w.text for w in workloads)
    columns = dict.fromkeys(column for w in workloads for column in w.select)
    verdicts = [[f.demand, f.target, f.measured, f.verdict] for f in findings]
    setting = (
        f"Measured {date} with Spark {facts['spark']}, Java {facts['java']}, Python {facts['python']}, "
        f"pyarrow {facts['pyarrow']}, numpy {facts['numpy']}, {facts['cores']} cores, seed {SEED}."
    )
    warm = (
        " Runs with a `cold` figure ran the stream twice in one JVM. `cold s/batch`, `first s` and `JVM MB` are of the "
        "first time, the background load is the larger of both, and all other figures are of the second time."
    )
    legend = (
        "Seconds per batch from the third batch on, median of the runs. Memory and disk are maxima. The background "
        "load is the share of the machine's CPU that other processes used."
        + (warm if any(COLD in r for r in results.runs) else "")
    )
    parts = [
        setting,
        f"Workloads: {sizes}. Result columns: {', '.join(columns)}.",
        f"Settings: {_made_by(results)}, those of `bench/run.py`{''.join(f', {one}' for one in extra)}.",
        markdown_table(("demand", "target", "measured", "verdict"), verdicts),
        legend,
        markdown_table(RUN_COLUMNS, run_rows(results)),
        *tables,
        *(f"![{Path(i).stem}]({i})" for i in images),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def without_results(missing: Sequence[str]) -> str:
    """Why `--date` writes nothing: a section without some of its lines would read as if there were no more."""
    some = "; ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    return f"--date writes the whole section, and these have no results yet: {some}. Measure them first"


def replace_section(document: str, name: str, body: str) -> str:
    """Put `body` between the markers of section `name`; what stands around them is left alone."""
    start, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    section = f"{start}\n{body}{end}"
    if start not in document:
        return f"{document.rstrip()}\n\n{section}\n".lstrip()
    before, rest = document.split(start, 1)
    return before + section + rest.split(end, 1)[1]
