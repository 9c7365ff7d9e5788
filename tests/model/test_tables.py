"""Random lives of a join with a table on the local driver, against DuckDB over the same rows.

As in stream_scripts.py: batches that crash at a named place, are replayed in a new run, and may leave a zombie. Pages
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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import life
from tests.model.stream_scripts import KEYS
from tests.property.pages_helpers import rank
from watersmeet import table
from watersmeet.local.join import LocalJoin
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.tables import copying, prepare
from watersmeet.tables.catalogue import copy_folder
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
# In place until a copy of it is ready, which is made beside the batches.
COPIED = "copied"
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
class Script:
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

    @property
    def keys(self) -> list[str]:
        return [f"k{number}" for number in range(len(self.kinds))]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*zip(self.keys, self.kinds, strict=True), ("x", pa.int64())])

    @property
    def select(self) -> list[str]:
        return [*(f"s.{key}" for key in self.keys), "s.x", "t.x AS y"]

    def on(self, residual: bool) -> str:
        return " AND ".join([*(f"s.{key} = t.{key}" for key in self.keys), *["s.x < t.x"] * residual])


@st.composite
def lives(draw, place):
    """Rows are drawn by a seed, their keys from a few: Hypothesis likes short lists, and keys that do not meet."""
    # Files that are read in place must stay: what was located in them is gone with them.
    changes = place not in (IN_PLACE, COPIED) and draw(st.booleans())
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
    return Script(
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
        "auto" if place == COPIED else draw(st.sampled_from(["auto", "mesh", "index"])),
    )


def _rows(rng: random.Random, keys: list[tuple], most: int) -> list[tuple]:
    return [(*rng.choice(keys), rng.randint(-2, 2)) for _ in range(rng.randint(0, most))]


# Of the small pages here some are read and some are not.
TINY = replace(life.TINY, page_read_rows=3, rows_per_lookup=2, copy_reads=0.5)


@life.LIVES
@pytest.mark.parametrize("place", [SORTED_COPY, IN_PLACE, COPIED, SQLITE])
@given(data=st.data(), residual=st.booleans())
def test_every_row_is_answered_exactly_once(place, data, residual):
    script = data.draw(lives(place))
    with tempfile.TemporaryDirectory() as folder:
        answered, asked = live(script, Path(folder), residual)
        assert Counter(answered) == Counter(expected(script, asked, residual))


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
    script = Script(place, refresh_s, [pa.int64()], OLD, steps, 2, 2, True, delay_s, 1 << 20, "auto")
    answered, asked = live(script, tmp_path, residual=False)
    assert Counter(answered) == Counter(expected(script, asked, residual=False))
    used = [OLD if content == OLD else NEW for _, content in asked]
    assert NEW in used and used[-1] == OLD, "the changes were not seen"


@dataclass
class Place:
    """Where the table is, and all that it ever held."""

    script: Script
    folder: Path
    schema: pa.Schema
    contents: list[list[tuple]] = field(default_factory=list)
    # Folders of the state, and which of the contents each was made from.
    versions: dict[str, int] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        keys, rows = self.schema.names[:-1], self.script.page_rows
        if self.script.place == SQLITE:
            address = f"sqlite:///{self.folder / 'shop.db'}"
            return table(address, key=keys, table="t", page_rows=rows, refresh=self.script.refresh_s)
        in_place = {IN_PLACE: True, COPIED: None}.get(self.script.place, False)
        path = self.folder / "table.parquet"
        return table(path, key=keys, page_rows=rows, in_place=in_place, refresh=self.script.refresh_s)

    def fill(self, rows: list[tuple]) -> None:
        self.contents.append(rows)
        if self.script.place == SQLITE:
            self._store(rows)
            return
        path = self.folder / "table.parquet"
        if self.script.place == IN_PLACE:
            rows = sorted(rows, key=lambda row: [(key is None, rank((key,))) for key in row[:-1]])
        # One row group may be as small as it is, without `in_place=True`.
        group_rows = None if self.script.place == COPIED else self.script.page_rows
        pq.write_table(columns(rows, self.schema), path, row_group_size=group_rows)
        # Clocks of filesystems are coarse.
        at_ns = (1_700_000_000 + len(self.contents)) * 10**9
        os.utime(path, ns=(at_ns, at_ns))
        address = self.table.address
        assert address is not None
        folder = prepare.files_folder(self.table, find_files(address))
        self.versions |= dict.fromkeys((folder, copy_folder(folder)), len(self.contents) - 1)

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
        if self.script.place == SQLITE:
            return len(self.contents) - 1
        last = replace(life.batch_of(join), number=join.number - 1)
        files = life.files_of(self.folder / "state", join.operator.spec.name)
        (pages,) = [one.plan.scheme for one in life.manifests(files) if one.batch == last]
        assert isinstance(pages, PagePlan)
        return self.versions[pages.table.folder]


# Stream rows, and what the table held for them.
Asked = list[tuple[list[tuple], list[tuple]]]


def live(script: Script, folder: Path, residual: bool) -> tuple[list[tuple], Asked]:
    """Run the script; then idle batches until nothing can wait any more."""
    schema = script.schema
    place = Place(script, folder, schema)
    place.fill(script.rows)
    clock = life.Clock()
    join = life.start(
        {"s": schema, "t": place.table},
        folder / "state",
        script.on(residual),
        select=script.select,
        tasks=script.tasks,
        settings={"run_rows": 4, "grace_s": 0.0, "limits": TINY},
        how="left" if script.left else "inner",
        max_delay=script.delay_s,
        memory=script.memory,
        strategy=script.strategy,
        clock=clock,
    )
    answers: list[tuple] = []
    asked: Asked = []
    for step in script.steps:
        clock.now += step.pause_s
        if step.change is not None:
            place.fill(step.change)
            # What was read at this very moment is not old.
            clock.now += 0.001
        rows = columns(step.rows, schema)
        if step.crash:
            # Whether or not the place is reached: Spark has not committed the batch, so it comes again.
            dead, number = join, join.number
            with contextlib.suppress(life.Crash), life.crash_at(step.crash):
                dead.batch(s=rows)
            dead.number = number
            join = life.restarted(dead, max_delay=step.delay_s)
            if step.zombie:
                wake(dead, rows)
        answers += feed(join, rows)
        asked.append((step.rows, place.contents[place.used(join)]))
    for _ in range(3):
        clock.now += 6
        answers += feed(join, columns([], schema))
    return answers, asked


def feed(join: LocalJoin, rows: pa.Table) -> list[tuple]:
    answers = tuples(join.batch(s=rows))
    life.check_plan(join)
    copying.wait()
    return answers


def wake(dead: LocalJoin, rows: pa.Table) -> None:
    """A task of the old start that wakes up late: whatever it does, nobody takes its results."""
    with contextlib.suppress(Exception):
        batch = life.batch_of(dead)
        list(dead.operator.join(batch, 0, [life.ingest(dead, batch, "s", rows)]))


def columns(rows: list[tuple], schema: pa.Schema) -> pa.Table:
    values = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [pa.array(list(column), field.type) for column, field in zip(values, schema, strict=True)],
        schema=schema,
    )


def tuples(found: pa.Table) -> list[tuple]:
    return [normal(row) for row in life.rows_of(found)]


def normal(row: tuple) -> tuple:
    """NaN is one value here, and -0.0 is 0.0."""
    return tuple(
        "nan" if value != value else value + 0.0 if isinstance(value, float) else value for value in row
    )


def expected(script: Script, asked: Asked, residual: bool) -> Iterator[tuple]:
    how = "LEFT" if script.left else "INNER"
    query = f"SELECT {', '.join(script.select)} FROM s {how} JOIN t ON {script.on(residual)}"
    with life.oracle() as con:
        for stream, content in asked:
            con.register("s", columns(stream, script.schema))
            con.register("t", columns(content, script.schema))
            yield from tuples(con.sql(query).to_arrow_table())
