"""Read a job file: TOML in, a `Job` out, or a message that names the file, the table, the key and what to do.

    [inputs.o]   format, path, schema, where, columns, options, native
    [inputs.p]   ..., or for a table path, key, table, refresh, in_place, page_rows, page_bytes, patience
    [join]       on, select, name, tasks, strategy, cells, mapping, groups, within, time, lateness, how, max_delay,
                 memory, pay_within, defer
    [sink]       format, path, options, mode
    [job]        name, checkpoint, state, trigger
    [spark]      spark.* settings

`where`, `columns`, `on` and `select` are Spark SQL and run with the job's rights: treat a job file as a program. Paths
are relative to the file. `${NAME}` in paths, options and settings is an environment variable. All of them must be set
when the file is read, but only paths are filled in here (see `jobs/model.py`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.options import AUTO, How, JoinOptions
from watersmeet.errors import ConfigError, UsageError
from watersmeet.jobs.model import AvailableNow, Every, Job, Options, Sink, Source, TableSource, Trigger
from watersmeet.jobs.secrets import expand, expand_all
from watersmeet.jobs.table import TomlTable, did_you_mean, flatten, refuse_unknown
from watersmeet.log.names import STATE_IN_CHECKPOINT
from watersmeet.tables.spec import Address

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLES = ("inputs", "join", "sink", "job", "spark")
_INPUT_KEYS = ("format", "path", "schema", "where", "columns", "options", "native")
# Options of an input with `native = true`, by the names that Spark's file source has for them.
_NATIVE_OPTIONS = ("maxFilesPerTrigger", "maxBytesPerTrigger", "header", "order", "movedFrom")
_TABLE_KEYS = ("path", "key", "table", "refresh", "in_place", "page_rows", "page_bytes", "patience")
_TABLE_WORDS = {"keys": "key", "location": "path", "uri": "path"}
_INPUT_WORDS = {
    "select": "columns",
    "filter": "where",
    "location": "path",
    "topic": "options",
    "type": "format",
}
_JOIN_KEYS = (
    *("on", "select", "name", "tasks", "strategy", "cells", "mapping"),
    *("groups", "within", "time", "lateness", "how", "max_delay", "memory", "pay_within", "defer"),
)
_JOIN_WORDS = {"predicate": "on", "condition": "on", "columns": "select", "window": "within"}
_SINK_KEYS = ("format", "path", "options", "mode")
_JOB_KEYS = ("name", "checkpoint", "state", "trigger")
_JOB_WORDS = {"checkpointlocation": "checkpoint"}

# Formats whose files carry no column types. Guessing them at each start would not be stable.
_NEED_SCHEMA = ("csv", "json", "xml")

# Sinks that write to a directory.
_NEED_PATH = ("parquet", "orc", "json", "csv", "text", "avro")

_AT_ONCE = "as fast as possible"
_TRIGGERS = ("once", "available-now", _AT_ONCE, "5 seconds")
_INTERVAL = re.compile(r"\d+ (millisecond|second|minute|hour|day)s?")

# At least two letters, so that a Windows drive is not a scheme.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

# A column by its name, as against an expression.
_COLUMN = re.compile(r"\w+")


def load_job(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Job:
    """Read and check a job file."""
    file = Path(path).absolute()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no job file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the job file {file}: {error}") from error
    return parse_job(text, file, os.environ if env is None else env)


def parse_job(text: str, file: Path, env: Mapping[str, str]) -> Job:
    """Parse a job. `file` names it in messages and is the base of relative paths."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file.name} is not valid TOML: {error}") from error
    refuse_unknown(file.name, tables, _TABLES, {"input": "inputs", "output": "sink", "session": "spark"})
    return _Reader(file, env).job(tables)


class _Reader:
    def __init__(self, file: Path, env: Mapping[str, str]):
        self._file = file
        self._env = env

    def job(self, tables: dict[str, Any]) -> Job:
        spark = self._spark(tables.get("spark", {}))
        inputs = self._inputs(tables)
        sink = self._sink(tables)
        own = self._table(tables, "job", _JOB_KEYS, _JOB_WORDS)
        checkpoint = self._path(own, "checkpoint", own.text("checkpoint"))
        given = own.optional_text("state") or spark.get("spark.watersmeet.state")
        state = self._path(own, "state", given or f"{checkpoint.rstrip('/')}/{STATE_IN_CHECKPOINT}")
        return Job(
            file=self._file,
            name=own.optional_text("name") or self._file.stem,
            inputs=inputs,
            join=self._join(tables, state),
            sink=sink,
            checkpoint=checkpoint,
            state=state,
            trigger=_trigger(own),
            spark=spark,
        )

    def _inputs(self, tables: dict[str, Any]) -> tuple[Source | TableSource, ...]:
        found = tables.get("inputs", {})
        if not isinstance(found, dict) or len(found) < 2:
            raise ConfigError(
                f"{self._file.name} needs two or more inputs, each in a table such as [inputs.o]"
            )
        try:
            check_number(found)
            check_names(found)
            # As `_input` tells a table from a stream.
            check_tables(
                found, [n for n, values in found.items() if isinstance(values, dict) and "key" in values]
            )
        except UsageError as error:
            raise ConfigError(f"{self._file.name}: [inputs]: {error}") from error
        return tuple(self._input(name, values) for name, values in found.items())

    def _input(self, name: str, values: Any) -> Source | TableSource:
        if isinstance(values, dict) and "key" in values:
            return self._table_input(name, values)
        table = TomlTable(self._name(f"inputs.{name}"), values, _INPUT_KEYS, _INPUT_WORDS)
        form, schema = table.text("format"), table.optional_text("schema")
        if form.lower() in _NEED_SCHEMA and schema is None:
            raise ConfigError(
                f"{table.where} lacks the key 'schema': {form} files carry no column types; "
                'add them, such as schema = "id BIGINT, price DOUBLE"'
            )
        source = Source(
            name=name,
            format=form,
            path=self._optional_path(table),
            schema=schema,
            where=table.optional_text("where"),
            columns=table.texts("columns") or (),
            options=self._options(table),
            native=table.flag("native") or False,
        )
        if source.native:
            _check_native(source, table.where)
        return source

    def _table_input(self, name: str, values: dict[str, Any]) -> TableSource:
        table = TomlTable(self._name(f"inputs.{name}"), values, _TABLE_KEYS, _TABLE_WORDS)
        keys = table.texts("key") if isinstance(values["key"], list) else (table.text("key"),)
        return TableSource(
            name=name,
            place=self._place(table),
            keys=keys or (),
            table=table.optional_text("table"),
            refresh=table.length("refresh"),
            in_place=table.flag("in_place"),
            page_rows=table.count("page_rows"),
            page_bytes=table.count("page_bytes"),
            patience=table.length("patience"),
        )

    def _place(self, table: TomlTable) -> Address:
        """The address of a table. A URI's variables are filled in when it is opened, as they may be credentials."""
        text = table.text("path")
        if not _SCHEME.match(text):
            return Address(self._path(table, "path", text))
        expand(text, self._env, f"{table.where}, key path,")
        return Address(text)

    def _join(self, tables: dict[str, Any], state: str) -> JoinOptions:
        table = self._table(tables, "join", _JOIN_KEYS, _JOIN_WORDS)
        try:
            return JoinOptions(
                on=table.text("on"),
                name=table.optional_text("name"),
                state=state,
                select=table.texts("select"),
                tasks=table.count("tasks"),
                strategy=table.optional_text("strategy") or AUTO,
                cells=table.count("cells"),
                mapping=table.pair("mapping"),
                groups=table.count("groups"),
                within=table.length("within"),
                time=table.names("time"),
                lateness=table.length("lateness"),
                how=table.optional_text("how") or How.INNER,
                max_delay=table.length("max_delay"),
                memory=table.size("memory"),
                pay_within=table.length("pay_within"),
                defer=table.length("defer"),
            )
        except ConfigError:
            raise
        except UsageError as error:
            raise ConfigError(f"{table.where}: {error}") from error

    def _sink(self, tables: dict[str, Any]) -> Sink:
        table = self._table(tables, "sink", _SINK_KEYS, {"outputmode": "mode", "location": "path"})
        form, path = table.text("format"), self._optional_path(table)
        if (mode := table.optional_text("mode") or "append") != "append":
            raise ConfigError(
                f"{table.where}: mode is {mode!r}, but a join only ever appends: leave mode out"
            )
        if form.lower() in _NEED_PATH and path is None:
            raise ConfigError(f"{table.where} lacks the key 'path': give the directory for the {form} files")
        return Sink(form, path, self._options(table))

    def _spark(self, values: Any) -> Options:
        where = self._name("spark")
        if not isinstance(values, dict):
            raise ConfigError(f"{where} must be a table of spark.* settings")
        settings = flatten(where, values)
        for key in settings:
            if not key.startswith("spark."):
                raise ConfigError(f"{where} has no key {key!r}; did you mean 'spark.{key}'?")
        expand_all(settings, self._env, where)
        return settings

    def _options(self, table: TomlTable) -> Options:
        options = table.options("options")
        expand_all(options, self._env, table.where)
        return options

    def _optional_path(self, table: TomlTable) -> str | None:
        path = table.optional_text("path")
        return None if path is None else self._path(table, "path", path)

    def _path(self, table: TomlTable, key: str, text: str) -> str:
        """An absolute path; a URI stays as it is."""
        filled = expand(text, self._env, f"{table.where}, key {key},")
        if _SCHEME.match(filled):
            return filled
        return os.path.normpath(self._file.parent / Path(filled).expanduser())

    def _table(
        self, tables: dict[str, Any], name: str, known: tuple[str, ...], also: Mapping[str, str]
    ) -> TomlTable:
        if name not in tables:
            raise ConfigError(f"{self._file.name} lacks the table [{name}]")
        return TomlTable(self._name(name), tables[name], known, also)

    def _name(self, table: str) -> str:
        return f"{self._file.name}: [{table}]"


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


def _trigger(table: TomlTable) -> Trigger:
    text = table.optional_text("trigger") or _AT_ONCE
    word = " ".join(text.lower().split())
    if word in ("once", "available-now"):
        return AvailableNow()
    if word in (_AT_ONCE, f"continuous {_AT_ONCE}"):
        return Every()
    if _INTERVAL.fullmatch(word):
        return Every(word)
    raise ConfigError(f"{table.where}: trigger cannot be {text!r}{did_you_mean(text, _TRIGGERS)}")
