"""Local copies of remote files, in one private directory for each machine and user.

All processes of a machine share the copies. Each copy is written under a draft's name and renamed when it is whole.

Private: rows are in it, and a process maps what it finds there. The directory is made with mode 0700. One that is a
symbolic link, belongs to somebody else or can be written by others is refused, and so is such a folder inside. (Up to
0.1 folders inside followed the umask: where nobody else gets through the directory above them, they are put right.)

Bounded: the least recently read copies go when there are more bytes than the limit. By default the limit follows the
disk: a share of what is free, counted as if there were no copies. To list all copies takes long where they are many,
so a process lists them only after it has added an eighth of the room that it last saw: eight processes that fill the
cache at the same time stay below the limit, more of them exceed it by a little until one of them looks.

A full disk (other programs use it, too) is no error as long as dropping copies helps: some are dropped, then all, then
the caller lets go of what it has mapped, since the space of a removed file comes back when nobody maps it any more.
After that it is an error. A run is not read into memory instead: what a task needs of all runs together has no bound,
and an executor that outgrows its memory is killed without a message. A run that is *written* needs no copy at all:
its bytes are in memory for the upload anyway.
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
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import ConfigError, StateError
from watersmeet.log.names import draft_of, is_copy, is_copy_draft, is_copy_folder

# Of the free disk, without `spark.watersmeet.cacheBytes`. Spark's shuffle and spill files are usually on the same
# disk and need the other half.
CACHE_SHARE = 0.5

# A cache that is full is emptied down to this share of the limit, so that the next look is some copies away.
_KEPT_SHARE = 0.75
# Processes that may fill the room that is left at the same time: as many as an executor commonly has cores.
_SHARERS = 8
# A draft that is older belongs to a process that was killed: no download of one file takes as long.
_DEAD_DRAFT_S = 3600.0

_FULL = (errno.ENOSPC, errno.EDQUOT)


class CacheFull(StateError):
    """The disk of the cache is full, and dropping copies does not help."""


def open_cache(place: str | None, limit: int | None) -> Cache:
    """The cache of this machine and user; `place` None is a folder in the temporary directory.

    The directory is made and checked when it is first used: listing remote state needs no cache.
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
        """Whether there is a copy that this user has made."""
        return self._found(path) is not None

    def map(self, path: str) -> pa.Buffer | None:
        """The bytes of a copy, mapped; None if there is none. Marks it as read."""
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
        """Make a copy: `fill` writes it to the path that it is given. Returns its bytes, mapped."""
        draft = self.draft(path, size, fill)
        try:
            # Mapped before it has its name: from then on another process may drop it.
            content = _mapped(draft)
            self.keep(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return content

    def draft(self, path: str, size: int, fill: Callable[[str], None]) -> Path:
        """A copy that has no name yet. Drops other copies as long as the disk is full; CacheFull if that is no help."""
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
                f"{full.error.strerror}, although all copies that nobody uses were dropped. Free space there, or set "
                "spark.watersmeet.cache to a directory on a larger disk, then start the query again. Nothing that was "
                "committed is touched"
            ) from full.error

    def keep(self, draft: Path, path: str) -> None:
        """Give a draft its name, unless it was removed with its folder meanwhile."""
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
                "spark.watersmeet.cache to a directory on another disk, then start the query again. Nothing that was "
                "committed is touched"
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
    """How much may still be added to a cache: shared by all that use it in this process."""

    root: Path
    limit: int | None
    # Bytes that may be added before the next look; none were seen yet.
    left: int = -1
    is_checked: bool = False

    def check(self) -> None:
        """Make the directory, or see that it is ours alone: once, since nobody else can change that afterwards."""
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
        """Before `need` bytes are added: look if it is time to, and drop what is too much."""
        if need > self.left:
            copies = self._copies()
            used = sum(size for _, size, _ in copies)
            limit = self._limit(used)
            if used + need > limit:
                used -= _drop(copies, used + need - int(limit * _KEPT_SHARE))
            self.left = max(need, (limit - used) // _SHARERS)
        self.left -= need

    def drop(self, need: int) -> None:
        """The disk is full: drop what is needed, and a quarter of the copies at least."""
        copies = self._copies()
        used = sum(size for _, size, _ in copies)
        _drop(copies, max(need, int(used * (1 - _KEPT_SHARE))))
        self.left = -1

    def drop_all(self) -> None:
        _drop(self._copies(), None)
        self.left = -1

    def _limit(self, used: int) -> int:
        if self.limit is not None:
            return self.limit
        return int(CACHE_SHARE * (shutil.disk_usage(self.root).free + used))

    def _copies(self) -> list[tuple[float, int, Path]]:
        """Time of the last use, size and path of every copy, the longest unused first."""
        found = []
        # The user may have given a directory that holds other things, too.
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
    """Remove copies until `excess` bytes are gone, or all; a process that has one mapped keeps it. Returns the bytes."""
    dropped = 0
    for _, size, path in copies:
        if excess is not None and dropped >= excess:
            break
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        dropped += size
    return dropped


def _files(folder: Path) -> Iterator[Path]:
    """The files below a folder that may change meanwhile; links are neither followed nor listed."""
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
    """An empty file, ours alone. Its folder may be removed as soon as it is made: a table or a batch join ended."""
    for last in (False, False, True):
        _make_private(draft.parent, root)
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            return
        except FileNotFoundError:
            if last:
                raise


def _nearest(path: Path) -> Path:
    """The lowest folder above that exists. Links above the cache directory are the administrator's business."""
    return next(parent for parent in path.parents if parent.is_dir())


def _make_private(folder: Path, above: Path) -> None:
    """Make all folders between the two that are missing, and check the ones that are there."""
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
    """Whether nobody else gets into a folder, and so into none below it."""
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
        f"the cache directory {folder} {problem}: others could read or replace rows in it. Remove it or make it yours "
        "alone (chmod 700), or set spark.watersmeet.cache to a directory of your own; one that does not exist is made"
    )
