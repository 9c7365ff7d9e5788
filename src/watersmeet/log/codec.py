"""Facts as checked JSON: a header line with size and checksum, then the body.

A file is parsed only after its size and checksum match the header, so a truncated or damaged file is found first and
named. The body is ordinary JSON, one object per fact, for people and tools to read. A long one is compressed, as its
header says, since every task of a batch reads the manifest: `tail -n +2 FILE | zcat` shows it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import types
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import xxhash

from watersmeet.errors import CorruptFile, OldFormat
from watersmeet.log.formats import OLDEST, upgrade
from watersmeet.model.closed import ClosedSet
from watersmeet.model.facts import FORMAT, Elsewhere, KeyRange, RunStats, SchemePlan

T = TypeVar("T")

_MAGIC = "watersmeet"


def checksum(content: Any) -> str:
    """The 64-bit XXH3 hash of bytes or a buffer: an order of magnitude faster than reading from disk."""
    return str(xxhash.xxh3_64_hexdigest(content))


def encode_checked(fact: Any) -> bytes:
    return close_checked(to_plain(fact))


def close_checked(plain: Any) -> bytes:
    """JSON in the present format, with its header."""
    body = json.dumps(plain, separators=(",", ":")).encode()
    packing = None
    if len(body) > _LONG_BYTES:
        # Level 1 takes half a millisecond for 80 KB and leaves a third; others take longer and leave hardly less.
        packer, packing = zlib.compressobj(1, wbits=_GZIP_BITS), _GZIP
        body = packer.compress(body) + packer.flush()
    return _header(FORMAT, body, packing) + b"\n" + body


# A body that is as soon sent as not: 0.2 ms at 100 MB/s, which is what a small one takes to unpack.
_LONG_BYTES = 16_384
_GZIP, _GZIP_BITS = "gzip", 31


def _header(version: int, body: bytes, packing: str | None) -> bytes:
    # The checksum covers the version too: a flipped bit must not turn one format into another.
    content = f"{version}\n".encode() + body
    packed = {} if packing is None else {"packed": packing}
    header = {_MAGIC: version, "bytes": len(body), "xxh3": checksum(content)} | packed
    return json.dumps(header).encode()


_ADVICE = "Restore the file from a copy, roll the checkpoint back to an earlier batch, or start with a new checkpoint"


def decode_checked(kind: type[T], content: bytes, path: str, advice: str = _ADVICE) -> T:
    """Verify, then parse. Errors name the file by `path`, and give `advice` if it is damaged."""
    version, plain = open_checked(content, path, advice)
    with known_only(version, path, advice):
        found: T = from_plain(kind, plain if version == FORMAT else upgrade(kind, plain, version))
    return found


def open_checked(content: bytes, path: str, advice: str = _ADVICE) -> tuple[int, Any]:
    """The format of a file and its JSON, verified."""
    head, _, body = content.partition(b"\n")
    try:
        header = json.loads(head)
        version, size, packing = int(header[_MAGIC]), int(header["bytes"]), header.get("packed")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{path} is damaged: its header cannot be read. {advice}") from error
    # Check this first: a newer format may be checked differently.
    if version > FORMAT:
        raise CorruptFile(
            f"{path} has format {version}, but this version of watersmeet reads up to {FORMAT}: install a newer one"
        )
    if version < OLDEST:
        raise OldFormat(
            f"{path} has format {version}, but this version of watersmeet reads {OLDEST} to {FORMAT}: run one batch "
            "with an older version first, or start with a new checkpoint"
        )
    if len(body) != size:
        raise CorruptFile(f"{path} is truncated or padded: {len(body)} bytes instead of {size}. {advice}")
    if head != _header(version, body, packing) or packing not in (None, _GZIP):
        raise CorruptFile(f"{path} is damaged: its checksum does not match. {advice}")
    return version, json.loads(body if packing is None else zlib.decompress(body, _GZIP_BITS))


@contextlib.contextmanager
def known_only(version: int, path: str, advice: str = _ADVICE) -> Iterator[None]:
    """Name the file that has a field which this version does not know."""
    try:
        yield
    except UnknownField as error:
        whose = "a newer version of watersmeet wrote it. Install that" if version == FORMAT else advice
        raise CorruptFile(f"{path} has {error}: {whose}") from error


class UnknownField(ValueError):
    """A field, or a kind of plan or statistics, that this version does not know. Dropping it could lose rows."""


def to_plain(fact: Any) -> Any:
    if type(fact) is KeyRange:
        # A plan has one for each task, and a merge one for each part.
        return [fact.low, fact.high]
    if dataclasses.is_dataclass(fact) and not isinstance(fact, type):
        named = {"kind": fact.kind} if isinstance(fact, SchemePlan | RunStats) else {}
        return named | {name: to_plain(getattr(fact, name)) for name in _field_names(type(fact))}
    if isinstance(fact, (list, tuple)):
        return list(fact) if fact and type(fact[0]) in _PLAIN else [to_plain(item) for item in fact]
    if isinstance(fact, dict):
        return {key: to_plain(value) for key, value in fact.items()}
    return fact


# JSON values that need no conversion; a manifest has thousands of them.
_PLAIN = (int, str)


def from_plain(kind: Any, plain: Any) -> Any:
    """Rebuild a fact from JSON by the type hints of its class. Absent fields take their default.

    Plans and statistics of schemes name their class by `kind`.
    """
    read = _reader(kind)
    return plain if read is None else read(plain)


_ReadsPlain = Callable[[Any], Any]


@functools.cache
def _reader(kind: Any) -> _ReadsPlain | None:
    """The function that reads values of a type; None if they need no conversion. Made once for each type."""
    if kind is SchemePlan or kind is RunStats:
        class_of = _plan_class if kind is SchemePlan else stats_class
        return lambda plain: _of_scheme(class_of(str(plain.get("kind"))), plain)
    if kind is KeyRange:
        # Up to format 5 with the names of the bounds.
        return lambda plain: KeyRange(*plain) if isinstance(plain, list) else KeyRange(**plain)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        (inner,) = (_reader(one) for one in arguments if one is not type(None))
        return None if inner is None else lambda plain: None if plain is None else inner(plain)
    if origin is tuple:
        item = _reader(arguments[0])
        return tuple if item is None else lambda plain: tuple(map(item, plain))
    if origin is dict:
        value = _reader(arguments[1])
        return None if value is None else lambda plain: {key: value(one) for key, one in plain.items()}
    if isinstance(kind, type) and issubclass(kind, ClosedSet):
        return lambda plain: _word(kind, plain)
    return _fact_reader(kind) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


def _word(kind: type[ClosedSet], plain: Any) -> ClosedSet:
    try:
        return kind(plain)
    except ValueError:
        raise UnknownField(f"the unknown word {plain!r} for a {kind.__name__}") from None


def _fact_reader(kind: Any) -> _ReadsPlain:
    hints = typing.get_type_hints(kind)
    fields = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    nested = {name: read for name, read in fields.items() if read is not None}

    def read(plain: dict[str, Any]) -> Any:
        if not plain.keys() <= fields.keys():
            unknown = next(name for name in plain if name not in fields)
            raise UnknownField(f"the unknown field {unknown!r} of {kind.__name__}")
        values = dict(plain)
        for name, read_field in nested.items():
            if name in values:
                values[name] = read_field(values[name])
        return kind(**values)

    return read


def _of_scheme(kind: type, plain: dict[str, Any]) -> Any:
    return from_plain(kind, {field: value for field, value in plain.items() if field != "kind"})


def _plan_class(kind: str) -> type[SchemePlan]:
    # Late: whoever reads and writes other facts, such as the driver's process of a file input, needs no scheme.
    from watersmeet.schemes.register import plan_types

    return _known(plan_types(), kind)


def stats_class(kind: str) -> type[RunStats]:
    """The class of statistics of some kind: a scheme's, or those that are in another file."""
    from watersmeet.schemes.register import stats_types

    return Elsewhere if kind == Elsewhere.kind else _known(stats_types(), kind)


def _known(classes: Mapping[str, type[T]], kind: str) -> type[T]:
    if kind not in classes:
        raise UnknownField(f"a plan or statistics of the unknown kind {kind!r}")
    return classes[kind]


@functools.cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind))
