"""Pictures with nearly the same colours, found in a stream: `python examples/similar_images.py`."""

import os
import sys
import tempfile

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.similar import Buckets
from watersmeet.testing.histograms import as_matrix, close_pairs, histograms

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

RADIUS = 0.05
pictures = histograms(2_000)
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

with tempfile.TemporaryDirectory() as folder:
    for start in range(0, len(pictures), 500):
        pq.write_table(pictures.slice(start, 500), f"{folder}/{start:05}.parquet")
    stream = (
        spark.readStream.schema("id BIGINT, v ARRAY<FLOAT>")
        .options(maxFilesPerTrigger=1, pathGlobFilter="*.parquet")
        .parquet(folder)
    )

    buckets = Buckets(radius=RADIUS, dimensions=64)
    arriving = buckets.of(stream, "v")
    near = wm.join(
        {"l": arriving, "r": arriving},
        on=buckets.near("l.v", "r.v") + " AND l.id < r.id",
        select=["l.id AS one", "r.id AS other", "vector_l2_distance(l.v, r.v) AS distance"],
        state=f"{folder}/_state",
    )
    query = near.writeStream.format("memory").queryName("near").trigger(availableNow=True).start()
    query.awaitTermination()
    found = {(row.one, row.other) for row in spark.table("near").collect()}

true = {tuple(pair) for pair in close_pairs(as_matrix(pictures), RADIUS).tolist()}
print(f"{len(found):,} pairs found of {len(true):,} within {RADIUS}: {len(found) / len(true):.1%}")
print(f"{len(found - true)} of them further apart")
