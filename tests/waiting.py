"""Waiting for what another thread or process does: the only place in the tests that sleeps to wait.

And rows of a stream that wait for a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from watersmeet import config
from watersmeet.engine.spec import Settings
from watersmeet.model.limits import Limits

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


@contextmanager
def rows_that_wait(least: int = 50) -> Iterator[None]:
    """Joins that are built within: pages with fewer rows wait for the delay, whatever waiting costs on this machine."""
    read = config.read_settings

    def patched(*arguments: Any, **named: Any) -> Settings:
        return replace(read(*arguments, **named), limits=Limits(least_worth_rows=least))

    with mock.patch.object(config, "read_settings", patched):
        yield
