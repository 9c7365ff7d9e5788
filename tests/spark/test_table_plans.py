"""How a static DataFrame is known again: what Spark says of a plan that depends on the time, or on chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.table_frames import Frames


@pytest.fixture
def read(spark: SparkSession, tmp_path: Path) -> Callable[..., DataFrame]:
    """The same file, read anew, and what is selected of it."""
    (tmp_path / "t.csv").write_text("1,a\n2,b\n")
    return lambda *more: spark.read.schema("id INT, v STRING").csv(str(tmp_path)).selectExpr("*", *more)


@pytest.mark.parametrize("more", ["id + 1 AS n", "rand(7) > 2 AS n"], ids=["certain", "by chance"])
def test_a_plan_is_known_again_unless_it_depends_on_chance(spark, read, more):
    frames = Frames(spark)
    assert (frames.fingerprint(read(more)) == frames.fingerprint(read(more))) == (more == "id + 1 AS n")


@pytest.mark.parametrize(
    "more",
    [
        "current_timestamp() AS t",
        "now() AS t",
        "localtimestamp() AS t",
        "CAST('now' AS TIMESTAMP) AS t",
        "(SELECT max(current_timestamp()) FROM VALUES (1)) AS t",
        "uuid() AS t",
    ],
)
def test_the_same_dataframe_is_another_one_later_if_its_plan_asks_for_the_time(spark, read, more):
    frames, kept, of_no_file = Frames(spark), read(more), spark.range(3).selectExpr("*", more)
    assert frames.fingerprint(kept) != frames.fingerprint(kept)
    assert frames.fingerprint(of_no_file) != frames.fingerprint(of_no_file)


@pytest.mark.parametrize("more", ["current_date()", "CAST('today' AS DATE)", "(SELECT current_date())"])
def test_a_plan_that_asks_for_the_day_is_that_of_the_day(spark, read, more):
    """So it is another one tomorrow."""
    frames = Frames(spark)

    def of_today() -> str:
        return frames.fingerprint(read(f"DATE'{spark.sql('SELECT current_date()').first()[0]}' AS d"))

    # Midnight may come in between.
    before, found = of_today(), frames.fingerprint(read(f"{more} AS d"))
    assert found in (before, of_today())


def test_a_dataframe_whose_rows_are_in_memory_is_known_again(spark):
    frames = Frames(spark)
    for kept in (spark.createDataFrame([(1,)], "id INT"), spark.range(3), spark.sql("SELECT 1 AS id")):
        assert frames.fingerprint(kept) == frames.fingerprint(kept)
