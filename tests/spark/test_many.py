"""Joins of many inputs on a real session, against Spark's own joins of all rows in one batch."""

from __future__ import annotations

import datetime
import itertools
import random
from decimal import Decimal

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import newest
from watersmeet.errors import PredicateError, UsageError
from watersmeet.schemes.delta.scheme import DeltaPlan
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "id long, k int, s string, x int, at timestamp_ntz"
NAMES = "abc"
ON = "a.k = b.k AND c.k = b.k AND a.x <= c.x"


def draw(rng: random.Random, count: int) -> list[tuple]:
    def row(number: int) -> tuple:
        key = 7 if rng.random() < 0.4 else None if rng.random() < 0.1 else rng.randrange(12)
        return number, key, rng.choice(["", "a", "ä"]), rng.randrange(10), at(rng.randrange(100))

    return [row(rng.randrange(10**6)) for _ in range(count)]


def at(second: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=second)


def batches(count: int) -> list[dict[str, list]]:
    """Some batches have rows of one or two inputs only."""
    rng = random.Random(5)
    found = [{name: draw(rng, count) for name in NAMES} for _ in range(5)]
    del found[1]["a"], found[2]["a"], found[2]["c"]
    return found


def frames(spark, given: list[dict[str, list]]) -> dict[str, DataFrame]:
    return {
        name: spark.createDataFrame([row for batch in given for row in batch.get(name, [])], SCHEMA)
        for name in NAMES
    }


def expected(spark, given: list[dict[str, list]], on: str) -> list[Row]:
    a, b, c = (frame.alias(name) for name, frame in frames(spark, given).items())
    whole = a.crossJoin(b).crossJoin(c).where(F.expr(on))
    return whole.select(*(F.struct(f"{name}.*").alias(name) for name in NAMES)).collect()


@pytest.mark.parametrize(
    ("on", "how"),
    [
        (ON, {}),
        (ON, {"strategy": "hash", "tasks": 3}),
        # Two keys, of which one is a text: compared after their hash.
        ("a.k = b.k AND b.k = c.k AND a.s = b.s AND c.s = a.s", {}),
        # Spark evaluates the last condition.
        ("a.k = b.k AND b.k = c.k AND length(concat(a.s, b.s, c.s)) > 1", {}),
    ],
)
def test_a_stream_of_three_inputs_gives_what_one_batch_gives(spark, tmp_path, on, how):
    given = batches(30)

    def build(**streams: DataFrame) -> DataFrame:
        return wm.join(streams, on=on, state=str(tmp_path / "state"), **how)

    with StreamScript(spark, tmp_path, **dict.fromkeys(NAMES, SCHEMA)) as script:
        script.start(build)
        for number, batch in enumerate(given):
            script.batch(**batch)
            if number == 2:
                script.restart()
        assert_same_rows(script.results(), expected(spark, given, on))
    manifest = newest(tmp_path / "state", "a-b-c")
    assert manifest.signature.names == ("a", "b", "c")
    if not how:
        plan = manifest.plan.scheme
        assert isinstance(plan, CubePlan) and plan.inputs == ("a", "b", "c")


def test_a_window_holds_for_all_rows_of_a_result(spark, tmp_path):
    given = batches(30)

    def build(**streams: DataFrame) -> DataFrame:
        times = dict.fromkeys(NAMES, "at")
        return wm.join(
            streams,
            on=ON,
            state=str(tmp_path / "state"),
            within="20 seconds",
            time=times,
            lateness="1 hour",
        )

    with StreamScript(spark, tmp_path, **dict.fromkeys(NAMES, SCHEMA)) as script:
        script.start(build)
        for batch in given:
            script.batch(**batch)
        near = "greatest(a.at, b.at, c.at) - least(a.at, b.at, c.at) <= INTERVAL '20' SECOND"
        assert_same_rows(script.results(), expected(spark, given, f"{ON} AND {near}"))


@pytest.mark.parametrize("how", [{}, {"strategy": "hash"}])
def test_batches_of_three_inputs_are_joined(spark, tmp_path, how):
    given = batches(20)
    joined = wm.join(frames(spark, given), on=ON, state=str(tmp_path), **how)
    assert_same_rows(joined.collect(), expected(spark, given, ON))


@pytest.mark.parametrize(
    ("on", "strategy"), [(ON, "hypercube"), ("a.k = b.x AND b.k = c.x", "delta")], ids=["one key", "path"]
)
def test_a_window_over_batches_of_three_inputs(spark, tmp_path, on, strategy):
    given = batches(20)
    times = {"within": "20 seconds", "time": dict.fromkeys(NAMES, "at")}
    own = wm.join(frames(spark, given), on=on, state=str(tmp_path), strategy=strategy, **times)
    theirs = wm.join(frames(spark, given), on=on, strategy="spark", **times).collect()
    assert theirs
    assert_same_rows(own.collect(), theirs)


def test_explain_speaks_of_three_inputs(spark):
    rates = {name: spark.readStream.format("rate").load() for name in NAMES}
    text = wm.explain(rates, on="a.value = b.value AND b.value = c.value", state="/nowhere")
    assert text.startswith("hypercube: the predicate has an equality")
    text = wm.explain(rates, on="a.value = b.value AND abs(b.value - c.value) <= 1", state="/nowhere")
    assert text.startswith("delta: no key joins all inputs")
    assert text.endswith("a by value; b by value, or by the value of value; c by the value of value")


def test_what_cannot_be_joined_is_refused(spark, tmp_path):
    given = frames(spark, batches(2))
    with pytest.raises(UsageError, match="2 to 16 inputs by name, got 1"):
        wm.join({"a": given["a"]}, on="true")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UsageError, match="input b is not streaming and a is"):
        wm.join({"a": stream, "b": given["b"], "c": stream}, on=ON)


def test_a_path_of_three_inputs_on_different_keys(spark, tmp_path):
    given, on = batches(25), "a.k = b.x AND b.k = c.x AND a.x <= c.k"

    def build(**streams: DataFrame) -> DataFrame:
        return wm.join(streams, on=on, state=str(tmp_path / "state"))

    with StreamScript(spark, tmp_path, **dict.fromkeys(NAMES, SCHEMA)) as script:
        script.start(build)
        for number, batch in enumerate(given):
            script.batch(**batch)
            if number == 2:
                script.restart()
        rows = expected(spark, given, on)
        assert rows
        assert_same_rows(script.results(), rows)
    manifest = newest(tmp_path / "state", "a-b-c")
    assert isinstance(manifest.plan.scheme, DeltaPlan)
    # Only b is found by two keys, and its rows count once.
    assert manifest.signature.names == ("a", "b", "b.1", "c")
    (status,) = wm.status(str(tmp_path / "state")).joins
    assert [one.name for one in status.inputs] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("on", "names"),
    [
        # '01' = 1 = '1', and yet the texts differ.
        ("a.s = b.k AND b.k = c.s", ("a", "b", "c")),
        ("a.s = b.k AND b.k = c.s AND a.s = c.s", ("a", "b", "c")),
        # A cycle, whose last edge is a condition.
        ("a.s = b.k AND b.s = c.k AND a.d = c.v", ("a", "a.1", "b", "c")),
        # Only Spark compares nested values: they are a condition here.
        ("a.k = b.k AND b.v = c.v AND a.p = c.p", ("a", "b", "b.1", "c")),
    ],
    ids=["one key in two types", "and in a third", "cycle over types", "nested values"],
)
def test_keys_of_different_types_are_equal_as_spark_compares_them(spark, tmp_path, on, names):
    schema = "id long, k int, s string, d decimal(10,2), v double, p array<int>"
    nan = float("nan")
    rows = [
        (number, k, s, Decimal(k), v, [k])
        for number, (k, s, v) in enumerate(
            itertools.product([1, 2, -1], ["1", "01", " 2", "-1"], [1.0, -0.0, nan])
        )
    ]
    given = {name: rows[place::2] for place, name in enumerate(NAMES)}

    def build(**streams: DataFrame) -> DataFrame:
        return wm.join(
            streams, on=on, state=str(tmp_path / "state"), select=["a.id", "b.id AS b", "c.id AS c"]
        )

    whole = [spark.createDataFrame(part, schema).alias(name) for name, part in given.items()]
    wanted = whole[0].crossJoin(whole[1]).crossJoin(whole[2]).where(F.expr(on)).select("a.id", "b.id", "c.id")
    with StreamScript(spark, tmp_path, **dict.fromkeys(NAMES, schema)) as script:
        script.start(build)
        script.batch(**{name: part[::2] for name, part in given.items()})
        script.batch(**{name: part[1::2] for name, part in given.items()})
        expected_rows = [tuple(row) for row in wanted.collect()]
        assert expected_rows
        assert_same_rows(map(tuple, script.results()), expected_rows)
    assert newest(tmp_path / "state", "a-b-c").signature.names == names


def test_what_explain_refuses(spark):
    rates = {name: spark.readStream.format("rate").load() for name in NAMES}
    with pytest.raises(UsageError, match="nothing joins c to a, b"):
        wm.explain(rates, on="a.value = b.value", state="/nowhere")
    with pytest.raises(UsageError, match="z is not an input"):
        wm.explain(rates, on="a.value = b.value AND b.value = z.value", state="/nowhere")
    for count in (1, 17):
        many = {f"i{number}": rates["a"] for number in range(count)}
        for ask in (wm.explain, wm.join):
            with pytest.raises(UsageError, match=f"2 to 16 inputs by name, got {count}"):
                ask(many, on="true", state="/nowhere")


def test_a_star_has_the_columns_in_the_order_of_spark(spark, tmp_path):
    """Spark puts the columns of USING first, and reads in ON what came before, also before a comma."""
    columns = {"sq": "p k", "sr": "q k j", "ss": "r j m", "st": "s m"}
    given = {
        name: spark.range(4).selectExpr(*(f"id AS {one}" for one in columns[name].split()))
        for name in columns
    }
    for name, frame in given.items():
        frame.createOrReplaceTempView(name)
    text = "SELECT * FROM sq JOIN sr USING (k) JOIN ss USING (j) JOIN st USING (m)"
    found, wanted = wm.sql(text, given, state=str(tmp_path)), spark.sql(text)
    assert found.columns == wanted.columns == [*"mjkpqrs"]
    assert_same_rows(found.collect(), wanted.collect())
    text = "SELECT sq.p FROM sq, sr JOIN ss ON sq.k = ss.j AND sr.q = ss.r"
    found = wm.sql(text, given, state=str(tmp_path), name="comma")
    assert_same_rows(found.collect(), spark.sql(text).collect())
    later = "SELECT sq.p FROM sq JOIN sr ON sq.k = ss.r JOIN ss USING (j)"
    with pytest.raises(AnalysisException):
        spark.sql(later)
    with pytest.raises(PredicateError, match="this ON cannot read ss"):
        wm.sql(later, given, state=str(tmp_path))


def test_a_query_is_the_same_join(spark, tmp_path):
    given = frames(spark, batches(20))
    text = "SELECT a.id, c.id AS other FROM a JOIN b USING (k) JOIN t AS c ON c.k = b.k WHERE a.x <= c.x"
    found = wm.sql(
        text, {"a": given["a"], "t": given["c"]}, b=given["b"], state=str(tmp_path), strategy="hash"
    )
    same = wm.join(given, on=ON, select=["a.id", "c.id AS other"], strategy="spark").collect()
    assert same
    assert_same_rows(found.collect(), same)
    with pytest.raises(UsageError, match="input b is given twice"):
        wm.sql(text, given, b=given["b"])
    with pytest.raises(UsageError, match="needs the inputs of the query by name"):
        wm.sql(text)
