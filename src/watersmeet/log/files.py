"""Where state lives: one directory of immutable files, on a local disk or behind `pyarrow.fs`.

Everything above speaks to a `Files`: relative paths in, bytes and buffers out. Two things matter here.
`publish` creates a file whole or not at all and never replaces one: it is the only point where two tasks
can race, and what makes a manifest the single truth of its batch. `map` gives the bytes of a run without
copying them into private memory: mapped from disk, or from a local copy of a remote file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.errors import ConfigError, StateError
from watersmeet.log.codec import checksum


@dataclass(frozen=True, slots=True)
class FileInfo:
    name: str
    bytes: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that was written under a name made from its content."""

    path: str
    bytes: int
    checksum: str

    @staticmethod
    def as_named(stem: str, content: pa.Buffer) -> Stored:
        mark = checksum(content)
        return Stored(f"{stem}-{mark}.arrow", content.size, mark)


class Files(Protocol):
    """A directory of immutable files."""

    @property
    def place(self) -> str:
        """The directory as the user wrote it, for messages."""
        ...

    def under(self, *parts: str) -> Files: ...

    def read(self, path: str) -> bytes:
        """The whole file; FileNotFoundError if there is none."""
        ...

    def map(self, path: str) -> pa.Buffer:
        """The whole file as a buffer that is not private memory; FileNotFoundError if there is none."""
        ...

    def forget_copy(self, path: str) -> bool:
        """Drop a local copy of a remote file, if there can be one: the next `map` fetches it anew."""
        ...

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> Stored:
        """Write record batches as an Arrow IPC file named `<stem>-<checksum>.arrow`: the same rows twice
        are the same file.
        """
        ...

    def publish(self, path: str, content: bytes) -> bool:
        """Create the file, whole, unless it is there already. True if this call created it."""
        ...

    def entries(self, folder: str) -> list[FileInfo]:
        """The files in a folder, in order of their names; empty if the folder does not exist."""
        ...

    def folders(self) -> list[str]: ...

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if it is gone already."""
        ...

    def delete_folder(self, name: str) -> None:
        """Remove a folder and all that is in it; nothing happens if it is gone already."""
        ...


# `file:///x`, `s3://bucket/x`: two letters at least, so that a Windows drive is not taken for a scheme.
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


def open_files(place: str | os.PathLike[str], *, cache: str | None = None, fsync: bool = False) -> Files:
    """The files at a path or a URI. A URI with a scheme other than `file` goes through `pyarrow.fs`."""
    text = os.fspath(place)
    if not text:
        raise ConfigError("state= is empty: give a directory or a URI that every executor can reach")
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    if _SCHEME.match(text):
        from watersmeet.log.remote import open_remote

        return open_remote(text, cache=cache)
    return LocalFiles(Path(text).absolute(), fsync=fsync)


@dataclass(frozen=True)
class LocalFiles:
    root: Path
    fsync: bool = False

    @property
    def place(self) -> str:
        return str(self.root)

    def under(self, *parts: str) -> LocalFiles:
        return LocalFiles(self.root.joinpath(*parts), self.fsync)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def map(self, path: str) -> pa.Buffer:
        with pa.memory_map(str(self.root / path)) as source:
            return source.read_buffer()

    def forget_copy(self, path: str) -> bool:
        return False

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> Stored:
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
            stored = Stored.as_named(stem, self.map(draft))
            target.rename(self.root / stored.path)
            self._settle(target.parent)
        except OSError as error:
            # What is there of it would only take up space that is needed: nothing names it yet.
            with contextlib.suppress(OSError):
                target.unlink()
            raise _explain(error, target) from error
        failpoints.reach("run-written")
        return stored

    def publish(self, path: str, content: bytes) -> bool:
        target = self._prepared(path)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with draft.open("wb") as sink:
                if failpoints.reach(half := f"{path.partition('/')[0].removesuffix('s')}-half-written"):
                    sink.write(content[: len(content) // 2])
                    sink.flush()
                    failpoints.act(half)
                sink.write(content)
            self._settle(draft)
            os.link(draft, target)
            self._settle(target.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise _explain(error, target) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return True

    def entries(self, folder: str) -> list[FileInfo]:
        try:
            with os.scandir(self.root / folder) as entries:
                found = [_info(entry) for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        return sorted((info for info in found if info is not None), key=lambda info: info.name)

    def folders(self) -> list[str]:
        try:
            with os.scandir(self.root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def delete_folder(self, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)

    def _prepared(self, path: str) -> Path:
        target = self.root / path
        if not target.parent.is_dir():
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _explain(error, target.parent) from error
        return target

    def _settle(self, path: Path) -> None:
        if self.fsync:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _info(entry: os.DirEntry[str]) -> FileInfo | None:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return None
    return FileInfo(entry.name, stat.st_size, stat.st_mtime)


def _explain(error: OSError, path: Path) -> StateError:
    return StateError(
        f"cannot write state to {path}: {error.strerror or error}. Nothing that was committed is touched; "
        "free space or make the directory writable, then start the query again"
    )
