"""What tasks know of a hub besides its state: its streams, and the queries that it is started with."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.hubs.catalogue import ADD, Command
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.stored import hub_signature
from watersmeet.hubs.templates import TemplateReader
from watersmeet.model.keep import Keep
from watersmeet.model.signature import JoinSignature
from watersmeet.model.types import Schema


@dataclass(frozen=True)
class HubStreams:
    """The streams of a hub with their columns. It stands where a join has its kernel.

    `times` names the column with the publication time of a stream's rows; the rows of other streams have the time of
    their batch. `lateness` says in microseconds how far rows may be behind the newest of their stream, and `retain` how
    much longer they are kept than queries need them (hubs/retained.py). `given` are the ids and texts of the queries at
    this start. `keep` says whether steps are kept (hubs/keep_choice.py). `places` are the numbers of indexes in the state,
    by stream and column.
    """

    schemas: Mapping[str, Schema]
    times: Mapping[str, str] = field(default_factory=dict)
    given: tuple[tuple[str, str], ...] = ()
    ansi: bool = True
    case_sensitive: bool = False
    lateness: int = 0
    places: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    retain: int | None = None
    keep: str = Keep.AUTO

    @property
    def signature(self) -> JoinSignature:
        return hub_signature(self.schemas, self.times, self.places)

    @functools.cached_property
    def attributes(self) -> Attributes:
        return Attributes.of(self.schemas, self.places)

    def reader(self) -> TemplateReader:
        """What reads the texts of queries. It keeps the templates that it has parsed."""
        return TemplateReader(self.schemas, self.ansi, self.case_sensitive)

    @property
    def commands(self) -> list[Command]:
        """The queries of this start, as commands."""
        return [Command(ADD, id_, sql, given=True) for id_, sql in self.given]
