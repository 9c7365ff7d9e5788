"""Find equal keys in two sorted sequences, as places: by binary search of the shorter one in the longer.

So the cost of a batch follows its new rows and its results, not the history. What is found is a stretch of places
for each key; `expand` unrolls the stretches into pairs, a bounded number at a time.

A merged sequence is many files, each with a stretch of its keys. Only needles of that stretch are looked up in a file:
otherwise a batch would look at all its rows once for each file, and files follow the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from watersmeet.kernel.keys import SUFFIX_BITS, Indices, Keys, prefix_ranges


class Matches(NamedTuple):
    """Needles that are found: their places, where the rows equal to each begin, and how many rows these are.

    Needles and the rows that they are sought in are sorted, so the equals of a needle lie together.
    """

    found: Indices
    start: Indices
    rows: Indices


def equal_pairs(one: Keys, other: Keys, limit: int) -> Iterator[tuple[Indices, Indices]]:
    """Positions of all pairs of equal keys, at most `limit` at a time. Both sides are sorted."""
    if not is_shorter(one, other):
        for other_at, one_at in equal_pairs(other, one, limit):
            yield one_at, other_at
        return
    yield from expand(*matches_of(one, other), limit)


def is_shorter(one: Keys, other: Keys) -> bool:
    """Whether `one` has at most as many keys as `other` in the stretch that both have. Both are sorted."""
    if min(len(one), len(other)) < LEAST_CUT:
        return len(one) <= len(other)
    here, there = _between(one, other[0], other[-1]), _between(other, one[0], one[-1])
    return here[1] - here[0] <= there[1] - there[0]


def matches_of(needles: Keys, hay: Keys) -> Matches:
    """Where each key of `needles`, the shorter side, is found in `hay`. Both are sorted."""
    if not len(needles) or not len(hay):
        return _none()
    if len(needles) < LEAST_CUT:
        return _matches_of(needles, hay)
    low, high = _between(needles, hay[0], hay[-1])
    if low == high:
        return _none()
    first, last = _between(hay, needles[low], needles[high - 1])
    if (low, high, first, last) != (0, len(needles), 0, len(hay)):
        found, start, rows = _matches_of(needles[low:high], hay[first:last])
        return Matches(found + low, start + first, rows)
    return _matches_of(needles, hay)


def _matches_of(needles: Keys, hay: Keys) -> Matches:
    if not len(hay):
        return _none()
    likely = _likely(needles, hay)
    sought = needles[likely]
    start = np.searchsorted(hay, sought)
    same = np.flatnonzero(hay[np.minimum(start, len(hay) - 1)] == sought)
    found, start = likely[same], start[same]
    return Matches(found, start, _count_up_to(hay, start, sought[same]))


def _none() -> Matches:
    none = np.zeros(0, np.int64)
    return Matches(none, none, none)


# With fewer needles the searches for a stretch, 12 microseconds, take a quarter of the time in which all are looked up.
LEAST_CUT = 4096


def _between(keys: Keys, lowest: np.uint64, highest: np.uint64) -> tuple[int, int]:
    """Where sorted keys from `lowest` to `highest` are."""
    low = 0 if lowest <= keys[0] else int(np.searchsorted(keys, lowest))
    high = len(keys) if keys[-1] <= highest else int(np.searchsorted(keys, highest, side="right"))
    return low, high


def matches_of_prefixes(prefixes: Keys, hay: Keys) -> Matches:
    """Where `hay` has keys that begin with each prefix, which is half an order key. Both are sorted."""
    if not len(prefixes) or not len(hay):
        return _none()
    low, high = 0, len(prefixes)
    if high >= LEAST_CUT:
        lowest, highest = prefix_ranges(hay[[0, -1]])
        low, high = _between(prefixes, lowest[0], highest[1])
    likely = _likely(prefixes[low:high], hay, SUFFIX_BITS) + low
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
# of the longer side: it pays up to this many times the shorter side. Of keys that are mostly absent, 250,000 among as
# many take 6 ns each instead of 20, and 31,000 among 250,000 take 16 instead of 31.
TABLE_RATIO = 12
# What fits the processor's cache is searched in less time: there the table pays up to a smaller ratio.
CACHED_KEYS, CACHED_RATIO = 65_536, 4
# Slots for each key, as a power of two: an absent key passes with a probability of about 1/16.
TABLE_SLOT_BITS = 4


def _likely(needles: Keys, hay: Keys, unknown_bits: int = 0) -> Indices:
    """Where `needles` has keys that share their leading bits with some key of `hay`: all that can be equal.

    Most keys of a batch are in none of the small runs; order keys are mixed, so leading bits tell them apart. They are
    counted from the first key of `hay` on: those that all keys of a part of a sequence share would tell nothing. The
    last bits of the needles may be unknown.
    """
    if len(hay) > (TABLE_RATIO if len(hay) > CACHED_KEYS else CACHED_RATIO) * len(needles):
        return np.arange(len(needles))
    width = int(hay[-1] - hay[0]).bit_length()
    shift = np.uint64(max(unknown_bits, width - len(hay).bit_length() - TABLE_SLOT_BITS))
    first = hay[0] >> shift
    taken = np.zeros(int((hay[-1] >> shift) - first) + 1, np.bool_)
    # Signed indices of their own size are used as they are: numpy would copy unsigned ones.
    taken[((hay >> shift) - first).view(np.int64)] = True
    # Needles outside the table fall on its ends, which are taken: they are looked up in vain.
    return np.flatnonzero(taken.take(((needles >> shift) - first).view(np.int64), mode="clip"))


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
