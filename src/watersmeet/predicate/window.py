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
from watersmeet.model.types import Schema, SqlType
from watersmeet.model.window import (
    DATE,
    FARTHEST,
    INTEGER,
    OVER_ROWS,
    OVER_TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Window,
)
from watersmeet.predicate.build import same_names
from watersmeet.predicate.lex import did_you_mean
from watersmeet.predicate.literals import MICROS, LiteralError, brief, interval_text, micros_of

# The length of a window, or how late a row may be, as a user writes it.
Length = str | int | datetime.timedelta

_ROWS: Final = re.compile(r"\s*([+-]?[0-9][0-9_]*)\s+rows?\s*", re.IGNORECASE)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


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
    width = _length("within", within, of)
    if width == 0:
        raise UsageError(f"within={within!r}: a window must be longer than nothing")
    late = 0 if lateness is None else _length("lateness", lateness, of)
    return Window(OVER_TIME, width, late, of), columns


def _over_rows(
    rows: re.Match[str], within: object, time: object, lateness: object, streaming: bool
) -> Window:
    if time is not None:
        raise UsageError(f"within={within!r} counts rows and takes no time=: leave one of the two out")
    if lateness is not None:
        raise UsageError(f"within={within!r} counts rows, and no row can be late: leave lateness= out")
    if not streaming:
        raise UsageError(
            f"within={within!r} counts the rows that came before, and the rows of a batch all come at once: use it "
            "for streams, or a window over time"
        )
    width = int(rows[1])
    if not 0 < width < FARTHEST:
        raise UsageError(f"within={within!r}: give a number of rows from 1 up")
    return Window(OVER_ROWS, width)


def _columns(time: object, schemas: Mapping[str, Schema], case_sensitive: bool) -> dict[str, str]:
    if not isinstance(time, Mapping):
        raise UsageError(f"time={time!r}: name a column for each input, such as time={_example(schemas)}")
    for name in time:
        if name not in schemas:
            raise UsageError(f"time= names {name!r}, which is no input; the inputs are {', '.join(schemas)}")
    columns = {}
    for name, schema in schemas.items():
        if name not in time:
            raise UsageError(
                f"time= says nothing of input {name}: name its time column, such as {_first(schema)!r}"
            )
        columns[name] = _column(name, time[name], schema, case_sensitive)
    return columns


def _column(name: str, column: object, schema: Schema, case_sensitive: bool) -> str:
    if not isinstance(column, str):
        raise UsageError(f"time= of input {name} must be the name of a column, not {column!r}")
    same = same_names(column, schema, case_sensitive)
    if len(same) == 1:
        return same[0]
    guess = did_you_mean(column, schema)
    raise UsageError(
        f"time=: input {name} has no column {brief(column)}; {guess}its columns are {', '.join(schema)}"
    )


def _kind(columns: Mapping[str, str], schemas: Mapping[str, Schema]) -> str:
    """The type that all time columns share; integers count as one type."""
    kinds = {name: _time_type(name, column, schemas[name][column]) for name, column in columns.items()}
    first, *others = kinds
    for other in others:
        if kinds[other] != kinds[first]:
            one, two = (f"{name}.{columns[name]}" for name in (first, other))
            raise UsageError(
                f"time=: {one} is of type {schemas[first][columns[first]]}, {two} of type "
                f"{schemas[other][columns[other]]}: cast one of them, so that both tell time the same way"
            )
    return kinds[first]


def _time_type(name: str, column: str, kind: SqlType) -> str:
    if kind.integral:
        return INTEGER
    if kind.name not in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
        raise UsageError(
            f"time=: {name}.{column} is of type {kind}: a time is a timestamp, a date or a whole number"
        )
    return kind.name


def _length(what: str, given: object, of: str) -> int:
    """A length of time in the unit of the times, not negative."""
    length = _number(what, given) if of == INTEGER else _duration(what, given, of)
    if length < 0:
        raise UsageError(f"{what}={given!r} is negative")
    if length >= FARTHEST:
        raise UsageError(f"{what}={given!r} is too long")
    return length


def _number(what: str, given: object) -> int:
    try:
        if isinstance(given, bool):
            raise TypeError
        return operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(
            f"{what}={given!r}: the times are whole numbers, so give a whole number in their unit, such as {what}=3600"
        ) from None


def _duration(what: str, given: object, of: str) -> int:
    if isinstance(given, datetime.timedelta):
        micros = given // _MICROSECOND
    elif isinstance(given, str):
        micros = _micros(what, given)
    else:
        raise UsageError(
            f'{what}={given!r}: the times are of type {of}, so give a unit too, such as "10 minutes"'
        )
    if of != DATE:
        return micros
    days, rest = divmod(micros, MICROS["day"])
    if rest:
        raise UsageError(f'{what}={given!r}: the times are dates, so give whole days, such as "3 days"')
    return days


def _micros(what: str, text: str) -> int:
    try:
        literal = interval_text(text)
    except LiteralError:
        raise UsageError(
            f'{what}={text!r} is no length of time: write numbers and units, such as "10 minutes" or "1 day 12 hours"'
            + (' (or "100000 rows")' if what == "within" else "")
        ) from None
    micros = micros_of(literal)
    if micros is None:
        raise UsageError(f"{what}={text!r}: months and years differ in length; give days")
    return micros


def _example(schemas: Mapping[str, Schema]) -> str:
    return "{" + ", ".join(f'"{name}": "{_first(schema)}"' for name, schema in schemas.items()) + "}"


def _first(schema: Schema) -> str:
    """The first column that could be a time."""
    moments = (name for name, kind in schema.items() if kind.name in (TIMESTAMP, TIMESTAMP_NTZ, DATE))
    return next(moments, "ts")
