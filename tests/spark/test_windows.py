"""Windows on Spark: streams with restarts against brute force and Spark's own join, batches, and what is refused."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.errors import ConfigError, UsageError
from watersmeet.jobs.file import load_job
from watersmeet.jobs.runner import Running, prepare
from watersmeet.testing import StreamScript, assert_same_rows

UTC = datetime.timezone.utc
# For each type of time: a time from a whole number, and a length.
TIMES: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
    # Across the end of summer time in the session's zone: lengths are of real time.
    "timestamp": (
        lambda t: datetime.datetime(2024, 10, 27, tzinfo=UTC) + datetime.timedelta(minutes=10 * t),
        lambda n: f"{10 * n} minutes",
    ),
    "timestamp_ntz": (
        lambda t: datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=t),
        lambda n: datetime.timedelta(seconds=n),
    ),
    "date": (lambda t: datetime.date(2024, 2, 1) + datetime.timedelta(days=t), lambda n: f"{n} days"),
    "int": (lambda t: t, lambda n: n),
}


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def zone(request, spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def sides(stream):
    """Both inputs out of one stream: a file is then a batch of both, and late is what the rules say."""
    return {name: stream.where(f"side = '{name}'").drop("side") for name in "lr"}


def taken_of(steps, lateness: int) -> tuple[dict[str, list[tuple]], dict[str, int]]:
    """The rows that are not late, by the rule as the guide has it, and how many are."""
    taken: dict[str, list[tuple]] = {"l": [], "r": []}
    late = {"l": 0, "r": 0}
    watermark = None
    for step in steps:
        for side in "lr":
            for row in step[side]:
                if row[0] is None or row[1] is None:
                    continue
                if watermark is not None and row[1] < watermark:
                    late[side] += 1
                else:
                    taken[side].append(row)
        if all(taken.values()):
            watermark = min(max(row[1] for row in taken[side]) for side in "lr") - lateness
    return taken, late


def draw_steps(seed: int, count: int) -> list[dict[str, list[tuple]]]:
    """Batches of (key, time, number): times move on, some rows are late, some inputs idle."""
    rng = random.Random(seed)
    number = 0
    steps = []
    for place in range(count):
        step: dict[str, list[tuple]] = {"l": [], "r": []}
        for side in "lr":
            for _ in range(0 if rng.random() < 0.2 else rng.randrange(25)):
                number += 1
                time = None if rng.random() < 0.05 else 6 * place + rng.randrange(-24, 5)
                step[side].append((rng.choice([None, *range(3)]), time, number))
        steps.append(step)
    return steps


@pytest.mark.parametrize(
    ("kind", "on", "meet"),
    [
        ("timestamp", "l.k = r.k", lambda a, b: a == b),
        ("date", "abs(l.k - r.k) <= 1", lambda a, b: abs(a - b) <= 1),
        ("int", "l.k <> r.k", lambda a, b: a != b),
    ],
)
def test_a_stream_with_restarts_gives_the_pairs_of_the_rows_that_are_not_late(
    spark, tmp_path, kind, on, meet
):
    moment, length = TIMES[kind]
    steps = draw_steps(len(kind), 8)
    if on == "l.k <> r.k":
        # Without a key no row is dropped for a null one: leave them out, so that one oracle does.
        steps = [{side: [row for row in step[side] if row[0] is not None] for side in "lr"} for step in steps]

    def build(s):
        return wm.join(
            sides(s),
            on=on,
            select=["l.id", "r.id AS other"],
            state=str(tmp_path / "state"),
            tasks=2,
            within=length(8),
            time={"l": "t", "r": "T"},
            lateness=length(3),
        )

    with StreamScript(spark, tmp_path, s=f"side string, k int, t {kind}, id int") as script:
        script.start(build)
        for number, step in enumerate(steps):
            script.batch(
                s=[
                    (side, k, None if t is None else moment(t), id_)
                    for side in "lr"
                    for k, t, id_ in step[side]
                ]
            )
            if number in (2, 5):
                script.restart()
        results = script.results()
    taken, late = taken_of(steps, 3)
    expected = [
        (a[2], b[2]) for a in taken["l"] for b in taken["r"] if meet(a[0], b[0]) and abs(a[1] - b[1]) <= 8
    ]
    assert sum(late.values()) > 5
    assert len(expected) > 50
    assert_same_rows(results, expected)
    totals = newest(tmp_path / "state").totals
    assert {side: totals[side].late_rows for side in "lr"} == late
    assert {side: totals[side].rows for side in "lr"} == {side: len(taken[side]) for side in "lr"}
    assert all(totals[side].evicted_rows for side in "lr")


def test_as_sparks_own_join_with_watermarks_where_no_row_is_late(spark, tmp_path):
    """Spark's join needs the window as a condition; ours takes it as `within`."""
    rng = random.Random(4)
    schema = "k int, t timestamp, id int"
    moment = TIMES["timestamp"][0]

    def ours(l, r):
        return wm.join(
            {"l": l, "r": r},
            on="l.k = r.k",
            select=["l.id", "r.id AS other"],
            state=str(tmp_path / "state"),
            within="50 minutes",
            time={"l": "t", "r": "t"},
            lateness="1 hour",
        )

    def sparks(l, r):
        left, right = (frame.withWatermark("t", "1 hour").alias(name) for name, frame in (("l", l), ("r", r)))
        near = "l.t BETWEEN r.t - INTERVAL 50 MINUTES AND r.t + INTERVAL 50 MINUTES"
        return left.join(right, F.expr(f"l.k = r.k AND {near}")).selectExpr("l.id", "r.id AS other")

    rows = [
        {
            side: [
                (
                    rng.randrange(4),
                    moment(4 * place + rng.randrange(6)),
                    1000 * place + 10 * i + (side == "l"),
                )
                for i in range(12)
            ]
            for side in "lr"
        }
        for place in range(6)
    ]
    results = []
    for name, build in (("ours", ours), ("sparks", sparks)):
        with StreamScript(spark, tmp_path / name, l=schema, r=schema) as script:
            script.start(build)
            for step in rows:
                script.batch(**step)
            results.append(script.results())
    assert len(results[0]) > 100
    assert_same_rows(results[0], results[1])


def test_a_window_over_rows_on_a_stream(spark, tmp_path):
    def build(s):
        return wm.join(
            sides(s),
            on="l.k = r.k",
            select=["l.x", "r.x AS y"],
            state=str(tmp_path / "state"),
            within="2 rows",
        )

    with StreamScript(spark, tmp_path, s="side string, k int, x int") as script:
        script.start(build)
        script.batch(s=[("l", 1, 1), ("l", 1, 2), ("l", 1, 3), ("r", 1, 10)])
        script.restart()
        script.batch(s=[("r", 1, 20)])
        script.batch(s=[("r", 1, 30), ("r", None, 40)])
        script.batch(s=[("l", 1, 4)])
        own = [(1, 10), (2, 10), (3, 10)]
        assert_same_rows(script.results(), [*own, (2, 20), (3, 20), (2, 30), (3, 30), (4, 20), (4, 30)])


@pytest.mark.parametrize("strategy", ["spark", "hash", "grid"])
@pytest.mark.parametrize("kind", list(TIMES))
def test_batches_have_windows_and_no_late_rows(spark, tmp_path, zone, kind, strategy):
    moment, length = TIMES[kind]
    rng = random.Random(kind)
    rows = [
        [(rng.randrange(3), rng.choice([None, rng.randrange(60)]), 100 * side + i) for i in range(60)]
        for side in (1, 2)
    ]
    frames = {
        name: spark.createDataFrame(
            [(k, None if t is None else moment(t), id_) for k, t, id_ in mine], f"k int, t {kind}, id int"
        )
        for name, mine in zip("lr", rows, strict=True)
    }
    joined = wm.join(
        frames,
        on="l.k = r.k",
        select=["l.id", "r.id AS other"],
        state=str(tmp_path),
        strategy=strategy,
        within=length(7),
        time={"l": "t", "r": "t"},
        lateness=length(1),
    )
    expected = [
        (a[2], b[2])
        for a in rows[0]
        for b in rows[1]
        if a[0] == b[0] and None not in (a[1], b[1]) and abs(a[1] - b[1]) <= 7
    ]
    assert len(expected) > 50
    assert_same_rows(joined.collect(), expected)


def test_what_makes_no_sense_is_refused_before_anything_starts(spark):
    batch = spark.createDataFrame([(1, 2)], "k int, t int")
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS INT) AS k", "timestamp AS t")
    inputs, moving = {"l": batch, "r": batch}, {"l": stream, "r": stream}
    time = {"l": "t", "r": "t"}
    for frames, window, words in [
        (inputs, {"within": "5 rows"}, "use it for streams"),
        (inputs, {"within": 5}, "needs time="),
        (inputs, {"time": time}, "time= belongs to a window"),
        (inputs, {"within": 5, "time": {"l": "t", "r": "x"}}, "no column x"),
        (moving, {"within": 5, "time": time}, "give a unit too"),
        (moving, {"within": "5 rows", "lateness": "1 day"}, "no row can be late"),
        (
            {"l": stream.withColumn("t", F.to_date("t")), "r": stream},
            {"within": "1 day", "time": time},
            "cast one",
        ),
    ]:
        with pytest.raises(UsageError, match=words):
            wm.join(frames, on="l.k = r.k", state="unused", **window)
        with pytest.raises(UsageError, match=words):
            wm.explain(frames, on="l.k = r.k", **window)


def test_explain_speaks_of_the_window(spark):
    stream = spark.readStream.format("rate").load()
    inputs = {"l": stream, "r": stream}
    on = "l.value = r.value"
    said = wm.explain(
        inputs, on=on, within="1 minute", time={"l": "timestamp", "r": "timestamp"}, lateness="9 seconds"
    )
    assert said.endswith(
        "two rows match only if their times are at most 1 minute apart, and are accepted up to 9 seconds late"
    )
    assert "last 7 rows of the other input" in wm.explain(inputs, on=on, within="7 rows")


JOB = """
[inputs.l]
format = "parquet"
path = "l"
[inputs.r]
format = "parquet"
path = "r"
[join]
on = "l.k = r.k"
select = ["l.id", "r.id AS other"]
within = "3 days"
time = { l = "day", r = "day" }
lateness = "1 day"
[sink]
format = "parquet"
path = "out"
[job]
checkpoint = "checkpoint"
trigger = "once"
"""


def test_a_job_file_with_a_window_runs(spark, tmp_path):
    day = TIMES["date"][0]
    for name, days in (("l", [1, 5, 9]), ("r", [2, 8])):
        frame = spark.createDataFrame([(1, day(d), d) for d in days], "k int, day date, id int")
        frame.coalesce(1).write.parquet(str(tmp_path / name))
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    job = load_job(file, {})
    running = Running(prepare(spark, job, {}), {})
    assert running.query.awaitTermination(120)
    expected = [(1, 2), (5, 2), (5, 8), (9, 8)]
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).collect(), expected)
    status = running.state()
    assert status is not None
    assert status.window is not None
    assert (status.window.within, status.window.watermark) == ("3 days", str(day(7)))
    file.write_text(JOB.replace('lateness = "1 day"', 'lateness = "1 hour"'))
    with pytest.raises(ConfigError, match=r"\[join\].*whole days"):
        prepare(spark, load_job(file, {}), {})
