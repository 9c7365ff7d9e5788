"""Files that change between the attempts at a batch: read as they are until an attempt planned it, then only as it was.

Starts come and go, and each dies wherever it likes. All attempts that planned a batch have read the same, no start is
stuck while the files are as they were read, and a file that changes after its batch stops the query.
"""

from __future__ import annotations

import tempfile
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import FileError
from watersmeet.file_inputs.file_log import FileLog
from watersmeet.file_inputs.offsets import BEGINNING, FileOffset, FilePart, IntakeLimit, ListedFile, Reread
from watersmeet.file_inputs.stream import FileStream
from watersmeet.log.files import LocalFiles

ONE_FILE = IntakeLimit(files=1)
TASKS = 2


class Folder:
    """Files in memory with their sizes, as `file_inputs/listing.py` shows a directory."""

    name = "/folder"

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.present: set[str] = set()

    def of(self, name: str) -> ListedFile:
        return ListedFile(name, self.sizes[name], 0)

    def look_again(self) -> None:
        """There is nothing to forget."""

    def as_now(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        return [self.of(file.name) for file in files]

    def changed(self, taken: Sequence[ListedFile]) -> list[ListedFile]:
        return [self.of(file.name) for file in taken if self.of(file.name) != file]

    def new_files(
        self, taken: Container[str], *, begun: bool, watched: Mapping[str, int]
    ) -> list[ListedFile]:
        for name, size in watched.items():
            if self.sizes[name] != size:
                raise FileError(f"{name} was written to later")
        self.present = set(self.sizes)
        return [self.of(name) for name in self.sizes if name not in taken]


class Query:
    """Spark's offsets and commits, what starts have planned, and one start after the other."""

    def __init__(self, state: Path) -> None:
        self.state = LocalFiles(state)
        self.folder = Folder()
        self.ends: list[FileOffset] = []
        self.committed = 0
        # What was read of a batch by the starts that planned it.
        self.planned: dict[int, list[list[ListedFile]]] = {}
        # What a batch that is done has read.
        self.read: dict[str, ListedFile] = {}
        self.start()

    def start(self) -> None:
        folder: Any = self.folder
        self.stream = FileStream(folder, self.state, lambda: 0.0, seen_every=3, retain=2)

    def batch(self, dies_at: str, changes_while_read: bool = False) -> bool:
        """Whether it is done. Raises what the query raises."""
        before = self.ends[self.committed - 1] if self.committed else BEGINNING
        if self.committed == len(self.ends):
            end = self.stream.latest(before, ONE_FILE)
            if end == before:
                return False
            self.ends.append(end)
        shares = self.stream.shares(before, self.ends[self.committed], TASKS, splits=False)
        if dies_at == "unread":
            return False
        parts = [part for share in shares for part in share]
        for part in parts:
            if changes_while_read:
                self.folder.sizes[part.file.name] += 1
            self._read(part)
        if dies_at == "read":
            return False
        self.planned.setdefault(self.committed, []).append([part.file for part in parts])
        if dies_at == "planned":
            return False
        self.read |= {part.file.name: part.file for part in parts}
        self.committed += 1
        return True

    def _read(self, part: FilePart) -> None:
        """As a task does (spark/file_task.py, file_inputs/taken.py)."""
        if self.folder.of(part.file.name) != part.file:
            raise FileError("changed since it was handed out")
        if part.changed is not None:
            if self.planned.get(self.committed):
                raise FileError("results may be out")
            FileLog(self.state, part.changed.log).record(Reread(part.changed.was, part.file))


deaths = st.sampled_from(["unread", "read", "planned", "never", "never"])
steps = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3)),
    st.tuples(st.just("batch"), deaths, st.sampled_from([False, False, False, True])),
    st.tuples(st.just("change"), st.integers(0, 9), st.integers(1, 2)),
)


@settings(max_examples=200)
@given(st.lists(steps, max_size=25))
def test_attempts_that_planned_a_batch_have_read_the_same(script):
    with tempfile.TemporaryDirectory() as place:
        query = Query(Path(place))
        for step, *arguments in script:
            if step == "add":
                query.folder.sizes[f"{len(query.folder.sizes):03d}"] = arguments[0]
            elif step == "change":
                # Of a batch that is not done: those after it are the next test's.
                open_ = [name for name in query.folder.sizes if name not in query.read]
                if open_:
                    query.folder.sizes[open_[arguments[0] % len(open_)]] = arguments[1]
            else:
                try:
                    if not query.batch(*arguments):
                        query.start()
                except FileError:
                    query.start()
        for attempts in query.planned.values():
            assert all(one == attempts[0] for one in attempts)
        # Whoever puts the files back as a planned batch had them, or leaves them alone, goes on.
        for attempts in query.planned.values():
            query.folder.sizes |= {file.name: file.bytes for file in attempts[0]}
        query.start()
        while query.batch("never"):
            pass
        assert query.read.keys() == query.folder.sizes.keys()
        assert all(query.folder.of(name) == file for name, file in query.read.items())


@given(st.lists(st.tuples(deaths, st.integers(1, 9)), max_size=4))
def test_a_file_that_changes_after_its_batch_stops_every_later_start(attempts):
    with tempfile.TemporaryDirectory() as place:
        query = Query(Path(place))
        query.folder.sizes["a"] = 1
        for dies_at, size in attempts:
            if query.planned or query.committed:
                break
            query.folder.sizes["a"] = size
            query.batch(dies_at)
            query.start()
        while query.batch("never"):
            pass
        query.folder.sizes["a"] += 1
        for _ in range(2):
            with pytest.raises(FileError, match="written to later"):
                query.batch("never")
            query.start()
