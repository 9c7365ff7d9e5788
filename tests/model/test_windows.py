"""Random lives of joins with a window on the local driver, against a brute-force reading of the rules.

Scripts and oracle are in window_scripts.py. Thresholds are tiny, so that a few dozen rows are merged, rewritten and evicted. Batches crash
and are replayed; the query is rolled back over several batches and goes through them once more.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests import life
from tests.model.window_scripts import CASES, ROWS, TIMES, Oracle, Script, Step, scripts
from watersmeet.errors import StateMismatch
from watersmeet.local.join import LocalJoin
from watersmeet.model.limits import Limits
from watersmeet.schemes.hypercube.hot_keys import hot_keys_of

# A budget so small that merges take several batches, and what they read expires meanwhile.
TINY = replace(life.TINY, min_rewrite_rows=2, min_budget_rows=4)


@life.LIVES
@given(scripts())
def test_any_life_of_a_windowed_join_gives_the_pairs_of_the_rows_that_are_not_late(script):
    with tempfile.TemporaryDirectory() as state:
        _live(script, state)


@life.LIVES
@given(scripts(kinds=("bigint", "timestamp")), st.lists(st.integers(0, 8), min_size=12, max_size=12))
def test_another_lateness_rules_from_the_second_batch_on_and_calls_nobody_back(script, lateness):
    """A row that was evicted cannot be met again, so the watermark must not fall."""
    length = TIMES[script.kind][2]
    with tempfile.TemporaryDirectory() as state:
        join = _start(script, state)
        found: Counter[tuple[int, int]] = Counter()
        for number, step in enumerate(script.steps):
            join = life.restarted(join, lateness=length(lateness[number]))
            found += life.run_batch(join, _tables(join, script, step))
        _check(found, state, Oracle(script, lateness))


lives = st.lists(
    st.tuples(st.sampled_from(["hash", "hypercube"]), st.integers(1, 5)), min_size=12, max_size=12
)


@life.LIVES
@given(scripts(kinds=("bigint", ROWS)), lives)
def test_a_window_goes_on_with_other_tasks_and_under_hash_or_hypercube(script, lives):
    """Every batch after a restart: merges that others began go on, and so do plans for other tasks."""
    script = replace(script, case=CASES[1])
    with tempfile.TemporaryDirectory() as state:
        join = _start(script, state)
        found: Counter[tuple[int, int]] = Counter()
        for step, (strategy, tasks) in zip(script.steps, lives, strict=False):
            join = life.restarted(join, strategy=strategy, tasks=tasks)
            found += life.run_batch(join, _tables(join, script, step))
        _check(found, state, Oracle(script))


def same_key(l, r):
    return pc.equal(l["k"], r["k"])


WIDTH, BATCH_ROWS, BATCHES = 600, 40, 50


@pytest.mark.parametrize(
    ("on", "how"),
    [
        ("l.k = r.k", {}),
        ("l.k = r.k", {"strategy": "hypercube"}),
        ("abs(l.k - r.k) <= 1", {}),
        ("l.k = r.k", {"strategy": "grid", "cells": 4}),
        (same_key, {"cells": 4}),
    ],
)
@pytest.mark.parametrize("kind", ["time", ROWS])
def test_the_state_of_a_long_stream_stays_within_the_window(tmp_path, on, how, kind):
    """Rows leave with their run, in merges and in rewrites of their own; none is missed, none stays for long."""
    limits = Limits(
        fan_in=4,
        smallest_tier_rows=16,
        part_rows=400,
        min_rewrite_rows=64,
        min_budget_rows=200,
        clean_every_batches=1000,
    )
    schema = pa.schema({"k": pa.int64(), "t": pa.int64(), "n": pa.int64(), "b": pa.int64()})
    # Over time a row stands for a tick, and comes up to forty ticks late: just what the lateness allows.
    window = {"within": WIDTH, "time": {"l": "t", "r": "t"}, "lateness": 2 * BATCH_ROWS}
    join = life.start(
        schema,
        tmp_path,
        on,
        select=["l.n AS a", "r.n AS b"],
        settings={"limits": limits},
        **({"within": f"{WIDTH} rows"} if kind == ROWS else window),
        **how,
    )
    rng = np.random.default_rng(5)
    everything: dict[str, list[pa.Table]] = {"l": [], "r": []}
    found: Counter[tuple[int, int]] = Counter()
    most = 0
    for number in range(BATCHES):
        batch = {}
        for side in "lr":
            place = np.arange(BATCH_ROWS) + number * BATCH_ROWS
            columns = [rng.integers(0, 200, BATCH_ROWS), place + rng.integers(0, 40, BATCH_ROWS), place]
            batch[side] = pa.table([*columns, np.full(BATCH_ROWS, number)], schema=schema)
            everything[side].append(batch[side])
        found += life.multiset(join.batch(**batch))
        if number % 10 == 9:
            live = Counter(dict.fromkeys("lr", 0))
            for run in life.newest(tmp_path).live:
                live[run.input] += run.rows
            most = max(most, *live.values())
    near = {
        "time": f"abs(l.t - r.t) <= {WIDTH}",
        ROWS: f"CASE WHEN l.b < r.b THEN l.n >= r.b * {BATCH_ROWS} - {WIDTH} "
        f"WHEN r.b < l.b THEN r.n >= l.b * {BATCH_ROWS} - {WIDTH} ELSE true END",
    }[kind]
    condition = on if isinstance(on, str) else "l.k = r.k"
    whole = {side: pa.concat_tables(tables) for side, tables in everything.items()}
    assert found == life.ask_duckdb(f"SELECT l.n, r.n FROM l JOIN r ON {condition} AND {near}", **whole)
    totals = life.newest(tmp_path).totals
    assert [totals[side].late_rows for side in "lr"] == [0, 0]
    window_rows = WIDTH + (2 * BATCH_ROWS if kind == "time" else 0)
    assert WIDTH <= most <= 2.5 * window_rows


def test_merges_that_drop_rows_list_what_is_hot_among_those_that_stay(tmp_path):
    """Nine of ten rows expire; a key with a tenth of the rest had too few to be listed beside them."""
    limits = Limits(min_rewrite_rows=2, least_listed_rows=1, listed_shares=1)
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    how = {"select": ["l.k"], "within": 1000, "time": {"l": "t", "r": "t"}}
    join = life.start(schema, tmp_path, settings={"limits": limits}, **how)
    rng = np.random.default_rng(1)
    # Times of all rows are spread alike, but for those of key 7, which stay.
    many = pa.table([rng.integers(100, 10**9, 4000), rng.integers(0, 1000, 4000)], schema=schema)
    hot = pa.table([np.full(40, 7), np.full(40, 999)], schema=schema)
    later = pa.table([[1], [1900]], schema=schema)
    join.batch(l=pa.concat_tables([many, hot]), r=hot)
    for _ in range(4):
        join.batch(l=later, r=later)
    merged = [run for run in life.newest(tmp_path).live if "-m0" in run.path and run.input == "l"]
    assert 300 < sum(run.rows for run in merged) < 600
    assert [rows for run in merged for rows in hot_keys_of(run).rows] == [40]


def test_what_a_window_is_may_not_change(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.int64(), "d": pa.date32()})
    row = pa.table({"k": [1], "t": [1], "d": [None]}, schema=schema)
    start = life.start(schema, tmp_path, select=["l.k"], within=5, time={"l": "t", "r": "t"})
    start.batch(l=row)
    none = {"within": None, "time": None}
    for change, words in [
        ({"within": 6}, 'its window was within="5" over times of type integer, now within="6"'),
        ({"within": "5 rows", "time": None}, 'now within="5 rows"'),
        ({"within": "5 days", "time": {"l": "d", "r": "d"}}, "of type date"),
        ({"time": {"l": "t", "r": "k"}}, "the time of r was t, now k"),
        (none, "now none"),
    ]:
        with pytest.raises(StateMismatch, match="another join") as refused:
            life.restarted(start, **change).batch(r=row)
        assert words in str(refused.value)
        assert "new checkpoint" in str(refused.value)
    assert len(life.restarted(start, lateness=3).batch(r=row)) == 1


def test_a_window_may_not_be_added_to_a_state_without_one(tmp_path):
    schema = pa.schema({"k": pa.int64(), "t": pa.int64()})
    row = pa.table({"k": [1], "t": [1]})
    start = life.start(schema, tmp_path)
    start.batch(l=row)
    with pytest.raises(StateMismatch, match="its window was none"):
        life.restarted(start, within="3 rows").batch(l=row)


# --- the join -------------------------------------------------------------------------------------------------------


def _start(script: Script, state: str) -> LocalJoin:
    kind = pa.int64() if script.kind == ROWS else TIMES[script.kind][0]
    schema = pa.schema({"k": pa.int64(), "t": kind, "x": pa.int64(), "id": pa.int64()})
    return life.start(
        schema,
        state,
        script.case.on,
        select=["l.id AS a", "r.id AS b"],
        tasks=script.tasks,
        # No clean-up within reach of a roll-back, and none of files that a zombie may still write.
        settings={"run_rows": 4, "grace_s": -1.0, "retain_batches": 4, "limits": TINY},
        **_window(script),
        **script.case.how,
    )


def _window(script: Script) -> dict[str, Any]:
    if script.kind == ROWS:
        return {"within": f"{script.width} rows"}
    length = TIMES[script.kind][2]
    return {
        "within": length(script.width),
        "time": {"l": "t", "r": "t"},
        "lateness": length(script.lateness) if script.lateness else None,
    }


def _live(script: Script, state: str) -> None:
    """Run a script; its results, and what the state counts, must be those of the oracle."""
    join = _start(script, state)
    results: dict[int, Counter[tuple[int, int]]] = {}
    for number, step in enumerate(script.steps):
        if back := min(step.back, number):
            join = life.restarted(join, at=number - back)
            for earlier in range(number - back, number):
                results[earlier] = life.run_batch(join, _tables(join, script, script.steps[earlier]))
        parts = _tables(join, script, step)
        join, results[number] = life.run_through(join, parts, step.crash, zombie=step.zombie)
    note(f"{script.case.on} {script.case.how} {_window(script)} tasks={script.tasks}")
    _check(sum(results.values(), Counter()), state, Oracle(script))


def _tables(join: LocalJoin, script: Script, step: Step) -> dict[str, list[pa.Table]]:
    moment = (lambda t: t) if script.kind == ROWS else TIMES[script.kind][1]
    return {
        side: [
            pa.Table.from_pylist(
                [
                    {"k": row.k, "t": None if row.t is None else moment(row.t), "x": row.x, "id": row.id}
                    for row in part
                ],
                join.schemas[side],
            )
            for part in parts
        ]
        for side, parts in step.rows.items()
    }


def _check(found: Counter[tuple[int, int]], state: str, expected: Oracle) -> None:
    """The pairs are right. Every row is live, evicted, late or dropped; and no row that the next batch may need is gone."""
    assert found == expected.pairs, life.difference(found, expected.pairs)
    manifest = life.newest(state)
    for side in "lr":
        live = sum(run.rows for run in manifest.live if run.input == side)
        totals = manifest.totals[side]
        assert totals.rows == len(expected.taken[side])
        assert totals.late_rows == expected.late[side]
        assert totals.null_rows == expected.nulls[side]
        assert totals.rows - totals.evicted_rows == live
        assert live >= expected.needed(side)
