"""Type errors that are certain, whatever the data: Spark would refuse these in every mode that we support.

Doubt passes: an `unknown` type is never an error, and Spark's analyser sees the text later. The exception
is text that Spark would turn into a moment by reading the clock ('now', 'today', '12:30:00'): Spark allows
it, but the answer would change between two runs of one batch.

Not caught: a column whose rows say '12:30:00', cast to a timestamp; Spark adds the day on which it runs.
"""

from __future__ import annotations

import re
from typing import Final

from watersmeet.model.expression import Column, Expression, Literal, columns_of
from watersmeet.model.types import SqlType
from watersmeet.predicate.lex import brief

MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
_CLOCK_TEXT: Final = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)\b|T?[0-9]{1,2}:)", re.IGNORECASE)
# Pairs of families that Spark compares by casting; text may become almost anything.
_TEXT_PARTNERS: Final = ("number", "boolean", "binary", "moment")


def cannot_compare(left: SqlType, right: SqlType, ansi: bool) -> bool:
    """Whether Spark is sure to refuse a comparison.

    >>> from watersmeet.model.types import BOOLEAN, DATE
    >>> cannot_compare(BOOLEAN, DATE, ansi=True)
    True
    """
    if incomparable(left) or incomparable(right):
        return True
    families = {_family(left), _family(right)}
    if None in families or len(families) == 1:
        return False
    if "text" in families:
        return not families <= {"text", *_TEXT_PARTNERS}
    return ansi or families != {"number", "boolean"}


def incomparable(type_: SqlType) -> bool:
    inside = [type_.element, *(field.type for field in type_.fields)]
    return type_.name in ("map", "variant") or any(incomparable(part) for part in inside if part)


def not_boolean(type_: SqlType) -> bool:
    """Text too: Spark takes it beside AND in one mode only, and never alone."""
    return _family(type_) not in (None, "boolean")


def not_arithmetic(op: str, type_: SqlType) -> bool:
    family = _family(type_)
    if op == "div" and type_.floating:
        return True
    return family in ("boolean", "binary", "array", "struct", "map") or (
        family == "moment" and op not in "+-"
    )


def reads_clock(arg: Expression) -> bool:
    """Whether Spark would read the clock if it had to turn this argument into a moment."""
    if isinstance(arg, Literal):
        return isinstance(arg.value, str) and bool(_CLOCK_TEXT.match(arg.value))
    constant = next(columns_of(arg), None) is None
    return constant and (arg.type.stringlike or arg.type.name == "unknown")


def described(expression: Expression) -> str:
    """A type and where it comes from, for messages: `date (r.day)`."""
    if isinstance(expression, Literal):
        return f"{expression.type} ({brief(repr(expression.value))})"
    read = dict.fromkeys(_shown(column) for column in columns_of(expression))
    type_ = brief(str(expression.type))
    return f"{type_} ({brief(', '.join(read))})" if read else type_


def _shown(column: Column) -> str:
    return f"{column.input}.{column.name}"


def _family(type_: SqlType) -> str | None:
    if type_.numeric:
        return "number"
    if type_.stringlike:
        return "text"
    if type_.name in MOMENTS:
        return "moment"
    if type_.name.startswith("interval "):
        return "interval"
    return type_.name if type_.name in ("boolean", "binary", "array", "struct", "map") else None
