"""Two versions of the package side by side on the local driver: `python -m bench versions BEFORE AFTER`.

BEFORE and AFTER are checkouts. Each run is a process of its own that imports the package of one of them; runs of the
two alternate, so that background load hits both. The local driver has no JVM: differences in our own code show
undiluted. What counts is the median of the ratios of neighbours, with a bootstrap interval.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

# What a change of shape must not cost.
MOST = 1.03
SEED = 7
RESAMPLES = 10_000
# About 4 s. With 20 batches, 0.9 s, the interval of nine pairs was as wide as 0.937 to 1.048.
TABLE_BATCHES, TABLE_ROWS = 90, 2_000_000


def small() -> tuple[dict[str, Any], list[dict[str, pa.Table]]]:
    """Batches of 1,000 rows: the cost of a batch, whatever its rows."""
    return _streams(rows=1_000, batches=150, keys=20_000)


def large() -> tuple[dict[str, Any], list[dict[str, pa.Table]]]:
    """2M x 2M rows in 20 batches, even keys, 4M results."""
    return _streams(rows=100_000, batches=20, keys=1_000_000)


def zipf() -> tuple[dict[str, Any], list[dict[str, pa.Table]]]:
    """Keys by a Zipf law: most results belong to a few hot keys."""
    return _streams(rows=20_000, batches=20, keys=100_000, alpha=1.0)


def table(
    batches: int = TABLE_BATCHES, rows: int = TABLE_ROWS
) -> tuple[dict[str, Any], list[dict[str, pa.Table]]]:
    """9M rows of a stream against a table of 2M rows: seconds, so that a few milliseconds of load do not matter."""
    generator = np.random.default_rng(SEED)
    ids = generator.permutation(rows)
    products = pa.table({"id": ids, "price": generator.random(len(ids))})
    sales = [
        {"s": pa.table({"product": generator.integers(0, rows, 100_000), "n": np.arange(100_000)})}
        for _ in range(batches)
    ]
    return {"products": products, "on": "s.product = p.id", "select": ["s.n", "p.price"]}, sales


def _streams(
    rows: int, batches: int, keys: int, alpha: float = 0.0
) -> tuple[dict[str, Any], list[dict[str, pa.Table]]]:
    generator = np.random.default_rng(SEED)
    weights = np.arange(1, keys + 1) ** -alpha if alpha else np.ones(keys)
    reached = np.cumsum(weights / weights.sum())
    names = generator.permutation(keys)

    def drawn() -> pa.Table:
        found = np.minimum(np.searchsorted(reached, generator.random(rows)), keys - 1)
        return pa.table({"k": names[found], "id": np.arange(rows), "x": generator.random(rows)})

    return {"on": "l.k = r.k", "select": ["l.id", "r.id AS rid", "l.x"]}, [
        {"l": drawn(), "r": drawn()} for _ in range(batches)
    ]


WORKLOADS: dict[str, Callable[..., tuple[dict[str, Any], list[dict[str, pa.Table]]]]] = {
    "batches of 1,000 rows": small,
    "2M x 2M": large,
    "Zipf": zipf,
    "a table": table,
}


def measure(workload: str, **sizes: int) -> None:
    """One run in this process; prints seconds and results as JSON. `sizes` are those of the workload, to shrink it."""
    import watersmeet as wm
    from watersmeet.local.join import LocalJoin

    given, batches = WORKLOADS[workload](**sizes)
    with tempfile.TemporaryDirectory(prefix="watersmeet-versions-") as scratch:
        inputs: dict[str, Any] = {name: rows.schema for name, rows in batches[0].items()}
        if "products" in given:
            pq.write_table(given["products"], f"{scratch}/products.parquet")
            inputs["p"] = wm.table(f"{scratch}/products.parquet", key="id")
        join = LocalJoin(inputs, on=given["on"], select=given["select"], state=f"{scratch}/state", tasks=2)
        # The first batch loads modules and finds its thresholds.
        results = join.count(**batches[0])
        began, cpu = time.perf_counter(), time.process_time()
        results += sum(join.count(**batch) for batch in batches[1:])
        print(
            json.dumps(
                {
                    "seconds": time.perf_counter() - began,
                    "cpu": time.process_time() - cpu,
                    "results": results,
                }
            )
        )


def versions(
    before: Annotated[Path, typer.Argument(help="A checkout of the version to compare with.")],
    after: Annotated[Path, typer.Argument(help="A checkout of the version to judge.")],
    pairs: Annotated[int, typer.Option(min=3, help="Runs of each version and workload.")] = 9,
    only: Annotated[list[str] | None, typer.Option(help="Only this workload, repeatable.")] = None,
) -> None:
    """Compare two checkouts: nine interleaved pairs of four workloads on the local driver (20 minutes)."""
    if unknown := set(only or ()) - set(WORKLOADS):
        raise typer.BadParameter(f"unknown workload {', '.join(sorted(unknown))}: use {', '.join(WORKLOADS)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    shown = Table("workload", "before s", "after s", "ratio of CPU time", "95 % interval", "results")
    failed = []
    for workload in only or WORKLOADS:
        runs = []
        for number in track(range(pairs), description=workload, console=console, transient=True):
            # The order alternates too: neither version always runs on the warmer machine.
            order = (before, after) if number % 2 == 0 else (after, before)
            found = {checkout: _run(checkout, workload) for checkout in order}
            runs.append((found[before], found[after]))
        if len({one["results"] for pair in runs for one in pair}) > 1:
            failed.append(f"{workload}: the versions differ in their results")
        ratios = np.array([new["cpu"] / old["cpu"] for old, new in runs])
        low, high = interval(ratios)
        if high > MOST:
            failed.append(f"{workload}: up to {high:.3f} times as long")
        times = [np.median([pair[place]["seconds"] for pair in runs]) for place in (0, 1)]
        shown.add_row(
            workload,
            *(f"{one:.2f}" for one in times),
            f"{np.median(ratios):.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{runs[0][1]['results']:,}",
        )
    console.print(shown)
    for problem in failed:
        console.print(f"[bold red]NOT MET[/] {problem}")
    if failed:
        raise typer.Exit(1)


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """A bootstrap interval of the median."""
    drawn = np.random.default_rng(SEED).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def _run(checkout: Path, workload: str) -> dict[str, Any]:
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as scratch:
        # This file alone, so that the old checkout needs none of ours.
        shutil.copy(__file__, Path(scratch) / "versions.py")
        environment = os.environ | {"PYTHONPATH": f"{checkout.resolve() / 'src'}{os.pathsep}{scratch}"}
        code = f"import versions; versions.measure({workload!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            cwd=here,
            check=False,
        )
    if done.returncode:
        raise typer.BadParameter(f"{workload} fails with {checkout}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
