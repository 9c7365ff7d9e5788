"""Pictures with nearly the same colours, found in a stream: `python examples/similar_images.py`."""

import os
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.similar import Buckets

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

RADIUS = 0.05
rng = np.random.default_rng(7)
# Colour histograms of 100 scenes; the pictures of a scene are more or less alike.
scenes = rng.dirichlet(np.full(64, 0.15), 100)[rng.integers(0, 100, 2_000)]
vectors = (scenes + rng.normal(0, 0.005, scenes.shape) * rng.random((2_000, 1))).astype(np.float32)
pictures = pa.table({"id": np.arange(2_000), "v": list(vectors)})
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()

with tempfile.TemporaryDirectory() as folder:
    for start in range(0, len(pictures), 500):
        pq.write_table(pictures.slice(start, 500), f"{folder}/{start:05}.parquet")
    stream = spark.readStream.schema("id BIGINT, v ARRAY<FLOAT>").option("maxFilesPerTrigger", 1)
    buckets = Buckets(radius=RADIUS, dimensions=64)
    arriving = buckets.of(stream.parquet(folder, pathGlobFilter="*.parquet"), "v")
    near = wm.join(
        {"l": arriving, "r": arriving},
        on=buckets.near("l.v", "r.v") + " AND l.id < r.id",
        select=["l.id AS one", "r.id AS other", "vector_l2_distance(l.v, r.v) AS distance"],
        state=f"{folder}/_state",
    )
    query = near.writeStream.format("memory").queryName("near").trigger(availableNow=True).start()
    query.awaitTermination()
    found = {(row.one, row.other) for row in spark.table("near").collect()}

distances = [np.linalg.norm(vectors[:one] - vectors[one], axis=1) for one in range(2_000)]
true = {(int(other), one) for one in range(2_000) for other in np.flatnonzero(distances[one] <= RADIUS)}
print(f"{len(found):,} pairs found of {len(true):,} within {RADIUS}: {len(found) / len(true):.1%}")
print(f"{len(found - true)} of them further apart")
