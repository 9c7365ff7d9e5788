"""Order keys: the 64 bits that rows are sorted, found and shared out by.

There are two kinds.

*Hashes* (`order_keys`) serve equality. A single key of at most 64 bits is mixed bijectively (the finaliser of
splitmix64, Steele et al. 2014), so equal order keys are equal keys. Any other key is hashed, and the kernel
compares the key columns of the candidates. Keys that SQL calls equal get equal order keys: -0.0 is 0.0, every
NaN is one NaN, integers of all widths are one. An even spread over tasks is not guaranteed when many rows share
one key; heavy keys are treated apart.

*Words* (`words`) serve order and bands. They are ordered as Spark orders the values:

    integers, dates, timestamps, booleans, day-time intervals    strict: equal words are equal values
    float, double                    strict: -0.0 is 0.0, there is one NaN, and it is above infinity
    decimals of at most 18 digits    strict: the unscaled value, so both sides need one scale
    wider decimals                   not strict: the unscaled value without its lowest `dropped_bits`
    strings, binary                  not strict: the first 8 bytes, shorter values padded with zeros

"Not strict" is still monotone: a smaller value never has the larger word. Columns have no nulls here: a null key
matches nothing in an inner join, so such rows are dropped first.

A *section* of a run is a storage group of the grid and a part inside it: group * parts + part. Both come from a
mixed hash of the row, the group from its low half and the part from its highest bits: they are independent, and a
row or column of the grid is a contiguous range of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model.expression import WORD_DIGITS, dropped_bits
from watersmeet.model.types import SqlType

Keys = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Doubles = npt.NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SIGN = np.uint64(1 << 63)
_LAST = (1 << 64) - 1
_LOW_HALF = np.uint64(0xFFFF_FFFF)

# Bytes hashed at a time: every byte becomes a 64-bit product, so this bounds the temporary memory to ~32 MB.
_HASH_CHUNK_BYTES = 1 << 20
# The first bytes of a text that make its word, and the texts read together: each takes eight positions of eight bytes.
_PREFIX_BYTES = 8
_PREFIX_ROWS = 65_536
# A float bound is moved outwards by this many units in the last place of the largest operand. A predicate rounds at
# most three times (two casts or shifted sides and a difference), half a unit each, and we round once.
_ROUNDING_UNITS = 8.0


def fits_word(kind: SqlType) -> bool:
    """Whether 64 bits hold every value, so that one key of this type needs no comparison afterwards."""
    if kind.precision is not None:
        return kind.precision <= WORD_DIGITS
    temporal = kind.name in ("date", "timestamp", "timestamp_ntz") or kind.name.startswith(
        ("interval day", "time(")
    )
    return kind.integral or kind.floating or kind.name == "boolean" or temporal


def strict(kind: pa.DataType) -> bool:
    """Whether equal words of this type are equal values."""
    if pa.types.is_decimal(kind):
        return kind.precision <= WORD_DIGITS
    return not (pa.types.is_string(kind) or pa.types.is_binary(kind))


def valid_rows(columns: Sequence[pa.Array]) -> pa.BooleanArray | None:
    """Which rows have no null in these columns; None if that is all rows."""
    valid = None
    for column in columns:
        if column.null_count:
            valid = column.is_valid() if valid is None else pc.and_(valid, column.is_valid())
    return valid


def drop_null_keys(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    valid = valid_rows([batch.column(key) for key in keys])
    return batch if valid is None else batch.filter(valid)


def order_keys(columns: Sequence[pa.Array]) -> Keys:
    """Hashes of one or more key columns without nulls."""
    if len(columns) == 1:
        return mix(_bits(columns[0]))
    combined = np.full(len(columns[0]), _GOLDEN)
    for column in columns:
        combined *= _GOLDEN
        combined += mix(_bits(column))
        combined = mix(combined)
    return combined


# Joined keys: the last half is that of the second key.
SUFFIX_BITS = 32
_HALF = np.uint64(SUFFIX_BITS)
_SUFFIX = np.uint64((1 << SUFFIX_BITS) - 1)


def joined_keys(prefix: Keys, suffix: Keys) -> Keys:
    """Order keys of which the first half is that of one key, and the second half that of another."""
    return (prefix & ~_SUFFIX) | (suffix >> _HALF)


def prefix_ranges(prefix: Keys) -> tuple[Keys, Keys]:
    """The first and the last of the joined keys with each prefix."""
    first = prefix & ~_SUFFIX
    return first, first | _SUFFIX


def mix(words: Keys) -> Keys:
    """A bijection of 64-bit words whose every output bit depends on every input bit."""
    mixed = words ^ (words >> np.uint64(30))
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed


def words(column: pa.Array) -> Keys:
    """Order words of a column without nulls.

    Two columns can be compared if they have one SQL type, or are integers, or floats, of any width.
    """
    plain = _plain(column)
    if plain is not None:
        bits = plain.view(np.uint64)
        return _ordered(bits) if plain.dtype == np.float64 else bits ^ _SIGN
    if not pa.types.is_decimal(column.type):
        return _prefixes(column)
    low, high = _halves(column)
    dropped = dropped_bits(column.type.precision)
    kept = high if dropped == 64 else (high << np.uint64(64 - dropped)) | (low >> np.uint64(dropped))
    return kept ^ _SIGN


def _bits(column: pa.Array) -> Keys:
    """64 bits for each value: the value itself where it fits, a hash where it does not."""
    plain = _plain(column)
    if plain is not None:
        return np.ascontiguousarray(plain).view(np.uint64)
    if not pa.types.is_decimal(column.type):
        return _byte_hashes(column)
    low, high = _halves(column)
    return low + mix(np.ascontiguousarray(high))


def _plain(column: pa.Array) -> npt.NDArray[np.int64] | Doubles | None:
    """The values as whole numbers, or as doubles with one zero and one NaN; None for wide decimals and text."""
    kind = column.type
    if pa.types.is_floating(kind):
        return _normal(column.cast(pa.float64()).to_numpy())
    if pa.types.is_decimal(kind):
        return _halves(column)[0].view(np.int64) if kind.precision <= WORD_DIGITS else None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        values: npt.NDArray[np.int64] = whole_numbers(column).to_numpy()
        return values
    return None


def whole_numbers(column: pa.Array) -> pa.Array:
    """Integers, booleans, dates, times or timestamps as 64-bit integers; nulls stay."""
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        column = column.view(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.view(pa.int64())
    return column.cast(pa.int64())


def _normal(values: Doubles) -> Doubles:
    """The same doubles with one zero and one NaN, both without a sign."""
    with np.errstate(invalid="ignore"):
        plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    return plain


def encode_floats(values: Doubles) -> Keys:
    """Order words of doubles."""
    return _ordered(_normal(values).view(np.uint64))


def _ordered(bits: Keys) -> Keys:
    """Negative doubles have all bits inverted, others the sign: unsigned order is then numeric order."""
    return np.where(bits >= _SIGN, ~bits, bits | _SIGN)


def decode_floats(words: Keys) -> Doubles:
    return np.where(words >= _SIGN, words ^ _SIGN, ~words).view(np.float64)


def _halves(column: pa.Array) -> tuple[Keys, Keys]:
    """The low and the high 64 bits of unscaled decimals."""
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    halves = np.frombuffer(wide.buffers()[1], np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
    return halves[::2], halves[1::2]


def _bytes(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The offsets of texts, and the bytes that they lie in."""
    binary = column.cast(pa.large_binary())
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = binary.buffers()[2]
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def _prefixes(column: pa.Array) -> Keys:
    offsets, values = _bytes(column)
    found = np.zeros(len(column), np.uint64)
    if not len(values):
        return found
    for low in range(0, len(column), _PREFIX_ROWS):
        bounds = offsets[low : low + _PREFIX_ROWS + 1]
        at = bounds[:-1, None] + np.arange(_PREFIX_BYTES)
        taken = np.where(at < bounds[1:, None], values[np.minimum(at, len(values) - 1)], np.uint8(0))
        found[low : low + _PREFIX_ROWS] = np.ascontiguousarray(taken).view(">u8")[:, 0]
    return found


def _byte_hashes(column: pa.Array) -> Keys:
    """A multilinear hash of variable-length bytes: the sum of (byte + 1) times a word drawn from its place."""
    offsets, values = _bytes(column)
    hashed = np.zeros(len(column), np.uint64)
    for start in range(int(offsets[0]), int(offsets[-1]), _HASH_CHUNK_BYTES):
        _add_chunk(hashed, offsets, values, start, min(start + _HASH_CHUNK_BYTES, int(offsets[-1])))
    return hashed


def _add_chunk(
    hashed: Keys, offsets: npt.NDArray[np.int64], values: npt.NDArray[np.uint8], start: int, stop: int
) -> None:
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, stop, side="left"))
    bounds = np.clip(offsets[first : last + 1], start, stop)
    lengths = np.diff(bounds)
    places = np.arange(start, stop) - np.repeat(offsets[first:last], lengths)
    products = (values[start:stop].astype(np.uint64) + np.uint64(1)) * mix(places.astype(np.uint64) + _GOLDEN)
    sums = np.concatenate(([np.uint64(0)], np.cumsum(products, dtype=np.uint64)))
    hashed[first:last] += sums[bounds[1:] - start] - sums[bounds[:-1] - start]


def shift(words: Keys, offset: int) -> Keys:
    """Each word moved by `offset` steps; it stops at the ends of the 64 bits."""
    step = np.uint64(min(abs(offset), _LAST))
    if offset >= 0:
        return np.minimum(words, np.uint64(_LAST) - step) + step
    return np.maximum(words, step) - step


def partners(
    words: Keys, low: int | float | None, high: int | float | None, kind: SqlType
) -> tuple[slice, Keys | None, Keys | None]:
    """Which of the ascending words have partners in `low <= partner - word <= high`, and within which bounds.

    The bounds are inclusive, one for each word of the slice; None where there is none. Integer bounds count steps,
    which saturate at the ends of the 64 bits and lose nothing. Float bounds are distances of values. They are
    widened outwards by more than Spark's own arithmetic can round: no partner is missed, some are too many.
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


def reach(words: Keys, low: int | float | None, high: int | float | None, kind: SqlType) -> tuple[Keys, Keys]:
    """The first and the last partner of each word in `low <= partner - word <= high`; the words are in any order.

    As `partners`. A word without a partner gets an interval that ends before it begins.

    >>> [bounds.tolist() for bounds in reach(np.array([2, 9], np.uint64), -7, -3, SqlType("int"))]
    [[1, 2], [0, 6]]
    """
    if isinstance(low, float) or isinstance(high, float):
        return (
            np.zeros_like(words) if low is None else _float_bound(words, float(low), -1.0, kind),
            np.full_like(words, _LAST) if high is None else _float_bound(words, float(high), 1.0, kind),
        )
    lower = np.zeros_like(words) if low is None else shift(words, low)
    upper = np.full_like(words, _LAST) if high is None else shift(words, high)
    # A lower bound beyond the last word, or an upper one below the first, leaves nothing.
    unmatched = np.zeros(len(words), np.bool_)
    if low is not None and low > 0:
        unmatched |= np.full(len(words), True) if low > _LAST else words > np.uint64(_LAST - low)
    if high is not None and high < 0:
        unmatched |= np.full(len(words), True) if high < -_LAST else words < np.uint64(-high)
    return np.where(unmatched, np.uint64(1), lower), np.where(unmatched, np.uint64(0), upper)


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


def sections_of(hashes: Keys, group_cells: Sequence[int], parts: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """The section of each row, from hashes that are mixed in all their bits.

    `parts` is a power of two, up to 2**32; `group_cells` sum to less than 2**32. Groups get rows in proportion to
    their cells, up to 2**-32. Only the ratios count, so a row keeps its section when all groups grow by one factor.
    The numbers are 16 bits wide where that is enough: a stable sort by them is then a radix sort.
    """
    narrow: type[np.unsignedinteger[Any]] = np.uint16 if len(group_cells) * parts <= 1 << 16 else np.uint32
    part_bits = parts.bit_length() - 1
    part = (hashes >> np.uint64(64 - part_bits)) if part_bits else np.zeros(len(hashes), np.uint64)
    if len(group_cells) == 1:
        return part.astype(narrow)
    bounds = np.cumsum(np.array(group_cells, dtype=np.uint64))
    cell = ((hashes & _LOW_HALF) * bounds[-1]) >> np.uint64(32)
    group = np.searchsorted(bounds, cell, side="right").astype(np.uint64)
    return (group * np.uint64(parts) + part).astype(narrow)
