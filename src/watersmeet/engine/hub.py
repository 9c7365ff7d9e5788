"""Turn the user's options for a hub into what its tasks run, for the API, job files and the local driver alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from watersmeet.engine.compile import check_names as check_columns
from watersmeet.engine.inputs import check_names
from watersmeet.engine.options import check_folder, check_tasks
from watersmeet.engine.spec import JoinSpec, SessionSettings
from watersmeet.errors import UsageError
from watersmeet.hubs.retained import RETAIN_ALL
from watersmeet.hubs.streams import HubStreams
from watersmeet.model.types import Schema
from watersmeet.predicate.window import Length, parse_lateness, parse_length
from watersmeet.schemes.hub import HubScheme

# `retain` of a hub that keeps all rows.
ALL = "all"
# The folder of a hub in the state, if it is given no name.
HUB = "hub"


@dataclass(frozen=True, slots=True)
class HubOptions:
    """The arguments of `wm.hub`, checked as far as no stream is needed."""

    queries: Mapping[str, str] = field(default_factory=dict)
    state: str | None = None
    name: str | None = None
    tasks: int | None = None
    time: Mapping[str, str] | None = None
    options: Mapping[str, object] | None = None
    lateness: Length | None = None
    retain: Length | None = None

    def __post_init__(self) -> None:
        check_queries(self.queries)
        if self.time is not None and not isinstance(self.time, Mapping):
            raise UsageError(f'time names a column of each stream, such as {{"R": "at"}}, not {self.time!r}')
        if self.name is not None:
            check_folder(self.name)
        if self.tasks is not None:
            check_tasks(self.tasks)
        if self.lateness is not None:
            parse_lateness(self.lateness)
            if not self.time:
                raise UsageError(
                    'lateness is of streams with a time column: add time=, such as {"R": "at"}. Other rows have the time '
                    "of their batch, and none is late"
                )
        if self.retain is not None:
            parse_retain(self.retain)


def parse_retain(retain: Length) -> int:
    """How much longer rows are kept than queries need them, in microseconds."""
    if isinstance(retain, str) and retain.strip().lower() == ALL:
        return RETAIN_ALL
    try:
        return parse_length("retain", retain)
    except UsageError as error:
        raise UsageError(f'{error}, or retain="{ALL}"') from None


def check_queries(queries: object) -> None:
    """Refuse queries that are no texts by id."""
    if not isinstance(queries, Mapping):
        raise UsageError('queries are texts by id, such as {"q1": "SELECT ..."}')
    for id_, text in queries.items():
        if not isinstance(id_, str) or not isinstance(text, str):
            raise UsageError(f"queries are texts by id, got {id_!r}: {text!r}")


def build_hub(
    options: HubOptions,
    schemas: Mapping[str, Schema],
    session: SessionSettings,
    *,
    instance: str,
    clock: Callable[[], float],
) -> JoinSpec:
    """What the tasks of a hub run. `instance` tells two operators of one query apart."""
    check_names(schemas)
    check_columns(dict(schemas))
    _check_spelling(schemas, session.sql.case_sensitive)
    times = dict(options.time or {})
    _check_times(times, schemas)
    streams = HubStreams(
        dict(schemas),
        times,
        tuple(options.queries.items()),
        session.sql.ansi,
        session.sql.case_sensitive,
        0 if options.lateness is None else parse_lateness(options.lateness),
        retain=None if options.retain is None else parse_retain(options.retain),
        keep=session.keeping(),
    )
    return JoinSpec(
        options.name or HUB,
        instance,
        streams.signature,
        streams,
        session.operator(),
        built_ms=int(clock() * 1000),
        scheme=HubScheme(),
    )


def _check_spelling(names: Iterable[str], case_sensitive: bool) -> None:
    """Refuse streams whose names differ in case only, where queries cannot tell them apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name if case_sensitive else name.lower(), name)
        if other != name:
            raise UsageError(
                f"streams {other} and {name} differ only in case, which queries of this session ignore: give one of "
                "them another name"
            )


def _check_times(times: Mapping[str, str], schemas: Mapping[str, Schema]) -> None:
    for name, column in times.items():
        if name not in schemas:
            raise UsageError(
                f"time names {name}, which is not a stream; the streams are {', '.join(schemas)}"
            )
        kind = schemas[name].get(column)
        if kind is None:
            raise UsageError(
                f"time names {name}.{column}, which is not a column; the columns of {name} are "
                f"{', '.join(schemas[name])}"
            )
        if kind.name not in ("timestamp", "timestamp_ntz"):
            raise UsageError(f"the time {name}.{column} is {kind}: a hub needs a timestamp")
