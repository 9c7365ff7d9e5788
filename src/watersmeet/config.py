"""Read all settings. Each of them is also an argument.

`state=` and `tasks=` are arguments of their own, the others go into `options={"fsync": True}`. An argument overrides
the session's setting, which overrides the default. A managed platform may refuse to reveal a setting, even if asked
with a default. That counts as not set, and Spark's documented default is taken. So arguments alone are always enough.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from watersmeet.engine.kept_table import PAGE_MEMORY
from watersmeet.engine.options import check_tasks, read_bytes
from watersmeet.engine.spec import RUN_BYTES, SessionSettings, Settings, SqlSettings
from watersmeet.errors import ConfigError, UsageError
from watersmeet.log.clean import GRACE_S
from watersmeet.log.storage import STATE_MODE
from watersmeet.model.facts import BatchSpan
from watersmeet.model.keep import Keep
from watersmeet.model.limits import RETAIN_BATCHES
from watersmeet.schemes.budget.policy import MOST_GROUPS, Disk, Pushing, PushPolicy
from watersmeet.schemes.grid.policy import GridPolicy, dynamic

PREFIX = "spark.watersmeet."

# Settings that name the state directory if `state=` is not given.
_PLACES = (f"{PREFIX}state", "spark.sql.streaming.checkpointLocation")

# Returns a setting of the session; None if it is not set.
Conf = Callable[[str], str | None]

_ANSI = "spark.sql.ansi.enabled"
_CASE = "spark.sql.caseSensitive"
_ZONE = "spark.sql.session.timeZone"
_PARTITIONS = "spark.sql.shuffle.partitions"
_RETAIN = "spark.sql.streaming.minBatchesToRetain"

# Documented defaults of Spark 4, for a platform that does not reveal its own. Other platforms are asked, since Spark's
# defaults depend on its environment (SPARK_ANSI_SQL_MODE). The zone is that of the server's machine, so it is unknown.
SPARK_DEFAULTS = {_ANSI: "true", _CASE: "false", _ZONE: "", _PARTITIONS: "200", _RETAIN: str(RETAIN_BATCHES)}

# The names in `options=`, and the setting that each stands for.
OPTIONS = {
    **{
        name: PREFIX + name
        for name in (
            "acceptGap",
            "cache",
            "cacheBytes",
            "fsync",
            "graceSeconds",
            "gridCapacityBytes",
            "gridEpsilon",
            "gridMaxCells",
            "gridMinRows",
            "keep",
            "memory",
            "partitionGroups",
            "pushPolicy",
            "pushShare",
            "pushTiming",
            "runBytes",
            "stateMode",
        )
    },
    "ansi": _ANSI,
    "caseSensitive": _CASE,
    "minBatchesToRetain": _RETAIN,
    "timeZone": _ZONE,
}

_LOG = logging.getLogger(__name__)


def session_conf(session: Any) -> Conf:
    """The settings of a Spark session, classic or Connect. One that the platform does not reveal counts as not set."""

    def conf(key: str) -> str | None:
        try:
            # If asked with a default of ours, Spark would not return its own.
            found = session.conf.get(key) if key in SPARK_DEFAULTS else session.conf.get(key, None)
        except Exception as error:
            # Platforms raise their own classes. If the connection is broken, the next call fails too.
            _LOG.debug("the session does not reveal %s: %s", key, error)
            return None
        return None if found is None else str(found)

    return conf


def read_session(
    conf: Conf,
    *,
    state: str | None,
    tasks: int | None,
    memory: int | str | None = None,
    options: Mapping[str, object] | None = None,
) -> SessionSettings:
    """What a session says about a join; its arguments win."""
    return SessionSettings(
        sql=read_sql_settings(conf, options),
        has_place=has_place(conf, state),
        operator=lambda: read_settings(conf, state=state, tasks=tasks, options=options),
        memory=lambda: read_memory(conf, memory, options),
        adapting=lambda: read_grid_policy(conf, options),
        pushing=lambda: read_pushing(conf, options),
        keeping=lambda: read_keeping(conf, options),
    )


def read_sql_settings(conf: Conf, options: Mapping[str, object] | None = None) -> SqlSettings:
    """The settings that decide how Spark reads a predicate's text."""
    conf = _with_options(conf, options or {})
    return SqlSettings(
        ansi=_truth(_ANSI, conf, default=SPARK_DEFAULTS[_ANSI] == "true"),
        case_sensitive=_truth(_CASE, conf, default=SPARK_DEFAULTS[_CASE] == "true"),
        zone=conf(_ZONE) or SPARK_DEFAULTS[_ZONE],
    )


def read_settings(
    conf: Conf, *, state: str | None, tasks: int | None, options: Mapping[str, object] | None = None
) -> Settings:
    """All settings of one operator, from arguments and the session."""
    conf = _with_options(conf, options or {})
    return Settings(
        state=_state(conf, state),
        tasks=read_tasks(conf, tasks),
        cache=conf(PREFIX + "cache"),
        cache_bytes=_size(PREFIX + "cacheBytes", conf(PREFIX + "cacheBytes")),
        fsync=_flag(conf, "fsync", default=False),
        state_mode=_mode(conf),
        retain_batches=_whole(_RETAIN, conf, RETAIN_BATCHES),
        run_bytes=_number(conf, "runBytes", RUN_BYTES),
        grace_s=float(_number(conf, "graceSeconds", int(GRACE_S))),
        accept_gap=_spans(conf, "acceptGap"),
    )


def read_grid_policy(conf: Conf, options: Mapping[str, object] | None = None) -> GridPolicy:
    """The policy of a grid without a fixed mapping."""
    conf = _with_options(conf, options or {})
    capacity, most = _number(conf, "gridCapacityBytes", 0), _number(conf, "gridMaxCells", 0)
    if bool(capacity) != bool(most):
        raise ConfigError(
            f"{PREFIX}gridCapacityBytes and {PREFIX}gridMaxCells go together: the grid grows when a cell is full, "
            "up to gridMaxCells cells"
        )
    return dynamic(
        epsilon=_share(conf, "gridEpsilon", 1.0),
        min_rows=_number(conf, "gridMinRows", 0),
        capacity_bytes=capacity or None,
        max_cells=most,
    )


def read_pushing(conf: Conf, options: Mapping[str, object] | None = None) -> Pushing:
    """How a join of streams keeps to its `memory=`."""
    conf = _with_options(conf, options or {})
    default = Pushing()
    groups = _number(conf, "partitionGroups", default.groups)
    if not 1 <= groups <= MOST_GROUPS:
        raise ConfigError(f"{PREFIX}partitionGroups must be between 1 and {MOST_GROUPS}, not {groups}")
    policy = conf(PREFIX + "pushPolicy") or default.policy
    if policy not in tuple(PushPolicy):
        raise ConfigError(f"{PREFIX}pushPolicy must be one of {', '.join(PushPolicy)}, not {policy!r}")
    disk = conf(PREFIX + "pushTiming") or default.disk
    if disk not in tuple(Disk):
        raise ConfigError(f"{PREFIX}pushTiming must be one of {', '.join(Disk)}, not {disk!r}")
    share = _share(conf, "pushShare", default.share)
    return Pushing(groups, share, PushPolicy(policy), disk=Disk(disk))


def read_keeping(conf: Conf, options: Mapping[str, object] | None = None) -> str:
    """Whether a hub keeps steps."""
    keep = _with_options(conf, options or {})(PREFIX + "keep") or Keep.AUTO
    if keep not in tuple(Keep):
        raise ConfigError(f"{PREFIX}keep must be one of {', '.join(Keep)}, not {keep!r}")
    return str(keep)


def read_memory(conf: Conf, memory: int | str | None, options: Mapping[str, object] | None = None) -> int:
    """The memory of a task for a table or for its active state, in bytes. A text such as `"64 MB"` is accepted."""
    conf = _with_options(conf, options or {})
    given = conf(PREFIX + "memory") if memory is None else memory
    size = _size("memory", given)
    return PAGE_MEMORY if size is None else size


def has_place(conf: Conf, state: str | None) -> bool:
    """Whether a state directory is set."""
    return any((state, *(conf(key) for key in _PLACES)))


def _with_options(conf: Conf, options: Mapping[str, object]) -> Conf:
    """The session's settings, overridden by the caller's options."""
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"; did you mean {near[0]}?" if near else f": use {', '.join(OPTIONS)}"
            raise ConfigError(f"unknown option {name}{hint}")
    given = {OPTIONS[name]: _text(value) for name, value in options.items()}
    return lambda key: given[key] if key in given else conf(key)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _state(conf: Conf, state: str | None) -> str:
    found = state or next(filter(None, (conf(key) for key in _PLACES)), None)
    if not found:
        raise ConfigError(
            "the join needs a place for its state: pass state= (a directory or URI that every executor can reach), or "
            "set spark.watersmeet.state or spark.sql.streaming.checkpointLocation"
        )
    return str(found)


def read_tasks(conf: Conf, tasks: int | None) -> int:
    """The number of join tasks."""
    if tasks is None and conf(PREFIX + "tasks") is not None:
        tasks = _number(conf, "tasks", 0)
    if tasks is None:
        tasks = _default_tasks(conf)
    with _as_config_error():
        check_tasks(tasks)
    return tasks


def _default_tasks(conf: Conf) -> int:
    """The number of cores if the session reveals it, else Spark's shuffle partitions."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", conf("spark.master") or "")
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    parallelism = conf("spark.default.parallelism")
    if parallelism and parallelism.isdigit():
        return int(parallelism)
    executors, cores = conf("spark.executor.instances") or "", conf("spark.executor.cores") or ""
    if executors.isdigit() and cores.isdigit():
        return int(executors) * int(cores)
    partitions = conf(_PARTITIONS) or ""
    # Some platforms say "auto" here instead of a number.
    return int(partitions if partitions.isdigit() else SPARK_DEFAULTS[_PARTITIONS])


def _size(name: str, given: int | str | None) -> int | None:
    """A number of bytes, from a number or a text with a unit; None if not given."""
    if given is None:
        return None
    with _as_config_error():
        return read_bytes(name, given)


@contextlib.contextmanager
def _as_config_error() -> Iterator[None]:
    """A setting is refused in the words of the argument that it stands for."""
    try:
        yield
    except UsageError as error:
        raise ConfigError(str(error)) from None


def _mode(conf: Conf) -> int:
    """The mode of a new state directory. Its owner must be able to use it."""
    text = conf(PREFIX + "stateMode")
    if text is None:
        return STATE_MODE
    if not re.fullmatch(r"0?[0-2]?7[0-7][0-7]", text):
        raise ConfigError(
            f'{PREFIX}stateMode must be an octal mode with all rights for the owner, such as "750", not {text!r}'
        )
    return int(text, 8)


def _number(conf: Conf, name: str, default: int) -> int:
    return _whole(PREFIX + name, conf, default)


def _whole(key: str, conf: Conf, default: int) -> int:
    text = conf(key)
    if text is None:
        return default
    if not text.isdigit():
        raise ConfigError(f"{key} must be an integer, not {text!r}")
    return int(text)


def _share(conf: Conf, name: str, default: float) -> float:
    text = conf(PREFIX + name)
    try:
        share = default if text is None else float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"{PREFIX}{name} must be above 0 and at most 1, not {text!r}")
    return share


def _spans(conf: Conf, name: str) -> tuple[BatchSpan, ...]:
    """Parse batch numbers, such as `17`, `17-19` or `3,17-19`."""
    text = conf(PREFIX + name)
    if text is None or text.strip().lower() in ("", "false"):
        return ()
    found = [re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part) for part in text.split(",")]
    spans = [BatchSpan(int(one[1]), int(one[2] or one[1])) for one in found if one]
    if len(spans) < len(found) or any(span.last < span.first for span in spans):
        raise ConfigError(
            f"{PREFIX}{name} must name the batches whose rows may be missing, such as 17 or 17-19, not {text!r}. The "
            "message of StateMissing or StateBehind names them"
        )
    return tuple(spans)


def _flag(conf: Conf, name: str, *, default: bool) -> bool:
    return _truth(PREFIX + name, conf, default=default)


def _truth(key: str, conf: Conf, *, default: bool) -> bool:
    text = conf(key)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {text!r}")
    return text.lower() == "true"
