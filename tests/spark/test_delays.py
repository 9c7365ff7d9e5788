"""Rows that wait, with queries that end by themselves: `max_delay` and `availableNow`."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from tests.spark.shop import STREAM, Case, Shop, assert_same, expected, joined, sales
from tests.waiting import wait_until
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.spark import heartbeat

CASES = {"left": Case("unsorted", "s.k = p.id", how="left", of={"page_rows": 20, "in_place": False})}


class Backlog:
    """Files of sales, read one a batch by a query that ends by itself, whose batches are kept by number."""

    def __init__(self, spark: SparkSession, folder: Path, shop: Shop):
        self.spark, self.folder, self.shop = spark, folder, shop
        self.rng = random.Random(6)
        self.rows: list[tuple] = []
        self.collected: dict[int, list[Row]] = {}
        (folder / "in").mkdir()

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def add(self, files: int, rows: int = 10) -> None:
        for _ in range(files):
            some = sales(self.rng, len(self.rows), rows)
            draft = self.folder / "draft"
            frame = self.spark.createDataFrame(some, STREAM).coalesce(1)
            frame.write.mode("overwrite").parquet(str(draft))
            name = f"{len(self.rows):06}.parquet"
            next(draft.glob("part-*.parquet")).rename(self.folder / "in" / name)
            self.rows += some

    def join(self, delay: str) -> DataFrame:
        stream = self.spark.readStream.schema(STREAM).option("maxFilesPerTrigger", 1)
        s = stream.parquet(str(self.folder / "in"))
        return joined(s, self.shop, CASES, self.state, max_delay=delay)

    def start(self, delay: str = "1 hour", **trigger: Any) -> StreamingQuery:
        writer = self.join(delay).writeStream.foreachBatch(self.keep)
        trigger = trigger or {"processingTime": "0 seconds"}
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger).start()

    def run(self, delay: str = "1 hour") -> list[int]:
        """Run to the end; the number of new stream rows in each batch."""
        query = self.start(delay, availableNow=True)
        try:
            assert query.awaitTermination(120), "the query did not end"
            return [progress.numInputRows for progress in query.recentProgress]
        finally:
            query.stop()

    def keep(self, frame: DataFrame, number: int) -> None:
        self.collected[number] = frame.collect()

    def results(self) -> list[Row]:
        return [row for number in sorted(self.collected) for row in self.collected[number]]

    def is_answered(self) -> bool:
        """Whether every row of the stream came out: all do, since the join is a left one."""
        return len({row.n for row in self.results()}) == len(self.rows)

    def waiting(self) -> int:
        (one,) = wm.status(str(self.state)).joins
        return one.plan.waiting_rows if isinstance(one.plan, PagePlan) else 0

    def offsets(self) -> list[object]:
        """The newest offset of each source, in their order."""
        newest = max(
            (path for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*")),
            key=lambda p: int(p.name),
        )
        return [json.loads(line) for line in newest.read_text().splitlines()[2:]]

    def check(self) -> None:
        s = self.spark.createDataFrame(self.rows, STREAM)
        assert_same(self.results(), expected(s, self.shop.frame, CASES), CASES)


@pytest.fixture
def backlog(spark, tmp_path, shop) -> Backlog:
    return Backlog(spark, tmp_path, shop)


def test_a_backlog_is_taken_file_by_file_and_what_waits_is_answered_later(backlog):
    backlog.add(files=6)
    assert backlog.run() == [10] * 6
    waiting = backlog.waiting()
    assert waiting, "rows are left for the next start"
    assert backlog.run() in ([], [0]), "nothing new: at most the heartbeat's own batch"
    assert backlog.waiting() == waiting
    backlog.add(files=2)
    assert backlog.run("1 millisecond") == [10] * 2
    # The heartbeat's offset is the second of the clock: in the same second it has nothing new.
    wait_until(lambda: time.time() >= backlog.offsets()[-1]["second"] + 1, "the next second")
    assert backlog.run("1 millisecond") == [0], "a batch of the heartbeat, for what is due"
    assert backlog.waiting() == 0
    backlog.check()


def test_a_query_that_began_with_rate_goes_on_from_its_checkpoint(backlog, monkeypatch):
    backlog.add(files=2)
    monkeypatch.setattr(heartbeat, "beat_source", lambda: None)
    query = backlog.start()
    wait_until(lambda: len(backlog.collected) > 2, "both files and a batch of the heartbeat")
    query.stop()
    assert backlog.waiting() and isinstance(backlog.offsets()[-1], int)
    monkeypatch.undo()

    backlog.add(files=3)
    assert sum(backlog.run()) == 30
    assert list(backlog.offsets()[-1]) == ["second"]
    query = backlog.start("1 millisecond")
    wait_until(backlog.is_answered, "all answers")
    query.stop()
    backlog.check()


@pytest.mark.parametrize("files", [0, 2])
def test_before_spark_4_2_available_now_is_refused_with_the_reason(backlog, monkeypatch, files):
    monkeypatch.setattr(heartbeat, "beat_source", lambda: None)
    backlog.add(files)
    reason = "max_delay= and pay_within= cannot be combined with availableNow before Spark 4.2"
    with pytest.raises(StreamingQueryException, match=reason):
        backlog.run()
    assert not backlog.results()
    if not files:
        backlog.add(files=2)
    # Other triggers are as they were.
    query = backlog.start("1 millisecond")
    wait_until(backlog.is_answered, "all answers")
    query.stop()
    backlog.check()
