"""State on a local disk or a shared filesystem, and how any state is opened.

On a filesystem `publish` writes a draft and hard-links it to its name. That is atomic and fails if the name is taken,
over NFS too. There is no substitute for hard links:

- `O_EXCL` creates the name first and fills it later: readers see half a manifest, and a crash leaves it for ever.
- `rename` replaces what another task has published.
- `renameat2(RENAME_NOREPLACE)` is right, but NFS does not have it, nor do the FUSE mounts of object stores (s3fs,
  gcsfuse, /dbfs), whose rename copies and then removes. Filesystems that have it nearly always have hard links too.

So storage without hard links is refused when the join is built (`log/probe.py`), and object stores are used by their
own protocol.

A missing state directory is made with mode 0700, or `Storage.mode`. It protects everything inside, where files and
folders follow the umask. An existing directory is left as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.errors import ConfigError, StateError
from watersmeet.log.names import draft_of
from watersmeet.log.storage import (
    SCHEME,
    STATE_MODE,
    FileInfo,
    Files,
    Storage,
    StoredFile,
)

T = TypeVar("T")
R = TypeVar("R")

# Requests to a file server under way at a time. The first ones show whether that is needed: a local file takes less
# time than a thread.
_AT_ONCE = 16
_FEW = 4
_QUICK_S = 0.002


def open_files(
    place: Storage | str | os.PathLike[str], *, cache: str | None = None, fsync: bool = False
) -> Files:
    """Open the files at a path or a URI. A URI with a scheme other than `file` goes through `pyarrow.fs`.

    The keywords are for a path or URI; a `Storage` has its own.
    """
    storage = place if isinstance(place, Storage) else Storage(os.fspath(place), cache=cache, fsync=fsync)
    text = storage.uri
    if not text:
        raise ConfigError("state= is empty: give a directory or a URI that every executor can reach")
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    if SCHEME.match(text):
        from watersmeet.log.remote import open_remote

        return open_remote(storage)
    root = Path(text).absolute()
    return LocalFiles(root, fsync=storage.fsync, mode=storage.mode, top=root)


@dataclass(frozen=True)
class LocalFiles:
    root: Path
    fsync: bool = False
    mode: int = STATE_MODE
    # The state directory, which gets the mode if it is made here.
    top: Path | None = None

    @property
    def place(self) -> str:
        return str(self.root)

    @property
    def storage(self) -> Storage:
        return Storage(str(self.root), fsync=self.fsync, mode=self.mode)

    @property
    def machine(self) -> str:
        return ""

    @property
    def remote(self) -> bool:
        return False

    def under(self, *parts: str) -> LocalFiles:
        return replace(self, root=self.root.joinpath(*parts), top=self._top)

    def make(self) -> None:
        self._make_folder(self.root)

    def read(self, path: str) -> bytes:
        # Not by `pathlib`: a planner reads hundreds of files, and making their paths took longer than reading them.
        place = f"{self.root}/{path}"
        try:
            with open(place, "rb", buffering=0) as source:
                return source.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(place, error) from error

    def map(self, path: str) -> pa.Buffer:
        with _reading(self.root / path), pa.memory_map(str(self.root / path)) as source:
            return source.read_buffer()

    def map_keys(self, path: str, start: int, length: int) -> pa.Buffer:
        content = self.map(path)
        return content.slice(min(start, content.size), max(0, min(length, content.size - start)))

    def forget_copy(self, path: str) -> bool:
        return False

    def has_copy(self, path: str) -> bool:
        return True

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> StoredFile:
        draft = f"{stem}-{uuid.uuid4().hex}.arrow"
        target = self._prepared(draft)
        failpoints.reach("run-before-write")
        try:
            with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                if failpoints.reach("run-half-written"):
                    writer.write_batch(batches[0].slice(0, batches[0].num_rows // 2))
                    sink.flush()
                    failpoints.act("run-half-written")
                for batch in batches:
                    writer.write_batch(batch)
            self._settle(target)
            stored = StoredFile.as_named(stem, self.map(draft))
            failpoints.reach("run-unnamed")
            target.rename(self.root / stored.path)
            self._settle(target.parent)
        except OSError as error:
            # The partial file would only take space: nothing names it yet.
            with contextlib.suppress(OSError):
                target.unlink()
            raise _explain(error, target) from error
        failpoints.reach("run-written")
        return stored

    def publish(self, path: str, content: bytes) -> bool:
        target = self._prepared(path)
        draft = target.with_name(draft_of(target.name, uuid.uuid4().hex))
        kind = path.partition("/")[0].removesuffix("s")
        try:
            with draft.open("wb") as sink:
                if failpoints.reach(half := f"{kind}-half-written"):
                    sink.write(content[: len(content) // 2])
                    sink.flush()
                    failpoints.act(half)
                sink.write(content)
            self._settle(draft)
            _link(draft, target)
            failpoints.reach(f"{kind}-linked")
            self._settle(target.parent)
        except FileExistsError:
            # Its creator may have died before its name was forced to the disk.
            with _reading(target.parent):
                self._settle(target.parent)
            return False
        except OSError as error:
            raise _explain(error, target) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return True

    def leave(self, path: str, content: bytes) -> None:
        target = self.root / path
        if not target.parent.is_dir():
            self._make_folder(target.parent)
        target.write_bytes(content)

    def exists(self, path: str) -> bool:
        with _reading(self.root / path):
            return (self.root / path).exists()

    def entries(self, folder: str) -> list[FileInfo]:
        try:
            with _reading(self.root / folder), os.scandir(self.root / folder) as entries:
                found = [_info(entry) for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        return sorted((info for info in found if info is not None), key=lambda info: info.name)

    def folders(self) -> list[str]:
        try:
            with _reading(self.root), os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        try:
            (self.root / path).unlink(missing_ok=True)
        except OSError as error:
            raise _explain(error, self.root / path) from error

    def delete_many(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        for path in paths:
            self.delete(path)
            yield (path,)

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """One after the other, unless the first ones show that the storage is far away: a file server may be."""
        began_s = time.perf_counter()
        found = [action(item) for item in items[:_FEW]]
        rest = items[_FEW:]
        if not rest or time.perf_counter() - began_s < _FEW * _QUICK_S:
            return found + [action(item) for item in rest]
        with ThreadPoolExecutor(min(_AT_ONCE, len(rest))) as pool:
            return found + list(pool.map(action, rest))

    def delete_folder(self, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)

    def _prepared(self, path: str) -> Path:
        target = self.root / path
        if self.fsync or not target.parent.is_dir():
            self._make_folder(target.parent)
        return target

    @property
    def _top(self) -> Path:
        return self.top or self.root

    def _make_folder(self, folder: Path) -> None:
        try:
            made = [self._make_one(path) for path in reversed(list(_missing(folder)))]
            self._settle_folder(folder, made)
        except OSError as error:
            raise _explain(error, folder) from error

    def _make_one(self, folder: Path) -> Path:
        private = folder == self._top
        try:
            os.mkdir(folder, 0o700 if private else 0o777)
        except FileExistsError:
            if not folder.is_dir():
                raise
        else:
            # Separately, since mkdir applies the umask.
            if private and self.mode != 0o700:
                os.chmod(folder, self.mode)
        return folder

    def _settle_folder(self, folder: Path, made: Sequence[Path]) -> None:
        """Force the names of folders to the disk: new ones, and once in a process all of the state.

        Another process may have made a folder and not have forced it yet.
        """
        if not self.fsync or (not made and folder in _SETTLED):
            return
        for path in made:
            self._settle(path.parent)
        for path in (folder, *folder.parents):
            if not path.is_relative_to(self._top):
                break
            # The folder above the state may allow passing through but not reading.
            with contextlib.suppress(PermissionError):
                self._settle(path.parent)
        _SETTLED.add(folder)

    def _settle(self, path: Path) -> None:
        if self.fsync:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


# Folders whose names are known to be on the disk.
_SETTLED: set[Path] = set()


def _missing(folder: Path) -> Iterator[Path]:
    """The folders that must be made for this one to exist, the lowest first."""
    for path in (folder, *folder.parents):
        if path.is_dir():
            return
        yield path


def _link(draft: Path, target: Path) -> None:
    try:
        os.link(draft, target)
    except OSError as error:
        if error.errno in NO_LINKS:
            raise StateError(
                f"cannot write state to {target}: a hard link is refused ({error.strerror}). {LINK_ADVICE}"
            ) from error
        raise


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file that cannot be read. The caller handles a missing one."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path | str, error: OSError) -> StateError:
    return StateError(
        f"cannot read state from {path}: {error.strerror or error}. Committed state is not affected; check the disk "
        "or server that it is on, then start the query again"
    )


def _info(entry: os.DirEntry[str]) -> FileInfo | None:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return None
    return FileInfo(entry.name, stat.st_size, stat.st_mtime)


# Errors of a filesystem without hard links.
NO_LINKS = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK, errno.EINVAL}
)

LINK_ADVICE = (
    "State needs a filesystem with hard links and an atomic rename, such as ext4, XFS or NFS. A mounted object store "
    '(s3fs, gcsfuse, /dbfs) has neither: give its own URI instead, such as state="s3://bucket/path"'
)

_ADVICE = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space or raise the quota",
    errno.EROFS: "mount it for writing",
    errno.EACCES: "let the executors' user write there",
    errno.EPERM: "let the executors' user write there",
    errno.EIO: "check the disk or server that it is on",
    errno.ESTALE: "mount the network filesystem again",
    errno.ENOTDIR: "remove the file where a directory must be",
    errno.EEXIST: "remove the file where a directory must be",
    errno.ENOENT: "find out who removed the directory",
    errno.ENAMETOOLONG: "choose a shorter name= or state=",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
}


def _explain(error: OSError, path: Path) -> StateError:
    advice = _ADVICE.get(error.errno or 0, "find out why it cannot be written to")
    return StateError(
        f"cannot write state to {path}: {error.strerror or error}. Committed state is not affected; "
        f"{advice}, then start the query again"
    )
