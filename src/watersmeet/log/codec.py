"""Facts as checked JSON: a header line with size and checksum, then the body.

A file is parsed only after its size and checksum agree with the header, so a truncated or damaged one is
always found first and named. The body is ordinary JSON, one object per fact, for people and tools to read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any, TypeVar

import xxhash

from watersmeet.errors import CorruptFile
from watersmeet.model.facts import FORMAT

T = TypeVar("T")

_MAGIC = "watersmeet"


def checksum(content: Any) -> str:
    """XXH3, 64 bits, of bytes or a buffer: an order of magnitude faster than reading from disk."""
    return str(xxhash.xxh3_64_hexdigest(content))


def encode_checked(fact: Any) -> bytes:
    body = json.dumps(to_plain(fact), separators=(",", ":")).encode()
    return _header(FORMAT, body) + b"\n" + body


def _header(version: int, body: bytes) -> bytes:
    # From format 3 on the checksum covers the version too: a flipped bit must not turn one format into another.
    content = body if version < 3 else f"{version}\n".encode() + body
    return json.dumps({_MAGIC: version, "bytes": len(body), "xxh3": checksum(content)}).encode()


_ADVICE = "Restore the file from a copy; or roll the checkpoint back to an earlier batch; or start afresh"


def decode_checked(kind: type[T], content: bytes, path: str, advice: str = _ADVICE) -> T:
    """Verify, then parse. In errors `path` names the file, and `advice` is what to do if it is damaged."""
    head, _, body = content.partition(b"\n")
    try:
        header = json.loads(head)
        version, size = int(header[_MAGIC]), int(header["bytes"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{path} is damaged: its header cannot be read. {advice}") from error
    # First: how a newer format is checked is not known here.
    if version > FORMAT:
        raise CorruptFile(
            f"{path} has format {version}, this version of watersmeet reads up to {FORMAT}: install a newer one"
        )
    if len(body) != size:
        raise CorruptFile(f"{path} is truncated or padded: {len(body)} bytes instead of {size}. {advice}")
    if head != _header(version, body) or version < 1:
        raise CorruptFile(f"{path} is damaged: its checksum is not the one written. {advice}")
    return from_plain(kind, json.loads(body))


def to_plain(fact: Any) -> Any:
    if dataclasses.is_dataclass(fact) and not isinstance(fact, type):
        return {name: to_plain(getattr(fact, name)) for name in _field_names(type(fact))}
    if isinstance(fact, (list, tuple)):
        return list(fact) if fact and type(fact[0]) in _PLAIN else [to_plain(item) for item in fact]
    if isinstance(fact, dict):
        return {key: to_plain(value) for key, value in fact.items()}
    return fact


# JSON gives these as they are; a manifest has thousands of them.
_PLAIN = (int, str)


def from_plain(kind: Any, plain: Any) -> Any:
    """Rebuild a fact from JSON by the type hints of its class; fields that are absent take their default."""
    origin = typing.get_origin(kind)
    if origin is types.UnionType:
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return None if plain is None else from_plain(inner[0], plain)
    if origin is tuple:
        item = typing.get_args(kind)[0]
        if item in _PLAIN:
            return tuple(plain)
        return tuple(from_plain(item, value) for value in plain)
    if origin is dict:
        value_kind = typing.get_args(kind)[1]
        return {key: from_plain(value_kind, value) for key, value in plain.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(
            **{name: from_plain(hints[name], value) for name, value in plain.items() if name in hints}
        )
    return plain


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
