"""What Spark's Python workers are told at the beginning of a task, so that none of them idles.

`keep_modules` keeps the modules of a worker out of its garbage collections. PySpark collects garbage after every task
of a worker. A collection visits every object, and nearly all of them belong to modules (pyarrow, pandas, PySpark). That
takes about 50 ms of a core for each task, and meanwhile the worker is not ready for the next stage. Frozen objects are
not visited, and modules live as long as the process anyway. Cycles that are alive at a freeze are never collected if
they become garbage later, including those of other functions in the same worker. Freezing happens only while modules
are added.

`acknowledge_at_once` makes Spark's socket to the worker acknowledge at once. A join task receives a few hundred bytes:
its descriptors, and then the end of the stream as a separate write. The JVM's socket holds the second small write back
until the first is acknowledged (Nagle's algorithm). Linux delays that by 40 ms, as the worker sends nothing meanwhile.
Asking for the acknowledgement takes microseconds. Unix domain sockets (`spark.python.unix.domain.socket.enabled`) do
not have the problem. One call is for the data that is about to arrive. The kernel may go back to delaying later.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
from pathlib import Path

_modules_frozen = 0

# Linux only, and only there is it needed.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_DESCRIPTORS = Path("/proc/self/fd")


def keep_modules() -> None:
    """Freeze all objects if more modules are loaded than ever before. Call this at the beginning of a task.

    A reused worker has collected by then, so that little garbage is frozen.
    """
    global _modules_frozen
    if len(sys.modules) > _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)


def acknowledge_at_once() -> None:
    """Ask for it on every TCP connection of this process: a worker has one, to the JVM."""
    if _QUICKACK is None or not _DESCRIPTORS.is_dir():
        return
    for number in [int(entry.name) for entry in _DESCRIPTORS.iterdir()]:
        # The descriptor of the listing itself is closed by now.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if connection.family in (socket.AF_INET, socket.AF_INET6):
                        connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
