"""Fresh rows with very many results are shared out by work: no task is much busier than the mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from papers.shared.zipf import rank_shares
from tests import life
from tests.unstable_sort import sort_unstably
from watersmeet.local.join import LocalJoin
from watersmeet.model.tally import TermTally
from watersmeet.schemes.delta.scheme import DeltaPlan, deals_late

# The columns of each input, conditions, rows of a batch, keys and batches.
PATH = {"a": "x", "b": "xy", "c": "y"}, "a.x = b.x AND b.y = c.y", 400, 2_000, 4
STAR = {"f": "wx", "a": "w", "b": "x"}, "f.w = a.w AND f.x = b.x", 500, 5_000, 4
STAR_OF_FOUR = (
    {"f": "wxy", "a": "w", "b": "x", "c": "y"},
    "f.w = a.w AND f.x = b.x AND f.y = c.y",
    250,
    20_000,
    5,
)


def arriving(rng: np.random.Generator, columns: str, rows: int, keys: int) -> pa.Table:
    """Keys by Zipf's law with alpha 1, independently in each column."""
    reached = np.cumsum(rank_shares(keys, 1.0))
    drawn = [np.minimum(np.searchsorted(reached, rng.random(rows), "right"), keys - 1) for _ in columns]
    return pa.table([np.arange(rows), *drawn], schema=schema(columns))


def schema(columns: str) -> pa.Schema:
    return pa.schema([(name, pa.int64()) for name in ("id", *columns)])


def run(state: Path, case: tuple, tasks: int) -> tuple[LocalJoin, int, dict[str, list[pa.Table]]]:
    """The join after its last batch, the number of results, and all rows."""
    inputs, on, rows, keys, batches = case
    rng, found = np.random.default_rng(1), 0
    given: dict[str, list[pa.Table]] = {name: [] for name in inputs}
    join = life.start(
        {name: schema(columns) for name, columns in inputs.items()},
        state,
        on,
        tasks=tasks,
        select=["a.id AS a"],
    )
    for _ in range(batches):
        batch = {name: arriving(rng, columns, rows, keys) for name, columns in inputs.items()}
        found += join.count(**batch)
        life.check_plan(join)
        for name, table in batch.items():
            given[name].append(table)
    return join, found, given


@pytest.mark.parametrize(
    ("case", "tasks"),
    [(PATH, 2), (PATH, 16), (PATH, 48), (STAR, 48), (STAR_OF_FOUR, 16)],
    ids=["path, 2 tasks", "path, 16 tasks", "path, 48 tasks", "star, 48 tasks", "star of four, 16 tasks"],
)
def test_no_task_is_much_busier_than_the_mean(tmp_path, case, tasks):
    join, found, given = run(tmp_path, case, tasks)
    work = np.array([task.walked for task in join.work])
    assert work.max() / work.mean() <= 1.25
    tables = {name: pa.concat_tables(parts) for name, parts in given.items()}
    query = f"SELECT count(*) FROM {', '.join(tables)} WHERE {case[1]}"
    assert life.ask_duckdb(query, **tables) == {(found,): 1}
    plan = life.newest(tmp_path).plan.scheme
    assert isinstance(plan, DeltaPlan) and bool(plan.late) == (tasks > 2)


def test_every_result_comes_out_once_however_equal_keys_are_sorted(tmp_path, monkeypatch):
    """How an unstable sort leaves equal values depends on the processor, and the tasks of a deal may have different ones."""
    rng = np.random.default_rng(1)
    sort_unstably(monkeypatch, rng)
    inputs, on, rows, keys, batches = PATH
    select = [f"{name}.id AS {name}_id" for name in inputs]
    schemas = {name: schema(columns) for name, columns in inputs.items()}
    join = life.start(schemas, tmp_path, on, tasks=16, select=select)
    given: dict[str, list[pa.Table]] = {name: [] for name in inputs}
    found = []
    for number in range(batches):
        batch = {name: arriving(rng, columns, rows, keys) for name, columns in inputs.items()}
        # Numbers of their own, so that a result that is lost and one that comes twice do not look alike.
        for name, table in batch.items():
            ids = pa.array(np.arange(rows) + number * rows)
            given[name].append(table.set_column(0, "id", ids))
        found.append(join.batch(**{name: parts[-1] for name, parts in given.items()}))
    plan = life.newest(tmp_path).plan.scheme
    assert isinstance(plan, DeltaPlan) and plan.late, "nothing was dealt late"
    tables = {name: pa.concat_tables(parts) for name, parts in given.items()}
    results = pa.concat_tables(found)
    expected = life.ask_duckdb(f"SELECT {', '.join(select)} FROM {', '.join(tables)} WHERE {on}", **tables)
    assert life.multiset(results) == expected


def test_without_late_deals_they_would_be(tmp_path, monkeypatch):
    """Otherwise the test above tests nothing."""
    monkeypatch.setattr("watersmeet.schemes.delta.scheme.deals_late", lambda *_: False)
    join, _, _ = run(tmp_path, STAR_OF_FOUR, 16)
    work = np.array([task.walked for task in join.work])
    assert work.max() / work.mean() > 2


def test_terms_of_little_work_are_dealt_at_once():
    little = [TermTally("a", 100, 200, 300)] * 8
    total = TermTally("a", 800, 1600, 2400)
    works = [one.work for one in little]
    assert not deals_late(works, total, False, 16)
    assert deals_late([], None, True, 16) and not deals_late([], None, False, 16)
    assert not deals_late([10**6], TermTally("a", 1, 0, 10**6), True, 7)
    # Between the borders it stays as it is.
    between = TermTally("a", 10, 0, 10 * 16 * 3)
    assert deals_late([between.work] * 8, between, True, 16)
    assert not deals_late([between.work] * 8, between, False, 16)
