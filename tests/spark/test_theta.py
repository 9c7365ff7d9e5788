"""Joins without an equality, against Spark's own batch join of the same rows.

Most cases run the operator in batch mode, by name: one job a case, over the same ingest, plan and kernels as a
stream. The streams at the end change the shape of the grid while they run, and restart.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.schemes.grid.facts import GridPlan
from watersmeet.testing import StreamScript, assert_same_rows

NAN, INF = float("nan"), float("inf")
DAY = dt.date(2024, 2, 28)
NOON = dt.datetime(2024, 2, 28, 12)

INTS = [0, 1, 2, 3, 5, 8, -7, 2**31 - 1, -(2**31), None]
FLOATS = [0.0, -0.0, 0.1, 0.3, 1.0, 1e300, -1e300, INF, -INF, NAN, None]
DECIMALS = [Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("99999999.99"), None]
DATES = [DAY + dt.timedelta(days=n) for n in (0, 1, 2, 3, 400)] + [dt.date(1, 1, 1), None]
TIMES = [NOON + dt.timedelta(minutes=n) for n in (0, 4, 5, 6, 60, 61, 90_000)] + [None]
TEXTS = ["", "a", "aa", "ab", "b", "ä", "abcdefgh", "abcdefghi", "abcdefgh\x00", None]

# Type, values, predicates over l.x and r.x.
BANDS: list[tuple[str, list[Any], list[str]]] = [
    (
        "int",
        INTS[:7],
        [
            "l.x < r.x",
            "l.x >= r.x",
            "abs(l.x - r.x) <= 2",
            "2 > abs(r.x - l.x)",
            "l.x BETWEEN r.x - 1 AND r.x + 3",
            "l.x - r.x > 1 AND l.x - r.x <= 4",
            "l.x + 1 < 2 * r.x",
            "abs(l.x - r.x) <= -1",
            "abs(l.x - r.x) <= 2 AND l.n <> r.n",
            "l.x < r.x AND l.n > r.n",
        ],
    ),
    ("int", INTS, ["l.x < r.x", "l.x <= r.x", "CAST(l.x AS BIGINT) - r.x <= 2"]),
    ("bigint", [*INTS, 2**63 - 1, -(2**63)], ["l.x > r.x", "l.x <= r.x"]),
    (
        "double",
        FLOATS,
        ["l.x < r.x", "l.x >= r.x", "abs(l.x - r.x) <= 0.2D", "l.x BETWEEN r.x - 1 AND r.x + 1"],
    ),
    ("float", FLOATS, ["l.x <= r.x", "abs(l.x - r.x) < 0.5"]),
    (
        "decimal(10,2)",
        DECIMALS,
        ["l.x < r.x", "abs(l.x - r.x) <= 1.1", "l.x BETWEEN r.x - 2.205 AND r.x + 1"],
    ),
    ("decimal(38,2)", DECIMALS, ["l.x < r.x", "l.x >= r.x"]),
    (
        "date",
        DATES,
        ["l.x < r.x", "abs(datediff(l.x, r.x)) <= 1", "l.x BETWEEN r.x - INTERVAL 2 DAYS AND r.x"],
    ),
    (
        "timestamp",
        TIMES,
        [
            "l.x <= r.x",
            "l.x BETWEEN r.x - INTERVAL 5 MINUTES AND r.x + INTERVAL 1 HOUR",
            "l.x - r.x < INTERVAL 1 DAY",
        ],
    ),
    ("timestamp_ntz", TIMES, ["l.x > r.x", "l.x BETWEEN r.x AND r.x + INTERVAL 5 MINUTES"]),
    ("string", TEXTS, ["l.x < r.x", "l.x >= r.x"]),
]

ANY = [
    "l.x <> r.x",
    "true",
    "l.x = 1 OR r.x = 2",
    "l.x < r.x OR l.n = r.n",
    "NOT (l.x <=> r.x)",
    "l.x % 3 < r.n",
    "length(l.s) > r.x",
    "l.s LIKE concat(r.s, '%')",
    "l.x < r.n AND levenshtein(l.s, r.s) < 2",
    "CASE WHEN l.x > 2 THEN r.x > 2 ELSE r.x < 0 END",
    "l.x IN (r.x, r.n)",
]

BAND_CASES = [pytest.param(k, v, on, id=f"{k}: {on}") for k, v, predicates in BANDS for on in predicates]
# What a cell of the grid joins does not depend on the type: the local tests go through them all.
GRID_CASES = [pytest.param(k, v, predicates[-1], id=k) for k, v, predicates in BANDS[::3]]


def frames(spark, kind: str, values: list[Any]):
    rows = [(value, number % 4, TEXTS[number % len(TEXTS)]) for number, value in enumerate(values * 2)]
    left = spark.createDataFrame(rows, f"x {kind}, n int, s string")
    right = spark.createDataFrame(rows[1:], f"x {kind}, n int, s string")
    return left, right


def expected(left, right, on: str) -> list[Any]:
    return left.alias("l").join(right.alias("r"), F.expr(on)).select("l.*", "r.*").collect()


@pytest.mark.parametrize(("kind", "values", "on"), BAND_CASES)
def test_a_band_joins_as_in_spark(spark, tmp_path, kind, values, on):
    left, right = frames(spark, kind, values)
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), tasks=3)
    assert wm.explain({"l": left, "r": right}, on, state=str(tmp_path)).startswith("range:")
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected(left, right, on))


@pytest.mark.parametrize(("kind", "values", "on"), GRID_CASES)
def test_a_band_on_the_grid_joins_as_in_spark(spark, tmp_path, kind, values, on):
    left, right = frames(spark, kind, values)
    gridded = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), strategy="grid", cells=3)
    assert_same_rows(gridded.select("l.*", "r.*").collect(), expected(left, right, on))


@pytest.mark.parametrize("on", ANY)
def test_any_condition_joins_as_in_spark(spark, tmp_path, on):
    left, right = frames(spark, "int", INTS[:8])
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), strategy="grid")
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected(left, right, on))


GUARDED = [
    "l.x < 1000 AND l.x * 1000000 <> r.x",
    "l.x < 1000 AND l.x * 1000000 < r.x",
    "l.x <> 0 AND 100 / l.x < r.x + 100",
    "l.x <> 0 AND 100 div l.x = r.x",
]


@pytest.mark.parametrize("on", GUARDED)
def test_a_condition_on_one_input_guards_the_others(spark, tmp_path, on):
    left = spark.createDataFrame([(0,), (1,), (5,), (2**31 - 1,)], "x int")
    right = spark.createDataFrame([(0,), (20,), (100,)], "x int")
    strategy = "hash" if " = " in on else "grid"
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), strategy=strategy)
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected(left, right, on))


def test_results_that_need_no_column_have_all_rows(spark, tmp_path):
    left, right = spark.range(2).toDF("x"), spark.range(3).toDF("x")
    for select in (["l.x"], ["1 AS one"]):
        joined = wm.join(
            {"l": left, "r": right}, on="true", select=select, strategy="grid", state=str(tmp_path)
        )
        assert joined.count() == 6, select


def test_a_function_that_cannot_be_sent_is_named(spark, tmp_path):
    left, right = frames(spark, "int", INTS[:7])

    def holds_a_session(l: pa.RecordBatch, r: pa.RecordBatch) -> pa.Array:
        return pa.array([spark is not None] * l.num_rows)

    with pytest.raises(wm.UsageError, match="holds_a_session"):
        wm.join({"l": left, "r": right}, on=holds_a_session, state=str(tmp_path))


def test_a_python_function_is_a_condition(spark, tmp_path):
    left, right = frames(spark, "int", INTS[:7])

    def close(l: pa.RecordBatch, r: pa.RecordBatch) -> pa.Array:
        return pc.less_equal(pc.abs(pc.subtract(l["x"], r["x"])), 2)

    joined = wm.join({"l": left, "r": right}, on=close, state=str(tmp_path))
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected(left, right, "abs(l.x - r.x) <= 2"))
    some = wm.join({"l": left, "r": right}, on=close, state=str(tmp_path), select=["l.n", "r.x + 1 AS y"])
    assert some.columns == ["n", "y"]
    assert some.count() == joined.count()


def wrong_length(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    return pa.array([True])


def raising(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    ("condition", "message"), [(wrong_length, "wrong_length"), (raising, "no such thing")]
)
def test_a_function_that_misbehaves_is_named(spark, tmp_path, condition, message):
    left, right = frames(spark, "int", INTS[:8])
    joined = wm.join({"l": left, "r": right}, on=condition, state=str(tmp_path))
    with pytest.raises(Exception, match=message):
        joined.collect()


BAD_CALLS: list[Any] = [
    pytest.param({"on": "l.x + r.x"}, "not a condition", id="not boolean"),
    pytest.param({"on": "l.x > 3"}, "r", id="one input"),
    pytest.param({"on": "1 < 2"}, "input", id="no input"),
    pytest.param({"on": "l.x < r.v"}, "compare|type", id="types"),
    pytest.param({"on": "l.x < r.x", "strategy": "hash"}, "equality", id="hash"),
    pytest.param({"on": "l.x = r.x", "strategy": "range"}, "band", id="range"),
    pytest.param({"on": "l.x <> r.x", "strategy": "range"}, "band", id="range of nothing"),
    pytest.param({"on": "l.x < r.x", "strategy": "grid", "cells": 0}, "cells", id="no cells"),
    pytest.param({"on": "l.x < r.x", "strategy": "grid", "mapping": (3, 2)}, "powers of two", id="mapping"),
    pytest.param({"on": "l.x < r.x", "strategy": "grid", "mapping": 4}, "mapping", id="one number"),
    pytest.param({"on": "l.x < r.x", "strategy": "grid", "cells": 8, "mapping": (2, 2)}, "cells", id="both"),
    pytest.param({"on": "l.x < r.x", "cells": 4}, "grid", id="cells of a range"),
    pytest.param({"on": 3}, "predicate", id="a number"),
    pytest.param({"on": "l.x < r.x", "options": {"gridEpsilon": 2}}, "gridEpsilon", id="epsilon"),
]


@pytest.mark.parametrize(("call", "message"), BAD_CALLS)
def test_a_wrong_call_is_refused_at_once(spark, tmp_path, call, message):
    left = spark.createDataFrame([], "x int")
    right = spark.createDataFrame([], "x int, v array<int>")
    with pytest.raises(wm.WatersmeetError, match=message):
        wm.join({"l": left, "r": right}, state=str(tmp_path), **call)


ROWS = "x int, id int"


@pytest.mark.parametrize(
    ("on", "how"),
    [
        pytest.param("abs(l.x - r.x) <= 3", {}, id="range"),
        pytest.param("abs(l.x - r.x) <= 3", {"strategy": "grid", "cells": 6}, id="band on the grid"),
        pytest.param("l.x <> r.x AND (l.id = 7 OR r.id = 7)", {"cells": 4}, id="any condition"),
    ],
)
def test_a_stream_with_restarts_gives_sparks_batch_join(spark, tmp_path, on, how):
    """Arrival swings from one input to the other, so that a grid must change its shape."""
    rng = random.Random(11)
    everything: dict[str, list[tuple]] = {"l": [], "r": []}

    def build(l, r):
        return wm.join({"l": l, "r": r}, on=on, state=str(tmp_path / "state"), tasks=2, **how)

    with StreamScript(spark, tmp_path, l=ROWS, r=ROWS) as script:
        script.start(build)
        for number in range(10):
            sizes = {"l": 5, "r": 90} if number < 5 else {"l": 150, "r": 3}
            rows = {
                side: [(rng.choice([None, *range(200)]), rng.randrange(50)) for _ in range(size)]
                for side, size in sizes.items()
            }
            for side in "lr":
                everything[side] += rows[side]
            script.batch(**rows)
            if number in (3, 7):
                script.restart()
        results = script.results()
    left, right = (spark.createDataFrame(everything[side], ROWS) for side in "lr")
    want = left.alias("l").join(right.alias("r"), F.expr(on))
    want = want.select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r")).collect()
    assert len(want) > 500
    assert_same_rows(results, want)
    (join,) = wm.status(tmp_path / "state").joins
    if how:
        assert isinstance(join.plan, GridPlan)
        assert join.plan.epoch >= 2, "the grid never changed its shape"
        assert sum(change.event.moved.rows for change in join.plan.relocations) > 0
    else:
        assert join.strategy == "range"


def test_a_grid_of_another_size_is_refused(spark, tmp_path):
    cells = iter([4, 8])

    def build(l, r):
        return wm.join(
            {"l": l, "r": r}, on="l.x <> r.x", state=str(Path(tmp_path) / "state"), cells=next(cells)
        )

    with StreamScript(spark, tmp_path, l=ROWS, r=ROWS) as script:
        script.start(build)
        script.batch(l=[(1, 1)], r=[(2, 2)])
        script.restart()
        with pytest.raises(Exception, match="grid of 4 cells"):
            script.batch(l=[(1, 1)], r=[(2, 2)])
