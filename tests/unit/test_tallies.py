"""Tallies: which tasks leave one, that losing them costs nothing but knowledge, and that they are removed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from tests import life
from watersmeet.engine import operator as engine
from watersmeet.errors import StateError
from watersmeet.log.files import LocalFiles
from watersmeet.log.status import read_status
from watersmeet.log.tallies import (
    KEPT_BATCHES,
    WRITERS,
    latest_tallies,
    leave_tally,
    read_tallies,
    remove_tallies,
    tally_path,
    writers,
)
from watersmeet.model.tally import TaskTally, TermTally, total_terms

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.int64(), "y": pa.int64()})
PATH = "a.x = b.x AND b.y = c.y"


def tally(batch: int, task: int) -> TaskTally:
    return TaskTally(batch, task, 10, 5, 99, 1.0, 2.0, 3.0, 4.0, (TermTally("a", 1, 2, 3),))


def rows(first: int, count: int = 6) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table([list(numbers), [n % 3 for n in numbers], [n % 2 for n in numbers]], schema=SCHEMA)


def run(join, batches: range) -> Counter:
    found: Counter = Counter()
    for batch in batches:
        found += life.multiset(join.batch(**{name: rows(100 * batch) for name in "abc"}))
    return found


def start(state: Path, **how):
    select = [f"{name}.id AS {name}" for name in "abc"]
    return life.start(dict.fromkeys("abc", SCHEMA), state, PATH, select=select, **how)


def test_every_task_writes_within_a_round_and_few_in_a_batch():
    for tasks in (1, 2, 8, 9, 200):
        turns = [set(writers(batch, tasks)) for batch in range(2 * tasks)]
        assert all(len(turn) == min(WRITERS, tasks) for turn in turns)
        round_ = -(-tasks // WRITERS)
        assert set().union(*turns[:round_]) == set(range(tasks))
        assert round_ < KEPT_BATCHES


def test_a_tally_is_read_as_it_was_left(tmp_path):
    files = LocalFiles(tmp_path)
    for task in range(3):
        leave_tally(files, 4, tally(7, task))
    leave_tally(files, 4, tally(8, 1))
    assert read_tallies(files, 4, 7, range(5)) == tuple(tally(7, task) for task in range(3))
    assert latest_tallies(files, 4) == (tally(7, 0), tally(8, 1), tally(7, 2))
    assert latest_tallies(files, 3) == ()


@pytest.mark.parametrize("damage", [b"", b"{}\n{}", b'{"watersmeet": 99, "bytes": 2, "xxh3": ""}\n{}'])
def test_a_damaged_tally_is_as_good_as_none(tmp_path, damage):
    files = LocalFiles(tmp_path)
    leave_tally(files, 0, tally(3, 0))
    (tmp_path / tally_path(0, 3, 0)).write_bytes(damage)
    assert read_tallies(files, 0, 3, [0]) == latest_tallies(files, 0) == ()


def test_a_tally_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    def refuse(self, path, content):
        raise StateError("the disk is full")

    monkeypatch.setattr(LocalFiles, "leave", refuse)
    assert run(start(tmp_path), range(2))


def test_tallies_count_what_tasks_did(tmp_path):
    join = start(tmp_path, tasks=3)
    found = run(join, range(2))
    (status,) = read_status(tmp_path).joins
    assert [one.task for one in status.tallies] == [0, 1, 2]
    assert {one.batch for one in status.tallies} == {1}
    # All rows of the second batch were walked, each in one task.
    terms = total_terms(status.tallies)
    assert {name: term.fresh_rows for name, term in terms.items()} == dict.fromkeys("abc", 6)
    assert all(term.looked_rows >= 6 and term.bound_rows for term in terms.values())
    emitted = sum(one.emitted_rows for one in status.tallies)
    assert emitted == sum(task.emitted for task in join.work) < found.total()
    assert sum(task.walked for task in join.work) == sum(term.work for term in terms.values())
    assert all(one.touched_bytes > 0 and one.reading_ms >= 0 and one.probing_ms > 0 for one in status.tallies)


@pytest.mark.parametrize("on", ["a.x = b.x AND b.x = c.x", PATH])
def test_results_are_the_same_without_any_tally(tmp_path, on):
    """Also for the plans of another process, which knows none of its own."""

    def life_of(state: Path, lose: bool) -> Counter:
        join, found = start(state), life.multiset()
        for batch in range(5):
            found += run(join, range(batch, batch + 1))
            if lose:
                shutil.rmtree(state / "join" / "local" / "tallies")
            life.forget()
        return found

    assert life_of(tmp_path / "kept", lose=False) == life_of(tmp_path / "lost", lose=True)


def test_a_plan_reads_few_tallies_and_none_of_an_object_store(tmp_path, monkeypatch):
    read: list[str] = []
    plain = LocalFiles.read

    def note(self, path):
        if path.startswith("tallies/"):
            read.append(path)
        return plain(self, path)

    monkeypatch.setattr(LocalFiles, "read", note)
    join = start(tmp_path, tasks=12)
    run(join, range(1))
    life.forget()
    run(join, range(1, 2))
    assert len(read) == WRITERS, "the first task to plan reads those of the batch before"
    read.clear()
    run(join, range(2, 3))
    assert not read, "a process remembers its own"
    monkeypatch.setattr(LocalFiles, "remote", True)
    life.forget()
    run(join, range(3, 4))
    assert not read


def test_old_tallies_are_removed(tmp_path):
    files = LocalFiles(tmp_path)
    for run_seq, batch in [(0, 90), (1, 10), (1, 99), (2, 0)]:
        leave_tally(files, run_seq, tally(batch, 0))
    (tmp_path / "tallies" / "_SUCCESS").touch()
    assert remove_tallies(files, 1, 100) == 2
    left = {info.name for info in files.entries("tallies")}
    assert left == {Path(tally_path(*one, 0)).name for one in [(1, 99), (2, 0)]} | {"_SUCCESS"}


def test_a_clean_up_removes_them_too(tmp_path):
    settings = {"limits": life.TINY}
    join = start(tmp_path, settings=settings)
    for batch in range(KEPT_BATCHES + 6):
        join.batch(a=rows(batch, 1))
    batches = {one.name for one in life.files_of(tmp_path).entries("tallies")}
    assert 0 < len(batches) <= 2 * (KEPT_BATCHES + 3)
    assert engine._kept(join.operator.spec, life.batch_of(join), join.clock).tallies
