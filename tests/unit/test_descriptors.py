"""Descriptors that are published to the log: what is shuffled instead, who reads them, and who waits."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests import life
from tests.unit.bases_helpers import Counting, run
from tests.unit.log_helpers import commit, plan
from tests.unstable_sort import sort_unstably
from watersmeet.engine.operator import _KEPT
from watersmeet.engine.spec import Settings
from watersmeet.errors import CorruptFile, StateError
from watersmeet.local.join import LocalJoin
from watersmeet.log.descriptors import (
    Notice,
    decode_told,
    encode_told,
    publish_descriptor,
    read_descriptors,
    start_of,
)
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import agree, list_manifests, read_manifest, waits
from watersmeet.log.starts import claim_start
from watersmeet.log.turns import PlannedBefore, patience_s
from watersmeet.model.facts import BatchId, Descriptor, Start
from watersmeet.model.limits import Limits

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
BATCH = BatchId("q", "6a1c1a6e-0000-4000-8000-000000000000", 7)
NOTICE = Notice("l", 0, 1, 7, 0, 0, 0, "", "0" * 16)


@pytest.fixture
def files(tmp_path) -> LocalFiles:
    return LocalFiles(tmp_path / "state")


def descriptor(*, start: Start | None = None, digest: str = "") -> Descriptor:
    rng = random.Random(1)
    return Descriptor("orders", 12, tuple(run(7, n, rng) for n in range(5)), 3, 2, -9, 1, "v", start, digest)


@pytest.mark.parametrize(
    ("start", "digest"),
    [(Start(3, BATCH.run, 5), ""), (Start(3, BATCH.run, None), ""), (None, "f" * 32), (None, "")],
    ids=["streaming", "a claim of an old format", "batch join", "batch join without rows"],
)
def test_a_descriptor_is_read_as_it_was_published(files, start, digest):
    given = descriptor(start=start, digest=digest)
    notice = publish_descriptor(files, BATCH, given)
    told = decode_told(encode_told(notice))
    assert told == notice
    assert read_descriptors(files, [told, given]) == [given, given]
    assert (told.input, told.arrived_rows, told.digest) == (given.input, given.arrived_rows, digest)
    assert start_of(told, BATCH.run) == start
    assert start is None or start_of(told, "another").run != "another"
    assert len(encode_told(notice)) < 80


def test_an_inline_descriptor_is_shuffled_whole():
    given = descriptor(start=Start(3, "r", 5))
    assert decode_told(encode_told(given)) == given


def test_the_same_rows_are_shuffled_as_the_same_bytes(tmp_path):
    """A retried task whose shuffle output differs fails the job (SPARK-53575)."""
    join = tiny_join(tmp_path)
    rows = pa.table({"k": [1, 2, 3], "x": [1, 2, 3]})
    told = [life.ingest(join, BatchId("local", join.run, 0), "l", rows) for _ in range(2)]
    assert isinstance(told[0], Notice)
    assert encode_told(told[0]) == encode_told(told[1])
    assert len(LocalFiles(tmp_path / "join" / "local").entries("descriptors")) == 1


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1"], ids=["equality", "band"])
def test_the_same_rows_are_stored_as_the_same_files_on_any_processor(tmp_path, monkeypatch, on):
    """How an unstable sort leaves equal keys depends on the processor."""
    sort_unstably(monkeypatch, np.random.default_rng(1))
    schema = pa.schema({"k": pa.int64(), "x": pa.int64()})
    rows = pa.table({"k": [7] * 20 + [8] * 20, "x": range(40)}, schema=schema)
    paths = set()
    for attempt in ("first", "second"):
        join = life.start({"l": schema, "r": schema}, tmp_path / attempt, on)
        told = life.ingest(join, life.batch_of(join), "l", rows)
        paths.add(tuple(run.path for run in told.runs))
    assert len(paths) == 1


@pytest.mark.parametrize("place", [0, 5, 30, -1])
def test_a_damaged_notice_is_found(place):
    content = bytearray(encode_told(NOTICE))
    content[place] ^= 1
    with pytest.raises(CorruptFile):
        decode_told(bytes(content))


@pytest.mark.parametrize("harm", ["gone", "flip"])
def test_a_damaged_descriptor_is_named(files, harm):
    notice = publish_descriptor(files, BATCH, descriptor())
    path = files.root / notice.path
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.unlink() if harm == "gone" else path.write_bytes(content)
    with pytest.raises(CorruptFile, match=f"{notice.path}.*Start the query again"):
        read_descriptors(files, [notice])


def test_hundreds_of_descriptors_are_read(files):
    given = [replace(descriptor(), partition=number) for number in range(40)]
    told = [publish_descriptor(files, BATCH, one) for one in given]
    assert read_descriptors(files, told) == given


# --- who plans, and who waits


def test_who_waits_and_how_long():
    tasks = 200
    turns = Counter(patience_s(task, tasks, [NOTICE]) for task in range(tasks))
    assert turns == {0.0: 1, 0.5: 2, 1.0: 4, 1.5: 8, 2.0: 185}
    assert patience_s(0, tasks, [NOTICE]) == 0.0
    assert patience_s(tasks - 1, tasks, [NOTICE]) == 0.5, "`tail` begins with the last task"
    assert {patience_s(task, tasks, [descriptor()]) for task in range(tasks)} == {0.0}


def test_processes_beside_the_planner_of_the_batch_before_take_turns_too():
    """On a machine of 16 cores 15 processes wait beside it, with tasks from anywhere."""
    tasks = 200
    patience = {
        before: Counter(patience_s(task, tasks, [NOTICE], before) for task in range(tasks))
        for before in PlannedBefore
    }
    assert patience[PlannedBefore.HERE] == {0.0: tasks}
    assert patience[PlannedBefore.UNKNOWN] == {0.0: 1, 0.5: 2, 1.0: 4, 1.5: 8, 2.0: 185}
    assert patience[PlannedBefore.BESIDE] == {0.1: 1, 0.6: 2, 1.1: 4, 1.6: 8, 2.1: 185}
    assert patience[PlannedBefore.ELSEWHERE] == {0.7: 1, 1.2: 2, 1.7: 4, 2.2: 8, 2.7: 185}


@pytest.mark.parametrize("patience", [0.0, 0.5, 1.0, 2.0, 2.7])
def test_looks_for_a_manifest_are_few(patience):
    assert sum(waits(patience)) == pytest.approx(patience)
    assert len(list(waits(patience))) <= 6


class Others:
    """Stands for time that passes: after some seconds another task has published."""

    def __init__(self, files, after_s: float | None):
        self.files, self.after_s, self.waited_s = files, after_s, 0.0

    def pause(self, seconds: float) -> None:
        self.waited_s += seconds
        if self.after_s is not None and self.waited_s >= self.after_s:
            self.after_s = None
            commit(self.files, 0, "run-a")


def settle(files, others: Others, patience: float) -> tuple[object, int]:
    batch, decided = BatchId("q", "run-a", 0), []
    start = claim_start(files, "run-a", 0)
    decide = plan(batch, Descriptor("l", 0, (), 0))

    def counted(parent):
        decided.append(parent)
        return decide(parent)

    found = agree(files, batch, start, "one", lambda: None, counted, patience_s=patience, pause=others.pause)
    return found, len(decided)


def test_a_waiting_task_uses_the_manifest_that_another_one_publishes(files):
    others = Others(files, after_s=0.1)
    _, decided = settle(files, others, patience=0.5)
    assert decided == 0 and others.waited_s < 0.5


def test_a_waiting_task_plans_itself_after_its_patience(files):
    others = Others(files, after_s=None)
    _, decided = settle(files, others, patience=0.5)
    assert decided == 1 and others.waited_s == pytest.approx(0.5)


def test_a_task_without_patience_does_not_wait(files):
    others = Others(files, after_s=None)
    _, decided = settle(files, others, patience=0.0)
    assert decided == 1 and others.waited_s == 0.0


# --- in a join


def tiny_join(place, **more) -> LocalJoin:
    limits = Limits(inline_descriptor_bytes=0, **more.pop("limits", {}))
    settings = Settings(state=str(place), tasks=3, limits=limits)
    return LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.x", "r.x AS y"],
        state=str(place),
        tasks=3,
        partitions=2,
        settings=settings,
        **more,
    )


def test_a_join_with_published_descriptors_is_right(tmp_path):
    rng = random.Random(1)
    join = tiny_join(tmp_path)
    kept: dict[str, list[tuple[int, int]]] = {"l": [], "r": []}
    found: Counter = Counter()
    for _ in range(5):
        given = {side: [(rng.randrange(4), rng.randrange(99)) for _ in range(6)] for side in "lr"}
        for side in "lr":
            kept[side] += given[side]
        tables = {
            side: pa.table({"k": [k for k, _ in rows], "x": [x for _, x in rows]})
            for side, rows in given.items()
        }
        found += Counter(zip(*(column.to_pylist() for column in join.batch(**tables).columns), strict=True))
    assert found == Counter((x, y) for k, x in kept["l"] for j, y in kept["r"] if k == j)
    assert len(LocalFiles(tmp_path / "join" / "local").entries("descriptors")) == 5 * 2 * 2


def test_only_the_task_that_plans_reads_descriptors(tmp_path, monkeypatch):
    join = tiny_join(tmp_path)
    batch = BatchId("local", join.run, 0)
    told = [life.ingest(join, batch, side, pa.table({"k": [1], "x": [1]})) for side in "lr"]
    (kept,) = [kept for place, kept in _KEPT.items() if place[0] == str(tmp_path)]
    kept.files = counting = Counting(kept.files)
    join.operator.agree_and_merge(batch, 0, told)
    assert sum(path.startswith("descriptors/") for path in counting.read_paths) == 2
    for task in (1, 2):
        counting.read_paths.clear()
        join.operator.agree_and_merge(batch, task, told)
        assert [path.split("/")[0] for path in counting.read_paths] == ["manifests"]


def test_rows_that_a_manifest_lacks_are_noticed(tmp_path):
    join = tiny_join(tmp_path)
    batch = BatchId("local", join.run, 0)
    told = life.ingest(join, batch, "l", pa.table({"k": [1], "x": [1]}))
    join.operator.agree_and_merge(batch, 0, [told])
    more = life.ingest(join, batch, "l", pa.table({"k": [2], "x": [1]}), partition=1)
    with pytest.raises(
        StateError, match="this task was told of 2 new rows of input l, but the manifest has 1"
    ):
        join.operator.agree_and_merge(batch, 1, [told, more])


@pytest.mark.parametrize("change", [{"batch": 9}, {"start_mark": 5}], ids=["batch", "start"])
def test_notices_of_another_batch_or_start_are_refused(tmp_path, change):
    join = tiny_join(tmp_path)
    batch = BatchId("local", join.run, 0)
    told = life.ingest(join, batch, "l", pa.table({"k": [1], "x": [1]}))
    assert isinstance(told, Notice)
    with pytest.raises(
        StateError, match="a foreachBatch function must not evaluate the DataFrame of an earlier batch"
    ):
        join.operator.agree_and_merge(batch, 0, [replace(told, **change)])


def test_statistics_that_came_in_descriptors_are_those_that_are_stored(tmp_path):
    """The columns of the descriptors are written as they are, whatever the order in which tasks are told of them."""
    schema = pa.schema({"k": pa.int64(), "x": pa.int64()})
    join = tiny_join(tmp_path, strategy="hypercube", limits={"inline_values": 0, "least_listed_rows": 1})
    for number in range(2):
        batch = BatchId("local", join.run, number)
        told = [
            life.ingest(
                join, batch, side, pa.table({"k": [key, key, key + 1], "x": [1, 2, 3]}, schema=schema), key
            )
            for side in "rl"
            for key in (3, 1, 2)
        ]
        given = {run.path: run.stats for one in read_descriptors(_files(tmp_path), told) for run in one.runs}
        manifest = join.operator.agree_and_merge(batch, 0, told)
        name = list_manifests(_files(tmp_path))[-1]
        assert {run.path: run.stats for run in read_manifest(_files(tmp_path), name).fresh} == given
        assert manifest.fresh and all(given.values())


def _files(place) -> LocalFiles:
    return LocalFiles(place / "join" / "local")
