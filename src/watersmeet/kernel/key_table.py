"""A table that tells most absent keys apart, before they are sorted and searched for.

On a cycle a walk makes many combinations of which few close it: on a triangle one in eighty. To sort the keys of all of
them and to search for each in every run would be most of the work. So the keys of an arrangement are hashed into a
table of slots first, and only keys whose slot is taken are looked up. A key that is there always passes. One that is
not passes with a probability of about one in sixteen, and is then not found.

The slot is a multiplicative hash of the whole key. The leading bits alone, as in match.py, would do for mixed keys, but
not for order keys of two halves: few values of the first half fill all slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.kernel.keys import Indices, Keys, Mask

# 2^64 divided by the golden ratio, and odd: its multiples are spread evenly (Knuth, volume 3, section 6.4).
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Slots for each key, as a power of two. With half as many, one absent key in eight passes and the search costs as much
# as the smaller table saves.
_SLOT_BITS = 4
# To fill a slot or to look at one takes about 3 ns, to sort a key and search for it about 200 (125,000 keys in five
# runs of 200,000 rows together). With this many keys for each that is sought, a table costs 7% where all of them are
# found.
WORTH_RATIO = 4


@dataclass(frozen=True, slots=True)
class KeyTable:
    taken: Mask
    shift: int

    def likely(self, keys: Keys) -> Indices:
        """Where `keys` may be in the table: at all that are, and at few others."""
        return np.flatnonzero(self.taken.take(_slots(keys, self.shift)))


def key_table(sequences: Sequence[Keys]) -> KeyTable:
    """The table of all keys of some sequences."""
    shift = 64 - sum(map(len, sequences)).bit_length() - _SLOT_BITS
    taken = np.zeros(1 << (64 - shift), np.bool_)
    for keys in sequences:
        taken[_slots(keys, shift)] = True
    return KeyTable(taken, shift)


def _slots(keys: Keys, shift: int) -> Indices:
    # Signed indices are used as they are: numpy would copy unsigned ones.
    return ((keys * _FACTOR) >> np.uint64(shift)).view(np.int64)
