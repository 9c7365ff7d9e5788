"""Generated histograms: sums, seeds, skewed buckets, and close pairs as plain loops find them."""

from __future__ import annotations

import numpy as np

from papers.hypercube.histograms import as_matrix, as_table, close_pairs, histograms
from watersmeet.similar import Buckets


def test_histograms_are_histograms():
    vectors = as_matrix(histograms(2_000))
    assert vectors.shape == (2_000, 64) and vectors.min() >= 0
    assert np.allclose(vectors.sum(axis=1), 1, atol=1e-5)
    assert (vectors == as_matrix(histograms(2_000))).all()
    assert (vectors != as_matrix(histograms(2_000, seed=8))).any()


def test_buckets_are_the_more_skewed_the_larger_the_radius():
    vectors = as_matrix(histograms(4_000))
    fullest = [
        np.unique(Buckets(r, 64).codes(vectors), return_counts=True)[1].max() for r in (0.01, 0.05, 0.2)
    ]
    assert 4 * fullest[0] < fullest[1] and 4 * fullest[1] < fullest[2] and fullest[2] > 4_000 / 4


def test_close_pairs_are_those_of_plain_loops():
    vectors = as_matrix(histograms(120, clusters=3))
    distances = np.sqrt(((vectors[:, None].astype(float) - vectors[None]) ** 2).sum(axis=2)).astype(
        np.float32
    )
    expected = [(i, j) for i in range(120) for j in range(i + 1, 120) if distances[i, j] <= 0.05]
    assert [tuple(pair) for pair in sorted(close_pairs(vectors, 0.05).tolist())] == expected
    assert 10 < len(expected) < 7_000
    assert len(close_pairs(as_matrix(as_table(vectors[:1])), 0.05)) == 0
