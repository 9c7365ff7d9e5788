"""Skewed foreign keys: the key of rank i is drawn with a probability in proportion to 1 / i^z.

Which key has which rank is drawn too, so that skew has nothing to do with a key's value. z = 0 is uniform.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]


def rank_shares(keys: int, z: float) -> npt.NDArray[np.float64]:
    """The probability of each rank, the most frequent one first.

    >>> rank_shares(3, 1.0).round(3).tolist()
    [0.545, 0.273, 0.182]
    """
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    return weights / weights.sum()


def draw_keys(keys: Keys, count: int, z: float, rng: np.random.Generator) -> Keys:
    """`count` keys out of `keys`, by Zipf's law."""
    reached = np.cumsum(rank_shares(len(keys), z))
    # A draw above a sum that rounding left below 1 would fall behind the last rank.
    ranks = np.minimum(np.searchsorted(reached, rng.random(count), side="right"), len(keys) - 1)
    return rng.permutation(keys)[ranks]
