"""The storage of state: one directory of immutable files.

Everything above uses a `Files`: relative paths in, bytes and buffers out. Two operations matter. `publish` creates a
file whole or not at all and never replaces one. It is the only point where two tasks can race, and makes a manifest the
single truth of its batch. `map` gives the bytes of a run without copying them into private memory: mapped from disk, or
from a local copy of a remote file.

`log/files.py` has the files of a local disk, `log/remote.py` those of an object store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from watersmeet.credentials import hide
from watersmeet.errors import ConfigError
from watersmeet.log.codec import checksum
from watersmeet.log.sections import KeyBytes, frame_of, key_bytes_of
from watersmeet.model.facts import Frame

T = TypeVar("T")
R = TypeVar("R")

# The mode of a new state directory: it holds rows, so it is private by default.
STATE_MODE = 0o700

# A smaller run is fetched whole by a planner too: most of the time is the request's, and a join may want the rows.
LEAST_BYTES = 1 << 17

# `file:///x`, `s3://bucket/x`: at least two letters, so that a Windows drive is not a scheme.
SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True, repr=False)
class Storage:
    """The location of state and how to open it. `uri` may hold a credential, which is blanked out as text.

    `cache` and `cache_bytes` are for remote state, `fsync` and `mode` for a local directory.

    >>> str(Storage("s3://key:secret@bucket/state"))
    's3://***@bucket/state'
    """

    uri: str
    cache: str | None = None
    cache_bytes: int | None = None
    fsync: bool = False
    mode: int = STATE_MODE

    def __repr__(self) -> str:
        return hide(self.uri) if SCHEME.match(self.uri) else self.uri


@dataclass(frozen=True, slots=True)
class FileInfo:
    name: str
    bytes: int
    modified_s: float


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that was written under a name made from its content."""

    path: str
    bytes: int
    checksum: str
    frame: Frame | None = None
    keys: KeyBytes | None = None

    @staticmethod
    def as_named(stem: str, content: pa.Buffer, *, remote: bool = False) -> StoredFile:
        mark = checksum(content)
        keys = key_bytes_of(content) if remote and content.size >= LEAST_BYTES else None
        return StoredFile(f"{stem}-{mark}.arrow", content.size, mark, frame_of(content), keys)


class StorageUnreachable(ConfigError):
    """The storage cannot be reached from this machine. Another machine may reach it."""


class Files(Protocol):
    """A directory of immutable files."""

    @property
    def place(self) -> str:
        """The directory as the user wrote it, without credentials, for messages."""
        ...

    @property
    def storage(self) -> Storage:
        """The settings that open this directory again, in any process."""
        ...

    @property
    def machine(self) -> str:
        """A mark of this machine, if it keeps copies of remote files; otherwise empty."""
        ...

    @property
    def remote(self) -> bool:
        """Whether a request for a file goes over a network to an object store."""
        ...

    def make(self) -> None:
        """Make the directory if it is missing, for another writer."""
        ...

    def under(self, *parts: str) -> Files: ...

    def read(self, path: str) -> bytes:
        """The whole file; FileNotFoundError if there is none."""
        ...

    def map(self, path: str) -> pa.Buffer:
        """The whole file as a buffer that is not private memory; FileNotFoundError if there is none."""
        ...

    def map_keys(self, path: str, start: int, length: int) -> pa.Buffer:
        """Some bytes of a file, without the others if it is remote; fewer of them, or FileNotFoundError, if it does not
        have them."""
        ...

    def forget_copy(self, path: str) -> bool:
        """Drop the local copy of a remote file, if there can be one: the next `map` fetches it again."""
        ...

    def has_copy(self, path: str) -> bool:
        """Whether the file's bytes are on this machine, so that `map` need not fetch them."""
        ...

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> StoredFile:
        """Write record batches as an Arrow IPC file named `<stem>-<checksum>.arrow`, the same for the same rows."""
        ...

    def publish(self, path: str, content: bytes) -> bool:
        """Create the whole file unless it exists. Return True if this call created it."""
        ...

    def leave(self, path: str, content: bytes) -> None:
        """Write a small file that may be lost: neither forced to the disk nor safe from half-written content."""
        ...

    def exists(self, path: str) -> bool: ...

    def entries(self, folder: str) -> list[FileInfo]:
        """The files in a folder, in order of their names; empty if the folder does not exist."""
        ...

    def folders(self) -> list[str]: ...

    def delete(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def delete_many(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """Remove files, in any order, and yield those that are gone after each request. Nothing is removed unless the
        iterator is used up."""
        ...

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The results of an action for each item, in order: several at a time where each has to wait for the storage.

        The action must be right in any order and in several threads. If one fails, the first error is raised after
        those that have begun are done.
        """
        ...

    def delete_folder(self, name: str) -> None:
        """Remove a folder with all its content, if it exists."""
        ...
