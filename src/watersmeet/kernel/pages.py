"""The page of a table that can hold the key of each stream row, and the order key made from it.

A key that fills several pages belongs to the first of them, its *home*; the pages behind it are its continuations.
A key that no page can hold gets the number one past the last page. So does a key with a null in any column, since it
equals nothing. `model.pages` describes order keys; their salt is drawn from the row's place.

Pages are found by binary search over their bounds: in order words where these decide, value by value where they do
not (text beyond its first bytes, wide decimals, several columns). A key column has the SQL type of the table's, or
both are integers, or both floats, of any width.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import UsageError
from watersmeet.kernel.keys import Indices, Keys, Mask, mix, order_keys, strict, valid_rows, words
from watersmeet.model.pages import HASH_BITS, HASH_SHIFT, PAGE_NUMBERS, PAGE_SHIFT, PageIndex, pages_of

_SALT_DROPPED = np.uint64(64 - HASH_SHIFT)


def key_hashes(keys: pa.RecordBatch) -> Keys:
    """The hash of each key, as order keys hold it. There are no nulls."""
    return order_keys(keys.columns) >> np.uint64(64 - HASH_BITS)


def page_orders(index: PageIndex, keys: pa.RecordBatch, places: Keys) -> Keys:
    """Order keys of stream rows; `keys` has a column for each key of the index, in their order, by any names."""
    if len(index) >= PAGE_NUMBERS:
        raise UsageError(f"a table of {len(index)} pages has too many of them: take larger pages")
    mixed = mix(places)
    valid = _valid(keys)
    # Without a key there is no hash: such rows may be many, so they are spread by their place.
    hashes = mixed & np.uint64((1 << HASH_BITS) - 1)
    if valid is None:
        hashes = key_hashes(keys)
    else:
        hashes[valid] = key_hashes(keys.take(pa.array(valid)))
    pages = locate(index, keys).astype(np.uint64)
    return (pages << np.uint64(PAGE_SHIFT)) | (hashes << np.uint64(HASH_SHIFT)) | (mixed >> _SALT_DROPPED)


def locate(index: PageIndex, keys: pa.RecordBatch) -> Indices:
    """The page of each key, len(index) where it can be in none.

    >>> bounds = [pa.record_batch({"id": ids}) for ids in ([1, 10], [8, 12])]
    >>> index = PageIndex(("id",), *bounds, rows=np.array([5, 3]), bytes=np.array([600, 360]))
    >>> locate(index, pa.record_batch({"product": [8, 9, 10, None]})).tolist()
    [0, 2, 1, 2]
    """
    _check_types(index, keys)
    found = np.full(keys.num_rows, len(index), np.int64)
    valid = _valid(keys)
    if valid is None:
        return _located(index, keys) if len(index) else found
    if len(index):
        found[valid] = _located(index, keys.take(pa.array(valid)))
    return found


def _located(index: PageIndex, keys: pa.RecordBatch) -> Indices:
    if not index.gaps:
        return np.maximum(_rank(index.first, keys, equal=True) - 1, 0)
    page = _rank(index.last, keys, equal=False)
    inside = np.flatnonzero(page < len(index))
    outside = inside[~_precedes(index.first, page[inside], keys, inside, equal=True)]
    page[outside] = len(index)
    return page


def find_disorder(index: PageIndex) -> int | None:
    """The first page whose keys do not all lie between those of its neighbours, if there is one."""
    every = np.arange(len(index))
    if index.gaps:
        wrong = ~_precedes(index.first, every, index.last, every, equal=True)
        ahead = ~_precedes(index.last, every[:-1], index.first, every[1:], equal=True)
    else:
        wrong = np.zeros(len(index), np.bool_)
        ahead = ~_precedes(index.first, every[:-1], index.first, every[1:], equal=False)
    wrong[1:] |= ahead
    return int(np.argmax(wrong)) if wrong.any() else None


def find_outside(index: PageIndex, page: int, keys: pa.RecordBatch) -> int | None:
    """The place of some key of the page that is not within its bounds, if there is one. Null keys do not count."""
    _check_types(index, keys)
    valid = _valid(keys)
    rows = np.arange(keys.num_rows) if valid is None else valid
    at = np.full(len(rows), page)
    if index.gaps:
        wrong = ~_precedes(index.first, at, keys, rows, equal=True)
        wrong |= _precedes(index.last, at, keys, rows, equal=False)
    else:
        wrong = np.zeros(len(rows), np.bool_)
        if page:
            wrong |= ~_precedes(index.first, at, keys, rows, equal=True)
        if page + 1 < len(index):
            wrong |= _precedes(index.first, at + 1, keys, rows, equal=True)
    return int(rows[np.argmax(wrong)]) if wrong.any() else None


def homes(index: PageIndex) -> Indices:
    """For each page the one that its first key is located at: itself, or the beginning of that key's rows."""
    return _located(index, index.first) if len(index) else np.empty(0, np.int64)


def distinct(numbers: Indices) -> Indices:
    """Each of some ascending numbers once.

    >>> distinct(np.array([2, 2, 5, 7, 7])).tolist()
    [2, 5, 7]
    """
    return numbers[np.append(True, numbers[1:] != numbers[:-1])] if len(numbers) else numbers


def needed_pages(index: PageIndex, orders: Keys, keys: pa.RecordBatch) -> Indices:
    """The pages to be read for some pending rows, ascending: their own, and continuations that hold their keys.

    The order keys ascend. A continuation is needed if some row has the last key of the page before it: a key in the middle has all
    its rows there.
    """
    pages = pages_of(orders)
    pages = pages[: int(np.searchsorted(pages, len(index)))]
    needed, continues = distinct(pages), index.continues
    if not continues[needed].any():
        return needed
    at_risk = np.flatnonzero(continues[pages])
    reaching = ~_precedes(keys, at_risk, index.last, pages[at_risk], equal=False)
    starts = np.unique(pages[at_risk[reaching]])
    counts = _chain_ends(index, continues)[starts] - starts
    behind = np.repeat(starts + 1, counts) + _counting(counts)
    return np.union1d(needed, behind)


def _chain_ends(index: PageIndex, continues: Mask) -> Indices:
    """For each page that continues, the last page that can hold its last key."""
    every = np.arange(len(index))
    # A page in the middle of a key's rows holds nothing else.
    whole = continues & ~_precedes(index.first, every, index.last, every, equal=False)
    ends = np.where(whole, len(index), every)
    following = np.minimum.accumulate(ends[::-1])[::-1]
    return np.append(following[1:], len(index))


def _counting(counts: Indices) -> Indices:
    """0, 1, .. for each count, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _rank(bounds: pa.RecordBatch, keys: pa.RecordBatch, *, equal: bool) -> Indices:
    """How many of the ascending bounds are smaller than each key, or as large if `equal`."""
    coarse, sought = words(bounds.column(0)), words(keys.column(0))
    if bounds.num_columns == 1 and strict(bounds.column(0).type):
        return np.searchsorted(coarse, sought, side="right" if equal else "left")
    low = np.searchsorted(coarse, sought)
    high = np.searchsorted(coarse, sought, side="right")
    # Where the words agree the values decide.
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        before = _precedes(bounds, middle, keys, open_, equal=equal)
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
        open_ = open_[low[open_] < high[open_]]
    return low


def _precedes(
    one: pa.RecordBatch, one_at: Indices, other: pa.RecordBatch, other_at: Indices, *, equal: bool
) -> Mask:
    """For each pair of places whether the row of `one` is smaller than that of `other`, or equals it if `equal`."""
    result = np.full(len(one_at), equal)
    for column, other_column in reversed(list(zip(one.columns, other.columns, strict=True))):
        left, right = column.take(pa.array(one_at)), other_column.take(pa.array(other_at))
        if strict(column.type):
            left, right = words(left), words(right)
            less, same = left < right, left == right
        else:
            less, same = (compare(left, right).to_numpy(zero_copy_only=False) for compare in _COMPARE)
        result = less | (same & result)
    return result


_COMPARE = (pc.less, pc.equal)


def _valid(keys: pa.RecordBatch) -> Indices | None:
    """The rows without a null key; None if that is all of them."""
    valid = valid_rows(keys.columns)
    return None if valid is None else np.flatnonzero(valid.to_numpy(zero_copy_only=False))


def _check_types(index: PageIndex, keys: pa.RecordBatch) -> None:
    """Raise on keys of another type, which is a bug: keys are cast before rows arrive."""
    for ours, theirs in zip(index.first.schema.types, keys.schema.types, strict=True):
        alike = (pa.types.is_integer, pa.types.is_floating)
        if ours != theirs and not any(same(ours) and same(theirs) for same in alike):
            raise TypeError(f"a key of type {theirs} cannot be located among pages by {ours}")
