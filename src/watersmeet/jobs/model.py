"""A job, as facts. Option values are kept as they were written: `${NAME}` is filled in when Spark gets them.

So a job can be printed, compared and put into an error message without giving a credential away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from watersmeet.engine.options import JoinOptions
from watersmeet.tables.spec import Address

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """One input: `where` sees the source's own columns, then `columns` are selected (both Spark SQL)."""

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    where: str | None = None
    columns: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableSource:
    """An input that is a table: `place` is a path, a URI or `env:NAME`, `table` names it in a database."""

    name: str
    place: Address
    keys: tuple[str, ...]
    table: str | None = None
    refresh: str | int | None = None
    in_place: bool | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    format: str
    path: str | None = None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """Join what is there, in as many batches as the sources ask for, and end."""


@dataclass(frozen=True, slots=True)
class Every:
    """Begin a batch every `interval`; at once, if the last one took longer. "0 seconds" never waits."""

    interval: str = "0 seconds"


Trigger = AvailableNow | Every


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that `watersmeet run` needs. Paths are absolute, or URIs."""

    file: Path
    name: str
    inputs: tuple[Source | TableSource, ...]
    join: JoinOptions
    sink: Sink
    checkpoint: str
    state: str
    trigger: Trigger = Every()
    spark: Options = field(default_factory=dict)

    @property
    def join_name(self) -> str:
        """The join's place in the state."""
        return self.join.name_for(source.name for source in self.inputs)
