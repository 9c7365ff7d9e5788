"""A temporary folder for a sort, which is removed even if the process is killed.

A worker of Spark may end at any moment, without its `atexit` functions, and DuckDB leaves what it has written. So each
folder has a lock that its process holds as long as it lives, and the next sort on the machine, of any process of the
same user, removes the folders whose lock is free. A process that dies after the last sort leaves its folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Windows has no such locks, and no forked workers.
if sys.platform != "win32":
    import fcntl

_PREFIX = "watersmeet-sort-"
_LOCK = "lock"
# One that was made this moment may not be locked yet.
_LOCKED_S = 60.0
# A folder without a lock is about to get one, or was left by an older version.
_UNLOCKED_S = 24 * 3600.0


@contextmanager
def scratch_folder() -> Iterator[str]:
    """An empty folder in the temporary directory. Removes those of killed processes first."""
    remove_stale()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, Path(folder, _LOCK).open("wb") as lock:
        if sys.platform != "win32":
            # Another sort may hold it for a moment, to see whether it can.
            fcntl.flock(lock, fcntl.LOCK_EX)
        spill = Path(folder, "spill")
        spill.mkdir()
        yield str(spill)


def remove_stale() -> None:
    """Remove the folders of processes that are gone."""
    if sys.platform == "win32":
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # It may be another user's, or be removed by another process just now.
        with suppress(OSError):
            facts = folder.lstat()
            if facts.st_uid == os.getuid() and folder.is_dir() and not folder.is_symlink():
                _remove_unless_held(folder, facts.st_mtime)


def _remove_unless_held(folder: Path, modified_s: float) -> None:
    try:
        lock = (folder / _LOCK).open("rb")
    except FileNotFoundError:
        if time.time() - modified_s > _UNLOCKED_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    with lock:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if time.time() - modified_s > _LOCKED_S:
            shutil.rmtree(folder, ignore_errors=True)
