"""Local copies of remote files, in one private directory for each machine and user.

All processes of a machine share the copies. Each copy is written as a draft and renamed when it is complete.

Private: the copies hold rows, and processes map them. The directory is made with mode 0700. A directory, or a folder
inside, that is a symbolic link, belongs to another user or is writable by others is refused. (Up to 0.1 folders inside
followed the umask: they are corrected if nobody else can enter the directory above.)

Bounded: above the limit, the least recently read copies are dropped. By default the limit follows the disk: a share of
the free space, counted as if there were no copies. Listing many copies takes long, so a process lists them only after
it has added an eighth of the room that it last saw. Eight processes that fill the cache at the same time stay below the
limit. More of them exceed it a little until one of them lists.

A full disk (other programs use it, too) is no error as long as dropping copies helps. First some are dropped, then all,
then the caller unmaps its runs, since the space of a removed file is freed when nobody maps it. After that it is an
error. A run is not read into memory instead: a task's runs together have no bound, and an executor that exceeds its
memory is killed without a message. A run that is *written* needs no copy: its bytes are in memory for the upload.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import shutil
import stat
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import ConfigError, StateError
from watersmeet.log.names import draft_of, is_copy, is_copy_draft, is_copy_folder

# Share of the free disk, without `spark.watersmeet.cacheBytes`. Spark's shuffle and spill files are usually on the same
# disk and need the other half.
CACHE_SHARE = 0.5

# A full cache is emptied down to this share of the limit, so that the next listing is some copies away.
_KEPT_SHARE = 0.75
# Processes that may fill the remaining room at the same time: the usual number of cores of an executor.
_SHARERS = 8
# An older draft belongs to a killed process: no download of one file takes this long.
_DEAD_DRAFT_S = 3600.0

_FULL = (errno.ENOSPC, errno.EDQUOT)


class CacheFull(StateError):
    """The disk of the cache is full, and dropping copies does not help."""


def open_cache(place: str | None, limit: int | None) -> Cache:
    """The cache of this machine and user. Without a `place` it is a folder in the temporary directory.

    The directory is made and checked at first use: listing remote state needs no cache.
    """
    root = Path(place) if place else Path(tempfile.gettempdir()) / f"watersmeet-cache-{os.geteuid()}"
    return Cache(root.absolute(), _room_of(root.absolute(), limit))


@dataclass(frozen=True)
class Cache:
    """Copies below one folder of the cache, by their relative paths."""

    folder: Path
    room: _Room

    def under(self, *parts: str) -> Cache:
        return Cache(self.folder.joinpath(*parts), self.room)

    def has(self, path: str) -> bool:
        """Whether this user has made a copy."""
        return self._found(path) is not None

    def map(self, path: str) -> pa.Buffer | None:
        """The mapped bytes of a copy, marked as read; None if there is no copy."""
        copy = self._found(path)
        if copy is None:
            return None
        try:
            os.utime(copy, follow_symlinks=False)
            return _mapped(copy)
        except FileNotFoundError:
            # Another process has just dropped it.
            return None

    def add(self, path: str, size: int, fill: Callable[[str], None]) -> pa.Buffer:
        """Make a copy and return its mapped bytes. `fill` writes it to the given path."""
        draft = self.draft(path, size, fill)
        try:
            # Map it before it has its name: after that another process may drop it.
            content = _mapped(draft)
            self.keep(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return content

    def draft(self, path: str, size: int, fill: Callable[[str], None]) -> Path:
        """Write a copy without a name yet. Drop other copies if the disk is full; CacheFull if that does not help."""
        self.room.check()
        self.room.make(size)
        drops: list[Callable[[], None]] = [functools.partial(self.room.drop, size), self.room.drop_all]
        for drop in drops:
            with contextlib.suppress(_DiskFull):
                return self._filled(path, fill)
            drop()
        try:
            return self._filled(path, fill)
        except _DiskFull as full:
            raise CacheFull(
                f"there is no space for a copy of {path} ({size:,} bytes) in the cache {self.room.root}: "
                f"{full.error.strerror}, although all unused copies were dropped. Free space there, or set "
                "spark.watersmeet.cache to a directory on a larger disk, then start the query again. Committed state "
                "is not affected"
            ) from full.error

    def keep(self, draft: Path, path: str) -> None:
        """Give a draft its name, unless its folder was removed meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            draft.rename(self.folder / path)

    def forget(self, path: str) -> None:
        self.room.check()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (self.folder / path).unlink()

    def forget_folder(self, name: str) -> None:
        self.room.check()
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _found(self, path: str) -> Path | None:
        self.room.check()
        copy = self.folder / path
        try:
            found = copy.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return copy if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None

    def _filled(self, path: str, fill: Callable[[str], None]) -> Path:
        target = self.folder / path
        draft = target.with_name(draft_of(target.name, uuid.uuid4().hex))
        try:
            _create(draft, self.room.root)
        except OSError as error:
            if error.errno in _FULL:
                raise _DiskFull(error) from error
            raise StateError(
                f"cannot write to the cache {self.room.root}: {error.strerror or error}. Fix that, or set "
                "spark.watersmeet.cache to a directory on another disk, then start the query again. Committed state "
                "is not affected"
            ) from error
        try:
            fill(str(draft))
        except BaseException as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            if isinstance(error, OSError) and error.errno in _FULL:
                raise _DiskFull(error) from error
            raise
        return draft


@dataclass
class _Room:
    """The bytes that may still be added to a cache, shared by all its users in this process."""

    root: Path
    limit: int | None
    # Bytes that may be added before the next listing; negative before the first.
    left: int = -1
    is_checked: bool = False
    # Several threads of a task fetch at a time.
    turn: threading.RLock = field(default_factory=threading.RLock)

    def check(self) -> None:
        """Make the directory, or check that it is private: once, since nobody else can change that afterwards."""
        if self.is_checked and self.root.is_dir():
            return
        try:
            _make_private(self.root, _nearest(self.root))
        except OSError as error:
            raise ConfigError(
                f"the cache directory {self.root} cannot be used: {error.strerror or error}. Set "
                "spark.watersmeet.cache to a directory on a local disk that the executors may write to"
            ) from error
        self.is_checked = True

    def make(self, need: int) -> None:
        """Make room for `need` bytes: list the copies if it is time to, and drop the excess."""
        with self.turn:
            if need > self.left:
                copies = self._copies()
                used = sum(size for _, size, _ in copies)
                limit = self._limit(used)
                if used + need > limit:
                    used -= _drop(copies, used + need - int(limit * _KEPT_SHARE))
                self.left = max(need, (limit - used) // _SHARERS)
            self.left -= need

    def drop(self, need: int) -> None:
        """Drop copies on a full disk: what is needed, and at least a quarter of them."""
        with self.turn:
            copies = self._copies()
            used = sum(size for _, size, _ in copies)
            _drop(copies, max(need, int(used * (1 - _KEPT_SHARE))))
            self.left = -1

    def drop_all(self) -> None:
        with self.turn:
            _drop(self._copies(), None)
            self.left = -1

    def _limit(self, used: int) -> int:
        if self.limit is not None:
            return self.limit
        return int(CACHE_SHARE * (shutil.disk_usage(self.root).free + used))

    def _copies(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every copy, the least recently used first."""
        found = []
        # The directory may hold other files of the user.
        ours = [Path(entry.path) for entry in _entries(self.root) if is_copy_folder(entry.name)]
        for path in itertools.chain.from_iterable(map(_files, ours)):
            with contextlib.suppress(FileNotFoundError):
                info = path.lstat()
                if is_copy(path.name):
                    found.append((info.st_mtime, info.st_size, path))
                elif is_copy_draft(path.name) and info.st_mtime < time.time() - _DEAD_DRAFT_S:
                    path.unlink()
        return sorted(found)


_ROOMS: dict[tuple[Path, int | None], _Room] = {}


def _room_of(root: Path, limit: int | None) -> _Room:
    return _ROOMS.setdefault((root, limit), _Room(root, limit))


class _DiskFull(Exception):
    def __init__(self, error: OSError):
        super().__init__(str(error))
        self.error = error


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _drop(copies: list[tuple[float, int, Path]], excess: int | None) -> int:
    """Remove copies until `excess` bytes are gone, or all, and return the bytes. Mapped copies stay readable."""
    dropped = 0
    for _, size, path in copies:
        if excess is not None and dropped >= excess:
            break
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        dropped += size
    return dropped


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder that may change meanwhile. Links are neither followed nor listed."""
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _create(draft: Path, root: Path) -> None:
    """Create an empty private file. Another process may remove its folder at once, if a table or batch join ended."""
    for last in (False, False, True):
        _make_private(draft.parent, root)
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            return
        except FileNotFoundError:
            if last:
                raise


def _nearest(path: Path) -> Path:
    """The lowest existing folder above. Links above the cache directory are the administrator's choice."""
    return next(parent for parent in path.parents if parent.is_dir())


def _make_private(folder: Path, above: Path) -> None:
    """Make all missing folders between the two, and check the existing ones."""
    parts = folder.relative_to(above).parts
    for depth in range(1, len(parts) + 1):
        here = above.joinpath(*parts[:depth])
        try:
            here.mkdir(0o700)
        except FileExistsError:
            if _is_ours(here) and _is_closed(above):
                here.chmod(0o700)
        _check_private(here)


def _is_ours(folder: Path) -> bool:
    info = folder.lstat()
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def _is_closed(folder: Path) -> bool:
    """Whether nobody else can enter a folder, and so no folder below it."""
    return _is_ours(folder) and not folder.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def _check_private(folder: Path) -> None:
    info = folder.lstat()
    if stat.S_ISLNK(info.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISDIR(info.st_mode):
        problem = "is not a directory"
    elif info.st_uid != os.geteuid():
        problem = f"belongs to user {info.st_uid}, not to user {os.geteuid()}, who runs this"
    elif info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written by others (mode {stat.S_IMODE(info.st_mode):04o})"
    else:
        return
    raise ConfigError(
        f"the cache directory {folder} {problem}: others could read or replace rows in it. Remove it or make it "
        "private (chmod 700), or set spark.watersmeet.cache to your own directory, which is made if it does not exist"
    )
