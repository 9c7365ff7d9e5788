"""How a static DataFrame is known again: by its files, and by a plan that depends neither on the time nor on chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.table_frames import Frames


def test_a_dataframe_is_not_taken_for_another(spark):
    """Python gives the same id to one object after the other."""
    frames = Frames(spark)
    assert len({frames.fingerprint(spark.range(3)) for _ in range(20)}) == 20
    kept = spark.range(3)
    assert frames.fingerprint(kept) == frames.fingerprint(kept)


def test_a_dataframe_of_files_is_known_until_one_is_rewritten_under_its_name(spark, tmp_path):
    frames, folder = Frames(spark), tmp_path / "a b%#é"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name} +.csv").write_text("1,a\n2,b\n")

    def read() -> str:
        return frames.fingerprint(spark.read.schema("id INT, v STRING").csv(str(folder)).where("id > 0"))

    known = read()
    assert read() == known
    (folder / "two +.csv").write_text("1,a\n2,c\n")
    assert read() != known


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
