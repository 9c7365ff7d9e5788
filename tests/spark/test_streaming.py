"""Streams on a real session, step by step: the output and the state, over restarts."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest
from tests.waiting import wait_until
from watersmeet.testing import StreamScript, assert_same_rows

LEFT, RIGHT = "k int, x int, s string", "k bigint, y int, v array<struct<a:int>>"


def draw(rng: random.Random, count: int) -> tuple[list[tuple], list[tuple]]:
    def key():
        return rng.choice([None, *range(12)])

    left = [(key(), rng.randrange(100), rng.choice(["a", "", None])) for _ in range(rng.randrange(count))]
    right = [(key(), rng.randrange(100), rng.choice([None, [], [(1,)]])) for _ in range(rng.randrange(count))]
    return left, right


def test_a_random_stream_with_restarts_gives_sparks_batch_join(spark, tmp_path):
    """Twenty-four batches reach merging twice; every fifth is followed by a restart with other tasks."""
    rng = random.Random(7)
    state = tmp_path / "state"
    on = "l.k = r.k AND l.x < r.y + 3"
    all_left, all_right = [], []
    tasks = iter([2, 3, 1, 2, 2, 2])

    def build(l, r):
        return wm.join({"l": l, "r": r}, on=on, state=str(state), tasks=next(tasks))

    with StreamScript(spark, tmp_path, l=LEFT, r=RIGHT) as script:
        script.start(build)
        for number in range(24):
            left, right = draw(rng, 60)
            if number % 7 == 3:
                left = []
            if number % 7 in (4, 5):
                right = []
            all_left += left
            all_right += right
            script.batch(l=left, r=right)
            if number % 5 == 4:
                script.restart()
        results = script.results()
    left, right = spark.createDataFrame(all_left, LEFT), spark.createDataFrame(all_right, RIGHT)
    expected = left.alias("l").join(right.alias("r"), F.expr(on))
    expected = expected.select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r")).collect()
    assert len(expected) > 1000
    assert_same_rows(results, expected)
    manifest = newest(state)
    kept = {
        "l": sum(row[0] is not None for row in all_left),
        "r": sum(row[0] is not None for row in all_right),
    }
    assert {name: total.rows for name, total in manifest.totals.items()} == kept
    assert {name: sum(r.rows for r in manifest.live if r.input == name) for name in "lr"} == kept
    assert manifest.totals["l"].null_rows == len(all_left) - kept["l"]
    assert any("-m0" in run.path for run in manifest.live), "nothing was merged"
    assert manifest.run_seq == 4


def test_columns_with_dots_and_backticks_in_their_names(spark, tmp_path):
    """PySpark hands columns to Python by their names, and reads a dot as a path into a struct."""
    left, right = "`l.k` int, `x``y` int", "`r.k` int, y int"

    def build(l, r):
        return wm.join({"l": l, "r": r}, on="l.`l.k` + 1 = r.`r.k`", state=str(tmp_path / "state"))

    with StreamScript(spark, tmp_path, l=left, r=right) as script:
        script.start(build)
        script.batch(l=[(1, 10), (2, 20)])
        script.batch(r=[(2, 5)])
        assert_same_rows(script.results(), [((1, 10), (2, 5))])


def test_one_stream_joined_with_itself(spark, tmp_path):
    with StreamScript(spark, tmp_path, s="k int, x int") as script:
        script.start(
            lambda s: wm.join(
                {"a": s, "b": s},
                on="a.k = b.k AND a.x < b.x",
                select=["a.x", "b.x AS y"],
                state=str(tmp_path / "st"),
            )
        )
        script.batch(s=[(1, 1), (1, 2)]).batch(s=[(1, 3), (2, 9)])
        assert_same_rows(script.results(), [(1, 2), (1, 3), (2, 3)])


def test_two_joins_in_one_query_keep_their_state_apart(spark, tmp_path):
    def build(a, b, c):
        state = str(tmp_path / "state")
        first = wm.join({"a": a, "b": b}, on="a.k = b.k", select=["a.k", "a.x", "b.x AS y"], state=state)
        return wm.join(
            {"ab": first, "c": c}, on="ab.k = c.k", select=["ab.x", "ab.y", "c.x AS z"], state=state
        )

    schema = "k int, x int"
    with StreamScript(spark, tmp_path, a=schema, b=schema, c=schema) as script:
        script.start(build)
        script.batch(a=[(1, 10)], c=[(1, 30)]).batch(c=[(1, 31)]).batch(b=[(1, 20)]).restart().batch(
            c=[(1, 32)]
        )
        assert_same_rows(script.results(), [(10, 20, 30), (10, 20, 31), (10, 20, 32)])


def test_a_source_whose_first_batch_is_empty(spark, tmp_path):
    """The rate source begins with a batch without rows; the join must not take that for lost state."""
    rate = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 50)
        .load()
        .selectExpr("value % 5 AS k", "value AS x")
    )
    joined = wm.join(
        {"l": rate, "r": rate}, on="l.k = r.k AND l.x = r.x", select=["l.x"], state=str(tmp_path / "st")
    )
    rows = {}

    def run_until(batch: int) -> None:
        writer = joined.writeStream.foreachBatch(lambda frame, number: rows.update({number: frame.collect()}))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            wait_until(lambda: max(rows, default=-1) >= batch or not query.isActive, f"batch {batch}")
        finally:
            query.stop()
        assert query.exception() is None

    run_until(2)
    run_until(max(rows) + 2)
    seen = [row.x for number in sorted(rows) for row in rows[number]]
    assert not rows[0]
    assert sorted(seen) == list(range(len(seen)))
    assert len(seen) >= 50


def test_a_sink_that_evaluates_a_batch_twice_sees_it_twice_and_the_state_once(spark, tmp_path):
    seen = []

    def twice(frame, number):
        seen.append((frame.count(), frame.count()))

    with StreamScript(spark, tmp_path, l=LEFT, r=RIGHT) as script:
        script._collect = twice
        script.start(lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state=str(tmp_path / "state")))
        script.batch(r=[(1, 1, None)]).batch(l=[(1, 1, "a")]).batch(l=[(1, 2, "b")])
    assert seen == [(0, 0), (1, 1), (1, 1)]
    assert {name: total.rows for name, total in newest(tmp_path / "state").totals.items()} == {"l": 2, "r": 1}


def test_the_result_of_a_join_is_an_ordinary_stream(spark, tmp_path):
    """Fields can be picked, filtered and aggregated by Spark afterwards."""
    with StreamScript(spark, tmp_path, l=LEFT, r=RIGHT) as script:
        script.start(
            lambda l, r: (
                wm.join({"l": l, "r": r}, on="l.k = r.k", state=str(tmp_path / "state"))
                .where("l.x > 1")
                .select("l.s", "r.*")
            )
        )
        script.batch(l=[(1, 1, "a"), (1, 2, "b")], r=[(1, 7, [(3,)])])
        assert_same_rows(script.results(), [("b", 1, 7, [(3,)])])


# The same function, for calls that a type checker would refuse before Python does.
bad_join: Any = wm.join

BAD_CALLS: list[Any] = [
    pytest.param(lambda l, r: wm.join({"l": l}, on="l.k = 1"), "2 to 16 inputs", id="one input"),
    pytest.param(lambda l, r: bad_join([l, r], on="l.k = r.k"), "takes its inputs by name", id="a list"),
    pytest.param(
        lambda l, r: bad_join({"l": l, "r": 3}, on="l.k = r.k"), "not a Spark DataFrame", id="a number"
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "a b": r}, on="l.k = 1"), "cannot be used in SQL", id="bad name"
    ),
    pytest.param(lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.kk", state="/x"), "column", id="typo"),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k"), "place for its state", id="no state"
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state="/x", tasks=0), "tasks", id="0 tasks"
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state="/x", name="../x"), "name", id="path"
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state="/x", select="l.k"),
        "list of columns",
        id="str",
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state="/x", strategy="fast"),
        "unknown strategy",
        id="strategy",
    ),
    pytest.param(
        lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k AND l.s = r.v", state="/x"),
        "string",
        id="string with array",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS)
def test_a_wrong_call_is_refused_at_once(spark, tmp_path, call, message):
    for name in "lr":
        (tmp_path / name).mkdir()
    left = spark.readStream.schema(LEFT).parquet(str(tmp_path / "l"))
    right = spark.readStream.schema(RIGHT).parquet(str(tmp_path / "r"))
    with pytest.raises(wm.UsageError, match=message):
        call(left, right)


def test_a_stream_and_a_batch_are_refused(spark, tmp_path):
    (tmp_path / "l").mkdir()
    left = spark.readStream.schema(LEFT).parquet(str(tmp_path / "l"))
    right = spark.createDataFrame([], RIGHT)
    with pytest.raises(wm.UsageError, match="input r is not streaming"):
        wm.join({"l": left, "r": right}, on="l.k = r.k", state="/x")
