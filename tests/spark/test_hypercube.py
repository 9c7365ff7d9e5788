"""Equality joins with hot keys on a real session: hypercube and biclique against Spark's own batch join."""

from __future__ import annotations

import gc
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.schemes.biclique import BicliquePlan
from watersmeet.schemes.hash import HashPlan
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, s string, x int"


def draw(rng: random.Random, hot: int, count: int) -> list[tuple]:
    """Six rows in ten have one key, one in twenty none."""

    def key() -> int | None:
        chance = rng.random()
        return hot if chance < 0.6 else None if chance < 0.65 else rng.randrange(40)

    return [(key(), rng.choice(["", "a", "ä"]), rng.randrange(100)) for _ in range(count)]


def drifting(count: int) -> list[dict[str, list]]:
    """The hot key is another one in the end; some batches have rows of one input only."""
    rng = random.Random(3)
    batches = [{side: draw(rng, 7 if number < 4 else 11, count) for side in "lr"} for number in range(6)]
    del batches[2]["l"], batches[4]["r"]
    return batches


def run(spark, tmp_path, on: str, batches: list[dict[str, list]], lives: list[dict[str, Any]]) -> None:
    """Stream batches, a restart with other arguments after every third; compare with the join of all rows."""
    ways = iter(lives)

    def build(l: DataFrame, r: DataFrame) -> DataFrame:
        return wm.join({"l": l, "r": r}, on=on, state=str(tmp_path / "state"), **next(ways))

    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(build)
        for number, batch in enumerate(batches):
            script.batch(**batch)
            if number % 3 == 2 and number + 1 < len(batches):
                script.restart()
        results = script.results()
    left, right = (
        spark.createDataFrame([row for batch in batches for row in batch.get(side, [])], SCHEMA).alias(side)
        for side in "lr"
    )
    expected = left.join(right, F.expr(on)).select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r"))
    rows = expected.collect()
    assert len(rows) > 10_000
    assert_same_rows(results, rows)


def test_a_stream_with_a_hot_key_that_changes(spark, tmp_path):
    """The restart finds the plan of a hypercube with other tasks, and goes on as a hash join."""
    lives = [{"tasks": 3}, {"strategy": "hash", "tasks": 2}]
    run(spark, tmp_path, "l.k = r.k AND l.x < r.x + 50", drifting(80), lives)
    assert isinstance(newest(tmp_path / "state").plan.scheme, HashPlan)


def test_heavy_keys_are_shared_by_the_tasks(spark, tmp_path):
    """Each value of s makes a key of its own; the restart finds the plan of a hash join."""
    lives = [{"strategy": "hash", "tasks": 2}, {"strategy": "hypercube", "tasks": 3}]
    run(spark, tmp_path, "l.k = r.k AND l.s = r.s", drifting(200), lives)
    cube = newest(tmp_path / "state").plan.scheme
    assert isinstance(cube, CubePlan)
    assert {task for one in cube.heavy for task in one.tasks} == {0, 1, 2}
    assert any(len(set(one.tasks)) > 1 for one in cube.heavy)
    assert {"7, a", "11, a"} <= {one.label for one in cube.heavy}


def test_workers_leave_modules_out_of_their_collections(spark, tmp_path):
    """Spark uses a join's Python workers again: whoever comes next finds them with frozen modules."""
    frame = spark.range(100)
    # A batch join with an equality would be Spark's own.
    near = wm.join(
        {"l": frame, "r": frame}, on="abs(l.id - r.id) <= 1", state=str(tmp_path / "state"), tasks=2
    )
    assert near.count() == 298

    def frozen(batches):
        yield from (pa.record_batch({"objects": [gc.get_freeze_count()]}) for _ in batches)

    counts = [row.objects for row in spark.range(0, 2, 1, 2).mapInArrow(frozen, "objects bigint").collect()]
    assert max(counts) > 10_000


@pytest.mark.parametrize(("groups", "units"), [(1, 4), (2, 4)])
def test_a_biclique(spark, tmp_path, groups, units):
    """Four units on three tasks: two a side that share all keys, or one a side for each half of the keys."""
    lives = [{"strategy": "biclique", "tasks": 3, "groups": groups}] * 2
    run(spark, tmp_path, "l.k = r.k", drifting(80), lives)
    assert newest(tmp_path / "state").plan.scheme == BicliquePlan(units, groups)


BAD: list[Any] = [
    pytest.param({"groups": 2}, "groups= belongs to", id="groups of the hypercube that auto takes"),
    pytest.param({"strategy": "hypercube", "groups": 2}, "groups= belongs to", id="groups of a hypercube"),
    pytest.param({"strategy": "hash", "groups": 2}, "groups= belongs to", id="groups of a hash join"),
    pytest.param({"strategy": "biclique", "groups": 0}, "number of groups, at least 1", id="no group"),
    pytest.param({"strategy": "biclique", "groups": 1.5}, "number of groups, at least 1", id="half a group"),
    pytest.param({"strategy": "biclique", "groups": True}, "number of groups, at least 1", id="a truth"),
    pytest.param({"strategy": "biclique", "cells": 4}, "belong to", id="cells of a biclique"),
    pytest.param({"strategy": "hypercube", "mapping": (2, 2)}, "belong to", id="a mapping of a hypercube"),
    pytest.param({"strategy": "hypercube", "on": "l.k < r.k"}, "needs an equality", id="hypercube of a band"),
    pytest.param(
        {"strategy": "biclique", "on": "l.k <> r.k"}, "needs an equality", id="biclique of any condition"
    ),
]


@pytest.fixture
def streams(spark, tmp_path) -> dict[str, DataFrame]:
    for name in "lr":
        (tmp_path / name).mkdir()
    return {name: spark.readStream.schema(SCHEMA).parquet(str(tmp_path / name)) for name in "lr"}


@pytest.mark.parametrize(("how", "message"), BAD)
def test_what_does_not_fit_is_refused_at_once(streams, tmp_path, how, message):
    with pytest.raises(wm.UsageError, match=message):
        wm.join(streams, **{"on": "l.k = r.k", "state": str(tmp_path / "state"), **how})


def test_explain_takes_and_refuses_the_arguments_of_a_join(streams):
    assert wm.explain(streams, "l.k = r.k", memory="1 MB").startswith("budget: memory= is given")
    for wrong, message in (
        ({"cells": 4}, 'belong to strategy="grid"'),
        ({"how": "left"}, "how='left' is for a join with a wm.table"),
        ({"select": ["l.kk"]}, "kk is not a column of l"),
        ({"memory": "lots"}, "memory='lots'"),
    ):
        with pytest.raises(wm.UsageError, match=message):
            wm.explain(streams, "l.k = r.k", **wrong)


def test_explain_says_hypercube_for_a_streaming_equality(streams):
    assert wm.explain(streams, "l.k = r.k").startswith("hypercube: the predicate has an equality")
    assert wm.explain(streams, "l.k = r.k", strategy="biclique") == "biclique: you asked for it"
    assert wm.explain(streams, "l.k < r.k").startswith("range: ")
    with pytest.raises(wm.UsageError, match="needs an equality"):
        wm.explain(streams, "l.k < r.k", strategy="hypercube")
