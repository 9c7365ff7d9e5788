"""A condition on the rows of one input: `where="qty > 0 AND day >= DATE '2024-01-01'"`.

The same grammar, types and refusals as a join's condition, but columns stand without an input's name. Nothing but us
evaluates it, so every part must be one that `kernel/evaluate.py` computes as Spark does (`supports`, an argument, since
this package is below the kernel). A TIMESTAMP literal without a zone is a moment in the session's zone, and is resolved
here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Column, Expression, Literal, conjunction
from watersmeet.model.types import Schema
from watersmeet.predicate import grammar
from watersmeet.predicate.build import Builder, Conjunct, Scope
from watersmeet.predicate.lex import NamePart, lexemes_of, pieces_of
from watersmeet.predicate.literals import brief


@dataclass(frozen=True, slots=True)
class _RowScope(Scope):
    """The columns of one input, named without it."""

    def resolve(self, parts: tuple[NamePart, ...], text: str) -> Expression:
        first, *rest = parts
        ((row, columns),) = self.schemas.items()
        name = self._one_of(first, columns, text, "a column of the files", "they have")
        found: Expression = Column(row, name, columns[name])
        for part in rest:
            found = self.field_of(found, part, text)
        return found


def parse_row_filter(
    text: str,
    row: str,
    schema: Schema,
    supports: Callable[[Expression], bool],
    *,
    ansi: bool = True,
    case_sensitive: bool = False,
    zone: datetime.tzinfo = datetime.timezone.utc,
) -> Expression:
    """Read a condition over the columns of one input, which the expression calls `row`.

    >>> from watersmeet.model.types import INT
    >>> parse_row_filter("Qty > 0", "row", {"qty": INT}, lambda part: True).op
    '>'
    """
    scope = _RowScope({row: schema}, ansi, case_sensitive)
    pieces = pieces_of(text)
    lexemes = lexemes_of(pieces, text)
    try:
        conjuncts = Builder(scope, lexemes, text).conjuncts(grammar.parse(lexemes, text))
    except RecursionError:
        raise PredicateError("nested too deeply", hint="leave a part of it to the join's condition") from None
    found = conjunction([_supported(conjunct, text, supports, zone) for conjunct in conjuncts])
    assert found is not None, "a condition has a part"
    return found


def _supported(
    conjunct: Conjunct, text: str, supports: Callable[[Expression], bool], zone: datetime.tzinfo
) -> Expression:
    resolved = _in_zone(conjunct.expression, zone)
    if supports(resolved):
        return resolved
    hint = (
        "compare columns with each other or with literals of their own type, such as qty > 0 or "
        "day >= DATE '2024-01-31', joined by AND, OR, NOT and IN; or write the condition into on="
    )
    problem = f"{brief(text[conjunct.position :].strip())} cannot be evaluated while files are read"
    raise PredicateError(problem, text, conjunct.position, hint)


def _in_zone(expression: Expression, zone: datetime.tzinfo) -> Expression:
    """Give TIMESTAMP literals without a zone that of the session. In a gap Java and Python both go on with the offset
    before it; of two equal local times both take the first."""
    if isinstance(expression, Call):
        args = tuple(_in_zone(arg, zone) for arg in expression.args)
        return Call(expression.op, args, expression.type)
    value = expression.value if isinstance(expression, Literal) else None
    if isinstance(value, datetime.datetime) and value.tzinfo is None and expression.type.name == "timestamp":
        moment = value.replace(tzinfo=zone).astimezone(datetime.timezone.utc)
        return Literal(moment, expression.type)
    return expression
