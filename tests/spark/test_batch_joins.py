"""Batch joins on the operator that Spark computes again, whole or in part, under another execution id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import StorageLevel

import watersmeet as wm
from tests.spark.state_helpers import all_files
from watersmeet.testing import assert_same_rows

ROOT = Path(__file__).resolve().parents[2]


def input_frames(spark):
    left = spark.range(40).selectExpr("id % 8 AS k", "id AS x").repartition(3)
    right = spark.range(30).selectExpr("id % 8 AS k", "id AS y").repartition(2)
    return left, right


def expected_rows() -> list[tuple[int, int]]:
    return [(x, y) for x in range(40) for y in range(30) if x % 8 == y % 8]


@pytest.fixture
def frames(spark):
    return input_frames(spark)


@pytest.fixture
def expected():
    return expected_rows()


def joined(frames, state, **more):
    left, right = frames
    arguments = {"on": "l.k = r.k", "select": ["l.x", "r.y"], "strategy": "hash", "tasks": 4}
    return wm.join({"l": left, "r": right}, state=str(state), **(arguments | more))


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_dataframe_may_be_evaluated_several_times(spark, frames, expected, tmp_path, adaptive):
    """The second time Spark skips the stage that wrote the runs: its shuffle is still there."""
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        results = joined(frames, tmp_path)
        for _ in range(3):
            assert_same_rows(results.collect(), expected)
        assert results.count() == len(expected)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", before)


def test_a_cached_result_that_is_lost_is_computed_again(spark, frames, expected, tmp_path):
    results = joined(frames, tmp_path).persist(StorageLevel.MEMORY_ONLY)
    try:
        assert results.count() == len(expected)
        written = files_of(tmp_path)
        lose_cached_blocks(spark)
        assert_same_rows(results.collect(), expected)
        assert files_of(tmp_path) == written
    finally:
        results.unpersist()


def test_a_lost_shuffle_is_written_again_under_the_same_names(tmp_path):
    """In a process of its own, see lost_shuffle.py."""
    command = [sys.executable, "-m", "tests.spark.lost_shuffle", tmp_path / "state", tmp_path / "local"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "the same rows, and no other file" in done.stdout


def files_of(state: Path) -> set[Path]:
    """All files but the marks that an execution leaves."""
    return {path for path in all_files(state) if path.parent.name != "starts"}


def lose_cached_blocks(spark) -> None:
    """Drop every cached block, as a dead executor does; the DataFrames stay marked as cached."""
    context = spark.sparkContext._jsc.sc()
    for info in context.getRDDStorageInfo():
        context.cleaner().get().doCleanupRDD(info.id(), True)
    assert not context.getRDDStorageInfo()


def shuffle_files(spark) -> set[Path]:
    return set(Path(spark.conf.get("spark.local.dir")).rglob("shuffle_*"))
