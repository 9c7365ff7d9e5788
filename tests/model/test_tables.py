"""Random lives of a join with a table on the local driver, against DuckDB over the same rows.

As in test_scripts.py: batches that crash at a named place, are replayed in a new run, and may leave a zombie. Pages
hold a few rows, so that keys fill pages and continue; rows wait, or do not. Every stream row must be answered
exactly once, whatever the arrival, the budget and the page size.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.test_scripts import KEYS, Crash
from watersmeet import failpoints, table
from watersmeet.engine import operator as engine
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import BatchId

CRASHES = [
    "run-before-write",
    "run-half-written",
    "run-written",
    "manifest-half-written",
    "manifest-written",
    "clean-half-done",
    "task-done",
]


@dataclass(frozen=True)
class Step:
    rows: list[tuple]
    crash: str | None
    zombie: bool
    pause_s: float
    # What a start after a crash is given.
    delay_s: float


@dataclass(frozen=True)
class Life:
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
def lives(draw):
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    keys = [KEYS[kind] for kind in kinds]
    row = st.tuples(*(st.none() | key for key in keys), st.integers(-2, 2))
    step = st.builds(
        Step,
        rows=st.lists(row, max_size=8),
        crash=st.none() | st.sampled_from(CRASHES),
        zombie=st.booleans(),
        pause_s=st.sampled_from([0.0, 1.0, 10.0]),
        delay_s=st.sampled_from([0.0, 5.0]),
    )
    return Life(
        kinds,
        draw(st.lists(row, max_size=14)),
        draw(st.lists(step, min_size=1, max_size=7)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.booleans()),
        draw(st.sampled_from([0.0, 5.0])),
        draw(st.sampled_from([1, 1000, 1 << 20])),
        draw(st.sampled_from(["auto", "mesh", "index"])),
    )


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(engine, "CLEAN_EVERY_BATCHES", 2)
    monkeypatch.setattr("watersmeet.kernel.pairs.PIECE_ROWS", 3)
    monkeypatch.setattr("watersmeet.kernel.pairs.OUTPUT_ROWS", 5)
    monkeypatch.setattr("watersmeet.local.join.READ_ROWS", 3)

    def act(name):
        raise Crash(name)

    monkeypatch.setattr(failpoints, "act", act)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(life=lives(), residual=st.booleans())
def test_every_row_is_answered_exactly_once(life, residual):
    with tempfile.TemporaryDirectory() as folder:
        answered, stream = live(life, Path(folder), residual)
        assert Counter(answered) == Counter(expected(life, stream, residual))


def live(life: Life, folder: Path, residual: bool) -> tuple[list[tuple], list[tuple]]:
    """Run the script; then idle batches until nothing can wait any more."""
    names = [f"k{number}" for number in range(len(life.kinds))]
    schema = pa.schema(
        [*((name, kind) for name, kind in zip(names, life.kinds, strict=True)), ("x", pa.int64())]
    )
    path = folder / "table.parquet"
    pq.write_table(columns(life.rows, schema), path)
    clock = Clock()
    on = " AND ".join(f"s.{name} = t.{name}" for name in names) + (" AND s.x < t.x" if residual else "")
    selected = [*(f"s.{name}" for name in names), "s.x", "t.x AS y"]
    join = LocalJoin(
        {"s": schema, "t": table(path, key=names, page_rows=life.page_rows, in_place=False)},
        on=on,
        select=selected,
        state=str(folder / "state"),
        tasks=life.tasks,
        settings=Settings(state=str(folder / "state"), tasks=life.tasks, run_rows=4, grace_s=0.0),
        how="left" if life.left else "inner",
        max_delay_s=life.delay_s,
        memory=life.memory,
        strategy=life.strategy,
        clock=clock,
    )
    answers: list[tuple] = []
    stream: list[tuple] = []
    for step in life.steps:
        clock.now += step.pause_s
        rows = columns(step.rows, schema)
        stream += step.rows
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
    for _ in range(3):
        clock.now += 6
        answers += tuples(join.batch(s=columns([], schema)))
    return answers, stream


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


def expected(life: Life, stream: list[tuple], residual: bool) -> list[tuple]:
    names = [f"k{number}" for number in range(len(life.kinds))]
    schema = pa.schema(
        [*((name, kind) for name, kind in zip(names, life.kinds, strict=True)), ("x", pa.int64())]
    )
    con = duckdb.connect()
    con.register("s", columns(stream, schema))
    con.register("t", columns(life.rows, schema))
    on = " AND ".join(f"s.{name} = t.{name}" for name in names) + (" AND s.x < t.x" if residual else "")
    how = "LEFT" if life.left else "INNER"
    shown = ", ".join([*(f"s.{name}" for name in names), "s.x", "t.x AS y"])
    return tuples(con.sql(f"SELECT {shown} FROM s {how} JOIN t ON {on}").to_arrow_table())
