"""PySpark's daemon with a stopwatch: its workers note when each part of a task began and ended.

Spark starts it with `spark.python.daemon.module=bench.timeline_daemon`. The package itself knows nothing of it. A worker
appends a line for each task to a file of its own in `$WATERSMEET_TIMELINE`:

    {"task": 17, "spans": [["python", 1763..., 1763..., 0.0123], ["sort", ...], ...]}

A span has a label, its begin and end in seconds since 1970, and the CPU seconds of the process. Noting one takes some
microseconds.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "WATERSMEET_TIMELINE"

# What is noted of our code.
CALLS = (
    ("store", "watersmeet.engine.operator", "Operator.ingest"),
    ("sort", "watersmeet.engine.ingest", "sort_rows"),
    ("write runs", "watersmeet.engine.ingest", "write_run"),
    ("agree", "watersmeet.engine.operator", "Operator._agree"),
    ("plan", "watersmeet.engine.operator", "plan_batch"),
    ("publish", "watersmeet.log.manifests", "publish_manifest"),
    ("merge", "watersmeet.engine.operator", "merge_assigned"),
    ("clean", "watersmeet.engine.operator", "Operator._clean"),
    ("tally", "watersmeet.engine.operator", "leave_tally"),
)
# A generator: what it does is noted, and not what happens to its results.
GENERATORS = (("join", "watersmeet.engine.operator", "Operator.results"),)
# Calls whose last argument is an iterator: waiting for its elements is noted.
SOURCES = (("receive", "watersmeet.engine.operator", "Operator.ingest"),)

Span = tuple[str, float, float, float]
# A label, a module, and the name that the module calls a function by.
Call = tuple[str, str, str]


@dataclass
class Notes:
    """The spans of the task that runs in this process."""

    task: int = -1
    spans: list[Span] = field(default_factory=list)
    began: tuple[float, float] = (0.0, 0.0)

    def begin(self, task: int) -> None:
        self.task, self.spans, self.began = task, [], (time.time(), time.process_time())

    def note(self, label: str, began: tuple[float, float]) -> None:
        self.spans.append((label, began[0], time.time(), time.process_time() - began[1]))

    def end(self) -> None:
        if self.task < 0:
            return
        self.note("python", self.began)
        path = Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl"
        with path.open("a") as file:
            file.write(json.dumps({"task": self.task, "spans": self.spans}) + "\n")
        self.task = -1


NOTES = Notes()


def _now() -> tuple[float, float]:
    return time.time(), time.process_time()


def noted(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        began = _now()
        try:
            return call(*args, **kwargs)
        finally:
            NOTES.note(label, began)

    return run


def noted_elements(label: str, elements: Iterator[Any]) -> Iterator[Any]:
    while True:
        began = _now()
        try:
            element = next(elements)
        except StopIteration:
            return
        finally:
            NOTES.note(label, began)
        yield element


def noted_generator(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from noted_elements(label, iter(call(*args, **kwargs)))

    return run


def noted_source(label: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def run(*args: Any) -> Any:
        return call(*args[:-1], noted_elements(label, iter(args[-1])))

    return run


def replace_each(calls: Iterable[Call], by: Callable[..., Any]) -> list[tuple[Any, str, Any]]:
    """Note these calls from now on. Returns what was there before: an owner, a name, and the function."""
    before = []
    for label, module, name in calls:
        owner: Any = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        before.append((owner, last, getattr(owner, last)))
        setattr(owner, last, by(label, getattr(owner, last)))
    return before


@contextmanager
def replaced(calls: Iterable[Call], by: Callable[..., Any]) -> Iterator[None]:
    """Note these calls within the block."""
    before = replace_each(calls, by)
    try:
        yield
    finally:
        for owner, name, function in reversed(before):
            setattr(owner, name, function)


def install() -> None:
    """Note the calls of this process from now on."""
    replace_each(CALLS, noted)
    replace_each(GENERATORS, noted_generator)
    replace_each(SOURCES, noted_source)


def watch_worker() -> None:
    """Begin with the message that starts a task, and end when the worker is ready for the next one.

    Our calls are noted once our code is there: workers of other competitors shall not load it.
    """
    from pyspark import worker

    decode = worker.WorkerInitInfo.from_stream

    def decoded(stream: Any) -> Any:
        began = _now()
        info = decode(stream)
        NOTES.begin(info.task_context.task_attempt_id)
        NOTES.began = began
        return info

    # Functions of modules that have no other hook.
    patched: Any = worker
    patched.WorkerInitInfo.from_stream = decoded
    unpickle, installed = noted("unpickle", worker.read_udfs), False

    def unpickled(*args: Any) -> Any:
        nonlocal installed
        found = unpickle(*args)
        if not installed and CALLS[0][1] in sys.modules:
            install()
            installed = True
        return found

    patched.read_udfs = unpickled
    # The last thing that PySpark does for a task in a worker that it uses again.
    collect = noted("garbage", gc.collect)

    def collected(*args: Any) -> int:
        if args:
            return int(gc_collect(*args))
        found = int(collect())
        NOTES.end()
        return found

    collector: Any = gc
    gc_collect, collector.collect = gc.collect, collected


def main() -> None:
    from pyspark import daemon

    serve, watched = daemon.worker, False

    def watch(*args: Any) -> int:
        nonlocal watched
        if not watched:
            # After the fork: PySpark imports what starts threads there too.
            watch_worker()
            watched = True
        return int(serve(*args))

    patched: Any = daemon
    patched.worker = watch
    daemon.manager()


if __name__ == "__main__":
    main()
