"""The file log: which files each intake has, in the state of the query.

    ~files/ID/intakes/000000000007.json      the directory and the files of intake 7: name, bytes, time of change
    ~files/ID/seen/000000000100.json         the names taken by intakes 1 to 100
    ~files/ID/rereads/000000000001.json      a file that had changed and was read all the same, before and after

An intake is written once, by put-if-absent, before Spark writes the offset that names it. So its files are fixed before
any of them is read, a driver that is started again finds what its predecessor chose, and of two drivers the first one
decides. The id is new when a query has no checkpoint: a deleted one begins afresh, with a log of its own.

Every `SEEN_EVERY` intakes the names taken so far are written as one file. A start reads the last such file and the
intakes after it, however long the query has run. The file is derived from intakes, so losing one costs only time until
the intakes that it stands for are removed; those that Spark may still replay are kept.

Names that have been gone from the directory for `KEEP_NAMES_NS` are dropped there. The file has the time since when a
name is gone, so a start does not begin to count anew (`file_inputs/offsets.py` says why names are not dropped at once).

A task writes a reread before its rows count (`file_inputs/taken.py` says when). A start reads all of them: they are
few, and stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from watersmeet import failpoints
from watersmeet.errors import CorruptFile, StateMissing
from watersmeet.file_inputs.offsets import ListedFile, Reread, TakenNames
from watersmeet.log.codec import decode_checked, encode_checked
from watersmeet.log.names import (
    FILE_LOGS,
    INTAKES,
    REREADS,
    SEEN_NAMES,
    intake_number,
    intake_path,
    reread_path,
    seen_path,
)
from watersmeet.log.storage import Files

# A start reads at most this number of small files. Writing all names then costs a hundredth of the listings between.
SEEN_EVERY = 100

# How long a name that is gone from the directory is remembered: Spark's default of maxFileAge, a week.
KEEP_NAMES_NS = 7 * 24 * 3600 * 10**9

_ADVICE = "Restore the file from a copy, or start with a new checkpoint"


@dataclass(frozen=True, slots=True)
class Intake:
    """The files of one intake, in the order in which they were taken, and the directory (`Directory.name`).

    Intakes did not always have the directory.
    """

    files: tuple[ListedFile, ...]
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a start reads of a log: the names taken, the last intake that is written, the newest intakes, and rereads."""

    taken: TakenNames
    last: int
    newest: tuple[Intake, ...]
    rereads: tuple[Reread, ...] = ()


@dataclass(frozen=True, slots=True)
class SeenNames:
    """The names of all intakes up to `intake`, and since when some of them are gone from the directory.

    `modified_ns` was there before `absent_since_ns` was, and is not used any more.
    """

    intake: int
    names: tuple[str, ...]
    modified_ns: tuple[int, ...] = ()
    absent_since_ns: dict[str, int] = field(default_factory=dict)


class FileLog:
    """The log of one input of one query. `files` is the state directory."""

    def __init__(self, files: Files, log: str):
        self.id = log
        self._files = files.under(FILE_LOGS, log)

    @property
    def place(self) -> str:
        return self._files.place

    def publish(self, number: int, intake: Intake) -> Intake:
        """Write an intake unless there is one with this number. Return the one that is there."""
        mine = self._files.publish(intake_path(number), encode_checked(intake))
        failpoints.reach("intake-written")
        if mine:
            return intake
        found = self.read(number)
        assert found is not None, "the intake exists, or it would have been written"
        return found

    def read(self, number: int) -> Intake | None:
        """An intake; None if it is not written."""
        path = intake_path(number)
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            return None
        return decode_checked(Intake, content, f"{self.place}/{path}", _ADVICE)

    def between(self, after: int, last: int) -> tuple[Intake, ...]:
        """The intakes after one and up to another, all of which must exist."""
        found = []
        for number, intake in enumerate(self._files.each(self.read, range(after + 1, last + 1)), after + 1):
            if intake is None:
                raise self._missing(number)
            found.append(intake)
        return tuple(found)

    def load(self, offset: int) -> Loaded:
        """What a start needs. The last intake may be after `offset`, the last one that Spark's checkpoint names."""
        seen = self._last_seen()
        taken = TakenNames(set(seen.names), dict(seen.absent_since_ns))
        last = max([seen.intake, *self._numbers(INTAKES)])
        if last < offset:
            raise self._missing(offset)
        # At least the last one.
        newest = [*self.between(max(min(seen.intake, last - 1), 0), last)]
        # The listing may be late.
        while (intake := self.read(last + 1)) is not None:
            newest.append(intake)
            last += 1
        taken.names.update(file.name for intake in newest for file in intake.files)
        return Loaded(taken, last, tuple(newest), self._rereads())

    def record(self, reread: Reread) -> None:
        """Write down that a changed file was read."""
        content = encode_checked(reread)
        number = max(self._numbers(REREADS), default=0) + 1
        while not self._files.publish(reread_path(number), content):
            number += 1

    def _rereads(self) -> tuple[Reread, ...]:
        return tuple(self._files.each(self._reread, sorted(self._numbers(REREADS))))

    def _reread(self, number: int) -> Reread:
        path = reread_path(number)
        return decode_checked(Reread, self._files.read(path), f"{self.place}/{path}", _ADVICE)

    def keep_names(self, number: int, taken: TakenNames, *, needed_from: int) -> None:
        """Write the names taken by intakes up to `number`. Remove the intakes that neither a start nor a replay needs.

        `needed_from` is the first intake that Spark may still ask for.
        """
        before = self._numbers(SEEN_NAMES)
        seen = SeenNames(number, tuple(taken.names), absent_since_ns=taken.absent)
        self._files.publish(seen_path(number), encode_checked(seen))
        failpoints.reach("seen-written")
        # The one before stays, with the intakes after it: a damaged file can then be removed by hand.
        kept = max(before, default=0)
        gone = [intake_path(old) for old in self._numbers(INTAKES) if old <= kept and old < needed_from]
        gone += [seen_path(old) for old in before if old < kept]
        for _ in self._files.delete_many(gone):
            failpoints.reach("clean-intake-removed")

    def _last_seen(self) -> SeenNames:
        numbers = self._numbers(SEEN_NAMES)
        if not numbers:
            return SeenNames(0, (), ())
        path = seen_path(max(numbers))
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            raise CorruptFile(
                f"{self.place}/{path} was removed while it was read. Start the query again"
            ) from None
        return decode_checked(SeenNames, content, f"{self.place}/{path}", _ADVICE)

    def _numbers(self, folder: str) -> list[int]:
        found = (intake_number(info.name) for info in self._files.entries(folder))
        return [number for number in found if number is not None]

    def _missing(self, number: int) -> StateMissing:
        return StateMissing(
            f"the checkpoint names intake {number} of the file log {self.place}, which has no such "
            "file: it was lost, or "
            "the checkpoint was rolled back further than minBatchesToRetain. Restore the state from a "
            "copy that fits the "
            "checkpoint, or start with a new checkpoint"
        )
