"""Buckets for similarity joins: odds as computed, codes that do not change, every pair once."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from papers.hypercube.histograms import as_matrix, close_pairs, histograms
from watersmeet.errors import UsageError
from watersmeet.kernel.vectors import VectorLengths
from watersmeet.local.join import LocalJoin
from watersmeet.similar import Buckets


def met(buckets: Buckets, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (buckets.codes(one) == buckets.codes(other)).any(axis=1)


@pytest.mark.parametrize("distance", [0.25, 1.0, 3.0, 10.0])
def test_vectors_meet_as_often_as_computed(distance):
    """Over many seeds, since all pairs of one seed share its few lines."""
    rng = np.random.default_rng(3)
    one = rng.standard_normal((40, 16))
    step = rng.standard_normal((40, 16))
    other = one + distance * step / np.linalg.norm(step, axis=1, keepdims=True)
    seeds = [Buckets(1.0, 16, seed=seed) for seed in range(400)]
    share = np.mean([met(b, one.astype(np.float32), other.astype(np.float32)).mean() for b in seeds])
    assert share == pytest.approx(seeds[0].meeting_probability(distance), abs=0.015)


def test_the_default_is_a_family_as_promised():
    buckets = Buckets(0.3, 64)
    assert buckets.meeting_probability(0.3) >= 0.9
    assert buckets.meeting_probability(3.0) <= 0.1
    odds = [buckets.meeting_probability(distance) for distance in np.linspace(0, 6, 50)]
    assert odds[0] == 1 and odds == sorted(odds, reverse=True)


def test_no_single_table_and_no_single_hash_would_do():
    def promises(tables: int, hashes: int, width: float) -> bool:
        buckets = Buckets(1.0, 1, tables, hashes, width)
        return buckets.meeting_probability(1) >= 0.9 and buckets.meeting_probability(10) <= 0.1

    widths = np.arange(0.5, 200, 0.25)
    assert not any(promises(1, hashes, width) for hashes in range(1, 20) for width in widths)
    assert not any(promises(2, 1, width) for width in widths)
    assert promises(2, 2, 5.0) and not promises(2, 2, 8.0) and promises(2, 3, 8.0)


CODES = [
    [6228036786493136563, -5504578615450422846],
    [6228036786493136563, -6518040194058026953],
    [6228036786493136563, -853038784798774458],
    [6228036786493136563, 2289623081555786277],
]


def test_codes_do_not_change():
    """They are kept in the state: whatever computes them later must agree."""
    vectors = (np.arange(12).reshape(4, 3) / 8).astype(np.float32)
    assert Buckets(0.25, 3, hashes=2, seed=5).codes(vectors).tolist() == CODES


def test_seeds_tables_and_equal_vectors():
    vectors = as_matrix(histograms(300))
    codes = Buckets(0.02, 64).codes(vectors)
    assert (codes == Buckets(0.02, 64).codes(vectors[:])).all()
    assert (codes[10] == Buckets(0.02, 64).codes(vectors[10:11])[0]).all()
    assert not np.intersect1d(codes[:, 0], codes[:, 1]).size
    assert (codes != Buckets(0.02, 64, seed=1).codes(vectors)).mean() > 0.9


def exploded(rows: pa.Table, buckets: Buckets) -> list[pa.RecordBatch]:
    return [batch for part in rows.to_batches() for batch in buckets.explode(part, "v")]


def joined(rows: pa.Table, buckets: Buckets, state: str, batches: int = 1, **options) -> np.ndarray:
    """The pairs that a self-join finds, sorted."""
    schema = exploded(rows.slice(0, 1), buckets)
    join = LocalJoin(
        {"l": schema[0].schema, "r": schema[0].schema},
        on=f"{buckets.near('l.v', 'r.v')} AND l.id < r.id",
        select=["l.id AS one", "r.id AS other"],
        state=state,
        **options,
    )
    size = math.ceil(len(rows) / batches)
    found = []
    for start in range(0, len(rows), size):
        part = exploded(rows.slice(start, size), buckets)
        found.append(join.batch(l=part, r=part))
    pairs = np.stack([pa.concat_tables(found)[name].to_numpy() for name in ("one", "other")], axis=1)
    return pairs[np.lexsort(pairs.T[::-1])]


@pytest.mark.parametrize("tables", [1, 2, 3])
def test_every_pair_that_meets_comes_out_once(tmp_path, tables):
    rows = histograms(1_500)
    buckets = Buckets(0.03, 64, tables=tables)
    vectors = as_matrix(rows)
    true = close_pairs(vectors, 0.03)
    expected = true[met(buckets, vectors[true[:, 0]], vectors[true[:, 1]])]
    found = joined(rows, buckets, str(tmp_path), batches=3, tasks=3)
    assert (found == expected[np.lexsort(expected.T[::-1])]).all()


@pytest.mark.parametrize("radius", [0.02, 0.05, 0.1])
def test_nine_of_ten_pairs_are_found(tmp_path, radius):
    rows = histograms(3_000)
    true = close_pairs(as_matrix(rows), radius)
    found = joined(rows, Buckets(radius, 64), str(tmp_path), tasks=48, strategy="hash")
    assert len(true) > 1_000
    assert {tuple(pair) for pair in found.tolist()} <= {tuple(pair) for pair in true.tolist()}
    assert len(found) >= 0.9 * len(true)


@pytest.mark.parametrize("radius", [0.01, 0.03, 0.1])
def test_so_many_meet_over_the_seeds_as_their_distances_promise(radius):
    vectors = as_matrix(histograms(3_000))
    one, other = (vectors[side] for side in close_pairs(vectors, radius).T)
    distances = np.linalg.norm(one.astype(float) - other, axis=1)
    promised = np.mean([Buckets(radius, 64).meeting_probability(distance) for distance in distances])
    shares = [met(Buckets(radius, 64, seed=seed), one, other).mean() for seed in range(30)]
    assert np.mean(shares) == pytest.approx(promised, abs=0.02)
    assert np.mean(shares) >= 0.9


def test_vectors_that_are_near_nothing_have_no_bucket():
    rows = pa.record_batch({"v": pa.array([[1.0], None, [None], [math.nan], [math.inf], [-1.0]], LIST)})
    for batch in Buckets(1.0, 1).explode(rows, "v"):
        assert batch["bucket"].is_null().to_pylist() == [False, True, True, True, True, False]


LIST = pa.list_(pa.float32())


def test_no_rows_are_no_rows():
    batches = list(Buckets(1.0, 3).explode(pa.record_batch({"v": pa.array([], LIST)}), "v"))
    assert [batch.num_rows for batch in batches] == [0, 0]
    assert batches[0].schema.names == ["v", "bucket", "bucket_0"]


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(VectorLengths, match="2 elements; these buckets are for 1"):
        list(Buckets(1.0, 1).explode(pa.record_batch({"v": pa.array([[1.0, 2.0]], LIST)}), "v"))


@pytest.mark.parametrize(
    "wrong",
    [{"radius": 0.0}, {"radius": math.nan}, {"width": -1.0}, {"tables": 0}, {"hashes": 0}, {"dimensions": 0}],
)
def test_arguments_are_checked(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Buckets(**{"radius": 1.0, "dimensions": 2, **wrong})
