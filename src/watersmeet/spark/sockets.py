"""Make Spark's socket to this Python worker acknowledge at once.

A join task receives a few hundred bytes: its descriptors, and then the end of the stream as a separate write. The JVM's
socket holds the second small write back until the first is acknowledged (Nagle's algorithm). Linux delays that by 40
ms, as the worker sends nothing meanwhile. Asking for the acknowledgement takes microseconds. Unix domain sockets
(`spark.python.unix.domain.socket.enabled`) do not have the problem.

One call is for the data that is about to arrive. The kernel may go back to delaying later.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

# Linux only, and only there is it needed.
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_DESCRIPTORS = Path("/proc/self/fd")


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
