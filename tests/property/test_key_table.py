"""The table of keys: a key that is there always passes, and few others do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.key_table import key_table

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=50).map(lambda keys: np.array(keys, np.uint64))


@given(st.lists(KEYS, min_size=1, max_size=4), KEYS)
def test_every_key_that_is_there_passes(sequences, others):
    sought = np.concatenate([*sequences, others])
    passed = set(key_table(sequences).likely(sought).tolist())
    assert passed >= set(range(len(sought) - len(others)))


@pytest.mark.parametrize("values", [4, 200, 1 << 20], ids=["few prefixes", "some", "mixed"])
def test_few_absent_keys_pass_whatever_their_leading_bits(values):
    rng = np.random.default_rng(1)
    prefixes = rng.integers(0, 1 << 32, values, dtype=np.uint64)

    def drawn() -> np.ndarray:
        halves = prefixes[rng.integers(0, values, 20_000)], rng.integers(0, 1 << 32, 20_000, dtype=np.uint64)
        return (halves[0] << np.uint64(32)) | halves[1]

    assert len(key_table([drawn()]).likely(drawn())) < 20_000 / 8
