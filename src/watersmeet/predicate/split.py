"""Conjuncts to equality keys and the residual.

A key is `a = b` or `a <=> b` at the top level where each side reads exactly one input, and not the same.
`a <=> b` becomes two keys, so that NULL meets NULL although keys that are NULL never match:

    coalesce(a, zero) = coalesce(b, zero)    and    (a IS NULL) = (b IS NULL)

Invariant: the predicate holds for a pair of rows exactly if all keys are equal and the residual is true.
An equality that cannot be a key but that Spark understands (an unknown type, a collation under which
different bytes are equal, `<=>` on nested types) stays in the residual.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Final

from watersmeet.errors import PredicateError
from watersmeet.model.expression import Call, Expression, KeyPair, KeySide, Literal, Value, inputs_of
from watersmeet.model.types import BOOLEAN, SqlType
from watersmeet.predicate.build import Conjunct
from watersmeet.predicate.check import described
from watersmeet.predicate.coerce import binary_collated, common_type
from watersmeet.predicate.intervals import fields_of
from watersmeet.predicate.names import Scope
from watersmeet.predicate.write import sql_of

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
_SYMMETRIC: Final = ("=", "<=>", "<>")


def split(conjuncts: list[Conjunct], scope: Scope, text: str) -> tuple[tuple[KeyPair, ...], list[Expression]]:
    """The keys, and the conjuncts that are left to check; TRUE leaves nothing."""
    keys: list[list[KeyPair]] = []
    rest: list[Expression] = []
    for conjunct in conjuncts:
        found = _keys(conjunct, scope, text)
        keys.append(found)
        if not found and conjunct.expression != Literal(True, BOOLEAN):
            rest.append(conjunct.expression)
    if not any(keys):
        keys = [[key] for conjunct in conjuncts for key in _keys_of_every_branch(conjunct, scope)]
    # In an order of their own: rows are stored by a hash in it, and the text may be written in another one.
    ordered = sorted(filter(None, keys), key=lambda found: (found[0].left.sql, found[0].right.sql))
    return tuple(dict.fromkeys(key for found in ordered for key in found)), rest


def _keys_of_every_branch(conjunct: Conjunct, scope: Scope) -> list[KeyPair]:
    """The keys that all branches of an OR share: `k AND a OR k AND b` needs k. The OR itself stays residual."""
    if _op(conjunct.expression) != "or":
        return []
    branches = []
    for branch in _parts(conjunct.expression, "or"):
        sides = [_sides(part, scope) for part in _parts(branch, "and") if _op(part) == "="]
        pairs = [(*pair, _common(*pair, scope)) for pair in sides if pair is not None]
        branches.append([_pair(left, right, type_) for left, right, type_ in pairs if type_ is not None])
    return [key for key in branches[0] if all(key in others for others in branches[1:])]


def _parts(expression: Expression, op: str) -> tuple[Expression, ...]:
    return expression.args if isinstance(expression, Call) and expression.op == op else (expression,)


def _common(left: Expression, right: Expression, scope: Scope) -> SqlType | None:
    usable = _usable(left.type) and _usable(right.type)
    type_ = common_type(left.type, right.type, scope.ansi) if usable else None
    return None if type_ is None or type_.name == "void" else type_


def canonical(conjuncts: list[Conjunct], scope: Scope) -> str:
    """The conjuncts in a fixed order and spelling."""
    parts = {sql_of(part): part for part in (_in_order(conjunct.expression, scope) for conjunct in conjuncts)}
    if len(parts) == 1:
        return next(iter(parts))
    return " AND ".join(sorted(f"({text})" if _op(part) == "or" else text for text, part in parts.items()))


def _keys(conjunct: Conjunct, scope: Scope, text: str) -> list[KeyPair]:
    sides = _sides(conjunct.expression, scope)
    if sides is None:
        return []
    left, right = sides
    if not (_usable(left.type) and _usable(right.type)):
        return []
    null_safe = _op(conjunct.expression) == "<=>"
    type_ = common_type(left.type, right.type, scope.ansi)
    if type_ is None:
        raise _no_common_type(left, right, conjunct, text)
    if null_safe:
        return _null_safe(left, right, type_)
    return [_pair(left, right, type_)] if type_.name != "void" else []


def _sides(condition: Expression, scope: Scope) -> tuple[Expression, Expression] | None:
    """Both sides of an equality across the inputs, the first input's side first."""
    if not isinstance(condition, Call) or condition.op not in ("=", "<=>"):
        return None
    by_input = {next(iter(inputs_of(side))): side for side in condition.args if len(inputs_of(side)) == 1}
    if len(by_input) != 2:
        return None
    first, second = scope.inputs
    return by_input[first], by_input[second]


def _usable(type_: SqlType) -> bool:
    """Not text under a collation: Spark has no public function that gives equal text equal bytes."""
    return type_.name != "unknown" and binary_collated(type_)


def _no_common_type(left: Expression, right: Expression, conjunct: Conjunct, text: str) -> PredicateError:
    problem = f"{described(left)} and {described(right)} have no common type that keeps every value apart"
    return PredicateError(problem, text, conjunct.position, "cast one side explicitly: CAST(x AS ...)")


def _null_safe(left: Expression, right: Expression, type_: SqlType) -> list[KeyPair]:
    zero = _zero(type_)
    if zero is None:
        return []
    filled = [Call("coalesce", (_as(side, type_), zero), type_) for side in (left, right)]
    nulls = [Call("is_null", (side,), BOOLEAN) for side in (left, right)]
    return [_pair(filled[0], filled[1], type_), _pair(nulls[0], nulls[1], BOOLEAN)]


def _zero(type_: SqlType) -> Literal | None:
    if fields_of(type_):
        return Literal(0, type_)
    return Literal(_ZEROS[type_.name], type_) if type_.name in _ZEROS else None


def _as(side: Expression, type_: SqlType) -> Expression:
    return side if side.type == type_ else Call("cast", (side,), type_)


def _pair(left: Expression, right: Expression, type_: SqlType) -> KeyPair:
    return KeyPair(KeySide(left, sql_of(left)), KeySide(right, sql_of(right)), type_)


def _op(expression: Expression) -> str:
    return expression.op if isinstance(expression, Call) else ""


def _in_order(expression: Expression, scope: Scope) -> Expression:
    """The sides of =, <=> and <> in the order of the inputs, constants last."""
    if not isinstance(expression, Call):
        return expression
    args = tuple(_in_order(arg, scope) for arg in expression.args)
    if expression.op in _SYMMETRIC:
        args = tuple(sorted(args, key=lambda side: (_rank(side, scope), sql_of(side))))
    return Call(expression.op, args, expression.type)


def _rank(side: Expression, scope: Scope) -> int:
    return min((scope.inputs.index(name) for name in inputs_of(side)), default=len(scope.inputs))
