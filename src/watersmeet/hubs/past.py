"""Queries with SINCE that come into force: their answers of the past.

A query is *new* in the first batch in which it is in force. Other queries get only combinations with a fresh row, and so
do these in all later batches. In its first batch a new query with SINCE gets the combinations of old rows too:

    fresh rows        walk the forest of all queries, as in every batch
    old rows          walk a forest of the new queries with SINCE, whose steps take old rows only

A combination has a fresh row or it has none, so each comes out once. Old rows are found by the indexes of later batches
too. So what these lack of the rows that the query counts is added to them in its first batch. Nothing else is built
over the past.

Which queries are new follows from the catalogue and from the batch before, which the manifest names: a replay finds the
same ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.language import Template
from watersmeet.hubs.steps import Attributes, indexed_columns
from watersmeet.kernel.keys import Indices, Mask


def first_batches(queries: pa.RecordBatch) -> Indices:
    """The first batch whose rows each query counts: with SINCE, the first of all."""
    start = queries.column("start").to_numpy()
    found: Indices = np.where(queries.column("since").is_null().to_numpy(zero_copy_only=False), start + 1, 0)
    return found


def new_with_since(catalogue: HubCatalogue, before: int | None) -> Mask:
    """Which queries have SINCE and came in the batch `before` this one; none in the first batch of a hub."""
    queries = catalogue.queries
    if before is None:
        return np.zeros(len(catalogue), np.bool_)
    came = pc.equal(queries.column("start"), before)
    found: Mask = pc.and_(came, queries.column("since").is_valid()).to_numpy(zero_copy_only=False)
    return found


def reached_by(catalogue: HubCatalogue, attributes: Attributes, before: int | None) -> dict[str, int]:
    """The streams and indexes whose past new queries read, each with the earliest publication time that they count."""
    new = np.flatnonzero(new_with_since(catalogue, before))
    if not len(new):
        return {}
    template = catalogue.queries.column("template").to_numpy()[new]
    since = catalogue.queries.column("since").take(pa.array(new)).to_numpy()
    places = {one: attributes.index_of(number) for number, one in enumerate(attributes.columns)}
    found: dict[str, int] = {}
    for number in np.unique(template).tolist():
        earliest = int(since[template == number].min())
        one = catalogue.parsed[number]
        indexed = indexed_columns(one)
        for input_, stream in enumerate(one.streams):
            for name in (stream, *(places[stream, column] for column in indexed[input_])):
                found[name] = min(earliest, found.get(name, earliest))
    return found


def first_input(template: Template) -> int:
    """The input from which combinations of old rows are sought: one that a constant narrows, if there is one."""
    return min((one.input for one in template.filters if one.op == "="), default=0)


def lowered(floors: Mapping[str, int], reached: Mapping[str, int]) -> dict[str, int]:
    """Floors that leave what new queries reach."""
    return {name: min(floor, reached.get(name, floor)) for name, floor in floors.items()}
