"""Generated colour histograms: what a collection of photographs gives, and similarity joins are tried on.

A histogram has non-negative bins that sum to 1, most of them small. Pictures come in clusters (scenes) of very
different sizes, by Zipf's law, and lie in them at very different distances: some are near copies, others have little
more than their main colours in common. So the number of neighbours grows steadily with the distance, and a few buckets
of similar pictures hold a large part of all of them: the larger the distance, the larger the part.

No scene holds more than a fifth of the close pairs. If one held most of them, a similarity join by random buckets would
find as many as it happens to leave of that scene in one piece.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CLUSTERS = 300
# Of Zipf's law: the largest of 300 scenes has 3 % of all pictures, the smallest 0.2 %.
_ZIPF = 0.5
# Of the Dirichlet distribution that gives a scene its colours: far below 1, so few colours make most of a scene.
_COLOURS = 0.15
# The sum of the parameters of the Dirichlet distribution of a picture, as a power of ten: mean and deviation. Two
# pictures of one scene are then mostly between 0.01 and 0.1 apart.
_CLOSENESS, _DEVIATION = 3.2, 0.7
# Each colour occurs a little in every picture.
_BACKGROUND = 1e-3


def histograms(rows: int = 15_000, *, bins: int = 64, clusters: int = CLUSTERS, seed: int = 7) -> pa.Table:
    """Pictures in random order: `id` (bigint) and `v` (array of float).

    >>> table = histograms(100, bins=8)
    >>> table.schema.names, len(table["v"][0])
    (['id', 'v'], 8)
    """
    rng = np.random.default_rng(seed)
    share = np.arange(1, clusters + 1) ** -_ZIPF
    cluster = rng.choice(clusters, rows, p=share / share.sum())
    scenes = rng.dirichlet(np.full(bins, _COLOURS), clusters) + _BACKGROUND
    closeness = 10 ** rng.normal(_CLOSENESS, _DEVIATION, (rows, 1))
    drawn = rng.standard_gamma(scenes[cluster] * closeness)
    return as_table((drawn / drawn.sum(axis=1, keepdims=True)).astype(np.float32))


def as_table(vectors: npt.NDArray[np.float32]) -> pa.Table:
    """Vectors, given as the rows of a matrix, numbered."""
    rows, bins = vectors.shape
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * bins)
    lists = pa.ListArray.from_arrays(offsets, pa.array(vectors.reshape(-1), pa.float32()))
    return pa.table({"id": pa.array(np.arange(rows)), "v": lists})


def as_matrix(table: pa.Table) -> npt.NDArray[np.float32]:
    """The vectors of a table as the rows of a matrix."""
    flat = pa.chunked_array(table["v"]).combine_chunks().flatten().to_numpy()
    return flat.reshape(len(table), -1)


def close_pairs(vectors: npt.NDArray[np.float32], radius: float) -> npt.NDArray[np.int64]:
    """All pairs of rows within a distance, the smaller number first: each with each, for comparison.

    Products find the candidates, differences decide, both in double; the distance is rounded to float as in Spark.
    """
    wide = vectors.astype(np.float64)
    squares = np.einsum("ij,ij->i", wide, wide)
    found = []
    for top in range(0, len(wide), _BLOCK_ROWS):
        block = slice(top, top + _BLOCK_ROWS)
        apart = squares[block, None] + squares[None, top:] - 2 * (wide[block] @ wide[top:].T)
        one, other = np.nonzero(apart <= radius**2 + _PRODUCT_ERROR * squares.max(initial=0))
        later = one < other
        one, other = one[later] + top, other[later] + top
        for low in range(0, len(one), _BLOCK_PAIRS):
            a, b = one[low : low + _BLOCK_PAIRS], other[low : low + _BLOCK_PAIRS]
            near = np.linalg.norm(wide[a] - wide[b], axis=1).astype(np.float32) <= np.float64(radius)
            found.append(np.stack([a[near], b[near]], axis=1))
    return np.concatenate([np.empty((0, 2), np.int64), *found])


# A block of distances takes some 100 MB for 15,000 rows, and one of differences some 30 MB for 64 elements.
_BLOCK_ROWS = 512
_BLOCK_PAIRS = 65_536
# How far products of doubles may be off, relative to the largest square: far more than they are.
_PRODUCT_ERROR = 1e-9
