"""Cut a range of keys so that its rows fit a number of bytes.

The rows are in sorted stretches: the keys of a run in a range, and the bytes of a row there. Nothing is put together: a
bound is found by bisection over the keys, with a binary search in every stretch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange


@dataclass(frozen=True, slots=True)
class Weighed:
    """Ascending keys, and what each of their rows counts."""

    keys: npt.NDArray[np.uint64]
    row_bytes: float

    def below(self, bound: int) -> int:
        """How many keys are smaller than a bound."""
        return len(self.keys) if bound >= KEY_SPACE else int(np.searchsorted(self.keys, np.uint64(bound)))

    def between(self, range_: KeyRange) -> Weighed:
        return Weighed(self.keys[self.below(range_.low) : self.below(range_.high)], self.row_bytes)


def weight_below(stretches: Sequence[Weighed], bound: int) -> float:
    """The bytes of all rows whose key is smaller than a bound."""
    return sum(one.below(bound) * one.row_bytes for one in stretches)


def cut(stretches: Sequence[Weighed], range_: KeyRange, most_bytes: float) -> KeyRange:
    """The longest range from the lowest key on whose rows have at most `most_bytes`. It may have no row.

    The stretches have no key below the range.

    >>> keys = Weighed(np.array([2, 5, 5, 8], np.uint64), 10.0)
    >>> [cut([keys], KeyRange(0, 9), most).high for most in (9, 10, 29, 30, 40)]
    [2, 5, 5, 8, 9]
    """
    if weight_below(stretches, range_.high) <= most_bytes:
        return range_
    fits, too_far = range_.low, range_.high
    while too_far - fits > 1:
        middle = (fits + too_far) // 2
        if weight_below(stretches, middle) <= most_bytes:
            fits = middle
        else:
            too_far = middle
    return KeyRange(range_.low, fits)


def slices_of(stretches: Sequence[Weighed], range_: KeyRange, most_bytes: float) -> Iterator[KeyRange]:
    """Cut a whole range into slices of at most `most_bytes` each, or of one key that has more.

    >>> keys = Weighed(np.array([2, 5, 5, 8], np.uint64), 10.0)
    >>> [one.high for one in slices_of([keys], KeyRange(0, 9), 10)]
    [5, 6, 9]
    """
    left = range_
    while left.low < left.high:
        mine = [part for one in stretches if len((part := one.between(left)).keys)]
        if not mine:
            return
        found = cut(mine, left, most_bytes)
        if not any(one.below(found.high) for one in mine):
            # The first key has more by itself.
            found = KeyRange(left.low, found.high + 1)
        yield found
        left = KeyRange(found.high, left.high)
