"""A hub for the fault tests: two given queries, of which one goes, and one that comes, with a blow in that very batch.

Batch n has file n of each stream, as the query takes one of each at a time. The commands come with the first batch after
the peaceful ones, so it is known which rows each query counts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.faults.checks import verify_runs
from tests.faults.harness import SCHEMA, SIDES, Point, Scene, feed, newest, worker_environment
from watersmeet.engine.hub_commands import write_command
from watersmeet.engine.hub_status import open_hub
from watersmeet.log.files import LocalFiles
from watersmeet.spark.hub import Hub
from watersmeet.testing import assert_same_rows

PAIR = "SELECT l.id AS a, r.id AS b FROM l, r WHERE l.k = r.k AND l.x > {}"
# Texts of one template, so that they share all steps.
STAYS, GOES, COMES = PAIR.format(2), PAIR.format(5), PAIR.format(4)
PAST = f"{COMES} SINCE TIMESTAMP '1970-01-01 00:00:00Z'"

# Places in the first batch of a query over the past.
PAST_POINTS = [
    Point("run-before-write", "before the entries that an index lacks, or rows, are written"),
    Point("manifest-before-write", "the indexes of the past written, no manifest names them"),
    Point("result-emitted", "some answers of the past emitted, the others not"),
]

# Places around a command: stored, its catalogue written or not, agreed on, answered.
HUB_POINTS = [
    Point("run-before-write", "before a run of commands or rows is written"),
    Point("run-written", "a run or a catalogue written but not described"),
    Point("manifest-before-write", "the catalogue after the commands written, no manifest names it"),
    Point("manifest-written", "a manifest names the catalogue, the batch not committed"),
    Point("result-emitted", "some answers emitted, the others not"),
    Point("task-done", "all done, the task not reported"),
]
# The process of the driver comes by here, and no other.
DRIVER_POINTS = [Point("answers-delivered", "the answers of the batch delivered, its events not")]


@dataclass(frozen=True)
class HubScene(Scene):
    @property
    def queries(self) -> LocalFiles:
        return LocalFiles(self.state / "hub")


def open_scene(spark: SparkSession, scene: Scene, retain: str | None = None) -> Hub:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return wm.hub(
        {side: reader.parquet(str(scene.inputs(side))) for side in SIDES},
        queries={"stays": STAYS, "goes": GOES},
        state=str(scene.state),
        tasks=scene.tasks,
        retain=retain,
    )


def run_hub(
    spark: SparkSession,
    scene: Scene,
    failpoints: str = "",
    timeout_s: int = 150,
    retain: str | None = None,
) -> None:
    """Process all that is there. Raises what the query raises."""
    with worker_environment(spark, failpoints):
        hub = open_scene(spark, scene, retain)
        writer = hub.answers().writeStream.foreachBatch(hub.deliver(scene.out)).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(scene.checkpoint)).start()
    try:
        assert query.awaitTermination(timeout_s), f"the query did not end within {timeout_s} s"
    finally:
        query.stop()


def change(scene: Scene) -> None:
    """One query goes, one comes, and a command is refused."""
    folder = scene.state / "~commands" / "hub"
    write_command(folder, "remove", "goes")
    write_command(folder, "add", "comes", COMES)
    write_command(folder, "remove", "nothing")


def prepare(spark: SparkSession, scene: Scene, point: Point) -> None:
    """Some batches in peace; then commands and more rows, which are not processed yet."""
    feed(scene, point.before)
    run_hub(spark, scene)
    change(scene)
    feed(scene, point.after)


def strike_past(spark: SparkSession, scene: Scene, point: Point, failpoints: str) -> None:
    """A query over the past comes in peace, and the failpoint is set from its first batch on."""
    feed(scene, point.before)
    run_hub(spark, scene, retain="all")
    write_command(scene.state / "~commands" / "hub", "add", "past", PAST)
    feed(scene, 1)
    run_hub(spark, scene, retain="all")
    feed(scene, point.after)
    run_hub(spark, scene, failpoints, retain="all")


def check_past(spark: SparkSession, scene: Scene, point: Point) -> None:
    """The query over the past has every answer once: those of the past in its first batch."""
    assert scene.once.exists(), f"{point.name} was never reached"
    first, last = point.before + 1, point.before + point.after
    found = open_scene(spark, scene).read("past", scene.out).select("batch", "a", "b").collect()
    expected = _answers(scene, COMES, 0, last)
    assert_same_rows([(row.a, row.b) for row in found], expected)
    of_first = [(row.a, row.b) for row in found if row.batch == first]
    assert_same_rows(of_first, _answers(scene, COMES, 0, first))
    assert 20 < len(of_first) < len(expected)
    verify_runs(scene, newest(scene))


def check_hub(spark: SparkSession, scene: Scene, point: Point) -> None:
    """Every answer and every event once, as without the kill, and a state that is whole."""
    assert scene.once.exists(), f"{point.name} was never reached"
    hub, place = open_scene(spark, scene), scene.out
    found = {
        query: [(row.a, row.b) for row in hub.read(query, place, sql=text).collect()]
        for query, text in (("stays", STAYS), ("goes", GOES), ("comes", COMES))
    }
    struck, last = point.before, point.before + point.after - 1
    counted = {"stays": (STAYS, 0, last), "goes": (GOES, 0, struck), "comes": (COMES, struck + 1, last)}
    for query, (text, first, end) in counted.items():
        expected = _answers(scene, text, first, end)
        assert len(expected) > 20, "a query with few answers shows little"
        assert_same_rows(found[query], expected)
    events = Counter(
        (row.query, row.event, row.batch) for row in spark.read.parquet(f"{place}/events").collect()
    )
    assert events == Counter(
        [
            ("stays", "added", 0),
            ("goes", "added", 0),
            ("goes", "removed", struck),
            ("comes", "added", struck),
            ("nothing", "refused", struck),
        ]
    )
    live = open_hub(str(scene.state)).queries()
    assert {(one.id, one.first_batch) for one in live} == {("stays", 0), ("comes", struck + 1)}
    verify_runs(scene, newest(scene))


def _answers(scene: Scene, text: str, first: int, end: int) -> list[tuple[Any, ...]]:
    """The answers over the rows of these files."""
    sides = ", ".join(
        f"{side} AS (FROM read_parquet({[str(scene.inputs(side) / f'{n:05d}.parquet') for n in range(first, end + 1)]}))"
        for side in SIDES
    )
    with duckdb.connect() as con:
        return con.execute(f"WITH {sides} {text}").fetchall()
