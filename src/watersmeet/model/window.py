"""A sliding window: which rows of two inputs may match at all.

Over time, two rows match if their times are at most `width` apart. Rows are accepted up to `lateness` behind the newest
row of their input. Over rows, each row is matched against the last `width` rows of each other input from earlier
batches, and all rows of its own batch. Times are integers: microseconds of a timestamp, days of a date, the values of
an integer column. Over rows they are the rows' numbers in their input.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from watersmeet.model.closed import ClosedSet


class WindowKind(ClosedSet):
    TIME = "time"
    ROWS = "rows"


# The stored column that holds a row's window time.
AT = "__wm_at"

# Larger times count as null and widths are smaller, so that sums and differences of two fit 64 bits.
FARTHEST = 1 << 61

# The values of `Window.of`; an integer may have any width.
TIMESTAMP, TIMESTAMP_NTZ, DATE, INTEGER = "timestamp", "timestamp_ntz", "date", "integer"

_MICROS: Final = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)


@dataclass(frozen=True, slots=True)
class Window:
    """`of` is the type of the times; it is empty for a window over rows."""

    kind: WindowKind
    width: int
    lateness: int = 0
    of: str = ""


@dataclass(frozen=True, slots=True)
class Milestone:
    """All rows of a stream that are not late, but the first `rows`, have at least this publication time."""

    rows: int
    time: int


@dataclass(frozen=True, slots=True)
class CountedRows:
    """How many rows of a stream a hub has counted, and milestones among them, in their order (hubs/counted.py)."""

    rows: int = 0
    milestones: tuple[Milestone, ...] = ()


def over_time(window: Window | None) -> bool:
    return window is not None and window.kind == WindowKind.TIME


def width_text(window: Window) -> str:
    """The width as text.

    >>> width_text(Window(WindowKind.TIME, 90_000_000, of=TIMESTAMP)), width_text(Window(WindowKind.ROWS, 1))
    ('90 seconds', '1 row')
    """
    return _length_text(window, window.width)


def lateness_text(window: Window) -> str:
    return _length_text(window, window.lateness)


def explain_window(window: Window) -> str:
    """Describe the window in a sentence.

    >>> explain_window(Window(WindowKind.TIME, 60_000_000, of=TIMESTAMP))
    'two rows match only if their times are at most 1 minute apart'
    """
    if window.kind == WindowKind.ROWS:
        return f"each row is matched against the last {width_text(window)} of the other input, and all of its own batch"
    late = f", and are accepted up to {lateness_text(window)} late" if window.lateness else ""
    return f"two rows match only if their times are at most {width_text(window)} apart{late}"


def _length_text(window: Window, length: int) -> str:
    if window.of == INTEGER:
        return str(length)
    if window.kind == WindowKind.ROWS:
        return _counted(length, "row")
    if window.of == DATE:
        return _counted(length, "day")
    if not length:
        return "0 seconds"
    unit, size = next((unit, size) for unit, size in _MICROS if length % size == 0)
    return _counted(length // size, unit)


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


_EPOCH: Final = datetime.datetime(1970, 1, 1)


def time_text(window: Window, time: int) -> str:
    """A time as text; a time outside the calendar stays a number.

    >>> time_text(Window(WindowKind.TIME, 1, of=DATE), 1)
    '1970-01-02'
    >>> time_text(Window(WindowKind.TIME, 1, of=TIMESTAMP), 1_500_000)
    '1970-01-01 00:00:01.500000+00:00'
    """
    if window.of not in (TIMESTAMP, TIMESTAMP_NTZ, DATE):
        return str(time)
    try:
        if window.of == DATE:
            return str(_EPOCH.date() + datetime.timedelta(days=time))
        moment = _EPOCH + datetime.timedelta(microseconds=time)
        return str(moment.replace(tzinfo=datetime.timezone.utc) if window.of == TIMESTAMP else moment)
    except OverflowError:
        return str(time)
