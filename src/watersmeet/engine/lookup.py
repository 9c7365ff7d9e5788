"""A task's share of a join with a table: each page that its rows wait on is read once and joined with all of them.

The time that this takes is measured, for the plans of later batches (schemes/table/worth.py). The time of whoever takes
the results is not part of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.engine.kept_table import KeptTable, Opened
from watersmeet.kernel.bounds import bounded, cut
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.lookup import LookupJoin, Page
from watersmeet.kernel.pages import distinct, needed_pages
from watersmeet.kernel.rows import Sorted, take_rows
from watersmeet.log.runs import RunReader
from watersmeet.model.facts import KeyRange, Manifest
from watersmeet.model.limits import Limits
from watersmeet.model.pages import HASH_SHIFT, pages_in, pages_of
from watersmeet.model.tally import Tally
from watersmeet.schemes.table.facts import PagePlan, Reading, batches_of
from watersmeet.schemes.table.plan import waiting_rows
from watersmeet.schemes.table.worth import Step


def lookup_share(
    reader: RunReader,
    manifest: Manifest,
    plan: PagePlan,
    join: LookupJoin,
    columns: tuple[str, ...],
    ranges: Sequence[KeyRange],
    kept: KeptTable,
    limits: Limits,
    tally: Tally,
    *,
    first: bool,
) -> Iterator[pa.RecordBatch]:
    """All results of the stream's rows in some ranges, in bounded batches. `columns` are the stored ones of the stream.

    The `first` task of a batch then sorts a changed table, if that is due. The tally has what was decoded.
    """
    decoded = kept.decoded_bytes
    for mine in ranges:
        waiting = list(_waiting(reader, manifest, plan, mine, columns, kept))
        yield from _answers(kept, plan, join, mine, waiting, limits)
    tally.decoded_bytes += kept.decoded_bytes - decoded
    if first:
        kept.make_ready(plan, manifest.written_ms)


def _answers(
    kept: KeptTable, plan: PagePlan, join: LookupJoin, mine: KeyRange, waiting: list[Sorted], limits: Limits
) -> Iterator[pa.RecordBatch]:
    opened = kept.at(plan.table)
    rows = sum(map(len, waiting))
    if not rows:
        return
    width = sum(part.rows.nbytes for part in waiting) // rows + 1
    limit = max(1, min(limits.piece_rows, limits.piece_bytes // width))
    for range_ in cut([waiting], [1], limit):
        piece = KeyRange(max(range_.low, mine.low), min(range_.high, mine.high))
        # A key may be in several of these pieces: the matches of a row do not depend on other rows.
        for pending in bounded([whole.between(range_) for whole in waiting], limit, limits.piece_bytes):
            yield from _measured(kept, opened, pending, _results(kept, opened, pending, piece, join, limits))


def _results(
    kept: KeptTable, opened: Opened, pending: Sorted, piece: KeyRange, join: LookupJoin, limits: Limits
) -> Iterator[pa.RecordBatch]:
    pages = _pages(kept, opened, pending, piece, join, limits)
    yield from join.results(pending, pages, opened.table.schema, limits)


def _measured(
    kept: KeptTable, opened: Opened, pending: Sorted, results: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The results of the pending rows. When all are out, note the pages, the rows and the time."""
    seconds, read_s, find_s = 0.0, kept.read_s, kept.find_s
    while True:
        began = kept.clock()
        found = next(results, None)
        seconds += kept.clock() - began
        if found is None:
            break
        yield found
    pages = np.searchsorted(distinct(pages_of(pending.keys)), len(opened.table.index))
    read_s, find_s = kept.read_s - read_s, kept.find_s - find_s
    step = Step(int(pages), len(pending), read_s, find_s, seconds - read_s - find_s)
    kept.measured = kept.measured.with_step(step)


def _pages(
    kept: KeptTable, opened: Opened, pending: Sorted, range_: KeyRange, join: LookupJoin, limits: Limits
) -> Iterator[Page]:
    """The parts of the table that match the pending rows, which are all waiting rows of this range."""
    index = opened.table.index
    keys = pending.rows.select([stream for stream, _ in join.verify])
    needed = needed_pages(index, pending.keys, keys)
    if kept.spec.reading == Reading.MESH:
        every = pages_in(range_)
        return kept.pages(opened, np.union1d(needed, np.arange(every.start, min(every.stop, len(index)))))
    pages = pages_of(pending.keys)
    if kept.spec.reading == Reading.INDEX:
        return _key_by_key(kept, opened, keys, needed, pages, limits.lookup_keys)
    if not opened.is_database:
        return kept.pages(opened, needed)
    # As good as counting keys: two keys of one page seldom share their hash.
    found, counts = np.unique(pages_of(np.unique(pending.keys >> _SALT) << _SALT), return_counts=True)
    inside = found < len(index)
    few = found[inside][counts[inside] * limits.rows_per_lookup < index.rows[found[inside]]]
    few = few[~kept.holds(opened, few)]
    asked = np.flatnonzero(np.isin(pages, few))
    return itertools.chain(
        kept.pages(opened, np.setdiff1d(needed, few)),
        kept.look_up(opened, take_rows(keys, asked), pages[asked], limits.lookup_keys),
    )


_SALT = np.uint64(HASH_SHIFT)


def _key_by_key(
    kept: KeptTable, opened: Opened, keys: pa.RecordBatch, needed: Indices, pages: Indices, at_once: int
) -> Iterator[Page]:
    """Look up every row by itself, as an index nested loop. Files have no index: each row reads its page again."""
    if opened.is_database:
        inside = np.searchsorted(pages, len(opened.table.index))
        yield from kept.look_up(opened, keys.slice(0, inside), pages[:inside], at_once)
        return
    times = dict(zip(*(found.tolist() for found in np.unique(pages, return_counts=True)), strict=True))
    for number in needed.tolist():
        for _ in range(times.get(number, 1)):
            rows = opened.table.read(number, kept.spec.columns)
        yield opened.page(number, rows, kept.spec.keys)


def _waiting(
    reader: RunReader,
    manifest: Manifest,
    plan: PagePlan,
    range_: KeyRange,
    columns: tuple[str, ...],
    kept: KeptTable,
) -> Iterator[Sorted]:
    """The rows that this batch joins, as slices of runs. The search through those of earlier batches is measured.

    A run is searched as a whole as long as one of its rows waits: that is a cost of the rows that wait.
    """
    before, read = batches_of(plan.before), batches_of(plan.after) == manifest.batch.number
    rows, seconds = 0, 0.0
    for run in manifest.live:
        if not range_.overlaps(run):
            continue
        began = kept.clock()
        parts = list(reader.read(run, range_, columns).values())
        if plan.after:
            waiting = [waiting_rows(part.keys, before, run.batch) for part in parts]
            parts = [
                _those(part, mask & read[pages_of(part.keys)])
                for part, mask in zip(parts, waiting, strict=True)
            ]
            if run.batch < manifest.batch.number:
                rows += sum(int(np.count_nonzero(mask)) for mask in waiting)
                seconds += kept.clock() - began
        yield from parts
    kept.measured = kept.measured.with_wait(rows, seconds)


def _those(part: Sorted, chosen: npt.NDArray[np.bool_]) -> Sorted:
    if chosen.all():
        return part
    at = np.flatnonzero(chosen)
    return Sorted(part.keys[at], take_rows(part.rows, at))
