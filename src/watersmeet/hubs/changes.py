"""Streams whose columns change between two starts: what stays, what is refused, and what the state goes on with.

    a column is new                          it is null in the rows that are stored
    a column is gone, or has another type    refused if a live query uses it; otherwise its stored values are forgotten

A live query counts the rows of many batches, so all columns that it uses must be the same in all of them. A query that
is added later counts later rows only, so it never meets a row of the old columns; SINCE does not reach back to them
(hubs/retained.py). `SELECT *` names the columns that the
stream had when the query was added.

The runs of an index are named by a number (hubs/stored.py). A column keeps it as long as the state exists, whatever
comes and goes around it, and no number is given twice. At the first batch with other columns no live query needs the
index of a column that changed, so its runs leave then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from watersmeet.errors import StateMismatch
from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.expressions import CONSTANTS
from watersmeet.hubs.language import Template
from watersmeet.hubs.streams import HubStreams
from watersmeet.model.expression import columns_of
from watersmeet.model.signature import JoinSignature
from watersmeet.model.types import Schema, parse_type
from watersmeet.model.window import AT
from watersmeet.predicate.literals import brief

# Queries that a message names.
_SHOWN: Final = 3


def stored_schemas(signature: JoinSignature) -> dict[str, Schema]:
    """The columns of the streams in a state."""
    return {
        spec.name: {one.name: parse_type(one.type) for one in spec.stored if one.name != AT}
        for spec in signature.inputs
        if spec.is_given
    }


def index_places(signature: JoinSignature) -> dict[str, dict[str, int]]:
    """The numbers of the indexes of each stream, by column, with those of columns that are gone."""
    found: dict[str, dict[str, int]] = {spec.name: {} for spec in signature.inputs if spec.is_given}
    for spec in signature.inputs:
        if spec.of:
            found[spec.of][spec.keys[0]] = int(spec.name.rpartition(".")[2])
    return found


def as_written(streams: HubStreams, signature: JoinSignature) -> HubStreams:
    """The streams with the columns of a state."""
    times = {spec.name: spec.time for spec in signature.inputs if spec.time}
    return replace(streams, schemas=stored_schemas(signature), times=times, places=index_places(signature))


def continued(streams: HubStreams, before: JoinSignature) -> HubStreams:
    """The streams of a start that goes on with a state: columns that it knows keep the numbers of their indexes."""
    places = index_places(before)
    for name, schema in streams.schemas.items():
        mine = places.setdefault(name, {})
        for column in schema:
            mine.setdefault(column, max(mine.values(), default=-1) + 1)
    found = replace(streams, places=places)
    return streams if found.signature == streams.signature else found


def check_unused(catalogue: HubCatalogue, before: Mapping[str, Schema], after: Mapping[str, Schema]) -> None:
    """Raise StateMismatch if a live query uses a column that is gone, or has another type now."""
    changed = {
        (stream, column): after.get(stream, {}).get(column)
        for stream, schema in before.items()
        for column, kind in schema.items()
        if after.get(stream, {}).get(column) != kind
    }
    for number, template in enumerate(catalogue.parsed if changed else ()):
        for stream, column in used_columns(template):
            if (stream, column) not in changed:
                continue
            now = changed[stream, column]
            was = f"column {column} of stream {stream} was {before[stream][column]}"
            raise StateMismatch(
                f"{was} and is {now or 'gone'} now, but {_queries_of(catalogue, number)} uses it. Change the stream "
                "back, remove what uses the column, and change the stream when that has taken effect; or start with "
                "a new checkpoint"
            )


def used_columns(template: Template) -> Iterator[tuple[str, str]]:
    """The streams' columns that a template looks at."""
    for one in template.equalities:
        yield template.streams[one.left], one.left_column
        yield template.streams[one.right], one.right_column
    for compared in template.filters:
        yield template.streams[compared.input], compared.column
    for shown in template.items:
        if shown.expression is None:
            yield template.streams[shown.input], shown.column
            continue
        for column in columns_of(shown.expression):
            if column.input != CONSTANTS:
                yield template.streams[int(column.input)], column.name


def _queries_of(catalogue: HubCatalogue, template: int) -> str:
    """The queries of a template, in words."""
    columns = (catalogue.queries.column(name).to_pylist() for name in ("id", "template"))
    ids = [id_ for id_, number in zip(*columns, strict=True) if number == template]
    more = f" (and {len(ids) - _SHOWN} more like it)" if len(ids) > _SHOWN else ""
    words = "query" if len(ids) == 1 else "each of the queries"
    return f"{words} {', '.join(map(brief, ids[:_SHOWN]))}{more}"
