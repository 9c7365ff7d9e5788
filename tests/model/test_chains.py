"""Random lives of joins with tables among many inputs on the local driver, against DuckDB over the same rows.

A batch may crash at a place that any of the stages passes, and is then replayed in a new start; the dead start may run it
once more, as a zombie. Every combination must come out exactly once, in the batch in which its last row arrives.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests import life
from watersmeet.errors import PredicateError, StateInUse, StateMismatch
from watersmeet.local.join import LocalJoin
from watersmeet.log.names import join_of
from watersmeet.tables import copying
from watersmeet.tables.spec import Table

# Places that a stage passes once or more in a batch.
CRASHES = ["run-written", "manifest-written", "merge-part-written", "result-emitted", "task-done"]

STREAM = pa.schema({"n": pa.int64(), "k": pa.int64(), "x": pa.int64(), "t": pa.string()})
TABLE = pa.schema({"id": pa.int64(), "j": pa.int64(), "v": pa.int64(), "t": pa.string()})


@dataclass(frozen=True)
class Case:
    """A join: its inputs in order (streams s, c, d and tables p, g), its condition, and for `left` the query."""

    names: str
    on: str
    left: str | None = None
    keys: str = "id"

    @property
    def streams(self) -> list[str]:
        return [name for name in self.names if name in "scd"]

    @property
    def tables(self) -> list[str]:
        return [name for name in self.names if name not in "scd"]


CASES = [
    Case("scp", "s.k = c.k AND s.x = p.id", "s JOIN c ON s.k = c.k LEFT JOIN p ON s.x = p.id"),
    Case(
        "pgs",
        "s.k = p.id AND s.x = g.id AND p.v <= g.v",
        "s LEFT JOIN p ON s.k = p.id LEFT JOIN g ON s.x = g.id AND p.v <= g.v",
    ),
    # A table found by another one's column, and conditions over both streams and tables.
    Case(
        "gscp",
        "p.j = g.id AND s.x = p.id AND s.k = c.k AND c.x > g.v AND s.x + c.x >= p.v",
    ),
    Case(
        "gscp",
        "p.j = g.id AND s.x = p.id AND s.k = c.k AND g.v < p.v AND s.x <> 1",
        "s JOIN c ON s.k = c.k AND s.x <> 1 LEFT JOIN p ON s.x = p.id LEFT JOIN g ON p.j = g.id AND g.v < p.v",
    ),
    # Streams that only a table joins.
    Case("spc", "s.k = p.id AND p.j = c.k"),
    # Keys of both streams: after their join.
    Case("pscg", "s.k = c.k AND s.x + c.x = p.id AND p.j = g.id AND c.k = g.j", keys="id"),
    Case("spc", "s.k < c.k AND s.x = p.id AND c.x = p.j AND s.t = p.t", keys="id j"),
    # Three streams, on one key and along a path.
    Case("scdpg", "s.k = c.k AND c.k = d.k AND c.x = p.id AND d.x = g.id AND g.t = p.t"),
    Case("pscd", "s.k = c.x AND c.k = d.x AND d.k = p.id AND p.v < s.x"),
]


@dataclass(frozen=True)
class Step:
    seed: int
    crash: str | None
    passed: int
    zombie: bool


@dataclass(frozen=True)
class Script:
    case: Case
    left: bool
    shaped: bool
    tasks: int
    page_rows: int
    seed: int
    steps: list[Step]


@st.composite
def scripts(draw) -> Script:
    case = draw(st.sampled_from(CASES))
    step = st.builds(
        Step,
        seed=st.integers(0, 2**32),
        crash=st.none() | st.sampled_from(CRASHES),
        passed=st.integers(0, 8),
        zombie=st.booleans(),
    )
    return Script(
        case,
        case.left is not None and draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(0, 2**32)),
        draw(st.lists(step, min_size=1, max_size=5)),
    )


def draw_rows(rng: random.Random, schema: pa.Schema, count: int, nulls: float = 0.1) -> pa.Table:
    def value(field: pa.Field) -> object:
        if field.name == "n":
            return rng.randrange(10**9)
        if pa.types.is_string(field.type):
            return rng.choice(["a", "b"])
        return None if rng.random() < nulls else rng.randrange(4)

    return pa.Table.from_pylist([{f.name: value(f) for f in schema} for _ in range(count)], schema=schema)


def select_of(case: Case) -> list[str]:
    return [
        *(f"{name}.n AS {name}_n" for name in case.streams),
        *(f"{name}.{column} AS {name}_{column}" for name in case.tables for column in ("id", "v", "t")),
    ]


def results(found: pa.Table, shaped: bool, case: Case) -> Counter[life.Row]:
    """The columns of `select_of`, from structs if there are any."""
    if shaped:
        return life.multiset(found)
    assert found.column_names == list(case.names)
    rows = found.to_pylist()
    return Counter(
        (
            *(row[name]["n"] for name in case.streams),
            *(row[name][column] for name in case.tables for column in ("id", "v", "t")),
        )
        for row in rows
    )


def expected(
    case: Case, left: bool, rows: dict[str, pa.Table], tables: dict[str, pa.Table]
) -> Counter[life.Row]:
    source = case.left if left else f"{', '.join(case.names)} WHERE {case.on}"
    return life.ask_duckdb(f"SELECT {', '.join(select_of(case))} FROM {source}", **rows, **tables)


def start(
    case: Case, folder: Path, tables: dict[str, pa.Table], tasks: int, page_rows: int, **how
) -> LocalJoin:
    inputs: dict[str, pa.Schema | Table] = {}
    for name in case.names:
        inputs[name] = STREAM
        if name in tables:
            pq.write_table(tables[name], folder / f"{name}.parquet")
            inputs[name] = wm.table(
                folder / f"{name}.parquet",
                key=case.keys.split() if name == "p" else "id",
                page_rows=page_rows,
            )
    return life.start(
        inputs, folder / "state", case.on, tasks=tasks, settings={"limits": life.TINY}, partitions=2, **how
    )


def run_through(
    join: LocalJoin, rows: dict[str, pa.Table], step: Step, *, after_zombie: bool
) -> tuple[LocalJoin, pa.Table]:
    try:
        with life.crash_at(step.crash, step.passed):
            return join, join.batch(**rows)
    except life.Crash:
        dead, join = join, life.restarted(join)
    except StateInUse:
        # The zombie had not claimed a later stage yet. It did so when it woke up, and looks like a later start there.
        assert after_zombie
        dead, join = join, life.restarted(join)
    found = join.batch(**rows)
    if step.zombie:
        # Nobody reads its results.
        with contextlib.suppress(StateInUse):
            dead.batch(**rows)
    return join, found


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=12)
@given(scripts())
def test_lives_of_joins_with_tables_give_the_full_join(script):
    case, rng = script.case, random.Random(script.seed)
    tables = {name: draw_rows(rng, TABLE, 8) for name in case.tables}
    empty = {name: STREAM.empty_table() for name in case.streams}
    with tempfile.TemporaryDirectory() as place:
        how = {
            "select": select_of(case) if script.shaped else None,
            "how": "left" if script.left else "inner",
        }
        join = start(case, Path(place), tables, script.tasks, script.page_rows, **how)
        so_far, before, after_zombie = dict(empty), Counter(), False
        for step in script.steps:
            drawn = random.Random(step.seed)
            rows = {name: draw_rows(drawn, STREAM, drawn.choice([0, 3, 8])) for name in case.streams}
            join, found = run_through(join, rows, step, after_zombie=after_zombie)
            after_zombie |= step.zombie
            so_far = {name: pa.concat_tables([so_far[name], rows[name]]) for name in rows}
            now = expected(case, script.left, so_far, tables)
            assert not life.difference(results(found, script.shaped, case), now - before)
            before = now
        # A copy of a table may still be made in the folder that goes away now.
        copying.wait()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.on)
def test_each_kind_of_chain_gives_the_full_join(tmp_path, case):
    """Every case once, so that none depends on what Hypothesis draws."""
    rng = random.Random(case.on)
    tables = {name: draw_rows(rng, TABLE, 12) for name in case.tables}
    join = start(case, tmp_path, tables, 2, 3)
    batches = [{name: draw_rows(rng, STREAM, 10) for name in case.streams} for _ in range(2)]
    found = sum((results(join.batch(**rows), False, case) for rows in batches), Counter())
    whole = {name: pa.concat_tables([rows[name] for rows in batches]) for name in case.streams}
    assert found.total() > 0
    assert not life.difference(found, expected(case, False, whole, tables))


def test_a_row_has_the_version_of_the_table_at_the_time_of_its_lookup(tmp_path):
    """p is looked up when the row of s comes, g when the result comes out."""
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    for name in "pg":
        database.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, v INTEGER)")
        database.execute(f"INSERT INTO {name} VALUES (1, 10), (2, 20)")
    uri = f"sqlite:///{tmp_path}/shop.db"
    table = {name: wm.table(uri, key="id", table=name, refresh=0) for name in "pg"}
    join = life.start(
        {"s": STREAM, "c": STREAM, **table},
        tmp_path / "state",
        "s.k = c.k AND s.x = p.id AND s.x + c.x = g.id",
        select=["p.v AS p", "g.v AS g"],
    )
    one = pa.table({"n": [1], "k": [7], "x": [1], "t": ["a"]})
    assert join.batch(s=one).num_rows == 0
    database.execute("UPDATE p SET v = 11 WHERE id = 1")
    database.execute("UPDATE g SET v = 21 WHERE id = 2")
    assert join.batch(c=one).to_pylist() == [{"p": 10, "g": 21}]
    database.close()


def test_windows_over_time_and_rows(tmp_path):
    rng, case = random.Random(4), CASES[0]
    tables = {"p": draw_rows(rng, TABLE, 6)}
    # Rows without a key are not stored, so they would not count.
    batches = [{name: draw_rows(rng, STREAM, 8, nulls=0) for name in "sc"} for _ in range(4)]
    # Times that only grow: no row is late.
    for number, rows in enumerate(batches):
        for name in "sc":
            times = pa.array([10 * number + rng.randrange(10) for _ in range(8)])
            rows[name] = rows[name].set_column(0, "n", times)
    (tmp_path / "time").mkdir()
    (tmp_path / "rows").mkdir()
    over_time = start(case, tmp_path / "time", tables, 2, 2, within=6, time={"s": "n", "c": "n"}, lateness=10)
    found = sum((results(over_time.batch(**rows), False, case) for rows in batches), Counter())
    whole = {name: pa.concat_tables([rows[name] for rows in batches]) for name in "sc"}
    near = Case("scp", f"{case.on} AND abs(s.n - c.n) <= 6")
    assert not life.difference(found, expected(near, False, whole, tables))

    over_rows = start(case, tmp_path / "rows", tables, 2, 2, within="3 rows", how="left")
    before = {name: STREAM.empty_table() for name in "sc"}
    for rows in batches:
        last = {name: before[name].slice(max(0, len(before[name]) - 3)) for name in "sc"}
        both = {name: pa.concat_tables([last[name], rows[name]]) for name in "sc"}
        with_old = expected(case, True, last, tables)
        assert not life.difference(
            results(over_rows.batch(**rows), False, case), expected(case, True, both, tables) - with_old
        )
        before = {name: pa.concat_tables([before[name], rows[name]]) for name in "sc"}


def test_two_streams_with_fourteen_tables(tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "v": [10, 20]}), tmp_path / "t.parquet")
    table = wm.table(tmp_path / "t.parquet", key="id")
    names = [f"t{number}" for number in range(14)]
    on = " AND ".join(["s.k = c.k", *(f"{'sc'[at % 2]}.x = {name}.id" for at, name in enumerate(names))])
    select = ["s.n", *(f"{name}.v AS {name}" for name in names)]
    inputs = {"s": STREAM, "c": STREAM, **dict.fromkeys(names, table)}
    join = life.start(inputs, tmp_path / "state", on, tasks=1, select=select)
    one = pa.table({"n": [1], "k": [7], "x": [1], "t": ["a"]})
    found = join.batch(s=one, c=one.set_column(2, "x", pa.array([2]))).to_pylist()
    assert found == [{"n": 1, **{name: [10, 20][at % 2] for at, name in enumerate(names)}}]


def test_rows_that_wait_for_a_page_come_out_once_and_in_time(tmp_path):
    rng, clock = random.Random(8), life.Clock()
    case = Case("scp", "s.k = c.k AND s.x = p.id")
    tables = {"p": draw_rows(rng, TABLE, 8)}
    join = start(case, tmp_path, tables, 2, 2, max_delay=5.0, clock=clock)
    found, rows = Counter(), {name: draw_rows(rng, STREAM, 8) for name in "sc"}
    found += results(join.batch(**rows), False, case)
    join = life.restarted(join)
    clock.now += 6
    found += results(join.batch(), False, case)
    clock.now += 6
    found += results(join.batch(), False, case)
    assert not life.difference(found, expected(case, False, rows, tables))


@pytest.mark.parametrize(
    ("names", "on"),
    [("scp", "s.k = c.k AND s.x + c.x = p.id"), ("scp", "s.k = c.k AND s.x = p.id")],
    ids=["in the results", "first"],
)
def test_a_table_is_not_taken_out_while_rows_wait_for_it(tmp_path, names, on):
    """They would never come out."""
    rng, clock = random.Random(8), life.Clock()
    case = Case(names, on)
    tables = {"p": draw_rows(rng, TABLE, 8)}
    rows = {name: draw_rows(rng, STREAM, 8) for name in "sc"}
    join = start(case, tmp_path, tables, 2, 2, max_delay=5.0, clock=clock)
    assert not results(join.batch(**rows), False, case)
    without = Case("sc", "s.k = c.k")
    shorter = start(without, tmp_path, {}, 2, 2, clock=clock, number=join.number)
    with pytest.raises(StateMismatch, match=r"table p was taken out of the join join while [0-9]+ rows wait"):
        shorter.batch(**rows)
    # With the table they come out. Then it can go, if the streams' join is the same without it.
    clock.now += 6
    again = life.restarted(join)
    assert results(again.batch(), False, case) == expected(case, False, rows, tables)
    last = start(without, tmp_path, {}, 2, 2, clock=clock, number=again.number)
    with contextlib.nullcontext() if "c.x" in on else pytest.raises(StateMismatch, match="its predicate was"):
        last.batch(**rows)


def test_the_status_shows_the_stages_of_a_join(tmp_path):
    case = Case("gscp", "p.j = g.id AND s.x = p.id AND s.k = c.k")
    rng = random.Random(2)
    join = start(case, tmp_path, {name: draw_rows(rng, TABLE, 8) for name in "gp"}, 2, 2)
    join.batch(s=draw_rows(rng, STREAM, 8), c=draw_rows(rng, STREAM, 8))
    found = {one.name: one for one in wm.status(tmp_path / "state").joins}
    assert list(found) == ["join", "join~g", "join~p"]
    assert [one.part_of for one in found.values()] == [None, "join", "join"]
    assert [one.strategy for one in found.values()] == ["hypercube", "table", "table"]
    assert join_of("join~p") == "join"


def test_what_a_stage_refuses_is_told_in_the_users_words(tmp_path):
    case = Case("scp", "s.k = c.k AND s.x = p.id AND upper(p.t) = c.t")
    with pytest.raises(PredicateError, match="only Spark can") as refused:
        start(case, tmp_path, {"p": draw_rows(random.Random(1), TABLE, 3)}, 2, 2)
    assert refused.value.text == case.on
    assert "s.p.t" not in str(refused.value) and "`" not in str(refused.value)
    case = Case("scp", "s.k = c.k AND s.x = p.id AND upper(s.t) = p.t")
    with pytest.raises(PredicateError, match='how="left" keeps rows without a partner') as refused:
        start(case, tmp_path, {"p": draw_rows(random.Random(1), TABLE, 3)}, 2, 2, how="left")
    assert refused.value.text == case.on
    case = Case("scp", "s.k = c.k AND s.x + c.x = p.t", keys="t")
    with pytest.raises(PredicateError, match="the table is not sorted by that type") as refused:
        start(case, tmp_path, {"p": draw_rows(random.Random(1), TABLE, 3)}, 2, 2)
    assert refused.value.text == case.on
    assert "joined" not in str(refused.value)
