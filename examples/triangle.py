"""Three streams that form a triangle: who follows whom, in a circle of three.

    python examples/triangle.py

The edges of a graph arrive as three streams (the same files, read three times). The join finds every circle a -> b -> c
-> a once, as soon as its last edge arrives. Chained joins would store all paths of two edges; this join stores edges.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import watersmeet as wm

SCHEMA = "src int, dst int"
PEOPLE, EDGES, FILES = 200, 1_500, 5


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        edges = draw_edges(seed=1)
        for number in range(FILES):
            part = edges[number::FILES]
            spark.createDataFrame(part, SCHEMA).coalesce(1).write.parquet(f"{folder}/edges/{number}")
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
        stored = ", ".join(f"{one.name} {one.rows} rows by {one.arrangements} keys" for one in join.inputs)
        print(f"{len(edges)} edges of {PEOPLE} people: {len(found)} circles of three, such as {found[:3]}")
        print(f"stored: {stored}")
        assert found == sorted(all_circles(edges)), "a circle is missing, or came twice"


def draw_edges(seed: int) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    pairs = ((rng.randrange(PEOPLE), rng.randrange(PEOPLE)) for _ in range(EDGES))
    return sorted({(a, b) for a, b in pairs if a != b})


def all_circles(edges: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    known, after = set(edges), {}
    for a, b in edges:
        after.setdefault(a, []).append(b)
    return [(a, b, c) for a, b in edges for c in after.get(b, ()) if (c, a) in known and a < b and a < c]


if __name__ == "__main__":
    main()
