"""Buckets on DataFrames: the rows once for each table, and a stream that gives every pair that meets once."""

from __future__ import annotations

import math

import pytest

import watersmeet as wm
from papers.hypercube.histograms import as_matrix, close_pairs, histograms
from watersmeet.errors import UsageError
from watersmeet.similar import Buckets
from watersmeet.testing import StreamScript, assert_same_rows

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, v array<float>"


def test_rows_stand_in_one_bucket_of_each_table(spark):
    buckets = Buckets(0.5, 2, tables=3)
    rows = [(1, [0.0, 0.0]), (2, None), (3, [0.0, None]), (4, [math.nan, 0.0])]
    frame = buckets.of(spark.createDataFrame(rows, SCHEMA), "v")
    assert frame.dtypes[2:] == [(name, "bigint") for name in ("bucket", "bucket_0", "bucket_1")]
    first, second, third = buckets.codes(as_matrix(histograms(1, bins=2)) * 0)[0].tolist()
    assert_same_rows(
        frame.where("id = 1").select("bucket", "bucket_0", "bucket_1").collect(),
        [(first, None, None), (second, first, None), (third, first, second)],
    )
    assert_same_rows(frame.where("bucket IS NULL").groupBy("id").count().collect(), [(2, 3), (3, 3), (4, 3)])


@pytest.mark.parametrize(
    "schema, column, told",
    [
        (SCHEMA, "w", "there is no column w; the columns are id, v"),
        ("id bigint, v array<double>", "v", "the column v is array<double>: cast it to array<float>"),
        ("Bucket int, v array<float>", "v", "the column Bucket has the name of a bucket code"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(spark, schema, column, told):
    with pytest.raises(UsageError, match=told):
        Buckets(0.5, 2).of(spark.createDataFrame([], schema), column)


def test_a_stream_gives_every_pair_that_meets_once(spark, tmp_path):
    radius = 0.05
    rows, buckets = histograms(600), Buckets(radius, 64)
    vectors = as_matrix(rows)
    true = close_pairs(vectors, radius)
    meets = (buckets.codes(vectors[true[:, 0]]) == buckets.codes(vectors[true[:, 1]])).any(axis=1)

    def build(l, r):
        return wm.join(
            {"l": buckets.of(l, "v"), "r": buckets.of(r, "v")},
            on=f"{buckets.near('l.v', 'r.v')} AND l.id < r.id",
            select=["l.id AS one", "r.id AS other"],
            state=str(tmp_path / "state"),
        )

    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as script:
        script.start(build)
        for start in (0, 300):
            part = spark.createDataFrame(rows.slice(start, 300))
            script.batch(l=part, r=part)
            script.restart()
        assert_same_rows(script.results(), true[meets].tolist())
    assert 0.9 * len(true) <= meets.sum() < len(true)
