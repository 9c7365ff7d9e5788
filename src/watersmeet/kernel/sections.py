"""Which section of a run a row belongs to, from a stable hash of it.

A section is a storage group of the grid and a part inside it: group * parts + part. The group comes from the low
half of the hash, the part from its highest bits, so that they are independent and a row or column of the grid is
a contiguous range of parts. Groups get rows in proportion to their cells, up to 2**-32. Since that depends on
the ratios only, a row's section is the same after all groups have grown by the same factor.

The hash must be mixed in all its bits (kernel/order.py: `mix`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.kernel.sorted import Keys

SectionNumbers = npt.NDArray[np.unsignedinteger[Any]]

_LOW_HALF = np.uint64(0xFFFF_FFFF)


def sections_of(hashes: Keys, group_cells: Sequence[int], parts: int) -> SectionNumbers:
    """The section of each row. `parts` is a power of two, up to 2**32; `group_cells` sum to less than 2**32.

    The numbers are 16 bits wide where that is enough: a stable sort by them is then a radix sort.
    """
    narrow: type[np.unsignedinteger[Any]] = np.uint16 if len(group_cells) * parts <= 1 << 16 else np.uint32
    part_bits = parts.bit_length() - 1
    part = (hashes >> np.uint64(64 - part_bits)) if part_bits else np.zeros(len(hashes), np.uint64)
    if len(group_cells) == 1:
        return part.astype(narrow)
    bounds = np.cumsum(np.array(group_cells, dtype=np.uint64))
    cell = ((hashes & _LOW_HALF) * bounds[-1]) >> np.uint64(32)
    group = np.searchsorted(bounds, cell, side="right").astype(np.uint64)
    return (group * np.uint64(parts) + part).astype(narrow)
