"""Generated sales: the law of their keys, bursts of every length, the same rows from the same seed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.hybrid.sales import (
    PRODUCT_BYTES,
    SALE_BYTES,
    SOURCES,
    Zipf,
    arrivals,
    bursts,
    mean_burst,
    products,
    sales,
)


def exact_shares(count: int, exponent: float) -> np.ndarray:
    """The integral of x^-exponent from k to k + 1 for each product k, by Simpson's rule on a fine grid; sum 1."""
    k = np.arange(1, count + 1)
    points = k[:, None] + np.linspace(0, 1, 65)
    weights = np.array([1, *([4, 2] * 31), 4, 1]) / (3 * 64)
    areas = (points**-exponent) @ weights
    return areas / areas.sum()


# Keys


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.0 + 1e-9, 1.5, 3.0])
@pytest.mark.parametrize("count", [1, 2, 100, 5000])
def test_shares_are_the_integrals_of_the_law(count, exponent):
    law = Zipf(count, exponent)
    assert np.diff(law.reached(np.arange(count + 1))) == pytest.approx(
        exact_shares(count, exponent), abs=1e-7
    )
    assert law.reached(count) == 1.0


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("count", [3, 100, 5000])
def test_drawn_keys_follow_the_law(count, exponent):
    rows = 200_000
    keys = Zipf(count, exponent).draw(rows, np.random.default_rng(11))
    assert keys.dtype == np.int64 and keys.min() >= 1 and keys.max() <= count
    found = np.cumsum(np.bincount(keys, minlength=count + 1)[1:]) / rows
    # Dvoretzky, Kiefer, Wolfowitz: a right generator is farther off once in a thousand draws.
    bound = math.sqrt(math.log(2 / 1e-3) / (2 * rows))
    assert np.abs(found - np.cumsum(exact_shares(count, exponent))).max() < bound


def test_with_exponent_1_the_product_is_the_power_of_a_number_between_0_and_1():
    rng = np.random.default_rng(3)
    assert Zipf(9999).draw(1000, rng).tolist() == [
        int(10_000**u) for u in np.random.default_rng(3).random(1000)
    ]


@pytest.mark.parametrize(
    "count, share",
    [
        pytest.param(3125, 0.80, id="80/20 holds for some three thousand products"),
        pytest.param(2_000_000, 0.889, id="with two million it is 89/20"),
    ],
)
def test_what_a_fifth_of_the_products_sells(count, share):
    law, rows = Zipf(count), 100_000
    assert float(law.reached(count // 5)) == pytest.approx(share, abs=0.001)
    sold = law.draw(rows, np.random.default_rng(5)) <= count // 5
    assert sold.mean() == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("wrong", [{"products": 0}, {"exponent": -1.0}])
def test_a_law_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="at least one product and an exponent of at least 0"):
        Zipf(**wrong)


# Bursts


def flow(steps: int, seed: int = 1, sources: int = SOURCES) -> np.ndarray:
    return np.fromiter(itertools.islice(bursts(np.random.default_rng(seed), sources), steps), np.int64)


def hurst(counts: np.ndarray, scales: list[int]) -> float:
    """From the variance of means over blocks, which falls as m^(2H - 2): 0.5 for what is independent."""
    spread = [counts[: len(counts) // m * m].reshape(-1, m).mean(axis=1).var() for m in scales]
    return 1 + np.polyfit(np.log(scales), np.log(spread), 1)[0] / 2


def test_the_flow_is_that_of_sources_that_are_on_or_off():
    counts = flow(20_000, sources=4)
    assert set(counts.tolist()) == set(range(0, 2 + 4 + 8 + 16 + 1, 2))
    assert counts.mean() == pytest.approx(mean_burst(4), rel=0.05)


def test_the_first_steps_are_like_all_others():
    first = [flow(5, seed=seed).mean() for seed in range(2000)]
    # The deviation of a sum of independent switches of 2, 4, ..., 1024.
    deviation = math.sqrt(sum(4**i for i in range(1, SOURCES + 1))) / 2
    assert np.mean(first) == pytest.approx(mean_burst(), abs=3 * deviation / math.sqrt(2000))
    assert np.std(first) == pytest.approx(deviation, rel=0.05)


def test_bursts_last_on_every_scale_up_to_the_longest_source():
    counts = flow(100_000)
    shuffled = np.random.default_rng(2).permutation(counts)
    scales = [1, 2, 4, 8, 16, 32, 64]
    assert hurst(counts, scales) > 0.95
    assert hurst(shuffled, scales) == pytest.approx(0.5, abs=0.05)
    beyond = [2048, 4096, 8192]
    assert hurst(counts, beyond) < 0.8


def test_the_flow_changes_by_more_the_longer_one_looks():
    """Twice the time, nearly twice the change, over six doublings; what is independent changes as much at once."""
    counts = flow(100_000)
    change = [np.abs(counts[lag:] - counts[:-lag]).mean() for lag in 2 ** np.arange(7)]
    growth = np.array(change[1:]) / change[:-1]
    assert (growth > 1.5).all() and (growth < 2.1).all()


# Rows


def test_rows_arrive_as_the_bursts_say():
    counts = flow(300, seed=4, sources=6)
    rows, rate = int(counts.sum()), 500.0
    at = arrivals(rows, rate, np.random.default_rng(4), sources=6)
    assert (np.diff(at) > 0).all()
    step_s = mean_burst(6) / rate
    assert np.bincount((at / step_s).astype(int), minlength=300).tolist() == counts.tolist()


def test_over_a_long_time_the_rate_is_the_one_asked_for():
    at = arrivals(500_000, 2000.0, np.random.default_rng(4), sources=5)
    assert 500_000 / at[-1] == pytest.approx(2000, rel=0.05)


def test_a_seed_gives_the_same_sales_and_more_of_them_begin_alike():
    long, again, other = sales(5000), sales(5000), sales(5000, seed=8)
    assert long.equals(again)
    assert not any(long[name].equals(other[name]) for name in long.column_names)
    assert sales(1200).equals(long.slice(0, 1200))


def test_a_sale_takes_20_bytes_and_names_a_product():
    table = sales(10_000, products=50, exponent=0.0)
    assert table.nbytes == 10_000 * SALE_BYTES
    assert sorted(set(table["product"].to_pylist())) == list(range(1, 51))
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")


def test_a_product_takes_120_bytes_and_pieces_are_made_again():
    piece = products(1000, first=501)
    assert piece.nbytes == pytest.approx(1000 * PRODUCT_BYTES, abs=4)
    assert piece["id"].to_pylist() == list(range(501, 1501))
    assert piece.equals(products(1000, first=501)) and not piece.equals(products(1000, first=501, seed=8))
    piece.validate(full=True)


def test_no_rows():
    assert len(sales(0)) == 0 and len(products(0)) == 0


# Whatever is asked for


laws = st.builds(
    Zipf, products=st.integers(1, 10**9), exponent=st.floats(0, 20) | st.floats(1 - 1e-6, 1 + 1e-6)
)


class Fixed(np.random.Generator):
    """Draws what it is told to."""

    def __init__(self, draws: np.ndarray):
        super().__init__(np.random.PCG64(0))
        self.draws = draws

    def random(self, count):
        return self.draws[:count]


@given(laws, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50))
def test_the_key_of_a_number_is_where_the_shares_reach_it(law, numbers):
    """Any number below 1, the next one to 1 too, gives the product whose sales reach past it."""
    drawn = np.array([*numbers, 0.0, np.nextafter(1, 0)])
    keys = law.draw(len(drawn), Fixed(drawn))
    assert keys.min() >= 1 and keys.max() <= law.products
    near = 1e-9
    assert (law.reached(keys - 1) <= drawn + near).all()
    assert (law.reached(keys) >= drawn - near).all()


@given(laws)
def test_shares_grow_from_nothing_to_all(law):
    ranks = np.unique(np.linspace(0, law.products, 50).astype(np.int64))
    reached = law.reached(ranks)
    assert reached[0] == 0 and reached[-1] == 1
    assert (np.diff(reached) >= 0).all()
    shares = np.diff(reached) / np.diff(ranks)
    assert (np.diff(shares) <= 1e-12).all()


@given(st.integers(0, 3000), st.floats(0.01, 1e6), st.integers(1, 12), st.integers(0, 2**32))
def test_as_many_rows_arrive_as_asked_for_and_none_before_another(rows, rate, sources, seed):
    at = arrivals(rows, rate, np.random.default_rng(seed), sources)
    assert len(at) == rows and (at > 0).all() and (np.diff(at) > 0).all()
