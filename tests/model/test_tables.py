"""Random lives of a join with a table on the local driver, against DuckDB over the same rows.

As in test_scripts.py: batches that crash at a named place, are replayed in a new run, and may leave a zombie. Pages
hold a few rows, so that keys fill pages and continue; rows wait, or do not. Every stream row must be answered
exactly once, whatever the arrival, the budget and the page size, and wherever the table is.

The table may change between two batches. Files: a row is answered by the version that its batch was located in, which
its manifest names, however long it waits. A database: by what it holds as the batch runs, if nothing may be old.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.plans import check_plan
from tests.model.test_scripts import KEYS, Crash
from tests.property.pages_helpers import rank
from watersmeet import failpoints, table
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import BatchId
from watersmeet.model.limits import Limits
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.tables import prepare
from watersmeet.tables.parquet import find_files
from watersmeet.tables.spec import Table

CRASHES = [
    "run-before-write",
    "run-half-written",
    "run-written",
    "manifest-half-written",
    "manifest-written",
    "clean-half-done",
    "task-done",
]


SORTED_COPY, IN_PLACE, SQLITE = "sorted copy", "in place", "sqlite"
# What SQLite keeps as it is.
DECLARED = {pa.int64(): "INTEGER", pa.string(): "TEXT", pa.binary(): "BLOB"}


@dataclass(frozen=True)
class Step:
    rows: list[tuple]
    # What the table has from now on.
    change: list[tuple] | None
    crash: str | None
    zombie: bool
    pause_s: float
    # What a start after a crash is given.
    delay_s: float


@dataclass(frozen=True)
class Life:
    place: str
    refresh_s: float | None
    kinds: list[pa.DataType]
    rows: list[tuple]
    steps: list[Step]
    tasks: int
    page_rows: int
    left: bool
    delay_s: float
    memory: int
    strategy: str


@st.composite
def lives(draw, place):
    """Rows are drawn by a seed, their keys from a few: Hypothesis likes short lists, and keys that do not meet."""
    # Files that are read in place must stay: what was located in them is gone with them.
    changes = place != IN_PLACE and draw(st.booleans())
    # Which of its contents a database answers a row with that waits is not known from outside.
    waits = place == SORTED_COPY or (place == SQLITE and not changes)
    delays = st.sampled_from([0.0, 5.0]) if waits else st.just(0.0)
    refreshes = st.just(0.0) if place == SQLITE and changes else st.sampled_from([None, 0.0, 5.0])
    kinds = draw(
        st.lists(st.sampled_from(list(DECLARED if place == SQLITE else KEYS)), min_size=1, max_size=2)
    )
    keys = [KEYS[kind] for kind in kinds]
    pool = draw(st.lists(st.tuples(*(st.none() | key for key in keys)), min_size=1, max_size=6))

    def rows(most: int) -> st.SearchStrategy[list[tuple]]:
        return st.integers(0, 2**32).map(lambda seed: _rows(random.Random(seed), pool, most))

    contents = rows(14)
    step = st.builds(
        Step,
        rows=rows(8),
        change=st.none() | contents if changes else st.none(),
        crash=st.none() | st.sampled_from(CRASHES),
        zombie=st.booleans(),
        pause_s=st.sampled_from([0.0, 1.0, 10.0]),
        delay_s=delays,
    )
    return Life(
        place,
        draw(refreshes),
        kinds,
        draw(contents),
        draw(st.lists(step, min_size=1, max_size=7)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.booleans()),
        draw(delays),
        draw(st.sampled_from([1, 1000, 1 << 20])),
        draw(st.sampled_from(["auto", "mesh", "index"])),
    )


def _rows(rng: random.Random, keys: list[tuple], most: int) -> list[tuple]:
    return [(*rng.choice(keys), rng.randint(-2, 2)) for _ in range(rng.randint(0, most))]


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


TINY = Limits(
    clean_every_batches=2,
    piece_rows=3,
    output_rows=5,
    page_read_rows=3,
    # Of the small pages here some are read and some are not.
    rows_per_lookup=2,
)


@pytest.fixture(autouse=True)
def crashing(monkeypatch):
    def act(name):
        raise Crash(name)

    monkeypatch.setattr(failpoints, "act", act)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@pytest.mark.parametrize("place", [SORTED_COPY, IN_PLACE, SQLITE])
@given(data=st.data(), residual=st.booleans())
def test_every_row_is_answered_exactly_once(place, data, residual):
    life = data.draw(lives(place))
    with tempfile.TemporaryDirectory() as folder:
        answered, asked = live(life, Path(folder), residual)
        assert Counter(answered) == Counter(expected(life, asked, residual))


OLD, NEW = [(key, 1) for key in range(6)], [(key + 3, 2) for key in range(6)]
# One of each page: they wait for two batches, if they may.
ASKED = [(key, 0) for key in range(0, 9, 2)]


@pytest.mark.parametrize("crash", [None, "manifest-written"])
@pytest.mark.parametrize(
    ("place", "refresh_s", "delay_s"),
    [
        (SQLITE, 0.0, 0.0),
        (SORTED_COPY, 0.0, 0.0),
        (SORTED_COPY, 5.0, 0.0),
        (SORTED_COPY, 0.0, 5.0),
        (SORTED_COPY, 5.0, 5.0),
    ],
)
def test_a_row_is_answered_by_the_table_that_it_was_located_in(tmp_path, place, refresh_s, delay_s, crash):
    """Pages that are kept, rows that wait, and a table that changes under both, though not in size."""
    quiet = Step(ASKED, None, None, zombie=False, pause_s=2.0, delay_s=delay_s)
    steps = [quiet] * 16
    steps[2] = replace(quiet, change=NEW, crash=crash)
    steps[8] = replace(quiet, change=OLD)
    life = Life(place, refresh_s, [pa.int64()], OLD, steps, 2, 2, True, delay_s, 1 << 20, "auto")
    answered, asked = live(life, tmp_path, residual=False)
    assert Counter(answered) == Counter(expected(life, asked, residual=False))
    used = [OLD if content == OLD else NEW for _, content in asked]
    assert NEW in used and used[-1] == OLD, "the changes were not seen"


@dataclass
class Place:
    """Where the table is, and all that it ever held."""

    life: Life
    folder: Path
    schema: pa.Schema
    contents: list[list[tuple]] = field(default_factory=list)
    # Folders of the state, and which of the contents each was made from.
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        keys, rows = self.schema.names[:-1], self.life.page_rows
        if self.life.place == SQLITE:
            address = f"sqlite:///{self.folder / 'shop.db'}"
            return table(address, key=keys, table="t", page_rows=rows, refresh=self.life.refresh_s)
        in_place = self.life.place == IN_PLACE
        path = self.folder / "table.parquet"
        return table(path, key=keys, page_rows=rows, in_place=in_place, refresh=self.life.refresh_s)

    def fill(self, rows: list[tuple]) -> None:
        self.contents.append(rows)
        if self.life.place == SQLITE:
            self._store(rows)
            return
        path = self.folder / "table.parquet"
        if self.life.place == IN_PLACE:
            rows = sorted(rows, key=lambda row: [(key is None, rank((key,))) for key in row[:-1]])
        pq.write_table(columns(rows, self.schema), path, row_group_size=self.life.page_rows)
        # Clocks of filesystems are coarse.
        at_ns = (1_700_000_000 + len(self.contents)) * 10**9
        os.utime(path, ns=(at_ns, at_ns))
        address = self.table.address
        assert address is not None
        self.versions[prepare.files_folder(self.table, find_files(address))] = len(self.contents) - 1

    def _store(self, rows: list[tuple]) -> None:
        with contextlib.closing(sqlite3.connect(self.folder / "shop.db")) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")
            named = [f"{f.name} {DECLARED[f.type]}" for f in self.schema]
            connection.execute(f"CREATE TABLE IF NOT EXISTS t ({', '.join(named)})")
            connection.execute(f"CREATE INDEX IF NOT EXISTS i ON t ({', '.join(self.schema.names[:-1])})")
            connection.execute("DELETE FROM t")
            connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(self.schema))})", rows)

    def used(self, join: LocalJoin) -> int:
        """Which of the contents the rows of the last batch are answered with."""
        if self.life.place == SQLITE:
            return len(self.contents) - 1
        files = LocalFiles(self.folder / "state" / join.operator.spec.name / join.query)
        (name,) = [
            one for one in list_manifests(files) if (one.run, one.batch) == (join.run, join.number - 1)
        ]
        pages = read_manifest(files, name).plan.scheme
        assert isinstance(pages, PagePlan)
        return self.versions[pages.table.folder]


# Stream rows, and what the table held for them.
Asked = list[tuple[list[tuple], list[tuple]]]


def live(life: Life, folder: Path, residual: bool) -> tuple[list[tuple], Asked]:
    """Run the script; then idle batches until nothing can wait any more."""
    names = [f"k{number}" for number in range(len(life.kinds))]
    schema = schema_of(life)
    place = Place(life, folder, schema)
    place.fill(life.rows)
    clock = Clock()
    on = " AND ".join(f"s.{name} = t.{name}" for name in names) + (" AND s.x < t.x" if residual else "")
    selected = [*(f"s.{name}" for name in names), "s.x", "t.x AS y"]
    join = LocalJoin(
        {"s": schema, "t": place.table},
        on=on,
        select=selected,
        state=str(folder / "state"),
        tasks=life.tasks,
        settings=Settings(
            state=str(folder / "state"), tasks=life.tasks, run_rows=4, grace_s=0.0, limits=TINY
        ),
        how="left" if life.left else "inner",
        max_delay_s=life.delay_s,
        memory=life.memory,
        strategy=life.strategy,
        clock=clock,
    )
    answers: list[tuple] = []
    asked: Asked = []
    for step in life.steps:
        clock.now += step.pause_s
        if step.change is not None:
            place.fill(step.change)
            # What was read at this very moment is not old.
            clock.now += 0.001
        rows = columns(step.rows, schema)
        if step.crash:
            # Whether or not the place is reached: Spark has not committed the batch, so it comes again.
            dead, number = join, join.number
            failpoints._POINTS = {step.crash: ("crash", None)}
            with contextlib.suppress(Crash):
                dead.batch(s=rows)
            failpoints._POINTS = {}
            join = replace(dead.restarted(at=number), max_delay_s=step.delay_s)
            if step.zombie:
                zombie(dead, number, rows)
        answers += tuples(join.batch(s=rows))
        check_plan(join, join.number - 1)
        asked.append((step.rows, place.contents[place.used(join)]))
    for _ in range(3):
        clock.now += 6
        answers += tuples(join.batch(s=columns([], schema)))
        check_plan(join, join.number - 1)
    return answers, asked


def zombie(dead: LocalJoin, number: int, rows: pa.Table) -> None:
    """A task of the old run that wakes up late: whatever it does, nobody takes its results."""
    batch = BatchId(dead.query, dead.run, number)
    with contextlib.suppress(Exception):
        descriptor = dead.ingest(batch, "s", rows)
        list(dead.operator.join(batch, 0, [descriptor]))


def columns(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(values, schema, strict=True)],
        schema=schema,
    )


def tuples(found: pa.Table) -> list[tuple]:
    return [normal(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)]


def normal(row: tuple) -> tuple:
    """NaN is one value here, and -0.0 is 0.0."""
    return tuple(
        "nan" if value != value else value + 0.0 if isinstance(value, float) else value for value in row
    )


def schema_of(life: Life) -> pa.Schema:
    keys = ((f"k{number}", kind) for number, kind in enumerate(life.kinds))
    return pa.schema([*keys, ("x", pa.int64())])


def expected(life: Life, asked: Asked, residual: bool) -> Iterator[tuple]:
    names = [f"k{number}" for number in range(len(life.kinds))]
    schema = schema_of(life)
    on = " AND ".join(f"s.{name} = t.{name}" for name in names) + (" AND s.x < t.x" if residual else "")
    how = "LEFT" if life.left else "INNER"
    shown = ", ".join([*(f"s.{name}" for name in names), "s.x", "t.x AS y"])
    with duckdb.connect() as con:
        for stream, content in asked:
            con.register("s", columns(stream, schema))
            con.register("t", columns(content, schema))
            yield from tuples(con.sql(f"SELECT {shown} FROM s {how} JOIN t ON {on}").to_arrow_table())
