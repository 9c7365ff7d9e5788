"""The log of a file input: what a start reads of it, what is removed, and what is an error."""

from __future__ import annotations

import pytest

from watersmeet.errors import CorruptFile, FileError, StateError, StateMissing
from watersmeet.file_inputs.file_log import SEEN_EVERY, FileLog, Intake, Loaded
from watersmeet.file_inputs.listing import Directory
from watersmeet.file_inputs.offsets import BEGINNING, FileOffset, IntakeLimit, ListedFile, Reread, TakenNames
from watersmeet.file_inputs.stream import FileStream
from watersmeet.log.codec import close_checked
from watersmeet.log.files import LocalFiles
from watersmeet.log.status import read_status
from watersmeet.tables.spec import Address


def file(number: int) -> ListedFile:
    return ListedFile(f"{number:06d}", 1, number)


@pytest.fixture
def log(tmp_path) -> FileLog:
    return FileLog(LocalFiles(tmp_path), "one")


def test_an_intake_is_what_was_written_first(log):
    first = Intake((file(1),), "/in")
    assert log.publish(1, first) == first
    assert log.publish(1, Intake((file(2),))) == first
    assert log.read(1) == first
    assert log.read(2) is None


def test_a_start_finds_intakes_after_the_offset(log):
    for number in (1, 2, 3):
        log.publish(number, Intake((file(number),)))
    names = TakenNames({file(n).name for n in (1, 2, 3)})
    assert log.load(1) == Loaded(names, 3, tuple(Intake((file(n),)) for n in (1, 2, 3)), ())


def test_a_start_finds_rereads_in_their_order(log, tmp_path):
    """Two tasks may record at once: none takes the other's number."""
    log.publish(1, Intake((file(1),)))
    rereads = [Reread(ListedFile("a", size, 0), ListedFile("a", size + 1, 0)) for size in range(12)]
    other = FileLog(LocalFiles(tmp_path), "one")
    for number, reread in enumerate(rereads):
        (log, other)[number % 2].record(reread)
    assert log.load(1).rereads == tuple(rereads)


def test_a_start_reads_the_end_of_a_long_log(log, tmp_path, monkeypatch):
    taken = TakenNames(absent={file(1).name: 17})
    for number in range(1, 3 * SEEN_EVERY + 5):
        log.publish(number, Intake((file(number),)))
        taken.names.add(file(number).name)
        if number % SEEN_EVERY == 0:
            log.keep_names(number, taken, needed_from=number - 20)
    kept = [path.name for path in (tmp_path / "~files" / "one" / "intakes").iterdir()]
    assert len(kept) == SEEN_EVERY + 4, "the intakes after the last file of names but one"
    read = []
    monkeypatch.setattr(LocalFiles, "read", _counted(LocalFiles.read, read))
    found = FileLog(LocalFiles(tmp_path), "one").load(number)
    assert (found.taken, found.last, len(found.newest)) == (taken, number, 4)
    assert len(read) == 1 + 4 + 1, "names, four intakes, and a look for the next one"


def test_intakes_that_may_be_replayed_are_kept(log):
    taken = TakenNames()
    for number in range(1, 2 * SEEN_EVERY + 1):
        log.publish(number, Intake((file(number),)))
        taken.names.add(file(number).name)
        if number % SEEN_EVERY == 0:
            log.keep_names(number, taken, needed_from=40)
    assert log.read(39) is None
    assert log.between(39, 60) == tuple(Intake((file(number),)) for number in range(40, 61))


def _counted(read, calls):
    def counting(self, path):
        calls.append(path)
        return read(self, path)

    return counting


def test_a_lost_intake_is_an_error(log):
    log.publish(1, Intake((file(1),)))
    with pytest.raises(StateMissing, match="intake 2 of the file log"):
        log.load(2)
    with pytest.raises(StateMissing, match="intake 2 .*start with a new checkpoint"):
        log.between(0, 3)


def test_a_damaged_intake_is_an_error(log, tmp_path):
    log.publish(1, Intake((file(1),)))
    path = tmp_path / "~files" / "one" / "intakes" / "000000000001.json"
    path.write_bytes(path.read_bytes().replace(b"000001", b"000007"))
    with pytest.raises(CorruptFile, match="checksum"):
        log.read(1)


def test_names_with_their_times_of_change_are_still_read(log, tmp_path):
    """As they were written before it was kept since when a name is gone."""
    log.publish(1, Intake((file(1),)))
    seen = tmp_path / "~files" / "one" / "seen"
    seen.mkdir()
    names = {"intake": 1, "names": [file(1).name], "modified_ns": [1]}
    (seen / "000000000001.json").write_bytes(close_checked(names))
    assert log.load(1) == Loaded(TakenNames({file(1).name}), 1, (Intake((file(1),)),), ())


def test_an_intake_without_a_directory_is_still_read(log, tmp_path):
    """As it was written before the directory was kept."""
    log.publish(1, Intake((file(1),)))
    path = tmp_path / "~files" / "one" / "intakes" / "000000000002.json"
    path.write_bytes(close_checked({"files": [{"name": "b", "bytes": 1, "modified_ns": 2}]}))
    stream = FileStream(Directory(Address(str(tmp_path)), lambda: 0), LocalFiles(tmp_path), lambda: 0)
    assert stream.between(BEGINNING, FileOffset("one", 2)) == (file(1), ListedFile("b", 1, 2))


def test_a_directory_that_was_moved_twice_goes_on(tmp_path):
    """Also where Spark asks again for files that were taken before each of the moves."""

    def stream(name: str, moved_from: str | None = None) -> FileStream:
        directory = Directory(Address(str(tmp_path / name)), lambda: 0)
        return FileStream(
            directory,
            LocalFiles(tmp_path / "state"),
            lambda: 0,
            moved_from=moved_from and str(tmp_path / moved_from),
        )

    def write(name: str, file: str) -> None:
        (tmp_path / name / file).write_bytes(b"x")

    def names(stream: FileStream, start: FileOffset, end: FileOffset) -> list[str]:
        return [file.name for file in stream.between(start, end)]

    (tmp_path / "a").mkdir()
    write("a", "1")
    first = stream("a").latest(BEGINNING, IntakeLimit())
    (tmp_path / "a").rename(tmp_path / "b")
    write("b", "2")
    moved = stream("b", "a")
    second = moved.latest(first, IntakeLimit())
    assert names(moved, first, second) == ["2"]
    # An intake has the new name, so nobody needs to be told again.
    assert names(stream("b"), BEGINNING, second) == ["1", "2"]
    assert stream("b").latest(second, IntakeLimit()) == second

    (tmp_path / "b").rename(tmp_path / "c")
    write("c", "3")
    for told in (None, "a"):
        for start, end in ((BEGINNING, first), (first, second)):
            with pytest.raises(FileError, match=f"has taken files from {tmp_path}/b, "):
                stream("c", told).between(start, end)
        with pytest.raises(FileError, match=f'pass moved_from="{tmp_path}/b"'):
            stream("c", told).latest(second, IntakeLimit())
    moved = stream("c", "b")
    assert names(moved, BEGINNING, first) == ["1"]
    third = moved.latest(second, IntakeLimit())
    assert names(moved, second, third) == ["3"]
    assert names(stream("c"), BEGINNING, third) == ["1", "2", "3"]
    (tmp_path / "b").mkdir()
    with pytest.raises(FileError, match=f"taken files from {tmp_path}/c, and its input now is {tmp_path}/b"):
        stream("b", "a").between(BEGINNING, first)


def test_offsets_of_another_source_are_refused():
    with pytest.raises(StateError, match="not one of a wm.files input"):
        FileOffset.from_json({"logOffset": 4})
    with pytest.raises(StateError, match="not one of a wm.files input"):
        FileOffset.from_json(7)


def test_offsets_of_two_logs_are_refused(tmp_path):
    stream = FileStream(Directory(Address(str(tmp_path)), lambda: 0), LocalFiles(tmp_path), lambda: 0)
    with pytest.raises(FileError, match="two file logs"):
        stream.between(FileOffset("one", 1), FileOffset("two", 2))
    assert stream.between(BEGINNING, BEGINNING) == ()


def test_the_status_of_a_state_does_not_take_the_log_for_a_join(log, tmp_path):
    log.publish(1, Intake((file(1),)))
    with pytest.raises(StateError):
        read_status(tmp_path)


def test_json_is_the_same_after_a_round_trip():
    offset = FileOffset("one", 3)
    assert FileOffset.from_json(offset.to_json()) == offset
    assert FileOffset.from_json(BEGINNING.to_json()) == BEGINNING
    assert IntakeLimit() == IntakeLimit(None, None)
