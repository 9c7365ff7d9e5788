"""A sliding window: which rows of two inputs may meet at all.

Over time, two rows meet if their times are at most `width` apart; `lateness` says how long after the newest row of
an input older ones are still taken. Over rows, a row meets the last `width` rows of the other input that came in
earlier batches, and all rows of its own batch. Times are whole numbers: microseconds of a timestamp, days of a date,
the values of an integer column; over rows they are the rows' numbers in their input.
"""

from __future__ import annotations

from dataclasses import dataclass

OVER_TIME, OVER_ROWS = "time", "rows"

# The stored column that holds a row's window time.
AT = "__wm_at"


@dataclass(frozen=True, slots=True)
class Window:
    kind: str
    width: int
    lateness: int = 0
