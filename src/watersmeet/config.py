"""Settings: the one place that reads them. Every `spark.watersmeet.*` setting is an argument too.

An argument wins over the session's setting, which wins over the default; platforms that refuse unknown
settings can be served with arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from watersmeet.engine.spec import RETAIN_BATCHES, RUN_BYTES, Settings
from watersmeet.errors import ConfigError

PREFIX = "spark.watersmeet."

# Asks the session for a setting; None where it is not set.
Lookup = Callable[[str], str | None]


def read_settings(lookup: Lookup, *, state: str | None, tasks: int | None) -> Settings:
    """All settings of one operator, from arguments and the session."""
    retain = lookup("spark.sql.streaming.minBatchesToRetain")
    return Settings(
        state=_state(lookup, state),
        tasks=_tasks(lookup, tasks),
        cache=lookup(PREFIX + "cache"),
        fsync=_flag(lookup, "fsync", default=False),
        retain_batches=int(retain) if retain else RETAIN_BATCHES,
        run_bytes=_number(lookup, "runBytes", RUN_BYTES),
        grace_s=float(_number(lookup, "graceSeconds", 600)),
        accept_gap=_flag(lookup, "acceptGap", default=False),
    )


def _state(lookup: Lookup, state: str | None) -> str:
    found = state or lookup(PREFIX + "state") or lookup("spark.sql.streaming.checkpointLocation")
    if not found:
        raise ConfigError(
            "a streaming join needs a place for its state: pass state= (a directory or URI that every executor "
            "can reach), or set spark.watersmeet.state or spark.sql.streaming.checkpointLocation"
        )
    return str(found)


def _tasks(lookup: Lookup, tasks: int | None) -> int:
    if tasks is None:
        tasks = _number(lookup, "tasks", 0) or _default_tasks(lookup)
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ConfigError(f"tasks must be a whole number from 1 up, not {tasks!r}")
    return tasks


def _default_tasks(lookup: Lookup) -> int:
    """As many as there are cores, where the session says so; else Spark's shuffle partitions."""
    local = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", lookup("spark.master") or "")
    if local:
        return int(local[1])
    parallelism = lookup("spark.default.parallelism")
    if parallelism and parallelism.isdigit():
        return int(parallelism)
    executors, cores = lookup("spark.executor.instances"), lookup("spark.executor.cores")
    if executors and cores:
        return int(executors) * int(cores)
    return int(lookup("spark.sql.shuffle.partitions") or 200)


def _number(lookup: Lookup, name: str, default: int) -> int:
    text = lookup(PREFIX + name)
    if text is None:
        return default
    if not text.isdigit():
        raise ConfigError(f"{PREFIX}{name} must be a whole number, not {text!r}")
    return int(text)


def _flag(lookup: Lookup, name: str, *, default: bool) -> bool:
    text = lookup(PREFIX + name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{PREFIX}{name} must be true or false, not {text!r}")
    return text.lower() == "true"
