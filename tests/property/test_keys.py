"""Order keys: equal values share one, the hash depends on the value alone, and sorting is stable."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.keys import drop_null_keys, mix, order_keys
from watersmeet.kernel.rows import sorted_order

wide_keys = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40)


@given(wide_keys)
def test_mix_is_a_bijection(values):
    words = np.array(values, np.int64).view(np.uint64)
    assert len(np.unique(mix(words))) == len(set(values))


floats = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.lists(floats, min_size=1, max_size=30))
def test_floats_that_sql_calls_equal_share_an_order_key(values):
    keys = order_keys([pa.array(values, pa.float64())])
    narrow = order_keys([pa.array(values, pa.float32())])
    assert np.array_equal(keys, narrow)
    for x, a in zip(values, keys, strict=True):
        for y, b in zip(values, keys, strict=True):
            assert (a == b) == (x == y or (x != x and y != y))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=30), st.integers(0, 5))
def test_hash_of_strings_depends_on_the_value_alone(values, offset):
    column = pa.array(["padding"] * offset + values).slice(offset)
    keys = order_keys([column])
    assert np.array_equal(keys, order_keys([pa.array(values)]))
    by_value: dict[str, int] = {}
    for value, key in zip(values, keys, strict=True):
        assert by_value.setdefault(value, int(key)) == int(key)
    assert len(set(by_value.values())) == len(by_value)


def test_hash_of_a_string_longer_than_a_chunk():
    """Chunks of 1 MiB begin at other places of the long strings where shorter ones stand before them."""
    long = "a" * (3 << 19)
    values = [long, "b", "", long[1:] + "b", long]
    hashes = order_keys([pa.array(values)])
    assert hashes[0] == hashes[4]
    assert len(set(hashes.tolist())) == 4
    assert hashes[1:3].tolist() == order_keys([pa.array(["b", ""])]).tolist()


def test_rows_with_a_null_in_any_key_are_dropped():
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 3], "b": [1, 2, None], "c": [None, 5, 6]})
    assert drop_null_keys(batch, ["a", "b"]).to_pylist() == [{"a": 1, "b": 1, "c": None}]


@given(
    st.lists(st.one_of(st.integers(0, 3), st.integers(0, 1 << 20), st.integers(0, (1 << 64) - 1)), min_size=1)
)
def test_keys_are_sorted_and_equal_ones_keep_their_order(drawn):
    keys = np.array(drawn, np.uint64)
    expected = sorted(range(len(drawn)), key=drawn.__getitem__)
    assert sorted_order(keys, first_pass_rows=0).tolist() == expected
    assert sorted_order(keys).tolist() == expected
