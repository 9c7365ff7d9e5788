"""Which steps a hub keeps, in its catalogue: the kept inputs of each template, and the kept number of each query.

What a template keeps is chosen once. Queries of it with the same constants for the kept inputs share a kept number. It is
made of the batch that gives it, so it is never given twice: what was kept for a removed query is not that of a later one.

A query with SINCE counts rows of before it came, of which no combinations may have been kept. Its template keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.catalogue import QUERIES, TEMPLATES, HubCatalogue
from watersmeet.hubs.keep_choice import LOOKUPS_FOR_A_ROW, KeptInputs, estimate_walks
from watersmeet.hubs.language import Template
from watersmeet.hubs.lists import Lists, numbered_lists, numbered_pairs
from watersmeet.hubs.window import WindowOf
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.model.window import FARTHEST

# What some templates keep. None says that it is not chosen yet.
Choices = Mapping[int, KeptInputs | None]
# A batch has fewer queries. With the batch above and an edge below, a tag has 63 bits (hubs/rows.py, hubs/kept.py).
_IN_BATCH_BITS: Final = 31


def keeps_of(catalogue: HubCatalogue) -> Mask:
    """Which templates keep something."""
    found: Mask = pc.greater(pc.list_value_length(catalogue.templates.column("keeps")), 0)
    return _mask(found)


def undecided(catalogue: HubCatalogue) -> Indices:
    """The templates for which it is not chosen yet what they keep."""
    return np.flatnonzero(_mask(catalogue.templates.column("keeps").is_null()))


def walks_to_choose(catalogue: HubCatalogue) -> Indices:
    """At most how many walks it takes to choose what each template keeps."""
    streams, filters = (
        pc.list_value_length(catalogue.templates.column(name)).fill_null(0).to_numpy().astype(np.int64)
        for name in ("streams", "filters")
    )
    return estimate_walks(streams, filters)


def gain_expected(catalogue: HubCatalogue) -> float:
    """What the templates that keep something were expected to gain in a batch. One that was made to keep may gain nothing."""
    mine = keeps_of(catalogue)
    stored, saved = (
        catalogue.templates.column(name).fill_null(0.0).to_numpy()[mine]
        for name in ("stored_rows", "saved_lookups")
    )
    return float(np.maximum(saved - LOOKUPS_FOR_A_ROW * stored, 0.0).sum())


def begins_to_keep(catalogue: HubCatalogue, before: int | None) -> Mask:
    """The queries whose templates begin to keep in the batch behind `before`: combinations of old rows are added."""
    if before is None:
        return np.zeros(len(catalogue), np.bool_)
    chosen = _mask(pc.equal(catalogue.templates.column("chosen"), before)) & keeps_of(catalogue)
    return chosen[catalogue.queries.column("template").to_numpy()]


def queries_that_keep(catalogue: HubCatalogue) -> Mask:
    """The queries whose templates keep something."""
    return keeps_of(catalogue)[catalogue.queries.column("template").to_numpy()]


def with_choices(catalogue: HubCatalogue, choices: Choices, batch: int) -> HubCatalogue:
    """The catalogue with what some templates keep, chosen in a batch. Their queries have no numbers yet (`numbered`)."""
    if not choices:
        return catalogue
    names = ("keeps", "chosen", "stored_rows", "saved_lookups")
    columns = {name: catalogue.templates.column(name).to_pylist() for name in names}
    for template, one in choices.items():
        told: tuple[Any, ...] = (None, None, None, None)
        if one is not None:
            told = (sorted(one.inputs), batch, one.stored_rows, one.saved_lookups)
        for name, value in zip(names, told, strict=True):
            columns[name][template] = value
    kept = catalogue.queries.column("kept").fill_null(-1).to_numpy().copy()
    kept[np.isin(catalogue.queries.column("template").to_numpy(), list(choices))] = -1
    return _with_numbers(_with_templates(catalogue, columns), kept)


def numbered(catalogue: HubCatalogue, batch: int) -> HubCatalogue:
    """The catalogue after a batch with a kept number for each query that has none and whose template keeps something."""
    template = catalogue.queries.column("template").to_numpy()
    keeps = keeps_of(catalogue)
    since = _mask(catalogue.queries.column("since").is_valid())
    gone = np.unique(template[since & keeps[template]])
    if len(gone):
        lists = catalogue.templates.column("keeps").to_pylist()
        for one in gone.tolist():
            lists[one] = []
        catalogue = _with_templates(catalogue, {"keeps": lists})
        keeps[gone] = False
    kept = catalogue.queries.column("kept").fill_null(-1).to_numpy().copy()
    before = kept.copy()
    kept[~keeps[template]] = -1
    mine = np.flatnonzero(keeps[template])
    if (kept[mine] < 0).any():
        group = _groups(catalogue, mine, template[mine])
        number = np.full(len(mine), -1, np.int64)
        np.maximum.at(number, group, kept[mine])
        new = np.flatnonzero((number < 0) & (np.bincount(group, minlength=len(mine)) > 0))
        number[new] = ((batch + 1) << _IN_BATCH_BITS) + np.arange(len(new))
        kept[mine] = number[group]
    if (kept == before).all():
        return catalogue
    return _with_numbers(catalogue, kept)


def kept_floors(catalogue: HubCatalogue, watermarks: Mapping[str, int]) -> tuple[Indices, Indices]:
    """The kept numbers of live queries, ascending, and for each the time below which combinations are in no window.

    As for other stored rows, the slowest of the streams that they wait for says how old they may be (hubs/needed.py).
    """
    queries = catalogue.queries
    window = queries.column("window")
    timed = _mask(pc.is_in(window, pa.array([WindowOf.TIME, WindowOf.TUMBLING], pa.string())))
    template, width = queries.column("template").to_numpy(), queries.column("width").fill_null(0).to_numpy()
    reach = np.full(len(catalogue.parsed), -2 * FARTHEST)
    lists = catalogue.templates.column("keeps").to_pylist()
    for one in np.flatnonzero(keeps_of(catalogue)).tolist():
        outside = [s for input_, s in enumerate(catalogue.parsed[one].streams) if input_ not in lists[one]]
        reach[one] = min(watermarks.get(stream, -2 * FARTHEST) for stream in outside)
    kept = queries.column("kept").fill_null(-1).to_numpy()
    mine = np.flatnonzero(kept >= 0)
    numbers, at = np.unique(kept[mine], return_inverse=True)
    floors = np.full(len(numbers), 2 * FARTHEST)
    np.minimum.at(floors, at, np.where(timed, reach[template] - width, -3 * FARTHEST)[mine])
    return numbers, floors


def _groups(catalogue: HubCatalogue, queries: Indices, template: Indices) -> Indices:
    """A number for each of some queries: the same where they have a template and the constants of its kept inputs in common."""
    lists = catalogue.templates.column("keeps").to_pylist()
    parsed = catalogue.parsed
    slots = {one: _slots(parsed[one], lists[one]) for one in np.unique(template).tolist()}
    counts = np.array([len(slots.get(one, ())) for one in range(len(parsed))], np.int64)
    slot = np.array([slot for one in range(len(parsed)) for slot in slots.get(one, ())], np.int64)
    owner, at = Lists.of_counts(counts).members(template)
    constants = catalogue.queries.column("constants")
    values = constants.flatten()
    lengths = pc.list_value_length(constants).fill_null(0).to_numpy().astype(np.int64)
    first = np.cumsum(lengths) - lengths
    codes = values.dictionary_encode().indices.to_numpy().astype(np.int64)
    code = codes[first[queries[owner]] + slot[at]] if len(at) else np.zeros(0, np.int64)
    _, found = numbered_pairs(template, numbered_lists(Lists.of_owners(owner, len(queries)), code))
    return found


def _slots(template: Template, keeps: Sequence[int]) -> list[int]:
    """The constants that the kept inputs of a template are compared with."""
    return [slot for one in template.filters if one.input in keeps for slot in one.slots]


def _with_numbers(catalogue: HubCatalogue, kept: Indices) -> HubCatalogue:
    place = QUERIES.get_field_index("kept")
    values = pa.array(kept, pa.int64(), mask=kept < 0)
    queries = catalogue.queries.set_column(place, QUERIES.field(place), values)
    return replace(catalogue, queries=queries)


def _with_templates(catalogue: HubCatalogue, columns: Mapping[str, Sequence[Any]]) -> HubCatalogue:
    templates = catalogue.templates
    for name, values in columns.items():
        place = TEMPLATES.get_field_index(name)
        field = TEMPLATES.field(place)
        templates = templates.set_column(place, field, pa.array(values, field.type))
    return replace(catalogue, templates=templates)


def _mask(values: pa.Array) -> Mask:
    found: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found
