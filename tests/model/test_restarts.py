"""Restarts on the local driver: what may change goes on exactly, what may not is refused."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from watersmeet.errors import StateMismatch
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.starts import STARTS
from watersmeet.model.facts import SchemePlan
from watersmeet.model.limits import Limits
from watersmeet.schemes.grid.facts import GridPlan, GridShape
from watersmeet.schemes.hash import HashPlan
from watersmeet.schemes.hypercube.facts import CubePlan
from watersmeet.schemes.hypercube.hot_keys import NOT_LISTED

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.int32(), "y": pa.int32()})


def rows(seed: int, count: int = 200) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = [np.arange(count) + 1000 * seed, rng.integers(0, 60, count), rng.integers(0, 60, count)]
    return pa.table([pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def start(state, on: str, **how) -> LocalJoin:
    return life.start(SCHEMA, state, on, select=["l.id AS a", "r.id AS b"], **how)


def expected(on: str, left: pa.Table, right: pa.Table) -> Counter:
    return life.ask_duckdb(f"SELECT l.id, r.id FROM l JOIN r ON {on}", l=left, r=right)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("abs(l.x - r.x) <= 5 AND abs(l.y - r.y) <= 5", "abs(l.y - r.y) <= 5 AND abs(l.x - r.x) <= 5"),
        ("l.x = r.x AND l.y = r.y", "r.y = l.y AND l.x = r.x"),
        ("l.x < r.x AND l.y < r.y", "l.y < r.y AND l.x < r.x"),
    ],
)
def test_conditions_may_be_written_in_another_order(tmp_path, one, other):
    left, right = rows(1), rows(2)
    first = start(tmp_path, one)
    before = first.batch(l=left)
    after = life.restarted(first, on=other).batch(r=right)
    want = expected(one, left, right)
    assert want
    assert life.multiset(before, after) == want


def test_a_state_that_was_removed_leaves_nothing_behind_in_the_process(tmp_path):
    """The same rows become files of the same names. What another process needs must be in the new state."""
    left, right = rows(1), rows(2)
    for _ in range(2):
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        join = start(tmp_path / "state", "l.x = r.x", settings={"limits": life.TINY})
        before = life.multiset(join.batch(l=left, r=right))
    assert before == expected("l.x = r.x", left, right)
    life.forget()
    again = life.restarted(join)
    assert life.multiset(again.batch(l=right)) == expected("l.x = r.x", right, right)


def test_a_start_does_not_read_the_claims_of_all_before_it(tmp_path, monkeypatch):
    join = start(tmp_path, "l.x = r.x")
    for seed in range(12):
        join.batch(l=rows(seed, 5))
        join = life.restarted(join)
    read, claims = LocalFiles.read, []

    def reading(files: LocalFiles, path: str) -> bytes:
        claims.extend([path] if path.startswith(STARTS) else [])
        return read(files, path)

    monkeypatch.setattr(LocalFiles, "read", reading)
    join.batch(l=rows(12, 5))
    assert f"{STARTS}/000011" in claims and f"{STARTS}/000010" not in claims


def test_what_makes_the_order_key_may_not_change(tmp_path):
    """Without ANSI a sum may wrap, so that it stays a part of the key: the same text, another order."""
    first = start(tmp_path, "l.x < r.x + 300")
    first.batch(l=rows(1))
    with pytest.raises(StateMismatch, match="sorted by"):
        life.restarted(first, ansi=False).batch(r=rows(2))


def test_the_number_of_cells_may_not_change_and_the_error_says_what_to_do(tmp_path):
    first = start(tmp_path, "l.x <> r.x", tasks=2)
    first.batch(l=rows(1))
    with pytest.raises(StateMismatch, match="pass cells=2"):
        life.restarted(first, tasks=4).batch(r=rows(2))


def test_another_mapping_takes_effect_at_once_and_is_an_event(tmp_path):
    left, right, more = rows(1), rows(2), rows(3)
    first = start(tmp_path, "l.x <> r.x", mapping=(2, 4))
    results = [first.batch(l=left, r=right)]
    second = life.restarted(first, mapping=(4, 2))
    results.append(second.batch(l=more))
    third = life.restarted(second, mapping=None, cells=8)
    results.append(third.batch())
    assert life.multiset(*results) == expected("l.x <> r.x", pa.concat_tables([left, more]), right)
    plan = life.manifests(tmp_path)[1].plan.scheme
    assert isinstance(plan, GridPlan)
    assert plan.shapes == (GridShape(4, 2),)
    assert [(r.event.reason, r.batch) for r in plan.relocations] == [("asked", 1)]


@pytest.mark.parametrize(
    "on",
    [
        "l.x < 20 AND l.x * 100000000 < r.y",
        "l.x < 20 AND l.x * 100000000 <> r.y",
        "r.y > 3 AND l.x = r.y",
    ],
)
def test_a_condition_on_one_input_guards_the_others(tmp_path, on):
    """Rows that it drops are not computed with: some of them would overflow."""
    left, right = rows(1), rows(2)
    join = start(tmp_path, on)
    assert life.multiset(join.batch(l=left), join.batch(r=right)) == expected(on, left, right)


def test_small_batches_do_not_distort_the_mapping(tmp_path):
    """A file has a header for each section; what counts is the rows."""
    join = start(tmp_path, "l.x <> r.x", cells=64)
    for seed in range(3):
        join.batch(l=rows(2 * seed, 20), r=rows(2 * seed + 1, 1000))
    plan = life.newest(tmp_path).plan.scheme
    assert isinstance(plan, GridPlan)
    assert plan.shapes == (GridShape(1, 64),)


def test_one_key_on_all_rows_is_merged_within_bounds(tmp_path):
    small = {"limits": Limits(fan_in=2, part_rows=100)}
    same = rows(1, 400).set_column(1, SCHEMA.field("x"), pa.array([7] * 400, pa.int32()))
    join = start(tmp_path, "l.x = r.x", strategy="grid", cells=16, settings=small)
    for _ in range(8):
        join.batch(l=same)
    merged = [run.rows for run in life.newest(tmp_path).live if "-m0" in run.path]
    assert merged
    assert max(merged) <= 200


def test_a_contradictory_band_of_floats_is_left_to_the_predicate(tmp_path):
    """Spark rounds: at 1e20 one more and half more are the same number."""
    schema = pa.schema({"x": pa.float64()})
    join = life.start(schema, tmp_path, "l.x >= r.x + 1D AND l.x <= r.x + 0.5D", select=["l.x"])
    table = pa.table({"x": [1e20, 2e20, 5.0]})
    assert len(join.batch(l=table, r=table)) == 2


def test_a_result_without_columns_of_the_inputs_has_all_rows(tmp_path):
    join = life.start(SCHEMA, tmp_path, "l.x = r.x", select=["1 AS one"])
    left, right = rows(1), rows(2)
    assert len(join.batch(l=left, r=right)) == expected("l.x = r.x", left, right).total()


def test_equal_rows_are_spread_over_the_sections_and_a_change_counts_them(tmp_path):
    """No content can fill one section; and cells keep, read anew and drop what their mappings say."""
    same = pa.table({"id": [1] * 4000, "x": [7] * 4000, "y": [7] * 4000}).cast(SCHEMA)
    join = start(tmp_path, "l.x <> r.x", cells=8)
    join.batch(l=same, r=same)
    join.batch(r=pa.concat_tables([same] * 16))
    first, second = life.manifests(tmp_path)
    for run in first.fresh:
        assert max(run.sections) <= 1.3 * run.rows / len(run.sections)
    assert isinstance(second.plan.scheme, GridPlan)
    (changed,) = second.plan.scheme.relocations
    (before,), (after,) = changed.event.before, changed.event.after
    assert (before.rows, after.rows) == (2, 1)
    kept, moved, dropped = (
        a.rows for a in (changed.event.kept, changed.event.moved, changed.event.discarded)
    )
    assert kept + dropped == 4000 * before.cols + 4000 * before.rows
    assert kept + moved == 4000 * after.cols + 4000 * after.rows


# Heavy keys over restarts


def skewed(seed: int, count: int = 120) -> pa.Table:
    """Half of the rows have one key, which is another one from seed 10 on."""
    table = rows(seed, count)
    hot = np.random.default_rng(seed).random(count) < 0.5
    x = np.where(hot, 7 if seed < 10 else 8, table["x"].to_numpy())
    return table.set_column(1, SCHEMA.field("x"), pa.array(x, pa.int32()))


def plans(state) -> list[SchemePlan]:
    return [manifest.plan.scheme for manifest in life.manifests(state)]


@pytest.mark.parametrize("on", ["l.x = r.x", "l.x = r.x AND l.y < r.y"])
def test_hash_and_hypercube_follow_each_other_with_any_number_of_tasks(tmp_path, on):
    """They store the same; each restart finds the plan of another strategy, or for other tasks."""
    lives = [
        ("hash", 2),
        ("hypercube", 2),
        ("hypercube", 5),
        ("hash", 3),
        ("hypercube", 3),
        ("hypercube", 1),
        ("auto", 4),
    ]
    join = start(tmp_path, on)
    left, right, results = [], [], []
    for number, (strategy, tasks) in enumerate(lives):
        join = life.restarted(join, strategy=strategy, tasks=tasks)
        for seed in (2 * number, 2 * number + 1):
            left.append(skewed(seed))
            right.append(skewed(100 + seed if seed < 10 else seed + 20))
            results.append(join.batch(l=left[-1], r=right[-1]))
    assert life.multiset(*results) == expected(on, pa.concat_tables(left), pa.concat_tables(right))
    made = plans(tmp_path)
    for plan, (strategy, tasks) in zip(made[1::2], lives, strict=True):
        assert isinstance(plan, HashPlan if strategy == "hash" else CubePlan)
        assert len(plan.ranges) == tasks
        if isinstance(plan, CubePlan):
            assert plan.heavy and {task for one in plan.heavy for task in one.tasks} == set(range(tasks))


def test_a_hypercube_goes_on_where_runs_list_no_keys(tmp_path):
    """As runs of the format before: a sample finds the hot key, and a run that names it gives it its label."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("watersmeet.schemes.hypercube.scheme.list_hot_keys", lambda *arguments: NOT_LISTED)
        join = start(tmp_path, "l.x = r.x", strategy="hypercube", tasks=3)
        results = [join.batch(l=skewed(1), r=skewed(2))]
    [first] = plans(tmp_path)
    assert isinstance(first, CubePlan)
    assert all(one.label == f"hash {one.key:016x}" for one in first.heavy)
    join = life.restarted(join)
    results.append(join.batch(l=skewed(3), r=skewed(4)))
    want = expected(
        "l.x = r.x", pa.concat_tables([skewed(1), skewed(3)]), pa.concat_tables([skewed(2), skewed(4)])
    )
    assert life.multiset(*results) == want
    cube = plans(tmp_path)[-1]
    assert isinstance(cube, CubePlan)
    [heavy] = [one for one in cube.heavy if one.label == "7"]
    assert heavy.key in {one.key for one in first.heavy}
    for bounds in heavy.rows:
        assert bounds.lower < bounds.upper == bounds.lower + 120


def test_a_biclique_of_one_unit_a_side_stores_as_a_hash_join_does(tmp_path):
    join = start(tmp_path, "l.x = r.x", strategy="biclique", tasks=4)
    results = [join.batch(l=skewed(1), r=skewed(2))]
    join = life.restarted(join, strategy="hypercube", tasks=3)
    results.append(join.batch(l=skewed(3), r=skewed(4)))
    join = life.restarted(join, strategy="biclique", tasks=5, groups=3)
    results.append(join.batch(l=skewed(5)))
    left, right = (pa.concat_tables(map(skewed, seeds)) for seeds in ((1, 3, 5), (2, 4)))
    assert life.multiset(*results) == expected("l.x = r.x", left, right)


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "hypercube", "groups": None},
        {"groups": 2},
        {"tasks": 8},
        {"strategy": "grid", "groups": None},
    ],
)
def test_the_units_of_a_biclique_may_not_become_others(tmp_path, change):
    """Its rows are cut for the units of a side; another number of tasks with as many units is fine."""
    join = start(tmp_path, "l.x = r.x", strategy="biclique", groups=1, tasks=4)
    first = join.batch(l=skewed(1))
    with pytest.raises(
        StateMismatch, match=r"stored for a biclique's units in 2 parts \(by its tasks= and groups="
    ):
        life.restarted(join, **change).batch(r=skewed(2))
    second = life.restarted(join, tasks=3).batch(r=skewed(2))
    assert life.multiset(first, second) == expected("l.x = r.x", skewed(1), skewed(2))


@pytest.mark.parametrize(
    ("before", "after", "groups", "safe"),
    [
        (4, 6, None, True),
        (3, 7, None, True),
        (1, 2, None, True),
        (4, 5, None, False),
        (2, 3, None, False),
        (7, 8, 2, True),
        (8, 9, 2, False),
        (4, 6, 1, False),
    ],
)
def test_a_biclique_takes_other_tasks_where_the_guide_says_so(tmp_path, before, after, groups, safe):
    """As long as tasks / (2 groups), rounded up, stays the same."""
    join = start(tmp_path, "l.x = r.x", strategy="biclique", groups=groups, tasks=before)
    first = join.batch(l=skewed(1))
    again = life.restarted(join, tasks=after)
    if safe:
        assert life.multiset(first, again.batch(r=skewed(2))) == expected("l.x = r.x", skewed(1), skewed(2))
        return
    with pytest.raises(StateMismatch, match=r"by its tasks= and groups="):
        again.batch(r=skewed(2))


def test_a_label_is_the_value_and_several_keys_are_listed_with_commas(tmp_path):
    schema = pa.schema({"k": pa.string(), "m": pa.int64(), "id": pa.int64()})
    join = life.start(schema, tmp_path, "l.k = r.k AND l.m = r.m", select=["l.id AS a"], strategy="hypercube")
    hot = pa.table({"k": ["x" * 60] * 50 + ["y"] * 50, "m": [1] * 100, "id": range(100)})
    assert len(join.batch(l=hot, r=hot)) == 5000
    cube = plans(tmp_path)[-1]
    assert isinstance(cube, CubePlan)
    assert sorted(one.label for one in cube.heavy) == ["x" * 40, "y, 1"]


@pytest.mark.parametrize(
    "kind, value",
    [(pa.date32(), 5_000_000), (pa.date32(), -1_000_000), (pa.timestamp("us"), 400_000_000_000_000_000)],
    ids=str,
)
@pytest.mark.parametrize("strategy", ["hash", "hypercube"])
def test_a_hot_key_that_python_cannot_say_is_joined_all_the_same(tmp_path, kind, value, strategy):
    schema = pa.schema({"k": kind, "x": pa.int64()})
    keys = pa.array([value] * 100, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    rows = pa.table({"k": keys, "x": range(100)}, schema=schema)
    join = life.start(schema, tmp_path, select=["l.x"], strategy=strategy)
    assert join.count(l=rows, r=rows) == 10_000
