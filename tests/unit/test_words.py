"""Order words at the ends of their types, and what shifting does there."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel.keys import decode_floats, encode_floats, partners, shift, words
from watersmeet.model.types import BIGINT, DOUBLE

LAST = 2**64 - 1
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "values, type_",
    [
        pytest.param([-128, -1, 0, 1, 127], pa.int8(), id="tinyint"),
        pytest.param([-(2**63), -1, 0, 1, 2**63 - 1], pa.int64(), id="bigint"),
        pytest.param([-INF, -1e308, -1.5, -5e-324, 0.0, 5e-324, 1.5, 1e308, INF, NAN], pa.float64(), id="double"),
        pytest.param([-INF, -1.5, 0.0, 1.5, INF, NAN], pa.float32(), id="float"),
        pytest.param([False, True], pa.bool_(), id="boolean"),
        pytest.param([datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)], pa.date32(),
                     id="date"),
        pytest.param([datetime.datetime(1, 1, 1), datetime.datetime(1970, 1, 1), datetime.datetime(9999, 1, 1)],
                     pa.timestamp("us"), id="timestamp_ntz"),
        pytest.param([datetime.timedelta(-9), datetime.timedelta(0), datetime.timedelta(9)], pa.duration("us"),
                     id="interval"),
        pytest.param([Decimal(-10**18 + 1), Decimal(-1), Decimal(0), Decimal(10**18 - 1)], pa.decimal128(18, 0),
                     id="decimal(18)"),
        pytest.param([Decimal(-10**20 + 1), Decimal(-16), Decimal(0), Decimal(16), Decimal(10**20 - 1)],
                     pa.decimal128(20, 0), id="decimal(20), 16 apart"),
        pytest.param([Decimal(-10**38 + 1), Decimal(0), Decimal(10**38 - 1)], pa.decimal128(38, 0), id="decimal(38)"),
        pytest.param(["", "a", "ab", "b", "é", "\U0001f600"], pa.string(), id="string"),
        pytest.param([b"", b"\x01", b"\x7f", b"\x80\x00", b"\xff"], pa.binary(), id="binary"),
    ],
)  # fmt: skip
def test_words_ascend_with_the_values(values, type_):
    found = words(pa.array(values, type_))
    assert found.dtype == np.uint64
    assert np.all(found[:-1] < found[1:])
    sliced = words(pa.array([values[0], *values], type_).slice(1))
    assert np.array_equal(sliced, found)


def test_zeros_are_one_and_nans_are_one():
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    assert len(set(words(pa.array(bits)).tolist())) == 1
    assert words(pa.array([-0.0]))[0] == words(pa.array([0.0]))[0] == words(pa.array([0.0], pa.float32()))[0]


def test_integers_of_all_widths_are_one():
    narrow, wide = pa.array([-7, 7], pa.int16()), pa.array([-7, 7], pa.int64())
    assert np.array_equal(words(narrow), words(wide))


def test_texts_that_share_eight_bytes_share_a_word():
    found = words(pa.array(["shortest", "shortest of all", "shorter"]))
    assert found[0] == found[1] > found[2]


def test_empty_columns_have_no_words():
    for type_ in (pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 2)):
        assert len(words(pa.array([], type_))) == 0


def test_many_texts_are_read_in_parts():
    """More than the 65,536 that are read together."""
    few = pa.array(["", "a", "abcdefghi", "zz", "b"])
    assert np.array_equal(words(pa.concat_arrays([few] * 20_000)), np.tile(words(few), 20_000))


@pytest.mark.parametrize(
    "offset, moved",
    [(0, [0, 5, LAST]), (3, [3, 8, LAST]), (-5, [0, 0, LAST - 5]), (2**70, [LAST] * 3), (-(2**70), [0] * 3)],
)
def test_shift_stops_at_the_ends(offset, moved):
    assert shift(np.array([0, 5, LAST], np.uint64), offset).tolist() == moved


@pytest.mark.parametrize(
    "low, high, here",
    [
        pytest.param(0, 0, [0, 5, LAST], id="itself"),
        pytest.param(1, 2, [0, 5], id="nothing lies above the last word"),
        pytest.param(-2, -1, [5, LAST], id="nothing lies below the first word"),
        pytest.param(2**64, None, [], id="a lower bound that is out of reach"),
        pytest.param(None, -(2**64), [], id="an upper bound that is out of reach"),
        pytest.param(-(2**70), 2**70, [0, 5, LAST], id="bounds that do not bind"),
        pytest.param(LAST, LAST, [0], id="from one end to the other"),
        pytest.param(-LAST, -LAST, [LAST], id="and back"),
    ],
)
def test_only_words_whose_interval_is_not_empty_have_partners(low, high, here):
    some = np.array([0, 5, LAST], np.uint64)
    assert some[partners(some, low, high, BIGINT)[0]].tolist() == here


def test_float_bounds_are_wide_enough_and_not_much_wider():
    values = np.array([-INF, -1e300, -1.0, 0.0, 1.0, 1e300, INF, NAN])
    _, lower, upper = partners(encode_floats(values), -0.5, 0.25, DOUBLE)
    low, high = decode_floats(lower), decode_floats(upper)
    finite = slice(1, 6)
    assert np.all(low[finite] < values[finite] - 0.5)
    assert np.all(high[finite] > values[finite] + 0.25)
    assert np.allclose(low[finite], values[finite] - 0.5, rtol=1e-14)
    assert np.allclose(high[finite], values[finite] + 0.25, rtol=1e-14)
    assert low[0] == -INF and high[6] == INF
    assert np.isnan(low[7]) and np.isnan(high[7])
