"""Vectors in predicates, against Spark's own functions and its own batch join of the same rows."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.kernel.vectors import FUNCTIONS, measure, vectors_of
from watersmeet.testing import StreamScript, assert_same_rows

pytestmark = pytest.mark.spark

LIST = pa.list_(pa.float32())
INF, NAN = math.inf, math.nan
# Of two lengths, which the key keeps apart.
VECTORS: list[tuple[int, list[float | None] | None]] = [
    (2, [0.0, 0.0]),
    (2, [0.3, 0.4]),
    (2, [0.0, -0.0]),
    (2, [3e38, -3e38]),
    (2, [1e-30, 1e-42]),
    (2, [INF, 1.0]),
    (2, [NAN, 1.0]),
    (2, [0.1, None]),
    (2, None),
    (3, [0.5, 0.5, 0.5]),
    (3, [0.5, 0.25, 0.5]),
    (3, None),
    (0, []),
]


def random_pairs(pairs: int) -> list[tuple[list[Any] | None, list[Any] | None]]:
    """Of every length around the multiples of eight, of very different sizes, with all special values.

    In every fourth pair a one is lost beside 2^60 or not: that depends on the order of the additions.
    """
    rng = np.random.default_rng(11)
    special = np.array([0.0, -0.0, INF, -INF, NAN, 3.4e38, 1e-45, 1.0], np.float32)

    def vector(length: int) -> list[Any] | None:
        values = (rng.standard_normal(length) * 10.0 ** rng.integers(-20, 20)).astype(np.float32)
        odd = rng.random(length) < rng.choice([0, 0, 0.1])
        values[odd] = rng.choice(special, odd.sum())
        listed: list[Any] = values.tolist()
        if length and rng.random() < 0.05:
            listed[rng.integers(length)] = None
        return None if rng.random() < 0.03 else listed

    def cancelling(length: int) -> tuple[list[Any], list[Any]]:
        values = [1.0, 2.0**60, -(2.0**60), *[0.0] * length]
        return rng.permutation(values).tolist(), [1.0] * len(values)

    lengths = rng.integers(0, 70, pairs).tolist()
    return [(vector(n), vector(n)) if place % 4 else cancelling(n) for place, n in enumerate(lengths)]


def bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("f", NAN if math.isnan(value) else value)


def test_the_kernel_has_every_bit_of_sparks_functions(spark):
    pairs = random_pairs(2_500)
    frame = spark.createDataFrame(
        [(n, *pair) for n, pair in enumerate(pairs)], "n int, a array<float>, b array<float>"
    )
    rows = frame.select("n", *(F.expr(f"{name}(a, b)") for name in FUNCTIONS)).collect()
    one, other = (vectors_of(pa.array([pair[side] for pair in pairs], LIST)) for side in (0, 1))
    for place, name in enumerate(FUNCTIONS, start=1):
        ours = measure(name, one, other).to_pylist()
        assert [bits(row[place]) for row in sorted(rows)] == [bits(value) for value in ours]
        assert sum(value is not None and math.isfinite(value) for value in ours) > 1_000


def frames(spark):
    rows = [(number, length, vector) for number, (length, vector) in enumerate(VECTORS * 2)]
    left = spark.createDataFrame(rows, "id int, k int, v array<float>")
    right = spark.createDataFrame(rows[1:], "id int, k int, v array<float>")
    return left, right


KEYED = "l.k = r.k AND "
PREDICATES = [
    "vector_l2_distance(l.v, r.v) <= 0.5",
    "vector_l2_distance(l.v, r.v) < 0.5 AND l.id < r.id",
    "0 >= vector_l2_distance(l.v, r.v)",
    "vector_l2_distance(l.v, r.v) <= CAST('NaN' AS DOUBLE)",
    "NOT vector_l2_distance(l.v, r.v) <= 0.5",
    "vector_l2_distance(l.v, r.v) IS NULL",
    "(vector_l2_distance(l.v, r.v) <= 0.5 OR l.id = r.id)",
    "vector_l2_distance(l.v, r.v) <= 0.5 AND size(l.v) = size(r.v)",
    "vector_inner_product(l.v, r.v) >= 0.25",
    "vector_cosine_similarity(l.v, r.v) > 0.9",
]


@pytest.mark.parametrize("on", PREDICATES)
def test_an_equality_join_with_vectors_is_sparks(spark, tmp_path, on):
    left, right = frames(spark)
    joined = wm.join({"l": left, "r": right}, on=KEYED + on, state=str(tmp_path), tasks=2, strategy="hash")
    expected = left.alias("l").join(right.alias("r"), F.expr(KEYED + on)).select("l.*", "r.*").collect()
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected)


@pytest.mark.parametrize("on", [PREDICATES[1], PREDICATES[3], PREDICATES[-1]])
def test_a_join_on_vectors_alone_is_sparks(spark, tmp_path, on):
    left, right = (frame.where("k = 2") for frame in frames(spark))
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), tasks=2, strategy="grid")
    expected = left.alias("l").join(right.alias("r"), F.expr(on)).select("l.*", "r.*").collect()
    assert_same_rows(joined.select("l.*", "r.*").collect(), expected)


def test_the_kernel_decides_alone(spark, tmp_path):
    left, right = frames(spark)
    explained = wm.explain(
        {"l": left, "r": right}, KEYED + PREDICATES[1], state=str(tmp_path), strategy="hash"
    )
    assert "Spark then checks" not in explained


@pytest.mark.parametrize("strategy", ["hash", "spark"])
def test_vectors_of_two_lengths_fail_the_query(spark, tmp_path, strategy):
    left, right = (spark.createDataFrame([(1, v)], "k int, v array<float>") for v in ([1.0], [1.0, 2.0]))
    on = "l.k = r.k AND vector_l2_distance(l.v, r.v) <= 1"
    joined = wm.join({"l": left, "r": right}, on=on, state=str(tmp_path), tasks=1, strategy=strategy)
    with pytest.raises(Exception, match="VECTOR_DIMENSION_MISMATCH"):
        joined.collect()


def test_a_stream_of_vectors(spark, tmp_path):
    def build(l, r):
        return wm.join(
            {"l": l, "r": r},
            on="l.k = r.k AND vector_l2_distance(l.v, r.v) <= 0.5",
            select=["l.k", "vector_l2_distance(l.v, r.v) AS distance"],
            state=str(tmp_path / "state"),
        )

    schema = "k int, v array<float>"
    with StreamScript(spark, tmp_path, l=schema, r=schema) as script:
        script.start(build)
        script.batch(l=[(1, [0.0, 0.0]), (1, None), (2, [0.0])])
        script.batch(r=[(1, [0.25, 0.0]), (1, [0.75, 0.0]), (2, [None])])
        script.restart()
        script.batch(l=[(1, [0.5, 0.0])])
        assert_same_rows(script.results(), [(1, 0.25), (1, 0.25), (1, 0.25)])
