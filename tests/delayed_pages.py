"""Rows of a stream that wait for a page of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from watersmeet import config
from watersmeet.engine.spec import Settings
from watersmeet.model.limits import Limits


@contextmanager
def rows_that_wait(least: int = 50) -> Iterator[None]:
    """Joins that are built within: pages with fewer rows wait for the delay, whatever waiting costs on this machine."""
    read = config.read_settings

    def patched(*arguments: Any, **named: Any) -> Settings:
        return replace(read(*arguments, **named), limits=Limits(least_worth_rows=least))

    with mock.patch.object(config, "read_settings", patched):
        yield
