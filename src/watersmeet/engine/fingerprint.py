"""A fingerprint of a Python condition's code, and a warning if the state was written under other code.

Decided pairs are not decided again. After a change of the code, old results follow the old rule and new ones the new.
That may be intended, but it should not go unnoticed. The fingerprint covers the function's bytecode, constants,
closure and defaults, and recursively the functions and constants of its module that it names. Nothing is pickled. The
location of the source, comments and the names of local variables (that no inner function uses) do not count.

The fingerprint is the same in every process and under every hash seed. It is compared only between starts under the
same minor version of Python, because another version compiles the same source differently. Objects that are not plain
values count by type only, modules and builtin functions by name only: a changed library goes unnoticed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from watersmeet.engine.spec import JoinSpec
from watersmeet.errors import WatersmeetError
from watersmeet.log.clean import BATCH_FOLDER
from watersmeet.log.files import open_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.names import is_join_folder
from watersmeet.log.storage import Files
from watersmeet.model.facts import Manifest
from watersmeet.model.signature import JoinSignature

_LOG = logging.getLogger(__name__)

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def fingerprint(condition: Any) -> str:
    """The Python version and a hash of the condition's code; empty if the code cannot be described.

    >>> fingerprint(lambda l, r: l == r) == fingerprint(lambda a, b: a == b)
    True
    >>> fingerprint(lambda l, r: l == r) == fingerprint(lambda l, r: l != r)
    False
    """
    try:
        described = repr(_described(condition, {}))
    except (RecursionError, AttributeError, TypeError, ValueError):
        # An object may raise anything here. Then its code is unknown, and the join works all the same.
        return ""
    hashed = xxhash.xxh3_64(described.encode(errors="surrogatepass")).hexdigest()
    return f"{sys.version_info[0]}.{sys.version_info[1]}:{hashed}"


# The position at which each function or object was first seen, by its identity.
_Seen = dict[int, int]


def _described(value: Any, seen: _Seen) -> Any:
    """Describe a value as nested tuples of plain values, the same for equal values in every process."""
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, types.CodeType):
        return _code(value, seen)
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    try:
        return _described_anew(value, seen)
    finally:
        # Whether two equal containers are one object differs between processes. For the rest, identity ends cycles.
        if isinstance(value, _CONTAINERS):
            del seen[id(value)]


_CONTAINERS = (tuple, list, set, frozenset, dict, np.ndarray)


def _described_anew(value: Any, seen: _Seen) -> Any:
    if isinstance(value, types.FunctionType):
        return _function(value, seen)
    if isinstance(value, types.MethodType):
        return "method", _described(value.__func__, seen), _described(value.__self__, seen)
    if isinstance(value, functools.partial):
        return "partial", *(_described(part, seen) for part in (value.func, value.args, value.keywords))
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *(_described(item, seen) for item in value)
    if isinstance(value, (set, frozenset)):
        return "set", *sorted(repr(_described(item, {**seen})) for item in value)
    if isinstance(value, dict):
        items = value.items()
        return "dict", *sorted(repr([_described(part, {**seen}) for part in item]) for item in items)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return "array", str(value.dtype), value.shape, xxhash.xxh3_64(value.tobytes()).hexdigest()
    return _object(value, seen)


def _code(code: types.CodeType, seen: _Seen) -> Any:
    return (
        "code",
        code.co_code.hex(),
        code.co_exceptiontable.hex(),
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        code.co_names,
        tuple(_described(constant, seen) for constant in code.co_consts),
    )


def _function(function: types.FunctionType, seen: _Seen) -> Any:
    closed = _closed(function)
    code = function.__code__
    if function.__doc__ is not None and code.co_consts[:1] == (function.__doc__,):
        code = code.replace(co_consts=(None, *code.co_consts[1:]))
    return (
        "function",
        _code(code, seen),
        _described(function.__defaults__, seen),
        _described(function.__kwdefaults__, seen),
        tuple((name, _described(value, seen)) for name, value in sorted(closed.items())),
        tuple((name, _described(value, seen)) for name, value in _named(function)),
    )


def _closed(function: types.FunctionType) -> dict[str, Any]:
    """The closure of a function by name, without names that have no value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _named(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The functions and constants of its module that a function, or one inside it, names."""
    for name in sorted(set(_names(function.__code__))):
        value = function.__globals__.get(name)
        own = isinstance(value, types.FunctionType) and value.__module__ == function.__module__
        if own or (name in function.__globals__ and _is_constant(value)):
            yield name, value


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_constant(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_constant, value))
    return isinstance(value, _PLAIN)


def _object(value: Any, seen: _Seen) -> Any:
    """Describe a module, class or builtin by its name, and a callable object by its code and attributes."""
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return "name", value.__module__, value.__qualname__
    kind = type(value)
    named = getattr(value, "__name__", None)
    described = ("object", kind.__module__, kind.__qualname__, named if isinstance(named, str) else "")
    called = next((vars(one)["__call__"] for one in kind.__mro__ if "__call__" in vars(one)), None)
    if not isinstance(called, types.FunctionType):
        return described
    return *described, _described(called, seen), _described(getattr(value, "__dict__", None), seen)


def changed_code(old: JoinSignature, new: JoinSignature) -> bool:
    """Whether a condition of the same name has other code. If unknown, False."""
    versions = [signature.code.partition(":")[0] for signature in (old, new)]
    return (
        old.predicate == new.predicate
        and bool(versions[0])
        and versions[0] == versions[1]
        and old.code != new.code
    )


def warn_if_code_changed(spec: JoinSpec, query: str | None = None) -> None:
    """Warn on the driver, before the query starts, if the state was last written under other code.

    `query` is the query's id, which Spark gives only to a started query. Without it, the newest batch of all queries
    under this state and name counts, so a query with a new checkpoint is compared with itself from its second start on.
    A state that the driver cannot read is left to the tasks: this is advice, not a check.
    """
    if not spec.signature.code or not spec.streaming:
        return
    try:
        manifest = _newest(
            open_files(spec.settings.storage).under(spec.name), query, spec.settings.limits.most_queries
        )
    except (OSError, ValueError, WatersmeetError) as error:
        _LOG.debug("cannot tell whether the join condition has changed: %s", error)
        return
    if manifest is not None and changed_code(manifest.signature, spec.signature):
        _LOG.warning(
            "the code of the join condition %s has changed since batch %d of query %s in %s: with the same checkpoint, "
            "pairs that were decided before stay as they are and new pairs follow the new code. Start with a new "
            "checkpoint to decide all pairs again",
            spec.signature.predicate.removeprefix("callable "),
            manifest.batch.number,
            manifest.batch.query,
            spec.name,
        )


def _newest(root: Files, query: str | None, most: int) -> Manifest | None:
    """The newest manifest of this query, or of any query if None."""
    queries = [query] if query is not None else _queries(root)
    if len(queries) > most:
        _LOG.debug(
            "%s holds %d queries, too many to read: the code is not compared", root.place, len(queries)
        )
        return None
    found = [_last(root.under(name)) for name in queries]
    return max(filter(None, found), key=lambda manifest: manifest.written_ms, default=None)


def _queries(root: Files) -> list[str]:
    return [name for name in root.folders() if is_join_folder(name) and not name.startswith(BATCH_FOLDER)]


def _last(files: Files) -> Manifest | None:
    names = list_manifests(files)
    return read_manifest(files, names[-1]) if names else None
