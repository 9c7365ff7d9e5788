"""The facts of a join with a table: which version of it a batch was located in, and which pages were read.

A stream row waits on its page. Within a batch a page is read for all rows that wait on it or for none, so what waits
is known from one number for each page, the last batch in which it was read: a row of a later batch waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KeyRange, SchemePlan

Batches = npt.NDArray[np.int64]

# The last batch in which a page was read, if there was none.
NEVER = -1


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table as it was at some time: `folder` has its page index, in the state, and `pages` is their number."""

    folder: str
    version: str
    pages: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """So many pages in a row that were last read in one batch."""

    pages: int
    batch: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a batch was planned that rows still wait from."""

    batch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PagePlan(SchemePlan):
    """What one batch reads of a table, which the predicate calls `name`.

    Each task has a range of order keys. `reading` is how the table is read: by pages, whole, or key by key. The fresh
    rows of the batch are located in `table`, those of the next one will be in `next_table`, which was looked for at
    `checked_ms`; before the version changes no row is left waiting. `before` says for each page of `table`, and for keys
    in no page behind the last, when it was last read before this batch, `after` when after it; both are empty where no
    row ever waits.

    `pages_read` and `bytes_read` are what tasks need, not counting the further pages of a key that fills several; pages
    that they still have in memory they do not read again.
    """

    kind: ClassVar[str] = "table"
    ranges: tuple[KeyRange, ...]
    table: TableVersion
    next_table: TableVersion
    name: str = ""
    reading: str = ""
    checked_ms: int = 0
    before: tuple[Stretch, ...] = ()
    after: tuple[Stretch, ...] = ()
    arrivals: tuple[Arrival, ...] = ()
    pages_read: int = 0
    bytes_read: int = 0
    waiting_rows: int = 0


def stretches_of(batches: Batches) -> tuple[Stretch, ...]:
    """
    >>> stretches_of(np.array([4, 4, -1]))
    (Stretch(pages=2, batch=4), Stretch(pages=1, batch=-1))
    """
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1))
    counts = np.diff(starts, append=len(batches))
    return tuple(
        Stretch(count, batch) for count, batch in zip(counts.tolist(), batches[starts].tolist(), strict=True)
    )


def batches_of(stretches: Iterable[Stretch]) -> Batches:
    """The inverse of `stretches_of`."""
    listed = list(stretches)
    batches = np.array([one.batch for one in listed], np.int64)
    return np.repeat(batches, [one.pages for one in listed])
