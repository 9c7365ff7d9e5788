"""The catalogues of a hub: read from its manifests, and written where commands change them.

Invariant: the catalogue of a batch follows from its parent and its commands alone, or is that of an earlier attempt on the
same parent (engine/hub_desk.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.spec import JoinSpec
from watersmeet.hubs.catalogue import Changed, HubCatalogue, apply_commands, commands_of
from watersmeet.hubs.changes import stored_schemas
from watersmeet.hubs.keep import Choices, numbered, with_choices
from watersmeet.hubs.stored import CATALOGUE, CATALOGUE_ROW, COMMAND_COLUMNS, COMMANDS, from_row, to_row
from watersmeet.hubs.streams import HubStreams
from watersmeet.hubs.templates import TemplateReader
from watersmeet.kernel.rows import Sorted
from watersmeet.log.codec import checksum
from watersmeet.log.runs import RunReader, write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import FULL_RANGE, BatchId, Descriptor, Manifest, Run, Start
from watersmeet.schemes.hub import HubPlan

# The catalogue in force, and the one after it.
_KEPT_CATALOGUES = 4


@dataclass(frozen=True, slots=True)
class CatalogueInForce:
    """A catalogue, its run, and the events of the commands that made it."""

    run: Run | None
    catalogue: HubCatalogue
    events: pa.RecordBatch

    @property
    def identity(self) -> str:
        """What tells the catalogues of two attempts of a batch apart. A run is named by its content."""
        if self.run is not None:
            return self.run.path
        texts = (
            *self.catalogue.queries.column("id").to_pylist(),
            *self.catalogue.queries.column("sql").to_pylist(),
        )
        return checksum("\0".join(texts).encode())


class HubCatalogues:
    """The last catalogues of a hub, and what has been parsed of their texts."""

    def __init__(self, files: Files, reader: RunReader) -> None:
        self._files, self._reader = files, reader
        self._texts: TemplateReader | None = None
        self._catalogues: dict[str, CatalogueInForce] = {}

    def changed(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        in_force: CatalogueInForce,
        descriptors: Sequence[Descriptor],
        unkept: Mapping[str, int],
        choices: Choices,
    ) -> Changed | None:
        """The catalogue after what the batch chooses to keep, and its commands; None if it changes nothing."""
        runs = [run for one in descriptors if one.input == COMMANDS for run in one.runs]
        found = [self._reader.read(run, FULL_RANGE, COMMAND_COLUMNS)[0].rows for run in runs]
        commands = [*commands_of(found)]
        if in_force.catalogue.given_by != start.number:
            commands = [*streams_of(spec).commands, *commands]
        if not commands and not choices:
            return None
        reads = self._texts_of(spec)
        chosen = with_choices(in_force.catalogue, choices, batch.number)
        changed = apply_commands(chosen, commands, batch.number, reads, unkept)
        catalogue = numbered(changed.catalogue, batch.number)
        return replace(changed, catalogue=replace(catalogue, given_by=start.number))

    def written(
        self, batch: BatchId, label: str, catalogue: HubCatalogue, events: pa.RecordBatch
    ) -> CatalogueInForce:
        row = Sorted(np.zeros(1, np.uint64), to_row(catalogue, events))
        return CatalogueInForce(
            write_run(self._files, CATALOGUE, batch.number, label, row), catalogue, events
        )

    def before(
        self,
        spec: JoinSpec,
        batch: BatchId,
        start: Start,
        parent: Manifest | None,
        attempt: Manifest | None,
    ) -> CatalogueInForce:
        """The catalogue that the batch before left, or an earlier attempt of the first batch had."""
        if parent is not None:
            return self.read(parent, plan_of(parent).after)
        if attempt is not None:
            return self.read(attempt, plan_of(attempt).in_force)
        given = streams_of(spec).commands
        changed = apply_commands(HubCatalogue(), given, batch.number - 1, self._texts_of(spec))
        return CatalogueInForce(None, replace(changed.catalogue, given_by=start.number), changed.events)

    def read(self, manifest: Manifest, path: str) -> CatalogueInForce:
        found = self._catalogues.pop(path, None)
        if found is None:
            run = next(run for run in manifest.live if run.path == path)
            row = self._reader.read(run, FULL_RANGE, tuple(CATALOGUE_ROW.names))[0].rows
            found = CatalogueInForce(run, *from_row(row))
        while len(self._catalogues) >= _KEPT_CATALOGUES:
            self._catalogues.pop(next(iter(self._catalogues)))
        self._catalogues[path] = found
        return found

    def _texts_of(self, spec: JoinSpec) -> TemplateReader:
        if self._texts is None:
            self._texts = streams_of(spec).reader()
        return self._texts


def streams_of(spec: JoinSpec) -> HubStreams:
    assert isinstance(spec.join, HubStreams), "HubDesk serves hubs"
    return spec.join


def plan_of(manifest: Manifest) -> HubPlan:
    assert isinstance(manifest.plan.scheme, HubPlan), "HubDesk serves hubs"
    return manifest.plan.scheme


def run_of(in_force: CatalogueInForce) -> Run:
    assert in_force.run is not None, "the catalogue of a manifest has a run"
    return in_force.run


def watermarks_of(parent: Manifest | None) -> Mapping[str, int]:
    """Which rows of the next batch are late, by stream."""
    return {} if parent is None else plan_of(parent).watermarks


def changed_streams(parent: Manifest | None, streams: HubStreams) -> Collection[str]:
    """The streams whose columns are not those that the batch before had."""
    if parent is None:
        return ()
    before = stored_schemas(parent.signature)
    return [name for name, schema in streams.schemas.items() if before.get(name, schema) != schema]


def retain_of(spec: JoinSpec, attempt: Manifest | None) -> int | None:
    """How long rows of a batch are retained: as in an earlier attempt, whose commands were judged by that."""
    return streams_of(spec).retain if attempt is None else plan_of(attempt).retain


def known_as(in_force: CatalogueInForce, retain: int | None) -> str:
    """What tasks must agree on that store the rows of a batch."""
    return in_force.identity if retain is None else f"{in_force.identity} retain={retain}"
