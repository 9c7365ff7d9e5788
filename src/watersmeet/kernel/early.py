"""Test conjuncts that may raise before all inputs of a join are bound: an early form, which never raises.

A conjunct that may raise (evaluate.py) is due when the last input is bound: conjuncts over other inputs may guard it, so
before that no error of it counts. Its early form drops the combinations for which it is certainly false or NULL, and lets
pass those for which it might raise. The conjunct itself is tested again when it is due, so an early test adds no error
and no result. It can only hide an error, as any conjunct does that rejects a combination before another one sees it.

Without an overflow the early form is the conjunct itself. With one, each operation is estimated in double: what is
near the border of its type might overflow. Of vectors with different lengths all combinations that are tested together
pass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.evaluate import (
    WRAPPING,
    ArithmeticOverflow,
    Read,
    Values,
    arrow_type,
    evaluate,
    may_overflow,
)
from watersmeet.kernel.keys import Indices, Mask
from watersmeet.kernel.vectors import VectorLengths
from watersmeet.model.expression import Call, Expression, columns_of

# A double is off by less than 2^-51 of the border after one operation on numbers of 64 bits.
_SLACK: Final = 2.0**-40


def possible(conjuncts: Iterable[Expression], read: Read, rows: int, *, ansi: bool) -> Indices:
    """The rows for which none of the conjuncts is certainly false or NULL."""
    alive = np.arange(rows)
    for conjunct in conjuncts:
        if not len(alive):
            break
        values = {(c.input, c.name): read(c, alive) for c in dict.fromkeys(columns_of(conjunct))}
        alive = alive[_not_ruled_out(conjunct, values, len(alive), ansi)]
    return alive


def _not_ruled_out(conjunct: Expression, values: Values, rows: int, ansi: bool) -> Mask:
    try:
        try:
            return _set(evaluate(conjunct, values, rows, ansi=ansi))
        except ArithmeticOverflow:
            # Where nothing overflows, wrapping does nothing.
            wrapped = _set(evaluate(conjunct, values, rows, ansi=False))
    except VectorLengths:
        return np.ones(rows, np.bool_)
    borders = (_near_border(part, values, rows) for part in _parts(conjunct) if may_overflow(part))
    return functools.reduce(np.logical_or, borders, wrapped)


def _parts(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for arg in expression.args:
            yield from _parts(arg)


def _near_border(call: Call, values: Values, rows: int) -> Mask:
    """Where the result of an operation on whole numbers may leave its type."""
    # Operands that wrapped are wrong, but then they are marked themselves.
    operands = [
        pc.cast(evaluate(arg, values, rows, ansi=False), pa.float64(), safe=False) for arg in call.args
    ]
    border = 2.0 ** (arrow_type(call.type).bit_width - 1) * (1 - _SLACK)
    return _set(pc.greater_equal(pc.abs(WRAPPING[call.op](*operands)), border))


def _set(truth: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(truth, False).to_numpy(zero_copy_only=False)
    return mask
