"""List the files of a directory that no intake has yet.

Names are treated as Spark's file source treats them: files and folders that begin with `_` or `.` or end with
`._COPYING_` are not seen, so a file can be written under such a name and renamed when it is complete. Files in folders
below the directory are not read. A folder such as `day=1` would be a partition, whose column is in no file: it is
refused. Where Spark's file sink writes, its log says which files count (`file_inputs/sink_log.py`). The log is read
first, then the directory: a batch that is committed in between is seen by the next look. A link that leads nowhere, or
round in a circle, is passed over. One thing differs: an empty file is passed over until it has content. Spark takes it
at once, and misses what is written to it later.

A local directory is not listed while it is unchanged. Its time of change moves when a name appears, so a look at that
is enough. Two names may appear in one tick of the clock, one of them after our listing: an unchanged time counts only
if it was `TICK_S` old when the directory was listed. And once in `LOOK_AGAIN_S` the directory is listed anyway, for
empty files and for file servers that are slow to show a change. A listing asks for the size and time of new files
only; the others cost a look-up of their name.

*Files that grow after they were taken.* A text file that was visible while it was written may be taken in half, and the
rest is in no result. So a listing compares the sizes of the files that were taken last, and one with another size is
an error, not a warning: rows are missing from results, a line in a log is read by nobody, and nothing is lost by
stopping, since the batches before are whole. A time of change alone says nothing (`touch`, a copy, restored backups),
and a file that was emptied or removed has no rows to miss. A file that is replaced by one of the same size, that
changes while nothing new appears and the query then ends, or that was taken long ago, is not noticed.

An object store has no such time: it is listed whenever new files are asked for, a request for each 1,000 files. Nor
has it directories: a prefix whose last object is removed is gone. That is an error only before the first file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from watersmeet.errors import FileError
from watersmeet.file_inputs.facts import facts_of, is_same
from watersmeet.file_inputs.offsets import ListedFile
from watersmeet.file_inputs.place import name_of
from watersmeet.file_inputs.sink_log import SINK_LOG, SinkLog
from watersmeet.tables.places import place_of
from watersmeet.tables.spec import Address

# The coarsest time of change among the filesystems in use (FAT has two seconds).
TICK_S = 2.0
# How late a file may be seen whose appearance the directory's time did not show.
LOOK_AGAIN_S = 60.0

_COPYING = "._COPYING_"

NO_FILES: Mapping[str, int] = MappingProxyType({})

Names = TypeVar("Names", set[str], dict[str, fs.FileInfo])


def is_hidden(name: str) -> bool:
    """Whether Spark's file source passes over a file or folder with this name.

    >>> [is_hidden(name) for name in ("_SUCCESS", ".part-0.crc", "a._COPYING_", "part-0.parquet", "_day=1")]
    [True, True, True, False, False]
    """
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith(_COPYING)


@dataclass(frozen=True, slots=True)
class _Glance:
    """A listing: when it was made, and the directory's times of change before it."""

    at_s: float
    stamps: tuple[int, ...]

    def still_holds(self, stamps: tuple[int, ...], now_s: float) -> bool:
        settled = max(stamps) / 1e9 < self.at_s - TICK_S
        return stamps == self.stamps and settled and 0 <= now_s - self.at_s < LOOK_AGAIN_S


class Directory:
    """The directory of a file input. `clock` gives the seconds since 1970. `name` says where it is."""

    def __init__(self, address: Address, clock: Callable[[], float]):
        self._address = address
        self._clock = clock
        with self._explained():
            self.filesystem, self.base = place_of(address)
        self.name = name_of(self.filesystem, self.base)
        self._sink = SinkLog(self.filesystem, self.base)
        self._has_sink = False
        self._last: _Glance | None = None
        # The names of the last listing, to tell which of the taken files are gone.
        self.present: set[str] = set()

    def new_files(
        self, taken: Container[str], *, begun: bool = False, watched: Mapping[str, int] = NO_FILES
    ) -> list[ListedFile] | None:
        """The files with names that are not taken; None if nothing has appeared since the last call.

        If it returned files that were not taken meanwhile, they are not returned again while nothing appears. With
        `begun` there were files before: a prefix of an object store then is gone because it is empty. `watched` are
        taken files with their sizes: FileError if one has another.
        """
        local = isinstance(self.filesystem, fs.LocalFileSystem)
        now_s = self._clock()
        with self._explained():
            if not local:
                return self._remote_files(taken, watched, begun=begun)
            stamps = self._stamps()
            if self._last is not None and self._last.still_holds(stamps, now_s):
                return None
            found = self._local_files(taken, watched)
            # Not before: what was an error is looked at again.
            self._last = _Glance(now_s, stamps)
            return found

    def as_now(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        """Files of an earlier listing with their present size and time, without those that are gone.

        A local file may have been completed since. An object appears whole, and asking for it is a request.
        """
        if not isinstance(self.filesystem, fs.LocalFileSystem):
            return list(files)
        found = []
        for file in files:
            with self._explained(), suppress(FileNotFoundError):
                facts = Path(self.base, file.name).stat()
                if facts.st_size:
                    found.append(ListedFile(file.name, facts.st_size, facts.st_mtime_ns))
        return found

    def changed(self, taken: Sequence[ListedFile]) -> list[ListedFile]:
        """Those of the files that have another size or time now, as they are now. Not those that are gone or empty."""
        with self._explained():
            if isinstance(self.filesystem, fs.LocalFileSystem):
                looks = (facts_of(self.filesystem, f"{self.base}/{file.name}", file.name) for file in taken)
                found = [file for file in looks if file is not None]
            else:
                # A look at each would be a request.
                chosen = fs.FileSelector(self.base, allow_not_found=True)
                infos = [info for info in self.filesystem.get_file_info(chosen) if info.is_file]
                found = [ListedFile(info.base_name, info.size, info.mtime_ns) for info in infos]
        before = {file.name: file for file in taken}
        return [
            file
            for file in found
            if file.bytes and file.name in before and not is_same(self.filesystem, file, before[file.name])
        ]

    def names(self) -> set[str]:
        """The names of all entries that are there now."""
        with self._explained():
            if isinstance(self.filesystem, fs.LocalFileSystem):
                return self._local_names()
            # Whether a prefix may be gone, because it is empty, is decided when new files are asked for.
            chosen = fs.FileSelector(self.base, allow_not_found=True)
            return {info.base_name for info in self.filesystem.get_file_info(chosen)}

    def look_again(self) -> None:
        """List at the next call, whatever the directory's time says."""
        self._last = None

    def _stamps(self) -> tuple[int, ...]:
        stamps = [Path(self.base).stat().st_mtime_ns]
        with suppress(FileNotFoundError):
            stamps.append(Path(self.base, SINK_LOG).stat().st_mtime_ns)
        return tuple(stamps)

    def _local_files(self, taken: Container[str], watched: Mapping[str, int]) -> list[ListedFile]:
        counted, present = self._counted(self._local_names)
        # Of a hundred thousand names nearly all are taken: only the others are looked at.
        others = [name for name in present if name not in taken]
        found = []
        for name in dict.fromkeys([*others, *(name for name in watched if name in present)]):
            facts = None if is_hidden(name) else self._look_at(name)
            if facts is None:
                present.discard(name)
                continue
            if name in watched:
                self._check_size(name, watched[name], facts.st_size)
            passed = name in taken or (counted is not None and name not in counted)
            if facts.st_size and not passed:
                found.append(ListedFile(name, facts.st_size, facts.st_mtime_ns))
        self._check_sink(counted, taken, present)
        self.present = present
        return found

    def _local_names(self) -> set[str]:
        # Not as paths: a hundred thousand of them take half a second.
        return set(os.listdir(self.base))  # noqa: PTH208

    def _look_at(self, name: str) -> os.stat_result | None:
        """The facts of a file; None for a folder, for a link that leads nowhere, and for what is gone by now."""
        self._check_name(name)
        try:
            facts = Path(self.base, name).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return None
        if stat.S_ISDIR(facts.st_mode):
            self._check_folder(name)
            return None
        return facts

    def _remote_files(
        self, taken: Container[str], watched: Mapping[str, int], *, begun: bool
    ) -> list[ListedFile]:
        try:
            counted, listed = self._counted(self._list)
        except FileNotFoundError:
            if not begun or not self._has_bucket():
                raise
            self.present = set()
            return []
        visible = [info for name, info in listed.items() if not is_hidden(name)]
        for info in visible:
            if info.type == fs.FileType.Directory:
                self._check_folder(info.base_name)
        files = [info for info in visible if info.is_file]
        self.present = {info.base_name for info in files}
        self._check_sink(counted, taken, self.present)
        for info in files:
            if info.base_name in watched:
                self._check_size(info.base_name, watched[info.base_name], info.size)
        return [
            ListedFile(info.base_name, info.size, info.mtime_ns)
            for info in files
            if info.size and info.base_name not in taken and (counted is None or info.base_name in counted)
        ]

    def _has_bucket(self) -> bool:
        bucket: fs.FileInfo = self.filesystem.get_file_info(self.base.partition("/")[0])
        return bucket.type == fs.FileType.Directory

    def _list(self) -> dict[str, fs.FileInfo]:
        found = self.filesystem.get_file_info(fs.FileSelector(self.base))
        return {info.base_name: info for info in found}

    def _counted(self, look: Callable[[], Names]) -> tuple[set[str] | None, Names]:
        """The names that count if a sink of Spark's writes here, and a listing that is younger than they are."""
        counted = self._sink.names() if self._has_sink else None
        seen = look()
        had_sink, self._has_sink = self._has_sink, SINK_LOG in seen
        if self._has_sink and not had_sink:
            counted, seen = self._sink.names(), look()
        return (counted if self._has_sink else None), seen

    def _check_folder(self, name: str) -> None:
        if "=" in name:
            raise FileError(
                f"{self._address!r} has the folder {name}: wm.files does not read the columns of partitions. Give the "
                f"folder itself, {self._address!r}/{name}, or read the directory as a DataFrame"
            )

    def _check_name(self, name: str) -> None:
        if not name.isprintable() and any("\ud800" <= char <= "\udfff" for char in name):
            raise FileError(
                f"{self._address!r} has a file whose name is not UTF-8, {os.fsencode(name)!r}: rename or remove it, "
                "then start the query again"
            )

    def _check_size(self, name: str, taken_bytes: int, now_bytes: int) -> None:
        if now_bytes in (0, taken_bytes):
            return
        if now_bytes > taken_bytes:
            happened = "it was written to later, and these rows are in no result"
        else:
            happened = (
                "it was cut short or replaced. The rows that it had stay in the results, and rows that are new in it "
                "are in no result"
            )
        raise FileError(
            f"{self._address!r}/{name} had {taken_bytes} bytes when it was taken into a batch, and now it has "
            f"{now_bytes}: {happened}. Write the rows that are missing into a new file, remove this one or put it back "
            "as it was, and start the query again. Write files under a name that begins with '_' or '.', or elsewhere, "
            "and rename them when they are complete"
        )

    def _check_sink(self, counted: set[str] | None, taken: Container[str], present: set[str]) -> None:
        missing = [name for name in counted or () if name not in present and name not in taken]
        if missing:
            raise FileError(
                f"{self._address!r}: the log of Spark's file sink names {min(missing)}, which is missing. Restore the "
                "file, or read the directory as a DataFrame with spark.sql.files.ignoreMissingFiles"
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except NotADirectoryError:
            raise FileError(
                f"{self._address!r} is a file: wm.files takes a directory, from which it takes new files"
            ) from None
        except FileNotFoundError:
            raise FileError(
                f"the directory {self._address!r} does not exist. Make it, or correct the path; then "
                "start the query again"
            ) from None
        except (OSError, pa.ArrowException) as error:
            # The text may repeat the URI with its credentials.
            raise FileError(
                f"the directory {self._address!r} cannot be listed: {self._address.scrub(str(error))}. "
                "Nothing is lost: "
                "start the query again when it can be reached"
            ) from None
