"""The queries of a hub and what they cost, from its state: no Spark, no locks, no writes.

The queries are those after the newest batch: of the next one. Answers and costs are counts of one batch, by the last
tally that each task has left (log/tallies.py). With up to eight tasks and a state on a disk that is the last batch;
more tasks take turns. A task tells of the ten queries that answered most and the ten that cost most, so the sums over
tasks are a lower bound.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from watersmeet.engine.hub_kept_status import KeptColumn, KeptTemplate, kept_columns, kept_templates
from watersmeet.engine.hub_tally import TOP_QUERIES
from watersmeet.errors import StateError
from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.changes import index_places, stored_schemas
from watersmeet.hubs.retained import retain_text
from watersmeet.hubs.since import moment, problem_with_since
from watersmeet.hubs.steps import index_name
from watersmeet.hubs.stored import CATALOGUE_ROW, from_row
from watersmeet.hubs.templates import TemplateReader
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, open_manifest
from watersmeet.log.names import is_join_folder
from watersmeet.log.runs import RunReader
from watersmeet.log.seen import Seen
from watersmeet.log.storage import Files, Storage
from watersmeet.log.tallies import latest_tallies
from watersmeet.model.facts import FULL_RANGE, InputTotals, Manifest
from watersmeet.model.tally import QueryTally, TaskTally
from watersmeet.model.types import Schema
from watersmeet.schemes.hub import HubPlan


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """A live query. `first_batch` is the first one that it answers in. `template` is a number."""

    id: str
    sql: str
    first_batch: int
    template: int


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The index of a column that live queries look values up in."""

    column: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream: the rows that are kept, those that arrived, and those that no live query reads (`unread_rows`).

    All rows from the moment `kept_from` on are kept, so SINCE may name it; None if all rows are.
    """

    name: str
    rows: int
    bytes: int
    arrived_rows: int
    unread_rows: int
    null_rows: int
    indexes: tuple[IndexStatus, ...]
    kept_from: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A command that was refused, and why."""

    query: str
    message: str


@dataclass(frozen=True, slots=True)
class HubStatus:
    """A hub after its last batch.

    `answers` are those of one batch, by the last tally of each task, and `busy_s` is the time of the slowest of them.
    `top_answers` and `top_costs` are the queries with the most answers, and those for which most rows were looked at.
    `refused` are commands of the last batch that had any. `retain` is how much longer than queries need them rows are
    kept, or "all". `keeps` are the templates that keep steps, and `kept` the combinations that are kept of them.
    """

    name: str
    query: str
    batch: int
    written_ms: int
    age_s: float
    templates: int
    streams: tuple[StreamStatus, ...]
    queries: tuple[LiveQuery, ...]
    removed: int
    refused: tuple[Refusal, ...]
    answers: int | None = None
    busy_s: float | None = None
    top_answers: tuple[QueryTally, ...] = ()
    top_costs: tuple[QueryTally, ...] = ()
    retain: str | None = None
    keeps: tuple[KeptTemplate, ...] = ()
    kept: tuple[KeptColumn, ...] = ()

    @property
    def answers_per_s(self) -> float | None:
        """Answers of a batch for each second of its slowest task."""
        return self.answers / self.busy_s if self.answers is not None and self.busy_s else None


@dataclass(frozen=True)
class HubState:
    """A hub as its newest manifest has it. `schemas` are the columns of its streams."""

    name: str
    files: Files = field(repr=False)
    manifest: Manifest
    catalogue: HubCatalogue
    # What became of the last commands: query, event, message.
    events: tuple[tuple[str, str, str | None], ...]

    @property
    def refused(self) -> tuple[Refusal, ...]:
        return tuple(
            Refusal(query, message or "") for query, event, message in self.events if event == "refused"
        )

    @property
    def plan(self) -> HubPlan:
        assert isinstance(self.manifest.plan.scheme, HubPlan), "a hub's plan"
        return self.manifest.plan.scheme

    @property
    def version(self) -> str:
        """What changes with each batch that had commands."""
        return self.plan.after

    @property
    def schemas(self) -> dict[str, Schema]:
        return stored_schemas(self.manifest.signature)

    def reader(self, *, ansi: bool = True, case_sensitive: bool = False) -> TemplateReader:
        """What reads the texts of queries over these streams. The state does not know the settings of the session."""
        return TemplateReader(self.schemas, ansi, case_sensitive)

    def problem_with_since(self, sql: str) -> str | None:
        """Why a text reaches back to rows that may be gone; None if it does not. Rows that are gone stay so."""
        query = self.reader().read(sql)
        if query.since is None:
            return None
        return problem_with_since(query.since, query.template.streams, self.plan.unkept)

    def queries(self) -> tuple[LiveQuery, ...]:
        columns = (
            self.catalogue.queries.column(name).to_pylist() for name in ("id", "sql", "start", "template")
        )
        # A query starts behind the batch that brought it.
        return tuple(
            LiveQuery(id_, sql, start + 1, template)
            for id_, sql, start, template in zip(*columns, strict=True)
        )

    def find(self, id_: str) -> LiveQuery | None:
        """A live query by its id."""
        return next((one for one in self.queries() if one.id == id_), None)


def open_hub(
    state: Storage | str | os.PathLike[str], name: str | None = None, query: str | None = None
) -> HubState:
    """The hub in a state directory, of its newest query if none is named.

    StateError if there is none, or several and no name.
    """
    found = find_hub(state, name, query)
    if found is None:
        which = "no hub" if name is None else f"no hub named {name}"
        raise StateError(f"there is {which} in {open_files(state).place}, or it has not run a batch yet")
    return found


def find_hub(
    state: Storage | str | os.PathLike[str], name: str | None = None, query: str | None = None
) -> HubState | None:
    """The hub in a state directory; None before its first batch. StateError if there are several and no name."""
    files = open_files(state)
    found = {one.name: one for one in hubs_in(files, name, query)}
    if len(found) > 1:
        raise StateError(f"{files.place} holds the hubs {', '.join(sorted(found))}: name one of them")
    return next(iter(found.values()), None)


def hubs_in(files: Files, name: str | None = None, query: str | None = None) -> Iterator[HubState]:
    """The hubs in a state directory, each as its newest query left it, or as this one did."""
    for folder in files.folders():
        if not is_join_folder(folder) or name not in (None, folder):
            continue
        newest: tuple[Files, Manifest] | None = None
        for one in files.under(folder).folders():
            mine = files.under(folder, one)
            manifest = _newest(mine) if is_join_folder(one) and query in (None, one) else None
            if manifest is not None and (newest is None or manifest.written_ms > newest[1].written_ms):
                newest = mine, manifest
        if newest is not None:
            yield _read(folder, *newest)


def _newest(files: Files) -> Manifest | None:
    """The newest manifest of a hub; None if there is none, or it is that of a join."""
    names = list_manifests(files)
    manifest = open_manifest(files, names[-1], Seen()) if names else None
    return manifest if manifest is not None and isinstance(manifest.plan.scheme, HubPlan) else None


def _read(name: str, files: Files, manifest: Manifest) -> HubState:
    assert isinstance(manifest.plan.scheme, HubPlan), "a hub's plan"
    plan = manifest.plan.scheme
    catalogue, events = _catalogue(files, manifest, plan.after)
    if plan.in_force != plan.after and any(run.path == plan.in_force for run in manifest.fresh):
        # The first batch of a hub has two: the queries that were given, and the commands.
        events = [*_catalogue(files, manifest, plan.in_force)[1], *events]
    return HubState(name, files, manifest, catalogue, tuple(events))


def _catalogue(
    files: Files, manifest: Manifest, path: str
) -> tuple[HubCatalogue, list[tuple[str, str, str | None]]]:
    run = next(run for run in manifest.live if run.path == path)
    (row,) = RunReader(files).read(run, FULL_RANGE, tuple(CATALOGUE_ROW.names)).values()
    catalogue, events = from_row(row.rows)
    return catalogue, [(one["query"], one["event"], one["message"]) for one in events.to_pylist()]


def hub_status(found: HubState, clock: Callable[[], float] = time.time) -> HubStatus:
    """The status of a hub."""
    manifest = found.manifest
    tallies = list(latest_tallies(found.files, manifest.run_seq))
    top = _together(tallies)
    return HubStatus(
        name=found.name,
        query=manifest.batch.query,
        batch=manifest.batch.number,
        written_ms=manifest.written_ms,
        age_s=max(0.0, clock() - manifest.written_ms / 1000),
        templates=found.catalogue.templates.num_rows,
        streams=tuple(_stream(found, name, list(schema)) for name, schema in found.schemas.items()),
        queries=found.queries(),
        removed=len(found.catalogue.removed),
        refused=found.refused,
        answers=sum(one.answers for one in tallies) if tallies else None,
        busy_s=max(map(_busy_s, tallies), default=None),
        top_answers=_top([one for one in top if one.answers], lambda one: one.answers),
        top_costs=_top([one for one in top if one.looked_rows], lambda one: one.looked_rows),
        retain=None if found.plan.retain is None else retain_text(found.plan.retain),
        keeps=kept_templates(found.catalogue),
        kept=kept_columns(found.files, manifest, found.schemas, index_places(manifest.signature)),
    )


def _busy_s(tally: TaskTally) -> float:
    return (tally.reading_ms + tally.probing_ms + tally.emitting_ms + tally.merging_ms) / 1000


def _together(tallies: list[TaskTally]) -> list[QueryTally]:
    found: dict[str, QueryTally] = {}
    for one in (one for tally in tallies for one in tally.queries):
        found[one.query] = found[one.query].plus(one) if one.query in found else one
    return list(found.values())


def _top(queries: list[QueryTally], figure: Callable[[QueryTally], int]) -> tuple[QueryTally, ...]:
    return tuple(sorted(queries, key=lambda one: (-figure(one), one.query))[:TOP_QUERIES])


def _stream(found: HubState, name: str, columns: list[str]) -> StreamStatus:
    manifest, unkept = found.manifest, found.plan.unkept.get(name)
    totals = manifest.totals.get(name, InputTotals())
    places = index_places(manifest.signature)[name]
    stored = {column: _stored(manifest, index_name(name, places[column])) for column in columns}
    rows, size = _stored(manifest, name)
    return StreamStatus(
        name,
        rows,
        size,
        totals.rows,
        totals.absent_rows,
        totals.null_rows,
        tuple(IndexStatus(column, *kept) for column, kept in stored.items() if kept[0]),
        None if unkept is None else moment(unkept + 1),
    )


def _stored(manifest: Manifest, name: str) -> tuple[int, int]:
    runs = [run for run in manifest.live if run.input == name]
    return sum(run.stored_rows for run in runs), sum(run.bytes for run in runs)
