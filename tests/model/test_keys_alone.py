"""A planner on an object store fetches the keys of runs, not their rows, and the one that has them plans again."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from watersmeet.engine import operator
from watersmeet.engine.operator import Operator
from watersmeet.errors import CorruptFile
from watersmeet.kernel.rows import Sorted
from watersmeet.local.join import LocalJoin
from watersmeet.log.cache import CacheFull
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.names import keys_copy
from watersmeet.log.objects import Objects
from watersmeet.log.remote import RemoteFiles
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.storage import LEAST_BYTES, Storage
from watersmeet.log.turns import PlannedBefore, planned_before, planner_mark
from watersmeet.model.facts import Run

linux = pytest.mark.skipif(sys.platform != "linux", reason="the list of mapped files is that of Linux")

ROWS = 20_000
assert 24 * ROWS > LEAST_BYTES


@pytest.fixture
def fetched(monkeypatch) -> Counter[str]:
    """Bytes that were fetched, by object."""
    count: Counter[str] = Counter()
    first, some = Objects.get_first, Objects.get_range

    def get_first(objects, path, most):
        content, size = first(objects, path, most)
        count[path] += len(content)
        return content, size

    def get_range(objects, path, start, length):
        content = some(objects, path, start, length)
        count[path] += len(content)
        return content

    monkeypatch.setattr(Objects, "get_first", get_first)
    monkeypatch.setattr(Objects, "get_range", get_range)
    return count


def files_on(bucket: str, cache: Path):
    return open_files(Storage(f"{bucket}/state", cache=str(cache)))


def stored(files, label: str, rows: int = ROWS) -> tuple[Run, np.ndarray]:
    rng = np.random.default_rng(len(label))
    keys = np.sort(rng.integers(0, 1 << 63, rows).astype(np.uint64))
    columns = pa.RecordBatch.from_pydict({"id": np.arange(rows), "x": rng.random(rows)})
    return write_run(files, "l", 0, label, Sorted(keys, columns)), keys


def test_only_keys_are_fetched_and_all_that_are_expected_at_once(bucket, tmp_path, fetched):
    runs = [stored(files_on(bucket, tmp_path / "one"), f"p{'x' * n}") for n in range(3)]
    reader = RunReader(files_on(bucket, tmp_path / "two"))
    reader.expect_keys(lambda: [run for run, _ in runs[:2]])
    run, keys = runs[0]
    np.testing.assert_array_equal(reader.keys_alone(run), keys)
    assert {run.path: 8 * ROWS for run, _ in runs[:2]} == fetched
    np.testing.assert_array_equal(reader.keys_alone(runs[1][0]), runs[1][1])
    np.testing.assert_array_equal(reader.keys_alone(runs[2][0]), runs[2][1])
    assert sum(fetched.values()) == 3 * 8 * ROWS
    # Another process of the machine has the copies.
    other = RunReader(files_on(bucket, tmp_path / "two"))
    np.testing.assert_array_equal(other.keys_alone(run), keys)
    assert sum(fetched.values()) == 3 * 8 * ROWS


def test_keys_of_a_run_that_this_machine_holds_are_not_fetched(bucket, tmp_path, fetched):
    files = files_on(bucket, tmp_path)
    run, keys = stored(files, "p")
    np.testing.assert_array_equal(RunReader(files).keys_alone(run), keys)
    assert not fetched


def test_a_small_run_is_fetched_whole(bucket, tmp_path, fetched):
    run, keys = stored(files_on(bucket, tmp_path / "one"), "p", rows=1_000)
    assert not run.keys_checksum
    np.testing.assert_array_equal(RunReader(files_on(bucket, tmp_path / "two")).keys_alone(run), keys)
    assert fetched == {run.path: run.bytes}


def test_a_run_that_is_fetched_whole_takes_no_other_rows_along(bucket, tmp_path, fetched):
    one = files_on(bucket, tmp_path / "one")
    large, keys = stored(one, "p")
    small, few = stored(one, "some", rows=1_000)
    also, _ = stored(one, "few", rows=1_000)
    reader = RunReader(files_on(bucket, tmp_path / "two"))
    reader.expect_keys(lambda: [large, small, also])
    np.testing.assert_array_equal(reader.keys_alone(small), few)
    assert fetched == {small.path: small.bytes, also.path: also.bytes}
    np.testing.assert_array_equal(reader.keys_alone(large), keys)
    assert fetched[large.path] == 8 * ROWS


def test_a_local_run_has_no_checksum_of_its_keys(tmp_path):
    run, keys = stored(LocalFiles(tmp_path), "p")
    assert not run.keys_checksum
    np.testing.assert_array_equal(RunReader(LocalFiles(tmp_path)).keys_alone(run), keys)


def test_a_damaged_copy_of_keys_is_not_believed(bucket, tmp_path, fetched):
    run, keys = stored(files_on(bucket, tmp_path / "one"), "p")
    files = files_on(bucket, tmp_path / "two")
    RunReader(files).keys_alone(run)
    (copy,) = (tmp_path / "two").rglob(Path(keys_copy(run.path)).name)
    content = bytearray(copy.read_bytes())
    content[100] ^= 1
    copy.write_bytes(bytes(content))
    np.testing.assert_array_equal(RunReader(files).keys_alone(run), keys)
    assert fetched[run.path] == 8 * ROWS + run.bytes, "read as a whole, which tells what is damaged"


@pytest.mark.parametrize("damage", ["keys", "end", "gone"])
def test_damaged_keys_of_an_object_are_an_error_that_names_the_run(bucket, tmp_path, damage):
    files = files_on(bucket, tmp_path / "one")
    run, _ = stored(files, "p")
    content = bytearray(files.read(run.path))
    content[run.keys_at + 100] ^= 1
    files.delete(run.path)
    if damage != "gone":
        files.publish(run.path, bytes(content) if damage == "keys" else bytes(content[: run.keys_at + 100]))
    said = {"keys": "its checksum does not match", "end": "truncated", "gone": "is missing"}
    with pytest.raises(CorruptFile, match=said[damage]) as raised:
        RunReader(files_on(bucket, tmp_path / "two")).keys_alone(run)
    assert run.path in str(raised.value)


def test_keys_of_a_run_of_an_older_format_are_read_from_the_whole(bucket, tmp_path, fetched):
    run, keys = stored(files_on(bucket, tmp_path / "one"), "p")
    old = replace(run, keys_at=0, keys_checksum="")
    np.testing.assert_array_equal(RunReader(files_on(bucket, tmp_path / "two")).keys_alone(old), keys)
    assert fetched == {run.path: run.bytes}


def test_a_removed_run_takes_the_copy_of_its_keys_along(bucket, tmp_path):
    run, _ = stored(files_on(bucket, tmp_path / "one"), "p")
    files = files_on(bucket, tmp_path / "two")
    RunReader(files).keys_alone(run)
    assert [*(tmp_path / "two").rglob("*.keys.arrow")]
    files.delete(run.path)
    assert not [*(tmp_path / "two").rglob("*.keys.arrow")]


def mapped_copies(cache: Path) -> int:
    """The copies of keys in a cache that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(str(cache) in line and ".keys.arrow" in line for line in lines)


@linux
def test_keys_that_left_the_cache_are_unmapped_after_the_batch(bucket, tmp_path):
    runs = [stored(files_on(bucket, tmp_path / "one"), f"p{'x' * n}")[0] for n in range(2)]
    reader = RunReader(files_on(bucket, tmp_path / "two"))
    for run in runs:
        reader.keys_alone(run)
    (dropped,) = (tmp_path / "two").rglob(Path(keys_copy(runs[0].path)).name)
    dropped.unlink()
    assert mapped_copies(tmp_path / "two") == 2
    reader.forget_all_but([run.path for run in runs])
    assert mapped_copies(tmp_path / "two") == 1, "the space of a removed file is free when nobody maps it"


@linux
def test_keys_are_unmapped_when_a_run_has_no_room(bucket, tmp_path, monkeypatch):
    runs = [stored(files_on(bucket, tmp_path / "one"), f"p{'x' * n}")[0] for n in range(2)]
    reader = RunReader(files_on(bucket, tmp_path / "two"))
    reader.keys_alone(runs[0])
    assert mapped_copies(tmp_path / "two") == 1
    fetch, full = RemoteFiles.map, [CacheFull("no space")]

    def once_full(files, path):
        if full:
            raise full.pop()
        assert not mapped_copies(tmp_path / "two"), "their space is free by now"
        return fetch(files, path)

    monkeypatch.setattr(RemoteFiles, "map", once_full)
    assert len(reader.keys(runs[1])) == ROWS


# --- Who plans ----------------------------------------------------------------------------------------------------

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def join(bucket: str, cache: Path, **more) -> LocalJoin:
    return life.start(
        SCHEMA,
        f"{bucket}/state",
        select=["l.x"],
        settings={"cache": str(cache)},
        strategy="hypercube",
        tasks=2,
        partitions=4,
        **more,
    )


def rows(batch: int) -> pa.Table:
    return pa.table({"k": np.arange(4 * ROWS) * 7 % 50_021, "x": np.full(4 * ROWS, batch)}, SCHEMA)


def test_a_planner_that_takes_over_fetches_keys_of_the_history_once(bucket, tmp_path, fetched, monkeypatch):
    planned: list[int] = []
    agree = Operator._agree

    def watch(*given):
        before = sum(fetched.values())
        manifest = agree(*given)
        planned.append(sum(fetched.values()) - before)
        return manifest

    first = join(bucket, tmp_path / "one")
    for batch in range(2):
        first.batch(l=rows(batch))
    life.forget()
    monkeypatch.setattr(Operator, "_agree", watch)
    second = join(bucket, tmp_path / "two", number=2, run="b")
    for batch in range(2, 4):
        second.batch(l=rows(batch))
    assert planned == [2 * 4 * ROWS * 8, 0, 0, 0], (
        "the keys of two batches; this machine wrote all other runs"
    )


def test_a_task_is_told_who_planned_the_batch_before(bucket, tmp_path, monkeypatch):
    seen: list[PlannedBefore] = []

    def watch(task, tasks, told, before):
        seen.append(before)
        return 0.0

    monkeypatch.setattr(operator, "patience_s", watch)
    running = join(bucket, tmp_path / "one")
    running.batch(l=rows(0))
    assert seen[0] is PlannedBefore.UNKNOWN, "nobody has the keys in the first batch of a start"
    seen.clear()
    running.batch(l=rows(1))
    assert seen[0] is PlannedBefore.HERE, "the next task of the process finds the manifest"
    life.forget()
    seen.clear()
    join(bucket, tmp_path / "one", number=2, run="b").batch(l=rows(2))
    assert seen[0] is PlannedBefore.UNKNOWN


def test_a_manifest_says_who_planned_it(bucket, tmp_path):
    running = join(bucket, tmp_path / "one")
    files = files_on(bucket, tmp_path / "one")
    other = files_on(bucket, tmp_path / "two")
    running.batch(l=rows(0))
    planner = life.newest(files.under("join", "local")).planner
    assert planner == planner_mark(files) != planner_mark(other)
    assert planned_before(planner, files) is PlannedBefore.HERE
    assert planned_before(planner + "0", files) is PlannedBefore.BESIDE
    assert planned_before(planner, other) is PlannedBefore.ELSEWHERE
    assert planned_before(None, files) is PlannedBefore.ELSEWHERE, "a process that missed the batch before"
    assert planned_before("", files) is PlannedBefore.UNKNOWN
    assert planned_before(planner, LocalFiles(tmp_path)) is PlannedBefore.UNKNOWN
