"""Make the sorted copy of files that are read in place, in the background, while batches go on.

A thread of the process that asks for it reads and sorts; the batches of that process go on meanwhile. The copy exists
from the moment it is published, under a name that follows from the version read in place (`catalogue.copy_folder`). So
the planner of a later batch finds it, in whatever process, and two copies made at once are the same table: the first to
be published wins. A process that is killed leaves parts that nobody names, and its sort leaves files in the temporary directory
(`tables/scratch.py`).

Processes tell each other that one is at it, by a mark in the folder that is renewed. That only saves work. A failed
attempt is logged, and not repeated by the same process: the table stays in place there.

*Not guaranteed: that a copy is ever made.* Spark stops a worker that was idle for a minute, or after each task if
`spark.python.worker.reuse` is false, and a worker ends without running `atexit` functions. A copy that takes longer
than the pauses between batches is then killed each time. Its mark stays, and expires. After `MOST_KILLED` of them no
process begins again, and the table stays in place; the status says so. The marks go with the folder, when the table
changes or nobody has used it for hours.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref

from watersmeet.log.files import open_files
from watersmeet.log.storage import Files
from watersmeet.tables.catalogue import find_entry, is_being_made, killed_copies, mark_making, unmark
from watersmeet.tables.source import OpenTable, TableProgress

_LOG = logging.getLogger(__name__)

# One kill may be the end of a query or of a machine. Two in one version mean that workers do not live long enough.
MOST_KILLED = 2
# How often the mark is renewed: well within the time for which it counts (`catalogue.MAKING_S`).
_RENEW_S = 15.0
# How long the end of a process waits for its copy to stop. It looks once for each page or batch of rows.
_STOP_S = 5.0


class _Stopped(Exception):
    """The process ends, or needs no copy any more."""


class Copier:
    """The attempt of one process to make the copy of one version. `begin` returns at once."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._tried: set[str] = set()

    def begin(self, table: OpenTable) -> None:
        """Start to make the copy, unless this process has tried or another is at it."""
        folder = table.copy_folder
        if not folder or folder in self._tried or (self._thread and self._thread.is_alive()):
            return
        # Not the handles of the open table: those belong to the thread that joins.
        files = open_files(table.source.place, cache=table.source.cache)
        now_s = time.time()
        if is_being_made(files, folder, now_s) or find_entry(files, folder) is not None:
            return
        if killed_copies(files, folder, now_s) >= MOST_KILLED:
            self._tried.add(folder)
            _LOG.warning(
                "%s is still read in place: %d workers were stopped while they made its sorted copy. Set "
                "in_place=False to have it made before the first batch, or a trigger interval below a minute",
                table.label,
                MOST_KILLED,
            )
            return
        self._tried.add(folder)
        # The process may be killed while a copy is made; nothing is lost then but work.
        self._thread = threading.Thread(
            target=self._make, args=(table, files, folder), name="watersmeet-copy", daemon=True
        )
        _RUNNING.add(self)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until no copy is being made here."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """Give up the copy that is being made."""
        self._stop.set()
        self.wait(_STOP_S)

    def _make(self, table: OpenTable, files: Files, folder: str) -> None:
        mark, marked_s = mark_making(files, folder), time.monotonic()

        def watch(progress: TableProgress) -> None:
            nonlocal mark, marked_s
            if self._stop.is_set():
                raise _Stopped
            if time.monotonic() - marked_s > _RENEW_S:
                older, mark, marked_s = mark, mark_making(files, folder), time.monotonic()
                unmark(files, folder, older)

        try:
            table.copy(watch)
        except _Stopped:
            _LOG.info("the sorted copy of %s was given up: the process ends", table.label)
        except Exception as error:
            _LOG.warning("%s is still read in place, a sorted copy could not be made: %s", table.label, error)
        finally:
            unmark(files, folder, mark)


# At the end of a process its copies are stopped before the interpreter takes the libraries away from under them. A
# forked worker of Spark has no such end: it calls os._exit.
_RUNNING: weakref.WeakSet[Copier] = weakref.WeakSet()


def wait() -> None:
    """Wait until this process makes no copy."""
    for copier in list(_RUNNING):
        copier.wait()


@atexit.register
def _stop_all() -> None:
    for copier in list(_RUNNING):
        copier.stop()
