"""Watersmeet joins streams on Apache Spark."""

from watersmeet.api import configure, explain, foreach_batch, join, session_settings, sql, status
from watersmeet.errors import (
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
from watersmeet.files.spec import files
from watersmeet.tables.spec import table

__version__ = "0.1.0"

__all__ = [
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
    "join",
    "session_settings",
    "sql",
    "status",
    "table",
]
