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


def equal_pairs(one: Keys, other: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if len(one) > len(other):
        for other_at, one_at in equal_pairs(other, one, limit):
            yield one_at, other_at
        return
    yield from expand(*matches_of(one, other), limit)


def matches_of(needles: Keys, hay: Keys) -> Matches:
    """Where each key of `needles`, the shorter side, is found in `hay`. Both are sorted."""
    if not len(needles):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(needles, hay)
    sought = needles[likely]
    start = np.searchsorted(hay, sought)
    same = np.flatnonzero(hay[np.minimum(start, len(hay) - 1)] == sought)
    found, start = likely[same], start[same]
    return Matches(found, start, _count_up_to(hay, start, sought[same]))


def matches_of_prefixes(prefixes: Keys, hay: Keys) -> Matches:
    """Where `hay` has keys that begin with each prefix, which is half an order key. Both are sorted."""
    if not len(prefixes) or not len(hay):
        none = np.zeros(0, np.int64)
        return Matches(none, none, none)
    likely = _likely(prefixes, hay)
    first, last = prefix_ranges(prefixes[likely])
    start = np.searchsorted(hay, first)
    at = np.minimum(start, len(hay) - 1)
    same = np.flatnonzero((hay[at] >= first) & (hay[at] <= last))
    found, start = likely[same], start[same]
    return Matches(found, start, _count_up_to(hay, start, last[same]))


def _count_up_to(hay: Keys, start: Indices, last: Keys) -> Indices:
    """How many keys of `hay` from each `start` on are at most `last`; the first of them is.

    Most keys are alone in a run: a look at the next key saves a binary search for where they end.
    """
    rows = np.ones(len(start), np.int64)
    more = np.flatnonzero(hay[np.minimum(start + 1, len(hay) - 1)] <= last)
    rows[more] = np.searchsorted(hay, last[more], side="right") - start[more]
    return rows


# Looking at a table of the leading bits costs about a tenth of a binary search, filling it as much for each key
# of the longer side: it pays up to this many times the shorter side (four times as fast at equal length).
TABLE_RATIO = 4
# Slots for each key, as a power of two: an absent key passes with a probability of about 1/16.
TABLE_SLOT_BITS = 4


def _likely(needles: Keys, hay: Keys) -> Indices:
    """Where `needles` has keys that share their leading bits with some key of `hay`: all that can be equal.

    Most keys of a batch are in none of the small runs; order keys are mixed, so leading bits tell them apart.
    """
    if len(hay) > TABLE_RATIO * len(needles):
        return np.arange(len(needles))
    # No more than half of the bits: of a prefix the others are not known.
    shift = np.uint64(max(32, 64 - len(hay).bit_length() - TABLE_SLOT_BITS))
    taken = np.zeros(1 << (64 - int(shift)), np.bool_)
    # Signed indices of their own size are used as they are: numpy would copy unsigned ones.
    taken[(hay >> shift).view(np.int64)] = True
    return np.flatnonzero(taken.take((needles >> shift).view(np.int64)))


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
