"""New files of a directory: which names count, and when nothing is listed."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from pyarrow import fs

from watersmeet.errors import FileError
from watersmeet.file_inputs.listing import LOOK_AGAIN_S, TICK_S, Directory
from watersmeet.tables.spec import Address


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    return place


class Clock:
    def __init__(self) -> None:
        self.s = time.time()

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def names(directory: Directory, taken=()) -> list[str] | None:
    found = directory.new_files(set(taken))
    return None if found is None else sorted(file.name for file in found)


def test_hidden_temporary_and_empty_files_are_not_seen(folder, clock):
    for name in ("a", "b.parquet", "_SUCCESS", ".a.crc", "c._COPYING_", "_metadata", "_k=1"):
        (folder / name).write_text("x")
    (folder / "empty").touch()
    (folder / "_temporary").mkdir()
    (folder / "below").mkdir()
    (folder / "below" / "z").write_text("x")
    assert names(Directory(Address(str(folder)), clock)) == ["_k=1", "a", "b.parquet"]


def test_an_empty_file_is_seen_when_it_has_content(folder, clock):
    (folder / "a").touch()
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == []
    (folder / "a").write_text("x")
    clock.s += LOOK_AGAIN_S
    assert names(directory) == ["a"]


def test_size_and_time_are_those_of_the_file(folder, clock):
    (folder / "a").write_text("xyz")
    os.utime(folder / "a", ns=(5, 123_456_789))
    (found,) = Directory(Address(f"file://{folder}"), clock).new_files(set()) or []
    assert (found.name, found.bytes, found.modified_ns) == ("a", 3, 123_456_789)


def test_a_directory_is_not_listed_while_it_is_unchanged(folder, clock, monkeypatch):
    (folder / "a").write_text("x")
    listings = []
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda place: listings.append(place) or listed(place))
    directory = Directory(Address(str(folder)), clock)
    clock.s += 2 * TICK_S
    assert names(directory) == ["a"]
    for _ in range(5):
        assert directory.new_files({"a"}) is None
    assert len(listings) == 1
    (folder / "b").write_text("x")
    assert names(directory, {"a"}) == ["b"]
    assert len(listings) == 2


def test_a_file_of_the_same_tick_is_not_missed(folder, clock):
    """The second file appears after the listing, and the directory's time does not move."""
    (folder / "a").write_text("x")
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == ["a"]
    tick_ns = folder.stat().st_mtime_ns
    (folder / "b").write_text("x")
    os.utime(folder, ns=(tick_ns, tick_ns))
    assert names(directory, {"a"}) == ["b"]


def test_a_directory_is_listed_once_in_a_while(folder, clock):
    (folder / "a").write_text("x")
    directory = Directory(Address(str(folder)), clock)
    clock.s += 2 * TICK_S
    assert names(directory) == ["a"]
    clock.s += LOOK_AGAIN_S - 1
    assert names(directory, {"a"}) is None
    clock.s += 1
    assert names(directory, {"a"}) == []


def test_files_of_an_earlier_listing_are_taken_as_they_are_now(folder, clock):
    for name in "abc":
        (folder / name).write_text("x")
    directory = Directory(Address(str(folder)), clock)
    listed = sorted(directory.new_files(set()) or [], key=lambda file: file.name)
    (folder / "a").write_text("longer")
    (folder / "b").unlink()
    assert [(file.name, file.bytes) for file in directory.as_now(listed)] == [("a", 6), ("c", 1)]


def test_a_partition_folder_is_refused(folder, clock):
    (folder / "day=1").mkdir()
    with pytest.raises(FileError, match=r"the folder day=1: .* as a DataFrame"):
        Directory(Address(str(folder)), clock).new_files(set())


def test_an_unreachable_directory_is_a_clear_error(folder, clock):
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == []
    shutil.rmtree(folder)
    with pytest.raises(FileError, match="does not exist"):
        directory.new_files(set())
    folder.write_text("x")
    with pytest.raises(FileError, match="is a file"):
        directory.new_files(set())


def sink_batch(folder, name: str, *files: str) -> None:
    lines = [
        json.dumps({"path": f"file://{folder}/{file}", "size": 1, "modificationTime": 7, "action": "add"})
        for file in files
    ]
    (folder / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))


def test_of_a_sinks_output_only_committed_files_are_seen(folder, clock):
    (folder / "_spark_metadata").mkdir()
    for name in ("a%20b", "b", "c", "d", "orphan"):
        (folder / name.replace("%20", " ")).write_text("x")
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == []
    sink_batch(folder, "0", "a%20b")
    sink_batch(folder, "1", "b")
    assert names(directory) == ["a b", "b"]
    sink_batch(folder, "2.compact", "a%20b", "b", "c")
    sink_batch(folder, "3", "d")
    assert names(directory, {"a b", "b"}) == ["c", "d"]
    # A start reads from the last compact batch on.
    (folder / "_spark_metadata" / "0").unlink()
    assert names(Directory(Address(str(folder)), clock)) == ["a b", "b", "c", "d"]


def test_a_batch_that_a_sink_commits_while_we_look_is_seen_later(folder, clock, monkeypatch):
    """The next look sees it, whether it was committed after the first listing of all or after a later one."""
    (folder / "_spark_metadata").mkdir()
    (folder / "a").write_text("x")
    sink_batch(folder, "0", "a")
    listed, commits = os.listdir, iter(("b", "c"))

    def commit_after(place):
        seen = listed(place)
        for number, name in enumerate(commits, len(listed(folder / "_spark_metadata"))):
            (folder / name).write_text("x")
            sink_batch(folder, str(number), name)
            break
        return seen

    monkeypatch.setattr(os, "listdir", commit_after)
    directory = Directory(Address(str(folder)), clock)
    found = [names(directory) for _ in range(3)]
    assert found == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"]]


def test_a_link_round_in_a_circle_is_passed_over(folder, clock):
    (folder / "a").write_text("x")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "nowhere").symlink_to(folder / "missing")
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == ["a"]
    assert directory.present == {"a"}


def test_names_that_are_taken_are_not_looked_at(folder, clock, monkeypatch):
    """However many there are, but for those that were taken last."""
    for name in ("a", "b", "c", "_d"):
        (folder / name).write_text("x")
    directory, looked_at = Directory(Address(str(folder)), clock), []
    look = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **more: looked_at.append(path.name) or look(path, **more))
    found = directory.new_files({"a", "b"}, watched={"b": 1})
    assert [file.name for file in found or ()] == ["c"]
    assert sorted({"a", "b", "c", "_d"} & set(looked_at)) == ["b", "c"]
    assert directory.present == {"a", "b", "c"}


def test_a_committed_file_that_is_missing_is_an_error(folder, clock):
    (folder / "_spark_metadata").mkdir()
    sink_batch(folder, "0", "a")
    with pytest.raises(FileError, match="names a, which is missing"):
        Directory(Address(str(folder)), clock).new_files(set())
    assert names(Directory(Address(str(folder)), clock), {"a"}) == []


def test_a_bucket_is_listed_like_a_directory(bucket, clock):
    address = Address(f"{bucket}/in")
    filesystem, base = fs.FileSystem.from_uri(f"{bucket}/in")
    for name in ("a", "_SUCCESS", "b", "below/c"):
        with filesystem.open_output_stream(f"{base}/{name}") as sink:
            sink.write(b"xy")
    directory = Directory(address, clock)
    assert names(directory) == ["a", "b"]
    assert names(directory, {"a"}) == ["b"]
    assert directory.names() >= {"a", "b", "_SUCCESS"}


def test_a_prefix_that_becomes_empty_has_no_files(bucket, clock):
    filesystem, base = fs.FileSystem.from_uri(f"{bucket}/in")
    directory = Directory(Address(f"{bucket}/in"), clock)
    with pytest.raises(FileError, match="does not exist"):
        directory.new_files(set())
    with filesystem.open_output_stream(f"{base}/a") as sink:
        sink.write(b"x")
    assert names(directory) == ["a"]
    # Not `delete_file`, which leaves an object for the directory.
    filesystem.delete_dir(base)
    assert directory.new_files({"a"}, begun=True) == []
    assert directory.present == set() == directory.names()
    with pytest.raises(FileError, match="does not exist"):
        directory.new_files(set())
    bucket_name = base.partition("/")[0]
    gone = Directory(Address(f"{bucket}/in".replace(bucket_name, "no-such-bucket")), clock)
    with pytest.raises(FileError, match="does not exist|cannot be listed"):
        gone.new_files({"a"}, begun=True)


def test_an_unreachable_bucket_is_a_clear_error_without_its_key(bucket, clock, s3_endpoint):
    server = s3_endpoint.removeprefix("http://")
    address = Address(f"s3://key:sesame@no-such-bucket/in?endpoint_override={server}&scheme=http&region=x")
    with pytest.raises(FileError, match="cannot be listed|does not exist") as raised:
        Directory(address, clock).new_files(set())
    assert "sesame" not in str(raised.value)


def test_a_name_that_is_not_utf_8_is_refused_before_it_is_taken(folder, clock):
    (folder / "a ü%20").write_text("x")
    directory = Directory(Address(str(folder)), clock)
    assert names(directory) == ["a ü%20"]
    with open(os.fsencode(folder) + b"/\xff", "w") as file:
        file.write("x")
    directory.look_again()
    with pytest.raises(FileError, match=r"not UTF-8, b'\\xff': rename or remove it"):
        names(directory)
