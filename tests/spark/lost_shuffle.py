"""A batch join whose shuffle files are lost, in a session of its own: `python -m tests.spark.lost_shuffle STATE`.

As when an executor is lost: ingest tasks run again, in a later execution. In local mode Spark takes its only executor
for lost then, cannot register it again, and ends the JVM ten minutes later. So no other test may share the session.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import SparkSession

from tests.conftest import SPARK_SETTINGS
from tests.spark.test_batch_joins import (
    expected_rows,
    files_of,
    input_frames,
    joined,
    lose_cached_blocks,
    shuffle_files,
)
from watersmeet.testing import assert_same_rows


def main(state: Path, local: Path) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", str(local))
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        results = joined(input_frames(spark), state).persist(StorageLevel.MEMORY_ONLY)
        assert results.count() == len(expected_rows())
        written = files_of(state)
        lose_cached_blocks(spark)
        lost = shuffle_files(spark)
        for path in lost:
            path.unlink()
        assert lost
        assert_same_rows(results.collect(), expected_rows())
        assert files_of(state) == written
        print("the same rows, and no other file")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
