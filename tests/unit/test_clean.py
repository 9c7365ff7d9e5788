"""Clean-up and receipts on a real directory: what goes, and what stays though it looks as if nobody needed it."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import life
from tests.late_files import LateFiles, Listings
from tests.unit.log_helpers import commit, rows
from watersmeet.errors import StateError
from watersmeet.local.join import LocalJoin
from watersmeet.log.clean import LOOKS, STALE_BATCH_S, Cleaner, mark_batch, remove_stale_batches
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.parents import find_parent
from watersmeet.log.receipts import list_receipts, publish_receipt, read_receipt, read_receipts
from watersmeet.log.runs import write_run
from watersmeet.model.facts import BatchId, BatchSpan, Manifest, Receipt, Run, Start
from watersmeet.tables.catalogue import TABLES, drop_tables
from watersmeet.tables.spec import table


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


def test_the_state_before_an_accepted_gap_stays(files):
    """Spark may replay batch 40, which builds on batch 1."""
    for number in (0, 1, 40):
        manifest = commit(files, number, accepted=(BatchSpan(2, 39),))
    Cleaner(files).clean(manifest, retain=4, now_s=2e9)
    assert [name.batch for name in list_manifests(files)] == [1, 40]


@pytest.mark.parametrize("run", ["run-a", "run-b"], ids=["same start", "after a restart"])
def test_a_late_listing_does_not_hide_what_a_replay_would_build_on(files, run):
    """Batch 1 has merged a run away that batch 0, which the listing does not show yet, still names."""
    late = LateFiles(files)
    late.entries("manifests")
    merged_away = write_run(files, "l", 0, "p00000", rows(1))
    commit(files, 0, "run-a", merged_away)
    current = replace(commit(files, 1, run), history=())
    touch_old(files, merged_away)
    Cleaner(late).clean(current, retain=1, now_s=2e9)
    assert len(files.entries("runs/l")) == 1


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


def leave_batch(root: LocalFiles, name: str, *, age_s: float) -> None:
    """What a batch join leaves: a start, runs of both inputs and a manifest."""
    files = root.under(name)
    runs = [write_run(files, side, 0, "p00000", rows(1)) for side in "lr"]
    commit(files, 0, "batch", *runs)
    for path in files.root.rglob("*"):
        os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def listings(monkeypatch) -> list[str]:
    """Every listing of a folder, as it happens."""
    seen: list[str] = []
    for method in ("entries", "folders"):
        real = getattr(LocalFiles, method)

        def counted(files, *folder, real=real):
            seen.append("/".join((files.place, *folder)))
            return real(files, *folder)

        monkeypatch.setattr(LocalFiles, method, counted)
    return seen


@pytest.mark.parametrize("earlier", [20, 200])
def test_a_batch_join_lists_the_same_few_folders_however_many_there_were_before(tmp_path, listings, earlier):
    schema = pa.schema({"k": pa.int64()})
    join = LocalJoin({"l": schema, "r": schema}, on="l.k = r.k", state=str(tmp_path), tasks=1)
    root = LocalFiles(tmp_path / "join")
    for number in range(earlier):
        leave_batch(root, f"batch-{number:032x}-{number}", age_s=3600)
    del listings[:]
    batch = BatchId("batch-" + "f" * 32 + "-1", "batch", 0)
    fresh = pa.table({"k": [1]}, schema=schema)
    descriptors = [life.ingest(join, batch, side, fresh) for side in "lr"]
    assert sum(part.num_rows for part in join.operator.join(batch, 0, descriptors)) == 1
    assert len(listings) < 30
    assert len(root.folders()) == earlier + 1


def test_old_batch_joins_go_over_time_and_one_that_still_runs_never(tmp_path):
    root = LocalFiles(tmp_path)
    for number in range(40):
        leave_batch(root, f"batch-old{number}", age_s=2 * STALE_BATCH_S)
    # A day and more at work: its manifest is old, and just now it has written a run.
    leave_batch(root, "batch-running", age_s=2 * STALE_BATCH_S)
    write_run(root.under("batch-running"), "r", 0, "p00001", rows(9))
    # First and last by name, so that nobody gets past them who always begins at one end.
    young = [f"batch-{where}{number}" for where in "az" for number in range(LOOKS)]
    for name in young:
        leave_batch(root, name, age_s=3600)
    left = [40]
    for number in range(60):
        remove_stale_batches(root, time.time(), f"batch-{number}")
        left.append(len(root.folders()) - 1 - len(young))
    assert all(before - after <= LOOKS for before, after in itertools.pairwise(left))
    assert root.folders() == sorted([*young, "batch-running"])


def test_batch_joins_with_a_table_ask_no_earlier_batch_join_whether_it_uses_the_table(tmp_path, listings):
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), source)
    schema = pa.schema({"k": pa.int64()})
    state = tmp_path / "state"
    inputs = {"s": schema, "p": table(str(source), "id")}
    join = LocalJoin(inputs, on="s.k = p.id", state=str(state), tasks=1)
    fresh = pa.table({"k": [1]}, schema=schema)

    def run(number: int) -> None:
        batch = BatchId(f"batch-{number:032x}-{number}", "batch", 0)
        descriptors = [life.ingest(join, batch, "s", fresh)]
        assert sum(part.num_rows for part in join.operator.join(batch, 0, descriptors)) == 1

    for number in range(60):
        run(number)
    (used,) = open_files(state).under(TABLES).folders()
    age = [(path, time.time() - 7 * 3600) for path in (state / TABLES / used).iterdir()]
    for path, modified in age:
        os.utime(path, (modified, modified))
    del listings[:]
    run(60)
    assert len(listings) < 30
    # Marked by the join: another one, with another table, leaves it alone for hours.
    assert drop_tables(open_files(state), [], time.time() + 5 * 3600) == []
    assert drop_tables(open_files(state), [], time.time() + 7 * 3600) == [f"{TABLES}/{used}"]


def test_a_batch_join_keeps_the_tables_of_its_later_stages(tmp_path):
    """A DataFrame may be evaluated long after `wm.join`, and the first lookup cleans up before the second begins."""
    for name in "pg":
        pq.write_table(pa.table({"id": [1, 2], name: [1, 2]}), tmp_path / f"{name}.parquet")
    schema, state = pa.schema({"k": pa.int64()}), tmp_path / "state"
    tables = {name: table(str(tmp_path / f"{name}.parquet"), "id") for name in "pg"}
    join = LocalJoin(
        {"s": schema, **tables}, "s.k = p.id AND p.p = g.id", str(state), tasks=1, query="batch-1"
    )
    old = time.time() - 7 * 3600
    for path in (state / TABLES).glob("*/*"):
        os.utime(path, (old, old))
    assert join.batch(s=pa.table({"k": [1]}, schema=schema)).num_rows == 1
    assert len(open_files(state).under(TABLES).folders()) == 2
    # Each is marked, so that another batch join leaves it alone as well.
    assert drop_tables(open_files(state), [], time.time() + 5 * 3600) == []


def test_a_batch_join_that_is_computed_again_is_not_stale(tmp_path):
    """Its runs are there already. On an object store they keep their age, so it leaves a mark."""
    files = LocalFiles(tmp_path)
    old = tmp_path / "batch-1" / "manifests" / "x"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (1, 1))
    mark_batch(files.under("batch-1"), time.time())
    assert remove_stale_batches(files, time.time()) == 0
    assert remove_stale_batches(files, time.time() + STALE_BATCH_S + 60) == 1


# --- a crash in the middle ----------------------------------------------------------------------------------------------


class Torn(LateFiles):
    """Files of a process that dies while it removes some: of a request, any may be gone."""

    def __init__(self, files: LocalFiles, seed: int, steps: int):
        super().__init__(files, Listings(lambda: True))
        self._rng = random.Random(seed)
        self.left = self._rng.randrange(steps)

    def delete_many(self, paths):
        if self.left == 0 and paths:
            for path in self._rng.sample(paths, self._rng.randrange(len(paths) + 1)):
                self._files.delete(path)
            raise KeyboardInterrupt
        self.left -= bool(paths)
        return self._files.delete_many(paths)


def torn_clean_ups(files: LocalFiles, current: Manifest, scratch: Path, steps: int) -> Iterator[LocalFiles]:
    """The same state after clean-ups that died in one of the first `steps` removals."""
    for seed in range(16):
        shutil.copytree(files.root, scratch / str(seed))
        left = LocalFiles(scratch / str(seed))
        with contextlib.suppress(KeyboardInterrupt):
            Cleaner(Torn(left, seed, steps)).clean(current, retain=2, now_s=4e9)
        yield left


def test_a_clean_up_that_dies_anywhere_leaves_no_manifest_without_its_files(tmp_path):
    limits = replace(life.TINY, inline_descriptor_bytes=0, least_base_runs=2, inline_values=0)
    schema = pa.schema({"k": pa.int64(), "x": pa.int64()})
    settings = {"limits": limits, "retain_batches": 100}
    join = life.start(schema, tmp_path / "state", select=["l.x"], settings=settings, strategy="hypercube")
    for number in range(6):
        some = pa.table({"k": [1, 1, number], "x": [0, 1, 2]}, schema=schema)
        join.batch(l=some, r=some)
    files = life.files_of(tmp_path / "state")
    dead = 0
    for left in torn_clean_ups(files, life.newest(files), tmp_path / "torn", steps=6):
        manifests = [read_manifest(left, name) for name in list_manifests(left)]
        dead += len(manifests) < 6
        for manifest in manifests:
            assert all(left.exists(path) for path in manifest.named_paths)
    assert dead > 8


def test_a_clean_up_that_dies_does_not_revive_a_start_that_was_rolled_back(files, tmp_path):
    """Start a did batches 0 to 5. The checkpoint was rolled back to 2, and start b did all since."""
    for number in range(6):
        commit(files, number, "run-a")
    for number in range(2, 12):
        current = commit(files, number, "run-b")
    refused = 0
    for left in torn_clean_ups(files, current, tmp_path / "torn", steps=2):
        for number in range(3, 12):
            batch = BatchId("q", "run-c", number)
            try:
                parent = find_parent(left, batch, Start(2, "run-c", number))
            except StateError:
                refused += 1
            else:
                assert parent is not None and parent.batch == BatchId("q", "run-b", number - 1)
    assert refused > 8


def named_by_kept(files: LocalFiles) -> set[str]:
    """The run files that some manifest keeps alive."""
    kept = [read_manifest(files, name) for name in list_manifests(files)]
    return {path for manifest in kept for path in manifest.named_paths}


def run_files(files: LocalFiles) -> set[str]:
    return {f"runs/{name}/{info.name}" for name in "lr" for info in files.entries(f"runs/{name}")}


def lived(
    tmp_path: Path, batches: int, forgetful: bool = False, retain: int = 4
) -> tuple[LocalJoin, LocalFiles]:
    """A join whose runs are merged all the time, within a few seconds: no file is as old as the grace period."""
    limits = replace(life.TINY, least_scarce_bytes=0)
    join = life.start(SCHEMA, tmp_path, settings={"limits": limits, "retain_batches": retain})
    for number in range(batches):
        if forgetful:
            life.forget()
        table = pa.table({"k": [number % 3, 1, 2], "x": [number, 1, 2]}, schema=SCHEMA)
        join.batch(l=table, r=table)
    (folder,) = (tmp_path / "join").iterdir()
    return join, LocalFiles(folder)


SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def test_merged_runs_go_with_the_last_manifest_that_named_them(tmp_path):
    join, files = lived(tmp_path, 30)
    unnamed = run_files(files) - named_by_kept(files)
    # A clean-up comes every second batch: what the last one removed manifests of is gone with them.
    assert len(unnamed) <= 4
    # A checkpoint may be rolled back as far as before.
    again = life.restarted(join, at=join.number - 4)
    table = pa.table({"k": [7], "x": [7]}, schema=SCHEMA)
    assert again.batch(l=table, r=table).num_rows == 1


def test_a_process_that_saw_no_manifest_name_a_run_waits_for_the_grace_period(tmp_path):
    _, files = lived(tmp_path, 30, forgetful=True)
    assert len(run_files(files) - named_by_kept(files)) > 20


def test_a_young_run_that_no_manifest_named_stays(files):
    undescribed = write_run(files, "l", 0, "p00001", rows(2))
    cleaner = Cleaner(files)
    for number in range(9):
        cleaner.clean(commit(files, number), retain=4, now_s=time.time())
    assert files.exists(undescribed.path)


def test_a_clean_up_of_young_files_that_dies_leaves_no_receipt_without_its_runs(tmp_path):
    """A rollback would take such a receipt for a part that is merged."""
    _, files = lived(tmp_path / "state", 24, retain=100)
    receipts, gone = len(list_receipts(files)), 0
    for seed in range(16):
        shutil.copytree(files.root, tmp_path / str(seed))
        left = LocalFiles(tmp_path / str(seed))
        torn = Torn(left, seed, steps=4)
        dies_after, torn.left = torn.left, 1_000
        cleaner = Cleaner(torn)
        cleaner.clean(life.newest(files), retain=100, now_s=time.time())
        torn.left = dies_after
        with contextlib.suppress(KeyboardInterrupt):
            cleaner.clean(life.newest(files), retain=2, now_s=time.time())
        for name in list_receipts(left):
            receipt = read_receipt(left, name)
            assert receipt is not None
            assert all(left.exists(run.path) for run in receipt.output)
        assert named_by_kept(left) <= run_files(left)
        gone += len(list_receipts(left)) < receipts
    assert gone > 4
