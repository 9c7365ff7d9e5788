"""State behind `pyarrow.fs`: S3, GCS, Azure, with a local copy of every run that is read.

Runs are downloaded whole into a cache directory shared by the processes of a machine, checked, and mapped
from there: private memory stays small, and a run that is read in twenty batches is fetched once.

`pyarrow.fs` reads and lists, but cannot create a file only if it is absent; `obstore` does that with a
conditional put, which is also whole or not at all. Everything is written that way: a manifest so that two tasks
cannot each believe in one of their own, a run so that a second attempt, killed half-way, cannot damage what
the first one wrote under the same name. A filesystem without it is refused: HDFS is one, because Arrow's
rename there replaces an existing file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import xxhash
from pyarrow import fs

from watersmeet import failpoints
from watersmeet.errors import ConfigError
from watersmeet.log.files import FileInfo, Stored

Publish = Callable[[str, bytes], bool]

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")

# The local copies of one machine: beyond this the least recently read go first.
CACHE_BYTES = 16 << 30


def open_remote(uri: str, *, cache: str | None) -> RemoteFiles:
    """The files behind a URI. Credentials come from the environment or the platform, never from us."""
    scheme = uri.partition(":")[0].lower()
    if scheme not in _OBJECT_STORES:
        raise ConfigError(
            f"state={uri!r}: no way is known to create a file atomically on {scheme}:// — use a local path, "
            "s3://, gs:// or abfss://"
        )
    # Hadoop says s3a where everybody else says s3.
    plain = "s3" + uri[3:] if scheme == "s3a" else uri
    try:
        filesystem, base = fs.FileSystem.from_uri(plain)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"state={uri!r} cannot be opened: {error}") from error
    root = _cache_root(cache)
    copies = root / xxhash.xxh3_64_hexdigest(uri.encode())
    return RemoteFiles(uri.rstrip("/"), filesystem, base.rstrip("/"), _publisher(plain), root, copies)


def _cache_root(cache: str | None) -> Path:
    """The cache of this machine and user; nobody else may read the rows in it."""
    root = Path(cache) if cache else Path(tempfile.gettempdir()) / f"watersmeet-cache-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


@dataclass(frozen=True)
class RemoteFiles:
    place: str
    filesystem: fs.FileSystem
    base: str
    put_if_absent: Publish
    cache_root: Path
    cache: Path
    prefix: str = ""

    def under(self, *parts: str) -> RemoteFiles:
        below = "/".join(parts)
        return RemoteFiles(
            f"{self.place}/{below}",
            self.filesystem,
            f"{self.base}/{below}",
            self.put_if_absent,
            self.cache_root,
            self.cache / below,
            f"{self.prefix}{below}/",
        )

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(f"{self.base}/{path}") as source:
            return bytes(source.read())

    def map(self, path: str) -> pa.Buffer:
        copy = self.cache / path
        if not copy.exists():
            self._fetch(path, copy)
        with contextlib.suppress(OSError):
            os.utime(copy)
        with pa.memory_map(str(copy)) as source:
            return source.read_buffer()

    def forget_copy(self, path: str) -> bool:
        (self.cache / path).unlink(missing_ok=True)
        return True

    def write(self, stem: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> Stored:
        failpoints.reach("run-before-write")
        draft = f"{stem}-{uuid.uuid4().hex}.arrow"
        copy = self.cache / draft
        copy.parent.mkdir(parents=True, exist_ok=True)
        _make_room(self.cache_root, CACHE_BYTES)
        with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        content = self.map(draft)
        stored = Stored.as_named(stem, content)
        copy.rename(self.cache / stored.path)
        self.put_if_absent(self.prefix + stored.path, content.to_pybytes())
        failpoints.reach("run-written")
        return stored

    def publish(self, path: str, content: bytes) -> bool:
        return self.put_if_absent(self.prefix + path, content)

    def entries(self, folder: str) -> list[FileInfo]:
        chosen = fs.FileSelector(f"{self.base}/{folder}", allow_not_found=True)
        found = [info for info in self.filesystem.get_file_info(chosen) if info.is_file]
        return sorted((FileInfo(i.base_name, i.size, i.mtime_ns / 1e9) for i in found), key=lambda i: i.name)

    def folders(self) -> list[str]:
        chosen = fs.FileSelector(self.base, allow_not_found=True)
        return sorted(
            i.base_name for i in self.filesystem.get_file_info(chosen) if i.type == fs.FileType.Directory
        )

    def delete(self, path: str) -> None:
        self.forget_copy(path)
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.base}/{path}")

    def delete_folder(self, name: str) -> None:
        shutil.rmtree(self.cache / name, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_dir(f"{self.base}/{name}")

    def _fetch(self, path: str, copy: Path) -> None:
        """Download under another name first, so that a half copy is never taken for a whole one."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        _make_room(self.cache_root, CACHE_BYTES)
        draft = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}")
        try:
            with self.filesystem.open_input_stream(f"{self.base}/{path}") as source, draft.open("wb") as sink:
                while chunk := source.read(8 << 20):
                    sink.write(chunk)
            draft.rename(copy)
        finally:
            draft.unlink(missing_ok=True)


def _make_room(cache: Path, limit: int) -> None:
    """Unlink the least recently read copies beyond the limit; a process that has one mapped keeps it."""
    copies = []
    for path in cache.rglob("*.arrow"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            copies.append((stat.st_mtime, stat.st_size, path))
    excess = sum(size for _, size, _ in copies) - limit
    for _, size, path in sorted(copies):
        if excess <= 0:
            break
        path.unlink(missing_ok=True)
        excess -= size


def _publisher(uri: str) -> Publish:
    try:
        import obstore
        from obstore.exceptions import AlreadyExistsError
        from obstore.store import from_url
    except ImportError as error:
        raise ConfigError(
            f"state={uri!r} is on an object store: install obstore (pip install 'watersmeet[object-store]')"
        ) from error
    store = from_url(uri)

    def publish(path: str, content: bytes) -> bool:
        try:
            obstore.put(store, path, content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    return publish
