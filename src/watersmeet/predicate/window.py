"""The arguments `within=`, `time=` and `lateness=` to a `Window`, checked against the columns of the inputs.

Lengths become whole numbers in the unit of the time columns:

    timestamp, timestamp_ntz    microseconds    "10 minutes", "1 day 12 hours", a timedelta
    date                        days            "3 days", "1 week", a timedelta of whole days
    any integer                 its own unit    3600
    no time                     rows            "100000 rows"
"""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Mapping
from typing import Final

from watersmeet.errors import UsageError
from watersmeet.model.types import Schema
from watersmeet.model.window import DATE, FARTHEST, INTEGER, TIMESTAMP, TIMESTAMP_NTZ, Window, WindowKind
from watersmeet.predicate.build import same_names
from watersmeet.predicate.lex import did_you_mean
from watersmeet.predicate.literals import MICROS, LiteralError, brief, interval_text, micros_of

# The length of a window, or how late a row may be, as a user writes it.
Length = str | int | datetime.timedelta

_ROWS: Final = re.compile(r"\s*([+-]?[0-9][0-9_]*)\s+rows?\s*", re.IGNORECASE)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_EXAMPLES: Final = {
    TIMESTAMP: '"10 minutes"',
    TIMESTAMP_NTZ: '"10 minutes"',
    DATE: '"3 days"',
    INTEGER: "3600",
}


def parse_window(
    within: Length | None,
    time: Mapping[str, str] | None,
    lateness: Length | None,
    schemas: Mapping[str, Schema],
    *,
    streaming: bool = True,
    case_sensitive: bool = False,
) -> tuple[Window, dict[str, str]] | None:
    """The window and the time column of each input; None without a window.

    >>> from watersmeet.model.types import SqlType
    >>> stream = {"ts": SqlType("timestamp")}
    >>> parse_window("10 minutes", {"l": "ts", "r": "ts"}, None, {"l": stream, "r": stream})
    (Window(kind='time', width=600000000, lateness=0, of='timestamp'), {'l': 'ts', 'r': 'ts'})
    """
    if within is None:
        for name, value in (("time", time), ("lateness", lateness)):
            if value is not None:
                raise UsageError(f'{name}= belongs to a window: add within=, such as within="10 minutes"')
        return None
    rows = _ROWS.fullmatch(within) if isinstance(within, str) else None
    if rows is not None:
        return _over_rows(rows, within, time, lateness, streaming), {}
    if time is None:
        raise UsageError(
            f"within={within!r} needs time=, the time column of each input, such as "
            f'time={_example(schemas)}; a window over rows is written as within="100000 rows"'
        )
    columns = _columns(time, schemas, case_sensitive)
    of = _kind(columns, schemas)
    late = 0 if lateness is None else _length("lateness", lateness, of)
    return Window(WindowKind.TIME, _length("within", within, of), late, of), columns


def parse_lateness(lateness: Length) -> int:
    """A lateness of streams with timestamps, in microseconds."""
    return parse_length("lateness", lateness)


def parse_length(what: str, given: Length) -> int:
    """A length of time that may be zero, in microseconds. `what` is the name of the argument."""
    return _length(what, given, TIMESTAMP)


def _over_rows(
    rows: re.Match[str], within: object, time: object, lateness: object, streaming: bool
) -> Window:
    if time is not None:
        raise UsageError(f"within={within!r} counts rows and takes no time=: leave one of the two out")
    if lateness is not None:
        raise UsageError(f"within={within!r} counts rows, and no row can be late: leave lateness= out")
    if not streaming:
        raise UsageError(
            f"within={within!r} counts the rows of earlier batches, and a batch query has none: use it for streams, "
            "or use a window over time"
        )
    width = int(rows[1])
    if not 0 < width < FARTHEST:
        raise UsageError(f"within={within!r}: give a number of rows from 1 up")
    return Window(WindowKind.ROWS, width)


def _columns(time: object, schemas: Mapping[str, Schema], case_sensitive: bool) -> dict[str, str]:
    """The time column of each input, in the schema's spelling."""
    if not isinstance(time, Mapping):
        raise UsageError(f"time={time!r}: name a column for each input, such as time={_example(schemas)}")
    for name in time:
        if name not in schemas:
            raise UsageError(f"time= names {name!r}, which is no input; the inputs are {', '.join(schemas)}")
    for name in schemas:
        if name not in time:
            raise UsageError(f"time= has no column for input {name}: write time={_example(schemas)}")
    return {name: _column(name, time[name], schema, case_sensitive) for name, schema in schemas.items()}


def _column(name: str, column: object, schema: Schema, case_sensitive: bool) -> str:
    if not isinstance(column, str):
        raise UsageError(f"time= of input {name} must be the name of a column, not {column!r}")
    same = same_names(column, schema, case_sensitive)
    if len(same) == 1:
        return same[0]
    hint = f"{did_you_mean(column, schema)}its columns are {', '.join(schema)}"
    raise UsageError(f"time=: input {name} has no column {brief(column)}; {hint}")


def _kind(columns: Mapping[str, str], schemas: Mapping[str, Schema]) -> str:
    """The type that all time columns share; integers of all widths count as one type."""
    types = {f"{name}.{column}": schemas[name][column] for name, column in columns.items()}
    for column, type_ in types.items():
        if not type_.integral and type_.name not in _EXAMPLES:
            raise UsageError(f"time=: {column} is of type {type_}: use a timestamp, a date or a whole number")
    kinds = {column: INTEGER if type_.integral else type_.name for column, type_ in types.items()}
    first, *others = kinds
    for other in others:
        if kinds[other] != kinds[first]:
            raise UsageError(
                f"time=: {first} is of type {types[first]}, {other} of type {types[other]}: cast one of them to the "
                "type of the other"
            )
    return kinds[first]


def _length(what: str, given: object, of: str) -> int:
    """A length in the unit of the time columns; only a lateness may be zero."""
    try:
        length = _number(given) if of == INTEGER else _duration(given, of)
        if length < 0 or (length == 0 and what == "within"):
            raise LiteralError("it must be positive" if what == "within" else "it must not be negative")
        if length >= FARTHEST:
            raise LiteralError("it is too long")
        return length
    except LiteralError as bad:
        rows = (
            ' or, without time=, within="100000 rows"' if what == "within" and isinstance(given, str) else ""
        )
        problem = f"{what}={given!r}: {bad.problem}; write for example {what}={_EXAMPLES[of]}{rows}"
        raise UsageError(problem) from None


def _number(given: object) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise LiteralError("the time columns are integers, so give a whole number in their unit") from None


def _duration(given: object, of: str) -> int:
    if isinstance(given, datetime.timedelta):
        micros: int | None = given // _MICROSECOND
    elif isinstance(given, str):
        micros = micros_of(interval_text(given))
    else:
        raise LiteralError(f"the time columns are of type {of}, so give a unit too")
    if micros is None:
        raise LiteralError("months and years differ in length, so give days")
    if of != DATE:
        return micros
    days, rest = divmod(micros, MICROS["day"])
    if rest:
        raise LiteralError("the time columns are dates, so give whole days")
    return days


def _example(schemas: Mapping[str, Schema]) -> str:
    """A value for `time=` that names the first column of each input that could be a time."""
    first = {
        name: next((column for column, kind in schema.items() if kind.name in _EXAMPLES), "ts")
        for name, schema in schemas.items()
    }
    return "{" + ", ".join(f'"{name}": "{column}"' for name, column in first.items()) + "}"
