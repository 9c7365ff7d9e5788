"""Objects of a bucket: create one if it is absent, read one, remove many. By `obstore`.

`pyarrow.fs` lists, but it asks for the size before every read, needs three requests to remove one object, and cannot
create one only if it is absent. Here a read is one request, a removal is one for a thousand objects on S3, and creation
is a conditional put, which is also atomic.

All calls may be made by several threads at once, and release the interpreter while they wait.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from watersmeet import failpoints
from watersmeet.credentials import hide, scrub
from watersmeet.errors import ConfigError, StateError
from watersmeet.log.names import PROBE

# A driver that cannot reach the store must not keep its user waiting: the tasks will report it.
_PROBE_S = datetime.timedelta(seconds=5)

# What S3 removes in one request.
_REMOVED_AT_ONCE = 1_000


class Objects:
    """The objects below a URI, by their relative paths. `obstore` is imported at the first use."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened: Any = None
        self._opening = threading.Lock()

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Create an object unless it exists. True if this call created it."""
        store = self._store()
        import obstore

        failpoints.reach("put-before-write")
        if failpoints.reach("put-half-written"):
            threading.Thread(
                target=obstore.put, args=(store, path, content), kwargs={"mode": "create"}
            ).start()
            failpoints.act("put-half-written")
        try:
            with self._explained(f"cannot write {path} to"):
                obstore.put(store, path, content, mode="create")
        except FileExistsError:
            return False
        failpoints.reach("put-written")
        return True

    def get(self, path: str) -> bytes:
        """A whole object; FileNotFoundError if there is none."""
        store = self._store()
        import obstore

        with self._explained(f"cannot read {path} from"):
            return bytes(obstore.get(store, path).bytes())

    def get_first(self, path: str, most: int) -> tuple[bytes, int]:
        """The first `most` bytes of an object that is not empty, and its size; FileNotFoundError if there is none."""
        store = self._store()
        import obstore

        with self._explained(f"cannot read {path} from"):
            found = obstore.get(store, path, options={"range": (0, most)})
            return bytes(found.bytes()), int(found.meta["size"])

    def get_range(self, path: str, start: int, length: int) -> bytes:
        store = self._store()
        import obstore

        with self._explained(f"cannot read {path} from"):
            return bytes(obstore.get_range(store, path, start=start, length=length))

    def delete(self, paths: Sequence[str]) -> Iterator[Sequence[str]]:
        """Remove objects, those that exist, and yield what each request removed.

        A request is not atomic: a process that dies may leave any of its objects behind.
        """
        store = self._store()
        import obstore

        for start in range(0, len(paths), _REMOVED_AT_ONCE):
            some = list(paths[start : start + _REMOVED_AT_ONCE])
            with self._explained(f"cannot remove {len(some)} objects, such as {some[0]}, from"):
                try:
                    obstore.delete(store, some)
                except FileNotFoundError:
                    # S3 does not mind a missing object. Other stores may end at it, with others still to go.
                    for path in some:
                        with contextlib.suppress(FileNotFoundError):
                            obstore.delete(store, path)
            yield some

    def replaces(self) -> bool:
        """Test in three requests whether a conditional put replaces an object.

        False also if it cannot be tested here, without credentials, network or `obstore`.
        """
        try:
            import obstore
            from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
        except ImportError:
            return False
        key = f"{PROBE}{uuid.uuid4().hex}"
        try:
            store = _open(self._uri, quick=True)
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

    def _store(self) -> Any:
        with self._opening:
            if self._opened is None:
                try:
                    self._opened = _open(self._uri)
                except ImportError as error:
                    raise ConfigError(
                        f"state={hide(self._uri)!r} is on an object store: install obstore "
                        "(pip install 'watersmeet[object-store]')"
                    ) from error
            return self._opened

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Say what failed, without the addresses that errors repeat: they may hold credentials."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(f"{what} the state in {hide(self._uri)}: it is missing") from None
        except AlreadyExistsError:
            raise FileExistsError(f"{what} the state in {hide(self._uri)}: it exists") from None
        except (BaseError, OSError) as error:
            raise store_failed(what, self._uri, error) from None


def store_failed(what: str, uri: str, error: Exception) -> StateError:
    """What failed, without credentials: `what` ends before "the state"."""
    return StateError(
        f"{what} the state in {hide(uri)}: {scrub(str(error), uri)}. Committed state is not affected; start the query "
        "again when the storage can be reached"
    )


def _open(uri: str, *, quick: bool = False) -> Any:
    """The `obstore` store of a URI, with the credentials and parameters that `pyarrow.fs` takes from it."""
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
