"""Every key type that Spark can join on, against Spark's own batch join of the same rows.

The operator runs in batch mode here (`strategy="hash"`): one job instead of one streaming query a case, over
the same ingest, plan and kernel. `test_streaming.py` runs the streams.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.local.join import LocalJoin
from watersmeet.testing import assert_same_rows

NAN = float("nan")
UTC = dt.timezone.utc


@dataclass(frozen=True)
class Case:
    left: str
    right: str
    left_values: list[Any]
    right_values: list[Any]


def same(kind: str, *values: Any) -> Case:
    return Case(kind, kind, [*values, None], [*values, None])


def pair(left: str, right: str, left_values: list[Any], right_values: list[Any]) -> Case:
    return Case(left, right, [*left_values, None], [*right_values, None])


CASES = [
    same("tinyint", 1, -1, 127, -128),
    pair("int", "bigint", [1, -1, 2**31 - 1], [1, -1, 2**31 - 1, 2**40]),
    pair("smallint", "int", [1, -1], [1, -1, 70_000]),
    same("double", 0.0, -0.0, NAN, float("inf"), 1.5),
    pair("float", "double", [0.0, -0.0, NAN, 1.5, 0.1], [0.0, -0.0, NAN, 1.5, 0.1]),
    pair("int", "float", [0, 1, 16_777_217], [0.0, -0.0, 16_777_216.0]),
    pair("bigint", "double", [0, 2**53 + 1], [-0.0, float(2**53)]),
    same("decimal(10,2)", Decimal("1.10"), Decimal("-1.10"), Decimal("0")),
    pair(
        "decimal(10,2)", "decimal(12,4)", [Decimal("1.1"), Decimal("2")], [Decimal("1.1"), Decimal("2.0001")]
    ),
    same("decimal(38,10)", Decimal("1.1"), Decimal("2" + "0" * 20), Decimal("-1.1")),
    pair("int", "decimal(12,4)", [1, 2], [Decimal("1"), Decimal("2.5")]),
    pair("decimal(10,2)", "double", [Decimal("1.10"), Decimal("2")], [1.1, 2.0]),
    same("boolean", True, False),
    same("string", "", "a", "A", "ä", "x" * 100_000, "a\x00b"),
    same("binary", b"", b"a", b"\x00", b"\x00\x00"),
    same("date", dt.date(1969, 12, 31), dt.date(2024, 1, 1), dt.date(1, 1, 1)),
    same("timestamp", dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)),
    same("timestamp_ntz", dt.datetime(1969, 12, 31), dt.datetime(2024, 1, 1, 0, 0, 0, 1)),
    pair(
        "date",
        "timestamp",
        [dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
        [dt.datetime(2024, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 2, 1, tzinfo=UTC)],
    ),
    pair("timestamp", "timestamp_ntz", [dt.datetime(2024, 1, 1, tzinfo=UTC)], [dt.datetime(2024, 1, 1)]),
    pair("string", "int", ["1", "02", "-3"], [1, 2, 3]),
    pair("string", "date", ["2024-01-01", "2024-1-2"], [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
    pair("string", "boolean", ["true", "f"], [True, False]),
    same("interval day to second", dt.timedelta(seconds=1), dt.timedelta(days=-1)),
    same("time(6)", dt.time(1, 2, 3), dt.time(0)),
    same("struct<a:int,b:string>", (1, "a"), (1, None), (None, None)),
    same("struct<a:double>", (0.0,), (-0.0,), (NAN,)),
    same("array<int>", [1, 2], [], [None]),
    same("array<float>", [0.0], [-0.0], [NAN]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.left} = {case.right}")
def test_a_key_type_joins_as_in_spark(spark, tmp_path, case):
    left_rows = [(value, number) for number, value in enumerate(case.left_values * 2)]
    right_rows = [(value, number) for number, value in enumerate(case.right_values)]
    left = spark.createDataFrame(left_rows, f"k {case.left}, x int")
    right = spark.createDataFrame(right_rows, f"k {case.right}, y int")
    expected = left.alias("l").join(right.alias("r"), F.expr("l.k = r.k")).select("l.*", "r.*").collect()
    joined = wm.join({"l": left, "r": right}, on="l.k = r.k", state=str(tmp_path), strategy="hash")
    assert expected, "a case without a match shows nothing"
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected)


def test_text_under_a_collation_is_compared_by_spark_beside_another_key(spark, tmp_path):
    rows = [(n % 2, text) for n, text in enumerate(["a", "A", "b", "A", "a", None])]
    frame = spark.createDataFrame(rows, "k int, s string collate UTF8_LCASE")
    on = "l.k = r.k AND l.s = r.s"
    expected = frame.alias("l").join(frame.alias("r"), F.expr(on)).select("l.*", "r.*").collect()
    joined = wm.join({"l": frame, "r": frame}, on=on, state=str(tmp_path), strategy="hash")
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected)
    with pytest.raises(wm.UsageError, match="UTF8_BINARY"):
        wm.join({"l": frame, "r": frame}, on="l.s = r.s", state=str(tmp_path), strategy="hash")
    alone = wm.join({"l": frame, "r": frame}, on="l.s = r.s", state=str(tmp_path), strategy="grid")
    assert alone.count() == frame.alias("l").join(frame.alias("r"), F.expr("l.s = r.s")).count()


MIXED_NESTED = [
    pytest.param(
        "a array<int>, k int", "a array<int>, k bigint", ([1], 2), ([1], 2), id="int beside an array"
    ),
    pytest.param(
        "a array<int>, k decimal(10,2)",
        "a array<int>, k decimal(12,4)",
        ([1], Decimal("1.5")),
        ([1], Decimal("1.5")),
        id="decimals beside an array",
    ),
    pytest.param(
        "a struct<x:int>, k int", "a struct<y:int>, k int", ((1,), 2), ((1,), 2), id="other field names"
    ),
]


@pytest.mark.parametrize(("left", "right", "left_row", "right_row"), MIXED_NESTED)
def test_a_nested_key_beside_one_of_mixed_type(spark, tmp_path, left, right, left_row, right_row):
    left_frame, right_frame = (
        spark.createDataFrame([left_row], left),
        spark.createDataFrame([right_row], right),
    )
    on = "l.a = r.a AND l.k = r.k"
    joined = wm.join({"l": left_frame, "r": right_frame}, on=on, state=str(tmp_path), strategy="hash")
    assert joined.count() == left_frame.alias("l").join(right_frame.alias("r"), F.expr(on)).count() == 1


def test_year_month_intervals_join(spark, tmp_path):
    frame = spark.sql("SELECT explode(array(INTERVAL '1' MONTH, INTERVAL '1' YEAR, null)) AS k").selectExpr(
        "CAST(k AS INTERVAL YEAR TO MONTH) AS k", "1 AS x"
    )
    joined = wm.join(
        {"l": frame, "r": frame}, on="l.k = r.k", select=["l.x"], state=str(tmp_path), strategy="hash"
    )
    assert joined.count() == 2


RESIDUALS = [
    "l.a = r.a AND l.x < r.x + 3",
    "l.a = r.a AND l.s = r.s",
    "l.a = r.a AND l.s = r.s AND l.d <> r.d",
    "l.a = r.a AND l.d <= r.d",
    "l.a = r.a AND (l.d > r.d OR l.x = 1)",
    "l.a = r.a AND l.d > r.d OR l.a = r.a AND l.x = 1",
    "l.a = r.a AND l.x BETWEEN r.x - 1 AND r.x + 1",
    "l.a = r.a AND l.x IN (1, 2, 3)",
    "l.a = r.a AND l.s IS NULL",
    "l.a = r.a AND NOT (l.s = r.s)",
    "l.a = r.a AND abs(l.x - r.x) <= 1",
    "l.a = r.a AND l.m < r.m * 2",
    "l.a = r.a AND l.m <= 1.5",
    "l.a = r.a AND l.d * 2 - r.d >= 0.5",
    "l.a = r.a AND upper(l.s) = r.s",
    "upper(l.s) = upper(r.s)",
    "l.a + 1 = r.a AND l.x <> r.x",
    "l.a <=> r.a AND l.x < r.x",
    "l.a <=> r.a",
    "l.s <=> r.s AND l.a = r.a",
    "l.n.f = r.n.f AND l.v[0] = r.x",
    "l.a = r.a AND l.t < r.t + INTERVAL 1 DAY",
    "l.a = r.a AND l.t < TIMESTAMP '2024-01-02 12:00:00'",
    "l.a = r.a AND date_add(l.dd, 1) = r.dd",
    "l.a = r.a AND l.x % 2 = r.x % 2",
    "l.a = r.a AND l.x / 2 < r.x",
    "l.a = r.a AND CASE WHEN l.x > 0 THEN r.x > 0 ELSE r.x <= 0 END",
    "`l`.`a` = `R`.`A`",
    "l.a = r.a AND (l.x > 4 OR l.x * 4 > r.x)",
]


@pytest.fixture(scope="module")
def sides(spark):
    values = [
        (a, x, d, s, m, day, (x, s), [x])
        for a in (1, 2, None)
        for x, d, s, m, day in [
            (1, 0.0, "a", Decimal("1.50"), 1),
            (2, -0.0, "A", Decimal("0.75"), 2),
            (-3, NAN, None, Decimal("-2.00"), 3),
            (None, None, "ä", None, 4),
            (5, float("inf"), "", Decimal("3.00"), 1),
        ]
    ]
    rows = [
        (a, x, d, s, m, dt.datetime(2024, 1, day), dt.date(2024, 1, day), n, v)
        for a, x, d, s, m, day, n, v in values
    ]
    schema = (
        "a int, x int, d double, s string, m decimal(10,2), t timestamp_ntz, dd date, "
        "n struct<f:int,g:string>, v array<int>"
    )
    return spark.createDataFrame(rows, schema), spark.createDataFrame(rows[::2] + rows[:4], schema)


@pytest.mark.parametrize("on", RESIDUALS)
def test_a_predicate_means_what_it_means_in_spark(sides, tmp_path, on):
    left, right = sides
    expected = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.*", "r.*").collect()
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), strategy="hash")
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected)


def test_select_gives_flat_columns_and_stores_only_what_is_needed(sides, tmp_path):
    left, right = sides
    on, select = "l.a = r.a AND l.x < r.x", ["l.x", "r.x - l.x AS gap", "upper(r.s) AS s", "l.n.f AS f"]
    joined = wm.join({"l": left, "r": right}, on=on, select=select, state=str(tmp_path), strategy="hash")
    expected = left.alias("l").join(right.alias("r"), F.expr(on)).selectExpr(*select)
    assert joined.schema.simpleString() == expected.schema.simpleString()
    assert_same_rows(joined.collect(), expected.collect())
    stored = {path.parent.name: _columns(path) for path in tmp_path.rglob("*.arrow")}
    assert stored == {"l": {"x", "n"}, "r": {"x", "s"}}


def _columns(path) -> set[str]:
    import pyarrow as pa

    with pa.ipc.open_file(str(path)) as reader:
        return set(reader.schema.names) - {"__wm_order"}


def test_integer_overflow_in_the_predicate_is_an_error_under_ansi(spark, tmp_path):
    frame = spark.createDataFrame([(1, 2**31 - 1)], "k int, x int")
    joined = wm.join(
        {"l": frame, "r": frame}, on="l.k = r.k AND l.x + r.x > 0", state=str(tmp_path), strategy="hash"
    )
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        joined.collect()


def test_a_side_that_does_not_decide_cannot_overflow(spark, tmp_path):
    frame = spark.createDataFrame([(1, 2_000_000_000)], "k int, x int")
    on = "l.k = r.k AND (l.x > 1000000000 OR l.x * 4 > r.x)"
    expected = frame.alias("l").join(frame.alias("r"), F.expr(on)).count()
    joined = wm.join({"l": frame, "r": frame}, on=on, state=str(tmp_path), strategy="hash")
    assert joined.count() == expected == 1


def test_integer_overflow_wraps_without_ansi(spark, tmp_path):
    frame = spark.createDataFrame([(1, 2**31 - 1)], "k int, x int")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        on = "l.k = r.k AND l.x + r.x < 0"
        joined = wm.join({"l": frame, "r": frame}, on=on, state=str(tmp_path), strategy="hash")
        assert joined.count() == 1
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_batch_inputs_take_sparks_own_join_in_the_same_shape(sides):
    left, right = sides
    joined = wm.join({"l": left, "r": right}, on="l.a = r.a", select=["l.x", "r.x AS y"])
    expected = left.alias("l").join(right.alias("r"), F.expr("l.a = r.a")).selectExpr("l.x", "r.x AS y")
    assert_same_rows(joined.collect(), expected.collect())
    assert wm.join({"l": left, "r": right}, on="l.a = r.a").columns == ["l", "r"]


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("right", ["double", "float"])
def test_integers_that_no_float_holds_join_locally_as_in_spark(spark, tmp_path, right, ansi):
    """Spark compares them as floats: all that become the same one are equal."""
    integers = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, 2**63 - 1, -(2**63), 16_777_217, 5, None]
    floats = [None if value is None else float(value) for value in integers]
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        left_frame = spark.createDataFrame([(value,) for value in integers], "k bigint")
        right_frame = spark.createDataFrame([(value,) for value in floats], f"k {right}")
        joined = left_frame.alias("l").join(right_frame.alias("r"), F.expr("l.k = r.k"))
        expected = joined.select("l.k", F.col("r.k").alias("other")).collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    kinds = {"l": pa.int64(), "r": pa.float64() if right == "double" else pa.float32()}
    join = LocalJoin(
        {name: pa.schema({"k": kind}) for name, kind in kinds.items()},
        on="l.k = r.k",
        select=["l.k", "r.k AS other"],
        state=str(tmp_path),
        ansi=ansi,
    )
    found = join.batch(
        l=pa.table({"k": pa.array(integers, kinds["l"])}), r=pa.table({"k": pa.array(floats, kinds["r"])})
    )
    assert len(expected) > len(integers) - 1
    assert_same_rows([tuple(row.values()) for row in found.to_pylist()], [tuple(row) for row in expected])
