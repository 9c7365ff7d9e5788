"""Watersmeet joins streams on Apache Spark."""

from watersmeet.api import (
    configure,
    explain,
    foreach_batch,
    hub,
    join,
    owed,
    session_settings,
    settle,
    sql,
    status,
)
from watersmeet.errors import (
    ConditionError,
    ConfigError,
    CorruptFile,
    FileError,
    PredicateError,
    StateBehind,
    StateError,
    StateInUse,
    StateMismatch,
    StateMissing,
    TableError,
    UsageError,
    WatersmeetError,
)
from watersmeet.file_inputs.spec import files
from watersmeet.tables.spec import table

__version__ = "0.1.0"

__all__ = [
    "ConditionError",
    "ConfigError",
    "CorruptFile",
    "FileError",
    "PredicateError",
    "StateBehind",
    "StateError",
    "StateInUse",
    "StateMismatch",
    "StateMissing",
    "TableError",
    "UsageError",
    "WatersmeetError",
    "__version__",
    "configure",
    "explain",
    "files",
    "foreach_batch",
    "hub",
    "join",
    "owed",
    "session_settings",
    "settle",
    "sql",
    "status",
    "table",
]
