"""The status of a state directory: made by the local driver, damaged by hand, read beside a running query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests import life
from tests.unit.log_helpers import commit
from watersmeet.errors import StateError
from watersmeet.local.join import LocalJoin
from watersmeet.log import status as status_module
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests
from watersmeet.log.status import join_status, read_status
from watersmeet.model.limits import DEFAULT_LIMITS
from watersmeet.schemes.biclique import BicliquePlan
from watersmeet.schemes.hypercube.facts import LIGHT, CubePlan

LEFT = pa.schema({"k": pa.int64(), "x": pa.int64()})
RIGHT = pa.schema({"k": pa.int64(), "y": pa.int64()})
NOW_S = 1_000_000.0
FAN_IN = DEFAULT_LIMITS.fan_in


def start(state: Path, name: str = "join", query: str = "q1") -> LocalJoin:
    return LocalJoin(
        {"l": LEFT, "r": RIGHT}, on="l.k = r.k", state=str(state), name=name, query=query, clock=lambda: NOW_S
    )


def rows(schema: pa.Schema, keys: list[int | None]) -> pa.Table:
    return pa.table([keys, list(range(len(keys)))], schema=schema)


def manifests(state: Path, name: str = "join", query: str = "q1") -> list[Path]:
    return sorted((state / name / query / "manifests").iterdir())


def test_counts_of_a_fresh_join(tmp_path):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1, 2, None]), r=rows(RIGHT, [2]))
    join.batch(r=rows(RIGHT, [1, None, None]))

    found = read_status(tmp_path, clock=lambda: NOW_S + 90)

    (one,) = found.joins
    assert found.state == str(tmp_path)
    assert (one.name, one.query, one.batch, one.starts) == ("join", "q1", 1, 1)
    left, right = one.inputs
    assert (left.name, left.rows, left.runs, left.totals.rows, left.totals.null_rows) == ("l", 2, 1, 2, 1)
    assert (right.name, right.rows, right.runs, right.totals.rows, right.totals.null_rows) == (
        "r",
        2,
        2,
        2,
        2,
    )
    assert (one.rows, one.runs) == (4, 3)
    assert (one.pending_rows, one.pending_parts) == (0, 0)
    assert (one.written_ms, one.age_s) == (1_000_000_000, 90.0)
    assert one.live_bytes == left.bytes + right.bytes > 0
    assert one.damage == found.damage == ()


def test_a_clock_that_is_behind_gives_no_negative_age(tmp_path):
    start(tmp_path).batch(l=rows(LEFT, [1]))
    assert read_status(tmp_path, clock=lambda: NOW_S - 5).joins[0].age_s == 0.0


def test_disk_bytes_are_those_of_all_files(tmp_path):
    join = start(tmp_path)
    for _ in range(FAN_IN + 3):
        join.batch(l=rows(LEFT, [1, 2, 3]))
    (one,) = read_status(tmp_path).joins
    on_disk = sum(p.stat().st_size for p in (tmp_path / "join" / "q1").rglob("*") if p.is_file())
    assert one.disk_bytes == on_disk > one.live_bytes
    assert one.runs < FAN_IN, "the small runs were merged; the old files are still on disk"


def test_merging_debt_while_a_merge_is_announced(tmp_path):
    join = start(tmp_path)
    debts = []
    for _ in range(FAN_IN + 2):
        join.batch(l=rows(LEFT, [1, 2]))
        (one,) = read_status(tmp_path).joins
        debts.append((one.pending_rows, one.pending_parts))
    assert (2 * FAN_IN, 1) in debts, (
        "one merge of all small runs, not yet receipted when the manifest was written"
    )
    assert debts[0] == debts[-1] == (0, 0)


def test_a_restart_counts_as_a_start(tmp_path):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1]))
    join = life.restarted(join)
    join.batch(l=rows(LEFT, [2]))
    life.restarted(join, at=1).batch(l=rows(LEFT, [2]))
    (one,) = read_status(tmp_path).joins
    assert (one.batch, one.starts, one.rows) == (1, 3, 2)


def test_every_join_of_every_query_is_there(tmp_path):
    for name, query in (("a", "q1"), ("a", "q2"), ("b", "q1")):
        start(tmp_path, name, query).batch(l=rows(LEFT, [1]))
    (tmp_path / "offsets" / "inner").mkdir(parents=True)
    found = wm.status(tmp_path)
    assert [(one.name, one.query) for one in found.joins] == [("a", "q1"), ("a", "q2"), ("b", "q1")]


def test_a_damaged_newest_manifest_is_reported_and_the_one_before_it_shown(tmp_path):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1]))
    join.batch(l=rows(LEFT, [2]))
    newest = manifests(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    (one,) = read_status(tmp_path).joins
    assert one.batch == 1
    assert one.rows == 1
    assert "truncated" in one.damage[0]
    assert newest.name in one.damage[0]
    assert "figures are those of batch 0" in one.damage[1]


def test_damage_in_an_older_manifest_is_reported_once(tmp_path):
    join = start(tmp_path)
    for _ in range(3):
        join.batch(l=rows(LEFT, [1]))
    manifests(tmp_path)[0].write_bytes(b"\x00garbage")
    (one,) = read_status(tmp_path).joins
    assert one.rows == 3
    (problem,) = one.damage
    assert "header cannot be read" in problem


def test_a_state_with_nothing_readable_has_no_figures(tmp_path):
    start(tmp_path).batch(l=rows(LEFT, [1]))
    manifests(tmp_path)[0].write_bytes(b"")
    (one,) = read_status(tmp_path).joins
    assert (one.batch, one.inputs, one.written_ms, one.age_s, one.live_bytes) == (0, (), None, None, 0)
    assert len(one.damage) == 1
    assert one.disk_bytes > 0


def test_missing_and_truncated_runs_are_reported(tmp_path):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1]), r=rows(RIGHT, [1]))
    (left,) = (tmp_path / "join/q1/runs/l").iterdir()
    (right,) = (tmp_path / "join/q1/runs/r").iterdir()
    size = right.stat().st_size
    left.unlink()
    right.write_bytes(right.read_bytes()[:100])
    (one,) = read_status(tmp_path).joins
    missing, truncated = one.damage
    assert left.name in missing
    assert "missing" in missing
    assert f"has 100 bytes instead of {size}" in truncated


def test_a_query_that_died_before_its_first_manifest(tmp_path):
    start(tmp_path).batch(l=rows(LEFT, [1]))
    manifests(tmp_path)[0].unlink()
    (one,) = read_status(tmp_path).joins
    assert (one.batch, one.starts, one.inputs, one.damage) == (None, 0, (), ())
    assert one.disk_bytes > 0


def test_a_manifest_that_goes_while_we_read_is_no_damage(tmp_path, monkeypatch):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1]))
    join.batch(l=rows(LEFT, [2]))
    files = LocalFiles(tmp_path).under("join", "q1")
    gone = list_manifests(files)[0]
    read = status_module.open_manifest

    def read_after_cleaning(where, name, seen):
        if name == gone:
            where.delete(name.path)
        return read(where, name, seen)

    monkeypatch.setattr(status_module, "open_manifest", read_after_cleaning)
    (one,) = read_status(tmp_path).joins
    assert one.damage == ()


def test_without_verify_only_the_newest_manifest_is_read(tmp_path):
    join = start(tmp_path)
    join.batch(l=rows(LEFT, [1]))
    join.batch(l=rows(LEFT, [2]))
    manifests(tmp_path)[0].write_bytes(b"")
    one = join_status(LocalFiles(tmp_path), "join", "q1", now_s=NOW_S, verify=False)
    assert (one.rows, one.damage) == (2, ())


@pytest.mark.parametrize(
    "place, message",
    [
        ("absent", "missing or empty"),
        ("", "missing or empty"),
        ("other", "there is no Watersmeet state in"),
        ("state/join", "give the directory that was passed as state="),
        ("state/join/q1", "give the directory that was passed as state="),
        ("file.txt", "cannot read state from .*file.txt: Not a directory"),
    ],
)
def test_places_without_state_are_refused(tmp_path, place, message):
    if place != "":
        start(tmp_path / "state").batch(l=rows(LEFT, [1]))
        (tmp_path / "other/offsets").mkdir(parents=True)
        (tmp_path / "file.txt").write_text("")
    with pytest.raises(StateError, match=message):
        read_status(tmp_path / place)


def skewed(state: Path, strategy: str, **more: Any) -> LocalJoin:
    schema = pa.schema({"k": pa.string(), "x": pa.int64()})
    return LocalJoin(
        {"l": schema, "r": schema}, on="l.k = r.k", state=str(state), strategy=strategy, tasks=4, **more
    )


def with_hot_key(hot: str, hot_rows: int, light_rows: int, seed: str = "") -> pa.Table:
    keys = [hot] * hot_rows + [f"light {seed}{n}" for n in range(light_rows)]
    return pa.table({"k": keys, "x": list(range(len(keys)))})


def test_heavy_keys_their_grids_and_their_changes(tmp_path):
    join = skewed(tmp_path, "hypercube")
    join.count(l=with_hot_key("hot", 40, 2_000), r=with_hot_key("hot", 40, 2_000))
    (before,) = read_status(tmp_path).joins
    join.count(l=with_hot_key("hot", 3_000, 1_000), r=with_hot_key("hot", 1_000, 1_000))
    (one,) = read_status(tmp_path).joins

    assert before.strategy == one.strategy == "hypercube"
    was, cube = before.plan, one.plan
    assert isinstance(was, CubePlan) and isinstance(cube, CubePlan)
    heaviest = max(cube.heavy, key=lambda key: sum(rows.lower for rows in key.rows))
    assert heaviest.label == "hot"
    assert cube.inputs == ("l", "r")
    for rows_of_input, true in zip(heaviest.rows, (3_040, 1_040), strict=True):
        assert rows_of_input.lower <= true <= rows_of_input.upper
    left_parts, right_parts = heaviest.shape
    assert left_parts > right_parts, "the larger input is cut into more parts"
    assert set(heaviest.tasks) == set(range(4))
    assert cube.load >= cube.mean > 0
    known = next((key.shape for key in was.heavy if key.label == "hot"), LIGHT)
    last = cube.changes[-1]
    assert (last.batch, last.label, last.before, last.after) == (1, "hot", known, heaviest.shape)
    assert last.moved_rows > 0
    assert cube.epoch > was.epoch

    assert one.shown is not None
    assert one.shown.columns == ("heavy key", "rows of l", "rows of r", "grid", "tasks")
    label, *_, grid, tasks = one.shown.rows[0]
    assert (label, grid, tasks) == ("hot", f"{left_parts} x {right_parts}", "4")
    assert f"planned balance {cube.load / cube.mean:.2f} (busiest / mean)" in one.shown.summary
    before_label, label, after_label = one.shown.events[0]
    assert (before_label, label) == ("batch 1: ", "hot")
    assert after_label.endswith(f" -> {left_parts} x {right_parts}, {last.moved_rows:,} rows moved")


def test_a_key_of_few_rows_that_no_run_lists_is_counted_and_not_listed(tmp_path):
    """In a new state almost every key is heavy, and all that is known of it is a hash."""
    join = skewed(tmp_path, "hypercube")
    rows = pa.table({"k": ["a", "b", "c"], "x": [1, 2, 3]})
    join.count(l=rows, r=rows)
    (one,) = read_status(tmp_path).joins
    assert isinstance(one.plan, CubePlan) and one.shown is not None
    assert len(one.plan.heavy) == len(one.plan.changes) == 3
    assert (one.shown.rows, one.shown.events) == ((), ())
    assert one.shown.summary.startswith("hypercube: 3 heavy keys, ")
    assert one.shown.summary.endswith("; 3 of few rows not listed")


def test_a_hypercube_without_heavy_keys(tmp_path):
    join = skewed(tmp_path, "hypercube")
    join.count(l=with_hot_key("-", 0, 50))
    (one,) = read_status(tmp_path).joins
    assert isinstance(one.plan, CubePlan) and one.shown is not None
    assert (one.plan.heavy, one.plan.changes) == (one.shown.rows, one.shown.events) == ((), ())


def test_units_and_groups_of_a_biclique(tmp_path):
    skewed(tmp_path, "biclique", groups=1).count(l=with_hot_key("hot", 5, 5))
    (one,) = read_status(tmp_path).joins
    assert (one.strategy, one.plan) == ("biclique", BicliquePlan(units=4, groups=1))


def test_a_batch_whose_manifest_is_lost_is_damage(tmp_path):
    files = LocalFiles(tmp_path / "join" / "q")
    for number in range(4):
        commit(files, number)
    assert not read_status(tmp_path).damage
    files.delete(list_manifests(files)[2].path)
    (damage,) = read_status(tmp_path).damage
    assert "manifests/000000-000000000002-run-a.json of batch 2" in damage and "is missing" in damage
