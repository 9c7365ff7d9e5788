"""Ten queries on one hub beside the same ten as Spark queries of their own: time to answer, CPU, memory.

Each run is a process of its own (`hub_spark_run.py`), in turn. Spark's ten run at once, as ten users would have them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bench.data import FIRST_MTIME
from bench.hub_load import GROUPS, NAMES, SEED, Load, domain_for, grouped_queries
from bench.many_state import scratch
from bench.report import MB, NO_TARGET, Finding

if TYPE_CHECKING:
    from bench.hub_spark_run import Measured

QUERIES, BATCHES, ROWS, PAIRS = 10, 4, 10_000, 2
HUB, APART = "hub", "apart"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    of: Callable[[Measured], float]
    text: str


_FIGURES = (
    _Figure("time of a batch", lambda one: one.batch_s, "{:.2f} s"),
    _Figure("time of the stream", lambda one: one.wall_s, "{:.1f} s"),
    _Figure("CPU of the stream", lambda one: one.cpu_s, "{:.1f} s"),
    _Figure("memory, JVM and Python", lambda one: (one.jvm_bytes + one.python_bytes) / MB, "{:,.0f} MB"),
)


def beside_spark(quick: bool, say: Say) -> list[Finding]:
    rows, batches, pairs = (1_000, 2, 1) if quick else (ROWS, BATCHES, PAIRS)
    queries = grouped_queries(QUERIES)
    load = Load(domain_for(rows, QUERIES / GROUPS, rows * batches, 0), rows, True)
    found: dict[str, list[Measured]] = {HUB: [], APART: []}
    with scratch() as folder:
        _write(folder / "files", load, batches)
        wanted = _wanted(load, queries, batches)
        for number in range(pairs):
            for who in (HUB, APART)[:: 1 if number % 2 == 0 else -1]:
                run = {
                    "who": who,
                    "files": str(folder / "files"),
                    "scratch": str(folder / f"{who}-{number}"),
                    "queries": queries,
                }
                found[who].append(_in_a_process(run))
    first = found[HUB][0].versions
    noise = max(one.foreign for runs in found.values() for one in runs)
    say(
        f"spark: {QUERIES} queries of {QUERIES} templates, {batches} batches of {rows:,} rows as files, values below "
        f"{load.domain:,}, seed {SEED}, {pairs} runs each in turn, the stream's second time in a JVM, heap of 3 GB; Spark "
        f"{first['spark']}, Java {first['java']}; background load up to {noise:.0%}"
    )
    answers = {who: {one.answers for one in runs} for who, runs in found.items()}
    equal = wanted > 0 and answers == {HUB: {wanted}, APART: {wanted}}
    return [
        Finding(
            "ten queries: answers of the hub, of Spark's ten and of DuckDB",
            "equal numbers",
            f"equal: {wanted:,}" if equal else f"differ: {answers}, DuckDB {wanted:,}",
            equal,
        ),
        *(_beside(figure, found) for figure in _FIGURES),
    ]


def _beside(figure: _Figure, found: dict[str, list[Measured]]) -> Finding:
    mine, theirs = (statistics.median(map(figure.of, found[who])) for who in (HUB, APART))
    shown = f"{theirs / mine:.1f}x less ({figure.text.format(mine)} and {figure.text.format(theirs)})"
    return Finding(f"ten queries on a hub against ten Spark queries: {figure.name}", NO_TARGET, shown, None)


def _write(folder: Path, load: Load, batches: int) -> None:
    """A file of each stream for each batch. Spark takes them in the order of their times."""
    for number in range(batches):
        for name, rows in load.batch(number).items():
            path = folder / name / f"part-{number:05d}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, path)
            os.utime(path, (FIRST_MTIME + number, FIRST_MTIME + number))


def _wanted(load: Load, queries: dict[str, str], batches: int) -> int:
    came = [load.batch(number) for number in range(batches)]
    with duckdb.connect() as db:
        for name in NAMES:
            db.register(name, pa.concat_tables([batch[name] for batch in came]))
        counts = [db.execute(f"SELECT count(*) FROM ({text})").fetchall() for text in queries.values()]
    return sum(int(count[0][0]) for count in counts)


def _in_a_process(run: Mapping[str, object]) -> Measured:
    from bench.hub_spark_run import Measured

    done = subprocess.run(
        [sys.executable, "-m", "bench.hub_spark_run", json.dumps(run)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise typer.BadParameter(f"a run failed: {done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))
