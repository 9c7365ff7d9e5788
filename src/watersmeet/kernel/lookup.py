"""Pending stream rows against pages of a table: the join step of HYBRIDJOIN, for many pages at once.

Source: Naeem, Dobbie, Weber 2010, Fig. 5, lines 4-10: a page in memory meets all pending rows, not only the one
that it was read for. There, rows of the page probe a hash table of the stream. Here both sides are sorted by page
and hash of the key, so that search, comparison and gathering are done for a bundle of pages together: a batch often
has a handful of rows for each of thousands of pages.

Every match comes out once: a stream row is located at one home page, and a row of the table is in one page. A page
that begins with the rest of an earlier page's last key is also compared with the pending rows of that home. `verify`
tells keys apart: the rows of its own keys find nothing there, and those of the shared key find nothing here. Hashes
have 28 bits, so `verify` must list all key columns.

Memory: a bundle has at most `joined_bytes` (model/limits.py) or one page, and results come out in bounded batches. The
pending rows are not bounded here: the caller cuts them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import TableError
from watersmeet.kernel.bounds import bundled
from watersmeet.kernel.emit import Emission, OutputColumn, Picked, needed, rows_together
from watersmeet.kernel.keys import Indices, Keys, drop_null_keys
from watersmeet.kernel.match import equal_pairs, expand, matches_of
from watersmeet.kernel.pages import find_outside, key_hashes, locate
from watersmeet.kernel.rows import ORDER, Sorted, merge_order, sorted_order, take_rows
from watersmeet.kernel.sizes import mean_row_bytes
from watersmeet.model.expression import Expression
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.pages import HASH_BITS, HASH_SHIFT, PageIndex, page_bounds

# The place of a pending row, given out with each match of a left join and taken off again.
_PLACE = "__wm_place"


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of a page that have keys, ascending by the hash of the key. `home` is where its first key begins.

    `bytes` is the size of keys and rows in memory or in a mapped file, stored because it is read several times a batch.
    """

    number: int
    home: int
    keys: Keys
    rows: pa.RecordBatch
    bytes: int


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Pairs of a stream row and a row of the table with one key, for which `residual` is true.

    `names` and `verify`, which lists all key columns, have the stream first. With `left`, stream rows without any
    match come out with nulls for the table.
    """

    verify: tuple[tuple[str, str], ...]
    residual: Expression | None
    output: tuple[OutputColumn, ...]
    names: tuple[str, str]
    left: bool = False
    ansi: bool = True

    def results(
        self, pending: Sorted, pages: Iterable[Page], schema: pa.Schema, limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[pa.RecordBatch]:
        """All results of the pending rows with these pages, which are opened as they are needed.

        The pages are all that `needed_pages` names for the pending rows, each once, best in ascending order.
        `schema` has the columns of the table that come out. Without a page, a left join emits all rows with nulls.
        """
        stream, table = self.names
        matched = np.zeros(len(pending), np.bool_)
        rows, output = pending.rows, self.output
        if self.left:
            rows = rows.append_column(_PLACE, pa.array(np.arange(len(pending), dtype=np.int64)))
            output = (*output, OutputColumn(stream, _PLACE, _PLACE))
        verify = tuple(((stream, one), (table, other)) for one, other in self.verify)
        emission = Emission(output, self.residual, self.ansi, verify, limits=limits)
        # Pending rows are often a slice of a large run: the size of its buffers says nothing of them.
        row_bytes = mean_row_bytes(rows)
        most_rows, most_bytes = limits.output_rows, limits.output_bytes
        bundles = bundled(
            pages, lambda _: 1, lambda page: page.bytes, limits.joined_pages, limits.joined_bytes
        )
        for pages_here in bundles:
            bundle = _bundle_of(pages_here, limits)
            limit = max(1, min(most_rows, most_bytes // (row_bytes + bundle.row_bytes)))
            for stream_at, table_at in _candidates(pending.keys, bundle, limit, limits):
                found = {stream: Picked(rows, stream_at), table: _gathered(bundle, table_at)}
                for batch in emission.results(found):
                    if self.left:
                        matched[batch.column(batch.num_columns - 1).to_numpy()] = True
                        batch = batch.select(range(batch.num_columns - 1))
                    yield batch
        if self.left:
            yield from self._unmatched(pending, np.flatnonzero(~matched), schema, limits)

    def _unmatched(
        self, pending: Sorted, at: Indices, schema: pa.Schema, limits: Limits
    ) -> Iterator[pa.RecordBatch]:
        stream, table = self.names
        wanted = needed(self.output, table)
        nulls = pa.RecordBatch.from_arrays([pa.nulls(1, schema.field(c).type) for c in wanted], names=wanted)
        emission = Emission(self.output, limits=limits)
        limit = rows_together(limits, pending.rows, nulls)
        for low in range(0, len(at), limit):
            here = at[low : low + limit]
            absent = Picked(nulls, np.zeros(len(here), np.int64))
            yield from emission.results({stream: Picked(pending.rows, here), table: absent})


def open_page(number: int, rows: pa.RecordBatch, key_columns: Sequence[str], home: int | None = None) -> Page:
    """A page as read. If its first column is the order column, it is already sorted by it and has no null keys."""
    home = number if home is None else home
    if rows.num_columns and rows.schema.names[0] == ORDER:
        return _whole_page(number, home, rows.column(0).to_numpy(), rows.select(range(1, rows.num_columns)))
    keyed = drop_null_keys(rows, key_columns)
    hashes = key_hashes(keyed.select(list(key_columns)))
    order = sorted_order(hashes)
    return _whole_page(number, home, hashes[order], take_rows(keyed, order))


def _whole_page(number: int, home: int, keys: Keys, rows: pa.RecordBatch) -> Page:
    # The buffers are the page's own; the size of what is seen of them (`nbytes`) takes fifty times as long to find.
    return Page(number, home, keys, rows, int(rows.get_total_buffer_size()) + keys.nbytes)


def pages_of_rows(index: PageIndex, rows: pa.RecordBatch, key_columns: Sequence[str]) -> list[Page]:
    """Rows that were asked for by key, as parts of the pages that their keys belong to."""
    keyed = drop_null_keys(rows, key_columns)
    keys = keyed.select(list(key_columns))
    numbers, hashes = locate(index, keys), key_hashes(keys)
    order = np.lexsort((hashes, numbers))
    numbers, hashes, sorted_ = numbers[order], hashes[order], take_rows(keyed, order)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    bounds = [*starts.tolist(), len(numbers)]
    # The parts share their buffers: each counts as its rows do on average.
    row_bytes = (int(sorted_.get_total_buffer_size()) + hashes.nbytes) // max(1, len(numbers)) + 1
    return [
        Page(
            int(numbers[low]),
            int(numbers[low]),
            hashes[low:high],
            sorted_.slice(low, high - low),
            row_bytes * (high - low),
        )
        for low, high in itertools.pairwise(bounds)
    ]


def check_page(index: PageIndex, number: int, rows: pa.RecordBatch) -> None:
    """Refuse rows that are not where the index has them: their partners would be sought elsewhere."""
    keys = rows.select(list(index.keys))
    place = find_outside(index, number, keys)
    if place is not None:
        found, first, last = (
            batch.slice(at, 1).to_pylist()[0]
            for batch, at in ((keys, place), (index.first, number), (index.last, number))
        )
        if not index.gaps:
            raise TableError(
                f"the database has the key {found} in page {number} of the table, which begins with {first}, but a "
                "join orders it elsewhere: give the column one type for all its values, or take a view that casts it, "
                "with an index on that expression"
            )
        raise TableError(
            f"page {number} of the table holds the key {found}, but its keys are said to go from {first} to {last}: "
            "the table is not sorted by its key, or has changed since it was opened; sort it, or leave "
            "in_place out so that it is sorted into the state"
        )


@dataclass(frozen=True, slots=True)
class _PageBundle:
    """Pages one after the other: page i begins at row `starts[i]`, and the last entry is the number of rows."""

    pages: Sequence[Page]
    starts: Indices
    row_bytes: int
    whole: bool


def _bundle_of(pages: list[Page], limits: Limits) -> _PageBundle:
    pages.sort(key=lambda page: page.number)
    starts = np.cumsum([0, *(len(page.keys) for page in pages)])
    size = sum(page.bytes for page in pages)
    return _PageBundle(
        pages, starts, size // max(1, int(starts[-1])) + 1, size <= limits.whole_page_bytes * len(pages)
    )


def _candidates(
    stream: Keys, bundle: _PageBundle, limit: int, limits: Limits
) -> Iterator[tuple[Indices, Indices]]:
    """Pairs of places, in the pending rows and in the bundle, with the same page and hash."""
    bounds = _bounds(stream, bundle.pages)
    waiting, rows = int(bounds[-1, 1] - bounds[0, 0]), int(bundle.starts[-1])
    if rows >= max(limits.searched_page_rows * len(bundle.pages), limits.searched_page_times * waiting):
        yield from _searched(stream, bounds, bundle, limit)
    else:
        yield from _equal(stream, _placed(bundle.pages, [page.number for page in bundle.pages]), limit)
    later = [place for place, page in enumerate(bundle.pages) if page.home != page.number]
    if not later:
        return
    rests = [bundle.pages[place] for place in later]
    # A key may fill many pages, all with one home.
    keys, order = merge_order([_placed([page], [page.home]) for page in rests])
    places = np.concatenate([np.arange(bundle.starts[place], bundle.starts[place + 1]) for place in later])
    for stream_at, at in _equal(stream, keys, limit):
        yield stream_at, places[order[at]]


def _bounds(stream: Keys, pages: Sequence[Page]) -> Indices:
    """For each page where the rows that wait on it begin and end."""
    first, last = page_bounds(np.array([page.number for page in pages], np.int64))
    return np.stack([np.searchsorted(stream, first), np.searchsorted(stream, last, side="right")], axis=1)


def _searched(
    stream: Keys, bounds: Indices, bundle: _PageBundle, limit: int
) -> Iterator[tuple[Indices, Indices]]:
    """The same pairs as `_equal` finds, page by page."""
    low, high = int(bounds[0, 0]), int(bounds[-1, 1])
    hashes = (stream[low:high] >> np.uint64(HASH_SHIFT)) & np.uint64((1 << HASH_BITS) - 1)
    found = []
    for page, offset, (begin, stop) in zip(
        bundle.pages, bundle.starts[:-1].tolist(), (bounds - low).tolist(), strict=True
    ):
        if len(page.keys) and begin < stop:
            here = matches_of(hashes[begin:stop], page.keys)
            found.append((here.found + (low + begin), here.start + offset, here.rows))
    if found:
        stream_at, start, rows = map(np.concatenate, zip(*found, strict=True))
        yield from expand(stream_at, start, rows, limit)


def _equal(stream: Keys, keys: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    if not len(keys):
        return
    salt = np.uint64(HASH_SHIFT)
    low = int(np.searchsorted(stream, keys[0] << salt))
    high = int(np.searchsorted(stream, (keys[-1] << salt) | np.uint64((1 << HASH_SHIFT) - 1), side="right"))
    for stream_at, at in equal_pairs(stream[low:high] >> salt, keys, limit):
        yield stream_at + low, at


def _placed(pages: Sequence[Page], numbers: list[int]) -> Keys:
    """The hashes of all rows with a page's number before each."""
    lengths = [len(page.keys) for page in pages]
    prefix = np.repeat(np.array(numbers, np.uint64) << np.uint64(HASH_BITS), lengths)
    return prefix | np.concatenate([page.keys for page in pages])


def _gathered(bundle: _PageBundle, at: Indices) -> Picked:
    """The rows at some places of a bundle, out of a copy that holds them all."""
    owner = np.searchsorted(bundle.starts, at, side="right") - 1
    touched = np.flatnonzero(np.bincount(owner))
    if bundle.whole:
        lengths = np.diff(bundle.starts)[touched]
        shift = np.zeros(len(bundle.pages), np.int64)
        shift[touched] = bundle.starts[touched] - (np.cumsum(lengths) - lengths)
        return Picked(_together([bundle.pages[page].rows for page in touched.tolist()]), at - shift[owner])
    wanted, now = _distinct(at)
    bounds = [*np.searchsorted(wanted, bundle.starts[touched]).tolist(), len(wanted)]
    parts = [
        take_rows(bundle.pages[page].rows, wanted[low:high] - bundle.starts[page])
        for page, (low, high) in zip(touched.tolist(), itertools.pairwise(bounds), strict=True)
    ]
    return Picked(_together(parts), now)


def _distinct(at: Indices) -> tuple[Indices, Indices]:
    """Each place once, ascending, and where each of `at` is among them. As a rule they ascend, as both sides do.

    >>> [found.tolist() for found in _distinct(np.array([3, 3, 8, 9]))]
    [[3, 8, 9], [0, 0, 1, 2]]
    """
    if (at[1:] < at[:-1]).any():
        return np.unique(at, return_inverse=True)
    new = np.append(True, at[1:] != at[:-1])
    return at[new], np.cumsum(new) - 1


def _together(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
