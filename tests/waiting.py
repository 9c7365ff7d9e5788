"""Waiting for what another thread or process does: the only place in the tests that sleeps to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_POLL_S = 0.02


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(_POLL_S)


def check_stays(condition: Callable[[], Any], what: str, for_s: float) -> None:
    """Fail if something does not hold all the time."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert condition(), f"{what}: not for {for_s:g} s"
        time.sleep(_POLL_S)
