"""Batches that do not reach the join: rows that Spark will not bring again are never passed over."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.spark.state_helpers import failure, newest
from tests.spark.test_state_streams import roll_back
from watersmeet.model.facts import BatchSpan
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


class SkippingScript(StreamScript):
    """A sink that does not evaluate one of its batches, in some way or other."""

    skipped = 1

    def _collect(self, frame, number):
        if number == self.skipped:
            self.skip(frame)
        else:
            super()._collect(frame, number)

    skip = staticmethod(lambda frame: None)


def build_in(state, **options):
    return lambda l, r: wm.join(
        {"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=str(state), options=options
    )


@pytest.mark.parametrize(
    "skip",
    [lambda frame: None, lambda frame: frame.limit(0).collect()],
    ids=["not evaluated", "limit(0)"],
)
def test_a_batch_that_foreach_batch_does_not_evaluate_stops_the_query(spark, tmp_path, skip):
    with SkippingScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.skip = skip
        script.start(build_in(tmp_path / "state"))
        script.batch(l=[(1, 0)]).batch(l=[(1, 1)])
        script.add(r=[(1, 9)])
        message = failure(script.process)
        assert "StateBehind: batch 1 left no manifest, so batch 2 would lose its rows" in message
        # A restart does not forget it.
        script.stop()
        assert "StateBehind" in failure(lambda: script.start().process())
        # Rolled back to the batch that was skipped, with a sink that evaluates it, nothing is lost.
        script.stop()
        roll_back(script, to=1)
        script.skipped = -1
        script.start().process()
        assert_same_rows(script.results(), [(0, 9), (1, 9)])


def test_the_loss_of_a_batch_can_be_accepted_by_its_number_and_no_other(spark, tmp_path):
    state = tmp_path / "state"
    with SkippingScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(build_in(state)).batch(l=[(1, 0)]).batch(l=[(1, 1)]).add(r=[(1, 9)])
        failure(script.process)
        script.stop()
        accepted = build_in(state, acceptGap="1")
        script.start(accepted).process()
        assert_same_rows(script.results(), [(0, 9)])
        assert newest(state).gaps == (BatchSpan(1, 1),)
        script.skipped = 3
        script.batch(l=[(1, 3)]).add(l=[(1, 4)])
        assert "batch 3 left no manifest" in failure(script.process)


def test_a_batch_that_the_sink_has_committed_already_is_skipped_without_loss(spark, tmp_path):
    """Spark died between the sink's commit and its own: the replay is not evaluated, and the start begins behind it."""
    out = tmp_path / "out"

    def start():
        streams = {
            name: spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / name))
            for name in "lr"
        }
        return (
            build_in(tmp_path / "state")(**streams)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out))
        )

    def add(name, *rows):
        spark.createDataFrame(list(rows), SCHEMA).coalesce(1).write.mode("append").parquet(
            str(tmp_path / name)
        )

    add("l", (1, 0))
    add("r", (1, 9))
    start().awaitTermination()
    add("l", (1, 1))
    start().awaitTermination()
    # Batch 1 is in the sink and in the state, but not committed.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    for leftover in (tmp_path / "checkpoint" / "commits").glob(".1.*"):
        leftover.unlink()
    add("r", (1, 8))
    start().awaitTermination()
    start().awaitTermination()
    assert_same_rows(spark.read.parquet(str(out)).collect(), [(0, 9), (1, 9), (0, 8), (1, 8)])
