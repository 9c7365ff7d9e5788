"""SELECT DISTINCT: which answers of a batch are seen for the first time.

An answer with the same values comes out once: in the batch in which it is first found, with the times of its oldest
combination. Under a window it comes out again if no answer with these values that came out lies in one window with it,
by their newest times: within the width of a sliding window, or in the same period of a tumbling one. Under a window over
rows it comes out again if that answer is older than all rows before the batch that the window of one of its streams
holds, if it is full.

Idreos et al. (2008, section 4) drop rows whose values a query has had before. That is not enough: two rows that differ
only in a joined column would give one answer twice. And under a window it loses answers. So the answers that came out
are remembered here. Values are equal as in SQL: null equals null, NaN equals NaN, and -0.0 is written as 0.0.

Answers are compared by their JSON. What came out is stored sorted by a hash of the query and the JSON; equal hashes are
told apart by both. A query is known by its id and its start: added anew, it begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.catalogue import HubCatalogue
from watersmeet.hubs.forest import Queries
from watersmeet.hubs.lists import numbered_pairs
from watersmeet.hubs.rows import Rows
from watersmeet.hubs.walk import OVER_ROWS, within
from watersmeet.kernel.keys import Indices, Keys, Mask, order_keys
from watersmeet.kernel.match import expand, matches_of
from watersmeet.kernel.rows import Keyed, Sorted, sorted_order, take_values
from watersmeet.model.window import AT

# Answers that are gathered before repetitions among them are dropped, and pairs that are compared at a time.
_GATHERED_ROWS = 1 << 19
_PAIRS = 1 << 18


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to DISTINCT queries: places of queries in the catalogue, times, and the values as JSON."""

    query: Indices
    oldest: Indices
    newest: Indices
    text: pa.Array

    def __len__(self) -> int:
        return len(self.query)

    def at(self, places: Indices) -> Answers:
        return Answers(
            self.query[places], self.oldest[places], self.newest[places], take_values(self.text, places)
        )


def distinct_parts(catalogue: HubCatalogue, parts: int) -> tuple[int, ...]:
    """The parts that have DISTINCT queries. Every template belongs to one part, so that no two give the same answer."""
    return tuple(np.unique(np.flatnonzero(catalogue.distinct) % parts).tolist())


def distinct_part(catalogue: HubCatalogue, part: int, parts: int) -> HubCatalogue:
    """The catalogue with the DISTINCT queries of one part only."""
    mine = np.arange(len(catalogue.distinct)) % parts == part
    return _with_templates(catalogue, catalogue.distinct & mine)


def without_distinct(catalogue: HubCatalogue) -> HubCatalogue:
    """The catalogue without its DISTINCT queries."""
    distinct = catalogue.distinct
    return _with_templates(catalogue, ~distinct) if distinct.any() else catalogue


def _with_templates(catalogue: HubCatalogue, kept: Mask) -> HubCatalogue:
    template = catalogue.queries.column("template").to_numpy()
    rows = catalogue.queries.filter(pa.array(kept[template]))
    return HubCatalogue(rows, catalogue.templates, catalogue.removed, catalogue.given_by)


def gather(parts: Iterable[Answers], queries: Queries) -> Answers | None:
    """All answers of a batch, each time of one once; without a window, only the first of them. None if there is none."""
    held: list[Answers] = []
    rows = 0
    for part in parts:
        held.append(part)
        rows += len(part)
        if rows > _GATHERED_ROWS:
            held = [_compact(held, queries)]
            rows = len(held[0])
    return _compact(held, queries) if held else None


def _compact(parts: Sequence[Answers], queries: Queries) -> Answers:
    found = Answers(
        np.concatenate([one.query for one in parts]),
        np.concatenate([one.oldest for one in parts]),
        np.concatenate([one.newest for one in parts]),
        pa.concat_arrays([one.text for one in parts]),
    )
    group = _groups(found)
    order = np.lexsort((found.oldest, found.newest, group))
    first = np.append(True, group[order][1:] != group[order][:-1])
    again = np.append(True, found.newest[order][1:] != found.newest[order][:-1])
    kept = order[first | (again & (queries.window[found.query[order]] > 0))]
    return found if len(kept) == len(found) else found.at(np.sort(kept))


def _groups(found: Answers) -> Indices:
    """A number for each answer, the same for those of one query with the same values."""
    code = found.text.dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbered_pairs(found.query, code)[1]


def oldest_counted(queries: Queries, rows: Rows, before: Keys, time: str) -> Indices:
    """For each query with a window over rows, the time below which an answer does not keep back equal ones.

    `before` is the number of the first row of the batch, and `time` the column of publication times.
    """
    found = np.full(len(queries.window), np.iinfo(np.int64).min)
    counted = np.flatnonzero(queries.window == OVER_ROWS)
    streams = queries.stream[queries.template[counted]]
    for stream in np.unique(streams[streams >= 0]).tolist():
        mine = counted[(streams == stream).any(axis=1)]
        stored = rows.streams[stream]
        last = stored.last_numbers(before, int(queries.width[mine].max()))
        mine = mine[queries.width[mine] <= len(last)]
        # Rows from before a query make no difference. As long as its window has some, it has all that the query counts,
        # so also those of the answer, and no answer is older than its own rows.
        if len(mine):
            times = stored.take(time, stored.positions(last)).to_numpy()
            lowest = np.minimum.accumulate(times[::-1])
            found[mine] = np.maximum(found[mine], lowest[queries.width[mine] - 1])
    return found


def first_seen(
    found: Answers, seen: Sequence[Keyed], queries: Queries, start: Indices, oldest: Indices | None = None
) -> Answers:
    """The answers that come out, given those that came out before.

    `start` has the start of each query, and `oldest` what `oldest_counted` says of it.
    """
    new = found.at(np.flatnonzero(~_came_out(found, seen, queries, start, oldest)))
    if not len(new):
        return new
    group = _groups(new)
    left = np.lexsort((new.newest, group))
    chosen = []
    # Every round takes the first answer that is left of each group. There are as many as answers of one group that come
    # out in one batch: one without a window.
    while len(left):
        first = np.append(True, group[left][1:] != group[left][:-1])
        chosen.append(left[first])
        taken = left[first][np.cumsum(first) - 1]
        window, width = queries.window[new.query[left]], queries.width[new.query[left]]
        left = left[~within(window, width, new.newest[taken], new.newest[left])]
    return new.at(np.sort(np.concatenate(chosen)))


def _came_out(
    found: Answers, seen: Sequence[Keyed], queries: Queries, start: Indices, counted: Indices | None
) -> Mask:
    """Which answers have come out before, in the window of their query."""
    keys = answer_keys(found, queries, start)
    order = sorted_order(keys)
    known = np.zeros(len(found), np.bool_)
    for run in seen:
        columns = [run.rows.column(name) for name in ("query", "answer")]
        started, times = run.rows.column("start").to_numpy(), run.rows.column(AT).to_numpy()
        for needle, at in expand(*matches_of(keys[order], run.keys), _PAIRS):
            mine = order[needle]
            query = found.query[mine]
            same = started[at] == start[query]
            for stored, value in zip(
                columns, (take_values(queries.ids, query), take_values(found.text, mine)), strict=True
            ):
                same &= pc.equal(take_values(stored, at), value).to_numpy(zero_copy_only=False)
            if counted is not None:
                same &= times[at] >= counted[query]
            oldest = np.minimum(times[at], found.newest[mine])
            newest = np.maximum(times[at], found.newest[mine])
            same &= within(queries.window[query], queries.width[query], oldest, newest)
            known[mine[same]] = True
    return known


def answer_keys(found: Answers, queries: Queries, start: Indices) -> Keys:
    """The hashes by which answers are found."""
    return order_keys([take_values(queries.ids, found.query), pa.array(start[found.query]), found.text])


def seen_rows(found: Answers, queries: Queries, start: Indices) -> Sorted:
    """What is remembered of answers that come out."""
    keys = answer_keys(found, queries, start)
    order = sorted_order(keys)
    rows = pa.RecordBatch.from_arrays(
        [
            take_values(queries.ids, found.query[order]),
            pa.array(start[found.query[order]]),
            take_values(found.text, order),
            pa.array(found.newest[order]),
        ],
        names=["query", "start", "answer", AT],
    )
    return Sorted(keys[order], rows)


def pieces_of(found: Answers, rows: int) -> Iterator[Answers]:
    """Some answers after the other."""
    for low in range(0, len(found), rows):
        yield found.at(np.arange(low, min(low + rows, len(found))))
