"""Sets of order keys as ranges that ascend and do not touch: joined, intersected, subtracted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watersmeet.model.facts import FULL_RANGE, KEY_SPACE, KeyRange

Ranges = tuple[KeyRange, ...]

EVERYTHING: Ranges = (FULL_RANGE,)


def joined(ranges: Iterable[KeyRange]) -> Ranges:
    """The keys of any ranges, as few ranges as possible.

    >>> joined([KeyRange(5, 7), KeyRange(0, 2), KeyRange(2, 4), KeyRange(6, 9), KeyRange(9, 9)])
    (KeyRange(low=0, high=4), KeyRange(low=5, high=9))
    """
    found: list[KeyRange] = []
    for one in sorted(ranges, key=lambda range_: range_.low):
        if one.low >= one.high:
            continue
        if found and one.low <= found[-1].high:
            found[-1] = KeyRange(found[-1].low, max(found[-1].high, one.high))
        else:
            found.append(one)
    return tuple(found)


def intersected(one: Sequence[KeyRange], other: Sequence[KeyRange]) -> Ranges:
    """The keys of both.

    >>> intersected((KeyRange(0, 4), KeyRange(6, 9)), (KeyRange(3, 7),))
    (KeyRange(low=3, high=4), KeyRange(low=6, high=7))
    """
    found, first, second = [], 0, 0
    while first < len(one) and second < len(other):
        a, b = one[first], other[second]
        low, high = max(a.low, b.low), min(a.high, b.high)
        if low < high:
            found.append(KeyRange(low, high))
        if a.high <= b.high:
            first += 1
        else:
            second += 1
    return tuple(found)


def complement(ranges: Sequence[KeyRange]) -> Ranges:
    """All other keys.

    >>> [(one.low, one.high == KEY_SPACE) for one in complement((KeyRange(0, 4), KeyRange(6, 9)))]
    [(4, False), (9, True)]
    """
    bounds = [0, *(bound for one in ranges for bound in (one.low, one.high)), KEY_SPACE]
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple(KeyRange(low, high) for low, high in pairs if low < high)


def subtracted(one: Sequence[KeyRange], other: Sequence[KeyRange]) -> Ranges:
    """The keys of the first that are not in the second.

    >>> subtracted((KeyRange(0, 9),), (KeyRange(3, 7),))
    (KeyRange(low=0, high=3), KeyRange(low=7, high=9))
    """
    return intersected(one, complement(other))
