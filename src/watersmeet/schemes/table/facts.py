"""The facts of a join with a table: the version that locates a batch's rows, and the pages that were read.

A stream row waits on its page. Within a batch a page is read for all rows that wait on it or for none. So one number
for each page, the last batch that read it, says which rows wait: those of later batches. A page on which no row waits
counts as read in every batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from watersmeet.model.closed import ClosedSet
from watersmeet.model.facts import KeyRange, SchemePlan

BatchNumbers = npt.NDArray[np.int64]

# In place of the last batch that read a page, if none did.
NEVER = -1


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One version of a table: `folder` in the state has its page index, and `pages` is the number of pages."""

    folder: str
    version: str
    pages: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive pages that were last read in the same batch."""

    pages: int
    batch: int


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """The time at which a batch was planned, if its rows still wait."""

    batch: int
    at_ms: int


class Reading(ClosedSet):
    """How a table is read: the pages that rows wait on, all pages in every batch, or key by key."""

    HYBRID = "hybrid"
    MESH = "mesh"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class PageCosts:
    """Microseconds, as measured and smoothed.

    Of a page that rows wait on: to read it, unless it is in memory, and to probe it. Of a row: to look it up by its
    key, where that is done, to join it, and to let it wait for another batch. And of a task's step beside its pages and
    rows.
    """

    read_us: float
    probe_us: float
    find_us: float
    row_us: float
    wait_us: float
    step_us: float

    @property
    def page_us(self) -> float:
        return self.read_us + self.probe_us


@dataclass(frozen=True, slots=True)
class Decoding:
    """What reading files in place has cost so far (schemes/table/in_place.py).

    `copy_folder` is the folder for the sorted copy of this version of the table. `decoded_bytes` are the parts of files
    that tasks have decoded, and `limit_bytes` is how much of them costs as much as making the copy. `chosen_in` is the
    batch that decided to make it. With `is_given_up` it could not be made: workers were stopped before it was ready.
    """

    copy_folder: str
    decoded_bytes: int
    limit_bytes: int
    chosen_in: int = NEVER
    is_given_up: bool = False

    @property
    def is_chosen(self) -> bool:
        return self.chosen_in != NEVER


@dataclass(frozen=True, slots=True)
class PagePlan(SchemePlan):
    """The pages that one batch reads of a table, which the predicate calls `name`.

    Each task has a range of order keys. The fresh
    rows of the batch are located in `table`, those of the next one will be in `next_table`, found at `checked_ms`. No
    row waits beyond a change of version. `before` has the last batch that read each page of `table` before this batch,
    `after` the same after it; a last entry stands for keys in no page. Both are empty if no row ever waits.

    `pages_read` and `bytes_read` are what tasks need, without the further pages of a key that fills several. Tasks do
    not read pages again that are in memory.

    `worth_rows` waiting rows made a page worth reading in this batch, by `costs`; 0 if no row ever waits. `costs` are
    None until they are measured. `decoding` is there for files that are read in place, or were until a copy was made.
    """

    kind: ClassVar[str] = "table"
    ranges: tuple[KeyRange, ...]
    table: TableVersion
    next_table: TableVersion
    name: str = ""
    reading: Reading = Reading.HYBRID
    checked_ms: int = 0
    before: tuple[Stretch, ...] = ()
    after: tuple[Stretch, ...] = ()
    arrivals: tuple[WaitingBatch, ...] = ()
    pages_read: int = 0
    bytes_read: int = 0
    waiting_rows: int = 0
    worth_rows: int = 0
    costs: PageCosts | None = None
    decoding: Decoding | None = None


def stretches_of(batches: BatchNumbers) -> tuple[Stretch, ...]:
    """
    >>> stretches_of(np.array([4, 4, -1]))
    (Stretch(pages=2, batch=4), Stretch(pages=1, batch=-1))
    """
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1))
    counts = np.diff(starts, append=len(batches))
    return tuple(
        Stretch(count, batch) for count, batch in zip(counts.tolist(), batches[starts].tolist(), strict=True)
    )


def batches_of(stretches: Iterable[Stretch]) -> BatchNumbers:
    """The inverse of `stretches_of`."""
    listed = list(stretches)
    batches = np.array([one.batch for one in listed], np.int64)
    return np.repeat(batches, [one.pages for one in listed])
