"""Values of text files in the types of a schema, as Spark reads them.

A text that Spark would not read as its column's type is an error here, where Spark gives null. So is a text that only
Spark's more lenient parsers accept, such as `1.5f` or `2024-1-5`. Decimals with too many digits behind the point are
rounded half up, and digits of a second behind the sixth are cut off.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INTEGER: Final = r"^[+-]?[0-9]+$"
_FLOAT: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# The names that Spark's readers know, with and without its options.
_NOT_FINITE: Final = {
    "NaN": "nan",
    "Inf": "inf",
    "-Inf": "-inf",
    "Infinity": "inf",
    "+Infinity": "inf",
    "-Infinity": "-inf",
}
_DAY: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_ZONE: Final = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_MOMENT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})?)?)?$"
_LOCAL: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?$"
_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")
# Wide enough for any decimal with as many digits behind the point as a decimal can have.
WIDE_DECIMAL: Final = pa.decimal256(76, 38)
_UTC_NAMES: Final = ("UTC", "Z", "GMT", "Etc/UTC", "UCT", "Zulu")


class Unreadable(ValueError):
    """A text is not a value of its column's type; the message shows it."""


def parse_texts(texts: pa.Array, wanted: pa.DataType, zone: str) -> pa.Array | None:
    """A column of texts in another type; None for a type that has no text form here."""
    if pa.types.is_string(wanted):
        return texts
    if pa.types.is_binary(wanted):
        return texts.cast(wanted)
    if pa.types.is_boolean(wanted):
        return _booleans(texts)
    if pa.types.is_integer(wanted):
        return _integers(texts, wanted)
    if pa.types.is_floating(wanted):
        return _floats(texts, wanted)
    if pa.types.is_decimal(wanted):
        # Commas between digits are passed over, wherever they are, as in Spark.
        return round_decimals(_cast(pc.replace_substring(texts, ",", ""), WIDE_DECIMAL), wanted)
    if pa.types.is_date(wanted):
        return _cast(_matching(texts, _DAY, wanted), wanted)
    if pa.types.is_timestamp(wanted):
        return _moments(texts, wanted, zone)
    return None


def round_decimals(wide: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Decimals with fewer digits behind the point, rounded half up, away from zero."""
    return _cast(pc.round(wide, wanted.scale, round_mode="half_towards_infinity"), wanted)


def _booleans(texts: pa.Array) -> pa.Array:
    lower = pc.ascii_lower(texts)
    return pc.equal(_matching(lower, "^(true|false)$", pa.bool_()), "true")


def _integers(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    # Arrow reads 0x1F, Java does not; Java reads +5, Arrow does not.
    if _has_bytes(texts, b"xX+"):
        texts = pc.replace_substring_regex(_matching(texts, _INTEGER, wanted), r"^\+", "")
    return _cast(texts, wanted)


def _floats(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    # Only numbers have none of these letters. Arrow knows more names of numbers that are not finite than Spark.
    if _has_bytes(texts, b"NnIiFfAaTtYyXxPpDdLl"):
        names = pa.array(list(_NOT_FINITE))
        place = pc.index_in(texts, names)
        known = pc.is_valid(place)
        named = pc.take(pa.array(list(_NOT_FINITE.values())), place)
        numbers = pc.if_else(known, pa.scalar(None, pa.string()), texts)
        texts = pc.coalesce(named, _matching(numbers, _FLOAT, wanted))
    return _cast(texts, wanted)


def _moments(texts: pa.Array, wanted: pa.DataType, zone: str) -> pa.Array:
    texts = _matching(texts, _MOMENT if wanted.tz else _LOCAL, wanted)
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    if wanted.tz is None:
        return _cast(texts, wanted)
    zoned = pc.match_substring_regex(texts, _ZONE)
    if not pc.any(zoned).as_py():
        return _in_zone(_cast(texts, pa.timestamp("us")), zone)
    nothing = pa.scalar(None, pa.string())
    moments = _cast(pc.if_else(zoned, texts, nothing), wanted)
    local = _cast(pc.if_else(zoned, nothing, texts), pa.timestamp("us"))
    return pc.coalesce(moments, _in_zone(local, zone))


def _in_zone(local: pa.Array, zone: str) -> pa.Array:
    """Moments of local times; of two with the same local time the first, as in Java."""
    utc = pa.timestamp("us", "UTC")
    if zone in _UTC_NAMES:
        return local.view(utc)
    offset = _OFFSET.fullmatch(zone)
    if offset:
        micros = (int(offset[2]) * 60 + int(offset[3])) * 60_000_000 * (-1 if offset[1] == "-" else 1)
        return pc.subtract(local.view(pa.int64()), micros).view(utc)
    try:
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="raise").cast(utc)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise Unreadable(f"a local time without a zone is no moment in {zone}: {error}") from error


def _matching(texts: pa.Array, pattern: str, wanted: pa.DataType) -> pa.Array:
    """The texts, if all match."""
    wrong = pc.invert(pc.match_substring_regex(texts, pattern))
    if pc.any(wrong).as_py():
        first = texts[pc.index(wrong, True).as_py()].as_py()
        raise Unreadable(f"{first[:80]!r} cannot be read as {_name(wanted)}")
    return texts


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid as error:
        raise Unreadable(f"a value cannot be read as {_name(wanted)}: {error}") from error


def _name(wanted: pa.DataType) -> str:
    from watersmeet.model.types import type_of_arrow

    return str(type_of_arrow(wanted))


def _has_bytes(texts: pa.Array, some: bytes) -> bool:
    """Whether one of some bytes is anywhere in the texts, or beside them in their buffer."""
    content = texts.buffers()[2]
    if content is None:
        return False
    found = np.bincount(np.frombuffer(content, np.uint8), minlength=256)
    return bool(found[np.frombuffer(some, np.uint8)].any())
