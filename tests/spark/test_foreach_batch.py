"""What a `foreachBatch` function may do to the jobs that evaluate its DataFrame."""

from __future__ import annotations

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


def test_a_job_group_set_in_any_batch_does_not_hide_the_start(spark, tmp_path):
    """setJobGroup replaces Spark's run id, in this batch and all later ones of the start."""
    script = StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA)

    def collect(frame, number):
        rows = frame.persist().collect() if number % 2 else None
        if number not in (0, 4):
            frame.sparkSession.sparkContext.setJobGroup("mine", "my jobs")
        script.collected[number] = frame.collect() if rows is None else rows
        frame.unpersist()

    script._collect = collect

    def build(l, r):
        return wm.join(
            {"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=str(tmp_path / "st")
        )

    with script:
        script.start(build)
        script.batch(l=[(1, 10)], r=[(1, 20)]).batch(l=[(1, 11)]).batch(r=[(1, 21)])
        script.restart().batch(l=[(1, 12)]).batch(l=[(2, 13)])
        script.restart().batch(r=[(1, 22), (2, 23)])
        results = script.results()
    left, right = [(1, 10), (1, 11), (1, 12), (2, 13)], [(1, 20), (1, 21), (1, 22), (2, 23)]
    assert_same_rows(results, [(x, y) for k, x in left for j, y in right if k == j])
    assert newest(tmp_path / "st").run_seq == 2


def test_the_wrapper_for_connect_changes_nothing_on_a_classic_session(spark, tmp_path):
    script = StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA)
    script._collect = wm.foreach_batch(script._collect)
    with script:
        script.start(lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", state=str(tmp_path / "st")))
        script.batch(l=[(1, 10)], r=[(1, 20)]).restart().batch(l=[(1, 11)])
        assert_same_rows(script.results(), [((1, 10), (1, 20)), ((1, 11), (1, 20))])
