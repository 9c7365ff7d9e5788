"""More tasks than an ingest task sends whole descriptors to: they are published, and a notice of each is shuffled."""

from __future__ import annotations

import random

from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest, state_files
from watersmeet.testing import StreamScript, assert_same_rows

ROWS = "k int, x int"
# A descriptor of one run is some 300 bytes, and 16 KB of them are sent at most.
TASKS = 70


def draw(rng: random.Random) -> list[tuple[int, int]]:
    return [(rng.randrange(9), rng.randrange(100)) for _ in range(20)]


def test_a_stream_with_many_tasks_and_a_restart(spark, tmp_path):
    rng = random.Random(3)
    given: dict[str, list[tuple[int, int]]] = {"l": [], "r": []}

    def build(l, r):
        return wm.join({"l": l, "r": r}, on="l.k = r.k", state=str(tmp_path / "state"), tasks=TASKS)

    with StreamScript(spark, tmp_path, l=ROWS, r=ROWS) as script:
        script.start(build)
        for number in range(3):
            rows = {side: draw(rng) for side in "lr"}
            for side in "lr":
                given[side] += rows[side]
            script.batch(**rows)
            if number == 1:
                script.restart()
        results = script.results()
    left, right = (spark.createDataFrame(given[side], ROWS) for side in "lr")
    expected = left.alias("l").join(right.alias("r"), F.expr("l.k = r.k"))
    assert_same_rows(
        results, expected.select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r")).collect()
    )
    files = state_files(tmp_path / "state")
    # Those of three batches of each input.
    assert len(files.entries("descriptors")) >= 6
    assert newest(tmp_path / "state").totals["l"].rows == 60


def test_a_batch_join_with_many_tasks_is_computed_twice(spark, tmp_path):
    rng = random.Random(4)
    rows = [draw(rng) for _ in range(2)]
    left, right = (spark.createDataFrame(one, ROWS) for one in rows)
    joined = wm.join(
        {"l": left, "r": right},
        on="l.k = r.k",
        select=["l.x", "r.x AS y"],
        state=str(tmp_path / "state"),
        tasks=TASKS,
        strategy="hypercube",
    )
    expected = [(x, y) for k, x in rows[0] for j, y in rows[1] if k == j]
    for _ in range(2):
        assert_same_rows(joined.collect(), spark.createDataFrame(expected, "x int, y int").collect())
    assert len(state_files(tmp_path / "state").entries("descriptors")) >= 2
