"""What a batch reads of the past of a hub, and the entries that indexes lack of it (hubs/past.py).

A column that new queries with SINCE look values up in may have no index, or one that began later than the rows that they
count. Whoever plans the batch writes the missing entries: those of the rows that the parent left live, from SINCE on,
whose numbers the index has not. They follow from the parent and the catalogue alone, so all planners write the same runs.

Invariant: from then on the index has one entry for each row that the query counts and that is not null. No merge drops one:
merges that were planned before have floors below SINCE, or the command would have been refused (hubs/retained.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.hub_ingest import index_rows
from watersmeet.engine.hub_rows import ReadRun, old_positions
from watersmeet.engine.window import time_marks
from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.forest_builder import build_forest
from watersmeet.hubs.past import new_with_since
from watersmeet.hubs.rows import Rows, first_row
from watersmeet.hubs.steps import Attributes
from watersmeet.hubs.walk import Walk
from watersmeet.kernel.keys import Indices, Keys
from watersmeet.kernel.rows import Sorted
from watersmeet.log.runs import write_run
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest, Run
from watersmeet.model.signature import LOCATOR
from watersmeet.model.window import AT, FARTHEST
from watersmeet.schemes.scheme import Deal


def has_past(manifest: Manifest, catalogue: HubCatalogue) -> bool:
    """Whether queries get answers of the past in a batch."""
    return bool(new_with_since(catalogue, _before(manifest)).any())


def walk_past(
    manifest: Manifest, catalogue: HubCatalogue, rows: Rows, deal: Deal | None = None
) -> tuple[Walk, Mapping[int, Indices]]:
    """The walk over the past for the new queries of a catalogue, and the positions that it begins with: all, or those of a hand."""
    attributes = rows.attributes
    new = new_with_since(catalogue, _before(manifest))
    forest = build_forest(catalogue, attributes, past_of=new)
    since = int(forest.queries.since[new].min(initial=FARTHEST))
    begun = {
        stream: positions[rows.streams[stream].take(AT, positions).to_numpy() >= since]
        for stream, positions in old_positions(manifest, attributes.streams, deal).items()
        if len(positions) and len(forest.roots[stream])
    }
    looked = np.zeros(len(forest.branch_node), np.int64)
    return Walk(forest, rows, first_row(np.array([manifest.batch.number]))[0], AT, looked=looked), begun


def _before(manifest: Manifest) -> int | None:
    return manifest.parent.number if manifest.parent else None


def write_past(
    files: Files,
    read: ReadRun,
    attributes: Attributes,
    live: Sequence[Run],
    batch: int,
    reached: Mapping[str, int],
) -> tuple[Run, ...]:
    """The entries that indexes lack of the past, written. `reached` says from which publication time on, by index."""
    found: list[Run] = []
    for attribute, (stream, column) in enumerate(attributes.columns):
        name = attributes.index_of(attribute)
        if name not in reached:
            continue
        known = _known(read, live, name, reached[name])
        for number, index in enumerate(_missing(read, live, stream, column, reached[name], known)):
            run = write_run(files, name, batch, f"past-{number:04d}", index)
            found.append(replace(run, times=time_marks([index.rows.column(AT).to_numpy()])))
    return tuple(found)


def _known(read: ReadRun, live: Sequence[Run], index: str, since: int) -> Keys:
    """The numbers of the rows that an index has, from a publication time on."""
    parts = (
        read(run, (LOCATOR,)).rows.column(LOCATOR).to_numpy().view(np.uint64)
        for run in live
        if run.input == index and run.times[-1] >= since
    )
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *parts]))


def _missing(
    read: ReadRun, live: Sequence[Run], stream: str, column: str, since: int, known: Keys
) -> Iterator[Sorted]:
    """The entries that an index lacks, for each run of its stream."""
    for run in live:
        if run.input != stream or run.times[-1] < since:
            continue
        whole = read(run, (column, AT))
        numbers, times = whole.keys, whole.rows.column(AT).to_numpy()
        lacks = times >= since
        if len(known):
            at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            lacks &= known[at] != numbers
        mine = pa.array(lacks)
        index = index_rows(whole.rows.column(column).filter(mine), numbers[lacks], times[lacks])
        if index is not None:
            yield index
