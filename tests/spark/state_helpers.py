"""What the tests of the state share: where its files are, and what a query dies of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import StreamingQueryException

from tests import life
from watersmeet.log.files import LocalFiles
from watersmeet.model.facts import Manifest


def state_files(state: Path, name: str = "l-r") -> LocalFiles:
    """The files of the one query that has run with this state and join."""
    (query,) = LocalFiles(state / name).folders()
    return LocalFiles(state / name / query)


def newest(state: Path, name: str = "l-r") -> Manifest:
    return life.newest(state_files(state, name))


def all_files(state: Path) -> set[Path]:
    return {path for path in state.rglob("*") if path.is_file()}


def failure(act: Callable[[], Any]) -> str:
    """What the query says when it fails while doing this; errors of Python workers come as text."""
    with pytest.raises(StreamingQueryException) as caught:
        act()
    return str(caught.value)


def renew_workers() -> None:
    """End Spark's Python workers, which keep mapped what they have verified once: as after a reboot."""
    workers = [process for process in psutil.Process().children(recursive=True) if _is_worker(process)]
    for worker in workers:
        worker.kill()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive, "a Python worker did not end"


def _is_worker(process: psutil.Process) -> bool:
    """A fork of Spark's Python daemon; the daemon itself is a child of the JVM."""
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and parent is not None and parent.name() != "java"
    except psutil.NoSuchProcess:
        # It has ended by itself meanwhile.
        return False
