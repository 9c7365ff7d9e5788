"""Typed tree to Spark SQL: the text of key expressions and of the canonical form.

Written by hand, because sqlglot's generator rewrites functions and casts for its own model.
Invariants: Spark reads the text as the same tree, our parser reads it as an equal tree, and there are no brackets
that precedence does not need. Names are quoted, so that no name is a keyword. Signatures in stored state hold these
texts: a change here refuses every state that exists.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from watersmeet.model.expression import Call, Column, Expression, KeySide, Literal, inputs_of
from watersmeet.model.types import SqlType
from watersmeet.predicate.literals import MICROS, MONTHS, fields_of, number_literal

# How tightly an operator binds, as in Spark's grammar.
_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY, _NEGATE, _ATOM = range(8)
_LEVELS: Final = {
    **dict.fromkeys(("=", "<=>", "<>", "<", "<=", ">", ">=", "like", "ilike", "rlike"), _COMPARE),
    **dict.fromkeys(("+", "-"), _ADD),
    **dict.fromkeys(("*", "/", "%", "div"), _MULTIPLY),
}
_SYMMETRIC: Final = ("=", "<=>", "<>")
_SUFFIX: Final = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L", "float": "F", "double": "D"}
_ESCAPES: Final = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def sql_of(expression: Expression) -> str:
    """Spark SQL over struct columns named like the inputs.

    >>> from watersmeet.model.types import INT
    >>> sql_of(Call("+", (Column("l", "k", INT), Literal(1, INT)), INT))
    '`l`.`k` + 1'
    """
    return _written(expression)[0]


def key_side(expression: Expression) -> KeySide:
    """An expression over one input, as that input's side of a key or a band."""
    (name,) = inputs_of(expression)
    return KeySide(name, expression, sql_of(expression))


def canonical(conjuncts: Iterable[Expression], inputs: tuple[str, ...]) -> str:
    """The conjuncts in a fixed order and spelling."""
    parts = {sql_of(part): part for part in (_in_order(conjunct, inputs) for conjunct in conjuncts)}
    if len(parts) == 1:
        return next(iter(parts))
    return " AND ".join(sorted(_above(part, _AND) for part in parts.values()))


def _in_order(expression: Expression, inputs: tuple[str, ...]) -> Expression:
    """The sides of =, <=> and <> in the order of the inputs, constants last."""
    if not isinstance(expression, Call):
        return expression
    args = tuple(_in_order(arg, inputs) for arg in expression.args)
    if expression.op in _SYMMETRIC:
        args = tuple(sorted(args, key=lambda side: (_rank(side, inputs), sql_of(side))))
    return Call(expression.op, args, expression.type)


def _rank(side: Expression, inputs: tuple[str, ...]) -> int:
    return min(map(inputs.index, inputs_of(side)), default=len(inputs))


def _written(expression: Expression) -> tuple[str, int]:
    """The text and how tightly its outermost operator binds."""
    if isinstance(expression, Column):
        return f"{quoted(expression.input)}.{quoted(expression.name)}", _ATOM
    if isinstance(expression, Literal):
        return _literal(expression), _ATOM
    return _call(expression)


def _above(expression: Expression, level: int) -> str:
    """The text, in brackets unless it binds more tightly than `level`."""
    text, own = _written(expression)
    return text if own > level else f"({text})"


def _call(call: Call) -> tuple[str, int]:
    op, args = call.op, call.args
    if op in ("and", "or"):
        level = _AND if op == "and" else _OR
        return f" {op.upper()} ".join(_above(arg, level) for arg in args), level
    if op == "not":
        return _negation(args[0]), _NOT
    if op in _LEVELS:
        return _binary(op, args), _LEVELS[op]
    if op == "neg":
        return _minus(args[0]), _NEGATE
    if op == "is_null":
        return f"{_above(args[0], _COMPARE)} IS NULL", _COMPARE
    if op == "in":
        return f"{_above(args[0], _COMPARE)} IN ({_listed(args[1:])})", _COMPARE
    return _closed(call), _ATOM


def _negation(condition: Expression) -> str:
    if isinstance(condition, Call) and condition.op == "is_null":
        return f"{_above(condition.args[0], _COMPARE)} IS NOT NULL"
    return f"NOT {_above(condition, _NOT - 1)}"


def _minus(value: Expression) -> str:
    """A sign before a bare number would become part of the number."""
    text = _above(value, _NEGATE - 1)
    return f"- ({text})" if text[0].isdigit() else f"- {text}"


def _binary(op: str, args: tuple[Expression, ...]) -> str:
    """Arithmetic groups from the left; comparisons do not chain."""
    level = _LEVELS[op]
    left = _above(args[0], level if level == _COMPARE else level - 1)
    return f"{left} {op.upper()} {_above(args[1], level)}"


def _closed(call: Call) -> str:
    op, args = call.op, call.args
    if op in ("cast", "try_cast"):
        return f"{op.upper()}({sql_of(args[0])} AS {str(call.type).upper()})"
    if op == "case":
        return _case(args)
    if op == "field":
        name = args[1]
        assert isinstance(name, Literal)
        return f"{_base(args[0])}.{quoted(str(name.value))}"
    if op == "[]":
        return f"{_base(args[0])}[{sql_of(args[1])}]"
    return f"{op}({_listed(args)})"


def _base(value: Expression) -> str:
    """What a field or an element is taken of: END.f would be a name."""
    bare = isinstance(value, Column) or (isinstance(value, Call) and value.op != "case")
    return _above(value, _NEGATE) if bare else f"({sql_of(value)})"


def _case(args: tuple[Expression, ...]) -> str:
    branches = zip(args[:-1:2], args[1::2], strict=True)
    written = " ".join(f"WHEN {sql_of(when)} THEN {sql_of(then)}" for when, then in branches)
    return f"CASE {written} ELSE {sql_of(args[-1])} END"


def _listed(args: tuple[Expression, ...]) -> str:
    return ", ".join(sql_of(arg) for arg in args)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(literal: Literal) -> str:
    value, type_ = literal.value, literal.type
    if value is None:
        return "NULL" if type_.name == "void" else f"CAST(NULL AS {str(type_).upper()})"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int) and fields_of(type_):
        return _interval(value, type_)
    if isinstance(value, (int, float)):
        return f"{value!r}{_SUFFIX[type_.name]}"
    if isinstance(value, Decimal):
        return _decimal(value, type_)
    if isinstance(value, str):
        return _string(value)
    return f"X'{value.hex().upper()}'" if isinstance(value, bytes) else _moment(value, type_)


def _decimal(value: Decimal, type_: SqlType) -> str:
    text = f"{value:f}BD"
    return text if number_literal(text).type == type_ else f"CAST({text} AS {str(type_).upper()})"


def _string(value: str) -> str:
    """Printable on one line; `\\%` and `\\_` keep their backslash in Spark, so a backslash is doubled always."""
    return "'" + "".join(_ESCAPES.get(char) or _control(char) for char in value) + "'"


def _control(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x20 or ord(char) == 0x7F else char


def _moment(value: datetime.date, type_: SqlType) -> str:
    if isinstance(value, datetime.datetime):
        word = "TIMESTAMP_NTZ" if type_.name == "timestamp_ntz" else "TIMESTAMP"
        return f"{word} '{value.isoformat(sep=' ')}'"
    return f"DATE '{value.isoformat()}'"


def _interval(value: int, type_: SqlType) -> str:
    """Every unit from the widest to the narrowest of the type, so that Spark gives the same type."""
    family, outer = fields_of(type_) or ((), [])
    units = family[family.index(outer[0]) : family.index(outer[-1]) + 1]
    sign, left = "-" if value < 0 else "", abs(value)
    parts = []
    for unit in units:
        amount, left = divmod(left, (MICROS | MONTHS)[unit])
        fraction = f".{left:06d}" if unit == "second" and left else ""
        parts.append(f"{sign}{amount}{fraction} {unit.upper()}")
    return f"INTERVAL {' '.join(parts)}"
