"""Read the job file of a hub: TOML in, a `HubJob` out.

[inputs.R]   format, path, schema, where, columns, options: as of a join's job
[hub]        state, name, tasks, time, lateness, retain, commands
[queries]    id = "SELECT ..."
[sink]       format, path, options: the answers of all queries; or
[deliver]    path, format: a folder for each query
[job]        name, checkpoint, trigger
[spark]      spark.* settings
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from watersmeet.engine.hub import HubOptions, check_queries
from watersmeet.engine.inputs import check_names
from watersmeet.errors import ConfigError, UsageError
from watersmeet.jobs.model import Delivery, HubJob, Sink, Source
from watersmeet.jobs.parts import PartsReader, parse_toml, read_toml, trigger_of
from watersmeet.jobs.table import TomlTable, refuse_unknown
from watersmeet.log.names import STATE_IN_CHECKPOINT

_TABLES = ("inputs", "hub", "queries", "sink", "deliver", "job", "spark")
_WORDS = {"input": "inputs", "streams": "inputs", "output": "sink", "delivery": "deliver", "session": "spark"}
_HUB_KEYS = ("state", "name", "tasks", "time", "lateness", "retain", "commands")
_DELIVER_KEYS = ("path", "format")
_JOB_KEYS = ("name", "checkpoint", "trigger")


def load_hub_job(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> HubJob:
    """Read and check the job file of a hub."""
    return _job(*read_toml(path), os.environ if env is None else env)


def parse_hub_job(text: str, file: Path, env: Mapping[str, str]) -> HubJob:
    """Parse the job of a hub. `file` names it in messages and is the base of relative paths."""
    return _job(file, parse_toml(text, file), env)


def _job(file: Path, tables: dict[str, Any], env: Mapping[str, str]) -> HubJob:
    if "join" in tables:
        raise ConfigError(f"{file.name} has a table [join]: it is a job of `watersmeet run`")
    refuse_unknown(file.name, tables, _TABLES, _WORDS)
    return _HubJobReader(file, env).job(tables)


class _HubJobReader(PartsReader):
    def job(self, tables: dict[str, Any]) -> HubJob:
        spark = self.spark(tables.get("spark", {}))
        inputs = self._inputs(tables)
        sink = self._sink_or_delivery(tables)
        own = self.table(tables, "job", _JOB_KEYS, {"checkpointlocation": "checkpoint"})
        checkpoint = self.path(own, "checkpoint", own.text("checkpoint"))
        table = TomlTable(self.name("hub"), tables.get("hub", {}), _HUB_KEYS)
        given = table.optional_text("state") or spark.get("spark.watersmeet.state")
        state = self.path(table, "state", given or f"{checkpoint.rstrip('/')}/{STATE_IN_CHECKPOINT}")
        commands = table.optional_text("commands")
        return HubJob(
            file=self.file,
            name=own.optional_text("name") or self.file.stem,
            inputs=inputs,
            hub=self._hub(table, tables.get("queries", {}), state),
            sink=sink,
            checkpoint=checkpoint,
            state=state,
            commands=None if commands is None else self.path(table, "commands", commands),
            trigger=trigger_of(own),
            spark=spark,
        )

    def _inputs(self, tables: dict[str, Any]) -> tuple[Source, ...]:
        found = tables.get("inputs", {})
        if not isinstance(found, dict) or not found:
            raise ConfigError(f"{self.file.name} needs streams, each in a table such as [inputs.R]")
        try:
            check_names(found)
        except UsageError as error:
            raise ConfigError(f"{self.file.name}: [inputs]: {error}") from error
        sources = tuple(self.source(name, values) for name, values in found.items())
        for source in sources:
            if source.native:
                raise ConfigError(
                    f"{self.name(f'inputs.{source.name}')}: a hub has no native inputs: remove native"
                )
        return sources

    def _hub(self, table: TomlTable, queries: Any, state: str) -> HubOptions:
        try:
            check_queries(queries)
        except UsageError as error:
            raise ConfigError(f"{self.name('queries')}: {error}") from error
        try:
            return HubOptions(
                queries,
                state,
                table.optional_text("name"),
                table.count("tasks"),
                table.names("time"),
                lateness=table.length("lateness"),
                retain=table.length("retain"),
            )
        except ConfigError:
            raise
        except UsageError as error:
            raise ConfigError(f"{table.where}: {error}") from error

    def _sink_or_delivery(self, tables: dict[str, Any]) -> Sink | Delivery:
        if ("sink" in tables) == ("deliver" in tables):
            raise ConfigError(
                f"{self.file.name} needs one of the tables [deliver], a folder for each query, and [sink], a sink of Spark"
            )
        if "sink" in tables:
            return self.sink(tables)
        table = self.table(tables, "deliver", _DELIVER_KEYS, {"place": "path", "location": "path"})
        return Delivery(
            self.path(table, "path", table.text("path")), table.optional_text("format") or "parquet"
        )
