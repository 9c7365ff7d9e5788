"""Expressions in the output of hub queries: which ones a hub can compute, and their values for many answers at once.

An answer is put together where it is found, so Arrow has to give exactly the value that Spark would. Comparisons, logic
and arithmetic of floats are those of joins (kernel/evaluate.py). Here are more of them:

    + - * neg abs      of integers, and of decimals where Spark rounds nothing
    /  %               in double; of integers % too
    <=>  coalesce  case  ||   of values of one type, after casts that lose nothing
    cast, try_cast     between integers and floats; of integers, booleans and texts to text

One rule differs from Spark. Where it would raise an error, or wrap without ANSI, the value is null: an integer that
leaves its type, a division by zero. An error would end the batch, and each replay of it, for all other queries too.

A constant is a column of the pseudo input `?`, named by its number, so that texts which differ in it share a template.
Its type is that of the literal. Nothing here depends on the session: what a query gives is the same after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.hubs.constants import comparable
from watersmeet.kernel.evaluate import arrow_type, evaluate, supports
from watersmeet.kernel.keys import Mask
from watersmeet.model.expression import Call, Column, Expression, Literal
from watersmeet.model.types import (
    DOUBLE,
    INTEGRAL_DIGITS,
    MAX_DECIMAL_DIGITS,
    STRING,
    SqlType,
    decimal,
    parse_type,
)

# The pseudo input of constants. No stream can have this name.
CONSTANTS: Final = "?"

_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=", "in", "<=>")
_CASTS: Final = ("cast", "try_cast")


class NotComputable(ValueError):
    """An expression that a hub does not compute: its operation, and why not."""

    def __init__(self, op: str, problem: str):
        self.op, self.problem = op, problem
        super().__init__(problem)


def prepared(expression: Expression) -> Expression:
    """The expression as `compute` takes it, with every cast written out; NotComputable if there is no such."""
    if isinstance(expression, Column):
        if not comparable(expression.type):
            is_constant = expression.input == CONSTANTS
            what = "a constant" if is_constant else f"column {expression.name}"
            raise NotComputable("" if is_constant else expression.name, f"{what} of type {expression.type}")
        return expression
    if isinstance(expression, Literal):
        # All other values of a text are constants.
        if expression.value is not None and not isinstance(expression.value, bool):
            raise NotComputable("", f"a constant of type {expression.type}")
        return expression
    return _prepared_call(replace(expression, args=tuple(map(prepared, expression.args))))


def _prepared_call(call: Call) -> Call:
    op, kinds = call.op, [arg.type for arg in call.args]
    if op in ("coalesce", "case"):
        last = len(call.args) - 1
        args = tuple(
            arg if op == "case" and at % 2 == 0 and at < last else _widened(arg, call)
            for at, arg in enumerate(call.args)
        )
        known = comparable(call.type)
        if op == "case":
            known &= all(arg.type.name == "boolean" for arg in args[:last:2])
        return _if(known, replace(call, args=args))
    if op in _CASTS:
        return _if(_can_cast(kinds[0], call.type), call)
    if op == "concat":
        return _if(call.type == STRING and all(kind == STRING for kind in kinds), call)
    if any(kind.floating for kind in kinds):
        # As in Spark, a decimal beside a float is a double. Of constants that is exact.
        call = replace(call, args=tuple(map(_in_double, call.args)))
    if op in ("/", "%") and call.type == DOUBLE:
        return _if(all(arg.type.integral or arg.type.floating for arg in call.args), call)
    if op in _EXACT and call.type.name == "decimal":
        return _if(_is_exact(call), call)
    if op == "%":
        return _if(call.type.integral and all(kind.integral for kind in kinds), call)
    like = replace(call, op="=") if op == "<=>" else call
    return _if(supports(_over(like)), call)


def _if(known: bool, call: Call) -> Call:
    if not known:
        of = " and ".join(dict.fromkeys(str(arg.type) for arg in call.args)) or "nothing"
        to = f" to {call.type}" if call.op in _CASTS else ""
        raise NotComputable(call.op, f"{call.op} of {of}{to}")
    return call


def _widened(arg: Expression, call: Call) -> Expression:
    """The argument in the type of its call."""
    kind = call.type
    if arg.type == kind:
        return arg
    if isinstance(arg, Literal) and arg.value is None:
        return Literal(None, kind)
    if kind == DOUBLE and _in_double(arg).type == DOUBLE:
        return _in_double(arg)
    wider = kind == DOUBLE or (
        kind.integral and arg.type.integral and _BITS[arg.type.name] < _BITS[kind.name]
    )
    return _if(wider and (arg.type.integral or arg.type.floating), Call("cast", (arg,), kind))


def _in_double(arg: Expression) -> Expression:
    if isinstance(arg, Call) and arg.op == "neg":
        inside = _in_double(arg.args[0])
        return arg if inside == arg.args[0] else Call("neg", (inside,), DOUBLE)
    is_constant = isinstance(arg, Column) and arg.input == CONSTANTS
    return replace(arg, type=DOUBLE) if is_constant and arg.type.name == "decimal" else arg


def _can_cast(source: SqlType, target: SqlType) -> bool:
    numbers = all(kind.integral or kind.floating for kind in (source, target))
    return numbers or (target == STRING and (source.integral or source.name in ("boolean", "string")))


def _is_exact(call: Call) -> bool:
    """Whether the type of a sum or product of decimals holds all of its digits, so that nothing is rounded."""
    if not all(arg.type.integral or arg.type.name == "decimal" for arg in call.args):
        return False
    if len(call.args) == 1:
        return call.type == call.args[0].type
    (p, s), (q, t) = (_digits(arg.type) for arg in call.args)
    scale = s + t if call.op == "*" else max(s, t)
    precision = p + q + 1 if call.op == "*" else max(p - s, q - t) + scale + 1
    return precision <= MAX_DECIMAL_DIGITS and call.type == decimal(precision, scale)


def _digits(kind: SqlType) -> tuple[int, int]:
    return (INTEGRAL_DIGITS[kind.name], 0) if kind.integral else (kind.precision or 0, kind.scale or 0)


def _over(call: Call) -> Call:
    """The call over columns that stand for its arguments."""
    return replace(call, args=tuple(Column("", str(at), arg.type) for at, arg in enumerate(call.args)))


# --- values ---------------------------------------------------------------------------------------------------------


def compute(expression: Expression, values: Mapping[Column, pa.Array], rows: int) -> pa.Array:
    """The values of a prepared expression, from those of its columns.

    >>> from watersmeet.model.types import INT
    >>> total = Call("+", (Column("0", "x", INT), Column("?", "0", INT)), INT)
    >>> columns = {total.args[0]: [1, 2147483647], total.args[1]: [1, 1]}
    >>> compute(total, {one: pa.array(of, pa.int32()) for one, of in columns.items()}, 2).to_pylist()
    [2, None]
    """
    if isinstance(expression, Column):
        return values[expression]
    if isinstance(expression, Literal):
        kind = arrow_type(expression.type)
        return pa.repeat(pa.scalar(expression.value, kind), rows)
    args = [compute(arg, values, rows) for arg in expression.args]
    own = _OWN.get(expression.op)
    if own is not None:
        return own(expression, args)
    if expression.op in _INTEGRAL and expression.type.integral:
        return _whole(expression.op, args, expression.type)
    if expression.op in _EXACT and expression.type.name == "decimal":
        kinds = [pa.decimal128(*_digits(arg.type)) for arg in expression.args]
        decimals = [arg.cast(kind) for arg, kind in zip(args, kinds, strict=True)]
        return _EXACT[expression.op](*decimals).cast(arrow_type(expression.type))
    columns = {("", str(at)): arg for at, arg in enumerate(args)}
    return evaluate(_over(expression), columns, rows, ansi=True)


def _whole(op: str, args: list[pa.Array], kind: SqlType) -> pa.Array:
    """Arithmetic of integers; null where it leaves the type."""
    target = arrow_type(kind)
    args = [arg.cast(target) for arg in args]
    try:
        return _INTEGRAL[op](*args)
    except pa.ArrowInvalid:
        return _whole_or_null(op, args, kind)


_INTEGRAL: Final[dict[str, Callable[..., pa.Array]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
    "abs": pc.abs_checked,
}


_EXACT: Final[dict[str, Callable[..., pa.Array]]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "neg": pc.negate,
    "abs": pc.abs,
}


def _whole_or_null(op: str, args: list[pa.Array], kind: SqlType) -> pa.Array:
    one, *others = (arg.fill_null(0).to_numpy().astype(np.int64) for arg in args)
    other = others[0] if others else one
    least = np.iinfo(np.int64).min
    with np.errstate(all="ignore"):
        if op == "+":
            found = one + other
            bad = ((one ^ found) & (other ^ found)) < 0
        elif op == "-":
            found = one - other
            bad = ((one ^ other) & (one ^ found)) < 0
        elif op == "*":
            found = one * other
            bad = (one != 0) & (found // np.where(one == 0, 1, one) != other)
            bad |= (one == -1) & (other == least)
        else:
            found = -one if op == "neg" else np.abs(one)
            bad = one == least
    return _in_range(found, bad | _nulls(args), kind)


def _in_range(values: npt.NDArray[np.int64], bad: Mask, kind: SqlType) -> pa.Array:
    """Integers of a type; null where they are bad, or outside of it."""
    bits = _BITS[kind.name]
    if bits < 64:
        bound = 1 << (bits - 1)
        bad = bad | (values < -bound) | (values >= bound)
    return pa.array(np.where(bad, 0, values), mask=bad).cast(arrow_type(kind))


def _nulls(args: list[pa.Array]) -> Mask:
    found = np.zeros(len(args[0]), np.bool_)
    for arg in args:
        if arg.null_count:
            found |= arg.is_null().to_numpy(zero_copy_only=False)
    return found


def _divide(call: Call, args: list[pa.Array]) -> pa.Array:
    one, other = (arg.cast(pa.float64(), safe=False) for arg in args)
    return pc.divide(one, _without_zero(other))


def _remainder(call: Call, args: list[pa.Array]) -> pa.Array:
    """With the sign of the dividend, as in Java."""
    kind = arrow_type(call.type)
    one, other = (arg.cast(kind, safe=False) for arg in args)
    divisor = _without_zero(other)
    empty = _nulls([one, divisor])
    with np.errstate(all="ignore"):
        found = np.fmod(one.fill_null(0).to_numpy(), divisor.fill_null(1).to_numpy())
    return pa.array(found, kind, mask=empty)


def _without_zero(divisor: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)


def _same(call: Call, args: list[pa.Array]) -> pa.Array:
    columns = {("", str(at)): arg for at, arg in enumerate(args)}
    equal = evaluate(_over(replace(call, op="=")), columns, len(args[0]), ansi=True)
    return pc.or_(pc.fill_null(equal, False), pc.and_(args[0].is_null(), args[1].is_null()))


def _coalesce(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.coalesce(*args)


def _case(call: Call, args: list[pa.Array]) -> pa.Array:
    *branches, default = args
    tests = pa.StructArray.from_arrays(branches[::2], [str(at) for at in range(len(branches) // 2)])
    return pc.case_when(tests, *branches[1::2], default)


def _concat(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*args, "")


def _cast(call: Call, args: list[pa.Array]) -> pa.Array:
    values, source, target = args[0], call.args[0].type, call.type
    if not target.integral:
        return values.cast(arrow_type(target), safe=False)
    if source.integral:
        return _in_range(values.fill_null(0).to_numpy().astype(np.int64), _nulls(args), target)
    # NaN compares as false. The bounds of bigint are exact as doubles, the larger one excluded.
    whole = np.trunc(values.fill_null(0).to_numpy().astype(np.float64))
    outside = ~((whole >= -(2.0**63)) & (whole < 2.0**63))
    return _in_range(np.where(outside, 0, whole).astype(np.int64), outside | _nulls(args), target)


_OWN: Final[dict[str, Callable[[Call, list[pa.Array]], pa.Array]]] = {
    "/": _divide,
    "%": _remainder,
    "<=>": _same,
    "coalesce": _coalesce,
    "case": _case,
    "concat": _concat,
    **dict.fromkeys(_CASTS, _cast),
}


# --- stored ---------------------------------------------------------------------------------------------------------


def to_text(expression: Expression) -> str:
    """The expression as the catalogue stores it."""
    return json.dumps(_to_plain(expression), separators=(",", ":"))


def from_text(text: str) -> Expression:
    return _from_plain(json.loads(text))


def _to_plain(one: Expression) -> dict[str, Any]:
    if isinstance(one, Column):
        return {"input": one.input, "name": one.name, "type": str(one.type)}
    if isinstance(one, Literal):
        return {"value": one.value, "type": str(one.type)}
    return {"op": one.op, "args": [_to_plain(arg) for arg in one.args], "type": str(one.type)}


def _from_plain(plain: dict[str, Any]) -> Expression:
    kind = parse_type(plain["type"])
    if "op" in plain:
        return Call(plain["op"], tuple(map(_from_plain, plain["args"])), kind)
    return Column(plain["input"], plain["name"], kind) if "input" in plain else Literal(plain["value"], kind)
