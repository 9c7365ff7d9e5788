"""Which files a batch takes: pure decisions over what is listed and what is taken already.

An *intake* is the files of one offset. Intakes are numbered from 1, and an offset is the number of the last one that is
done, with the id of the file log that holds them (`file_inputs/file_log.py`). So an offset is small however many
files there are, and what it means never changes.

Each file is in exactly one intake: `pending_files` leaves out the names that are taken, `count_taken` takes a prefix of
the rest, and the file log decides between two drivers. A name is taken once, whatever happens to its file later, as in
Spark's own file source.

`share_files` divides the files of a batch among tasks, and large files into parts where the format allows it. A task
has the cost of a Spark task and of a run in every batch, so small batches get few.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from watersmeet.errors import StateError

# The files of a task have at least this many bytes, if the batch has them. To read, sort and store a million bytes of
# Parquet takes about 7 ms of CPU. One more task takes 11, and its run another 4 when it is looked up and merged.
LEAST_TASK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as a listing shows it. `name` is its path below the directory."""

    name: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Reread:
    """A file that had changed since it was taken was read as it is now, before its batch was planned."""

    was: ListedFile
    now: ListedFile


def as_read(file: ListedFile, rereads: Iterable[Reread]) -> ListedFile:
    """A file of an intake as it was read last, by the records of changes, in order.

    >>> a, b, c = (ListedFile("f", size, 0) for size in (1, 2, 3))
    >>> as_read(a, [Reread(a, b), Reread(a, b), Reread(b, c)]) == c, as_read(c, [Reread(a, b)]) == c
    (True, True)
    """
    for one in rereads:
        if one.was == file:
            file = one.now
    return file


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that is handed out as it is now: how it was before, and the file log that says so."""

    was: ListedFile
    log: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """What one task reads of a file: part number `part` of `parts`. The reader knows where parts begin and end.

    `file` is as it was when this start of the query handed it out; `changed` says if that is not as it was taken.
    """

    file: ListedFile
    part: int = 0
    parts: int = 1
    changed: ChangedFile | None = None

    @property
    def bytes(self) -> int:
        """About its size: parts are cut where the format allows it."""
        return self.file.bytes // self.parts

    def takes(self, piece: int, pieces: int) -> bool:
        """Whether a piece of the file belongs to this part. Each of the pieces belongs to exactly one part.

        >>> [[piece for piece in range(5) if FilePart(None, part, 2).takes(piece, 5)] for part in (0, 1)]
        [[0, 1, 2], [3, 4]]
        """
        return piece * self.parts // pieces == self.part


@dataclass(frozen=True, slots=True)
class IntakeLimit:
    """How much an intake takes at most, and at least one file. None is no limit."""

    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FileOffset:
    """The intakes that are done: up to `intake`, of the file log `log`. No log was made before the first file."""

    log: str | None = None
    intake: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"log": self.log, "intake": self.intake}

    @staticmethod
    def from_json(given: Any) -> FileOffset:
        """An offset as Spark's checkpoint has it."""
        try:
            log, intake = given["log"], given["intake"]
        except (KeyError, TypeError):
            raise StateError(
                f"the checkpoint has the offset {given!r}, which is not one of a wm.files input. The inputs of the "
                "query, or their order, have changed: change them back, or start with a new checkpoint"
            ) from None
        return FileOffset(log, int(intake))


BEGINNING = FileOffset()

# How files were taken that have changed, by name.
NONE_CHANGED: Mapping[str, ChangedFile] = MappingProxyType({})


def pending_files(
    listed: Iterable[ListedFile], taken: Container[str], *, by_time: bool = False
) -> list[ListedFile]:
    """The files that no intake has, in the order in which they are taken.

    >>> new = [ListedFile("b", 5, 20), ListedFile("a", 5, 30), ListedFile("c", 5, 10)]
    >>> [file.name for file in pending_files(new, {"c"})], [file.name for file in pending_files(new, (), by_time=True)]
    (['a', 'b'], ['c', 'b', 'a'])
    """
    fresh = (file for file in listed if file.name not in taken)
    return sorted(fresh, key=(lambda file: (file.modified_ns, file.name)) if by_time else _by_name)


def _by_name(file: ListedFile) -> str:
    return file.name


def count_taken(pending: Sequence[ListedFile], limit: IntakeLimit) -> int:
    """How many of the pending files the next intake takes: a prefix within the limit, and at least one.

    >>> count_taken([ListedFile("a", 5, 0), ListedFile("b", 5, 0), ListedFile("c", 5, 0)], IntakeLimit(bytes=12))
    2
    """
    most = len(pending) if limit.files is None else min(limit.files, len(pending))
    if limit.bytes is None:
        return most
    held_bytes = 0
    for place in range(most):
        held_bytes += pending[place].bytes
        if held_bytes > limit.bytes:
            return max(place, 1)
    return most


def fills(pending: Sequence[ListedFile], limit: IntakeLimit) -> bool:
    """Whether files that come later cannot be in the next intake, so that nothing need be listed for it."""
    return bool(pending) and count_taken(pending, limit) < len(pending)


@dataclass(slots=True)
class TakenNames:
    """The names that are taken. `absent` has those that were gone from the directory, each with the time since when."""

    names: set[str] = field(default_factory=set)
    absent: dict[str, int] = field(default_factory=dict)


def forget_absent(taken: TakenNames, present: Container[str], now_ns: int, keep_ns: int) -> TakenNames:
    """The taken names without those that have been gone from the directory for longer than `keep_ns`.

    A listing may miss a file for a moment, or its directory be moved away for a day. A name that was dropped then
    would be taken a second time. So absence is measured between listings that we have seen, by our own clock: a file's
    time of change says nothing of it, and `cp -p` makes it years old.

    >>> first = forget_absent(TakenNames({"a", "b"}), {"b"}, now_ns=50, keep_ns=10)
    >>> first.absent, forget_absent(first, {"b"}, now_ns=61, keep_ns=10).names
    ({'a': 50}, {'b'})
    """
    absent = {name: taken.absent.get(name, now_ns) for name in taken.names if name not in present}
    gone = {name for name, since_ns in absent.items() if now_ns - since_ns > keep_ns}
    return TakenNames(taken.names - gone, {name: at for name, at in absent.items() if name not in gone})


def share_files(
    files: Sequence[ListedFile],
    tasks: int,
    *,
    splits: bool = False,
    changed: Mapping[str, ChangedFile] = NONE_CHANGED,
) -> list[list[FilePart]]:
    """The files of a batch, divided among at most `tasks` tasks by their bytes; each share in the given order.

    `changed` says by their names which of them are not as they were taken.

    The largest come first, each to the task with the fewest bytes: no task has more than 4/3 of the bytes of the best
    division, unless one part is larger (Graham 1969). If the format `splits`, no part is much larger than a fair share.
    """
    whole_bytes = sum(file.bytes for file in files)
    most = min(tasks, -(-whole_bytes // LEAST_TASK_BYTES))
    fair_bytes = max(LEAST_TASK_BYTES, -(-whole_bytes // max(most, 1)))
    pieces = [
        FilePart(file, part, parts, changed.get(file.name))
        for file in files
        for parts in [_count_parts(file, fair_bytes) if splits else 1]
        for part in range(parts)
    ]
    shares = min(most, len(pieces))
    loads = [(0, share) for share in range(shares)]
    mine: list[list[int]] = [[] for _ in range(shares)]
    for place in sorted(range(len(pieces)), key=lambda place: (-pieces[place].bytes, place)):
        load, share = heapq.heappop(loads)
        mine[share].append(place)
        heapq.heappush(loads, (load + pieces[place].bytes, share))
    return [[pieces[place] for place in sorted(places)] for places in mine]


def _count_parts(file: ListedFile, fair_bytes: int) -> int:
    return max(1, -(-file.bytes // fair_bytes))
