"""The cache of remote state: private, bounded, and no reason to stop as long as dropping copies helps."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from tests.unit.log_helpers import rows
from watersmeet.errors import ConfigError, StateError
from watersmeet.kernel.rows import Sorted
from watersmeet.log import cache as cache_module
from watersmeet.log.cache import Cache, CacheFull, open_cache
from watersmeet.log.objects import Objects
from watersmeet.log.remote import RemoteFiles
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.storage import Storage
from watersmeet.model.facts import FULL_RANGE

ZEROS = "0" * 16


def remote(tmp_path: Path, limit: int | None = None, cache: str = "cache") -> RemoteFiles:
    """An object store without a server: a directory."""
    store = tmp_path / "store"
    store.mkdir(exist_ok=True)
    copies = open_cache(str(tmp_path / cache), limit).under(ZEROS)
    objects = Objects(f"file://{store}")
    return RemoteFiles(Storage("s3://bucket/state"), fs.LocalFileSystem(), str(store), objects, copies)


def copies(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


class Disk:
    """A disk of a few bytes below the cache: what does not fit fails as on a real one."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC):
        self.bytes = 0
        self.failures = 0
        real = Cache._filled

        def filled(cache: Cache, path: str, fill) -> Path:
            def write(target: str) -> None:
                fill(target)
                if sum(p.stat().st_size for p in root.rglob("*") if p.is_file()) > self.bytes:
                    self.failures += 1
                    raise OSError(number, os.strerror(number))

            return real(cache, path, write)

        monkeypatch.setattr(Cache, "_filled", filled)


# --- private --------------------------------------------------------------------------------------------


def test_the_cache_is_made_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        files = remote(tmp_path, cache="new/cache")
        run = write_run(files, "l", 0, "p00000", rows(1))
        RunReader(files).read(run, FULL_RANGE, ("x",))
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE(path.lstat().st_mode)
        for path in (tmp_path / "new", *(tmp_path / "new").rglob("*"))
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def make_link(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "elsewhere")


def make_shared(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o770)


def make_sticky(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o1777)


def make_file(tmp_path: Path, cache: Path) -> None:
    cache.touch()


SQUATTED = [
    pytest.param(make_link, "is a symbolic link", id="a link"),
    pytest.param(make_shared, r"can be written by others \(mode 0770\)", id="the group writes"),
    pytest.param(make_sticky, r"can be written by others \(mode 1777\)", id="all write"),
    pytest.param(make_file, "is not a directory", id="a file"),
]


@pytest.mark.parametrize("below", ["", ZEROS, f"{ZEROS}/runs", f"{ZEROS}/runs/l"])
@pytest.mark.parametrize(("squat", "problem"), SQUATTED)
def test_a_cache_directory_that_others_control_is_refused(tmp_path, squat, problem, below):
    place = tmp_path / "cache" / below
    place.parent.mkdir(parents=True, exist_ok=True)
    for folder in place.parents:
        if folder.is_relative_to(tmp_path):
            folder.chmod(0o755)
    squat(tmp_path, place)
    files = remote(tmp_path)
    with pytest.raises(ConfigError, match=rf"cache directory .*{problem}.*spark\.watersmeet\.cache"):
        write_run(files, "l", 0, "p00000", rows(1))
    assert list((tmp_path / "store").rglob("*")) == []
    assert list((tmp_path / "elsewhere").rglob("*")) == []


def test_folders_of_an_older_version_are_put_right_where_nobody_else_got_in(tmp_path):
    folder = tmp_path / "cache" / ZEROS / "runs" / "l"
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o775)
    (tmp_path / "cache").chmod(0o700)
    write_run(remote(tmp_path), "l", 0, "p00000", rows(1))
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.parents[:3])} == {0o700}


def test_a_cache_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "cache").stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to user"):
        write_run(remote(tmp_path), "l", 0, "p00000", rows(1))


def test_a_link_in_the_place_of_a_copy_is_not_followed(tmp_path):
    files = remote(tmp_path)
    run = write_run(files, "l", 0, "p00000", rows(1))
    (copy,) = (tmp_path / "cache").rglob("*.arrow")
    (tmp_path / "bait").write_bytes(copy.read_bytes())
    copy.unlink()
    copy.symlink_to(tmp_path / "bait")
    assert not files.has_copy(run.path)
    RunReader(files).read(run, FULL_RANGE, ("x",))
    assert not copy.is_symlink()


def test_a_cache_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cache directory .*file is not a directory"):
        write_run(remote(tmp_path, cache="file/cache"), "l", 0, "p00000", rows(1))


def test_the_cache_may_be_removed_at_any_time(tmp_path):
    files = remote(tmp_path)
    run = write_run(files, "l", 0, "p00000", rows(1))
    shutil.rmtree(tmp_path / "cache")
    assert RunReader(files).read(run, FULL_RANGE, ("x",))[0].rows.to_pydict() == {"x": [1]}
    shutil.rmtree(tmp_path / "cache")
    write_run(files, "l", 1, "p00000", rows(1))
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


# --- bounded --------------------------------------------------------------------------------------------


def sized(kilobytes: int, key: int) -> Sorted:
    count = kilobytes * 64
    keys = np.full(count, key, np.uint64)
    return Sorted(keys, pa.RecordBatch.from_pydict({"x": pa.array(np.arange(count) + key)}))


def test_the_default_size_is_a_share_of_the_free_disk(tmp_path, monkeypatch):
    files = remote(tmp_path)
    usage = type("usage", (), {"free": 40_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    for number in range(20):
        write_run(files, "l", number, "p00000", sized(4, number))
    # Half of 40,000 free bytes and of what the copies take: four or five copies, and never none.
    used = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.arrow"))
    assert 4_000 < used <= 0.5 * (40_000 + used)


def test_the_longest_unread_goes_first_and_foreign_files_stay(tmp_path):
    one = write_run(remote(tmp_path, cache="other"), "l", 0, "p00000", sized(4, 0)).bytes
    files = remote(tmp_path, limit=5 * one)
    (tmp_path / "cache").mkdir(mode=0o700)
    mine = tmp_path / "cache" / "mine.arrow"
    mine.write_bytes(bytes(100_000))
    runs = []
    for number in range(5):
        runs.append(write_run(files, "l", number, "p00000", sized(4, number)))
        for age, run in enumerate(reversed(runs)):
            if files.has_copy(run.path):
                os.utime(tmp_path / "cache" / ZEROS / run.path, (1e9 - age,) * 2)
    files.map(runs[2].path)
    write_run(files, "l", 9, "p00000", sized(4, 9))
    assert files.has_copy(runs[2].path) and not files.has_copy(runs[0].path)
    assert mine.exists()


def test_a_cache_with_room_is_not_listed_again_and_again(tmp_path, monkeypatch):
    files = remote(tmp_path, limit=1 << 30)
    looks = []
    real = cache_module._Room._copies
    monkeypatch.setattr(cache_module._Room, "_copies", lambda room: looks.append(1) or real(room))
    for number in range(200):
        write_run(files, "l", number, "p00000", rows(number))
    assert len(looks) == 1


def test_a_full_cache_is_listed_once_in_a_while(tmp_path, monkeypatch):
    files = remote(tmp_path, limit=64 * 4_600)
    looks = []
    real = cache_module._Room._copies
    monkeypatch.setattr(cache_module._Room, "_copies", lambda room: looks.append(1) or real(room))
    for number in range(256):
        write_run(files, "l", number, "p00000", sized(2, number))
    used = sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*.arrow"))
    assert used <= 64 * 4_600
    assert len(looks) < 256 / 2 + 20


def test_drafts_of_dead_processes_go(tmp_path):
    files = remote(tmp_path)
    write_run(files, "l", 0, "p00000", rows(1))
    folder = tmp_path / "cache" / ZEROS / "runs" / "l"
    dead, live = (folder / f".0000000000-p00000-x.arrow.{letter * 32}" for letter in "ab")
    for path in (dead, live):
        path.write_bytes(b"half")
    os.utime(dead, (1, 1))
    files.cache.room.left = -1
    write_run(files, "l", 1, "p00000", rows(1))
    assert live.exists() and not dead.exists()


# --- a full disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_drops_copies_and_the_read_goes_on(tmp_path, monkeypatch, number):
    files = remote(tmp_path)
    runs = [write_run(files, "l", n, "p00000", sized(4, n)) for n in range(10)]
    disk = Disk(tmp_path / "cache", monkeypatch, number)
    disk.bytes = 3 * runs[0].bytes
    for run in runs:
        files.forget_copy(run.path)
    reader = RunReader(files)
    for _ in range(2):
        for n, run in enumerate(runs):
            (section,) = reader.read(run, FULL_RANGE, ("x",)).values()
            assert section.rows.column("x")[0].as_py() == n
        reader.forget_all_but([run.path for run in runs])
    assert disk.failures > 0


def test_a_full_disk_drops_copies_for_the_keys_of_a_run_too(tmp_path, monkeypatch):
    files = remote(tmp_path)
    runs = [write_run(files, "l", n, "p00000", sized(200, n)) for n in range(10)]
    disk = Disk(tmp_path / "cache", monkeypatch)
    disk.bytes = 3 * 8 * runs[0].rows
    for run in runs:
        files.forget_copy(run.path)
    for run in runs:
        assert files.map_keys(run.path, run.keys_at, 8 * run.rows).size == 8 * run.rows
    assert disk.failures > 0


def test_a_disk_that_cannot_hold_one_run_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    files = remote(tmp_path)
    run = write_run(files, "l", 0, "p00000", sized(4, 1))
    Disk(tmp_path / "cache", monkeypatch)
    files.forget_copy(run.path)
    with pytest.raises(
        StateError, match=r"no space for a copy of runs/l.*spark\.watersmeet\.cache"
    ) as caught:
        RunReader(files).read(run, FULL_RANGE, ("x",))
    assert isinstance(caught.value, CacheFull)
    assert copies(tmp_path) == [], "no half copy takes up space"


def test_a_run_is_written_although_the_cache_disk_is_full(tmp_path, monkeypatch):
    files = remote(tmp_path)
    disk = Disk(tmp_path / "cache", monkeypatch)
    run = write_run(files, "l", 0, "p00000", rows(1, 2))
    assert copies(tmp_path) == []
    disk.bytes = 1 << 20
    assert RunReader(files).read(run, FULL_RANGE, ("x",))[0].rows.to_pydict() == {"x": [1, 2]}


def test_a_reader_lets_go_of_what_it_has_mapped_when_the_disk_is_full(tmp_path, monkeypatch):
    """The space of a removed copy comes back when nobody maps it: seen here as a call that fails until then."""
    files = remote(tmp_path)
    first, second = (write_run(files, "l", n, "p00000", rows(n)) for n in range(2))
    reader = RunReader(files)
    reader.read(first, FULL_RANGE, ("x",))
    real = RemoteFiles.map

    def mapped(files: RemoteFiles, path: str) -> pa.Buffer:
        if reader._open:
            raise CacheFull("full")
        return real(files, path)

    monkeypatch.setattr(RemoteFiles, "map", mapped)
    assert len(reader.read(second, FULL_RANGE, ("x",))[0]) == 1
    assert list(reader._open) == [second.path]


def test_copies_that_were_dropped_are_unmapped_at_the_next_batch(tmp_path):
    files = remote(tmp_path)
    runs = [write_run(files, "l", n, "p00000", rows(n)) for n in range(2)]
    reader = RunReader(files)
    for run in runs:
        reader.read(run, FULL_RANGE, ("x",))
    files.forget_copy(runs[0].path)
    reader.forget_all_but([run.path for run in runs])
    assert list(reader._open) == [runs[1].path]


def test_another_error_of_the_disk_is_not_taken_for_a_full_one(tmp_path, monkeypatch):
    files = remote(tmp_path)
    run = write_run(files, "l", 0, "p00000", rows(1))
    files.forget_copy(run.path)
    monkeypatch.setattr(files.cache.room, "drop_all", lambda: pytest.fail("dropped"))
    monkeypatch.setattr(cache_module, "_create", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(StateError, match="cache .*I/O error"):
        RunReader(files).read(run, FULL_RANGE, ("x",))
