"""Read the files that a batch has taken, and make sure that each is still the file that was taken.

Which files a batch has is decided before any is read, and a batch may be read again days later. A file that was written
to or replaced in between would give other rows to the second attempt, or half of its rows to the first. So its size and
its time of change are compared with those in the file log, after the last row and before the rows count: a batch with
an error leaves nothing behind.

*Until a batch is planned* no row of it was joined, and other rows do no harm. A file that was taken while it was
written could never be read otherwise. So a start of the query hands out files that have changed as they are now, the
same for all its tasks. A task refuses one only if another start has planned its batch, since results of that may be
out; otherwise it records how it has read the file, before its rows count. This start has claimed its number before, so
an older one plans nothing any more. Spark's own source reads such a file too, whatever became of its rows.

A change that keeps both size and time is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import pyarrow as pa

from watersmeet import failpoints
from watersmeet.errors import FileError
from watersmeet.file_inputs.facts import facts_of, is_same
from watersmeet.file_inputs.offsets import ChangedFile, FilePart, ListedFile
from watersmeet.file_inputs.place import Place
from watersmeet.tables.spec import Address

# Reads a part of a file.
ReadPart = Callable[[Place, FilePart], Iterator[pa.RecordBatch]]

# Record that a file is read that has changed. False if another start has planned its batch as it was.
Record = Callable[[FilePart, ChangedFile], bool]

_ADVICE = "Write files under a name that begins with '_' or '.', or elsewhere, and rename them when they are complete"


def read_taken(
    address: Address, parts: Iterable[FilePart], read: ReadPart, record: Record
) -> Iterator[pa.RecordBatch]:
    """The rows of these parts of files, in order. FileError if one of the files has changed."""
    failpoints.reach("files-unread")
    for part in parts:
        place = Place(address, part.file.name)
        try:
            yield from read(place, part)
        except Exception:
            # A file that is cut off or replaced may be unreadable: then say that first.
            check_unchanged(place, part)
            raise
        check_unchanged(place, part)
        if part.changed is not None and not record(part, part.changed):
            raise FileError(
                f"{_happened(place, part.changed.was, part.file)}. It was written to or replaced, and results with the "
                "rows that it had may be out. Put it back as it was and start the query again, or start with a new "
                f"checkpoint. {_ADVICE}"
            )


def check_unchanged(place: Place, part: FilePart) -> None:
    """Refuse a file whose size or time of change is not as it was handed out."""
    filesystem, path = place.on_filesystem()
    try:
        found = facts_of(filesystem, path, part.file.name)
    except (OSError, pa.ArrowException) as error:
        # The text may repeat the URI with its credentials.
        raise FileError(
            f"{place!r} cannot be looked at: {place.address.scrub(str(error))}. Start the query again when it can be "
            "reached"
        ) from None
    if found is None or not is_same(filesystem, found, part.file):
        taken = part.changed.was if part.changed is not None else part.file
        raise FileError(
            f"{_happened(place, taken, found)}. It was written to, replaced or removed. Put it back, and start the "
            f"query again when it is complete. {_ADVICE}"
        )


def _happened(place: Place, taken: ListedFile, now: ListedFile | None) -> str:
    is_now = "it is gone" if now is None else f"now it has {_shown(now)}"
    return f"{place!r} had {_shown(taken)} when it was taken into a batch, and {is_now}"


def _shown(file: ListedFile) -> str:
    at = datetime.fromtimestamp(file.modified_ns / 1e9, UTC)
    return f"{file.bytes} bytes of {at:%Y-%m-%d %H:%M:%S.%f} UTC"
