"""What a hub stores: the names of its runs, their columns, and the catalogue as rows.

    R                 the rows of stream R, by row number, with the column of publication times
    R.2               the index of a column of R, the third at first: order keys, row numbers and publication times
    ~kept             the combinations that templates keep, by the stream, column and value that they wait for (hubs/kept.py)
    ~answered         the answers of DISTINCT queries that came out, by a hash (hubs/distinct.py)
    ~catalogue        a catalogue, as one row
    ~commands         the commands of a batch, in the order of their arrival

An index has the times too, so that its entries leave as their rows do. Combinations have the oldest time of their rows.
Which runs are stored, and when they leave, is said in hubs/needed.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from watersmeet.hubs.catalogue import EVENTS, QUERIES, TEMPLATES, HubCatalogue
from watersmeet.hubs.kept import KEPT, KEPT_COLUMNS
from watersmeet.hubs.steps import default_places, index_name
from watersmeet.model.signature import LOCATOR, Compared, InputSpec, JoinSignature, Order, StoredColumn
from watersmeet.model.types import Schema
from watersmeet.model.window import AT

ANSWERED: Final = "~answered"
CATALOGUE: Final = "~catalogue"
COMMANDS: Final = "~commands"
SCHEME: Final = "hub"
# `at` orders the commands of a batch: nanoseconds since 1970, or any other number.
COMMAND_TYPES: Final = {"op": "string", "id": "string", "sql": "string", "at": "bigint"}
COMMAND_COLUMNS: Final = tuple(COMMAND_TYPES)

_LISTED: Final = {"queries": QUERIES, "templates": TEMPLATES, "events": EVENTS}
CATALOGUE_ROW: Final = pa.schema(
    [(name, pa.list_(pa.struct(list(schema)))) for name, schema in _LISTED.items()]
    + [("removed", pa.list_(pa.string())), ("given_by", pa.int64())]
)


def hub_signature(
    schemas: Mapping[str, Schema],
    times: Mapping[str, str],
    places: Mapping[str, Mapping[str, int]] | None = None,
) -> JoinSignature:
    """What may be stored: every stream, an index for each of its columns, catalogues and commands.

    `places` are the numbers of indexes, also of columns that are gone: what is left of them has yet to be cleaned up.
    """
    inputs = []
    numbers = places or default_places(schemas)
    for stream, schema in schemas.items():
        stored = tuple(StoredColumn(name, str(kind)) for name, kind in schema.items())
        at = StoredColumn(AT, "bigint")
        inputs.append(InputSpec(stream, (*stored, at), (), order=Order.ARRIVAL, time=times.get(stream)))
        located = (StoredColumn(LOCATOR, "bigint"), at)
        inputs += [
            InputSpec(index_name(stream, place), located, (column,), of=stream, located=True)
            for column, place in sorted(numbers[stream].items(), key=lambda one: one[1])
        ]
    told = tuple(StoredColumn(name, kind) for name, kind in COMMAND_TYPES.items())
    inputs.append(InputSpec(COMMANDS, told, (), order=Order.ARRIVAL))
    inputs.append(InputSpec(KEPT, tuple(StoredColumn(name, "bigint") for name in KEPT_COLUMNS), ()))
    answered = (("query", "string"), ("start", "bigint"), ("answer", "string"), (AT, "bigint"))
    inputs.append(InputSpec(ANSWERED, tuple(StoredColumn(*one) for one in answered), ()))
    rows = tuple(StoredColumn(name, "string") for name in CATALOGUE_ROW.names)
    inputs.append(InputSpec(CATALOGUE, rows, (), order=Order.ARRIVAL))
    return JoinSignature(tuple(inputs), "", (), Compared.WORD, SCHEME)


def to_row(catalogue: HubCatalogue, events: pa.RecordBatch) -> pa.RecordBatch:
    """A catalogue, and what became of the commands that made it, as one row."""
    tables = {"queries": catalogue.queries, "templates": catalogue.templates, "events": events}
    columns = [_as_list(tables[name], schema) for name, schema in _LISTED.items()]
    columns += [
        pa.array([catalogue.removed], pa.list_(pa.string())),
        pa.array([catalogue.given_by], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CATALOGUE_ROW)


def from_row(row: pa.RecordBatch) -> tuple[HubCatalogue, pa.RecordBatch]:
    """The catalogue and the events of a row."""
    found = {name: _from_list(row.column(name), schema) for name, schema in _LISTED.items()}
    removed = tuple(row.column("removed")[0].as_py())
    given_by = row.column("given_by")[0].as_py()
    return HubCatalogue(found["queries"], found["templates"], removed, given_by), found["events"]


def _as_list(rows: pa.RecordBatch, schema: pa.Schema) -> pa.Array:
    inside = pa.StructArray.from_arrays(rows.columns, fields=list(schema))
    return pa.ListArray.from_arrays(pa.array([0, rows.num_rows], pa.int32()), inside)


def _from_list(column: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    rows = column.flatten()
    found = rows.flatten()
    # A state of an earlier version lacks the last columns.
    found += [pa.nulls(len(rows), one.type) for one in list(schema)[len(found) :]]
    return pa.RecordBatch.from_arrays(found, schema=schema)
