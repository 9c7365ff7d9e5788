"""A join condition's text to a Predicate: the way through the package, in order.

    text -> lex -> lexemes -> gate -> grammar (sqlglot) -> build -> split -> band -> Predicate

Nothing is evaluated, no file is read, no clock, no connection. Every refusal is a PredicateError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from watersmeet.errors import PredicateError
from watersmeet.model.expression import (
    Expression,
    Guard,
    Literal,
    Predicate,
    columns_of,
    conjunction,
    inputs_of,
)
from watersmeet.model.types import Schema
from watersmeet.predicate import gate, grammar
from watersmeet.predicate.band import find_band
from watersmeet.predicate.build import Builder
from watersmeet.predicate.lex import Piece, pieces_of
from watersmeet.predicate.lexemes import lexemes_of
from watersmeet.predicate.names import Scope, make_scope
from watersmeet.predicate.split import canonical, split
from watersmeet.predicate.write import sql_of


def parse_predicate(
    text: str,
    schemas: dict[str, Schema],
    *,
    ansi: bool = True,
    case_sensitive: bool = False,
    fixed_zone: bool = False,
) -> Predicate:
    """Read a join condition over two inputs.

    `fixed_zone` says that the session's time zone never changes its offset, as UTC: bands over timestamps
    are then exact.

    >>> from watersmeet.model.types import INT
    >>> predicate = parse_predicate("r.k = L.K AND l.a < r.a", {"l": {"k": INT, "a": INT}, "r": {"k": INT, "a": INT}})
    >>> [(key.left.sql, key.right.sql) for key in predicate.keys]
    [('`l`.`k`', '`r`.`k`')]
    """
    with shallow_enough():
        return _predicate(text, make_scope(schemas, ansi, case_sensitive), fixed_zone)


@contextmanager
def shallow_enough() -> Iterator[None]:
    """The gate bounds the depth; a caller that is itself deep in the stack may still run out of it."""
    try:
        yield
    except RecursionError:
        raise PredicateError(
            "nested too deeply", hint="compute a part of it as a column before the join"
        ) from None


def _predicate(text: str, scope: Scope, fixed_zone: bool) -> Predicate:
    builder, tree = read(pieces_of(text), text, scope)
    conjuncts = builder.conjuncts(tree)
    keys, rest = split(conjuncts, scope, text)
    columns = dict.fromkeys(column for part in conjuncts for column in columns_of(part.expression))
    band = find_band(rest, scope, fixed_zone=fixed_zone) if not keys else None
    first, second = scope.inputs
    return Predicate(
        text,
        canonical(conjuncts, scope),
        (first, second),
        keys,
        conjunction(rest),
        tuple(columns),
        band,
        tuple(_guards(rest, scope)),
    )


def _guards(rest: list[Expression], scope: Scope) -> Iterator[Guard]:
    """The conjuncts that read one input, together for each, in the order in which the text has them."""
    for name in scope.inputs:
        guard = conjunction([part for part in rest if inputs_of(part) == {name}])
        if guard is not None:
            yield Guard(name, guard, sql_of(guard))


_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|GMT|Z)|(UTC|GMT)?[+-]\d{1,2}(:\d{2}){0,2}")


def is_fixed_zone(name: str) -> bool:
    """Whether a time zone of Spark never changes its offset, so that a day there is 24 hours. Doubt is no.

    >>> [is_fixed_zone(name) for name in ("UTC", "+05:30", "Europe/Berlin", "")]
    [True, True, False, False]
    """
    return _FIXED_ZONE.fullmatch(name) is not None


def check_reads_both(predicate: Predicate) -> None:
    """Refuse a condition that joins nothing: it reads one input, or none and is not TRUE or FALSE.

    A condition on one input is a filter; taken for a join it would make every pair of the rows that pass it.
    """
    read = {column.input for column in predicate.columns}
    if len(read) == len(predicate.inputs):
        return
    if read:
        name = next(iter(read))
        hint = f"filter {name} before the join; for every pair of rows join on TRUE"
        raise PredicateError(f"this condition reads only {name}", predicate.text, hint=hint)
    if predicate.residual is not None and not isinstance(predicate.residual, Literal):
        hint = "compare their columns, or join on TRUE for every pair of rows"
        raise PredicateError("this condition reads no input", predicate.text, hint=hint)


def read(pieces: list[Piece], text: str, scope: Scope) -> tuple[Builder, exp.Expr]:
    """The syntax tree of some pieces of a text, and the builder that can read it."""
    lexemes = lexemes_of(pieces, text)
    gate.check(lexemes, text)
    return Builder(scope, lexemes, text), grammar.parse(lexemes, text)
