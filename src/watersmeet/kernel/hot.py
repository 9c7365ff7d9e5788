"""Keys that many rows of a run share: exact, since a run is sorted.

A key with at least `floor` rows covers some position that is a multiple of `floor`; so only these positions are
looked at, and the cost does not follow the rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.kernel.sorted import Keys

Indices = npt.NDArray[np.int64]


def hot_keys(keys: Keys, floor: int) -> tuple[Indices, Indices]:
    """Where the keys with at least `floor` rows begin, and how many rows each has. `keys` ascend.

    >>> hot_keys(np.array([1, 3, 3, 3, 5, 7, 7], np.uint64), 2)
    (array([1, 5]), array([3, 2]))
    """
    looked_at = np.unique(keys[::floor])
    begin = np.searchsorted(keys, looked_at)
    rows = np.searchsorted(keys, looked_at, side="right") - begin
    hot = rows >= floor
    return begin[hot], rows[hot]
