"""Compute in Arrow what arrives of an input: the needed columns, keys that are expressions, the condition on it alone.

Where rows come from a DataFrame, Spark computes these from the user's own text. Rows that never were in Spark, of the
local driver and of files, are computed here. Only expressions for which the kernel gives Spark's answer are allowed:
`unsupported` names the first other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.kernel.evaluate import arrow_type, evaluate, filter_mask, supports
from watersmeet.model.expression import Call, Expression, Guard, columns_of

if TYPE_CHECKING:
    # Loads a parser, which tasks do without.
    from watersmeet.engine.compile import Compiled, ComputedKey


@dataclass(frozen=True, slots=True)
class ArrivingRows:
    """Turns rows of an input into rows as the operator ingests them. It can be pickled.

    `computed` are the names and expressions of keys, `unsupported` is the SQL of something that only Spark can compute.
    """

    input: str
    columns: tuple[str, ...]
    computed: tuple[tuple[str, Expression], ...]
    guard: Guard | None
    ansi: bool
    unsupported: str = ""

    @staticmethod
    def of(compiled: Compiled, name: str, *, ansi: bool) -> ArrivingRows:
        keys = [key for key in compiled.computed if key.input == name]
        computed = tuple((key.name, key.expression) for key in keys)
        guard = compiled.guard(name)
        beyond = [guard.sql] if guard is not None and not supports(guard.expression) else []
        beyond += [key.sql for key in keys if not is_computed_exactly(key)]
        return ArrivingRows(name, compiled.arriving[name], computed, guard, ansi, next(iter(beyond), ""))

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        expressions = [expression for _, expression in self.computed]
        expressions += [self.guard.expression] if self.guard is not None else []
        read = [column.name for expression in expressions for column in columns_of(expression)]
        return tuple(dict.fromkeys([*self.columns, *read]))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.guard is not None:
            values = {(self.input, c.name): rows.column(c.name) for c in columns_of(self.guard.expression)}
            mask = filter_mask(self.guard.expression, values, rows.num_rows, ansi=self.ansi)
            rows = rows if mask.all() else rows.filter(pa.array(mask))
        arrays = {column: rows.column(column) for column in self.columns}
        for key, expression in self.computed:
            arrays[key] = _compute(expression, rows, self.ansi)
        return pa.RecordBatch.from_pydict(arrays) if arrays else rows.select([])


def is_computed_exactly(key: ComputedKey) -> bool:
    """Whether Arrow computes a key exactly as Spark does."""
    return supports(_uncast(key)) and _casts_exactly(key.expression)


def _uncast(key: ComputedKey) -> Expression:
    """The key without its cast: the kernel casts integers and floats itself when it makes the order key."""
    expression = key.expression
    return expression.args[0] if isinstance(expression, Call) and expression.op == "cast" else expression


def _casts_exactly(expression: Expression) -> bool:
    """Whether Arrow casts a key exactly as Spark does: not if text is parsed or a decimal is rounded.

    Both turn integers into the nearest float, and round ties to even.
    """
    if not isinstance(expression, Call) or expression.op != "cast":
        return True
    source, target = expression.args[0].type, expression.type
    return (source.integral and target.numeric) or source.name == target.name == "decimal"


def _compute(expression: Expression, rows: pa.RecordBatch, ansi: bool) -> pa.Array:
    values = {(c.input, c.name): rows.column(c.name) for c in columns_of(expression)}
    if isinstance(expression, Call) and expression.op == "cast":
        inner = evaluate(expression.args[0], values, rows.num_rows, ansi=ansi)
        # As in Spark, round an integer to the nearest float; Arrow would refuse.
        return inner.cast(arrow_type(expression.type), safe=not expression.type.floating)
    return evaluate(expression, values, rows.num_rows, ansi=ansi)
