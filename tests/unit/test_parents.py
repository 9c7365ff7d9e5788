"""The parent of a batch: found by name, and refused by name where rows would be lost."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.late_files import LateFiles
from tests.unit.log_helpers import commit, rows
from watersmeet.errors import CorruptFile, StateBehind, StateError, StateInUse, StateMissing
from watersmeet.log.codec import checksum, to_plain
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.parents import HIDDEN_MANIFESTS, check_not_overtaken, find_attempt, find_parent
from watersmeet.log.runs import write_run
from watersmeet.log.starts import claim_start
from watersmeet.model.facts import FORMAT, BatchId, BatchSpan, Start


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


def lose(files: LocalFiles, *batches: int) -> None:
    for name in list_manifests(files):
        if name.batch in batches:
            files.delete(name.path)


def assert_names_causes_and_remedy(message: str, batches: str) -> None:
    assert f"a foreachBatch function did not evaluate its DataFrame in batch {batches}," in message
    assert "limit(0)" in message and "shows new files late" in message and "deleted" in message
    assert "batches of another checkpoint, which Spark skips" in message
    assert f"roll the checkpoint back to batch {batches.split('-')[0]} and start again" in message
    assert message.endswith(f"spark.watersmeet.acceptGap={batches}")


def test_a_listing_that_misses_the_newest_manifest_does_no_harm(files):
    late = LateFiles(files)
    fresh = [write_run(files, "l", number, "p00000", rows(number)) for number in range(6)]
    late.entries("manifests")
    for number in range(6):
        run = "run-a" if number < 3 else "run-b"
        manifest = commit(late, number, run, fresh[number])
        assert [one.path for one in manifest.live] == [one.path for one in fresh[: number + 1]]
    assert list_manifests(late) == []


def test_after_two_replays_of_a_batch_a_late_listing_does_not_bring_back_the_first_attempt(files):
    """The listing shows batch 1 of the first start, and not yet batch 1 of the second, which Spark committed."""
    old, new = (write_run(files, "l", 1, "p00000", rows(key)) for key in (1, 2))
    commit(files, 0, "run-a")
    commit(files, 1, "run-a", old)
    late = LateFiles(files)
    assert len(list_manifests(late)) == 2
    commit(files, 1, "run-b", new)
    assert [run.path for run in commit(late, 2, "run-c").history] == [new.path]
    assert len(list_manifests(late)) == 2


def test_a_batch_that_left_no_manifest_is_an_error_within_a_start(files):
    commit(files, 0)
    with pytest.raises(StateBehind) as caught:
        commit(files, 2)
    message = str(caught.value)
    assert message.startswith("batch 1 left no manifest, so batch 2 would lose its rows")
    assert_names_causes_and_remedy(message, "1")


def test_a_manifest_that_was_deleted_while_the_query_runs_is_missed(files):
    for number in range(3):
        commit(files, number)
    lose(files, 2)
    with pytest.raises(StateBehind, match="batch 2 left no manifest"):
        commit(files, 3)


def test_a_start_whose_first_batch_was_skipped_by_its_sink_goes_on(files):
    """A file sink that has committed batch 1 does not evaluate its replay: the start first sees batch 2."""
    run = write_run(files, "l", 1, "p00000", rows(1))
    commit(files, 0, "run-a")
    commit(files, 1, "run-a", run)
    assert [one.path for one in commit(files, 2, "run-b").history] == [run.path]


def test_starts_that_published_nothing_are_passed_over(files):
    commit(files, 0, "run-a")
    claim_start(files, "run-b", 1)
    claim_start(files, "run-c", 1)
    assert commit(files, 1, "run-d").parent == BatchId("q", "run-a", 0)
    # They claimed batch 1, so that their manifests of it are not there is no surprise in batch 2 either.
    assert commit(files, 2, "run-e").parent == BatchId("q", "run-d", 1)


def test_a_late_task_of_an_earlier_batch_is_refused(files):
    start = claim_start(files, "run-a", 5)
    with pytest.raises(StateError, match="a task of batch 4 ran after the first batch of this start, 5"):
        find_parent(files, BatchId("q", "run-a", 4), start)


def test_state_that_is_missing_is_an_error(files):
    with pytest.raises(StateMissing, match="checkpoint is at batch 5") as caught:
        commit(files, 5)
    assert_names_causes_and_remedy(str(caught.value), "0-4")


def test_where_no_state_is_the_place_is_the_first_suspect(files):
    """An input that got another alias is enough for that: the name of the join is made of them."""
    with pytest.raises(
        StateMissing, match=r"give the state= and name= of the earlier starts; .* Likely causes"
    ):
        commit(files, 5)


def test_a_first_batch_that_was_not_evaluated_is_named_as_a_likely_cause(files):
    """The query's first batch, and the first one after a restart."""
    with pytest.raises(StateMissing) as caught:
        commit(files, 1, "run-a")
    assert_names_causes_and_remedy(str(caught.value), "0")
    commit(files, 0, "run-b")
    with pytest.raises(StateBehind) as caught:
        commit(files, 2, "run-c")
    assert_names_causes_and_remedy(str(caught.value), "1")


def test_state_that_is_behind_is_an_error_after_a_restart(files):
    commit(files, 0, "run-a")
    with pytest.raises(StateBehind, match="newest state .* is of batch 0: 3 batch") as caught:
        commit(files, 4, "run-b")
    assert_names_causes_and_remedy(str(caught.value), "1-3")


class CountingFiles(LateFiles):
    """Counts how often a name is looked up."""

    looked_up = 0

    def exists(self, path: str) -> bool:
        self.looked_up += 1
        return self._files.exists(path)


@pytest.mark.parametrize("lost", [pytest.param(False, id="behind"), pytest.param(True, id="missing")])
def test_a_checkpoint_far_ahead_of_the_state_is_refused_after_few_look_ups(files, lost):
    commit(files, 0, "run-a")
    if lost:
        lose(files, 0)
    counting = CountingFiles(files)
    with pytest.raises(StateMissing if lost else StateBehind, match=r"acceptGap=[01]-199999$"):
        commit(counting, 200_000, "run-b")
    assert HIDDEN_MANIFESTS <= counting.looked_up <= 2 * HIDDEN_MANIFESTS


@pytest.mark.parametrize("hidden", [3, HIDDEN_MANIFESTS, 5_000 - HIDDEN_MANIFESTS, 4_998])
def test_a_manifest_that_a_listing_hides_is_found_near_the_newest_one_and_near_the_checkpoint(files, hidden):
    late = LateFiles(files)
    commit(files, 0, "run-a")
    assert len(list_manifests(late)) == 1
    commit(files, hidden, "run-a", accepted=(BatchSpan(1, hidden - 1),))
    with pytest.raises(StateBehind, match=f"is of batch {hidden}: "):
        commit(late, 5_000, "run-b")


def test_the_newest_start_counts_although_an_older_one_has_the_batch_before(files):
    """Batch 1 of the second start is lost: batch 1 of the first one may have other rows."""
    commit(files, 0, "run-a")
    commit(files, 1, "run-a")
    commit(files, 0, "run-b")
    commit(files, 1, "run-b")
    files.delete(list_manifests(files)[-1].path)
    with pytest.raises(StateBehind, match="newest start in .* ended with batch 0, while start 0 did batch 1"):
        commit(files, 2, "run-c")


def test_a_damaged_parent_is_named(files):
    commit(files, 0)
    (files.root / list_manifests(files)[0].path).write_bytes(b"x")
    with pytest.raises(CorruptFile, match="of batch 0"):
        commit(files, 1)


# --- accepted gaps --------------------------------------------------------------------------------------


def test_only_the_batches_that_are_named_may_be_missing(files):
    commit(files, 0, "run-a")
    for accepted in ((BatchSpan(1, 2),), (BatchSpan(2, 3),), (BatchSpan(1, 1), BatchSpan(3, 3))):
        with pytest.raises(StateBehind):
            commit(files, 4, "run-b", accepted=accepted)
    manifest = commit(files, 4, "run-b", accepted=(BatchSpan(1, 1), BatchSpan(2, 9)))
    assert manifest.gaps == (BatchSpan(1, 3),)
    assert commit(files, 5, "run-b").gaps == (BatchSpan(1, 3),)


def test_an_accepted_gap_does_not_hide_the_next_one(files):
    """Neither in the same start nor after a restart."""
    commit(files, 0, "run-a")
    commit(files, 2, "run-b", accepted=(BatchSpan(1, 1),))
    with pytest.raises(StateBehind, match="batch 3 left no manifest"):
        commit(files, 4, "run-b", accepted=(BatchSpan(1, 1),))
    with pytest.raises(StateBehind, match="newest state .* is of batch 2"):
        commit(files, 4, "run-c", accepted=(BatchSpan(1, 1),))


def test_the_flag_of_older_states_that_turned_the_check_off_is_ignored(files):
    """Format 3 said that a query skips batches once a gap was accepted, and never looked again."""
    manifest = commit(files, 0, "run-a")
    (name,) = list_manifests(files)
    plain = to_plain(manifest) | {"format": 3, "skips_batches": True}
    plain["plan"] = {"ranges": plain["plan"]["scheme"]["ranges"], "assignments": []}
    plain["signature"]["scheme"] = plain["signature"].pop("compared")
    body = json.dumps(plain).encode()
    head = {"watersmeet": 3, "bytes": len(body), "xxh3": checksum(b"3\n" + body)}
    (files.root / name.path).write_bytes(json.dumps(head).encode() + b"\n" + body)
    assert replace(read_manifest(files, name), format=FORMAT) == manifest
    with pytest.raises(StateBehind, match="2 batch"):
        commit(files, 3, "run-b")


def test_a_batch_lost_within_a_start_can_be_accepted(files):
    commit(files, 0)
    commit(files, 1)
    lose(files, 1)
    manifest = commit(files, 2, accepted=(BatchSpan(1, 1),))
    assert (manifest.parent, manifest.gaps) == (BatchId("q", "run-a", 0), (BatchSpan(1, 1),))


def test_a_late_listing_does_not_widen_a_gap(files):
    """Only batch 3 is lost. That the listing shows neither 1 nor 2 must not make anybody accept their loss."""
    late = LateFiles(files)
    commit(files, 0, "run-a")
    assert len(list_manifests(late)) == 1
    for number in (1, 2, 3):
        commit(files, number, "run-a")
    lose(files, 3)
    with pytest.raises(StateBehind, match=r"is of batch 2: 1 batch.*acceptGap=3$"):
        commit(late, 4, "run-b")
    assert commit(late, 4, "run-b", accepted=(BatchSpan(1, 3),)).gaps == (BatchSpan(3, 3),)


def test_the_first_batches_can_be_accepted(files):
    assert commit(files, 5, accepted=(BatchSpan(0, 4),)).gaps == (BatchSpan(0, 4),)


# --- attempts -------------------------------------------------------------------------------------------


def test_a_replay_finds_what_an_earlier_start_published_on_the_same_parent(files):
    parent = commit(files, 0, "run-a")
    first = commit(files, 1, "run-a")
    batch = BatchId("q", "run-d", 1)
    assert find_attempt(files, batch, Start(1, "run-d", 1), parent) == first
    claim_start(files, "run-b", 1)
    again = commit(files, 1, "run-c")
    assert find_attempt(files, batch, Start(3, "run-d", 1), parent) == again
    assert find_attempt(files, BatchId("q", "run-d", 2), Start(3, "run-d", 1), again) is None


def test_an_attempt_on_another_parent_counts_for_nothing(files):
    commit(files, 0, "run-a")
    commit(files, 1, "run-a")
    parent = commit(files, 0, "run-b")
    assert find_attempt(files, BatchId("q", "run-c", 1), Start(2, "run-c", 1), parent) is None


# --- late starts ----------------------------------------------------------------------------------------


def test_a_start_that_another_one_has_overtaken_is_refused(files):
    """Its first task hung before its claim was written, and it looks like the newest start."""
    empty = LateFiles(files)
    assert list_manifests(empty) == []
    commit(files, 0, "run-a")
    live = [commit(files, number, "run-b") for number in (1, 2, 3)]
    late = claim_start(files, "run-z", 1)
    batch = BatchId("q", "run-z", 1)
    with pytest.raises(StateInUse, match=r"another start .* has done batch 3 .* since this join was built"):
        check_not_overtaken(files, batch, late, built_ms=live[0].written_ms - 1)
    # The listing may be late.
    with pytest.raises(StateInUse, match="has done batch 2"):
        check_not_overtaken(empty, batch, late, built_ms=live[0].written_ms - 1)
    # Rolled back by hand: the join was built after the later batches were done.
    check_not_overtaken(files, batch, late, built_ms=live[-1].written_ms)
    # A replay of the last batch has no later ones, and later batches of a start are its own.
    check_not_overtaken(files, BatchId("q", "run-z", 3), Start(late.number, "run-z", 3), built_ms=0)
    check_not_overtaken(files, BatchId("q", "run-z", 2), late, built_ms=0)


def test_a_late_start_that_published_is_named_and_no_loss_is_advised(files):
    for number in range(3):
        commit(files, number, "run-a")
    commit(files, 0, "run-z")
    with pytest.raises(StateBehind) as caught:
        commit(files, 3, "run-b")
    message = str(caught.value)
    assert "the newest start in" in message and "ended with batch 0, while start 0 did batch 2" in message
    assert "move the manifests of start 1 (manifests/000001-*) away" in message
    assert_names_causes_and_remedy(message, "1-2")
    for name in list_manifests(files):
        if name.run_seq == 1:
            files.delete(name.path)
    assert commit(files, 3, "run-b").parent == BatchId("q", "run-a", 2)
