"""Work in a child process: forked from a warm one, so that it starts in milliseconds, and killed without harm.

The forking process runs no join and opens no connection itself: no thread of Arrow, DuckDB or an S3 client is there to
be lost in the fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from watersmeet.errors import WatersmeetError

# A child takes well under a second; under load, and with a remote state, up to a minute. Beyond this it hangs.
PATIENCE_S = 300.0
_PR_SET_PDEATHSIG = 1
_SHOWN_CALLS = 6


@dataclass(frozen=True)
class Outcome:
    """How a child ended. `error` is the name of our error's class, `text` its message or a traceback."""

    value: Any = None
    error: str | None = None
    text: str = ""
    raw: bool = False
    killed: bool = False
    hung: bool = False

    @property
    def done(self) -> bool:
        return not (self.error or self.raw or self.killed or self.hung)

    def __str__(self) -> str:
        if self.hung:
            return "it hangs"
        if self.killed:
            return "it was killed"
        return "it is done" if self.done else f"{self.error or 'raw exception'}: {self.text}"


class Child:
    """A forked process that does one piece of work and hands back its value or its error."""

    def __init__(self, work: Callable[[], Any]):
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._read)
            die_with_parent()
            _report(write, work)
            os._exit(0)
        os.close(write)
        self._status: int | None = None

    def wait(self, patience_s: float = PATIENCE_S) -> Outcome:
        content, hung = self._drain(time.monotonic() + patience_s)
        if hung:
            self.send(signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._read)
        if hung:
            return Outcome(hung=True)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGKILL:
                return Outcome(killed=True)
            return Outcome(raw=True, text=f"died of {signal.Signals(number).name}")
        if not content:
            return Outcome(raw=True, text="ended without a word")
        return pickle.loads(content)  # noqa: S301

    def wait_until_stopped(self) -> bool:
        """True if the child has stopped itself; False if it has ended before."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        os.close(self._read)
        return False

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _drain(self, deadline: float) -> tuple[bytes, bool]:
        parts: list[bytes] = []
        while True:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return b"", True
            part = os.read(self._read, 1 << 16)
            if not part:
                return b"".join(parts), False
            parts.append(part)


def in_child(work: Callable[[], Any]) -> Outcome:
    return Child(work).wait()


def _report(write: int, work: Callable[[], Any]) -> None:
    try:
        outcome = Outcome(value=work())
    except WatersmeetError as error:
        outcome = Outcome(error=type(error).__name__, text=str(error))
    except BaseException as error:
        outcome = Outcome(raw=True, text=last_calls(error))
    content = pickle.dumps(outcome)
    with os.fdopen(write, "wb") as sink:
        sink.write(content)


def last_calls(error: BaseException) -> str:
    """The end of a traceback: the first calls are always those of a life."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-_SHOWN_CALLS))


def die_with_parent() -> None:
    """No stopped or waiting child is left behind when the tests are interrupted."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Ctrl-C reaches the whole process group: what ends this process is its parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
