"""Settings: the one place that reads them. Every `spark.watersmeet.*` setting is an argument too.

`state=` and `tasks=` are arguments of their own, the others go into `options={"fsync": True}`. An argument
wins over the session's setting, which wins over the default; platforms that refuse unknown settings can be
served with arguments alone.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping

from watersmeet.engine.kept_table import PAGE_MEMORY
from watersmeet.engine.spec import RETAIN_BATCHES, RUN_BYTES, Settings
from watersmeet.errors import ConfigError
from watersmeet.plan.grid import GridPolicy, dynamic

PREFIX = "spark.watersmeet."

# Where state goes without `state=`.
_PLACES = (f"{PREFIX}state", "spark.sql.streaming.checkpointLocation")

# Asks the session for a setting; None where it is not set.
Lookup = Callable[[str], str | None]


# The settings below PREFIX that `options=` takes.
OPTIONS = (
    "acceptGap",
    "cache",
    "fsync",
    "graceSeconds",
    "gridCapacityBytes",
    "gridEpsilon",
    "gridMaxCells",
    "gridMinRows",
    "memory",
    "runBytes",
)


def read_settings(
    lookup: Lookup, *, state: str | None, tasks: int | None, options: Mapping[str, object] | None = None
) -> Settings:
    """All settings of one operator, from arguments and the session."""
    lookup = _with_options(lookup, options or {})
    return Settings(
        state=_state(lookup, state),
        tasks=_tasks(lookup, tasks),
        cache=lookup(PREFIX + "cache"),
        fsync=_flag(lookup, "fsync", default=False),
        retain_batches=_whole("spark.sql.streaming.minBatchesToRetain", lookup, RETAIN_BATCHES),
        run_bytes=_number(lookup, "runBytes", RUN_BYTES),
        grace_s=float(_number(lookup, "graceSeconds", 600)),
        accept_gap=_flag(lookup, "acceptGap", default=False),
    )


def read_grid_policy(lookup: Lookup, options: Mapping[str, object] | None = None) -> GridPolicy:
    """How a grid that is not told its mapping adapts."""
    lookup = _with_options(lookup, options or {})
    capacity, most = _number(lookup, "gridCapacityBytes", 0), _number(lookup, "gridMaxCells", 0)
    if bool(capacity) != bool(most):
        raise ConfigError(
            f"{PREFIX}gridCapacityBytes and {PREFIX}gridMaxCells go together: the grid grows when a cell is full, "
            "up to so many cells"
        )
    return dynamic(
        epsilon=_share(lookup, "gridEpsilon", 1.0),
        min_rows=_number(lookup, "gridMinRows", 0),
        capacity_bytes=capacity or None,
        max_cells=most,
    )


def read_memory(lookup: Lookup, memory: int | str | None, options: Mapping[str, object] | None = None) -> int:
    """What a task may keep of a table, in bytes; `"64 MB"` is read too."""
    lookup = _with_options(lookup, options or {})
    given = lookup(PREFIX + "memory") if memory is None else memory
    if given is None:
        return PAGE_MEMORY
    found = re.fullmatch(r"(\d+)\s*([kmg]?)i?b?", str(given).strip().lower())
    if isinstance(given, bool) or not found or not int(found[1]):
        raise ConfigError(f'memory={given!r}: give a number of bytes, or such as "64 MB"')
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def has_place(lookup: Lookup, state: str | None) -> bool:
    """Whether it is known where state would go."""
    return any((state, *(lookup(key) for key in _PLACES)))


def _with_options(lookup: Lookup, options: Mapping[str, object]) -> Lookup:
    """The session's settings with the caller's options before them."""
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"; did you mean {near[0]}?" if near else f": use {', '.join(OPTIONS)}"
            raise ConfigError(f"there is no option {name}{hint}")
    given = {PREFIX + name: _text(value) for name, value in options.items()}
    return lambda key: given[key] if key in given else lookup(key)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _state(lookup: Lookup, state: str | None) -> str:
    found = state or next(filter(None, (lookup(key) for key in _PLACES)), None)
    if not found:
        raise ConfigError(
            "the join needs a place for its state: pass state= (a directory or URI that every executor "
            "can reach), or set spark.watersmeet.state or spark.sql.streaming.checkpointLocation"
        )
    return str(found)


def _tasks(lookup: Lookup, tasks: int | None) -> int:
    if tasks is None and lookup(PREFIX + "tasks") is not None:
        tasks = _number(lookup, "tasks", 0)
    if tasks is None:
        tasks = _default_tasks(lookup)
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ConfigError(f"tasks must be a whole number from 1 up, not {tasks!r}")
    return tasks


def _default_tasks(lookup: Lookup) -> int:
    """As many as there are cores, where the session says so; else Spark's shuffle partitions."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", lookup("spark.master") or "")
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    parallelism = lookup("spark.default.parallelism")
    if parallelism and parallelism.isdigit():
        return int(parallelism)
    executors, cores = lookup("spark.executor.instances"), lookup("spark.executor.cores")
    if executors and cores:
        return int(executors) * int(cores)
    return int(lookup("spark.sql.shuffle.partitions") or 200)


def _number(lookup: Lookup, name: str, default: int) -> int:
    return _whole(PREFIX + name, lookup, default)


def _whole(key: str, lookup: Lookup, default: int) -> int:
    text = lookup(key)
    if text is None:
        return default
    if not text.isdigit():
        raise ConfigError(f"{key} must be a whole number, not {text!r}")
    return int(text)


def _share(lookup: Lookup, name: str, default: float) -> float:
    text = lookup(PREFIX + name)
    try:
        share = default if text is None else float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{PREFIX}{name} must be above 0 and at most 1, not {text!r}")
    return share


def _flag(lookup: Lookup, name: str, *, default: bool) -> bool:
    text = lookup(PREFIX + name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{PREFIX}{name} must be true or false, not {text!r}")
    return text.lower() == "true"
