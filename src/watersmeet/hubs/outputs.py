"""The output columns of all queries, and their values for many answers of many queries at once.

A column is read by its attribute. Expressions are told apart by their *shape*: operations and types, but neither the
columns nor the constants. All output columns of one shape are computed in one go, whichever queries they belong to.
So the loops here are over attributes and shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.hubs.constants import read_exact
from watersmeet.hubs.expressions import CONSTANTS, compute
from watersmeet.hubs.language import Template
from watersmeet.hubs.lists import Lists
from watersmeet.hubs.steps import Attributes
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.rows import take_values
from watersmeet.model.expression import Column, Expression, columns_of, with_columns
from watersmeet.model.types import SqlType

# Reads an attribute of some rows, given by their positions.
ReadRows = Callable[[int, Indices], pa.Array]


@dataclass(frozen=True, slots=True)
class Outputs:
    """The output columns by number; `of` lists those of each template.

    A column has the `attribute` of an `input`; of an expression both are -1, and `shape` says which it has. `args` lists
    what it reads: an attribute of an input or, for the input -1, the constant of that number.
    """

    of: Lists
    name: tuple[str, ...]
    input: Indices
    attribute: Indices
    shape: Indices
    shapes: tuple[Expression, ...]
    args: Lists
    arg_input: Indices
    arg_attribute: Indices

    @classmethod
    def of_templates(cls, templates: Sequence[Template], attributes: Attributes) -> Outputs:
        numbers: dict[Expression, int] = {}
        input_, attribute, shape, counts = [], [], [], []
        args: list[tuple[int, int]] = []
        items = [(template, item) for template in templates for item in template.items]
        for template, item in items:
            if item.expression is None:
                input_.append(item.input)
                attribute.append(attributes.number[template.streams[item.input], item.column])
                shape.append(-1)
                counts.append(0)
                continue
            columns = tuple(dict.fromkeys(columns_of(item.expression)))
            input_.append(-1)
            attribute.append(-1)
            shape.append(numbers.setdefault(_shape_of(item.expression, columns), len(numbers)))
            counts.append(len(columns))
            args += [_argument(column, template, attributes) for column in columns]
        return cls(
            Lists.of_counts(np.array([len(template.items) for template in templates], np.int64)),
            tuple(item.name for _, item in items),
            np.array(input_, np.int64),
            np.array(attribute, np.int64),
            np.array(shape, np.int64),
            tuple(numbers),
            Lists.of_counts(np.array(counts, np.int64)),
            np.array([one for one, _ in args], np.int64),
            np.array([one for _, one in args], np.int64),
        )

    def values(
        self,
        item: Indices,
        owner: Indices,
        rows: Indices,
        take: ReadRows,
        types: Sequence[SqlType],
        constants: tuple[pa.Array, Indices],
    ) -> Iterator[tuple[Indices, pa.Array, SqlType]]:
        """The values of some output columns of some answers, in parts: their places in `item`, and their type.

        `owner` is the answer of each. Answers have the positions of their `rows` by input, and as `constants` the texts
        of all queries with the place of the first one of each answer.
        """
        attribute, shape = self.attribute[item], self.shape[item]
        for one in np.unique(attribute[attribute >= 0]).tolist():
            mine = np.flatnonzero(attribute == one)
            yield mine, take(one, rows[owner[mine], self.input[item[mine]]]), types[one]
        for one in np.unique(shape[shape >= 0]).tolist():
            mine = np.flatnonzero(shape == one)
            expression = self.shapes[one]
            values = {
                column: self._argument_values(column, item[mine], owner[mine], rows, take, constants)
                for column in dict.fromkeys(columns_of(expression))
            }
            yield mine, compute(expression, values, len(mine)), expression.type

    def _argument_values(
        self,
        column: Column,
        item: Indices,
        owner: Indices,
        rows: Indices,
        take: ReadRows,
        constants: tuple[pa.Array, Indices],
    ) -> pa.Array:
        """What one argument of a shape is in some output columns."""
        at = self.args.starts[item] + int(column.name)
        if column.input == CONSTANTS:
            texts, first = constants
            # Texts are read once, not for each answer.
            used, back = np.unique(first[owner] + self.arg_attribute[at], return_inverse=True)
            return take_values(read_exact(take_values(texts, used), column.type), back)
        attribute = self.arg_attribute[at]
        places, parts = [], []
        for one in np.unique(attribute).tolist():
            mine = np.flatnonzero(attribute == one)
            places.append(mine)
            parts.append(take(one, rows[owner[mine], self.arg_input[at[mine]]]))
        return in_places(places, parts)


def in_places(places: Sequence[Indices], parts: Sequence[pa.Array]) -> pa.Array:
    """The values of several parts, in the order of their places.

    >>> in_places([np.array([2, 0]), np.array([1])], [pa.array(["c", "a"]), pa.array(["b"])]).to_pylist()
    ['a', 'b', 'c']
    """
    order = np.concatenate(places)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return take_values(pa.concat_arrays(parts), back)


def _shape_of(expression: Expression, columns: Sequence[Column]) -> Expression:
    """The expression with numbers for its columns."""
    number = {column: str(at) for at, column in enumerate(columns)}

    def numbered(column: Column) -> Column:
        input_ = CONSTANTS if column.input == CONSTANTS else ""
        return Column(input_, number[column], column.type)

    return with_columns(expression, numbered)


def _argument(column: Column, template: Template, attributes: Attributes) -> tuple[int, int]:
    if column.input == CONSTANTS:
        return -1, int(column.name)
    input_ = int(column.input)
    return input_, attributes.number[template.streams[input_], column.name]
