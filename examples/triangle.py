"""Three streams that form a triangle: who follows whom, in a circle of three.

    python examples/triangle.py

The edges of a graph arrive as three streams (the same files, read three times). The join finds every circle a -> b -> c
-> a once, when its last edge arrives. Chained joins would store all paths of two edges; this join stores edges.
"""

import random
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import watersmeet as wm

PEOPLE, FILES, SCHEMA = 200, 5, "src int, dst int"

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()
rng = random.Random(1)
pairs = [(rng.randrange(PEOPLE), rng.randrange(PEOPLE)) for _ in range(1_500)]
edges = sorted({(a, b) for a, b in pairs if a != b})

with tempfile.TemporaryDirectory() as folder:
    for number in range(FILES):
        part = spark.createDataFrame(edges[number::FILES], SCHEMA)
        part.coalesce(1).write.parquet(f"{folder}/edges/{number}")
    circles = wm.sql(
        "SELECT a.src AS first, b.src AS second, c.src AS third FROM e a JOIN e b ON a.dst = b.src "
        "JOIN e c ON b.dst = c.src AND c.dst = a.src WHERE a.src < b.src AND a.src < c.src",
        e=spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/edges/*"),
        state=f"{folder}/state",
    )
    writer = circles.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/circles").awaitTermination()
    found = sorted(map(tuple, spark.read.parquet(f"{folder}/circles").collect()))
    (join,) = wm.status(Path(folder) / "state").joins

print(f"{len(edges)} edges of {PEOPLE} people: {len(found)} circles of three, such as {found[:3]}")
print("stored: " + ", ".join(f"{one.name} {one.rows} rows by {one.arrangements} keys" for one in join.inputs))
