"""Ctrl-C and friends: the first asks for an orderly stop, the second breaks off.

Until `arm` is called there is nothing to stop in order, and the first one breaks off at once.
"""

from __future__ import annotations

import signal
from threading import Event
from types import FrameType

# SIGHUP: the terminal was closed. Not everywhere is it known.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class BrokenOff(BaseException):
    """Raised from a signal handler; not an Exception, so that no handler of errors takes it for one."""


class StopRequest:
    def __init__(self) -> None:
        self.event = Event()
        self._armed = False

    def install(self) -> None:
        """Take over the signals. PySpark puts in a handler of its own when a session starts: call again then."""
        for number in _SIGNALS:
            signal.signal(number, self._receive)

    def arm(self) -> None:
        self.install()
        self._armed = True

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or self.event.is_set():
            raise BrokenOff
        self.event.set()
