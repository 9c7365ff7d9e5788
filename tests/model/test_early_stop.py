"""A consumer that stops early (`limit`, `show`, `tail`) must not stop merging and clean-up.

Spark drops a task's generator once it has enough rows, and does not start the tasks that it does not need. Here
each batch takes one result of some of the tasks. The state must stay as small as under a consumer that takes all, and
the last batch, taken whole, must join all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests import life
from watersmeet.local.join import LocalJoin
from watersmeet.log.codec import encode_checked
from watersmeet.log.manifests import list_manifests
from watersmeet.log.receipts import read_receipts
from watersmeet.spark import tasks as spark_tasks

TASKS = 4
BATCHES = 150
# Under a consumer that takes all: fewer runs a tier than the fan-in, of two tiers and two inputs, and some that wait.
MOST_RUNS = 40


def opened(state: Path) -> LocalJoin:
    schema = pa.schema({"k": pa.int64(), "x": pa.int64()})
    settings = {"retain_batches": 4, "grace_s": 0}
    select = ["l.x", "r.x AS y"]
    return life.start(schema, state, select=select, tasks=TASKS, settings=settings, strategy="hash")


def rows(number: int) -> dict[str, list[pa.Table]]:
    """Every key meets every task's share sooner or later; each batch has a result in every task."""
    keys = list(range(40))
    return {
        "l": [pa.table({"k": keys, "x": [100 * number + key for key in keys]})],
        "r": [pa.table({"k": keys, "x": [number] * len(keys)})],
    }


def take_one(join: LocalJoin, tasks: Iterable[int]) -> None:
    """Run a batch in these tasks only, and of each take one result."""
    batch = life.batch_of(join)
    descriptors = life.ingest_all(join, batch, rows(join.number))
    for task in tasks:
        assert next(join.operator.join(batch, task, descriptors)).num_rows
    join.number += 1


@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param(range(TASKS), id="limit-in-every-task"),
        pytest.param([0], id="show-runs-the-first-task"),
        pytest.param([TASKS - 1], id="tail-runs-the-last-task"),
    ],
)
def test_runs_are_merged_and_removed_whatever_the_consumer_takes(tmp_path, tasks):
    join = opened(tmp_path)
    for _ in range(BATCHES):
        take_one(join, tasks)
    assert len(life.newest(tmp_path).live) <= MOST_RUNS
    files = [path for path in tmp_path.rglob("*.arrow") if path.is_file()]
    # What is retained for a rollback, and what waits for the next clean-up, comes on top.
    assert len(files) <= 4 * MOST_RUNS
    assert len(list_manifests(life.files_of(tmp_path))) <= 4 + 2 * 16 + 1

    # Keys 0 to 9 again on one side only: each meets its row of every batch so far.
    again = pa.table({"k": list(range(10)), "x": [-1] * 10})
    expected = Counter((-1, number) for number in range(BATCHES) for _ in range(10))
    assert life.multiset(join.batch(l=again)) == expected


def test_tasks_that_share_a_partition_are_all_settled_before_its_first_result(tmp_path, monkeypatch):
    """Spark may put several join tasks into one partition. A consumer that stops in the first must not skip the others."""
    join = opened(tmp_path)
    files = life.files_of(tmp_path)
    for name in ("keep_modules", "acknowledge_at_once"):
        monkeypatch.setattr(spark_tasks, name, lambda: None)
    monkeypatch.setattr(
        spark_tasks, "task_context", lambda: SimpleNamespace(getLocalProperty=lambda name: None)
    )
    merged = 0
    for _ in range(60):
        batch = life.batch_of(join)
        monkeypatch.setattr(spark_tasks, "micro_batch", lambda lookup, batch=batch: batch)
        descriptors = life.ingest_all(join, batch, rows(join.number))
        told = [
            {"task": task, "descriptor": encode_checked(descriptor)}
            for task in range(TASKS)
            for descriptor in descriptors
        ]
        received = pa.RecordBatch.from_pylist(told, spark_tasks._DESCRIPTORS)
        assert next(spark_tasks.JoinTask(join.operator.spec)(iter([received]))).num_rows
        jobs = {(job.merge, job.part) for job in life.newest(tmp_path).plan.assignments}
        done = {(receipt.merge, receipt.part) for receipt in read_receipts(files, lambda merge, part: True)}
        assert jobs <= done
        merged += len(jobs)
        # Cleaning is due every 16 batches, in the first and the last task in turn.
        assert len(list_manifests(files)) <= 4 + 16 + 1
        join.number += 1
    assert merged
