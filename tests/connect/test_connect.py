"""Joins through Spark Connect: streams, tables, Python conditions, `foreachBatch`, restarts.

Functions are nested, so that they are pickled by value: the server cannot import this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException

import watersmeet as wm
from tests.waiting import wait_until
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.testing import assert_same_rows

# Spark gives the process of a foreachBatch function ten seconds to start, which a busy machine may not keep.
START_ATTEMPTS = 5


class Streams:
    """Two streams of JSON files with columns k and x, and a query over them."""

    def __init__(self, spark, folder: Path):
        self.spark, self.folder = spark, folder
        self.rows: dict[str, list[tuple[int, int]]] = {"l": [], "r": []}
        for name in self.rows:
            (folder / name).mkdir()

    def add(self, **rows: list[tuple[int, int]]) -> None:
        for name, new in rows.items():
            self.rows[name] += new
            text = "\n".join(json.dumps({"k": k, "x": x}) for k, x in new)
            draft = self.folder / f"draft-{name}"
            draft.write_text(text)
            draft.rename(self.folder / name / f"{len(self.rows[name]):05d}.json")

    def stream(self, name: str):
        return self.spark.readStream.schema("k int, x int").json(str(self.folder / name))

    def join(self, on: Any = "l.k = r.k"):
        inputs = {"l": self.stream("l"), "r": self.stream("r")}
        state = str(self.folder / "state")
        return wm.join(inputs, on=on, select=["l.x", "r.x AS y"], state=state, tasks=2)

    def start(self, writer, checkpoint: str = "checkpoint", name: str | None = None):
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        if name is not None:
            writer = writer.queryName(name)
        for attempt in range(START_ATTEMPTS):
            try:
                return writer.start()
            except PySparkException as error:
                if "failed to connect back" not in str(error) or attempt == START_ATTEMPTS - 1:
                    raise
        raise AssertionError

    def expected(self, matches: Callable[[int, int], bool] = lambda k, j: k == j) -> list[tuple[int, int]]:
        return [(x, y) for k, x in self.rows["l"] for j, y in self.rows["r"] if matches(k, j)]

    def manifests(self, query) -> list[tuple[int, int, str]]:
        found = list_manifests(LocalFiles(self.folder / "state" / "l-r" / str(query.id)))
        return [(name.run_seq, name.batch, name.run) for name in found]


@pytest.fixture
def streams(spark, tmp_path) -> Streams:
    return Streams(spark, tmp_path)


def saved(spark, folder: Path) -> list[tuple]:
    """The rows that `save` wrote, by batch: one that Spark runs again replaces its first attempt."""
    return [
        tuple(row) for batch in sorted(folder.iterdir()) for row in spark.read.parquet(str(batch)).collect()
    ]


@pytest.mark.parametrize(
    "on, matches",
    [
        pytest.param("l.k = r.k", lambda k, j: k == j, id="equality"),
        pytest.param(None, lambda k, j: abs(k - j) <= 1, id="function"),
    ],
)
def test_a_stream_with_a_restart(spark, streams, tmp_path, on, matches):
    def near(left, right):
        return pc.less_equal(pc.abs(pc.subtract(left["k"], right["k"])), 1)

    def run():
        writer = streams.join(on or near).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = streams.start(writer.trigger(availableNow=True))
        assert query.awaitTermination(120)
        return query

    streams.add(l=[(1, 10), (2, 11)], r=[(1, 20), (3, 21)])
    first = run()
    streams.add(l=[(3, 12)], r=[(2, 22)])
    second = run()
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).collect(), streams.expected(matches))
    assert streams.manifests(second) == [(0, 0, str(first.runId)), (1, 1, str(second.runId))]


def test_files_of_which_only_one_goes_through_spark(spark, streams, tmp_path):
    """The rows of `l` go straight into the state; those of `r` are computed on by Spark first."""

    def run():
        inputs = {
            name: wm.files(tmp_path / name, format="json", schema="k INT, x INT", max_files_per_batch=1)
            for name in "lr"
        }
        joined = wm.join(
            inputs,
            on="l.k = pmod(r.k, 100)",
            select=["l.x", "r.x AS y"],
            state=str(tmp_path / "state"),
            tasks=2,
        )
        writer = joined.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = streams.start(writer.trigger(availableNow=True))
        assert query.awaitTermination(120)
        return query

    streams.add(l=[(1, 10), (2, 11)], r=[(1, 20), (103, 21)])
    first = run()
    streams.add(l=[(3, 12)])
    streams.add(l=[(2, 13)], r=[(2, 22)])
    second = run()
    assert_same_rows(
        spark.read.parquet(str(tmp_path / "out")).collect(), streams.expected(lambda k, j: k == j % 100)
    )
    assert streams.manifests(second) == [
        (0, 0, str(first.runId)),
        *((1, batch, str(second.runId)) for batch in (1, 2)),
    ]


def test_a_stream_against_tables_from_a_file_and_from_a_dataframe(spark, streams, tmp_path):
    products = spark.createDataFrame([(1, "one"), (2, "two")], "id int, name string")
    products.coalesce(1).write.parquet(str(tmp_path / "products"))
    streams.add(l=[(1, 10), (2, 11), (9, 12)])
    tables = {"file": wm.table(str(tmp_path / "products"), key="id"), "frame": wm.table(products, key="id")}
    for kind, table in tables.items():
        joined = wm.join(
            {"s": streams.stream("l"), "p": table},
            on="s.k = p.id",
            select=["s.x", "p.name"],
            how="left",
            state=str(tmp_path / f"state-{kind}"),
            tasks=2,
        )
        writer = joined.writeStream.format("parquet").option("path", str(tmp_path / f"out-{kind}"))
        query = streams.start(writer.trigger(availableNow=True), f"checkpoint-{kind}")
        assert query.awaitTermination(120)
        results = spark.read.parquet(str(tmp_path / f"out-{kind}")).collect()
        assert_same_rows(results, [(10, "one"), (11, "two"), (12, None)])


def test_rows_that_wait_for_a_table_with_a_trigger_that_ends(spark, streams, tmp_path):
    """The source behind `max_delay` is registered with the server, and a backlog is taken file by file."""
    products = [(number, f"name {number}") for number in range(200)]
    frame = spark.createDataFrame(products, "id int, name string")
    frame.coalesce(1).write.parquet(str(tmp_path / "products"))
    stream = spark.readStream.schema("k int, x int").option("maxFilesPerTrigger", 1)

    def run(delay: str) -> list[int]:
        """Run to the end; the number of new rows in each batch."""
        joined = wm.join(
            {
                "s": stream.json(str(tmp_path / "l")),
                "p": wm.table(str(tmp_path / "products"), key="id", page_rows=20, in_place=False),
            },
            on="s.k = p.id",
            select=["s.x", "p.name"],
            how="left",
            max_delay=delay,
            state=str(tmp_path / "state"),
            tasks=2,
        )
        writer = joined.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = streams.start(writer.trigger(availableNow=True))
        assert query.awaitTermination(120)
        return [progress.numInputRows for progress in query.recentProgress]

    def waiting() -> int:
        (one,) = wm.status(str(tmp_path / "state")).joins
        return one.plan.waiting_rows if isinstance(one.plan, PagePlan) else 0

    for number in range(3):
        streams.add(l=[(number + 70 * place, 10 * number + place) for place in range(4)])
    assert run("1 hour") == [4] * 3
    assert waiting(), "rows are left for the next start"
    wait_until(lambda: run("1 millisecond") is not None and not waiting(), "all answers")
    names = dict(products)
    expected = [(x, names.get(k)) for k, x in streams.rows["l"]]
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).collect(), expected)


def test_foreach_batch_with_restarts_gives_every_result_once(spark, streams, tmp_path):
    """In every batch the DataFrame is evaluated twice, the second time in another thread."""
    out = str(tmp_path / "out")

    def save(frame, number):
        from pyspark import InheritableThread

        frame.write.mode("overwrite").parquet(f"{out}/{number:03d}")
        counted = []
        session = frame.sparkSession
        thread = InheritableThread(target=lambda: counted.append(frame.count()), session=session)
        thread.start()
        thread.join()
        assert counted == [session.read.parquet(f"{out}/{number:03d}").count()]

    def start():
        return streams.start(streams.join().writeStream.foreachBatch(wm.foreach_batch(save)))

    runs = []
    for new in ({"l": [(1, 10), (2, 11)], "r": [(1, 20)]}, {"r": [(2, 21), (1, 22)]}, {"l": [(2, 12)]}):
        query = start()
        for name, rows in new.items():
            streams.add(**{name: rows})
            query.processAllAvailable()
        runs.append((str(query.id), str(query.runId)))
        query.stop()
    assert_same_rows(saved(spark, tmp_path / "out"), streams.expected())
    assert len({query_id for query_id, _ in runs}) == 1
    starts = {run: place for place, (_, run) in enumerate(runs)}
    manifests = streams.manifests(query)
    # Every batch once, in order, each under the run id of its start.
    assert [batch for _, batch, _ in manifests] == list(range(len(manifests)))
    assert all(sequence == starts[run] for sequence, _, run in manifests)
    assert {run for _, _, run in manifests} == set(starts)


def test_a_hub_delivers_each_answer_once_and_takes_commands(spark, streams, tmp_path):
    """Two evaluations in each batch, a restart, and a query that is added on the way."""
    text = "SELECT l.x, r.x AS y FROM l, r WHERE l.k = r.k"
    place = str(tmp_path / "out")

    def start():
        hub = wm.hub(
            {name: streams.stream(name) for name in "lr"},
            queries={"pair": text},
            state=str(tmp_path / "state"),
            tasks=2,
        )
        return hub, streams.start(hub.answers().writeStream.foreachBatch(hub.deliver(place)))

    for new in ({"l": [(1, 10), (2, 11)], "r": [(1, 20)]}, {"r": [(2, 21), (1, 22)]}):
        hub, query = start()
        for name, rows in new.items():
            streams.add(**{name: rows})
            query.processAllAvailable()
        query.stop()
        hub.add("late", text)
    hub, query = start()
    query.processAllAvailable()
    streams.add(l=[(7, 1)], r=[(7, 2)])
    query.processAllAvailable()
    query.stop()
    found = {id_: hub.read(id_, place).select("x", "y").collect() for id_ in ("pair", "late")}
    assert_same_rows(found["pair"], streams.expected())
    assert_same_rows(found["late"], [(1, 2)])
    assert hub.read("nothing", place, sql=text).count() == 0
    events = spark.read.parquet(f"{place}/events").select("query", "event").collect()
    assert_same_rows(events, [("pair", "added"), ("late", "added")])


def test_foreach_batch_without_the_wrapper_is_refused_by_name(streams):
    def save(frame, number):
        frame.collect()

    streams.add(l=[(1, 10)], r=[(1, 20)])
    query = streams.start(streams.join().writeStream.foreachBatch(save))
    with pytest.raises(PySparkException, match="wm.foreach_batch"):
        query.processAllAvailable()


def test_several_queries_of_one_session_are_told_apart(spark, streams, tmp_path):
    """By their plans, two of the same DataFrame too; or by a name."""
    streams.add(l=[(1, 10)], r=[(1, 20)])
    joined = streams.join()

    def start(name, **how):
        out = str(tmp_path / f"out-{name}")

        def save(frame, number):
            frame.write.mode("overwrite").parquet(f"{out}/{number:03d}")

        return streams.start(joined.writeStream.foreachBatch(wm.foreach_batch(save, **how)), name, name)

    queries = {
        "first": start("first"),
        "second": start("second"),
        "third": start("third", query_name="third"),
    }
    for query in queries.values():
        query.processAllAvailable()
    streams.add(l=[(1, 11)])
    for name, query in queries.items():
        query.processAllAvailable()
        query.stop()
        assert_same_rows(saved(spark, tmp_path / f"out-{name}"), streams.expected())
        assert {run for _, _, run in streams.manifests(query)} == {str(query.runId)}


def test_what_is_owed_is_asked_for_and_settled_over_connect(spark, tmp_path):
    """The client reads neither the state nor the checkpoint."""
    streams = Streams(spark, tmp_path)
    budget = {"memory": "1 KB", "options": {"partitionGroups": 8}}

    def inputs():
        return {name: streams.stream(name) for name in streams.rows}

    asked = {
        "on": "l.k = r.k",
        "select": ["l.x", "r.x AS y"],
        "state": str(tmp_path / "state"),
        "tasks": 2,
        **budget,
    }
    writer = wm.join(inputs(), **asked).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = streams.start(writer)
    for number in range(3):
        streams.add(**{name: [(key, 100 * number + key) for key in range(20)] for name in streams.rows})
        query.processAllAvailable()
    query.stop()
    emitted = spark.read.parquet(str(tmp_path / "out")).collect()
    after = {"checkpoint": str(tmp_path / "checkpoint"), **asked}
    owed = wm.owed(inputs(), **after).collect()
    assert owed
    expected = [(x, y) for k, x in streams.rows["l"] for other, y in streams.rows["r"] if k == other]
    assert_same_rows([tuple(row) for row in [*emitted, *owed]], expected)
    done = wm.settle(inputs(), **after, to=str(tmp_path / "late"))
    assert done.rows == len(owed)
    assert_same_rows(spark.read.parquet(str(tmp_path / "late")).collect(), owed)
    assert not wm.owed(inputs(), **after).collect()
