"""How evenly the tasks of an equality join are busy: one strategy on one workload, with 2, 16 and 48 tasks.

`python -m bench.work --competitor watersmeet-hypercube --workload balance-1 --out x.json`. The tasks run one after
the other in this process, without Spark, by the same operator over the same files: what is counted (fresh rows looked
up, results given out) does not depend on the machine, on time or on what else runs. The results are dropped, but their
number is compared with the one that the keys alone give.

Not in the figures: reading history, merging runs, and what a row costs beside what a result costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from bench.data import input_dir, stream_file
from bench.graphs import GraphWorkload
from bench.measured import write_measured
from bench.report import STRATEGIES
from bench.workloads import BALANCE_TASKS, Workload, by_name
from watersmeet.local.join import LocalJoin


def count_results(batches: list[dict[str, pa.Table]], keys: int) -> int:
    """From the keys alone: the rows of all inputs multiplied, key by key."""
    combinations = np.ones(keys, np.int64)
    for name in batches[0]:
        combinations *= sum(np.bincount(batch[name]["k"].to_numpy(), minlength=keys) for batch in batches)
    return int(combinations.sum())


def run_tasks(
    batches: list[dict[str, pa.Table]],
    strategy: str,
    tasks: int,
    state: Path,
    on: str = "l.k = r.k",
    partitions: int = 1,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows looked up and results given out, by batch and task."""
    schemas = {name: rows.schema for name, rows in batches[0].items()}
    join = LocalJoin(
        schemas,
        on=on,
        # One column: what a result holds does not change who gives it out.
        select=[f"{next(iter(schemas))}.k"],
        state=str(state),
        tasks=tasks,
        strategy=strategy,
        partitions=partitions,
    )
    work = []
    for batch in batches:
        join.count(**batch)
        work.append([(task.probed, task.emitted) for task in join.work])
    probed, emitted = np.moveaxis(np.array(work, np.int64), 2, 0)
    return probed, emitted


def figures(probed: npt.NDArray[np.int64], emitted: npt.NDArray[np.int64]) -> dict[str, float]:
    """Busiest task against the mean one: over the whole run, in the worst batch, and batch by batch.

    The last is what counts where each batch waits for its slowest task: the sum of the busiest against the sum of the
    means.

    >>> figures(np.array([[1, 3], [3, 1]]), np.zeros((2, 2), int))
    {'run': 1.0, 'worst_batch': 1.5, 'batch_by_batch': 1.5, 'probed': 8, 'emitted': 0}
    """
    work = probed + emitted
    whole, busiest, mean = work.sum(axis=0), work.max(axis=1), work.mean(axis=1)
    return {
        "run": float(whole.max() / whole.mean()),
        "worst_batch": float((busiest / mean).max()),
        "batch_by_batch": float(busiest.sum() / mean.sum()),
        "probed": int(probed.sum()),
        "emitted": int(emitted.sum()),
    }


def measure(competitor: str, workload: Workload | GraphWorkload, scratch: Path) -> dict[str, Any]:
    files = input_dir(workload)
    batches = [
        {name: pq.read_table(stream_file(files, name, number)) for name in workload.inputs}
        for number in range(workload.batches)
    ]
    keys = workload.keys if isinstance(workload, Workload) else dict(workload.relations[0].columns)["k"]
    want, found = count_results(batches, keys), {}
    for done, tasks in enumerate(BALANCE_TASKS):
        print(json.dumps({"batch": done, "of": len(BALANCE_TASKS)}), flush=True)
        found[str(tasks)] = figures(
            *run_tasks(batches, STRATEGIES[competitor], tasks, scratch / f"tasks-{tasks}", workload.on)
        )
    return {"results": want, "balance": found}


def main(
    competitor: Annotated[str, typer.Option(help=f"One of: {', '.join(STRATEGIES)}.")],
    workload: Annotated[str, typer.Option(help="A name of bench/workloads.py, or NAME-quick.")],
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")],
) -> None:
    """Count what each task does, and write how evenly it is spread as JSON."""
    work = by_name(workload)
    if not isinstance(work, Workload | GraphWorkload):
        raise typer.BadParameter(f"{workload} does not have the keys of one class")
    write_measured(out, competitor, workload, lambda scratch: measure(competitor, work, scratch))


if __name__ == "__main__":
    typer.run(main)
