"""Which rows of a file are read: a condition in SQL, and the row groups in which it can hold.

The condition is evaluated by `kernel/evaluate.py` with Spark's three-valued logic. Statistics only rule row groups out
where they are exact bounds in the order of SQL: for integers, dates, timestamps and text, but not for floats, whose
statistics leave NaN out.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from watersmeet.kernel.evaluate import filter_mask, supports
from watersmeet.model.expression import Call, Column, Expression, Literal, columns_of, conjuncts_of
from watersmeet.model.types import type_of_arrow

# The input of the columns in an expression. Users do not write it.
_ROW: Final = "row"
_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")
# Types whose statistics are exact bounds in SQL's order.
_BOUNDED: Final = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string")
# Whether a comparison with a literal can hold for a value between two bounds.
_CAN_HOLD: Final[Mapping[str, Callable[[Any, Any, Any], bool]]] = {
    "=": lambda low, high, value: low <= value <= high,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
}
_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed `where=`, over columns in the schema's spelling. It can be pickled."""

    text: str
    expression: Expression
    ansi: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(column.name for column in columns_of(self.expression)))

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the condition is true."""
        values = {(_ROW, name): batch.column(name) for name in self.columns}
        mask = filter_mask(self.expression, values, batch.num_rows, ansi=self.ansi)
        return batch if mask.all() else batch.filter(pa.array(mask))

    def can_hold(self, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
        """Whether some row can satisfy it, given the smallest and the largest value of some columns."""
        return all(_can_hold(part, bounds) for part in conjuncts_of(self.expression))


def parse_where(
    text: str, schema: pa.Schema, *, ansi: bool = True, case_sensitive: bool = False, zone: str = "UTC"
) -> Filter:
    """Read a condition over the columns of a schema; a PredicateError says what cannot be read, and where.

    >>> parse_where("Qty > 0", pa.schema({"qty": pa.int32()})).columns
    ('qty',)
    """
    # Imported here: a worker gets the condition parsed, and need not load a parser.
    from watersmeet.predicate import normal_zone
    from watersmeet.predicate.row_filter import parse_row_filter

    columns = {field.name: type_of_arrow(field.type) for field in schema}
    found = parse_row_filter(
        text, _ROW, columns, supports, ansi=ansi, case_sensitive=case_sensitive, zone=_zone(normal_zone(zone))
    )
    return Filter(text, found, ansi)


def _zone(name: str) -> datetime.tzinfo:
    """A zone as Spark names it: a place, or an offset such as +02:00."""
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        return ZoneInfo(name)
    length = datetime.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return datetime.timezone(-length if offset[1] == "-" else length)


def _can_hold(part: Expression, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    if isinstance(part, Literal):
        return part.value is True
    if not isinstance(part, Call):
        return True
    if part.op == "and":
        return all(_can_hold(arg, bounds) for arg in part.args)
    if part.op == "or":
        return any(_can_hold(arg, bounds) for arg in part.args)
    if part.op == "in":
        needle, *items = part.args
        return any(_can_compare("=", needle, item, bounds) for item in items)
    return part.op not in _CAN_HOLD or _can_compare(part.op, part.args[0], part.args[1], bounds)


def _can_compare(op: str, one: Expression, other: Expression, bounds: Mapping[str, tuple[Any, Any]]) -> bool:
    if isinstance(one, Literal) and isinstance(other, Column):
        return _can_compare(_MIRRORED[op], other, one, bounds)
    if not (isinstance(one, Column) and isinstance(other, Literal)):
        return True
    known = bounds.get(one.name)
    of_one_kind = one.type == other.type or (one.type.integral and other.type.integral)
    if known is None or one.type.name not in _BOUNDED or not of_one_kind:
        return True
    return _CAN_HOLD[op](*known, other.value)
