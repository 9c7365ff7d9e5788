"""Test whether this storage can hold state, when the join is built and before any row is read.

Everything depends on one operation: create a complete file, and only if it is absent (`Files.publish`). Storage that
cannot do it would fail in the first batch, after a cluster was started. Storage that only seems to do it loses results
silently. Seen in the field: mounted object stores refuse hard links, and some S3-compatible servers ignore
`If-None-Match`, so that two tasks both "create" a manifest.

A filesystem is tested in the nearest directory that exists, so that no directory is made without the user's request.
Nothing is left behind, unless the process is killed in these milliseconds: then a folder or an object named
`.watersmeet-probe-ID` remains, which nothing reads.

Only certain failures are refused. The driver may lack the rights, the credentials or the mount that executors have.
Such an error is ignored here, and a task that meets it reports it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import uuid
from pathlib import Path

import pyarrow as pa

from watersmeet.errors import ConfigError
from watersmeet.log.files import LINK_ADVICE, NO_LINKS, LocalFiles, open_files
from watersmeet.log.names import PROBE
from watersmeet.log.storage import Storage, StorageUnreachable

# Tested places that a process remembers: more than it has joins.
_REMEMBERED = 256

# Errors of a filesystem that cannot map a file.
_NO_MAPS = frozenset({errno.ENODEV, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@functools.lru_cache(maxsize=_REMEMBERED)
def probe(storage: Storage) -> None:
    """Raise ConfigError if the storage cannot hold state. Tested once for each place in a process."""
    try:
        files = open_files(storage)
    except StorageUnreachable:
        return
    if isinstance(files, LocalFiles):
        _probe_directory(files.root)
        return
    from watersmeet.log.remote import RemoteFiles

    if isinstance(files, RemoteFiles) and files.replaces_objects():
        raise ConfigError(
            f"state={files.place!r}: this object store accepts a second object under a name that is taken. It ignores "
            "If-None-Match, so two tasks could both create one manifest, and results would be lost. Use a store with "
            "conditional writes, or a filesystem with hard links"
        )


def _probe_directory(root: Path) -> None:
    nearest = next(path for path in (root, *root.parents) if path.is_dir())
    folder = nearest / f"{PROBE}{uuid.uuid4().hex}"
    try:
        folder.mkdir(0o700)
    except OSError:
        return
    try:
        _probe_links(root, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _probe_links(root: Path, folder: Path) -> None:
    draft, name, other = folder / "draft", folder / "name", folder / "other"
    try:
        draft.write_bytes(b"probe")
        other.write_bytes(b"other")
    except OSError:
        return
    try:
        os.link(draft, name)
    except OSError as error:
        if error.errno in NO_LINKS:
            raise _refused(root, f"a hard link is refused ({error.strerror})") from error
        return
    with contextlib.suppress(OSError):
        os.link(other, name)
        raise _refused(root, "a hard link replaces a file that exists")
    try:
        draft.rename(folder / "renamed")
        with pa.memory_map(str(name)) as source:
            whole = source.read() == b"probe"
    except OSError as error:
        if error.errno in NO_LINKS | _NO_MAPS:
            raise _refused(root, f"a file cannot be renamed or mapped ({error.strerror})") from error
        return
    if not whole:
        raise _refused(root, "a file has different bytes after it was linked")


def _refused(root: Path, problem: str) -> ConfigError:
    return ConfigError(f"state={str(root)!r} cannot hold state: {problem}. {LINK_ADVICE}")
