"""Selected columns: `expr [AS name]` and `input.*`.

A plain column or field has its own name, in the schema's spelling; any other expression needs an alias,
because the name that Spark would invent changes between versions. `text` is a slice of what the user wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Column, Selected, columns_of
from watersmeet.model.types import Schema
from watersmeet.predicate.build import last_name
from watersmeet.predicate.condition import read, shallow_enough
from watersmeet.predicate.lex import Piece, brief, pieces_of
from watersmeet.predicate.lexemes import Part
from watersmeet.predicate.names import Scope, input_named, make_scope
from watersmeet.predicate.write import sql_of


def parse_select(
    items: Sequence[str], schemas: dict[str, Schema], *, ansi: bool = True, case_sensitive: bool = False
) -> tuple[Selected, ...]:
    """Read a list of output columns.

    >>> from watersmeet.model.types import INT
    >>> schemas = {"l": {"a": INT}, "r": {"b": INT}}
    >>> [(item.text, item.name) for item in parse_select(["l.a", "l.a - r.b AS gap"], schemas)]
    [('l.a', 'a'), ('l.a - r.b', 'gap')]
    """
    scope = make_scope(schemas, ansi, case_sensitive)
    with shallow_enough():
        return _selected(items, scope)


def _selected(items: Sequence[str], scope: Scope) -> tuple[Selected, ...]:
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise PredicateError(f"select is a list of texts, got {type(items).__name__}", hint='["l.a", "r.b"]')
    selected = [column for item in items for column in _item(item, scope)]
    if not selected:
        raise PredicateError("select has no columns", hint="name at least one, or leave select out")
    _check_names(selected)
    return tuple(selected)


def _item(text: str, scope: Scope) -> list[Selected]:
    pieces = pieces_of(text)
    if [piece.text for piece in pieces[1:3]] == [".", "*"] and pieces[0].kind in ("word", "quoted"):
        return _star(pieces, text, scope)
    if [piece.text for piece in pieces] == ["*"]:
        raise PredicateError(
            "a star needs its input", text, 0, f"write {', '.join(f'{i}.*' for i in scope.inputs)}"
        )
    return [_expression(pieces, text, scope)]


def _star(pieces: list[Piece], text: str, scope: Scope) -> list[Selected]:
    if len(pieces) > 3:
        raise PredicateError("nothing may follow a star", text, pieces[3].start, "a star has no alias")
    name = input_named(Part(pieces[0].name, pieces[0].start), scope, text)
    columns = [Column(name, column, type_) for column, type_ in scope.schemas[name].items()]
    return [Selected(sql_of(column), column.name, column, (column,)) for column in columns]


def _expression(pieces: list[Piece], text: str, scope: Scope) -> Selected:
    body, alias = _without_alias(pieces, text)
    builder, tree = read(body, text, scope)
    expression = builder.build(tree)
    name = alias or last_name(expression)
    if name is None:
        raise PredicateError(
            "an expression needs a name", text, body[0].start, f"write {brief(text.strip())} AS name"
        )
    written = text[body[0].start : body[-1].end]
    return Selected(written, name, expression, tuple(dict.fromkeys(columns_of(expression))))


def _without_alias(pieces: list[Piece], text: str) -> tuple[list[Piece], str | None]:
    """Cut `AS name` off the end; an AS elsewhere belongs to a CAST or is refused by the gate."""
    if len(pieces) < 2 or pieces[-2].word != "AS":
        return pieces, None
    alias = pieces[-1]
    if alias.kind not in ("word", "quoted") or not alias.name.strip():
        raise PredicateError("not a name for a column", text, alias.start, "write AS name or AS `a name`")
    if len(pieces) == 2:
        raise PredicateError("an expression is missing before AS", text, pieces[0].start)
    return pieces[:-2], alias.name


def _check_names(selected: list[Selected]) -> None:
    """Whatever the session's case sensitivity: most sinks cannot hold two such columns."""
    seen: dict[str, Selected] = {}
    for item in selected:
        other = seen.setdefault(item.name.lower(), item)
        if other is not item:
            problem = f"two columns are named {brief(item.name)}: {brief(other.text)} and {brief(item.text)}"
            raise PredicateError(problem, hint=f"give one of them another name: {brief(item.text)} AS other")
