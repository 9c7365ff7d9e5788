"""Read the files that a batch has taken, and make sure that each is still the file that was taken.

Which files a batch has is decided before any is read, and a batch may be read again days later. A file that was written
to or replaced in between would give other rows to the second attempt, or half of its rows to the first. So its size and
its time of change are compared with those in the file log, after the last row and before the rows count: a batch with
an error leaves nothing behind.

A change that keeps both size and time is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from watersmeet import failpoints
from watersmeet.errors import FileError
from watersmeet.file_inputs.offsets import FilePart, ListedFile
from watersmeet.file_inputs.place import Place
from watersmeet.tables.spec import Address

_SECOND_NS = 10**9

# Reads a part of a file.
ReadPart = Callable[[Place, FilePart], Iterator[pa.RecordBatch]]


def read_taken(address: Address, parts: Iterable[FilePart], read: ReadPart) -> Iterator[pa.RecordBatch]:
    """The rows of these parts of files, in order. FileError if one of the files has changed."""
    failpoints.reach("files-unread")
    for part in parts:
        place = Place(address, part.file.name)
        try:
            yield from read(place, part)
        except Exception:
            # A file that is cut off or replaced may be unreadable: then say that first.
            check_unchanged(place, part.file)
            raise
        check_unchanged(place, part.file)


def check_unchanged(place: Place, taken: ListedFile) -> None:
    """Refuse a file whose size or time of change is not as it was taken."""
    filesystem, path = place.on_filesystem()
    local = isinstance(filesystem, fs.LocalFileSystem)
    # A listing of an object store may show more digits of a time than a look at one object does.
    tick_ns = 1 if local else _SECOND_NS
    try:
        found = _local_facts(path) if local else _remote_facts(filesystem, path)
    except (OSError, pa.ArrowException) as error:
        # The text may repeat the URI with its credentials.
        raise FileError(
            f"{place!r} cannot be looked at: {place.address.scrub(str(error))}. Start the query again when it can be "
            "reached"
        ) from None
    if found is not None and (found[0], found[1] // tick_ns) == (taken.bytes, taken.modified_ns // tick_ns):
        return
    now = "it is gone" if found is None else f"now it has {_shown(*found)}"
    raise FileError(
        f"{place!r} had {_shown(taken.bytes, taken.modified_ns)} when it was taken into a batch, and {now}. It was "
        "written to, replaced or removed. Put it back as it was and start the query again, or start with a new "
        "checkpoint. Write files under a name that begins with '_' or '.', or elsewhere, and rename them when they are "
        "complete"
    )


def _local_facts(path: str) -> tuple[int, int] | None:
    try:
        stat = Path(path).stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _remote_facts(filesystem: fs.FileSystem, path: str) -> tuple[int, int] | None:
    info = filesystem.get_file_info(path)
    return (info.size, info.mtime_ns) if info.is_file else None


def _shown(size: int, modified_ns: int) -> str:
    at = datetime.fromtimestamp(modified_ns / 1e9, UTC)
    return f"{size} bytes of {at:%Y-%m-%d %H:%M:%S.%f} UTC"
