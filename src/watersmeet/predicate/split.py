"""A condition's conjuncts to a Predicate: equality keys, bands, what each input must satisfy alone, and the residual.

A key is `a = b` or `a <=> b` at the top level where each side reads exactly one input, and not the same.
`a <=> b` becomes two keys, so that NULL meets NULL although keys that are NULL never match:

    coalesce(a, zero) = coalesce(b, zero)    and    (a IS NULL) = (b IS NULL)

Every key and band names the input of each of its sides, so the keys and bands of many inputs are the edges of a graph.
Two inputs that no key joins may have a band, or keys that every branch of an OR needs.

Invariant: the predicate holds for rows of the inputs exactly if all keys are equal and the residual is true.
An equality that cannot be a key but that Spark understands (an unknown type, a collation under which different bytes
are equal, `<=>` on nested types) stays in the residual.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.model.expression import (
    Call,
    Expression,
    Guard,
    KeyPair,
    Literal,
    Predicate,
    Value,
    columns_of,
    conjunction,
    inputs_of,
)
from watersmeet.model.types import BOOLEAN, VOID, SqlType
from watersmeet.predicate.band import find_bands
from watersmeet.predicate.build import Conjunct, Scope, described
from watersmeet.predicate.literals import fields_of
from watersmeet.predicate.type_rules import UNKNOWN, binary_collated, common_type
from watersmeet.predicate.write import canonical, key_side, sql_of

# Any value does as a stand-in for NULL: the second key tells it from the real value.
_ZEROS: Final[dict[str, Value]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), 0),
    **dict.fromkeys(("float", "double"), 0.0),
    "decimal": Decimal(0),
    "boolean": False,
    "string": "",
    "binary": b"",
    "date": datetime.date(1970, 1, 1),
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc),
    "timestamp_ntz": datetime.datetime(1970, 1, 1),
}


def split(conjuncts: list[Conjunct], scope: Scope, text: str, *, fixed_zone: bool) -> Predicate:
    """The predicate of a text whose conjuncts must all hold."""
    parts = [conjunct.expression for conjunct in conjuncts]
    found = [_keys(conjunct, scope, text) for conjunct in conjuncts]
    rest = [
        part for part, keys in zip(parts, found, strict=True) if not keys and part != Literal(True, BOOLEAN)
    ]
    joined = {key.inputs for keys in found for key in keys}
    shared = [key for part in parts for key in _keys_of_every_branch(part, scope)]
    keys = _in_fixed_order([*found, *([key] for key in shared if key.inputs not in joined)])
    joined = {key.inputs for key in keys}
    return Predicate(
        text=text,
        canonical=canonical(parts, scope.inputs),
        inputs=scope.inputs,
        keys=keys,
        residual=conjunction(rest),
        columns=tuple(dict.fromkeys(column for part in parts for column in columns_of(part))),
        bands=tuple(band for band in find_bands(rest, scope, fixed_zone) if band.inputs not in joined),
        guards=tuple(_guards(rest, scope)),
        conjuncts=tuple(parts),
    )


def _in_fixed_order(found: list[list[KeyPair]]) -> tuple[KeyPair, ...]:
    """The keys by their SQL: rows are stored by a hash in this order, and the text may be written in another."""
    ordered = sorted(filter(None, found), key=lambda keys: [side.sql for side in keys[0].sides])
    return tuple(dict.fromkeys(key for keys in ordered for key in keys))


def _guards(rest: list[Expression], scope: Scope) -> Iterator[Guard]:
    """The conjuncts that read one input, together for each input, in the order of the text."""
    for name in scope.inputs:
        guard = conjunction([part for part in rest if inputs_of(part) == {name}])
        if guard is not None:
            yield Guard(name, guard, sql_of(guard))


def _keys(conjunct: Conjunct, scope: Scope, text: str) -> list[KeyPair]:
    sides = _sides(conjunct.expression, scope)
    if sides is None:
        return []
    type_ = common_type(sides[0].type, sides[1].type, scope.ansi)
    if type_ is None:
        one, other = map(described, sides)
        problem = f"{one} and {other} have no common type that keeps every value apart"
        hint = "cast one side explicitly: CAST(x AS ...)"
        raise PredicateError(problem, text, conjunct.position, hint)
    if _op(conjunct.expression) == "<=>":
        return _null_safe(sides, type_)
    return [_pair(sides, type_)] if type_ != VOID else []


def _keys_of_every_branch(condition: Expression, scope: Scope) -> list[KeyPair]:
    """The keys that all branches of an OR share: `k AND a OR k AND b` needs k. The OR itself stays residual."""
    if _op(condition) != "or":
        return []
    branches = []
    for branch in _parts(condition, "or"):
        sides = [_sides(part, scope) for part in _parts(branch, "and") if _op(part) == "="]
        typed = [(pair, common_type(pair[0].type, pair[1].type, scope.ansi)) for pair in sides if pair]
        branches.append([_pair(pair, type_) for pair, type_ in typed if type_ not in (None, VOID)])
    return [key for key in branches[0] if all(key in others for others in branches[1:])]


def _sides(condition: Expression, scope: Scope) -> tuple[Expression, Expression] | None:
    """Both sides of an equality across two inputs, in the order of the inputs, if keys can be made of them.

    Not of text under a collation: Spark has no public function that gives equal text equal bytes.
    """
    if not isinstance(condition, Call) or condition.op not in ("=", "<=>"):
        return None
    if any(side.type == UNKNOWN or not binary_collated(side.type) for side in condition.args):
        return None
    one, other = condition.args
    return scope.in_order(one, other)


def _null_safe(sides: tuple[Expression, Expression], type_: SqlType) -> list[KeyPair]:
    zero = _zero(type_)
    if zero is None:
        return []
    one, other = (side if side.type == type_ else Call("cast", (side,), type_) for side in sides)
    filled = Call("coalesce", (one, zero), type_), Call("coalesce", (other, zero), type_)
    nulls = Call("is_null", sides[:1], BOOLEAN), Call("is_null", sides[1:], BOOLEAN)
    return [_pair(filled, type_), _pair(nulls, BOOLEAN)]


def _zero(type_: SqlType) -> Literal | None:
    if fields_of(type_):
        return Literal(0, type_)
    return Literal(_ZEROS[type_.name], type_) if type_.name in _ZEROS else None


def _pair(sides: tuple[Expression, Expression], type_: SqlType) -> KeyPair:
    return KeyPair((key_side(sides[0]), key_side(sides[1])), type_)


def _op(expression: Expression) -> str:
    return expression.op if isinstance(expression, Call) else ""


def _parts(expression: Expression, op: str) -> tuple[Expression, ...]:
    return expression.args if isinstance(expression, Call) and expression.op == op else (expression,)
