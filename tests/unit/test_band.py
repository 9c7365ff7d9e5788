"""The band kernel at its edges: ranges of the other side, runs that cannot meet, bands that hold nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel import band
from watersmeet.kernel.band import BandFacing, BandJoin, close_pairs
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import partners, words
from watersmeet.kernel.pieces import Side
from watersmeet.kernel.rows import Sorted
from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.model.types import BIGINT, DOUBLE

OUTPUT = (OutputColumn("l", "k", "a"), OutputColumn("r", "k", "b"))


def run(*values: int, text: str = "") -> Sorted:
    column = pa.array(sorted(values), pa.int64())
    return Sorted(words(column), pa.RecordBatch.from_pydict({"k": column, "s": [text] * len(values)}))


def pairs_of(
    left: Side, right: Side, low: int | None, high: int | None, limits: Limits = DEFAULT_LIMITS
) -> list[tuple[int, int]]:
    batches = BandJoin(BIGINT, low, high, None, OUTPUT).results((left, right), None, limits)
    return sorted(pair for b in batches for pair in zip(*(c.to_pylist() for c in b.columns), strict=True))


@pytest.mark.parametrize(
    "left, low, high, expected",
    [
        pytest.param((100, 200), -5, 7, (93, 205), id="both bounds"),
        pytest.param((100, 200), 0, 0, (100, 200), id="the same range"),
        pytest.param((100, 200), None, 7, (93, KEY_SPACE), id="no lower bound"),
        pytest.param((100, 200), -5, None, (0, 205), id="no upper bound"),
        pytest.param((0, KEY_SPACE), -5, 7, (0, KEY_SPACE), id="everything"),
        pytest.param((0, 10), 20, 30, (0, 0), id="below the first word"),
        pytest.param(
            (KEY_SPACE - 10, KEY_SPACE), -30, -20, (KEY_SPACE, KEY_SPACE), id="beyond the last word"
        ),
        pytest.param((50, 50), -5, 7, (50, 50), id="an empty range"),
    ],
)
def test_the_other_side_of_a_range(left, low, high, expected):
    assert BandFacing(BIGINT, low, high)(KeyRange(*left)) == KeyRange(*expected)


def test_the_other_side_of_a_range_of_floats_is_a_little_wider():
    first, last = (int(word) for word in words(pa.array([1.0, 2.0])))
    found = BandFacing(DOUBLE, -0.5, 0.25)(KeyRange(first, last))
    assert found.low < int(words(pa.array([0.75]))[0]) < int(words(pa.array([2.5]))[0]) <= found.high
    assert found.low > int(words(pa.array([0.7499]))[0])
    assert found.high < int(words(pa.array([2.5001]))[0])


def test_new_meets_old_and_new_but_old_does_not_meet_old():
    left, right = Side("l", [run(1)], [run(2)]), Side("r", [run(1)], [run(2)])
    assert pairs_of(left, right, -1, 1) == [(1, 1), (1, 2), (2, 1)]


def test_a_band_whose_bounds_cross_holds_nothing():
    side = run(1, 2, 3)
    assert pairs_of(Side("l", [side], []), Side("r", [side], []), 1, -1) == []


def test_the_ends_of_bigint_do_not_meet():
    low, high = -(2**63), 2**63 - 1
    left, right = Side("l", [run(low, high)], []), Side("r", [run(low, high)], [])
    assert pairs_of(left, right, -5, 5) == [(low, low), (high, high)]
    assert pairs_of(left, right, 1, None) == [(high, low)]
    assert pairs_of(left, right, 2**64 - 1, 2**64 - 1) == [(high, low)]
    assert pairs_of(left, right, 2**64, None) == []


def test_runs_that_cannot_meet_are_not_searched(monkeypatch):
    searched = []
    monkeypatch.setattr(band, "partners", lambda *args: searched.append(args))
    history = [run(*range(k * 100, k * 100 + 50)) for k in range(20)]
    assert pairs_of(Side("l", [run(5_060, 5_070)], []), Side("r", [], history), -5, 5) == []
    assert searched == []


def test_only_needles_near_a_run_are_looked_up(monkeypatch):
    looked_up = []
    real = band.partners
    monkeypatch.setattr(
        band, "partners", lambda keys, *rest: looked_up.append(len(keys)) or real(keys, *rest)
    )
    needles, hay = run(*range(0, 10_000, 10)), run(*range(5_000, 7_000))
    assert len(pairs_of(Side("l", [needles], []), Side("r", [], [hay]), 0, 0)) == 200
    assert looked_up == [200]


def test_large_texts_make_small_batches():
    left, right = run(*range(100), text="x" * 1_000), run(*range(100), text="y" * 1_000)
    output = (OutputColumn("l", "s", "a"), OutputColumn("r", "s", "b"))
    join = BandJoin(BIGINT, None, None, None, output)
    sides = Side("l", [left], []), Side("r", [right], [])
    batches = list(join.results(sides, None, Limits(output_bytes=50_000)))
    assert sum(batch.num_rows for batch in batches) == 10_000
    assert max(batch.nbytes for batch in batches) < 2 * 50_000


def test_a_run_larger_than_a_piece_is_cut():
    values = np.arange(100).tolist()
    left, right = Side("l", [run(*values)], []), Side("r", [], [run(*values)])
    found = pairs_of(left, right, 0, 1, Limits(piece_rows=7))
    assert found == sorted((a, b) for a in values for b in values if 0 <= a - b <= 1)


@pytest.mark.parametrize(("low", "high"), [(-3, 3), (0, 0), (-40, 0), (5, 21), (-500, 500)])
def test_needles_are_told_apart_by_slots_of_values(low, high):
    """Values lie far apart, so most needles are passed over unsearched; partners may be in the next slot."""
    rng = np.random.default_rng(8)
    for count in (1, 7, 60):
        left = np.sort(rng.integers(1_000, 40_000, count))
        # Around the partners of some left values, on both sides of the band's ends.
        near = rng.choice(left, count) - rng.choice([low - 1, low, 0, high, high + 1], count)
        right = np.sort(np.maximum(0, np.concatenate([near, rng.integers(0, 40_000, 2 * count)])))
        join = BandJoin(BIGINT, low, high, None, ())
        for one, other in ((left, right), (left, right[: len(left)]), (right, left)):
            keys = one.astype(np.uint64), other.astype(np.uint64)
            found = [
                pair
                for a, b in close_pairs(*keys, join, 50)
                for pair in zip(a.tolist(), b.tolist(), strict=True)
            ]
            want = [(i, j) for i, x in enumerate(one) for j, y in enumerate(other) if low <= x - y <= high]
            assert sorted(found) == want


def test_a_narrow_band_over_spread_values_searches_few_needles():
    rng = np.random.default_rng(9)
    needles, hay = (np.sort(rng.integers(0, 1 << 40, 1_000).astype(np.uint64)) for _ in range(2))
    here, lower, _ = partners(needles, -3, 3, BIGINT)
    assert len(band._likely_near(here, lower, -3, 3, hay)) < 200
    # A wide band, one with an open end, or a far longer side: the table would not pay.
    assert len(band._likely_near(here, lower, -(1 << 39), 3, hay)) == 1_000
    assert len(band._likely_near(here, None, None, 3, hay)) == 1_000
    assert len(band._likely_near(slice(0, 10), lower[:10], -3, 3, hay)) == 10
