"""Find equal keys in two sorted sequences, as places: by binary search of the shorter one in the longer.

So the cost of a batch follows its new rows and its results, not the history. What is found is a stretch of places
for each key; `expand` unrolls the stretches into pairs, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from watersmeet.kernel.keys import Indices, Keys, prefix_ranges


class Matches(NamedTuple):
    """Needles that are found: their places, where the rows equal to each begin, and how many rows these are.

    Needles and the rows that they are sought in are sorted, so the equals of a needle lie together.
    """

    found: Indices
    start: Indices
    rows: Indices


def equal_pairs(left: Keys, right: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(left) > len(right):
        for right_at, left_at in equal_pairs(right, left, limit):
            yield left_at, right_at
        return
    yield from expand(*matches_of(left, right), limit)


def matches_of(left: Keys, right: Keys) -> Matches:
    """Where each key of `left`, the shorter side, is found in `right`. Both are sorted."""
    if not len(left):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(left, right)
    needles = left[likely]
    start = np.searchsorted(right, needles)
    same = np.flatnonzero(right[np.minimum(start, len(right) - 1)] == needles)
    found, start = likely[same], start[same]
    return Matches(found, start, _count_up_to(right, start, needles[same]))


def matches_of_prefixes(prefixes: Keys, right: Keys) -> Matches:
    """Where `right` has keys that begin with each prefix, which is half an order key. Both are sorted."""
    if not len(prefixes) or not len(right):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(prefixes, right)
    first, last = prefix_ranges(prefixes[likely])
    start = np.searchsorted(right, first)
    at = np.minimum(start, len(right) - 1)
    same = np.flatnonzero((right[at] >= first) & (right[at] <= last))
    found, start = likely[same], start[same]
    return Matches(found, start, _count_up_to(right, start, last[same]))


def _count_up_to(right: Keys, start: Indices, last: Keys) -> Indices:
    """How many keys of `right` from each `start` on are at most `last`; the first of them is.

    Most keys are alone in a run: a look at the next key saves a binary search for where they end.
    """
    rows = np.ones(len(start), np.int64)
    more = np.flatnonzero(right[np.minimum(start + 1, len(right) - 1)] <= last)
    rows[more] = np.searchsorted(right, last[more], side="right") - start[more]
    return rows


# Looking at a table of the leading bits costs about a tenth of a binary search, filling it as much for each key
# of the longer side: it pays up to this many times the shorter side (four times as fast at equal length).
TABLE_RATIO = 4
# Slots for each key, as a power of two: an absent key passes with a probability of about 1/16.
TABLE_SLOT_BITS = 4


def _likely(left: Keys, right: Keys) -> Indices:
    """Where `left` has keys that share their leading bits with some key of `right`: all that can be equal.

    Most keys of a batch are in none of the small runs; order keys are mixed, so leading bits tell them apart.
    """
    if len(right) > TABLE_RATIO * len(left):
        return np.arange(len(left))
    # No more than half of the bits: of a prefix the others are not known.
    shift = np.uint64(max(32, 64 - len(right).bit_length() - TABLE_SLOT_BITS))
    taken = np.zeros(1 << (64 - int(shift)), np.bool_)
    # Signed indices of their own size are used as they are: numpy would copy unsigned ones.
    taken[(right >> shift).view(np.int64)] = True
    return np.flatnonzero(taken.take((left >> shift).view(np.int64)))


def expand(found: Indices, start: Indices, count: Indices, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Unroll (needle, first match, number of matches) into pairs, cut at multiples of `limit`."""
    reached = np.cumsum(count)
    total = int(reached[-1]) if len(reached) else 0
    if total == len(found):
        for low in range(0, total, limit):
            yield found[low : low + limit], start[low : low + limit]
        return
    shifted = start - (reached - count)
    for low in range(0, total, limit):
        high = min(low + limit, total)
        first, last = np.searchsorted(reached, [low, high - 1], side="right")
        here = slice(int(first), int(last) + 1)
        share = np.diff(np.minimum(reached[here], high), prepend=low)
        yield np.repeat(found[here], share), np.repeat(shifted[here], share) + np.arange(low, high)
