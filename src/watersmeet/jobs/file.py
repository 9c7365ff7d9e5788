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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watersmeet.engine.inputs import check_names, check_number, check_tables
from watersmeet.engine.options import AUTO, How, JoinOptions
from watersmeet.errors import ConfigError, UsageError
from watersmeet.jobs.model import Job, Source, TableSource
from watersmeet.jobs.parts import PartsReader, parse_toml, read_toml, trigger_of
from watersmeet.jobs.secrets import expand
from watersmeet.jobs.table import TomlTable, refuse_unknown
from watersmeet.log.names import STATE_IN_CHECKPOINT
from watersmeet.log.storage import SCHEME
from watersmeet.tables.spec import Address

_TABLES = ("inputs", "join", "sink", "job", "spark")
_TABLE_KEYS = ("path", "key", "table", "refresh", "in_place", "page_rows", "page_bytes", "patience")
_TABLE_WORDS = {"keys": "key", "location": "path", "uri": "path"}
_JOIN_KEYS = (
    *("on", "select", "name", "tasks", "strategy", "cells", "mapping"),
    *("groups", "within", "time", "lateness", "how", "max_delay", "memory", "pay_within", "defer"),
)
_JOIN_WORDS = {"predicate": "on", "condition": "on", "columns": "select", "window": "within"}
_JOB_KEYS = ("name", "checkpoint", "state", "trigger")
_JOB_WORDS = {"checkpointlocation": "checkpoint"}


def load_job(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Job:
    """Read and check a job file."""
    return _job(*read_toml(path), os.environ if env is None else env)


def parse_job(text: str, file: Path, env: Mapping[str, str]) -> Job:
    """Parse a job. `file` names it in messages and is the base of relative paths."""
    return _job(file, parse_toml(text, file), env)


def _job(file: Path, tables: dict[str, Any], env: Mapping[str, str]) -> Job:
    refuse_unknown(file.name, tables, _TABLES, {"input": "inputs", "output": "sink", "session": "spark"})
    return _JoinReader(file, env).job(tables)


class _JoinReader(PartsReader):
    def job(self, tables: dict[str, Any]) -> Job:
        spark = self.spark(tables.get("spark", {}))
        inputs = self._inputs(tables)
        sink = self.sink(tables)
        own = self.table(tables, "job", _JOB_KEYS, _JOB_WORDS)
        checkpoint = self.path(own, "checkpoint", own.text("checkpoint"))
        given = own.optional_text("state") or spark.get("spark.watersmeet.state")
        state = self.path(own, "state", given or f"{checkpoint.rstrip('/')}/{STATE_IN_CHECKPOINT}")
        return Job(
            file=self.file,
            name=own.optional_text("name") or self.file.stem,
            inputs=inputs,
            join=self._join(tables, state),
            sink=sink,
            checkpoint=checkpoint,
            state=state,
            trigger=trigger_of(own),
            spark=spark,
        )

    def _inputs(self, tables: dict[str, Any]) -> tuple[Source | TableSource, ...]:
        found = tables.get("inputs", {})
        if not isinstance(found, dict) or len(found) < 2:
            raise ConfigError(
                f"{self.file.name} needs two or more inputs, each in a table such as [inputs.o]"
            )
        try:
            check_number(found)
            check_names(found)
            # As `_input` tells a table from a stream.
            check_tables(
                found, [n for n, values in found.items() if isinstance(values, dict) and "key" in values]
            )
        except UsageError as error:
            raise ConfigError(f"{self.file.name}: [inputs]: {error}") from error
        return tuple(self._input(name, values) for name, values in found.items())

    def _input(self, name: str, values: Any) -> Source | TableSource:
        if isinstance(values, dict) and "key" in values:
            return self._table_input(name, values)
        return self.source(name, values)

    def _table_input(self, name: str, values: dict[str, Any]) -> TableSource:
        table = TomlTable(self.name(f"inputs.{name}"), values, _TABLE_KEYS, _TABLE_WORDS)
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
        if not SCHEME.match(text):
            return Address(self.path(table, "path", text))
        expand(text, self.env, f"{table.where}, key path,")
        return Address(text)

    def _join(self, tables: dict[str, Any], state: str) -> JoinOptions:
        table = self.table(tables, "join", _JOIN_KEYS, _JOIN_WORDS)
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
