"""Lists of numbers behind each other: what belongs to each of many things, looked up for many of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.kernel.keys import Indices


@dataclass(frozen=True, slots=True)
class Lists:
    """List number i holds the numbers from `starts[i]` up to, not including, `starts[i + 1]`."""

    starts: Indices

    @classmethod
    def of_counts(cls, counts: Indices) -> Lists:
        return cls(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))))

    @classmethod
    def of_owners(cls, owners: Indices, lists: int) -> Lists:
        """Lists whose members are numbered in the order of their owners, which ascend."""
        return cls.of_counts(np.bincount(owners, minlength=lists))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def counts(self, which: Indices) -> Indices:
        return self.starts[which + 1] - self.starts[which]

    def members(self, which: Indices) -> tuple[Indices, Indices]:
        """All members of some lists, and for each the place in `which` that it belongs to.

        >>> owner, member = Lists.of_counts(np.array([2, 0, 1])).members(np.array([2, 0, 1, 0]))
        >>> owner.tolist(), member.tolist()
        ([0, 1, 1, 3, 3], [2, 0, 1, 0, 1])
        """
        return spread(self.starts[which], self.counts(which))


def spread(starts: Indices, counts: Indices) -> tuple[Indices, Indices]:
    """`counts` numbers from each start on, and for each number the place of its start."""
    owner = np.repeat(np.arange(len(starts)), counts)
    before = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) + np.repeat(starts - before, counts)


def numbered_pairs(one: Indices, other: Indices) -> tuple[Indices, Indices]:
    """Number the distinct pairs: the place where each number occurs first, and the number at each place.

    >>> first, number = numbered_pairs(np.array([5, 3, 5]), np.array([1, 1, 1]))
    >>> first.tolist(), number.tolist()
    ([1, 0], [1, 0, 1])
    """
    if not len(one):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # Both are numbers of things in memory, so that the product of their ranges fits 64 bits.
    width = int(other.max()) + 1
    _, first, number = np.unique(one.astype(np.int64) * width + other, return_index=True, return_inverse=True)
    return first, number


def numbered_lists(lists: Lists, values: Indices) -> Indices:
    """A number for each list, the same where two hold the same values in the same order. Values are not negative.

    >>> numbered_lists(Lists.of_counts(np.array([2, 1, 2])), np.array([7, 3, 7, 7, 3])).tolist()
    [1, 0, 1]
    """
    counts = lists.counts(np.arange(len(lists)))
    number = np.zeros(len(lists), np.int64)
    for place in range(int(counts.max(initial=0))):
        here = np.flatnonzero(counts > place)
        value = np.zeros(len(lists), np.int64)
        value[here] = values[lists.starts[here] + place] + 1
        _, number = numbered_pairs(number, value)
    return number
