"""Names to columns: `input.column` and `input.column.field`, against the inputs' schemas.

Spark evaluates a predicate over one struct column for each input, named like the input. A bare `k` would
therefore be another thing to Spark than to the reader, and `l` alone is the whole row: both are refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal
from watersmeet.model.types import STRING, Schema, SqlType
from watersmeet.predicate.lex import brief
from watersmeet.predicate.lexemes import Name, Part

# More names than this in a message hide the message.
_SHOWN_NAMES = 12


@dataclass(frozen=True, slots=True)
class Scope:
    """What a text may name, and how Spark will read it."""

    schemas: Mapping[str, Schema]
    ansi: bool
    case_sensitive: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    def matching(self, names: Iterable[str], name: str) -> list[str]:
        if self.case_sensitive:
            return [known for known in names if known == name]
        return [known for known in names if known.lower() == name.lower()]


def make_scope(schemas: object, ansi: bool, case_sensitive: bool) -> Scope:
    if not isinstance(schemas, Mapping) or len(schemas) != 2:
        found = ", ".join(map(str, schemas)) if isinstance(schemas, Mapping) else type(schemas).__name__
        raise PredicateError(f"a join has two inputs, got {found or 'none'}", hint="name each input once")
    scope = Scope(schemas, ansi, case_sensitive)
    first, second = scope.inputs
    if scope.matching([first], second):
        raise PredicateError(f"the inputs {first} and {second} differ in letter case only", hint="rename one")
    return scope


def resolve(name: Name, scope: Scope, text: str) -> Expression:
    """The column that a dotted name means, with the fields behind it."""
    if len(name.parts) == 1:
        raise _unqualified(name.parts[0], scope, text)
    first, second, *rest = name.parts
    input_ = input_named(first, scope, text)
    schema = scope.schemas[input_]
    column = _one_of(second, list(schema), scope, text, f"a column of {input_}", f"{input_} has")
    expression: Expression = Column(input_, column, schema[column])
    for part in rest:
        expression = field_of(expression, part, scope, text)
    return expression


def input_named(part: Part, scope: Scope, text: str) -> str:
    return _one_of(part, list(scope.schemas), scope, text, "an input", "the inputs are")


def field_of(struct: Expression, part: Part, scope: Scope, text: str) -> Expression:
    """`struct.field`; a struct of unknown type keeps the field's name as written."""
    type_ = struct.type
    if type_.name == "unknown":
        return Call("field", (struct, Literal(part.text, STRING)), type_)
    if type_.name != "struct":
        raise PredicateError(
            f"{brief(part.text)}: {brief(str(type_))} has no fields", text, part.start, _field_hint(type_)
        )
    fields = {field.name: field.type for field in type_.fields}
    found = _one_of(part, list(fields), scope, text, "a field of the struct", "it has")
    return Call("field", (struct, Literal(found, STRING)), fields[found])


def _field_hint(type_: SqlType) -> str:
    if type_.name == "array":
        return "take one element first: l.items[0].name"
    return "write l.tags['name']" if type_.name == "map" else ""


def _one_of(part: Part, names: list[str], scope: Scope, text: str, what: str, listed: str) -> str:
    found = scope.matching(names, part.text)
    if len(found) == 1:
        return found[0]
    if found:
        problem = f"{brief(part.text)} is ambiguous: {brief(' and '.join(found))} differ in letter case only"
        raise PredicateError(problem, text, part.start, "rename one of them before the join")
    close = difflib.get_close_matches(brief(part.text.lower()), [name.lower() for name in names], n=1)
    guess = next((f"did you mean {name}? " for name in names if [name.lower()] == close), "")
    raise PredicateError(
        f"{brief(part.text)} is not {what}", text, part.start, f"{guess}{listed} {_list(names)}"
    )


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return (", ".join(map(brief, names[:_SHOWN_NAMES])) or "no columns") + more


def _unqualified(part: Part, scope: Scope, text: str) -> PredicateError:
    inputs = scope.matching(scope.schemas, part.text)
    if inputs:
        problem, hint = (
            f"{inputs[0]} is a whole row",
            f"name one of its columns: {_example(scope, inputs[0])}",
        )
        return PredicateError(problem, text, part.start, hint)
    owners = [
        f"{name}.{brief(part.text)}"
        for name in scope.schemas
        if scope.matching(scope.schemas[name], part.text)
    ]
    write = " or ".join(owners) or " or ".join(_example(scope, name) for name in scope.schemas)
    return PredicateError(f"{brief(part.text)} has no input before it", text, part.start, f"write {write}")


def _example(scope: Scope, input_: str) -> str:
    return f"{input_}.{next(iter(scope.schemas[input_]), 'column')}"
