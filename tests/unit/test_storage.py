"""Local storage: what it must be able to do, what a failure is called, who gets in, what a power loss leaves."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.log_helpers import rows
from tests.unit.table_helpers import Frame
from watersmeet.engine.spec import Settings
from watersmeet.errors import ConfigError, StateError
from watersmeet.local.join import LocalJoin
from watersmeet.log import files as files_module
from watersmeet.log.files import LocalFiles, open_files
from watersmeet.log.names import TALLIES
from watersmeet.log.probe import probe
from watersmeet.log.runs import write_run
from watersmeet.log.storage import Storage
from watersmeet.tables.prepare import prepare
from watersmeet.tables.spec import table

SCHEMA = pa.schema({"k": pa.int64()})
NO_LINKS = [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK]


def fail_with(number: int):
    def fail(*_args, **_keywords):
        raise OSError(number, os.strerror(number))

    return fail


def join(state: Path, **settings) -> LocalJoin:
    chosen = Settings(state=str(state), tasks=1, **settings)
    return LocalJoin({"l": SCHEMA, "r": SCHEMA}, on="l.k = r.k", state=str(state), tasks=1, settings=chosen)


# --- the probe ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", NO_LINKS)
def test_storage_without_hard_links_is_refused_when_the_join_is_built(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "link", fail_with(number))
    with pytest.raises(ConfigError, match=r"hard link is refused.*s3fs, gcsfuse, /dbfs.*s3://") as caught:
        join(tmp_path / "state")
    assert "free space" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_links_that_replace_a_file_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        os, "link", lambda source, target: Path(target).write_bytes(Path(source).read_bytes())
    )
    with pytest.raises(ConfigError, match="replaces a file that exists"):
        join(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_renamed_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "rename", fail_with(errno.ENOSYS))
    with pytest.raises(ConfigError, match="renamed"):
        join(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_what_only_this_machine_may_lack_is_left_to_the_tasks(tmp_path, monkeypatch, number):
    monkeypatch.setattr(Path, "mkdir", fail_with(number))
    join(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_place_is_tried_once_and_nothing_is_left_behind(tmp_path, monkeypatch):
    made = []
    real = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda path, *a, **k: made.append(path.name) or real(path, *a, **k))
    for _ in range(3):
        probe(Storage(str(tmp_path / "a" / "state")))
    assert len([name for name in made if name.startswith(".watersmeet-probe-")]) == 1
    assert list(tmp_path.iterdir()) == []


# --- what a failure is called ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "mount it for writing"),
        (errno.EACCES, "let the executors' user write"),
        (errno.EIO, "check the disk"),
        (errno.ESTALE, "mount the network filesystem again"),
        (errno.ENAMETOOLONG, "shorter"),
        (errno.EMFILE, "ulimit"),
        (errno.EBUSY, "find out why"),
    ],
)
def test_a_failure_says_what_fits_it(tmp_path, monkeypatch, number, advice):
    files = LocalFiles(tmp_path)
    monkeypatch.setattr(os, "link", fail_with(number))
    with pytest.raises(StateError, match=f"{os.strerror(number)}.*{advice}") as caught:
        files.publish("manifests/a", b"x")
    assert ("free space" in str(caught.value)) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert os.listdir(tmp_path / "manifests") == []


@pytest.mark.parametrize("number", NO_LINKS)
def test_a_refused_link_names_the_remedy(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "link", fail_with(number))
    with pytest.raises(StateError, match=r"hard link is refused.*filesystem with hard links.*s3://"):
        LocalFiles(tmp_path).publish("manifests/a", b"x")


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "manifests").touch()
    with pytest.raises(StateError, match="remove the file where a directory must be"):
        LocalFiles(tmp_path).publish("manifests/a", b"x")


# --- who gets in ----------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("settings", "expected"), [({}, 0o700), ({"state_mode": 0o770}, 0o770)])
def test_a_new_state_directory_is_private_unless_the_setting_says_otherwise(
    tmp_path, umask, settings, expected
):
    running = join(tmp_path / "above" / "state", **settings)
    running.batch(l=pa.table({"k": [1]}))
    assert mode(tmp_path / "above" / "state") == expected
    assert mode(tmp_path / "above") == 0o755, "the folders above it and inside follow the umask"
    assert mode(tmp_path / "above" / "state" / "join" / "local" / "manifests") == 0o755


def test_an_existing_state_directory_is_left_as_it_is(tmp_path, umask):
    tmp_path.chmod(0o775)
    join(tmp_path).batch(l=pa.table({"k": [1]}))
    assert mode(tmp_path) == 0o775


def test_a_state_directory_that_a_table_makes_is_private(tmp_path, umask):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t.parquet")
    prepare(table(str(tmp_path / "t.parquet"), "id", in_place=False), open_files(tmp_path / "state"))
    assert mode(tmp_path / "state") == 0o700


class Spark:
    """Writes a DataFrame as Spark does: with all folders on the way, open to everybody."""

    def fingerprint(self, frame: object) -> str:
        return "frame"

    def write(self, frame: object, place: str) -> None:
        Path(place).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), Path(place) / "part-0.parquet")


def test_a_state_directory_is_private_also_where_spark_writes_first(tmp_path, umask):
    source = prepare(table(Frame(), "id"), open_files(tmp_path / "state"), Spark())
    assert source.open().schema.names == ["id"]
    assert mode(tmp_path / "state") == 0o700


# --- what a power loss leaves ---------------------------------------------------------------------------


class Durable:
    """Which names are on the disk: those in a folder that was synced after they were made."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch):
        self.root = root
        self.names: set[Path] = set()
        monkeypatch.setattr(os, "fsync", self._sync)
        monkeypatch.setattr(files_module, "_SETTLED", set())

    def _sync(self, handle: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        self.names |= set(place.iterdir()) if place.is_dir() else {place}

    def lost(self) -> set[Path]:
        """The files that could not be found again, since a name on the way to them is not on the disk.

        A lost tally costs no result.
        """
        below = [path for path in self.root.rglob("*") if path.is_file() and path.parent.name != TALLIES]
        return {path for path in below if not self._is_reachable(path)}

    def _is_reachable(self, path: Path) -> bool:
        between = (path, *path.parents)
        return all(part in self.names for part in between if part != self.root and self.root in part.parents)


def test_with_fsync_every_new_folder_on_the_way_is_forced_to_the_disk(tmp_path, monkeypatch):
    durable = Durable(tmp_path, monkeypatch)
    running = join(tmp_path / "a" / "b" / "state", fsync=True)
    for number in range(3):
        running.batch(l=pa.table({"k": [number]}), r=pa.table({"k": [0]}))
        assert durable.lost() == set()
    assert len(list(tmp_path.rglob("manifests/*.json"))) == 3


def test_with_fsync_a_folder_that_another_process_has_just_made_is_forced_to_the_disk(tmp_path, monkeypatch):
    (tmp_path / "state" / "n" / "q" / "manifests").mkdir(parents=True)
    durable = Durable(tmp_path / "state", monkeypatch)
    open_files(tmp_path / "state", fsync=True).under("n", "q").publish("manifests/a", b"x")
    assert durable.lost() == set()


def test_with_fsync_table_folders_are_forced_to_the_disk_also_by_a_task(tmp_path, monkeypatch):
    durable = Durable(tmp_path / "state", monkeypatch)
    source = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [2, 1]}), source)
    storage = Storage(str(tmp_path / "state"), fsync=True)
    made = prepare(table(str(source), "id", in_place=False), open_files(storage))
    assert durable.lost() == set()
    pq.write_table(pa.table({"id": [3, 2, 1]}), source)
    newer = made.open().newest()
    assert newer is not None and newer.folder != made.folder
    assert durable.lost() == set()
    assert len(list((tmp_path / "state").rglob("table.json"))) == 2


def test_without_fsync_nothing_is_forced(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: pytest.fail("synced"))
    write_run(LocalFiles(tmp_path / "state"), "l", 0, "p00000", rows(1))
