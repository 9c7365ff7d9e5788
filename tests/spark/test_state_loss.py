"""Checkpoint and state do not belong together: one of them is missing, older, or new."""

from __future__ import annotations

import shutil

import pytest

import watersmeet as wm
from tests.spark.state_helpers import all_files, failure, state_files
from watersmeet.log.manifests import list_manifests
from watersmeet.testing import StreamScript, assert_same_rows

SCHEMA = "k int, x int"


@pytest.fixture
def script(spark, tmp_path):
    """Three batches are done: l has a row of each, r has none."""
    state = str(tmp_path / "state")
    with StreamScript(spark, tmp_path, l=SCHEMA, r=SCHEMA) as started:
        started.start(
            lambda l, r: wm.join({"l": l, "r": r}, on="l.k = r.k", select=["l.x", "r.x AS y"], state=state)
        )
        for number in range(3):
            started.batch(l=[(1, number)])
        started.stop()
        yield started


def test_a_checkpoint_without_its_state_is_refused_until_the_state_is_back(script, tmp_path):
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    script.start().add(r=[(1, 9)])
    message = failure(script.process)
    assert "StateMissing: the checkpoint is at batch 3, but there is no state of an earlier batch" in message
    assert str(tmp_path / "state") in message
    assert "new checkpoint" in message
    assert all_files(tmp_path / "state") == set()
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    script.start().process()
    assert_same_rows(script.results(), [(0, 9), (1, 9), (2, 9)])


def test_a_state_that_is_behind_its_checkpoint_is_refused_until_it_is_back(script, tmp_path):
    files = state_files(tmp_path / "state")
    lost = [files.root / name.path for name in list_manifests(files)[1:]]
    kept = {path: path.read_bytes() for path in lost}
    for path in lost:
        path.unlink()
    before = all_files(tmp_path / "state")
    script.start().add(r=[(1, 9)])
    message = failure(script.process)
    assert "StateBehind: the checkpoint is at batch 3, but the newest state in" in message
    assert "is of batch 0: 2 batch(es) are missing" in message
    assert all_files(tmp_path / "state") == before
    for path, content in kept.items():
        path.write_bytes(content)
    script.start().process()
    assert_same_rows(script.results(), [(0, 9), (1, 9), (2, 9)])


def test_a_new_checkpoint_begins_with_fresh_state(script, tmp_path):
    """It reads all input again; with the old state every pair would come out twice."""
    script.start(checkpoint="another").batch(r=[(1, 9)])
    assert_same_rows(script.results(), [(0, 9), (1, 9), (2, 9)])
    assert len(list((tmp_path / "state" / "l-r").iterdir())) == 2
