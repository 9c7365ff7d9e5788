"""What of the streams live queries need: which runs, from which batch on, and down to which publication time.

A query counts the rows of later batches than its command, so a run leaves with the last query that is older than it. A
query with SINCE counts the rows of all batches, from that publication time on. Nothing is stored of a stream that no
query reads, unless rows are retained (hubs/retained.py). An index begins with the first query that looks it up, and ends
with the last.

A stored row is used again only by a fresh row of another input of the query. The slowest stream among those inputs says
how old such a row may yet be: its watermark (hubs/watermarks.py). If all queries that use a run have windows, the run
has a *floor*: the smallest, over those queries, of the slowest watermark minus the width. A row below it can be in no
answer any more.

    history of a batch          rows from the floor on, by the queries in force and the watermarks that its parent left
    merges planned in it        drop rows below the floor by the same queries and the watermarks that the batch leaves

A query that is added later does not count any of these rows, so merges may go by the queries in force. A floor may fall
when a wider query comes: the rows in between are older than it. With SINCE a later query counts retained rows too. Their
floor is lower, and the moments that a query may name are above it (hubs/retained.py).

Without a window, a query with SINCE needs all rows from that time on.

Combinations that templates keep are met by fresh rows of their other inputs only, and are as old as their oldest row.

What came out of DISTINCT queries is kept in the same way: an answer is needed as long as a later one may lie in one
window with it.

A window over rows gives a floor by the count of its stream alone (hubs/counted.py). The answers of a DISTINCT query have
the lowest floor of its streams. Its streams keep the rows of the window also if they are met by none, as they say which
answers are old.

A window that tumbles counts as one that slides: at most one width more is kept. A query of one input needs no stored
row at all. An input whose other streams have no watermark yet has no floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow.compute as pc

from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.counted import floor_of
from watersmeet.hubs.kept import KEPT
from watersmeet.hubs.past import first_batches
from watersmeet.hubs.steps import Attributes, indexed_columns
from watersmeet.hubs.stored import ANSWERED
from watersmeet.hubs.window import WindowOf
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.model.window import FARTHEST, CountedRows

# The floor of a run that no stored row is needed of, and the watermark of a stream that has none: beyond all times.
_ALL: Final = 2 * FARTHEST
_NONE: Final = -2 * FARTHEST


@dataclass(frozen=True)
class Needed:
    """`first` has the first batch that a query counts, of each stream that is read and each index that is looked up.

    The late rows of the streams in `late` are counted by a query without a window. Use number i of the others is of the
    run `name[i]` by queries of at most `width[i]`, and fresh rows of the streams marked in `others[i]` end it. The runs
    in `endless` are used by queries without a window. If all of these have SINCE, the run is in `since`, with the earliest
    time. Through windows over rows queries use the runs in `counted`, of at most the given rows of some streams. `stream_of`
    has the stream of each run of rows or of an index.
    """

    streams: tuple[str, ...]
    first: Mapping[str, int]
    late: frozenset[str]
    endless: frozenset[str]
    names: tuple[str, ...]
    name: Indices
    others: Mask
    width: Indices
    counted: Mapping[str, Mapping[str, int]]
    since: Mapping[str, int]
    stream_of: Mapping[str, str]

    @property
    def counted_streams(self) -> dict[str, int]:
        """The streams that are read through windows over rows, with the rows of the widest."""
        found: dict[str, int] = {}
        for widths in self.counted.values():
            for stream, width in widths.items():
                found[stream] = max(width, found.get(stream, 0))
        return found

    def floors(
        self,
        watermarks: Mapping[str, int],
        rows: Mapping[str, CountedRows] | None = None,
        retain: int | None = None,
    ) -> dict[str, int]:
        """The publication time below which rows are kept no more, of each run that has one.

        `rows` says how many of each stream have been counted.
        """
        found = self._by_time(watermarks)
        for name, widths in self.counted.items():
            for stream, width in widths.items():
                floor = floor_of((rows or {}).get(stream), width)
                found[name] = _NONE if floor is None else min(floor, found.get(name, _ALL))
        if retain is not None:
            for name, stream in self.stream_of.items():
                if name not in self.first and name != stream:
                    continue
                mark = watermarks.get(stream, _NONE)
                found[name] = min(mark, found.get(name, _ALL)) - retain
        for name, since in self.since.items():
            found[name] = min(since, found.get(name, since))
        return {name: floor for name, floor in found.items() if floor > _NONE and name not in self.endless}

    def reads(
        self,
        watermarks: Mapping[str, int],
        reached: Mapping[str, int],
        rows: Mapping[str, CountedRows] | None = None,
    ) -> dict[str, int]:
        """The publication time from which on queries use old rows, of each stream and index that has such.

        New queries with SINCE use those that they have `reached` (hubs/past.py).
        """
        floors = self.floors(watermarks, rows)
        found = {name: min(floors.get(name, _NONE), reached.get(name, _ALL)) for name in self.first}
        return {name: since for name, since in found.items() if since < _ALL}

    def retained(self, watermarks: Mapping[str, int], retain: int | None) -> dict[str, int]:
        """The publication time from which rows are kept whatever queries need, of each stream."""
        if retain is None:
            return {}
        return {stream: watermarks.get(stream, _NONE) - retain for stream in self.streams}

    def _by_time(self, watermarks: Mapping[str, int]) -> dict[str, int]:
        if not self.names:
            return {}
        marks = np.array([watermarks.get(stream, _NONE) for stream in self.streams], np.int64)
        reach = np.where(self.others, marks, _ALL).min(axis=1)
        floor = np.where(np.isin(reach, (_NONE, _ALL)), reach, reach - self.width)
        lowest = np.full(len(self.names), _ALL, np.int64)
        np.minimum.at(lowest, self.name, floor)
        return dict(zip(self.names, lowest.tolist(), strict=True))


def needed_of(catalogue: HubCatalogue, attributes: Attributes) -> Needed:
    """What the queries of a catalogue need."""
    templates, queries = catalogue.parsed, catalogue.queries
    template = queries.column("template").to_numpy()
    lowest = np.full(len(templates), np.iinfo(np.int64).max)
    np.minimum.at(lowest, template, first_batches(queries))
    came = np.full(len(templates), np.iinfo(np.int64).max)
    np.minimum.at(came, template, queries.column("start").to_numpy() + 1)
    window, width_of = queries.column("window"), queries.column("width").fill_null(0).to_numpy()
    over_rows = pc.fill_null(pc.equal(window, str(WindowOf.ROWS)), False).to_numpy(zero_copy_only=False)
    widest, most_rows = np.zeros(len(templates), np.int64), np.zeros(len(templates), np.int64)
    np.maximum.at(widest, template[~over_rows], width_of[~over_rows])
    np.maximum.at(most_rows, template[over_rows], width_of[over_rows])
    no_window = window.is_null().to_numpy(zero_copy_only=False)
    no_since = queries.column("since").is_null().to_numpy(zero_copy_only=False)
    over_time, unbounded = np.zeros(len(templates), np.bool_), np.zeros(len(templates), np.bool_)
    over_time[template[~no_window & ~over_rows]] = True
    unbounded[template[no_window & no_since]] = True
    earliest = np.full(len(templates), _ALL)
    reaching = np.flatnonzero(no_window & ~no_since)
    np.minimum.at(earliest, template[reaching], queries.column("since").fill_null(_ALL).to_numpy()[reaching])
    places = {one: attributes.index_of(number) for number, one in enumerate(attributes.columns)}
    first: dict[str, int] = {}
    late: set[str] = set()
    endless: set[str] = set()
    uses: dict[tuple[str, frozenset[str]], int] = {}
    counted: dict[str, dict[str, int]] = {}
    reached: dict[str, int] = {}
    stream_of = {stream: stream for stream in attributes.streams}
    stream_of.update((name, stream) for (stream, _), name in places.items())
    for one, keeps, low, start, width, rows, is_over_time, is_unbounded, since in zip(
        templates,
        catalogue.templates.column("keeps").to_pylist(),
        lowest.tolist(),
        came.tolist(),
        widest.tolist(),
        most_rows.tolist(),
        over_time.tolist(),
        unbounded.tolist(),
        earliest.tolist(),
        strict=True,
    ):
        indexed = indexed_columns(one)
        has_since = since != _ALL
        if is_unbounded or has_since:
            late.update(one.streams)
        used = [
            (name, frozenset((*one.streams[:input_], *one.streams[input_ + 1 :])))
            for input_, stream in enumerate(one.streams)
            for name in (stream, *(places[stream, column] for column in indexed[input_]))
        ]
        if one.distinct:
            used.append((ANSWERED, frozenset(one.streams)))
        # What is kept is needed for later batches than the first of its queries, and as old as all of its rows.
        counted_by = {ANSWERED: one.streams}
        if keeps:
            counted_by[KEPT] = tuple(one.streams[input_] for input_ in keeps)
            outside = (stream for input_, stream in enumerate(one.streams) if input_ not in keeps)
            used.append((KEPT, frozenset(outside)))
        for name, others in used:
            begins = start if name in counted_by else low
            first[name] = min(begins, first.get(name, begins))
            if others and (is_unbounded or (has_since and name == ANSWERED)):
                endless.add(name)
                continue
            if others and has_since:
                reached[name] = min(since, reached.get(name, since))
            if rows and (others or one.distinct):
                widths = counted.setdefault(name, {})
                for stream in counted_by.get(name, (stream_of.get(name, name),)):
                    widths[stream] = max(rows, widths.get(stream, 0))
            if is_over_time or not others:
                uses[name, others] = max(width, uses.get((name, others), 0))
    names = tuple(sorted({name for name, _ in uses}))
    place = {name: at for at, name in enumerate(names)}
    return Needed(
        attributes.streams,
        first,
        frozenset(late),
        frozenset(endless),
        names,
        np.array([place[name] for name, _ in uses], np.int64),
        np.array([[stream in others for stream in attributes.streams] for _, others in uses], np.bool_),
        np.array(list(uses.values()), np.int64),
        counted,
        reached,
        stream_of,
    )
