"""Order words keep every order, and tell all values apart where that is promised."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernel.keys import decode_floats, encode_floats, shift, words

STRICT = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(allow_nan=False, width=32)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(18, 4), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4))),
]
LOOSE = [
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(str)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.decimal128(19, 2), st.integers(-(10**19) + 1, 10**19 - 1)),
    (pa.decimal128(29, 2), st.integers(-(10**29) + 1, 10**29 - 1)),
    (pa.decimal128(38, 2), st.integers(-(10**38) + 1, 10**38 - 1)),
]


def rank(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


@given(st.data(), st.sampled_from(STRICT))
def test_strict_words_compare_as_the_values(data, case):
    type_, values = case
    drawn = data.draw(st.lists(values, min_size=2, max_size=20))
    found = words(pa.array(drawn, type_)).tolist()
    for x, a in zip(drawn, found, strict=True):
        for y, b in zip(drawn, found, strict=True):
            assert (a < b, a == b) == (x < y, x == y)


@given(st.data(), st.sampled_from(LOOSE))
def test_other_words_never_turn_an_order_round(data, case):
    type_, values = case
    drawn = data.draw(st.lists(values, min_size=2, max_size=20))
    unscaled = pa.types.is_decimal(type_)
    column = [Decimal(f"{n}E-2") for n in drawn] if unscaled else drawn
    found = words(pa.array(column, type_)).tolist()
    for x, a in zip(drawn, found, strict=True):
        for y, b in zip(drawn, found, strict=True):
            assert a <= b or rank(x) > rank(y)


@given(st.lists(st.floats(), max_size=20))
def test_floats_come_back_from_their_words(values):
    column = np.array(values, np.float64)
    back = decode_floats(encode_floats(column))
    assert np.array_equal(back, column, equal_nan=True)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(-(2**65), 2**65))
def test_shift_adds_and_saturates(values, offset):
    moved = shift(np.array(values, np.uint64), offset).tolist()
    assert moved == [min(max(value + offset, 0), 2**64 - 1) for value in values]
