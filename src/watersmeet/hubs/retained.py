"""`retain`: rows are kept longer than live queries need them, so that SINCE can reach back to them.

It is the Delta of the attribute-level tuple table of Idreos et al. (2008, section 4). All streams are stored, whether or
not a query reads them, and every row stays that much longer than any live query needs it: its floor (hubs/needed.py) is
lower by `retain`. Where no query needs old rows, the floor is the stream's watermark minus `retain`. Entries of an index
stay with their rows as long as there is an index.

Which rows are certain to be there must not depend on the queries: then a query would be refused or not as others live.
So each stream has a time that is *not kept*: the newest publication time of which a row may be missing.

    without retain        the newest time of all rows so far
    with it               what it was before, or just below the watermark minus `retain`

It never falls. If the columns of a stream change, none of its rows so far is certain: a new query may use what changed.
A start with another `retain` changes it from its first batch on: rows that have left do not come back.

Invariant: a row of a stream, late or not, whose time is above that of the stream is stored, and no merge, planned in
this batch or before, drops it or its entries in an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from watersmeet.model.window import FARTHEST, TIMESTAMP, Window, WindowKind, width_text

# Everything is kept: more than the difference of any two times.
RETAIN_ALL: Final = 4 * FARTHEST - 1


def retain_text(retain: int) -> str:
    """How long rows are retained, for people.

    >>> retain_text(90_000_000), retain_text(RETAIN_ALL)
    ('90 seconds', 'all')
    """
    return "all" if retain >= RETAIN_ALL else width_text(Window(WindowKind.TIME, retain, of=TIMESTAMP))


def next_unkept(
    before: Mapping[str, int],
    newest: Iterable[Mapping[str, int]],
    stored: Mapping[str, int],
    watermarks: Mapping[str, int],
    retain: int | None,
    changed: Iterable[str] = (),
) -> dict[str, int]:
    """The newest time of which a row may be missing after a batch, by stream.

    Rows of before do not count if their stream's columns have `changed`. `newest` are the newest times that the batch's partitions tell of, `stored` those of the rows from before. The
    `watermarks` are those that the batch leaves.

    >>> next_unkept({"R": 5}, [{"R": 90, "S": 80}], {"R": 95}, {"R": 90, "S": 80}, None)
    {'R': 95, 'S': 80}
    >>> next_unkept({"R": 5}, [{"R": 90, "S": 80}], {"R": 95}, {"R": 90, "S": 80}, 30)
    {'R': 59, 'S': 49}
    >>> next_unkept({"R": 5}, [{"R": 90, "S": 80}], {"R": 95}, {"R": 90, "S": 80}, RETAIN_ALL)
    {'R': 5}
    >>> next_unkept({"R": 5}, [{"R": 90, "S": 80}], {"R": 95}, {"R": 90, "S": 80}, RETAIN_ALL, changed="R")
    {'R': 95}
    """
    found = dict(before)
    for stream in changed:
        if stream in stored:
            found[stream] = max(stored[stream], found.get(stream, stored[stream]))
    if retain is not None and retain >= RETAIN_ALL:
        return found
    if retain is not None:
        gone: list[Mapping[str, int]] = [{stream: mark - retain - 1 for stream, mark in watermarks.items()}]
    else:
        # A row never has a time below its stream's watermark where that goes by the clock, also if the clock goes back.
        gone = [*newest, stored, watermarks]
    for told in gone:
        for stream, time in told.items():
            found[stream] = max(time, found.get(stream, time))
    return found
