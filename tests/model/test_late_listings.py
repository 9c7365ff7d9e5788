"""Random lives of a join over a directory whose listings are late: the results are those of one big join.

A listing shows a folder as it was some operations ago, as on an NFS client that keeps directories for a minute. Files
that are opened by name are always there.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import life
from tests.late_files import LateFiles, Listings
from tests.model.stream_scripts import equal_keys, live, scripts
from watersmeet.engine import operator as engine
from watersmeet.errors import CorruptFile, StateBehind, StateError, StateInUse
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


@life.LIVES
@given(scripts(), st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 0.8]), st.booleans())
def test_any_life_under_late_listings(script, seed, fresh_share, graceful):
    """Without a grace period, which must be longer than a listing can be late, receipts are listed in time."""
    kinds, steps, tasks = script
    draw = random.Random(seed)
    listings = Listings(lambda: draw.random() < fresh_share, () if graceful else ("receipts",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_KEPT", {})
        patch.setattr(
            engine, "open_files", lambda *args, **how: LateFiles(open_files(*args, **how), listings)
        )
        if graceful:
            # Receipts are listed late too: what was merged may be merged again.
            patch.setattr(life, "check_merges", lambda place, manifest: None)
        grace_s = 3600.0 if graceful else -1.0
        live(kinds, equal_keys(kinds), steps, tasks, grace_s=grace_s, strategy="hypercube")


def join_in(state) -> LocalJoin:
    return life.start(SCHEMA, state, select=["l.x", "r.x AS y"], settings={"limits": life.TINY})


def row(key: int, value: int) -> pa.Table:
    return pa.table({"k": [key], "x": [value]}, schema=SCHEMA)


def test_a_newest_manifest_deleted_while_the_query_runs_is_an_error(tmp_path):
    join = join_in(tmp_path)
    join.batch(l=row(1, 10))
    join.batch(l=row(1, 11))
    files = life.files_of(tmp_path)
    files.delete(list_manifests(files)[-1].path)
    for forget in (lambda: None, life.forget):
        forget()
        with pytest.raises(StateBehind, match="batch 1 left no manifest, so batch 2 would lose its rows"):
            join.batch(r=row(1, 5))


def test_a_batch_that_was_not_evaluated_is_an_error_in_the_next_one_and_after_a_restart(tmp_path):
    join = join_in(tmp_path)
    join.batch(l=row(1, 10))
    join.number += 1
    with pytest.raises(StateBehind, match="batch 1 left no manifest"):
        join.batch(r=row(1, 5))
    again = life.restarted(join)
    with pytest.raises(StateBehind, match="1 batch"):
        again.batch(r=row(1, 5))
    # Rolled back to the batch that was skipped, everything is there.
    rolled_back = life.restarted(join, at=1)
    rolled_back.batch(l=row(1, 11))
    assert sorted(rolled_back.batch(r=row(1, 5)).column("x").to_pylist()) == [10, 11]


def test_a_late_join_task_of_an_old_start_does_not_become_the_newest_start(tmp_path):
    """It knows its start from the descriptors, although its claim is gone by then."""
    old = join_in(tmp_path)
    batch = life.batch_of(old)
    late = [life.ingest(old, batch, "l", row(1, 10))]
    join = life.restarted(old)
    join.batch(l=row(1, 10))
    files = life.files_of(tmp_path)
    files.delete("starts/000000")
    life.forget()
    with pytest.raises(CorruptFile, match="claim starts/000000 of this start is missing"):
        list(old.operator.join(batch, 0, late))
    assert join.batch(r=row(1, 5)).to_pylist() == [{"x": 10, "y": 5}]
    assert life.restarted(join).batch(r=row(1, 6)).to_pylist() == [{"x": 10, "y": 6}]


def test_rows_of_another_batch_are_refused(tmp_path):
    """A foreachBatch function that kept the DataFrame of batch 0 evaluates it while batch 1 runs."""
    join = join_in(tmp_path)
    kept = [life.ingest(join, life.batch_of(join), "l", row(1, 10))]
    join.batch(l=row(1, 10))
    with pytest.raises(StateError, match="batch 1 was asked to join rows of batch 0"):
        list(join.operator.join(life.batch_of(join), 0, kept))
    again = life.restarted(join, at=0)
    with pytest.raises(StateError, match="batch 0 was asked to join rows of start 0"):
        list(again.operator.join(life.batch_of(again), 0, kept))


def test_a_start_whose_manifests_a_later_one_has_removed_is_told_of_the_later_one(tmp_path):
    old = join_in(tmp_path)
    old.batch(l=row(1, 10))
    later = life.restarted(old, at=1)
    later.batch(l=row(1, 11))
    files = life.files_of(tmp_path)
    files.delete(list_manifests(files)[0].path)
    with pytest.raises(StateInUse, match="another start of this query has taken over"):
        old.batch(r=row(1, 5))
