"""Order keys: what an equality run is sorted by.

A single key of at most 64 bits is mixed bijectively (the finaliser of splitmix64, Steele et al. 2014): equal
order keys are then equal keys and nothing needs to be compared again. Any other key is hashed, and the
kernel compares the key columns of the candidates. Both ways, keys that SQL calls equal get equal order
keys: -0.0 is 0.0, every NaN is one NaN, and integers of all widths are one. Rows with a null key are
dropped, since they match nothing in an inner join.

Not guaranteed: an even spread over tasks when many rows share one key; that is what heavy keys are for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.sorted import Keys
from watersmeet.model.types import SqlType

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

# The largest decimal whose unscaled value always fits 64 bits.
_WORD_DECIMAL_DIGITS = 18

# Bytes hashed at a time: every byte becomes a 64-bit product, so this bounds the temporary memory to ~32 MB.
_HASH_CHUNK_BYTES = 1 << 20


def fits_word(kind: SqlType) -> bool:
    """Whether 64 bits hold every value, so that one key of this type needs no comparison afterwards."""
    if kind.precision is not None:
        return kind.precision <= _WORD_DECIMAL_DIGITS
    temporal = kind.name in ("date", "timestamp", "timestamp_ntz") or kind.name.startswith(
        ("interval day", "time(")
    )
    return kind.integral or kind.floating or kind.name == "boolean" or temporal


def drop_null_keys(batch: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    nullable = [batch.column(k) for k in keys if batch.column(k).null_count]
    if not nullable:
        return batch
    valid = nullable[0].is_valid()
    for column in nullable[1:]:
        valid = pc.and_(valid, column.is_valid())
    return batch.filter(valid)


def order_keys(columns: Sequence[pa.Array]) -> Keys:
    """Order keys of rows without null keys, from one or more key columns."""
    if len(columns) == 1:
        return mix(_word(columns[0]))
    combined = np.full(len(columns[0]), _GOLDEN)
    for column in columns:
        combined *= _GOLDEN
        combined += mix(_word(column))
        combined = mix(combined)
    return combined


def mix(words: Keys) -> Keys:
    """A bijection of 64-bit words whose every output bit depends on every input bit."""
    mixed = words ^ (words >> np.uint64(30))
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _word(column: pa.Array) -> Keys:
    """64 bits for each value: the value itself where it fits, a hash of its bytes where it does not."""
    arrow = column.type
    if pa.types.is_floating(arrow):
        floats = column.cast(pa.float64()).to_numpy() + 0.0
        floats[np.isnan(floats)] = np.nan
        return floats.view(np.uint64)
    if pa.types.is_decimal(arrow):
        return _decimal_word(column)
    if pa.types.is_boolean(arrow):
        return column.cast(pa.int64()).to_numpy().view(np.uint64)
    if pa.types.is_date32(arrow) or pa.types.is_time32(arrow):
        return column.view(pa.int32()).cast(pa.int64()).to_numpy().view(np.uint64)
    if pa.types.is_temporal(arrow):
        return column.view(pa.int64()).to_numpy().view(np.uint64)
    if pa.types.is_integer(arrow):
        return column.cast(pa.int64()).to_numpy().view(np.uint64)
    return _byte_words(column)


def _decimal_word(column: pa.Array) -> Keys:
    wide = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    words = np.frombuffer(wide.buffers()[1], dtype=np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
    if column.type.precision <= _WORD_DECIMAL_DIGITS:
        return words[::2].copy()
    return words[::2] + mix(words[1::2].copy())


def _byte_words(column: pa.Array) -> Keys:
    """A multilinear hash of variable-length bytes: the sum of (byte + 1) times a word drawn from its place."""
    binary = column.cast(pa.large_binary())
    offsets = np.frombuffer(binary.buffers()[1], dtype=np.int64)[
        binary.offset : binary.offset + len(binary) + 1
    ]
    data = binary.buffers()[2]
    values = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    hashed = np.zeros(len(binary), dtype=np.uint64)
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
