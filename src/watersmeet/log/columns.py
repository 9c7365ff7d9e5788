"""Many facts of one kind, column by column: as JSON inside a manifest, or as an Arrow file.

A manifest of ten thousand runs would have as many JSON objects with fifteen fields each, and most of the time to read
it would go into them. A column is one list. A column that has the default value in every row is left out, so a field
that a later version adds costs nothing where it is not used. Columns that this version does not know are refused, as
unknown fields of other facts are.

An Arrow file has no header of its own: whoever names the file records its size and checksum, and its name ends with the
checksum. Its schema metadata has the format. Its buffers are compressed, since counts and labels shrink to a
tenth. The same facts are the same bytes wherever the same Arrow writes them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import operator
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.errors import CorruptFile
from watersmeet.log.codec import UnknownField, checksum, from_plain, stats_class, to_plain
from watersmeet.log.storage import Files
from watersmeet.model.facts import FORMAT, RunStats

T = TypeVar("T")

_FORMAT = b"watersmeet"
_FACTS = b"facts"

# A file has dozens of small buffers: a thread for each would cost more than the work.
_READING = pa.ipc.IpcReadOptions(use_threads=False)

# A column of statistics that are all of one kind is stored as one column for each of their fields.
_INSIDE = "."
STATS_COLUMNS = f"stats{_INSIDE}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    hint: Any
    default: Any

    @property
    def is_tuple(self) -> bool:
        return self.hint in _TUPLES


_TUPLES = (tuple[int, ...], tuple[str, ...])
_PLAIN = (int, str)


def _fields(kind: Any) -> dict[str, _Field]:
    return _fields_of(kind)


@functools.cache
def _fields_of(kind: type) -> dict[str, _Field]:
    hints = typing.get_type_hints(kind)
    return {
        field.name: _Field(field.name, hints[field.name], field.default) for field in dataclasses.fields(kind)
    }


# Values of a field that are stored in place of those of the facts.
Instead = Mapping[str, Sequence[Any]]
_NOTHING: Instead = {}


def _taken(kind: type, facts: Sequence[Any], instead: Instead) -> Iterator[tuple[_Field, Sequence[Any]]]:
    """The fields that are not at their default in all facts, with the values of each; the first one always."""
    for place, field in enumerate(_fields(kind).values()):
        values = instead.get(field.name)
        if values is None:
            values = list(map(operator.attrgetter(field.name), facts))
        if (
            not place
            or field.default is dataclasses.MISSING
            or any(value is not field.default and value != field.default for value in values)
        ):
            yield field, values


def count_values(fact: Any) -> int:
    """The number of values of a fact, those inside its tuples counted one by one."""
    values = [getattr(fact, name) for name in _fields(type(fact))]
    return sum(len(value) if isinstance(value, tuple) else 1 for value in values)


def to_columns(kind: type, facts: Sequence[Any], instead: Instead = _NOTHING) -> dict[str, Any]:
    """Facts as JSON: the values of each field, as a list, or once if they are all the same number or text."""
    columns: dict[str, Any] = {_COUNT: len(facts)}
    for field, values in _taken(kind, facts, instead):
        if field.hint not in _PLAIN:
            columns[field.name] = to_plain(values)
        elif facts and all(value == values[0] for value in values):
            columns[field.name] = values[0]
        else:
            columns[field.name] = list(values)
    return columns


def from_columns(kind: type[T], columns: Mapping[str, Any]) -> list[T]:
    known = _fields(kind)
    count = columns[_COUNT]
    found: dict[str, Iterable[Any]] = {}
    for name, values in columns.items():
        if name == _COUNT:
            continue
        if name not in known:
            raise UnknownField(f"the unknown field {name!r} of {kind.__name__}")
        field = known[name]
        if field.is_tuple:
            found[name] = map(tuple, values)
        elif field.hint in _PLAIN:
            found[name] = values if isinstance(values, list) else itertools.repeat(values, count)
        else:
            found[name] = [from_plain(field.hint, value) for value in values]
    return _made(kind, found) if count else []


# The number of facts, among the columns.
_COUNT = "count"


def _made(kind: type[T], columns: Mapping[str, Iterable[Any]]) -> list[T]:
    """Facts from the values of their fields, in the order of the fields: by position a fact is made fastest."""
    given = [
        columns[field.name] if field.name in columns else itertools.repeat(field.default)
        for field in _fields(kind).values()
    ]
    return list(itertools.starmap(kind, zip(*given, strict=False)))


# --- Arrow files ------------------------------------------------------------------------------------------------


def to_file(
    kind: type,
    facts: Sequence[Any],
    *,
    compression: str = "zstd",
    instead: Instead = _NOTHING,
    **about: Any,
) -> bytes:
    """Facts as an Arrow file. `about` are further JSON values for its metadata."""
    return file_of(_arrays(kind, facts, instead), compression, about)


def file_of(columns: Mapping[str, pa.Array], compression: str = "zstd", about: Any = None) -> bytes:
    """Columns as an Arrow file."""
    metadata = {_FORMAT: str(FORMAT).encode(), _FACTS: json.dumps(about or {}).encode()}
    schema = pa.schema([pa.field(name, array.type) for name, array in columns.items()], metadata)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def from_file(
    kind: type[T], content: bytes, where: str, only: Sequence[str] | None = None
) -> tuple[list[T], dict[str, Any]]:
    """The facts of a file whose checksum was verified, and what its metadata has besides.

    `only` names the fields that are read; without it, all of them must be known.
    """
    ((facts, about),) = from_files(kind, {where: content}, only)
    return facts, about


def from_files(
    kind: type[T],
    contents: Mapping[str, bytes],
    only: Sequence[str] | None = None,
    keep: Callable[[list[T], dict[str, pa.Array]], None] | None = None,
) -> list[tuple[list[T], dict[str, Any]]]:
    """The same for several files, by words for each. Files with the same columns are read together, which is faster.

    `keep` gets the facts and the columns of those that were read together.
    """
    batches, abouts = [], []
    for where, content in contents.items():
        with pa.ipc.open_file(content, options=_READING) as file:
            batch = file.get_batch(0)
        metadata = batch.schema.metadata
        if int(metadata[_FORMAT]) > FORMAT:
            raise CorruptFile(
                f"{where} has format {int(metadata[_FORMAT])}, but this version of watersmeet reads up to {FORMAT}: "
                "install a newer one"
            )
        batches.append(batch)
        abouts.append(json.loads(metadata[_FACTS]))
    found: list[list[T]] = [[] for _ in batches]
    for numbers in _alike(batches):
        columns = _columns([batches[number] for number in numbers], only)
        try:
            made = _facts(kind, columns)
        except UnknownField as error:
            where = list(contents)[numbers[0]]
            raise CorruptFile(
                f"{where} has {error}: a newer version of watersmeet wrote it. Install that"
            ) from error
        if keep is not None:
            keep(made, columns)
        facts = iter(made)
        for number in numbers:
            found[number] = list(itertools.islice(facts, batches[number].num_rows))
    return list(zip(found, abouts, strict=True))


def _alike(batches: Sequence[pa.RecordBatch]) -> list[list[int]]:
    """The numbers of batches that have the same schema. There are few schemas."""
    groups: list[list[int]] = []
    for number, batch in enumerate(batches):
        for group in groups:
            if batches[group[0]].schema.equals(batch.schema):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _columns(batches: Sequence[pa.RecordBatch], only: Sequence[str] | None) -> dict[str, pa.Array]:
    """The columns of batches of one schema."""
    names = batches[0].schema.names
    whole = (
        batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    )
    return {
        name: whole.column(place)
        for place, name in enumerate(names)
        if only is None or name.partition(_INSIDE)[0] in only
    }


def store(files: Files, stem: str, content: bytes) -> str:
    """Store a file under a name made from its content, and return its path.

    If it exists, another task has written the same bytes; or a machine lost power while it wrote them, and the file is
    replaced.
    """
    path = f"{stem}-{checksum(content)}.arrow"
    if not files.publish(path, content):
        try:
            if files.read(path) == content:
                return path
            files.delete(path)
        except FileNotFoundError:
            pass
        files.publish(path, content)
    return path


def load(files: Files, path: str, where: str, advice: str) -> bytes:
    """Read a file that `store` has written, verified by its name."""
    try:
        content = files.read(path)
    except FileNotFoundError:
        raise CorruptFile(f"{where} is missing. {advice}") from None
    if checksum(content) != path.removesuffix(".arrow").rpartition("-")[2]:
        raise CorruptFile(f"{where} is damaged: its checksum does not match. {advice}")
    return content


def load_many(files: Files, paths: Iterable[str], what: str, advice: str) -> dict[str, bytes]:
    """The verified content of some files that `store` has written."""
    place = files.place

    def one(path: str) -> bytes:
        return load(files, path, f"{what} {path} in {place}", advice)

    wanted = list(dict.fromkeys(paths))
    return dict(zip(wanted, files.each(one, wanted), strict=True))


def _arrays(kind: type, facts: Sequence[Any], instead: Instead = _NOTHING) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for field, values in _taken(kind, facts, instead):
        kinds = {type(value) for value in values}
        if field.hint == RunStats | None and len(kinds) == 1:
            (inner,) = kinds
            for name, array in _arrays(inner, values).items():
                found[f"{field.name}{_INSIDE}{inner.kind}{_INSIDE}{name}"] = array
        else:
            found[field.name] = _array(field, values)
    return found


def _array(field: _Field, values: Sequence[Any]) -> pa.Array:
    try:
        if field.hint is str:
            return pa.array(values, pa.string())
        if field.hint is int:
            return _integers(values)
        if field.is_tuple:
            flat = list(itertools.chain.from_iterable(values))
            ends = np.zeros(len(values) + 1, np.int32)
            np.cumsum([len(value) for value in values], out=ends[1:])
            items = pa.array(flat, pa.string()) if field.hint == tuple[str, ...] else _integers(flat)
            return pa.ListArray.from_arrays(pa.array(ends), items)
    except (OverflowError, pa.ArrowInvalid):
        pass
    # Whatever has no column of its own: text, as a struct of one field, so that it is not read as a string.
    text = [json.dumps(to_plain(value), separators=(",", ":")) for value in values]
    return pa.StructArray.from_arrays([pa.array(text, pa.string())], ["json"])


def _integers(values: Sequence[int]) -> pa.Array:
    """Whole numbers, in 64 bits without a sign unless one is negative: then most files have the same columns."""
    try:
        return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array(values, pa.int64())


def _facts(kind: type[T], arrays: Mapping[str, pa.Array]) -> list[T]:
    """The facts of some columns. The first field is never left out, so there is one that says how many they are."""
    known = _fields(kind)
    found: dict[str, Iterable[Any]] = {}
    inside: dict[tuple[str, str], dict[str, pa.Array]] = {}
    for name, array in arrays.items():
        outer, _, rest = name.partition(_INSIDE)
        if outer not in known:
            raise UnknownField(f"the unknown field {outer!r} of {kind.__name__}")
        if rest:
            described, _, field = rest.partition(_INSIDE)
            inside.setdefault((outer, described), {})[field] = array
        else:
            found[name] = _values(known[name], array)
    for (outer, described), columns in inside.items():
        found[outer] = _facts(stats_class(described), columns)
    return _made(kind, found)


def _values(field: _Field, array: pa.Array) -> Iterable[Any]:
    if pa.types.is_struct(array.type):
        plain = json.loads(f"[{','.join(array.field(0).to_pylist())}]")
        return [from_plain(field.hint, value) for value in plain] if not field.is_tuple else map(tuple, plain)
    if not pa.types.is_list(array.type):
        return typing.cast("list[Any]", array.to_pylist())
    items = array.flatten()
    flat = items.to_pylist() if pa.types.is_string(items.type) else items.to_numpy().tolist()
    ends = array.offsets.to_numpy().tolist()
    return [tuple(flat[low:high]) for low, high in itertools.pairwise(ends)]
