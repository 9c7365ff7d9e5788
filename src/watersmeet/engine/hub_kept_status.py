"""What a hub keeps, for its status: which templates keep what and why, and the rows by what they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.keep_choice import LOOKUPS_FOR_A_ROW
from watersmeet.hubs.kept import KEPT, WAITS, names_of
from watersmeet.hubs.steps import Attributes
from watersmeet.log.runs import RunReader
from watersmeet.log.storage import Files
from watersmeet.model.facts import FULL_RANGE, Manifest
from watersmeet.model.types import Schema


@dataclass(frozen=True, slots=True)
class KeptTemplate:
    """A template that keeps some of its inputs, by their aliases, since a batch.

    It was expected to store `stored_rows` in a batch, which cost as much as `stored_lookups`, and to save
    `saved_lookups`.
    """

    template: int
    inputs: tuple[str, ...]
    since_batch: int
    stored_rows: float
    stored_lookups: float
    saved_lookups: float


@dataclass(frozen=True, slots=True)
class KeptColumn:
    """The combinations that wait for values of a column."""

    stream: str
    column: str
    rows: int
    bytes: int


def kept_templates(catalogue: HubCatalogue) -> tuple[KeptTemplate, ...]:
    """The templates of a catalogue that keep something."""
    names = ("keeps", "chosen", "stored_rows", "saved_lookups")
    columns = (catalogue.templates.column(name).to_pylist() for name in names)
    return tuple(
        KeptTemplate(
            number,
            tuple(template.aliases[input_] for input_ in keeps),
            chosen + 1,
            round(stored, 1),
            round(LOOKUPS_FOR_A_ROW * stored, 1),
            round(saved, 1),
        )
        for number, (template, keeps, chosen, stored, saved) in enumerate(
            zip(catalogue.parsed, *columns, strict=True)
        )
        if keeps
    )


def kept_columns(
    files: Files,
    manifest: Manifest,
    schemas: Mapping[str, Schema],
    places: Mapping[str, Mapping[str, int]],
) -> tuple[KeptColumn, ...]:
    """What is kept, by the column whose values it waits for."""
    attributes, reader = Attributes.of(schemas, places), RunReader(files)
    rows: Counter[int] = Counter()
    size: Counter[int] = Counter()
    for run in manifest.live:
        if run.input == KEPT:
            waits = reader.read(run, FULL_RANGE, (WAITS,))[0].rows.column(WAITS)
            for one in pc.value_counts(waits).to_pylist():
                rows[one["values"]] += one["counts"]
                size[one["values"]] += run.bytes * one["counts"] // run.rows
    return tuple(
        KeptColumn(stream, column, rows[name], size[name])
        for (stream, column), name in zip(attributes.columns, names_of(attributes).tolist(), strict=True)
        if rows[name]
    )
