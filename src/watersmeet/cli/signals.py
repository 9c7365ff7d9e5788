"""Ctrl-C and other signals: the first asks for a clean stop, the second aborts.

Before `arm` is called there is nothing to stop cleanly, and the first one aborts at once.
"""

from __future__ import annotations

import signal
from threading import Event
from types import FrameType
from typing import Any

# SIGHUP: the terminal was closed. Not every system has it.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class BrokenOff(BaseException):
    """Raised from a signal handler. It is not an Exception, so that error handlers do not catch it."""


class StopRequest:
    """Owns the signals during a block."""

    def __init__(self) -> None:
        self.event = Event()
        self._armed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._receive) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def arm(self) -> None:
        """Make the first signal ask for a clean stop.

        The handlers are installed again, because PySpark installs its own when a session starts.
        """
        for number in _SIGNALS:
            signal.signal(number, self._receive)
        self._armed = True

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or self.event.is_set():
            raise BrokenOff
        self.event.set()
