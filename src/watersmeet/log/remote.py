"""State behind `pyarrow.fs`: S3, GCS, Azure, with a local copy of every run that is read.

Runs are downloaded whole into a cache directory shared by the processes of a machine (`log/cache.py`), checked, and
mapped from there. Private memory stays small, and a run that is read in twenty batches is fetched once.

`pyarrow.fs` reads and lists, but cannot create a file only if it is absent. `obstore` does that with a conditional put,
which is also atomic. Everything is written that way: a manifest, so that two tasks cannot each publish their own; a
run, so that a second attempt, killed half-way, cannot damage what the first one wrote under the same name. A filesystem
without it is refused, for example HDFS, because Arrow's rename there replaces an existing file.

Credentials come from the environment or the platform. Those in an S3 URI (`s3://KEY:SECRET@bucket/...`) work too, but
Spark ships them to its executors with the query. They are blanked out in messages, including other libraries'.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import xxhash
from pyarrow import fs

from watersmeet import failpoints
from watersmeet.credentials import hide, scrub
from watersmeet.errors import ConfigError, StateError
from watersmeet.log.cache import Cache, CacheFull, open_cache
from watersmeet.log.names import PROBE
from watersmeet.log.storage import FileInfo, Storage, StorageUnreachable, StoredFile

Publish = Callable[[str, bytes], bool]

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")

# Bytes fetched at a time.
_CHUNK_BYTES = 8 << 20

# A driver that cannot reach the store must not keep its user waiting: the tasks will report it.
_PROBE_S = datetime.timedelta(seconds=5)


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
    return RemoteFiles(storage, filesystem, base.rstrip("/"), _publisher(plain), cache)


@dataclass(frozen=True)
class RemoteFiles:
    storage: Storage
    filesystem: fs.FileSystem
    base: str
    put_if_absent: Publish
    cache: Cache
    prefix: str = ""

    @property
    def place(self) -> str:
        return hide(self.storage.uri).rstrip("/")

    @property
    def remote(self) -> bool:
        return True

    def under(self, *parts: str) -> RemoteFiles:
        below = "/".join(parts)
        return RemoteFiles(
            replace(self.storage, uri=_below(self.storage.uri, below)),
            self.filesystem,
            f"{self.base}/{below}",
            self.put_if_absent,
            self.cache.under(below),
            f"{self.prefix}{below}/",
        )

    def make(self) -> None:
        """Do nothing: an object store has no directories."""

    def read(self, path: str) -> bytes:
        with self._reading(path), self.filesystem.open_input_stream(f"{self.base}/{path}") as source:
            return bytes(source.read())

    def map(self, path: str) -> pa.Buffer:
        content = self.cache.map(path)
        return self._fetch(path) if content is None else content

    def forget_copy(self, path: str) -> bool:
        self.cache.forget(path)
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
        stored = StoredFile.as_named(stem, content)
        with self._scrubbed():
            self.put_if_absent(self.prefix + stored.path, content.to_pybytes())
        return stored

    def publish(self, path: str, content: bytes) -> bool:
        with self._scrubbed():
            return self.put_if_absent(self.prefix + path, content)

    def leave(self, path: str, content: bytes) -> None:
        self.publish(path, content)

    def exists(self, path: str) -> bool:
        with self._scrubbed():
            return bool(self.filesystem.get_file_info(f"{self.base}/{path}").is_file)

    def entries(self, folder: str) -> list[FileInfo]:
        chosen = fs.FileSelector(f"{self.base}/{folder}", allow_not_found=True)
        with self._scrubbed():
            found = [info for info in self.filesystem.get_file_info(chosen) if info.is_file]
        return sorted((FileInfo(i.base_name, i.size, i.mtime_ns / 1e9) for i in found), key=lambda i: i.name)

    def folders(self) -> list[str]:
        chosen = fs.FileSelector(self.base, allow_not_found=True)
        with self._scrubbed():
            found = self.filesystem.get_file_info(chosen)
        return sorted(i.base_name for i in found if i.type == fs.FileType.Directory)

    def delete(self, path: str) -> None:
        self.forget_copy(path)
        with contextlib.suppress(FileNotFoundError), self._scrubbed():
            self.filesystem.delete_file(f"{self.base}/{path}")

    def delete_folder(self, name: str) -> None:
        self.cache.forget_folder(name)
        with contextlib.suppress(FileNotFoundError), self._scrubbed():
            self.filesystem.delete_dir(f"{self.base}/{name}")

    def replaces_objects(self) -> bool:
        """Test in three requests whether a conditional put replaces an object.

        False also if it cannot be tested here, without credentials, network or `obstore`.
        """
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
        except ImportError:
            return False
        uri = self.storage.uri
        key = f"{PROBE}{uuid.uuid4().hex}"
        try:
            store = _store("s3" + uri[3:] if uri.startswith("s3a:") else uri, quick=True)
            obstore.put(store, key, b"first", mode="create")
        except (NotSupportedError, NotImplementedError):
            return True
        except (BaseError, OSError, ValueError):
            return False
        try:
            obstore.put(store, key, b"second", mode="create")
        except AlreadyExistsError:
            return False
        except BaseError:
            return False
        finally:
            with contextlib.suppress(BaseError):
                obstore.delete(store, key)
        return True

    def _fetch(self, path: str) -> pa.Buffer:
        failpoints.reach("fetch-before")
        with self._reading(path), self.filesystem.open_input_file(f"{self.base}/{path}") as source:

            def fill(target: str) -> None:
                source.seek(0)
                with Path(target).open("wb") as sink:
                    while chunk := source.read(_CHUNK_BYTES):
                        if failpoints.reach("fetch-half-written"):
                            sink.write(chunk[: len(chunk) // 2])
                            sink.flush()
                            failpoints.act("fetch-half-written")
                        sink.write(chunk)

            content = self.cache.add(path, source.size(), fill)
        failpoints.reach("fetch-done")
        return content

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        """Recognise an object that was removed meanwhile: Arrow asks for its size first, and then for its bytes."""
        with self._scrubbed():
            try:
                yield
            except FileNotFoundError:
                raise
            except OSError as error:
                if self.exists(path):
                    raise
                raise FileNotFoundError(f"{path} is missing in {self.place}") from error

    @contextlib.contextmanager
    def _scrubbed(self) -> Iterator[None]:
        """Remove the URI's credentials from errors of other libraries."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            said = scrub(str(error), self.storage.uri)
            if said == str(error):
                raise
            raise OSError(said) from None


def _to_file(path: str, fill: Callable[[Any], None]) -> None:
    with pa.OSFile(path, "wb") as sink:
        fill(sink)


def _below(uri: str, path: str) -> str:
    """The URI of a path inside; its parameters stay at the end."""
    place, mark, parameters = uri.partition("?")
    return f"{place.rstrip('/')}/{path}{mark}{parameters}"


def _store(uri: str, *, quick: bool = False) -> Any:
    """The `obstore` store of the URI's bucket, with the credentials and parameters that `pyarrow.fs` takes from it."""
    from obstore.store import from_url

    config, client = _s3_config(uri) if uri.startswith("s3:") else ({}, {})
    retries: Any = {"max_retries": 1, "retry_timeout": _PROBE_S} if quick else None
    # Client options override the environment, such as a proxy, so pass none unless the URI asks for them.
    return from_url(uri, config=config or None, client_options=client or None, retry_config=retries)


def _s3_config(uri: str) -> tuple[Any, Any]:
    parts = urlsplit(uri)
    given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    config, client = {}, {}
    if parts.username and parts.password:
        config["access_key_id"], config["secret_access_key"] = (
            unquote(parts.username),
            unquote(parts.password),
        )
    if "region" in given:
        config["region"] = given["region"]
    if "endpoint_override" in given:
        endpoint = given["endpoint_override"]
        if "://" not in endpoint:
            endpoint = f"{given.get('scheme', 'https')}://{endpoint}"
        config["endpoint"] = endpoint
        client = {"allow_http": True} if endpoint.startswith("http:") else {}
    return config, client


def _publisher(uri: str) -> Publish:
    """A function that puts absent objects. It imports `obstore` at the first put, since readers do not need it."""
    stores: list[Any] = []

    def publish(path: str, content: bytes) -> bool:
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError
        except ImportError as error:
            raise ConfigError(
                f"state={hide(uri)!r} is on an object store: install obstore "
                "(pip install 'watersmeet[object-store]')"
            ) from error
        if not stores:
            stores.append(_store(uri))
        failpoints.reach("put-before-write")
        if failpoints.reach("put-half-written"):
            threading.Thread(
                target=obstore.put, args=(stores[0], path, content), kwargs={"mode": "create"}
            ).start()
            failpoints.act("put-half-written")
        try:
            obstore.put(stores[0], path, content, mode="create")
        except AlreadyExistsError:
            return False
        except BaseError as error:
            # `from None`, because the error repeats addresses.
            raise StateError(
                f"cannot write {path} to the state in {hide(uri)}: {scrub(str(error), uri)}. Committed state is not "
                "affected; start the query again when the storage is writable"
            ) from None
        failpoints.reach("put-written")
        return True

    return publish
