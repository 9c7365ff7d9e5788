"""Files as inputs on a real session: the same rows as DataFrames give, over restarts, and combined with everything."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import watersmeet as wm
from tests.spark.state_helpers import newest

COLUMNS = ["k", "g", "at", "id"]


class Folders:
    """Directories of Parquet files, one for each input, and a query over them that takes a file of each in a batch."""

    def __init__(self, spark, place: Path) -> None:
        self.spark, self.place = spark, place
        self.rows = 0

    def add(self, *names: str, rows: int = 40) -> None:
        """Write one more file for each of these inputs."""
        for name in names:
            folder = self.place / name
            folder.mkdir(exist_ok=True)
            ids = range(self.rows, self.rows + rows)
            keys = [None if n % 11 == 0 else n * n % 23 for n in ids]
            values = [keys, [n % 7 for n in ids], [n * 3 % 100 for n in ids], list(ids)]
            table = pa.table(dict(zip(COLUMNS, (pa.array(v, pa.int64()) for v in values), strict=True)))
            draft = folder / "_draft"
            pq.write_table(table, draft)
            # Two files of one millisecond come to Spark in any order, so each has a second of its own.
            second = time.time() - 100_000 + self.rows
            os.utime(draft, (second, second))
            draft.rename(folder / f"{len(list(folder.iterdir())):04d}.parquet")
            self.rows += rows

    def files(self, name: str, **more):
        return wm.files(self.place / name, max_files_per_batch=1, **more)

    def frame(self, name: str) -> DataFrame:
        schema = ", ".join(f"{column} BIGINT" for column in COLUMNS)
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.place / name))

    def run(self, joined: DataFrame) -> Counter:
        """Join all files that are there. The rows that the sink has then."""
        writer = joined.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.place / "cp")).start(str(self.place / "out"))
        query.awaitTermination()
        self.progress = query.recentProgress
        return self.sql(f"SELECT * FROM '{self.place}/out/*.parquet'")

    def sql(self, text: str) -> Counter:
        with duckdb.connect() as connection:
            for folder in self.place.iterdir():
                if any(folder.glob("0*.parquet")):
                    connection.execute(f"CREATE VIEW {folder.name} AS SELECT * FROM '{folder}/0*.parquet'")
            return Counter(connection.execute(text).fetchall())

    @property
    def state(self) -> str:
        return str(self.place / "state")


@pytest.fixture
def folders(spark, tmp_path) -> Folders:
    return Folders(spark, tmp_path)


def test_files_are_joined_once_over_restarts(folders):
    """Also if their directory cannot be reached for a time."""

    def join() -> DataFrame:
        inputs = {"l": folders.files("l", where="g <> 0"), "r": folders.files("r")}
        return wm.join(inputs, on="l.k = r.k", select=["l.id AS a", "r.id AS b"], state=folders.state)

    expected = "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k AND l.g <> 0"
    folders.add("l", "r", "l")
    assert folders.run(join()) == folders.sql(expected)
    assert [one.batchId for one in folders.progress] == [0, 1]
    folders.add("r", "l")
    joined = join()
    (folders.place / "l").rename(folders.place / "away")
    with pytest.raises(StreamingQueryException, match="directory .* does not exist"):
        folders.run(joined)
    (folders.place / "away").rename(folders.place / "l")
    results = folders.run(joined)
    assert results == folders.sql(expected)
    assert max(results.values()) == 1
    totals = newest(Path(folders.state)).totals
    arrived = folders.sql("SELECT (SELECT count(*) FROM l WHERE g <> 0), (SELECT count(*) FROM r)")
    assert arrived == Counter([tuple(totals[name].rows + totals[name].null_rows for name in "lr")])


@pytest.mark.parametrize("left", ["l.k", "pmod(l.k, 100)"], ids=["straight", "as rows"])
def test_a_file_that_was_taken_half_written_is_read_when_it_is_complete(folders, left):
    """Unless its batch was planned: then results may be out."""

    def join() -> DataFrame:
        inputs = {"l": folders.files("l"), "r": folders.files("r")}
        return wm.join(inputs, on=f"{left} = r.k", select=["l.id AS a", "r.id AS b"], state=folders.state)

    expected = "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k"
    folders.add("l", "r")
    folders.run(join())
    folders.add("l", "r")
    (growing,) = (folders.place / "l").glob("0002*")
    whole = growing.read_bytes()
    growing.write_bytes(whole[: len(whole) // 2])
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException, match="0002.parquet cannot be read as a whole Parquet file"
        ):
            folders.run(join())
    growing.write_bytes(whole)
    assert folders.run(join()) == folders.sql(expected)
    folders.add("l", "r")
    assert folders.run(join()) == folders.sql(expected)


def test_a_file_that_changed_after_its_batch_was_planned_is_refused(folders):
    """The batch gives its results to a sink that fails; then the file is replaced, and put back."""

    def run(fails: bool) -> list:
        found: list = []

        def sink(frame: DataFrame, batch: int) -> None:
            found.extend(map(tuple, frame.collect()))
            assert not fails, "the sink fails"

        inputs = {"l": folders.files("l"), "r": folders.files("r")}
        joined = wm.join(inputs, on="l.k = r.k", select=["l.id", "r.id AS b"], state=folders.state)
        writer = joined.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(folders.place / "cp")).start().awaitTermination()
        return found

    folders.add("l", "r")
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run(fails=True)
    (taken,) = (folders.place / "l").glob("0*")
    saved = shutil.copy2(taken, folders.place / "saved")
    folders.add("l")
    second = max((folders.place / "l").iterdir())
    second.rename(taken)
    with pytest.raises(StreamingQueryException, match="results with the rows that it had may be out"):
        run(fails=False)
    shutil.copy2(saved, taken)
    assert Counter(run(fails=False)) == folders.sql("SELECT l.id, r.id FROM l JOIN r ON l.k = r.k")


WAYS: dict[str, tuple[Callable[[Folders], DataFrame], str]] = {
    "as rows, with a DataFrame, in a window": (
        lambda folders: wm.sql(
            "SELECT l.id AS a, r.id AS b FROM l JOIN r ON l.k + 1 = r.k AND pmod(l.g, 3) > 0",
            l=folders.files("l"),
            r=folders.frame("r"),
            within=30,
            time={"l": "at", "r": "at"},
            lateness=10**6,
            state=folders.state,
        ),
        "SELECT l.id, r.id FROM l JOIN r ON l.k + 1 = r.k AND l.g % 3 > 0 AND abs(l.at - r.at) <= 30",
    ),
    "a path of three and a table": (
        lambda folders: wm.join(
            {
                "l": folders.files("l"),
                "m": folders.files("m"),
                "r": folders.files("r"),
                "t": wm.table(folders.place / "t", key="id"),
            },
            on="l.k = m.k AND m.g = r.g AND l.at < 90 AND r.id = t.id",
            select=["l.id AS a", "m.id AS b", "r.id AS c", "t.at AS d"],
            state=folders.state,
        ),
        "SELECT l.id, m.id, r.id, t.at FROM l, m, r, t WHERE l.k = m.k AND m.g = r.g AND l.at < 90 AND r.id = t.id",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_files_combine_with_other_inputs(folders, way):
    join, expected = WAYS[way]
    folders.add("l", "r", "m", "l")
    (folders.place / "t").mkdir()
    for file in (folders.place / "r").iterdir():
        os.link(file, folders.place / "t" / file.name)
    results = folders.run(join(folders))
    assert len(results) > 20
    assert results == folders.sql(expected)


def test_late_rows_of_files_are_dropped_as_those_of_dataframes(spark, folders, tmp_path):
    """Rows that go straight into the state, in a window: the same batches, with the same watermark."""
    folders.add("l", "r", "l", "r", "l", "r")
    other = Folders(spark, tmp_path / "other")
    for name in "lr":
        shutil.copytree(folders.place / name, other.place / name)

    def join(place: Folders, inputs: dict) -> DataFrame:
        return wm.join(
            inputs,
            on="l.k = r.k",
            select=["l.id AS a", "r.id AS b"],
            within=30,
            time={"l": "at", "r": "at"},
            lateness=40,
            state=place.state,
        )

    straight = join(folders, {name: folders.files(name) for name in "lr"})
    results = folders.run(straight)
    assert len(results) > 20
    assert results == other.run(join(other, {name: other.frame(name) for name in "lr"}))
    totals, expected = newest(Path(folders.state)).totals, newest(Path(other.state)).totals
    late = {name: totals[name].late_rows for name in "lr"}
    assert late == {name: expected[name].late_rows for name in "lr"}
    assert min(late.values()) > 0
    within = "SELECT l.id, r.id FROM l JOIN r ON l.k = r.k AND abs(l.at - r.at) <= 30"
    assert results < folders.sql(within)


@pytest.mark.parametrize("strategy", ["grid", "range", "biclique"])
def test_files_are_shared_by_every_strategy(folders, strategy):
    folders.add("l", "r", rows=80)
    on = "l.k = r.k" if strategy == "biclique" else "l.k BETWEEN r.k AND r.k + 2"
    inputs = {"l": folders.files("l"), "r": folders.files("r")}
    select = ["l.id AS a", "r.id AS b"]
    results = folders.run(wm.join(inputs, on=on, select=select, state=folders.state, strategy=strategy))
    assert len(results) > 20
    assert results == folders.sql(f"SELECT l.id, r.id FROM l JOIN r ON {on}")


def test_files_come_from_a_bucket(folders, bucket, s3_endpoint):
    """The processes of Spark know the server and its key from the address alone."""
    filesystem, base = fs.FileSystem.from_uri(bucket)
    folders.add("l", "r", rows=80)
    for path in folders.place.glob("[lr]/*"):
        with filesystem.open_output_stream(f"{base}/{path.parent.name}/{path.name}") as sink:
            sink.write(path.read_bytes())
    host = quote(s3_endpoint.removeprefix("http://"))

    def files(name: str):
        address = f"{bucket.replace('s3://', 's3://test:test@')}/{name}"
        return wm.files(
            f"{address}?scheme=http&region=us-east-1&endpoint_override={host}", max_files_per_batch=1
        )

    inputs = {"l": files("l"), "r": files("r")}
    results = folders.run(
        wm.join(inputs, on="l.k = r.k", select=["l.id AS a", "r.id AS b"], state=folders.state)
    )
    assert len(results) > 20
    assert results == folders.sql("SELECT l.id, r.id FROM l JOIN r ON l.k = r.k")


def test_files_of_a_batch_join(folders):
    folders.add("l", "r", "l")
    still = {name: wm.files(folders.place / name, stream=False) for name in "lr"}
    expected = folders.sql("SELECT l.id, r.id FROM l JOIN r ON l.k = r.k")
    for strategy in ("spark", "hash"):
        joined = wm.join(
            still, on="l.k = r.k", select=["l.id", "r.id AS b"], state=folders.state, strategy=strategy
        )
        assert not joined.isStreaming
        # Files that come later are not part of it.
        folders.add("l")
        assert Counter(map(tuple, joined.collect())) == expected
        next(iter(sorted((folders.place / "l").iterdir(), reverse=True))).unlink()


def test_explain_says_which_way_rows_take(folders):
    folders.add("l", "r")
    inputs = {"l": folders.files("l"), "r": folders.files("r")}
    told = wm.explain(inputs, on="pmod(l.k, 3) = r.k + 1", state=folders.state)
    assert "rows of l pass through Spark, because only Spark can compute pmod" in told
    assert "rows of r go straight from the files into the state" in told
    looked_up = wm.explain(
        {"l": folders.files("l"), "t": wm.table(folders.place / "r", key="id")}, on="l.k = t.id"
    )
    assert "rows of l go straight" in looked_up
