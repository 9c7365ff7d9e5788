"""What the files of all jobs have in common: inputs, sinks, options, paths, triggers and settings of Spark.

`jobs/file.py` reads the jobs of joins with it, `jobs/hub_file.py` those of hubs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watersmeet.errors import ConfigError
from watersmeet.jobs.model import AvailableNow, Every, Options, Sink, Source, Trigger
from watersmeet.jobs.secrets import expand, expand_all
from watersmeet.jobs.table import TomlTable, did_you_mean, flatten, refuse_unknown
from watersmeet.log.storage import SCHEME

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_INPUT_KEYS = ("format", "path", "schema", "where", "columns", "options", "native")

# Options of an input with `native = true`, by the names that Spark's file source has for them.
_NATIVE_OPTIONS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "header", "order", "movedFrom")

_INPUT_WORDS = {
    "select": "columns",
    "filter": "where",
    "location": "path",
    "topic": "options",
    "type": "format",
}

_SINK_KEYS = ("format", "path", "options", "mode")

# Formats whose files carry no column types. Guessing them at each start would not be stable.
_NEED_SCHEMA = ("csv", "json", "xml")

# Sinks that write to a directory.
_NEED_PATH = ("parquet", "orc", "json", "csv", "text", "avro")

_AT_ONCE = "as fast as possible"

_TRIGGERS = ("once", "available-now", _AT_ONCE, "5 seconds")

_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")

# A column by its name, as against an expression.
_COLUMN = re.compile(r"\w+")


def read_toml(path: str | os.PathLike[str]) -> tuple[Path, dict[str, Any]]:
    """The absolute path of a job file, and its tables."""
    file = Path(path).absolute()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no job file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the job file {file}: {error}") from error
    return file, parse_toml(text, file)


def parse_toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The line is not shown: it may hold a credential.
        hint = '; a text stands in quotes: path = "orders"' if str(error).startswith("Invalid value") else ""
        raise ConfigError(f"{file.name} is not valid TOML: {error}{hint}") from error


class PartsReader:
    """Reads the parts of a job file. `file` names it in messages and is the base of relative paths."""

    def __init__(self, file: Path, env: Mapping[str, str]):
        self.file = file
        self.env = env

    def source(self, name: str, values: Any) -> Source:
        """An input that is a stream."""
        table = TomlTable(self.name(f"inputs.{name}"), values, _INPUT_KEYS, _INPUT_WORDS)
        form, schema = table.text("format"), table.optional_text("schema")
        if form.lower() in _NEED_SCHEMA and schema is None:
            raise ConfigError(
                f"{table.where} lacks the key 'schema': {form} files carry no column types; "
                'add them, such as schema = "id BIGINT, price DOUBLE"'
            )
        source = Source(
            name=name,
            format=form,
            path=self.optional_path(table),
            schema=schema,
            where=table.optional_text("where"),
            columns=table.texts("columns") or (),
            options=self.options(table),
            native=table.flag("native") or False,
        )
        if source.native:
            _check_native(source, table.where)
        return source

    def sink(self, tables: dict[str, Any]) -> Sink:
        table = self.table(tables, "sink", _SINK_KEYS, {"outputmode": "mode", "location": "path"})
        form, path = table.text("format"), self.optional_path(table)
        if (mode := table.optional_text("mode") or "append") != "append":
            raise ConfigError(
                f"{table.where}: mode is {mode!r}, but results are only ever appended: leave mode out"
            )
        if form.lower() in _NEED_PATH and path is None:
            raise ConfigError(f"{table.where} lacks the key 'path': give the directory for the {form} files")
        return Sink(form, path, self.options(table))

    def spark(self, values: Any) -> Options:
        where = self.name("spark")
        if not isinstance(values, dict):
            raise ConfigError(f"{where} must be a table of spark.* settings")
        settings = flatten(where, values)
        for key in settings:
            if not key.startswith("spark."):
                raise ConfigError(f"{where} has no key {key!r}; did you mean 'spark.{key}'?")
        expand_all(settings, self.env, where)
        return settings

    def options(self, table: TomlTable) -> Options:
        options = table.options("options")
        expand_all(options, self.env, table.where)
        return options

    def optional_path(self, table: TomlTable) -> str | None:
        path = table.optional_text("path")
        return None if path is None else self.path(table, "path", path)

    def path(self, table: TomlTable, key: str, text: str) -> str:
        """An absolute path; a URI stays as it is."""
        filled = expand(text, self.env, f"{table.where}, key {key},")
        if SCHEME.match(filled):
            return filled
        return os.path.normpath(self.file.parent / Path(filled).expanduser())

    def table(
        self, tables: dict[str, Any], name: str, known: tuple[str, ...], also: Mapping[str, str]
    ) -> TomlTable:
        if name not in tables:
            raise ConfigError(f"{self.file.name} lacks the table [{name}]")
        return TomlTable(self.name(name), tables[name], known, also)

    def name(self, table: str) -> str:
        return f"{self.file.name}: [{table}]"


def _check_native(source: Source, where: str) -> None:
    if source.path is None:
        raise ConfigError(f"{where} lacks the key 'path': native = true reads the files of a directory")
    refuse_unknown(f"{where}: options, with native = true,", source.options, _NATIVE_OPTIONS, {})
    for column in source.columns:
        if not _COLUMN.fullmatch(column):
            raise ConfigError(
                f"{where}: columns has {column!r}: with native = true, columns are names. Compute it in [join] select, or "
                "remove native"
            )


def trigger_of(table: TomlTable) -> Trigger:
    text = table.optional_text("trigger") or _AT_ONCE
    word = " ".join(text.lower().split())
    if word in ("once", "available-now"):
        return AvailableNow()
    if word in (_AT_ONCE, f"continuous {_AT_ONCE}"):
        return Every()
    if _INTERVAL.fullmatch(word):
        return Every(word)
    raise ConfigError(f"{table.where}: trigger cannot be {text!r}{did_you_mean(text, _TRIGGERS)}")
