"""The truth of a condition over blocks of the join matrix: one side down, the other across.

A condition over pairs mostly compares what one row gives with what the other gives. So every part that reads a
single input is computed once for each row, not once for each pair. A conjunct that then only compares columns of the
two sides (with AND, OR and NOT between) is decided by comparing order words in a matrix: words compare as Spark
compares the values, NaN and -0.0 included. The test of a window is decided in the matrix too. What is left (text,
arithmetic over both inputs) is evaluated by evaluate.py: on the pairs that passed the matrix or, without a matrix,
with one row as scalars against many. Arithmetic that can overflow sees only pairs that passed all tests before it.

Million pairs a second on one core (AMD EPYC, 500 x 100,000 rows): words in a matrix 560 to 1,500; scalars against
columns 190 to 430; Arrow over expanded pairs 50 to 110; DuckDB 80 to 280, where its meaning is Spark's at all.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.evaluate import evaluate, may_raise, surviving, take
from watersmeet.kernel.keys import Indices, Keys, Mask, words
from watersmeet.kernel.vectors import Vectors
from watersmeet.model.expression import (
    WORD_DIGITS,
    Call,
    Column,
    Expression,
    columns_of,
    conjuncts_of,
    inputs_of,
)
from watersmeet.model.types import BOOLEAN, SqlType
from watersmeet.model.window import AT

_COMPARE: Final = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_WORD_KINDS: Final = ("boolean", "date", "timestamp", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class PairTest:
    """What a pair must pass, taken apart: window times at most `within` apart, and the conjuncts of a residual.

    `computed` holds, under new names, what is computed once for each row. Conjuncts are decided in a matrix or, if
    there is nothing for it, row by row; `rest` sees the pairs that passed.
    """

    computed: tuple[tuple[Column, Expression], ...]
    within: int | None
    matrix: tuple[Expression, ...]
    by_row: tuple[Expression, ...]
    rest: tuple[Expression, ...]
    ansi: bool

    @property
    def in_matrix(self) -> bool:
        return self.within is not None or bool(self.matrix)

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (*self.matrix, *self.by_row, *self.rest)


def pair_test(residual: Expression | None, ansi: bool, within: int | None) -> PairTest:
    computed: dict[Expression, Column] = {}
    parts = [] if residual is None else [_hoisted(part, computed) for part in conjuncts_of(residual)]
    matrix = tuple(part for part in parts if _in_matrix(part))
    other = [part for part in parts if not _in_matrix(part)]
    by_row: list[Expression] = []
    if within is None and not matrix:
        # The first one sees every pair in any case.
        by_row = [part for part in other if part is other[0] or not may_raise(part)]
    rest = [part for part in other if part not in by_row]
    columns = tuple((column, part) for part, column in computed.items())
    return PairTest(columns, within, matrix, tuple(by_row), tuple(rest), ansi)


def _hoisted(expression: Expression, computed: dict[Expression, Column]) -> Expression:
    """The expression with every largest part that reads one input as a column of its own."""
    if not isinstance(expression, Call):
        return expression
    read = inputs_of(expression)
    if len(read) == 1:
        name = f"computed {len(computed)}"
        return computed.setdefault(expression, Column(next(iter(read)), name, expression.type))
    return Call(expression.op, tuple(_hoisted(arg, computed) for arg in expression.args), expression.type)


def _in_matrix(part: Expression) -> bool:
    if isinstance(part, Column):
        return part.type == BOOLEAN
    if not isinstance(part, Call):
        return False
    if part.op in ("and", "or", "not"):
        return all(_in_matrix(arg) for arg in part.args)
    if part.op not in _COMPARE or len(inputs_of(part)) != 2:
        return False
    kinds = [_word_kind(arg.type) for arg in part.args if isinstance(arg, Column)]
    return len(kinds) == 2 and kinds[0] == kinds[1] != ""


def _word_kind(kind: SqlType) -> str:
    """Types with one answer compare by their words; text and wide decimals do not."""
    if kind.integral or kind.floating:
        return "integral" if kind.integral else "floating"
    if kind.name == "decimal":
        return str(kind) if (kind.precision or 0) <= WORD_DIGITS else ""
    return kind.name if kind.name in _WORD_KINDS else ""


@dataclass(frozen=True, slots=True)
class Slab:
    """Some rows of one input, ready to be compared.

    `columns` are for evaluation; `compared` (values, and where they are null) and the window `times` for the matrix.
    """

    input: str
    rows: int
    columns: dict[str, pa.Array]
    compared: dict[str, tuple[Keys | Mask, Mask | None]]
    times: Indices | None


def prepare(name: str, rows: pa.RecordBatch, test: PairTest) -> Slab:
    """Compute what a side's rows give by themselves."""
    own = {(name, column): rows.column(column) for column in _plain_columns(name, test)}
    columns = {column: values for (_, column), values in own.items()}
    for column, expression in test.computed:
        if column.input == name:
            columns[column.name] = evaluate(expression, own, rows.num_rows, ansi=test.ansi)
    compared = {c.name for part in test.matrix for c in columns_of(part) if c.input == name}
    times = None if test.within is None else rows.column(AT).to_numpy()
    return Slab(name, rows.num_rows, columns, {c: _comparable(columns[c]) for c in compared}, times)


def _plain_columns(name: str, test: PairTest) -> set[str]:
    made = {column.name for column, _ in test.computed}
    parts = [*test.parts, *(part for _, part in test.computed)]
    return {c.name for part in parts for c in columns_of(part) if c.input == name and c.name not in made}


def _comparable(column: pa.Array) -> tuple[Keys | Mask, Mask | None]:
    nulls = None
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        # The values under nulls may be anything: the nulls are remembered beside them.
        column = pa.Array.from_buffers(
            column.type, len(column), [None, *column.buffers()[1:]], offset=column.offset
        )
    if pa.types.is_boolean(column.type):
        return column.to_numpy(zero_copy_only=False), nulls
    return words(column), nulls


def true_pairs(down: Slab, across: Slab, rows: slice, cols: slice, test: PairTest) -> tuple[Indices, Indices]:
    """The pairs of a block that pass, as positions in the two slabs."""
    if test.in_matrix:
        mask = _by_matrix(down, across, rows, cols, test)
    else:
        mask = _row_by_row(down, across, rows, cols, test)
    down_at, across_at = _positions(mask)
    down_at, across_at = down_at + rows.start, across_at + cols.start
    if test.rest and len(down_at):
        keep = _still_true(down, down_at, across, across_at, test)
        down_at, across_at = down_at[keep], across_at[keep]
    return down_at, across_at


def _by_matrix(down: Slab, across: Slab, rows: slice, cols: slice, test: PairTest) -> Mask:
    if test.within is None:
        mask = np.ones((rows.stop - rows.start, cols.stop - cols.start), np.bool_)
    else:
        assert down.times is not None and across.times is not None
        times, others = down.times[rows].reshape(-1, 1), across.times[cols].reshape(1, -1)
        with _unbuffered():
            mask = others >= times - test.within
            mask &= others <= times + test.within
    block = _Block(down, across, rows, cols)
    with _unbuffered():
        for part in test.matrix:
            mask &= block.holds(part)
    return mask


# The least that numpy allows.
_LEAST_BUFFER = 16


@contextlib.contextmanager
def _unbuffered() -> Iterator[None]:
    """Compare rows of a matrix where they lie.

    numpy copies rows of less than half a buffer (4,096 values) into it first, so that its innermost loops are long. It
    then takes three times as long to compare words of 1,000 columns.
    """
    before = np.setbufsize(_LEAST_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def _positions(mask: Mask) -> tuple[Indices, Indices]:
    """As `np.nonzero`, which takes four to ten times as long in two dimensions."""
    at = np.flatnonzero(mask)
    line = at // mask.shape[1] if len(at) else at
    return line, at - line * mask.shape[1]


def _row_by_row(down: Slab, across: Slab, rows: slice, cols: slice, test: PairTest) -> Mask:
    """One row's values as scalars against a stretch of the other side: each step is thousands of pairs."""
    width = cols.stop - cols.start
    read = {column for part in test.by_row for column in columns_of(part)}
    values: dict[tuple[str, str], pa.Array | pa.Scalar] = {
        (c.input, c.name): across.columns[c.name].slice(cols.start, width)
        for c in read
        if c.input == across.input
    }
    own = [(c.input, c.name) for c in read if c.input == down.input]
    mask = np.ones((rows.stop - rows.start, width), np.bool_)
    for line, row in zip(mask, range(rows.start, rows.stop), strict=True):
        values.update({place: down.columns[place[1]][row] for place in own})
        for part in test.by_row:
            truth = evaluate(part, values, width, ansi=test.ansi)
            line &= pc.fill_null(truth, False).to_numpy(zero_copy_only=False)
    return mask


def _still_true(down: Slab, down_at: Indices, across: Slab, across_at: Indices, test: PairTest) -> Indices:
    sides = {down.input: (down, down_at), across.input: (across, across_at)}

    def read(column: Column, alive: Indices) -> pa.Array | Vectors:
        slab, at = sides[column.input]
        return take(slab.columns[column.name], at[alive])

    return surviving(Call("and", test.rest, BOOLEAN), read, len(down_at), ansi=test.ansi)


class _Block:
    """Compares columns of two slabs within a block."""

    def __init__(self, down: Slab, across: Slab, rows: slice, cols: slice):
        self.down = down.input
        self.values = {
            (slab.input, name): (values[part].reshape(shape), None if nulls is None else nulls[part])
            for slab, part, shape in ((down, rows, (-1, 1)), (across, cols, (1, -1)))
            for name, (values, nulls) in slab.compared.items()
        }

    def holds(self, part: Expression, *, null: bool = False) -> Mask:
        """Where a part is true, if a null counts as `null`.

        That is all there is to three-valued logic: AND and OR pass it on, NOT turns it round.
        """
        if isinstance(part, Column):
            values, _ = self.values[part.input, part.name]
            return self._settled(values.astype(np.bool_), [part], null)
        assert isinstance(part, Call)
        if part.op in _COMPARE:
            compared = [arg for arg in part.args if isinstance(arg, Column)]
            (one, _), (other, _) = (self.values[column.input, column.name] for column in compared)
            return self._settled(_COMPARE[part.op](one, other), compared, null)
        if part.op == "not":
            return ~self.holds(part.args[0], null=not null)
        combine = np.logical_and if part.op == "and" else np.logical_or
        return functools.reduce(combine, (self.holds(arg, null=null) for arg in part.args))

    def _settled(self, mask: Mask, columns: list[Column], null: bool) -> Mask:
        for column in columns:
            _, nulls = self.values[column.input, column.name]
            if nulls is None:
                continue
            if column.input == self.down:
                # Row by row: numpy takes fifty times as long to combine a mask with a column of truths.
                mask[nulls] = null
            elif null:
                mask |= nulls
            else:
                mask &= ~nulls
        return mask
