"""The files of a directory as a stream: offsets out, and the files between two of them. The driver's half of the
source.

    latest(start)        the next intake: one that is in the log already, or one that is decided and logged now
    between(start, end)  its files, from the log
    changed(files, end)  those of them that have changed since
    shares(start, end)   all of them, divided among tasks
    hold()               no file that comes later is taken (Spark's trigger availableNow)
    commit(end)          everything up to here is done

*Every file once.* An offset is answered from the log alone. Only the intake after the last one in the log is decided
here, from names that no intake has. A driver that died after it wrote an intake left no offset for it, or left one: the
next driver finds it in the log in both cases.

*Another directory* is refused under the same checkpoint: files with names that were taken in the old one would be
passed over in silence. An intake has its directory, and `moved_from` accepts one that was moved as it is. The newest
intake alone is compared: the log goes from one directory to another only where this was accepted. So a directory may be
moved again, and `moved_from` may be left out once an intake has the new name.

One process serves an input while its query runs. The names that are taken are in its memory: some 150 bytes a file, a
tenth of what Spark's own source needs. A listing is kept while its files fill intakes, so a backlog is listed once.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from watersmeet.errors import FileError
from watersmeet.file_inputs.file_log import KEEP_NAMES_NS, SEEN_EVERY, FileLog, Intake
from watersmeet.file_inputs.listing import Directory
from watersmeet.file_inputs.offsets import (
    BEGINNING,
    ChangedFile,
    FileOffset,
    FilePart,
    IntakeLimit,
    ListedFile,
    Reread,
    TakenNames,
    as_read,
    count_taken,
    fills,
    forget_absent,
    pending_files,
    share_files,
)
from watersmeet.log.files import open_files
from watersmeet.log.storage import Files, Storage
from watersmeet.tables.spec import Address

NO_LIMIT = IntakeLimit()

# Files that were taken last and are looked at for later writes, at each listing: 2 ms on a local disk.
WATCHED_FILES = 1_000


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What the driver's process needs to serve an input. It can be pickled.

    `storage` is the state that holds the file log, `tasks` how many tasks share a batch, `splits` whether a file can be
    read in parts, `retain` how many intakes Spark may ask for again after they are done. `moved_from` is where the
    directory was at the newest intake.
    """

    address: Address
    storage: Storage
    limit: IntakeLimit
    by_time: bool
    tasks: int
    splits: bool
    retain: int
    moved_from: str | None = None

    def open(self) -> FileStream:
        directory = Directory(self.address, time.time)
        state = open_files(self.storage)
        return FileStream(
            directory,
            state,
            time.time,
            by_time=self.by_time,
            retain=self.retain,
            moved_from=self.moved_from,
        )


def _new_id() -> str:
    return uuid.uuid4().hex


def _without_slash(directory: str) -> str:
    return directory.rstrip("/") or "/"


@dataclass
class _Opened:
    """A file log, and what is known of it.

    `last` is the last intake, `found` the last one that another process wrote. `watched` has the sizes of the newest
    files, `rereads` those that had changed and were read. `handed_out` has an intake, and the files of its batch that
    have changed since, as tasks were told of them.
    """

    log: FileLog
    taken: TakenNames
    last: int
    found: int = 0
    rereads: tuple[Reread, ...] = ()
    watched: dict[str, int] = field(default_factory=dict)
    handed_out: tuple[int, dict[str, ListedFile]] | None = None

    def add(self, files: Sequence[ListedFile]) -> None:
        """Files that are taken."""
        self.taken.names.update(file.name for file in files)
        self.watch(files)

    def as_read(self, files: Sequence[ListedFile]) -> tuple[ListedFile, ...]:
        """The files of an intake as they were read last."""
        return tuple(as_read(file, self.rereads) for file in files) if self.rereads else tuple(files)

    def watch(self, files: Sequence[ListedFile]) -> None:
        for file in files:
            self.watched.pop(file.name, None)
            self.watched[file.name] = file.bytes
        self._drop_oldest()

    def finish(self, intake: int) -> None:
        """The batch with this intake is done, with its files as they were handed out."""
        if self.handed_out is not None and self.handed_out[0] <= intake:
            self.watch(tuple(self.handed_out[1].values()))
            self.handed_out = None

    def _drop_oldest(self) -> None:
        for name in list(itertools.islice(self.watched, max(0, len(self.watched) - WATCHED_FILES))):
            del self.watched[name]


class FileStream:
    """The stream of one input.

    `clock` gives the seconds since 1970. Every `seen_every` intakes the names taken are written as one file, and those
    that have been gone for `keep_names_ns` are forgotten.
    """

    def __init__(
        self,
        directory: Directory,
        state: Files,
        clock: Callable[[], float],
        *,
        by_time: bool = False,
        retain: int = 100,
        moved_from: str | None = None,
        new_id: Callable[[], str] = _new_id,
        seen_every: int = SEEN_EVERY,
        keep_names_ns: int = KEEP_NAMES_NS,
    ):
        self._directory = directory
        self._state = state
        self._clock = clock
        # Logs of before did not say where their files are.
        self._known = (None, directory.name, moved_from and _without_slash(moved_from))
        self._seen_every = seen_every
        self._keep_names_ns = keep_names_ns
        self._by_time = by_time
        self._retain = retain
        self._new_id = new_id
        self._opened: _Opened | None = None
        # Files of the last listing that are not taken, in order.
        self._pending: list[ListedFile] = []
        # The names that were there when the query began, if it takes no others.
        self._held: set[str] | None = None
        # Whether those are all in `_pending` or taken.
        self._closed = False
        self._done = 0

    def latest(self, start: FileOffset, limit: IntakeLimit) -> FileOffset:
        """The offset up to which the next batch reads; `start` if there is nothing new."""
        opened = self._open(start)
        opened.finish(start.intake)
        if opened.last > start.intake and limit != NO_LIMIT:
            return FileOffset(opened.log.id, start.intake + 1)
        self._look(opened, limit)
        self._take(opened, limit)
        return FileOffset(opened.log.id, opened.last) if opened.last > start.intake else start

    def between(self, start: FileOffset, end: FileOffset) -> tuple[ListedFile, ...]:
        """The files that a batch with these offsets reads."""
        if end.log is None:
            return ()
        if start.log not in (None, end.log):
            raise FileError(
                f"the checkpoint has offsets of two file logs, {start.log} and {end.log}: it was put together from two "
                "queries. Start with a new checkpoint"
            )
        # Checks the directory of the newest intake, which may be after `end`.
        opened = self._open(end)
        intakes = opened.log.between(start.intake, end.intake)
        return opened.as_read([file for intake in intakes for file in intake.files])

    def changed(self, files: Sequence[ListedFile], end: FileOffset) -> dict[str, ListedFile]:
        """Of the files of the batch that ends here, those that are not as they were read or taken, as they are now.

        Those that this process took itself were looked at a moment ago. Without files that are gone or empty: their
        rows are missed.
        """
        opened = self._open(end)
        if end.intake > opened.found:
            return {}
        if opened.handed_out is None or opened.handed_out[0] != end.intake:
            # Once: all tasks of this start must read the same.
            opened.handed_out = end.intake, {file.name: file for file in self._directory.changed(files)}
        return opened.handed_out[1]

    def shares(self, start: FileOffset, end: FileOffset, tasks: int, *, splits: bool) -> list[list[FilePart]]:
        """The files of a batch, divided among tasks, each as it is to be read."""
        files = self.between(start, end)
        now = self.changed(files, end)
        assert end.log is not None or not files, "files are in a log"
        changed = {file.name: ChangedFile(file, end.log or "") for file in files if file.name in now}
        return share_files(
            [now.get(file.name, file) for file in files], tasks, splits=splits, changed=changed
        )

    def hold(self) -> None:
        """Take no file that is not there now. What is taken already is not known yet, so only names are read."""
        self._directory.look_again()
        self._held, self._closed = self._directory.names(), False

    def commit(self, end: FileOffset) -> None:
        self._done = max(self._done, end.intake)

    def _open(self, start: FileOffset) -> _Opened:
        """The log of an offset. What it holds is read once for a process."""
        opened = self._opened
        if opened is not None and start.log in (None, opened.log.id) and start.intake <= opened.last:
            return opened
        if start == BEGINNING:
            opened = _Opened(FileLog(self._state, self._new_id()), TakenNames(), 0)
        else:
            assert start.log is not None, "an intake is in a log"
            log = FileLog(self._state, start.log)
            found = log.load(start.intake)
            for intake in found.newest[-1:]:
                self._check_directory(intake)
            opened = _Opened(log, found.taken, found.last, found.last, found.rereads)
            for intake in found.newest:
                # A moved directory may have been copied otherwise.
                if intake.directory == self._directory.name:
                    opened.watch(opened.as_read(intake.files))
        self._opened = opened
        self._list_anew()
        return opened

    def _check_directory(self, intake: Intake) -> None:
        """Refuse the newest intake of a log if it is of another directory."""
        if intake.directory not in self._known:
            raise FileError(
                f"this query has taken files from {intake.directory}, and its input now is {self._directory.name}: "
                "files with the same names would be left out. If the directory was moved with its files, pass "
                f'moved_from="{intake.directory}" to wm.files. Otherwise change the address back, or start with a '
                "new checkpoint"
            )

    def _list_anew(self) -> None:
        self._pending, self._closed = [], False
        self._directory.look_again()

    def _look(self, opened: _Opened, limit: IntakeLimit) -> None:
        """List the directory, unless the files that are known are all that the next intake can have."""
        if fills(self._pending, limit) or self._closed:
            return
        found = self._directory.new_files(opened.taken.names, begun=opened.last > 0, watched=opened.watched)
        if found is None:
            return
        for name in opened.taken.absent.keys() & self._directory.present:
            del opened.taken.absent[name]
        if self._held is not None:
            found = [file for file in found if file.name in self._held]
            self._closed = True
        self._pending = pending_files(found, opened.taken.names, by_time=self._by_time)

    def _take(self, opened: _Opened, limit: IntakeLimit) -> None:
        """Log the next intake, if there are files for it."""
        files: tuple[ListedFile, ...] = ()
        while self._pending and not files:
            count = count_taken(self._pending, limit)
            files = tuple(self._directory.as_now(self._pending[:count]))
            self._pending = self._pending[count:]
        if not files:
            return
        number = opened.last + 1
        logged = opened.log.publish(number, Intake(files, self._directory.name))
        self._check_directory(logged)
        opened.last = number
        opened.add(logged.files)
        if logged.files != files:
            # Another driver was first, with other files.
            self._list_anew()
        if number % self._seen_every == 0:
            now_ns = int(self._clock() * 1e9)
            opened.taken = forget_absent(opened.taken, self._directory.present, now_ns, self._keep_names_ns)
            opened.log.keep_names(number, opened.taken, needed_from=self._done - self._retain)
