"""State on an object store (S3, GCS, Azure), with a local copy of every run that is read.

Runs, or their keys alone for a planner (`log/key_bytes.py`), are downloaded into a cache directory shared by the
processes of a machine (`log/cache.py`), checked, and mapped from there. Private memory stays small, and a run that is
read in twenty batches is fetched once.

Everything is written by a conditional put (`log/objects.py`): a manifest, so that two tasks cannot each publish their
own; a run, so that a second attempt, killed half-way, cannot damage what the first one wrote under the same name. A
filesystem without it is refused, for example HDFS, because Arrow's rename there replaces an existing file.

A request takes some 20 ms, however little it asks for, so `each` has AT_ONCE of them under way. What must come after
something else is not given to one `each`: a base before its manifest, manifests before the runs that they name.

Credentials come from the environment or the platform. Those in an S3 URI (`s3://KEY:SECRET@bucket/...`) work too, but
Spark ships them to its executors with the query. They are blanked out in messages, including other libraries'.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import xxhash
from pyarrow import fs

from watersmeet import failpoints
from watersmeet.credentials import hide, scrub
from watersmeet.errors import ConfigError
from watersmeet.log.cache import Cache, CacheFull, open_cache
from watersmeet.log.names import keys_copy
from watersmeet.log.objects import Objects, store_failed
from watersmeet.log.storage import FileInfo, Storage, StorageUnreachable, StoredFile

T = TypeVar("T")
R = TypeVar("R")

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")

# Requests of a task that are under way at a time. At 100 MB/s a connection they fill a network of 10 Gbit/s, and they
# hold as many chunks in memory: 128 MB at most.
AT_ONCE = 16

# Bytes fetched at a time.
CHUNK_BYTES = 8 << 20


def open_remote(storage: Storage) -> RemoteFiles:
    """Open the files behind a URI."""
    uri = storage.uri
    scheme = uri.partition(":")[0].lower()
    if scheme not in _OBJECT_STORES:
        raise ConfigError(
            f"state={hide(uri)!r}: files cannot be created atomically on {scheme}://. Use a local path, s3://, gs:// "
            "or abfss://"
        )
    # Hadoop calls it s3a, everybody else s3.
    plain = "s3" + uri[3:] if scheme == "s3a" else uri
    try:
        filesystem, base = fs.FileSystem.from_uri(plain)
    except (pa.ArrowInvalid, OSError) as error:
        # `from None`, because the error repeats the URI.
        kind = StorageUnreachable if isinstance(error, OSError) else ConfigError
        raise kind(f"state={hide(uri)!r} cannot be opened: {scrub(str(error), uri)}") from None
    cache = open_cache(storage.cache, storage.cache_bytes).under(xxhash.xxh3_64_hexdigest(uri.encode()))
    return RemoteFiles(storage, filesystem, base.rstrip("/"), Objects(plain), cache)


@dataclass(frozen=True)
class RemoteFiles:
    storage: Storage
    filesystem: fs.FileSystem
    base: str
    objects: Objects
    cache: Cache
    prefix: str = ""
    chunk_bytes: int = CHUNK_BYTES

    @property
    def place(self) -> str:
        return hide(self.storage.uri).rstrip("/")

    @property
    def machine(self) -> str:
        return str(xxhash.xxh3_64_hexdigest(f"{socket.gethostname()} {self.cache.room.root}".encode()))

    @property
    def remote(self) -> bool:
        return True

    def under(self, *parts: str) -> RemoteFiles:
        below = "/".join(parts)
        return RemoteFiles(
            replace(self.storage, uri=_below(self.storage.uri, below)),
            self.filesystem,
            f"{self.base}/{below}",
            self.objects,
            self.cache.under(below),
            f"{self.prefix}{below}/",
            self.chunk_bytes,
        )

    def make(self) -> None:
        """Do nothing: an object store has no directories."""

    def read(self, path: str) -> bytes:
        return self.objects.get(self.prefix + path)

    def map(self, path: str) -> pa.Buffer:
        content = self.cache.map(path)
        return self._fetch(path) if content is None else content

    def map_keys(self, path: str, start: int, length: int) -> pa.Buffer:
        content = self.cache.map(keys_copy(path))
        if content is None:
            failpoints.reach("fetch-before")
            content = self._add(keys_copy(path), length, lambda: self._ranges(path, start, start + length))
        return content

    def forget_copy(self, path: str) -> bool:
        self.cache.forget(path)
        self.cache.forget(keys_copy(path))
        return True

    def has_copy(self, path: str) -> bool:
        return self.cache.has(path)

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> StoredFile:
        failpoints.reach("run-before-write")

        def fill(sink: Any) -> None:
            with pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)

        size = sum(batch.nbytes for batch in batches)
        try:
            draft = self.cache.draft(f"{stem}.arrow", size, lambda path: _to_file(path, fill))
        except CacheFull:
            return self._write_without_copy(stem, fill)
        try:
            with pa.memory_map(str(draft)) as source:
                stored = self._put(stem, source.read_buffer())
            self.cache.keep(draft, stored.path)
        finally:
            draft.unlink(missing_ok=True)
        failpoints.reach("run-written")
        return stored

    def _write_without_copy(self, stem: str, fill: Callable[[Any], None]) -> StoredFile:
        sink = pa.BufferOutputStream()
        fill(sink)
        stored = self._put(stem, sink.getvalue())
        failpoints.reach("run-written")
        return stored

    def _put(self, stem: str, content: pa.Buffer) -> StoredFile:
        stored = StoredFile.as_named(stem, content, remote=True)
        self.objects.put_if_absent(self.prefix + stored.path, content.to_pybytes())
        return stored

    def publish(self, path: str, content: bytes) -> bool:
        return self.objects.put_if_absent(self.prefix + path, content)

    def leave(self, path: str, content: bytes) -> None:
        self.publish(path, content)

    def exists(self, path: str) -> bool:
        with self._explained(f"cannot look for {path} in"):
            return bool(self.filesystem.get_file_info(f"{self.base}/{path}").is_file)

    def entries(self, folder: str) -> list[FileInfo]:
        chosen = fs.FileSelector(f"{self.base}/{folder}", allow_not_found=True)
        with self._explained(f"cannot list {folder} in"):
            found = [info for info in self.filesystem.get_file_info(chosen) if info.is_file]
        return sorted((FileInfo(i.base_name, i.size, i.mtime_ns / 1e9) for i in found), key=lambda i: i.name)

    def folders(self) -> list[str]:
        chosen = fs.FileSelector(self.base, allow_not_found=True)
        with self._explained("cannot list the folders of"):
            found = self.filesystem.get_file_info(chosen)
        return sorted(i.base_name for i in found if i.type == fs.FileType.Directory)

    def delete(self, path: str) -> None:
        for _ in self.delete_many([path]):
            pass

    def delete_many(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        for path in paths:
            self.forget_copy(path)
        return self.objects.delete([self.prefix + path for path in paths])

    def delete_folder(self, name: str) -> None:
        self.cache.forget_folder(name)
        with contextlib.suppress(FileNotFoundError), self._explained(f"cannot remove {name} from"):
            self.filesystem.delete_dir(f"{self.base}/{name}")

    def each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2:
            return [action(item) for item in items]
        # The threads end with the call: a worker must not keep them, as a process that forks would lose them.
        with ThreadPoolExecutor(min(AT_ONCE, len(items))) as pool:
            return list(pool.map(action, items))

    def replaces_objects(self) -> bool:
        """Test whether a conditional put replaces an object; False also if that cannot be tested here."""
        return self.objects.replaces()

    def _fetch(self, path: str) -> pa.Buffer:
        failpoints.reach("fetch-before")
        first, size = self.objects.get_first(self.prefix + path, self.chunk_bytes)
        return self._add(path, size, lambda: itertools.chain([first], self._ranges(path, len(first), size)))

    def _add(self, copy: str, size: int, chunks: Callable[[], Iterable[bytes]]) -> pa.Buffer:
        # A full disk drops copies and fills the file again, from the first chunk.
        def fill(target: str) -> None:
            with Path(target).open("wb") as sink:
                for chunk in chunks():
                    if failpoints.reach("fetch-half-written"):
                        sink.write(chunk[: len(chunk) // 2])
                        sink.flush()
                        failpoints.act("fetch-half-written")
                    sink.write(chunk)

        content = self.cache.add(copy, size, fill)
        failpoints.reach("fetch-done")
        return content

    def _ranges(self, path: str, start: int, end: int) -> Iterator[bytes]:
        for at in range(start, end, self.chunk_bytes):
            yield self.objects.get_range(self.prefix + path, at, min(self.chunk_bytes, end - at))

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Say what failed, as `Objects` does. Arrow tries again for a minute and a half if a store does not answer."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise store_failed(what, self.storage.uri, error) from None


def _to_file(path: str, fill: Callable[[Any], None]) -> None:
    with pa.OSFile(path, "wb") as sink:
        fill(sink)


def _below(uri: str, path: str) -> str:
    """The URI of a path inside; its parameters stay at the end."""
    place, mark, parameters = uri.partition("?")
    return f"{place.rstrip('/')}/{path}{mark}{parameters}"
