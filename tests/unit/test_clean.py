"""Clean-up and receipts on a real directory: what goes, and what stays though it looks as if nobody needed it."""

from __future__ import annotations

import os

import pytest

from tests.unit.log_helpers import commit, rows
from watersmeet.log.clean import STALE_BATCH_S, Cleaner, remove_stale_batches
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, publish_receipt, read_receipts
from watersmeet.log.runs import write_run
from watersmeet.model.facts import Receipt, Run


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


def touch_old(files: LocalFiles, run: Run) -> None:
    os.utime(files.root / run.path, (0, 0))


def test_only_unreachable_old_runs_of_earlier_batches_go(files):
    named = write_run(files, "l", 0, "p00000", rows(1))
    orphan = write_run(files, "l", 0, "p00001", rows(2))
    young = write_run(files, "l", 0, "p00002", rows(3))
    current = write_run(files, "l", 1, "p00000", rows(4))
    commit(files, 0, "run-a", named)
    manifest = commit(files, 1, "run-a")
    for run in (named, orphan, current):
        touch_old(files, run)
    cleaned = Cleaner(files).clean(manifest, retain=100, now_s=os.stat(files.root / young.path).st_mtime)
    left = {info.name for info in files.entries("runs/l")}
    assert cleaned.runs == 1
    assert left == {run.path.rpartition("/")[2] for run in (named, young, current)}


def test_runs_of_an_unaccepted_receipt_stay(files):
    merged = write_run(files, "l", 0, "m00000", rows(1))
    commit(files, 0)
    manifest = commit(files, 1)
    publish_receipt(files, Receipt("l-0-0-x", 0, (merged,)), "a")
    touch_old(files, merged)
    Cleaner(files).clean(manifest, retain=100, now_s=2e9, grace_s=1e9)
    assert len(files.entries("runs/l")) == 1


def test_manifests_are_kept_as_long_as_spark_may_replay(files):
    for number in range(10):
        manifest = commit(files, number)
    Cleaner(files).clean(manifest, retain=4, now_s=2e9)
    assert [name.batch for name in list_manifests(files)] == [5, 6, 7, 8, 9]


def test_a_damaged_manifest_of_an_older_batch_stops_the_removal_but_not_the_query(files):
    orphan = write_run(files, "l", 0, "p00001", rows(2))
    for number in range(3):
        manifest = commit(files, number)
    touch_old(files, orphan)
    (files.root / list_manifests(files)[0].path).write_bytes(b"x")
    assert Cleaner(files).clean(manifest, retain=100, now_s=2e9).runs == 0
    assert len(files.entries("runs/l")) == 1


def test_a_damaged_receipt_counts_as_absent(files):
    publish_receipt(files, Receipt("m", 0, ()), "a")
    (files.root / "receipts" / "m.00000.a.json").write_bytes(b"half")
    assert read_receipts(files, lambda merge, part: True) == []


def test_the_state_before_a_long_silence_stays(files):
    """Spark may replay batch 40, and nothing between it and batch 1 reached the join."""
    for number in (0, 1, 40):
        manifest = commit(files, number)
    Cleaner(files).clean(manifest, retain=4, now_s=2e9)
    assert [name.batch for name in list_manifests(files)] == [1, 40]


def test_the_runs_of_every_receipt_stay_also_where_a_part_has_two(files):
    """A crash may leave either of the two receipts to be found by a start that was rolled back."""
    merged = [write_run(files, "l", 0, f"m00000-{attempt}", rows(1)) for attempt in "ab"]
    commit(files, 0)
    manifest = commit(files, 1)
    for run, attempt in zip(merged, "ab", strict=True):
        publish_receipt(files, Receipt("l-0-0-x", 0, (run,)), attempt)
        touch_old(files, run)
    Cleaner(files).clean(manifest, retain=100, now_s=2e9, grace_s=1e9)
    assert len(files.entries("runs/l")) == 2


def test_one_receipt_counts_for_each_part_and_drafts_do_not(files):
    for attempt in "ab":
        publish_receipt(files, Receipt("m", 0, ()), attempt)
    publish_receipt(files, Receipt("m", 1, ()), "a")
    (files.root / "receipts" / ".draft").write_bytes(b"half")
    assert [r.part for r in read_receipts(files, lambda merge, part: True)] == [0, 1]
    assert read_receipts(files, lambda merge, part: False) == []


def test_batch_joins_older_than_a_day_go_and_streams_stay(tmp_path):
    root = LocalFiles(tmp_path)
    for folder in ("batch-old", "batch-new", "7f3c-a-stream"):
        write_run(root.under(folder), "l", 0, "p00000", rows(1))
    written = root.under("batch-new").entries("runs/l")[0].modified_s
    for folder in ("batch-old", "7f3c-a-stream"):
        (info,) = root.under(folder).entries("runs/l")
        os.utime(tmp_path / folder / "runs" / "l" / info.name, (0, 0))
    assert remove_stale_batches(root, written + STALE_BATCH_S / 2) == 1
    assert root.folders() == ["7f3c-a-stream", "batch-new"]
