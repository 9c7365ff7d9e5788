"""Every file of a directory is in exactly one intake, whatever drivers die, race or go back."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet import failpoints
from watersmeet.errors import StateError
from watersmeet.file_inputs.offsets import (
    BEGINNING,
    LEAST_TASK_BYTES,
    FileOffset,
    IntakeLimit,
    ListedFile,
    TakenNames,
    count_taken,
    forget_absent,
    pending_files,
    share_files,
)
from watersmeet.file_inputs.stream import FileStream
from watersmeet.log.files import LocalFiles

listed_files = st.lists(
    st.builds(
        ListedFile,
        st.text("abc", min_size=1, max_size=4),
        st.integers(1, 40),
        st.integers(0, 5),
    ),
    unique_by=lambda file: file.name,
    max_size=12,
)
limits = st.builds(IntakeLimit, st.none() | st.integers(1, 4), st.none() | st.integers(1, 60))


@given(listed_files, st.sets(st.text("abc", max_size=4)), st.booleans())
def test_pending_files_are_those_that_are_not_taken_in_order(listed, taken, by_time):
    pending = pending_files(listed, taken, by_time=by_time)
    assert {file.name for file in pending} == {file.name for file in listed} - taken
    keys = [(file.modified_ns, file.name) if by_time else file.name for file in pending]
    assert keys == sorted(keys)


@given(listed_files, limits)
def test_an_intake_is_the_longest_prefix_within_the_limit(pending, limit):
    def fits(count: int) -> bool:
        small = limit.bytes is None or sum(file.bytes for file in pending[:count]) <= limit.bytes
        return small and (limit.files is None or count <= limit.files)

    longest = max(count for count in range(len(pending) + 1) if fits(count))
    assert count_taken(pending, limit) == min(max(longest, 1), len(pending))


@given(
    st.lists(st.integers(1, 8 * LEAST_TASK_BYTES), max_size=12),
    st.integers(1, 6),
    st.booleans(),
    st.integers(1, 9),
)
def test_tasks_share_all_files_evenly(sizes, tasks, splits, pieces):
    files = [ListedFile(str(number), size, 0) for number, size in enumerate(sizes)]
    shares = share_files(files, tasks, splits=splits)
    # Each piece of each file is read by exactly one task, whatever the pieces are.
    read = Counter(
        (part.file.name, piece)
        for share in shares
        for part in share
        for piece in range(pieces)
        if part.takes(piece, pieces)
    )
    assert read == Counter((file.name, piece) for file in files for piece in range(pieces))
    assert len(shares) <= min(tasks, -(-sum(sizes) // LEAST_TASK_BYTES))
    order = [[(files.index(part.file), part.part) for part in share] for share in shares]
    assert order == [sorted(share) for share in order]
    assert splits or all(part.parts == 1 for share in shares for part in share)
    if len(shares) > 1:
        loads = [sum(part.bytes for part in share) for share in shares]
        # No part could move to the lightest task and leave the heaviest still above it.
        heaviest = shares[loads.index(max(loads))]
        assert min(loads) >= max(loads) - min(part.bytes for part in heaviest)
        fair = sum(sizes) / min(tasks, -(-sum(sizes) // LEAST_TASK_BYTES))
        assert not splits or max(loads) <= 2 * fair + 1


names = st.text("abc", min_size=1, max_size=4)


@given(st.dictionaries(names, st.none() | st.integers(0, 5)), st.sets(names), st.integers(0, 6))
def test_a_name_is_forgotten_only_if_it_is_absent_for_long(since_ns, present, keep_ns):
    absent = {name: at for name, at in since_ns.items() if at is not None}
    kept = forget_absent(TakenNames(set(since_ns), absent), present, now_ns=5, keep_ns=keep_ns)
    gone = {name for name, at in absent.items() if name not in present and 5 - at > keep_ns}
    assert kept.names == set(since_ns) - gone
    assert kept.absent == {name: absent.get(name, 5) for name in kept.names - present}


class Shelf:
    """A directory in memory, as `file_inputs/listing.py` shows one: None while nothing has appeared."""

    def __init__(self) -> None:
        self.files: list[ListedFile] = []
        self.removed: list[ListedFile] = []
        self.added = self.changes = 0

    def add(self, count: int, modified_ns: int | None = None) -> None:
        # Later names may sort before earlier ones.
        first, self.added = self.added, self.added + count
        self.changes += 1
        for number in range(first, first + count):
            at_ns = number // 2 if modified_ns is None else modified_ns
            self.files.append(ListedFile(f"{number * 7 % 10}-{number}", 1 + number % 3, at_ns))

    def remove(self) -> None:
        """Everything is moved away."""
        self.removed, self.files = [*self.removed, *self.files], []
        self.changes += 1

    def restore(self) -> None:
        self.removed, self.files = [], [*self.files, *self.removed]
        self.changes += 1


class View:
    """What one driver sees of a shelf."""

    name = "/shelf"

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.shown = -1
        self.listings = 0
        self.present: set[str] = set()

    def names(self) -> set[str]:
        return {file.name for file in self.shelf.files}

    def look_again(self) -> None:
        self.shown = -1

    def as_now(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        there = self.names()
        return [file for file in files if file.name in there]

    def changed(self, taken: Sequence[ListedFile]) -> list[ListedFile]:
        before = {file.name: file for file in taken}
        return [file for file in self.shelf.files if before.get(file.name, file) != file]

    def new_files(
        self, taken: Container[str], *, begun: bool, watched: Mapping[str, int]
    ) -> list[ListedFile] | None:
        if self.shown == self.shelf.changes:
            return None
        self.listings += 1
        self.shown, self.present = self.shelf.changes, self.names()
        return [file for file in self.shelf.files if file.name not in taken]


class Life:
    """A query over a shelf: Spark's offsets and commits, and drivers that come and go."""

    def __init__(self, state: Path, limit: IntakeLimit, by_time: bool, **names: Any) -> None:
        self.state, self.limit, self.by_time, self.names = LocalFiles(state), limit, by_time, names
        self.now_s = 1_000.0
        self.shelf = Shelf()
        # Spark's log of offsets: the end of each batch. All but the last may be committed.
        self.ends: list[FileOffset] = []
        self.committed = 0
        self.read: list[tuple[ListedFile, ...]] = []
        self.driver = self.new_driver()

    def new_driver(self) -> FileStream:
        view: Any = View(self.shelf)
        return FileStream(view, self.state, lambda: self.now_s, by_time=self.by_time, **self.names)

    def start_of(self, batch: int) -> FileOffset:
        return self.ends[batch - 1] if batch else BEGINNING

    def batch(self, dies: str = "") -> None:
        if self.committed == len(self.ends):
            end = self.driver.latest(self.start_of(self.committed), self.limit)
            if end == self.start_of(self.committed):
                return None
            if dies == "after the intake":
                return self.restart()
            self.ends.append(end)
        if dies == "after the offset":
            return self.restart()
        files = self.driver.between(self.start_of(self.committed), self.ends[self.committed])
        if dies == "after reading":
            return self.restart()
        self.read[self.committed :] = [files]
        self.driver.commit(self.ends[self.committed])
        self.committed += 1
        return None

    def restart(self) -> None:
        self.driver = self.new_driver()

    def roll_back(self) -> None:
        """Someone removes the newest batches from the checkpoint."""
        self.committed = max(self.committed - 2, 1) if self.committed else 0
        del self.ends[self.committed :], self.read[self.committed :]
        self.restart()

    def rival(self) -> None:
        """A second driver chooses the next intake before this one does."""
        if self.committed == len(self.ends) and self.ends:
            self.new_driver().latest(self.start_of(self.committed), self.limit)


DEATHS = ("after the intake", "after the offset", "after reading")
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 5)),
    st.tuples(st.just("batch"), st.sampled_from(("", *DEATHS))),
    st.sampled_from([("restart",), ("roll back",), ("rival",)]),
)
# Files of any age, and less than `KEEP_S` in all while some are gone.
KEEP_S = 1_000
moves = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3), st.sampled_from([0, 10**12, 10**18])),
    st.sampled_from([("remove",), ("restore",), ("missed",), ("time passes",)]),
)


@settings(max_examples=60)
@given(st.lists(steps | moves, max_size=24), limits, st.booleans(), st.integers(1, 3))
def test_each_file_is_read_by_exactly_one_committed_batch(script, limit, by_time, seen_every):
    """Whatever its age, and although it is gone for a while: less than the time for which names are kept."""
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), limit, by_time, seen_every=seen_every, keep_names_ns=KEEP_S * 10**9)
        for step, *arguments in script:
            match step:
                case "add":
                    life.shelf.add(*arguments)
                case "batch":
                    life.batch(*arguments)
                case "restart":
                    life.restart()
                case "roll back":
                    life.roll_back()
                case "rival":
                    life.rival()
                case "remove":
                    life.shelf.remove()
                case "missed":
                    # A file is taken while all others are away.
                    life.shelf.remove()
                    life.shelf.add(1)
                    life.batch()
                case "restore":
                    life.shelf.restore()
                case "time passes":
                    life.now_s += KEEP_S / 30
        life.shelf.restore()
        done = -1
        while done != life.committed:
            done = life.committed
            life.batch()
        names = [file.name for files in life.read for file in files]
        assert sorted(names) == sorted(file.name for file in life.shelf.files)
        for files in life.read:
            assert count_taken(files, limit) == len(files) or limit == IntakeLimit()


def test_a_name_is_taken_again_after_it_was_gone_for_long_enough(tmp_path):
    life = Life(tmp_path, IntakeLimit(), by_time=False, seen_every=1, keep_names_ns=KEEP_S * 10**9)
    life.shelf.add(1)
    life.batch()
    life.shelf.remove()
    # Gone in these listings: a day passes, a start, and the rest of the time.
    for passes_s in (10, KEEP_S - 10, 1):
        life.shelf.add(1)
        life.batch()
        life.restart()
        life.now_s += passes_s
    life.shelf.add(1)
    life.batch()
    life.shelf.restore()
    life.batch()
    read = [file.name for files in life.read for file in files]
    assert read[0] == read[-1] == "0-0" and len(set(read)) == len(read) - 1


def test_a_name_that_returned_in_between_is_not_forgotten(tmp_path):
    life = Life(tmp_path, IntakeLimit(), by_time=False, seen_every=2, keep_names_ns=KEEP_S * 10**9)

    def batch() -> None:
        life.shelf.add(1)
        life.batch()

    batch()
    life.shelf.remove()
    batch()
    life.now_s += KEEP_S + 1
    life.shelf.restore()
    batch()
    life.shelf.remove()
    batch()
    life.shelf.restore()
    batch()
    read = [file.name for files in life.read for file in files]
    assert len(set(read)) == len(read)


def test_a_held_stream_takes_no_later_file(tmp_path):
    life = Life(tmp_path, IntakeLimit(files=2), by_time=False)
    life.shelf.add(3)
    view: Any = View(life.shelf)
    life.driver = FileStream(view, life.state, lambda: life.now_s)
    life.driver.hold()
    life.shelf.add(3)
    for _ in range(4):
        life.batch()
    assert [len(files) for files in life.read] == [2, 1]
    assert view.listings == 1
    life.restart()
    for _ in range(4):
        life.batch()
    assert [len(files) for files in life.read] == [2, 1, 2, 1]


def test_a_backlog_is_listed_once(tmp_path):
    life = Life(tmp_path, IntakeLimit(files=3), by_time=False)
    life.shelf.add(30)
    view: Any = View(life.shelf)
    life.driver = FileStream(view, life.state, lambda: life.now_s)
    for _ in range(9):
        life.batch()
        life.shelf.add(1)
    assert view.listings == 1
    assert sum(map(len, life.read)) == 27


def test_an_intake_without_an_offset_is_the_next_batch_as_it_is(tmp_path):
    life = Life(tmp_path, IntakeLimit(files=1), by_time=False)
    life.shelf.add(1)
    life.batch()
    life.shelf.add(1)
    life.batch(dies="after the intake")
    # Its name would come first.
    life.shelf.files.append(ListedFile("0", 1, 0))
    for _ in range(3):
        life.batch()
    assert [[file.name for file in files] for files in life.read] == [["0-0"], ["7-1"], ["0"]]


@pytest.mark.parametrize(
    "place", ["intake-linked", "intake-written", "seen-linked", "seen-written", "clean-intake-removed"]
)
def test_a_driver_that_dies_while_it_writes_its_log_loses_nothing(tmp_path, monkeypatch, place):
    """At each batch once; the names are written every third, and the intakes before them are removed."""
    life = Life(tmp_path, IntakeLimit(), by_time=False, seen_every=3, retain=0)
    died = 0
    for _ in range(12):
        life.shelf.add(1)
        monkeypatch.setattr(failpoints, "_POINTS", {place: ("raise:5", None)})
        try:
            life.batch()
        except (OSError, StateError):
            died += 1
            life.restart()
        monkeypatch.setattr(failpoints, "_POINTS", {})
        life.batch()
        life.batch()
    assert died >= 2
    read = [file.name for files in life.read for file in files]
    assert sorted(read) == sorted(file.name for file in life.shelf.files)


def test_of_two_drivers_the_first_decides(tmp_path):
    life = Life(tmp_path, IntakeLimit(files=1), by_time=False)
    life.shelf.add(1)
    life.batch()
    life.shelf.add(1)
    life.rival()
    life.shelf.files.append(ListedFile("0", 1, 0))
    for _ in range(3):
        life.batch()
    assert [[file.name for file in files] for files in life.read] == [["0-0"], ["7-1"], ["0"]]
