"""Requests to an object store: as few as possible, several at a time, never more than a bounded number."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest

from tests import life
from watersmeet.log.files import open_files
from watersmeet.log.objects import Objects
from watersmeet.log.remote import AT_ONCE
from watersmeet.log.storage import Files, Storage
from watersmeet.model.limits import Limits

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})
IN_FILES = Limits(inline_descriptor_bytes=0, least_base_runs=2, inline_values=0, clean_every_batches=4)


class Requests:
    """Requests by kind, and the most that were under way at a time by kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.count: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        # For each kind how many are held until that many are under way. Requests of one thread are not held.
        self.together: Counter[str] = Counter()
        self._turn = threading.Condition()
        for kind in ("get", "get_first", "get_range", "put_if_absent"):
            monkeypatch.setattr(Objects, kind, self._watched(kind, getattr(Objects, kind)))
        delete = Objects.delete

        def deleted(objects, paths):
            for gone in delete(objects, paths):
                self.count["delete"] += 1
                yield gone

        monkeypatch.setattr(Objects, "delete", deleted)

    def _watched(self, kind, real):
        def call(*args):
            with self._turn:
                self.count[kind] += 1
                self._now[kind] += 1
                self.most[kind] = max(self.most[kind], self._now[kind])
                self._turn.notify_all()
                if threading.current_thread() is not threading.main_thread():
                    met = self._turn.wait_for(lambda: self.most[kind] >= self.together[kind], timeout=20)
                    assert met, f"{kind}: {self.most[kind]} at a time, {self.together[kind]} expected"
            try:
                return real(*args)
            finally:
                with self._turn:
                    self._now[kind] -= 1

        return call


@pytest.fixture
def requests(monkeypatch) -> Requests:
    return Requests(monkeypatch)


@pytest.fixture
def files(bucket, tmp_path) -> Files:
    return open_files(Storage(f"{bucket}/state", cache=str(tmp_path / "cache")))


def test_a_read_is_one_request_and_a_removal_one_for_a_thousand(files, caplog):
    for number in range(3):
        files.publish(f"runs/{number}", b"x")
    caplog.clear()
    assert files.read("runs/0") == b"x"
    assert files.map("runs/1").to_pybytes() == b"x"
    asked = [record.getMessage().split('"')[1] for record in caplog.records]
    assert [line.removeprefix("\x1b[35m\x1b[1m").split()[0] for line in asked] == ["GET", "GET"]
    caplog.clear()
    gone = [f"runs/{number}" for number in range(2_500)]
    assert [len(some) for some in files.delete_many(gone)] == [1_000, 1_000, 500]
    assert len(caplog.records) == 3
    assert files.entries("runs") == [] and not files.has_copy("runs/1")


def test_each_has_a_bounded_number_under_way_and_keeps_the_order(files):
    gate, now, most = threading.Barrier(AT_ONCE), [], []

    def action(item: int) -> int:
        now.append(item)
        most.append(len(now))
        # Passed only by AT_ONCE at a time.
        gate.wait(timeout=20)
        # And left by all of them before one goes on: another thread would be among them by now.
        gate.wait(timeout=20)
        now.remove(item)
        return -item

    items = list(range(3 * AT_ONCE))
    assert files.each(action, items) == [-item for item in items]
    assert max(most) == AT_ONCE
    assert threading.active_count() < AT_ONCE, "threads were left behind"


def test_each_raises_the_first_error_after_the_others_are_done(files):
    done, failed = [], threading.Event()

    def action(item: int) -> None:
        if item in (3, 5):
            failed.set()
            raise FileNotFoundError(str(item))
        assert failed.wait(timeout=20)
        done.append(item)

    with pytest.raises(FileNotFoundError, match="3"):
        files.each(action, range(8))
    assert set(done) >= {0, 1, 2}


PARTS = 12


def rows(first: int) -> pa.Table:
    return pa.table({"k": range(first, first + PARTS), "x": range(PARTS)}, schema=SCHEMA)


def join(bucket, cache, **more):
    settings = {"cache": str(cache), "limits": IN_FILES, "grace_s": -1.0, "retain_batches": 2}
    settings |= more.pop("settings", {})
    return life.start(
        SCHEMA, f"{bucket}/state", select=["l.x"], settings=settings, partitions=PARTS, tasks=1, **more
    )


@pytest.mark.parametrize("strategy", ["hash", "hypercube"])
def test_a_machine_without_copies_fetches_the_runs_of_a_batch_together(bucket, tmp_path, requests, strategy):
    """One request for each run, several under way: by the join, or by the planner where that looks at keys."""
    join(bucket, tmp_path / "one", strategy=strategy).batch(l=rows(0))
    life.forget()
    requests.count.clear()
    requests.most.clear()
    second = join(bucket, tmp_path / "two", number=1, run="b", strategy=strategy)
    requests.together["get_first"] = 4
    assert len(second.batch(r=rows(0))) == PARTS
    assert requests.count["get_first"] == PARTS and requests.count["get_range"] == 0
    assert 4 <= requests.most["get_first"] <= AT_ONCE


def test_a_small_cache_fetches_no_run_twice_in_a_task(bucket, tmp_path, requests):
    join(bucket, tmp_path / "one", strategy="hash").batch(l=rows(0))
    life.forget()
    requests.count.clear()
    small = {"cache_bytes": 1}
    second = join(bucket, tmp_path / "two", number=1, run="b", strategy="hash", settings=small)
    assert len(second.batch(r=rows(0))) == PARTS
    assert requests.count["get_first"] == 2 * PARTS, (
        "old and new runs: the copies of those that it wrote are gone"
    )


def test_a_clean_up_removes_in_bulk_and_reads_together(bucket, tmp_path, requests):
    """Another machine cleans, which has seen no manifest."""
    running = join(bucket, tmp_path / "one", strategy="hash", settings={"retain_batches": 5})
    for number in range(7):
        running.batch(l=rows(number))
    files = open_files(f"{bucket}/state").under("join", "local")
    folders = ("descriptors", "manifests", "runs/l")
    before = sum(len(files.entries(folder)) for folder in folders)
    life.forget()
    requests.count.clear()
    requests.most.clear()
    join(bucket, tmp_path / "two", strategy="hash", number=7, run="b").batch()
    removing = join(bucket, tmp_path / "two", strategy="hash", number=8, run="b")
    life.forget()
    requests.together["get"] = 2
    removing.batch()
    removed = before - sum(len(files.entries(folder)) for folder in folders)
    assert removed > 4 * PARTS
    assert 0 < requests.count["delete"] <= 8, "one request for each kind of file, not for each file"
    assert requests.most["get"] > 1
