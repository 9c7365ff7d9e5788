"""Starts of a query: every one gets a number of its own, higher than all before it."""

from __future__ import annotations

import os
import shutil
import threading

import pytest

from tests.late_files import LateFiles, Listings
from tests.unit.log_helpers import commit, rows
from watersmeet.errors import CorruptFile, StateInUse
from watersmeet.log.files import LocalFiles
from watersmeet.log.runs import write_run
from watersmeet.log.starts import (
    KEPT_CLAIM_S,
    KEPT_CLAIMS,
    STARTS,
    check_current,
    claim_start,
    forget_starts_before,
    read_start,
    search_start,
)
from watersmeet.model.facts import BatchId, Start


def find_start(files, run: str) -> Start | None:
    return search_start(files, run)[0]


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


def claim_path(files: LocalFiles, number: int):
    return files.root / STARTS / f"{number:06d}"


def test_the_number_grows_with_every_start(files):
    commit(files, 0, "run-a")
    commit(files, 1, "run-a")
    commit(files, 2, "run-b")
    assert commit(files, 3, "run-c").run_seq == 2


def test_a_claim_records_the_run_and_the_first_batch_that_reached_the_operator(files):
    claim_start(files, "run-a", 7)
    assert claim_start(files, "run-a", 8) == find_start(files, "run-a") == Start(0, "run-a", 7)
    assert find_start(files, "run-b") is None


def test_two_starts_that_replay_the_same_batch_do_not_share_a_number(files):
    """The checkpoint was rolled back to batch 1 twice, with other input: the second start's rows count."""
    first, second, third = (write_run(files, "l", 1, "p00000", rows(n)) for n in (1, 2, 3))
    commit(files, 0, "run-a")
    commit(files, 1, "run-a", first)
    commit(files, 1, "run-b", second)
    commit(files, 2, "run-b")
    commit(files, 1, "run-a-later-in-the-alphabet", third)
    assert [r.path for r in commit(files, 2, "run-a-later-in-the-alphabet").history] == [third.path]
    assert [r.path for r in commit(files, 3, "run-0").history] == [third.path]


def test_all_tasks_of_a_start_find_the_same_number(files):
    start, seen = threading.Barrier(8), []

    def task(run: str) -> None:
        start.wait()
        seen.append((run, claim_start(files, run, 0).number))

    threads = [threading.Thread(target=task, args=(f"run-{n % 2}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert sorted(set(seen), key=lambda claim: claim[1]) in (
        [("run-0", 0), ("run-1", 1)],
        [("run-1", 0), ("run-0", 1)],
    )


def test_a_task_that_looks_while_another_one_of_its_start_claims_finds_the_same_number(files):
    """The other one's claim is written after this one has looked for it, and before it takes a number."""
    claim_start(files, "run-0", 0)

    class Racing(LateFiles):
        def read(self, path: str) -> bytes:
            try:
                return files.read(path)
            except FileNotFoundError:
                claim_start(files, "run-a", 5)
                raise

    assert claim_start(Racing(files, Listings(fresh=lambda: True)), "run-a", 5) == Start(1, "run-a", 5)
    assert len(files.entries(STARTS)) == 2


def test_a_lost_folder_of_starts_does_not_make_an_old_manifest_the_newest(files):
    """The rows of batch 1 are those of the last start that did it, whatever happened to the claims."""
    old, new = (write_run(files, "l", 1, "p00000", rows(key)) for key in (1, 2))
    commit(files, 0, "run-a")
    commit(files, 1, "run-a", old)
    commit(files, 1, "run-b", new)
    shutil.rmtree(files.root / STARTS)
    assert commit(files, 2, "run-c").run_seq == 2
    shutil.rmtree(files.root / STARTS)
    replayed = commit(files, 2, "run-d")
    assert replayed.run_seq == 3
    assert [run.path for run in replayed.history] == [new.path]


def test_an_older_start_is_refused_once_a_newer_one_has_begun(files):
    late = LateFiles(files)
    older, newer = claim_start(late, "a", 0), claim_start(late, "b", 0)
    check_current(late, newer)
    with pytest.raises(StateInUse, match="another start"):
        check_current(late, older)


def test_a_start_whose_claim_is_gone_does_not_go_on(files):
    start = claim_start(files, "a", 0)
    shutil.rmtree(files.root / STARTS)
    with pytest.raises(CorruptFile, match="claim starts/000000 of this start is missing"):
        check_current(files, start)
    claim_start(files, "b", 0)
    with pytest.raises(StateInUse, match="another start"):
        check_current(files, start)


def test_claims_are_found_by_name_where_the_listing_is_late(files):
    late = LateFiles(files)
    assert find_start(late, "a") is None
    claimed = [claim_start(files, run, 0) for run in "abc"]
    assert [find_start(late, run) for run in "abc"] == claimed
    assert claim_start(late, "d", 0).number == 3


def test_claims_are_found_by_name_where_only_the_listing_of_claims_is_late(files):
    late = LateFiles(files)
    late.entries(STARTS)
    commit(files, 0, "run-a")
    commit(files, 1, "run-b")
    assert find_start(late, "run-a") == Start(0, "run-a", 0)
    assert find_start(late, "run-b") == Start(1, "run-b", 1)


def test_claims_of_starts_that_nobody_needs_go_after_a_day(files):
    """Before that a late task would find no claim of its own, make another and look like the newest start."""
    for run in "abc":
        claim_start(files, run, 0)
    now_s = os.stat(claim_path(files, 0)).st_mtime
    forget_starts_before(files, 2, now_s)
    assert claim_start(files, "a", 0).number == 0
    forget_starts_before(files, 2, now_s + KEPT_CLAIM_S + 60)
    assert find_start(files, "a") is None
    assert claim_start(files, "c", 0).number == 2
    assert claim_start(files, "d", 0).number == 3


def test_the_claims_of_a_query_that_crashes_over_and_over_are_bounded(files):
    for number in range(KEPT_CLAIMS + 5):
        claim_start(files, f"run-{number}", 0)
    forget_starts_before(files, KEPT_CLAIMS + 4, now_s=0.0)
    assert len(files.entries(STARTS)) == KEPT_CLAIMS + 1


class CountingFiles(LateFiles):
    """Keeps the paths that are read."""

    def __init__(self, files: LocalFiles):
        super().__init__(files, Listings(fresh=lambda: True))
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return self._files.read(path)


def test_a_new_start_reads_only_the_claims_that_no_manifest_tells_of(files):
    for number in range(20):
        commit(files, number, f"run-{number}")
    claim_start(files, "run-crashed", 20)
    counting = CountingFiles(files)
    assert claim_start(counting, "run-new", 20) == Start(21, "run-new", 20)
    assert counting.reads == [f"{STARTS}/000020", f"{STARTS}/000021"]
    counting.reads.clear()
    assert find_start(counting, "run-3") == Start(3, "run-3", 3)
    assert counting.reads == [f"{STARTS}/000021", f"{STARTS}/000020", f"{STARTS}/000003"]


def test_who_has_searched_claims_without_a_second_search(files):
    for run in "abc":
        claim_start(files, run, 0)
    counting = CountingFiles(files)
    found, highest = search_start(counting, "d")
    assert (found, highest) == (None, 2)
    counting.reads.clear()
    # Another start, and another task of this one, came in between.
    claim_start(files, "z", 0)
    theirs = claim_start(files, "d", 0)
    assert claim_start(counting, "d", 1, highest) == theirs
    assert counting.reads == [f"{STARTS}/000003", f"{STARTS}/000004"]


def test_a_late_listing_does_not_hide_the_highest_number(files):
    late = LateFiles(files)
    late.entries(STARTS)
    for run in "abc":
        claim_start(files, run, 0)
    assert search_start(late, "d") == (None, 2)


def test_a_claim_of_an_older_version_is_only_a_run_id(files):
    files.publish(f"{STARTS}/000004", b"9d1f1a34-0000-4000-8000-000000000000")
    assert read_start(files, 4) == Start(4, "9d1f1a34-0000-4000-8000-000000000000", None)
    assert claim_start(files, "run-b", 3).number == 5


def test_every_truncation_and_every_flipped_bit_of_a_claim_is_found(files):
    whole = claim_start(files, "run-a", 17) and claim_path(files, 0).read_bytes()
    damaged = [whole[:cut] for cut in range(len(whole))]
    for at in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            damaged.append(bytes(flipped))
    for content in damaged:
        claim_path(files, 0).write_bytes(content)
        with pytest.raises(CorruptFile, match="starts/000000"):
            read_start(files, 0)


def test_a_claim_under_another_number_is_refused(files):
    claim_start(files, "run-a", 0)
    shutil.copy(claim_path(files, 0), claim_path(files, 1))
    with pytest.raises(CorruptFile, match="starts/000001 in .* belongs to start 0"):
        read_start(files, 1)


def test_a_damaged_claim_stops_a_query_only_if_it_may_be_its_own(files):
    commit(files, 0, "run-a")
    claim_path(files, 0).write_bytes(b"{")
    # Its manifest says whose it is.
    assert commit(files, 1, "run-b").run_seq == 1
    with pytest.raises(CorruptFile, match="starts/000000"):
        claim_start(files, "run-a", 0)
    claim_start(files, "run-c", 2)
    claim_path(files, 2).write_bytes(b"{")
    with pytest.raises(CorruptFile) as caught:
        claim_start(files, "run-d", 2)
    # What helps against a damaged manifest does not help here.
    assert str(caught.value) == (
        f"the claim starts/000002 of a start in {files.place} is damaged: its header cannot be read. Make sure that no "
        "driver of this query runs, remove the file and start the query again"
    )
    claim_path(files, 2).unlink()
    assert commit(files, 2, "run-d").parent == BatchId("q", "run-b", 1)


@pytest.mark.parametrize("foreign", [".nfs000001", "_SUCCESS", ".DS_Store", "000001~", "1"])
def test_foreign_files_are_no_claims(files, foreign):
    claim_start(files, "run-a", 0)
    (files.root / STARTS / foreign).write_bytes(b"x")
    assert claim_start(files, "run-b", 0).number == 1
    forget_starts_before(files, 10, now_s=4e9)
    assert (files.root / STARTS / foreign).exists()
