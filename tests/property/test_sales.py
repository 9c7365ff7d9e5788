"""Generated sales, whatever is asked for: keys in range, shares that only grow, times that never go back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.testing import Zipf, arrivals

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
