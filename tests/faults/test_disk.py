"""The disk of the state is full, or cannot be written any more.

The query stops and says where and why; what was committed stays readable; when there is space again it goes on
and nothing is missing. The disk is a small tmpfs, filled at the very moment when a task is about to write.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from tests.faults.checks import check, orphans, verify_runs
from tests.faults.harness import Scene, feed, new_session, newest, run, start
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SIZE = "4m"
LARGER = "64m"
FULL = "No space left on device"
_PAGE = 4096


@dataclass(frozen=True)
class Disk:
    path: Path

    def fill(self) -> None:
        """Take up every last byte, also while another process is writing.

        That one may give some back when it fails, so that nothing can be said of the space left afterwards.
        """
        with (self.path / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match=FULL):
            filler.writelines(itertools.repeat(bytes(_PAGE)))

    def grow(self) -> None:
        self._mount("-o", f"remount,size={LARGER}")

    def make_read_only(self) -> None:
        self._mount("-o", "remount,ro")

    def make_writable(self) -> None:
        self._mount("-o", "remount,rw")

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, str(self.path)], check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield Disk(path)
    # Lazily: Python workers still have runs mapped.
    subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    session = new_session("local[2]", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@dataclass(frozen=True)
class Trouble:
    says: str
    befalls: Callable[[Disk], None]
    ends: Callable[[Disk], None]


TROUBLES = [
    pytest.param(Trouble(FULL, Disk.fill, Disk.grow), id="full"),
    pytest.param(Trouble("Read-only file system", Disk.make_read_only, Disk.make_writable), id="read-only"),
]
PLACES = [
    pytest.param(None, id="before the query starts"),
    pytest.param("run-before-write", id="when a run is due"),
    pytest.param("manifest-before-write", id="when the manifest is due"),
    pytest.param("merge-part", id="when a merge is due"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_the_disk_is(spark, tmp_path, disk, trouble, place):
    scene = Scene(tmp_path, disk.path / "state", tasks=1)
    feed(scene, 2)
    run(spark, scene)
    feed(scene, 3)
    message = _failure(spark, scene, disk, trouble, place)
    assert "StateError: cannot write state to " + str(scene.state) in message
    assert trouble.says in message
    _check_committed(scene)
    trouble.ends(disk)
    run(spark, scene)
    check(scene)


def _failure(spark, scene: Scene, disk: Disk, trouble: Trouble, place: str | None) -> str:
    """Start the query, bring the trouble about, and give back what the query dies of."""
    if place is None:
        trouble.befalls(disk)
        query = start(spark, scene)
    else:
        query = start(spark, scene, f"{place}=wait:{scene.go}@{scene.once}")
        wait_until(scene.once.exists, f"a task comes to {place}")
        trouble.befalls(disk)
        scene.go.touch()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(120)
    return str(caught.value)


def _check_committed(scene: Scene) -> None:
    """The newest manifest and all its runs can be read, and no half file takes up space."""
    manifest = newest(scene)
    assert manifest.batch.number >= scene.committed_batches() - 1
    verify_runs(scene, manifest)
    for path in orphans(scene):
        assert pa.ipc.open_file(str(scene.files.root / path)).num_record_batches == 1
