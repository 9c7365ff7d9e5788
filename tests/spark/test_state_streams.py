"""Streams that bring nothing, bring it on one side only, bring it all at once, or bring it again."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest, state_files
from watersmeet.log.manifests import list_manifests
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


def build_in(state: Path, **more):
    return lambda l, r: wm.join(
        {"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=str(state), **more
    )


def test_empty_batches_count_as_batches(spark, tmp_path):
    """The first batch, the last one before a restart, and the first one after it bring no row at all."""
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(build_in(tmp_path / "state"))
        script.batch(l=[], r=[]).batch(l=[(1, 1)]).batch(r=[])
        script.restart().batch(l=[], r=[]).batch(l=[(None, 7)]).restart().batch(r=[(1, 2)])
        assert_same_rows(script.results(), [(1, 2)])
    batches = [name.batch for name in list_manifests(state_files(tmp_path / "state"))]
    assert batches == list(range(len(batches)))
    assert len(batches) >= 6
    assert newest(tmp_path / "state").totals["l"].null_rows == 1


def test_a_side_that_was_silent_for_long_finds_all_that_came(spark, tmp_path):
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(build_in(tmp_path / "state"))
        for number in range(11):
            script.batch(l=[(number % 3, number), (None, number)])
        script.restart().batch(r=[(0, 100), (5, 200)])
        assert_same_rows(script.results(), [(x, 100) for x in (0, 3, 6, 9)])
    manifest = newest(tmp_path / "state")
    assert any("-m0" in run.path for run in manifest.live), "eleven runs of one input were not merged"


def test_a_backlog_becomes_several_runs_of_bounded_size(spark, tmp_path):
    left = spark.range(300_000).selectExpr("CAST(id * 7919 % 1000003 AS INT) AS k", "CAST(id AS INT) AS x")
    right = spark.range(50_000).selectExpr("CAST(id * 31 % 1000003 AS INT) AS k", "CAST(-id AS INT) AS x")
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.add(l=left.coalesce(1), r=right.coalesce(1))
        script.start(build_in(tmp_path / "state", options={"runBytes": 500_000})).process()
        script.restart().batch(r=[(7919, 5)])
        joined = left.alias("l").join(right.alias("r"), F.expr("l.k = r.k")).select("l.x", "r.x")
        expected = [*joined.collect(), (1, 5)]
        assert len(expected) > 10_000
        assert_same_rows(script.results(), expected)
    runs = [run for run in newest(tmp_path / "state").live if run.input == "l" and "-p0" in run.path]
    assert len(runs) > 3
    assert sum(run.rows for run in runs) == 300_000


def roll_back(script: StreamScript, to: int) -> None:
    """By hand: forget batch `to` and all later ones, in the checkpoint and in the sink."""
    for folder in ("commits", "offsets"):
        for path in (script.folder / "checkpoint" / folder).iterdir():
            if int(path.name.strip(".").partition(".")[0]) >= to:
                path.unlink()
    script.collected = {number: rows for number, rows in script.collected.items() if number < to}


def test_a_checkpoint_rolled_back_by_hand_gives_each_result_once(spark, tmp_path):
    """Spark then puts the same files into other batches, so an old batch's state must not come back.

    Twice, the second time further back; at last to the very beginning.
    """
    left, right = [], []
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:

        def step(number: int) -> None:
            left.append((1, number))
            right.append((1, -number))
            script.batch(l=left[-1:], r=right[-1:])

        def check() -> None:
            assert_same_rows(script.results(), [(x, y) for _, x in left for _, y in right])

        script.start(build_in(tmp_path / "state"))
        for number in range(5):
            step(number)
        for to in (3, 2, 0):
            script.stop()
            roll_back(script, to)
            script.start().process()
            check()
            step(10 + to)
            check()
            script.restart()
            step(20 + to)
            check()


def test_the_time_zone_of_the_session_may_change_between_starts(spark, tmp_path):
    """Instants stay instants, and what has no zone stays as it is."""
    schema = "t timestamp, u timestamp, n timestamp_ntz, x int"
    first = dt.datetime(2024, 3, 31, 0, 30, tzinfo=dt.timezone.utc)
    naive = dt.datetime(2024, 3, 31, 2, 30)
    rows = [(first + dt.timedelta(hours=h), first, naive, h) for h in range(4)]
    shown = ["unix_micros(l.t)", "unix_micros(r.u)", "CAST(l.n AS STRING)", "l.x", "r.x AS y"]
    on = "l.t = r.t AND l.u <= r.t AND l.n = r.n"
    try:
        with StreamScript(spark, tmp_path, l=schema, r=schema) as script:
            frame = spark.createDataFrame(rows, schema)
            script.start(
                lambda l, r: wm.join({"l": l, "r": r}, on=on, state=str(tmp_path / "state")).selectExpr(
                    *shown
                )
            )
            script.batch(l=frame.where("x < 2"), r=frame.where("x = 3"))
            for zone, left, right in (
                ("Asia/Tokyo", "x = 2", "x = 0"),
                ("America/New_York", "x = 3", "x = 1"),
                ("UTC", "x = 9", "x = 2"),
            ):
                script.stop()
                spark.conf.set("spark.sql.session.timeZone", zone)
                script.start().batch(l=frame.where(left), r=frame.where(right))
            results = script.results()
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        expected = frame.alias("l").join(frame.alias("r"), F.expr(on)).selectExpr(*shown).collect()
        assert len(expected) == 4
        assert_same_rows(results, expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
