"""A join condition's text to a Predicate, and the texts of output columns to Selected: the way through this package.

    text -> lex -> grammar (sqlglot) -> build -> split -> Predicate
                                        build          -> Selected

Nothing is evaluated; no file, clock or connection is read. Every refusal is a PredicateError.

An output column is `expr [AS name]` or `input.*`. A plain column or field keeps its own name, in the schema's
spelling. Any other expression needs an alias, because the name that Spark would invent changes between versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlglot import exp

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal, Predicate, Selected, columns_of
from watersmeet.model.types import Schema
from watersmeet.predicate import grammar
from watersmeet.predicate.build import Builder, Scope, make_scope
from watersmeet.predicate.lex import NamePart, Piece, lexemes_of, pieces_of
from watersmeet.predicate.literals import brief
from watersmeet.predicate.split import split
from watersmeet.predicate.write import sql_of


def parse_predicate(
    text: str,
    schemas: dict[str, Schema],
    *,
    ansi: bool = True,
    case_sensitive: bool = False,
    fixed_zone: bool = False,
) -> Predicate:
    """Read a join condition over two or more inputs.

    `fixed_zone` says that the session's time zone never changes its offset, as UTC: bands over timestamps
    are then exact.

    >>> from watersmeet.model.types import INT
    >>> schemas = {name: {"k": INT, "a": INT} for name in ("l", "m", "r")}
    >>> predicate = parse_predicate("r.k = L.K AND l.a < r.a AND m.k = r.k", schemas)
    >>> [[(side.input, side.sql) for side in key.sides] for key in predicate.keys]
    [[('l', '`l`.`k`'), ('r', '`r`.`k`')], [('m', '`m`.`k`'), ('r', '`r`.`k`')]]
    """
    scope = make_scope(schemas, ansi, case_sensitive)
    with _shallow_enough():
        builder, tree = _read(pieces_of(text), text, scope)
        return split(builder.conjuncts(tree), scope, text, fixed_zone=fixed_zone)


def _read(pieces: list[Piece], text: str, scope: Scope) -> tuple[Builder, exp.Expr]:
    """The syntax tree of some pieces of a text, and the builder that can read it."""
    lexemes = lexemes_of(pieces, text)
    return Builder(scope, lexemes, text), grammar.parse(lexemes, text)


@contextmanager
def _shallow_enough() -> Iterator[None]:
    """The grammar bounds the depth; a caller that is itself deep in the stack may still run out of it."""
    try:
        yield
    except RecursionError:
        hint = "compute a part of it as a column before the join"
        raise PredicateError("nested too deeply", hint=hint) from None


def check_reads_every_input(predicate: Predicate) -> None:
    """Refuse a condition that leaves an input out, unless it is TRUE or FALSE.

    A condition on one input is a filter; taken for a join it would combine each row that passes it with all rows of the
    others.
    """
    read = {column.input for column in predicate.columns}
    if len(read) == len(predicate.inputs):
        return
    if read:
        names = " and ".join(name for name in predicate.inputs if name in read)
        hint = f"filter {names} before the join; for every combination of rows join on TRUE"
        raise PredicateError(f"this condition reads only {names}", predicate.text, hint=hint)
    if predicate.residual is not None and not isinstance(predicate.residual, Literal):
        hint = "compare their columns, or join on TRUE for every combination of rows"
        raise PredicateError("this condition reads no input", predicate.text, hint=hint)


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
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise PredicateError(f"select is a list of texts, got {type(items).__name__}", hint='["l.a", "r.b"]')
    with _shallow_enough():
        selected = [column for item in items for column in _item(item, scope)]
    if not selected:
        raise PredicateError("select has no columns", hint="name at least one, or leave select out")
    _check_names(selected)
    return tuple(selected)


def check_condition(pieces: list[Piece], text: str, scope: Scope) -> None:
    """Refuse a condition that is a part of a longer text, at its place there."""
    with _shallow_enough():
        builder, tree = _read(pieces, text, scope)
        builder.conjuncts(tree)


def check_item(pieces: list[Piece], text: str, scope: Scope) -> None:
    """Refuse an output column that is a part of a longer text, at its place there."""
    with _shallow_enough():
        _of_pieces(pieces, text, scope)


def _item(text: str, scope: Scope) -> list[Selected]:
    return _of_pieces(pieces_of(text), text, scope)


def _of_pieces(pieces: list[Piece], text: str, scope: Scope) -> list[Selected]:
    if [piece.text for piece in pieces[1:3]] == [".", "*"] and pieces[0].is_name:
        return _star(pieces, text, scope)
    if [piece.text for piece in pieces] == ["*"]:
        hint = f"write {', '.join(f'{name}.*' for name in scope.inputs)}"
        raise PredicateError("a star needs its input", text, 0, hint)
    return [_expression(pieces, text, scope)]


def _star(pieces: list[Piece], text: str, scope: Scope) -> list[Selected]:
    if len(pieces) > 3:
        raise PredicateError("nothing may follow a star", text, pieces[3].start, "a star has no alias")
    name = scope.input_named(NamePart(pieces[0].name, pieces[0].start), text)
    columns = [Column(name, column, type_) for column, type_ in scope.schemas[name].items()]
    return [Selected(sql_of(column), column.name, column, (column,)) for column in columns]


def _expression(pieces: list[Piece], text: str, scope: Scope) -> Selected:
    body, alias = _without_alias(pieces, text)
    builder, tree = _read(body, text, scope)
    expression = builder.build(tree)
    name = alias or _own_name(expression)
    written = text[body[0].start : body[-1].end]
    if name is None:
        raise PredicateError(
            "an expression needs a name", text, body[0].start, f"write {brief(written)} AS name"
        )
    return Selected(written, name, expression, tuple(dict.fromkeys(columns_of(expression))))


def _own_name(expression: Expression) -> str | None:
    """The name that a plain column or field has by itself."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call) and expression.op == "field":
        name = expression.args[1]
        return name.value if isinstance(name, Literal) and isinstance(name.value, str) else None
    return None


def _without_alias(pieces: list[Piece], text: str) -> tuple[list[Piece], str | None]:
    """Cut `AS name` off the end; an AS elsewhere belongs to a CAST or is refused by the grammar."""
    if len(pieces) < 2 or pieces[-2].word != "AS":
        return pieces, None
    alias = pieces[-1]
    if not alias.is_name or not alias.name.strip():
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
