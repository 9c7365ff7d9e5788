"""A join under a budget of memory on a real session: it owes results, a restart pays them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from tests.spark.state_helpers import newest
from tests.waiting import wait_until
from watersmeet.errors import UsageError
from watersmeet.schemes.budget.facts import BudgetPlan
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, id long"
BATCHES = 4


def rows(batch: int) -> list[tuple[int, int]]:
    return [(key, 1000 * batch + key) for key in range(40)]


def test_a_small_budget_owes_results_that_a_start_without_it_pays(spark, tmp_path):
    names = "abc"
    budget: dict[str, Any] = {"memory": "3 KB", "options": {"partitionGroups": 16}}

    def build(**streams: DataFrame) -> DataFrame:
        on = " AND ".join(f"{names[0]}.k = {name}.k" for name in names[1:])
        ids = [f"{name}.id AS {name}" for name in names]
        return wm.join(streams, on=on, select=ids, state=str(tmp_path / "state"), tasks=2, **budget)

    with StreamScript(spark, tmp_path, **dict.fromkeys(names, SCHEMA)) as script:
        script.start(build)
        for batch in range(BATCHES):
            script.batch(**{name: rows(batch) for name in names})
            if batch == 1:
                script.restart()
        owing = newest(tmp_path / "state", "-".join(names))
        plan = owing.plan.scheme
        assert isinstance(plan, BudgetPlan) and owing.pushes
        assert all(load.active_bytes <= 3 << 10 for load in plan.loads)
        assert sum(load.owed_rows for load in plan.loads) > 0
        emitted = Counter(script.results())
        assert max(emitted.values()) == 1, "a result came out twice"
        assert len(emitted) < 40 * BATCHES ** len(names)
        budget.clear()
        script.restart()
        script.batch(**{names[0]: [(99, 1)]})
        everything = [(key, *ids) for key in range(40) for ids in _ids(key, len(names))]
        assert_same_rows(script.results(), [found[1:] for found in everything])
    assert not newest(tmp_path / "state", "-".join(names)).pushes


def _ids(key: int, inputs: int) -> list[tuple[int, ...]]:
    """The ids of all combinations of rows of one key."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(inputs):
        found = [(*before, 1000 * batch + key) for before in found for batch in range(BATCHES)]
    return found


def test_explain_says_what_a_budget_of_bytes_and_time_does(spark, tmp_path):
    source = spark.readStream.format("rate").load()
    how: dict[str, Any] = {"memory": "1 MB", "defer": "30 seconds", "pay_within": "10 minutes"}
    said = wm.explain({"l": source, "r": source}, on="l.value = r.value", state=str(tmp_path), **how)
    assert said.startswith("budget: memory= is given")
    assert "a task that takes longer than 30.0 s sets history aside" in said
    assert "what is owed for 10.0 min is due, also while no rows come" in said
    with pytest.raises(UsageError, match="pay_within= needs an equality"):
        wm.explain({"l": source, "r": source}, on="l.value < r.value", pay_within="1 minute")


def test_a_join_of_batches_refuses_memory(spark, tmp_path):
    frame = spark.createDataFrame(rows(0), SCHEMA)
    with pytest.raises(UsageError, match="memory= is for streams"):
        wm.join({"l": frame, "r": frame}, on="l.k = r.k", memory="1 MB", state=str(tmp_path))


class Bids:
    """A query over files of keys, joined with itself, whose results are counted."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.batches = spark, folder, 0
        self.results: dict[int, int] = {}
        (folder / "in").mkdir()

    def add(self) -> None:
        frame = self.spark.createDataFrame(rows(self.batches), SCHEMA).coalesce(1)
        frame.write.mode("append").parquet(str(self.folder / "in"))
        self.batches += 1

    def start(self, trigger: str, **budget: Any) -> StreamingQuery:
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        joined = wm.join(
            {name: source.parquet(str(self.folder / "in")) for name in "lr"},
            on="l.k = r.k",
            select=["l.id", "r.id AS other"],
            state=str(self.folder / "state"),
            tasks=2,
            **budget,
        )
        writer = joined.writeStream.foreachBatch(self._keep).trigger(processingTime=trigger)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.results[number] = frame.count()

    @property
    def total(self) -> int:
        return sum(self.results.values())

    def plan(self) -> BudgetPlan:
        plan = newest(self.folder / "state", "l-r").plan.scheme
        assert isinstance(plan, BudgetPlan)
        return plan


def test_an_idle_stream_pays_in_time_and_tasks_know_the_trigger_interval(spark, tmp_path):
    bids = Bids(spark, tmp_path)
    for _ in range(3):
        bids.add()
    how: dict[str, Any] = {"memory": "1 KB", "defer": "auto", "options": {"partitionGroups": 16}}
    query = bids.start("700 milliseconds", pay_within="3 seconds", **how)
    try:
        # Three files, each in a batch of its own, and then batches without rows.
        wait_until(lambda: bids.total == 40 * 3 * 3, "all results, though no row comes")
    finally:
        query.stop()
    assert any("due" in event.why for event in bids.plan().events)
    assert bids.plan().slow_ms == 700
    # Spark cannot drop the source of the beats.
    broken = bids.start("700 milliseconds", **how)
    with pytest.raises(StreamingQueryException, match="sources in the checkpoint"):
        broken.awaitTermination(60)


def test_a_time_for_debts_cannot_be_added_to_a_query_that_began_without_it(spark, tmp_path):
    bids = Bids(spark, tmp_path)
    bids.add()
    query = bids.start("0 seconds", memory="1 KB")
    try:
        wait_until(lambda: bids.total == 40, "the first file")
    finally:
        query.stop()
    bids.add()
    broken = bids.start("0 seconds", memory="1 KB", pay_within="3 seconds")
    with pytest.raises(StreamingQueryException, match="sources in the checkpoint"):
        broken.awaitTermination(60)
    assert bids.total == 40
