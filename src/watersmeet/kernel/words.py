"""Order words: 64 bits for each value, ordered as Spark orders the values.

    integers, dates, timestamps, booleans, day-time intervals    strict: equal words are equal values
    float, double                    strict: -0.0 is 0.0, there is one NaN, and it is above infinity
    decimals of at most 18 digits    strict: the unscaled value, so both sides need one scale
    wider decimals                   not strict: the unscaled value without its lowest `dropped_bits`
    strings, binary                  not strict: the first 8 bytes, shorter values padded with zeros

Not strict still means monotone: a smaller value never has the larger word. Nothing here knows nulls: a null
matches nothing, and such rows are dropped before.

The partners of a row are those between two words. `partners` finds them: by adding whole steps where bounds
are integers, which saturates at the ends of the 64 bits and loses nothing; by real arithmetic where they are
floats, widened outwards by more than Spark's own arithmetic can round, so that no partner is missed and some
are too many.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.sorted import Keys
from watersmeet.model.expression import WORD_DIGITS, dropped_bits
from watersmeet.model.types import SqlType

_SIGN = np.uint64(1 << 63)
_LAST = (1 << 64) - 1

# A text's first bytes that make its word.
_PREFIX_BYTES = 8
# Texts looked at together: each takes eight positions of eight bytes.
_PREFIX_ROWS = 65_536

# Units in the last place of the largest operand by which a bound is moved outwards. A predicate rounds at most
# three times on its way (two casts or shifted sides and a difference), half a unit each, and we once.
_ROUNDING_UNITS = 8.0

Floats = npt.NDArray[np.float64]


def words(column: pa.Array) -> Keys:
    """A word for each value of a column without nulls.

    Two columns can be compared if they have one SQL type, or are integers, or floats, of any width.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        return encode_floats(column.cast(pa.float64()).to_numpy())
    if pa.types.is_decimal(kind):
        return _decimal_words(column)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _signed(column.cast(pa.int64()).to_numpy())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return _signed(column.view(pa.int32()).cast(pa.int64()).to_numpy())
    if pa.types.is_temporal(kind):
        return _signed(column.view(pa.int64()).to_numpy())
    return _prefix_words(column)


def _signed(values: npt.NDArray[np.int64]) -> Keys:
    return values.view(np.uint64) ^ _SIGN


def encode_floats(values: Floats) -> Keys:
    """Negative numbers have all bits turned, others the sign: unsigned order is then numeric order."""
    with np.errstate(invalid="ignore"):
        plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.uint64)
    return np.where(np.signbit(plain) & ~np.isnan(plain), ~bits, (bits & ~_SIGN) | _SIGN)


def decode_floats(words: Keys) -> Floats:
    return np.where(words >= _SIGN, words ^ _SIGN, ~words).view(np.float64)


def _decimal_words(column: pa.Array) -> Keys:
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    halves = np.frombuffer(wide.buffers()[1], np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
    low, high = halves[::2], halves[1::2]
    if column.type.precision <= WORD_DIGITS:
        return low ^ _SIGN
    bits = dropped_bits(column.type.precision)
    kept = high if bits == 64 else (high << np.uint64(64 - bits)) | (low >> np.uint64(bits))
    return kept ^ _SIGN


def _prefix_words(column: pa.Array) -> Keys:
    binary = column.cast(pa.large_binary())
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = binary.buffers()[2]
    if data is None or not data.size:
        return np.zeros(len(binary), np.uint64)
    values = np.frombuffer(data, np.uint8)
    found = np.empty(len(binary), np.uint64)
    for low in range(0, len(binary), _PREFIX_ROWS):
        bounds = offsets[low : low + _PREFIX_ROWS + 1]
        at = bounds[:-1, None] + np.arange(_PREFIX_BYTES)
        taken = np.where(at < bounds[1:, None], values[np.minimum(at, len(values) - 1)], np.uint8(0))
        found[low : low + _PREFIX_ROWS] = np.ascontiguousarray(taken).view(">u8")[:, 0]
    return found


def shift(words: Keys, offset: int) -> Keys:
    """Each word moved by so many steps; it stops at the ends of the 64 bits."""
    step = np.uint64(min(abs(offset), _LAST))
    if offset >= 0:
        return np.minimum(words, np.uint64(_LAST) - step) + step
    return np.maximum(words, step) - step


def partners(
    words: Keys, low: int | float | None, high: int | float | None, kind: SqlType
) -> tuple[slice, Keys | None, Keys | None]:
    """Which of the ascending words have partners in `low <= partner - word <= high`, and within which bounds.

    The bounds are inclusive, one for each of the words in the slice; None where there is none.
    """
    if isinstance(low, float) or isinstance(high, float):
        return (
            slice(0, len(words)),
            None if low is None else _float_bound(words, float(low), -1.0, kind),
            None if high is None else _float_bound(words, float(high), 1.0, kind),
        )
    # A lower bound beyond the last word, or an upper one below the first, leaves nothing.
    here = slice(
        0 if high is None else int(np.searchsorted(words, np.uint64(min(max(-high, 0), _LAST)))),
        len(words)
        if low is None
        else int(np.searchsorted(words, np.uint64(max(min(_LAST - low, _LAST), 0)), side="right")),
    )
    if (high is not None and high < -_LAST) or (low is not None and low > _LAST) or here.start > here.stop:
        here = slice(0, 0)
    inside = words[here]
    return here, None if low is None else shift(inside, low), None if high is None else shift(inside, high)


def _float_bound(words: Keys, offset: float, outwards: float, kind: SqlType) -> Keys:
    """`value + offset`, moved outwards; NaN stays NaN, as in `x <= NaN + 1`.

    A side that Spark moved may have left the range of its type and become infinite. So a bound beyond the range
    is infinite, and the last finite values, as far as the offset reaches, are partners of infinity.
    """
    precision = np.finfo(np.float32 if kind.name == "float" else np.float64)
    unit, last = float(precision.eps), float(precision.max)
    values = decode_floats(words)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.where(np.isfinite(values), np.abs(values), 0.0)
        slack = _ROUNDING_UNITS * (unit * size + unit * abs(offset) + float(precision.smallest_subnormal))
        bound = values + offset + outwards * slack
        edge = outwards * (2.0 * abs(offset) - last * (1.0 - 2.0 * _ROUNDING_UNITS * unit))
    bound = np.where(outwards * bound > last, outwards * np.inf, bound)
    limit = np.fmax if outwards > 0 else np.fmin
    return encode_floats(np.where(np.isnan(bound), bound, limit(bound, edge)))
