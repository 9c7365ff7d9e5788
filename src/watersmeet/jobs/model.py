"""The facts of a job. Option values are kept as written: `${NAME}` is filled in when Spark gets them.

So a job can be printed, compared and quoted in an error message without showing a credential.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from watersmeet.engine.hub import HubOptions
from watersmeet.engine.options import JoinOptions
from watersmeet.tables.spec import Address

Options = dict[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """One input. `where` sees the source's own columns, then `columns` are selected (both Spark SQL).

    If it is `native`, the tasks of the join read the files themselves (`wm.files`), and `columns` are names.
    """

    name: str
    format: str
    path: str | None = None
    schema: str | None = None
    where: str | None = None
    columns: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    native: bool = False


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table input: `place` is a path, a URI or `env:NAME`, `table` names it in a database."""

    name: str
    place: Address
    keys: tuple[str, ...]
    table: str | None = None
    refresh: str | int | None = None
    in_place: bool | None = None
    page_rows: int | None = None
    page_bytes: int | None = None
    patience: str | int | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    format: str
    path: str | None = None
    options: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """Join the present input, in as many batches as the sources ask for, and end."""


@dataclass(frozen=True, slots=True)
class Every:
    """Begin a batch every `interval`, or at once if the last one took longer. "0 seconds" never waits."""

    interval: str = "0 seconds"


Trigger = AvailableNow | Every


@dataclass(frozen=True, slots=True)
class Job:
    """The facts that `watersmeet run` needs. Paths are absolute, or URIs."""

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
    def stream_inputs(self) -> tuple[Source, ...]:
        return tuple(source for source in self.inputs if isinstance(source, Source))

    @property
    def sink_options(self) -> Options:
        return self.sink.options

    @property
    def beats(self) -> bool:
        """Whether a source without rows starts batches while the streams are idle."""
        waits = self.join.max_delay is not None and self.join.max_delay_ms > 0
        return waits or self.join.pay_within is not None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A place with a folder for each query, and the format of its files."""

    path: str
    format: str = "parquet"


@dataclass(frozen=True, slots=True)
class HubJob:
    """The facts that `watersmeet hub run` needs. Answers go to a sink of Spark, or a delivery."""

    file: Path
    name: str
    inputs: tuple[Source, ...]
    hub: HubOptions
    sink: Sink | Delivery
    checkpoint: str
    state: str
    commands: str | None = None
    trigger: Trigger = Every()
    spark: Options = field(default_factory=dict)

    @property
    def stream_inputs(self) -> tuple[Source, ...]:
        return self.inputs

    @property
    def sink_options(self) -> Options:
        return self.sink.options if isinstance(self.sink, Sink) else {}
