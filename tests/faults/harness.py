"""What the fault tests share: inputs on disk, a query over them, and places to strike.

A `Scene` is one folder with everything of one query: its inputs, state, checkpoint and sink. Inputs are one
small file an input and batch, written from a seed; the sink is Spark's Parquet sink, which shows a batch once
or not at all. The query takes one file of each input a batch, and ends when nothing is left. What must hold after is
in checks.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import watersmeet as wm
from tests import life
from tests.delayed_pages import rows_that_wait
from watersmeet.file_inputs.spec import FileInput
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests
from watersmeet.model.facts import Manifest
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.spark import file_frames
from watersmeet.tables.spec import Table

SIDES = ("l", "r")
# Of joins of many inputs too, each with rows of its own.
EVERY_INPUT = (*SIDES, "m", "n")
SCHEMA = "k bigint, x bigint, s string, id bigint"
SELECT = ["l.id AS a", "r.id AS b", "l.s AS s"]
FAILPOINTS = "WATERSMEET_FAILPOINTS"

ROWS_A_FILE = 120
# Arrow batches of 40 rows and runs of one Arrow batch: a file becomes three runs, so that the third batch
# has enough of them to merge.
RUN_ROWS = 40
NULL_SHARE = 0.05
# The age of the first file of an input; those after it are a second younger each.
FIRST_FILE_S = 1_700_000_000
KEYS = 60

REPOSITORY = Path(__file__).resolve().parents[2]

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A JVM that lives for a few seconds has no use for the second compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(RUN_ROWS),
    "spark.watersmeet.runBytes": "1",
}

# Clean-up that has something to remove after sixteen batches. Nothing here runs a task twice at a time, so
# that no grace is needed.
CLEANING = {"spark.watersmeet.graceSeconds": "0", "spark.sql.streaming.minBatchesToRetain": "2"}


@dataclass(frozen=True)
class Join:
    """A predicate and how it is joined. `kept` counts in SQL the rows of an input that the state must hold.

    `sizes` are the rows of the first files of the two inputs; those after them have ROWS_A_FILE. `inputs` are in the
    order in which they are given to the join.
    """

    name: str
    on: str
    kept: str = "count(k)"
    strategy: str = "auto"
    cells: int | None = None
    sizes: Sequence[tuple[int, int]] = ()
    how: str = "inner"
    # With a delay r is a table, and rows of l may wait so long for others that need the same page.
    max_delay_s: float | None = None
    inputs: Sequence[str] = SIDES
    # Whether the tasks read the files themselves, with wm.files.
    native: bool = False

    @property
    def streams(self) -> Sequence[str]:
        return self.inputs if self.max_delay_s is None else SIDES[:1]

    @property
    def select(self) -> list[str]:
        """Enough to tell every result from any other."""
        return [*SELECT, *(f"{name}.id AS {name}" for name in self.inputs if name not in SIDES)]


EQUALITY = Join("equality", "l.k = r.k AND l.x < r.x + 3")
BAND = Join("band", "abs(l.k - r.k) <= 1 AND l.x < r.x", strategy="range")
# No side of it can be looked up. After two even batches each of the next three turns the balance of the inputs,
# and with it the grid.
GRID = Join(
    "grid",
    "l.k * r.x = r.k * l.x + 7",
    kept="count(*)",
    strategy="grid",
    cells=4,
    sizes=((120, 120), (120, 120), (40, 480), (1400, 40), (40, 1000)),
)
GRID_SHAPES = [(2, 2), (2, 2), (1, 4), (4, 1), (2, 2)]
# A batch has two rows for each page of eight: too few to be worth it, so they wait until they are due.
TABLE = Join("table", "l.k = r.k AND l.x < r.x + 3", kept="count(*)", how="left", max_delay_s=4)
TABLE_ROWS, PAGE_ROWS = 400, 8
# On one key, and along a path of different keys: there m and n are stored twice.
THREE = Join("three", "l.k = m.k AND m.k = r.k AND l.x < r.x", inputs=("l", "m", "r"))
PATH = Join("path", "l.k = m.k AND m.id = n.id AND n.k = r.k AND l.x < r.x", inputs=("l", "m", "n", "r"))
# The same path for many batches: a hundredth of its results, which grow with the cube of the batches.
LONG_PATH = replace(PATH, name="long-path", on=PATH.on.replace("l.x < r.x", "l.x + 8 < r.x"))
FILES = Join("files", EQUALITY.on, native=True)
JOINS = {join.name: join for join in (EQUALITY, BAND, GRID, TABLE, THREE, PATH, LONG_PATH, FILES)}


@dataclass(frozen=True)
class Point:
    """A place to strike, as the failpoint is called; `before` batches pass unharmed, `after` come then."""

    name: str
    says: str
    before: int = 2
    after: int = 3


POINTS = [
    Point("start-half-written", "the claim of a start half written"),
    Point("run-before-write", "before a run is written"),
    Point("run-half-written", "a run half written"),
    Point("run-written", "a run written but not described"),
    Point("manifest-half-written", "a manifest half written"),
    Point("manifest-written", "a manifest written, the batch not committed"),
    Point("merge-part", "during a merge"),
    Point("merge-written", "a merge written, without its receipt"),
    Point("receipt-half-written", "the receipt of a merge half written"),
    # Clean-up comes with every sixteenth batch.
    Point("clean-half-done", "between the removal of manifests and of runs", before=14, after=4),
    Point("clean-run-removed", "during the removal of runs", before=14, after=4),
    Point("task-done", "all done, the task not reported"),
]
# Where the source of files could lose one or take one twice: its files chosen, read, stored, joined.
FILE_POINTS = [
    Point("intake-half-written", "the files of a batch half logged"),
    Point("intake-written", "the files of a batch logged, the offset not written"),
    Point("files-unread", "the offset written, no file read"),
    *(
        point
        for point in POINTS
        if point.name in ("run-before-write", "run-written", "manifest-written", "task-done")
    ),
]
# Where a plan that is not that of the batch before could do harm: beside its manifest, and while runs that were
# read under the old one are merged.
PLANNED = [
    point
    for point in POINTS
    if point.name in ("run-half-written", "manifest-written", "merge-written", "task-done")
]
# Where inputs that are stored several times could differ: their runs, merges and receipts, and what is removed of them.
ARRANGED = [*PLANNED, *(point for point in POINTS if point.name == "receipt-half-written")]
CLEANED = [point for point in POINTS if point.name.startswith("clean")]


@dataclass(frozen=True)
class Scene:
    folder: Path
    # Where the state is, if not in the folder.
    state_folder: Path | None = None
    seed: int = 1
    tasks: int = 2
    join: Join = EQUALITY
    # Where the table is, if not in the folder, and how long to wait for a database.
    address: str | None = None
    patience_s: float = 60

    @property
    def state(self) -> Path:
        return self.state_folder or self.folder / "state"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def once(self) -> Path:
        """Exists as soon as the failpoint was reached."""
        return self.folder / "once"

    @property
    def go(self) -> Path:
        """What a waiting failpoint waits for."""
        return self.folder / "go"

    @property
    def lost(self) -> Path:
        """Exists as soon as a task has found its manifest published by another."""
        return self.folder / "lost"

    def inputs(self, side: str) -> Path:
        return self.folder / "in" / side

    @property
    def table(self) -> Path:
        return self.folder / "table.parquet"

    @property
    def files(self) -> LocalFiles:
        """The files of the one query whose state is here."""
        (query,) = self.queries.folders()
        return LocalFiles(self.queries.root / query)

    @property
    def queries(self) -> LocalFiles:
        """The folder of the join, with one for each query."""
        return LocalFiles(self.state / "-".join(self.join.inputs))

    def committed_batches(self) -> int:
        """How many batches Spark has committed."""
        commits = self.checkpoint / "commits"
        numbers = (
            [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
        )
        return max(numbers, default=-1) + 1


# --- inputs ---------------------------------------------------------------------------------------------


def feed(scene: Scene, batches: int) -> None:
    """Add that many files to each input. A file is moved in whole: the stream never sees half of it."""
    if scene.join is TABLE and not scene.table.exists():
        pq.write_table(_rows(scene.seed, "r", 0, TABLE_ROWS), scene.table)
    for side in scene.join.streams:
        folder = scene.inputs(side)
        folder.mkdir(parents=True, exist_ok=True)
        first = len(list(folder.iterdir()))
        for number in range(first, first + batches):
            sizes = scene.join.sizes
            rows = sizes[number][SIDES.index(side)] if number < len(sizes) else ROWS_A_FILE
            draft = scene.folder / f"draft-{side}-{number}"
            pq.write_table(_rows(scene.seed, side, number, rows), draft)
            # Spark takes files by their age, and two of one kernel tick in any order.
            os.utime(draft, (FIRST_FILE_S + number, FIRST_FILE_S + number))
            draft.rename(folder / f"{number:05d}.parquet")


def _rows(seed: int, side: str, number: int, rows: int) -> pa.Table:
    rng = np.random.default_rng([seed, EVERY_INPUT.index(side), number])
    keys = pa.array(rng.integers(0, KEYS, rows), mask=rng.random(rows) < NULL_SHARE)
    x = rng.integers(0, 10, rows)
    texts = pa.array(["", "a", "ä", "bb"]).take(pa.array(rng.integers(0, 4, rows)))
    ids = np.arange(number * 1_000_000, number * 1_000_000 + rows)
    return pa.table({"k": keys, "x": x, "s": texts, "id": ids})


# --- the query ------------------------------------------------------------------------------------------


def joined(spark: SparkSession, scene: Scene) -> DataFrame:
    join = scene.join
    streams = {side: _stream(spark, scene, side) for side in join.streams}
    if join.max_delay_s is not None:
        with rows_that_wait():
            return wm.join(
                {**streams, "r": _table(scene)},
                on=join.on,
                how=join.how,
                select=join.select,
                state=str(scene.state),
                tasks=scene.tasks,
                max_delay=join.max_delay_s,
            )
    return wm.join(
        streams,
        on=join.on,
        select=join.select,
        state=str(scene.state),
        tasks=scene.tasks,
        strategy=join.strategy,
        cells=join.cells,
    )


def _stream(spark: SparkSession, scene: Scene, side: str) -> DataFrame | FileInput:
    if scene.join.native:
        # Spark packs the environment of a source's processes into it when the source is registered.
        file_frames._READY.discard(spark)
        return wm.files(scene.inputs(side), schema=SCHEMA, max_files_per_batch=1)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(scene.inputs(side)))


def _table(scene: Scene) -> Table:
    if scene.address is None:
        return wm.table(scene.table, key="k", page_rows=PAGE_ROWS, in_place=False)
    return wm.table(scene.address, key="k", table="products", page_rows=PAGE_ROWS, patience=scene.patience_s)


def start(spark: SparkSession, scene: Scene, failpoints: str = ""):
    """Start the query with these failpoints in its Python workers; it ends when all input is processed.

    With a table it does not: rows wait for batches that come without input.
    """
    with worker_environment(spark, failpoints):
        writer = joined(spark, scene).writeStream.format("parquet")
        if scene.join.max_delay_s is None:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(scene.checkpoint)).start(str(scene.out))


def run(spark: SparkSession, scene: Scene, failpoints: str = "", timeout_s: float = 150) -> None:
    """Process all that is there. Raises what the query raises."""
    query = start(spark, scene, failpoints)
    try:
        if scene.join.max_delay_s is None:
            assert query.awaitTermination(timeout_s), f"the query did not end within {timeout_s} s"
        else:
            await_answers(query, scene, timeout_s)
    finally:
        query.stop()


def await_answers(query: StreamingQuery, scene: Scene, timeout_s: float) -> None:
    """Until all rows of the input have been answered and nothing waits. Raises what the query raises."""
    deadline = time.monotonic() + timeout_s
    while not is_answered(scene):
        assert time.monotonic() < deadline, f"rows still wait after {timeout_s} s"
        assert not query.awaitTermination(0.1), "the query has ended"  # type: ignore[arg-type]


def is_answered(scene: Scene) -> bool:
    if not scene.committed_batches():
        return False
    manifest = newest(scene)
    done = scene.committed_batches() > manifest.batch.number
    return done and not waiting_rows(scene) and manifest.totals["l"].rows == rows_to_keep(scene, "l")


def newest(scene: Scene) -> Manifest:
    return life.newest(scene.files)


def rows_to_keep(scene: Scene, side: str) -> int:
    """Of one input, from its files: rows that the state holds, or held until they were answered."""
    with duckdb.connect() as con:
        inputs = f"read_parquet('{scene.inputs(side)}/*.parquet')"
        found = con.execute(f"SELECT {scene.join.kept} FROM {inputs}").fetchall()
    return int(found[0][0])


def waiting_rows(scene: Scene) -> int:
    """Rows that wait for a page of the table, as the newest manifest has it."""
    if not scene.queries.folders() or not list_manifests(scene.files):
        return 0
    pages = newest(scene).plan.scheme
    return pages.waiting_rows if isinstance(pages, PagePlan) else 0


def run_struck(spark: SparkSession, scene: Scene, point: Point, failpoints: str) -> None:
    """Some batches in peace, so that there is a history; then more with the failpoint set."""
    feed(scene, point.before)
    run(spark, scene)
    feed(scene, point.after)
    run(spark, scene, failpoints)


@contextmanager
def worker_environment(spark: SparkSession, failpoints: str) -> Iterator[None]:
    """Spark packs the environment of its Python workers into every function when a query is built."""
    environment = spark.sparkContext.environment
    environment[FAILPOINTS] = failpoints
    try:
        yield
    finally:
        del environment[FAILPOINTS]


def new_session(master: str, scratch: Path, *, configured: bool = False, **settings: str) -> SparkSession:
    """A session of our own; the settings of another one that still runs would silently win."""
    assert SparkSession.getActiveSession() is None, (
        "another Spark session runs in this process: stop it first"
    )
    builder = SparkSession.builder.master(master).appName("watersmeet faults")
    for key, value in {**SETTINGS, **settings, "spark.local.dir": str(scratch)}.items():
        builder = builder.config(key, value)
    return (wm.configure(builder) if configured else builder).getOrCreate()


def python_path() -> str:
    """Where processes that are started from here find the package and the tests."""
    return os.pathsep.join([str(Path(wm.__file__).parents[1]), str(REPOSITORY)])
