"""What every life watches of merges (`tests/life.py`): it allows one arrangement to lag, and notices what never happens."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest

from tests.life import TINY, check_arrangements, newest, run_batch, start
from watersmeet.local.join import LocalJoin
from watersmeet.plan import batch as planning
from watersmeet.plan.merges import accept_receipts, plan_assignments, plan_merges

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
# Of nine rows: the parts of one merge, and none of a second one.
ONE_MERGE = replace(TINY, min_budget_rows=8, least_scarce_bytes=1 << 30)
PARTITIONS = 9
IDLE: dict[str, list[pa.Table]] = {"l": [], "m": [], "r": []}


def path(state, limits=ONE_MERGE) -> LocalJoin:
    """A path of three inputs: the one in the middle has two arrangements, `m` and `m.1`."""
    inputs = dict.fromkeys(IDLE, SCHEMA)
    return start(inputs, state, "l.k = m.k AND m.x = r.x", settings={"limits": limits})


def many_runs() -> dict[str, list[pa.Table]]:
    return IDLE | {"m": [pa.table([[n], [n]], schema=SCHEMA) for n in range(PARTITIONS)]}


def sequences(state, name: str) -> int:
    return len({run.group for run in newest(state).live if run.input == name})


def live_through(join: LocalJoin) -> None:
    run_batch(join, many_runs())
    for _ in range(4):
        run_batch(join, IDLE)


def test_the_merge_of_one_arrangement_may_wait_for_the_budget_of_the_next_batch(tmp_path):
    join = path(tmp_path)
    run_batch(join, many_runs())
    run_batch(join, IDLE)
    run_batch(join, IDLE)
    assert (sequences(tmp_path, "m"), sequences(tmp_path, "m.1")) == (1, PARTITIONS)
    run_batch(join, IDLE)
    assert (sequences(tmp_path, "m"), sequences(tmp_path, "m.1")) == (1, 1)


def test_merges_of_an_arrangement_that_are_never_planned_are_noticed(tmp_path):
    def of_first_ones(*facts, **more):
        return tuple(merge for merge in plan_merges(*facts, **more) if "." not in merge.input)

    join = path(tmp_path)
    with (
        mock.patch.object(planning, "plan_merges", of_first_ones),
        pytest.raises(AssertionError, match=r"m\.1 has 9 runs, 9 when all merges are done; m 1"),
    ):
        live_through(join)
    # But for the disk: where nothing may be left behind, nothing is merged.
    full = replace(ONE_MERGE, least_scarce_bytes=0, retained_share=0.0)
    assert join.settings is not None
    check_arrangements(newest(tmp_path), replace(join.settings, limits=full))


def test_merges_of_an_arrangement_that_no_task_is_given_are_noticed(tmp_path):
    def of_first_ones(merges, *facts):
        return plan_assignments([merge for merge in merges if "." not in merge.input], *facts)

    with (
        mock.patch.object(planning, "plan_assignments", of_first_ones),
        pytest.raises(AssertionError, match=r"rows are merged, and these wait: .*m\.1-"),
    ):
        live_through(path(tmp_path))


def test_merges_of_an_arrangement_whose_receipts_are_lost_are_noticed(tmp_path):
    def of_first_ones(merges, receipts, needed):
        return accept_receipts(merges, [one for one in receipts if "." not in one.merge], needed)

    with (
        mock.patch.object(planning, "accept_receipts", of_first_ones),
        pytest.raises(AssertionError, match=r"and not seen since: .*m\.1-"),
    ):
        live_through(path(tmp_path))
