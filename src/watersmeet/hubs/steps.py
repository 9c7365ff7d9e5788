"""The columns of a hub's streams, numbered, and those that templates look rows up by."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from watersmeet.hubs.constants import comparable
from watersmeet.hubs.language import Template
from watersmeet.kernel.keys import Indices
from watersmeet.model.types import Schema, SqlType

# A column of a stream.
Attribute = tuple[str, str]


@dataclass(frozen=True)
class Attributes:
    """The streams of a hub and all of their columns, numbered. `places` are the numbers of their indexes."""

    streams: tuple[str, ...]
    columns: tuple[Attribute, ...]
    types: tuple[SqlType, ...]
    number: Mapping[Attribute, int]
    places: tuple[int, ...]
    # The number of each column's stream.
    stream: tuple[int, ...]

    @classmethod
    def of(
        cls, schemas: Mapping[str, Schema], places: Mapping[str, Mapping[str, int]] | None = None
    ) -> Attributes:
        """The attributes of some streams. Without `places` the index of a column is numbered by its place."""
        columns = tuple((stream, column) for stream, schema in schemas.items() for column in schema)
        types = tuple(kind for schema in schemas.values() for kind in schema.values())
        found = places or default_places(schemas)
        return cls(
            tuple(schemas),
            columns,
            types,
            {one: number for number, one in enumerate(columns)},
            tuple(found[stream][column] for stream, column in columns),
            tuple(number for number, schema in enumerate(schemas.values()) for _ in schema),
        )

    def index_of(self, attribute: int) -> str:
        """The name of the runs of a column's index: by a number, as the name of a column may have any characters."""
        return index_name(self.columns[attribute][0], self.places[attribute])

    @functools.cached_property
    def ranks(self) -> Indices:
        """An order of the columns that does not depend on the order in which streams and columns were given."""
        by = [(stream, place) for (stream, _), place in zip(self.columns, self.places, strict=True)]
        found = np.empty(len(by), np.int64)
        found[sorted(range(len(by)), key=by.__getitem__)] = np.arange(len(by))
        return found

    def is_exact(self, attribute: int) -> bool:
        """Whether equal order keys are equal values (kernel/keys.py)."""
        kind = self.types[attribute]
        wide = kind.name == "decimal" and (kind.precision or 0) > 18
        return comparable(kind) and not wide and kind.name not in ("string", "binary")


def index_name(stream: str, place: int) -> str:
    """The name of the index of a column, by its number."""
    return f"{stream}.{place}"


def default_places(schemas: Mapping[str, Schema]) -> dict[str, dict[str, int]]:
    """The numbers of the indexes of a new state: the places of the columns."""
    return {name: {column: place for place, column in enumerate(schema)} for name, schema in schemas.items()}


def indexed_columns(template: Template) -> list[set[str]]:
    """The columns by which rows of each input may be looked up for a template, whatever its steps."""
    found: list[set[str]] = [set() for _ in template.streams]
    for one in template.equalities:
        found[one.left].add(one.left_column)
        found[one.right].add(one.right_column)
    return found
