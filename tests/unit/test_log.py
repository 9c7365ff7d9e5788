"""Files, runs and manifests on a real directory."""

from __future__ import annotations

import gzip
import json
import os
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.unit.log_helpers import commit, plan, rows
from watersmeet.errors import ConfigError, CorruptFile, OldFormat, StateError, StateInUse
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.manifests import agree, list_manifests, read_manifest
from watersmeet.log.names import ManifestName
from watersmeet.log.parents import choose_parent, find_parent
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.starts import claim_start
from watersmeet.model.facts import FORMAT, FULL_RANGE, BatchId, Descriptor, Manifest, Receipt, Run
from watersmeet.plan.batch import check_arrived


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


# --- runs -----------------------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was_written(files):
    run = write_run(files, "l", 3, "p00000", rows(5, 1, 9))
    back = RunReader(files).read(run, FULL_RANGE, ("x",))[0]
    assert back.keys.tolist() == [1, 5, 9]
    assert back.rows.to_pydict() == {"x": [1, 5, 9]}
    assert (run.low, run.high, run.rows, run.batch) == (1, 9, 3, 3)


def test_a_run_is_an_ordinary_arrow_file(files):
    run = write_run(files, "l", 0, "p00000", rows(1, 2))
    with pa.ipc.open_file(str(files.root / run.path)) as reader:
        assert reader.read_all().column_names == ["__wm_order", "x"]


def test_every_truncation_and_every_flipped_bit_of_a_run_is_found_before_it_is_parsed(files, monkeypatch):
    run = write_run(files, "l", 7, "p00000", rows(*range(50)))
    path = files.root / run.path
    whole = path.read_bytes()
    monkeypatch.setattr("watersmeet.log.runs.open_sorted", lambda batch: pytest.fail("parsed a damaged run"))
    damaged = [whole[:cut] for cut in range(0, len(whole), 97)] + [whole + b"\0"]
    for at in range(0, len(whole), 31):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        damaged.append(bytes(flipped))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(CorruptFile, match=r"run runs/l/0000000007-p00000-\w+\.arrow of batch 7"):
            RunReader(files).read(run, FULL_RANGE, ("x",))


def test_a_missing_run_is_named(files):
    run = write_run(files, "l", 7, "p00000", rows(1))
    files.delete(run.path)
    with pytest.raises(CorruptFile, match="of batch 7 .* is missing"):
        RunReader(files).read(run, FULL_RANGE, ("x",))


def test_two_attempts_over_the_same_rows_write_the_same_file_and_say_the_same_of_it(files):
    first = write_run(files, "l", 0, "p00000", rows(1, 2))
    second = write_run(files, "l", 0, "p00000", rows(2, 1))
    assert first == second
    assert len(files.entries("runs/l")) == 1
    assert len(RunReader(files).read(first, FULL_RANGE, ("x",))[0]) == 2


def test_two_attempts_over_other_rows_do_not_share_a_file(files):
    first = write_run(files, "l", 0, "p00000", rows(1))
    second = write_run(files, "l", 0, "p00000", rows(2))
    assert first.path != second.path


# --- manifests ------------------------------------------------------------------------------------------


def test_a_manifest_survives_the_round_trip(files):
    run = write_run(files, "l", 0, "p00000", rows(1, 2))
    manifest = commit(files, 0, "run-a", run)
    (name,) = list_manifests(files)
    assert read_manifest(files, name) == manifest
    assert manifest.totals["l"].rows == 2


def test_every_truncation_and_every_flipped_bit_of_a_manifest_is_found(files):
    commit(files, 0)
    commit(files, 1)
    name = list_manifests(files)[-1]
    path = files.root / name.path
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(CorruptFile, match="manifest .* of batch 1"):
            read_manifest(files, name)
    for at in range(len(whole)):
        for bit in (0, 3, 6):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            path.write_bytes(bytes(flipped))
            with pytest.raises(CorruptFile, match="manifest .* of batch 1"):
                read_manifest(files, name)


def test_a_newer_format_is_refused(files):
    content = encode_checked(Receipt("m", 0, ())).replace(
        f'"watersmeet": {FORMAT}'.encode(), b'"watersmeet": 99'
    )
    with pytest.raises(CorruptFile, match="format 99"):
        decode_checked(Receipt, content, "receipt x")


@pytest.mark.parametrize(
    ("manifests", "batch", "parent"),
    [
        pytest.param([], 0, None, id="nothing yet"),
        pytest.param([(0, 0), (0, 1)], 2, (0, 1), id="the batch before"),
        pytest.param(
            [(0, 0), (0, 1), (0, 2)], 2, (0, 1), id="a replay does not build on its own first attempt"
        ),
        pytest.param([(0, 0), (0, 5)], 9, (0, 5), id="batches that left no manifest are skipped"),
        pytest.param([(0, 6), (0, 7), (0, 8), (1, 7)], 8, (1, 7), id="after a roll-back the new run wins"),
        pytest.param([(0, 7), (1, 7), (0, 8)], 8, (1, 7), id="a zombie of the old run loses"),
        pytest.param([(0, 7), (0, 8), (0, 9)], 8, (0, 7), id="rolled back by hand to batch 8"),
    ],
)
def test_the_parent_of_a_batch(manifests, batch, parent):
    names = [ManifestName(seq, number, f"run-{seq}") for seq, number in manifests]
    chosen = choose_parent(names, batch)
    assert (chosen and (chosen.run_seq, chosen.batch)) == parent


def test_a_replayed_batch_replaces_its_first_attempt(files):
    old, new = (write_run(files, "l", 1, "p00000", rows(key)) for key in (1, 2))
    commit(files, 0, "run-a")
    commit(files, 1, "run-a", old)
    commit(files, 1, "run-b", new)
    assert [run.path for run in commit(files, 2, "run-b").history] == [new.path]


def test_many_tasks_agree_on_one_manifest(files):
    """Each brings descriptors of its own, as after a stage that Spark ran twice."""
    commit(files, 0)
    batch = BatchId("q", "run-a", 1)
    written = [write_run(files, "l", 1, "p00000", rows(n)) for n in range(8)]
    start = claim_start(files, "run-a", 1)
    together, seen = threading.Barrier(8), []

    def task(run: Run) -> None:
        together.wait()
        decide = plan(batch, Descriptor("l", 0, (run,), 0))
        seen.append(agree(files, batch, start, "one", lambda: find_parent(files, batch, start), decide))

    threads = [threading.Thread(target=task, args=(run,)) for run in written]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all(manifest == seen[0] for manifest in seen)
    assert [name for name in os.listdir(files.root / "manifests") if name.startswith(".")] == []


def test_two_operators_of_one_query_are_told_apart(files):
    commit(files, 0, instance="one")
    with pytest.raises(StateInUse, match="name="):
        commit(files, 0, instance="two")


def test_rows_that_the_manifest_lacks_are_never_passed_over():
    run = Run("l", "p", "p", 0, 5, 40, 0, 9, "")
    told = [Descriptor("l", 0, (run,), 2)]
    full = plan(BatchId("q", "r", 0), *told)(None)
    check_arrived(full, told)
    with pytest.raises(StateError, match="told of 7 new rows of input l, but the manifest has 0"):
        check_arrived(plan(BatchId("q", "r", 0))(None), told)


def test_a_signature_with_defaults_left_out_is_still_read(files):
    manifest = commit(files, 0)
    plain = encode_checked(replace(manifest, totals={}))
    assert decode_checked(Manifest, plain, "x").totals == {}


# --- files ----------------------------------------------------------------------------------------------


def test_publish_never_replaces(files):
    assert files.publish("manifests/a", b"first")
    assert not files.publish("manifests/a", b"second")
    assert files.read("manifests/a") == b"first"


def test_a_failed_publish_leaves_nothing(files, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StateError, match="No space left on device"):
        files.publish("manifests/a", b"first")
    assert files.entries("manifests") == []


@pytest.mark.parametrize("place", ["ftp://host/x", "dbfs:/x", "hdfs://host/x", "http://127.0.0.1/x"])
def test_a_filesystem_without_atomic_creation_is_refused(place):
    with pytest.raises(ConfigError, match="files cannot be created atomically"):
        open_files(place)


def test_file_uris_are_local_paths(tmp_path):
    assert open_files(f"file://{tmp_path}").place == str(tmp_path)


def test_long_facts_are_compressed_and_a_flipped_bit_is_still_found():
    short, long = (Receipt("m", 0, (), tuple(f"column {n}" for n in range(count))) for count in (3, 3_000))
    assert b'"packed"' not in encode_checked(short)
    content = encode_checked(long)
    assert len(content) < 12_000 and b'"packed": "gzip"' in content
    assert encode_checked(long) == content, "the same facts are the same bytes"
    assert decode_checked(Receipt, content, "a receipt") == long
    header, _, body = content.partition(b"\n")
    assert json.loads(gzip.decompress(body))["merge"] == "m"
    for place in (*range(len(header)), len(header) + 1, len(content) // 2, len(content) - 1):
        harmed = bytearray(content)
        harmed[place] ^= 1
        with pytest.raises((CorruptFile, OldFormat)):
            decode_checked(Receipt, bytes(harmed), "a receipt")
