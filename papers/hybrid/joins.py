"""HYBRIDJOIN, MESHJOIN and the index nested loop join step by step, in one process, over any source of pages.

Source: Naeem, Dobbie, Weber 2010, sections 3 and 4. One call of `step` is one iteration of the algorithm: at most one
turn to the table. What it does inside is done for all rows together.

    HybridJoin   reads the page of the row that has waited longest, for all rows that wait on it. Rows come in
                 whenever there is room; without any it goes on until none waits.
    MeshJoin     reads the pages in a cycle. Each step takes w rows; with fewer it waits, until the stream has ended.
                 A row leaves after it has met every page, matched or not.
    IndexJoin    reads the page of each row, one row after the other.

Where they differ from the paper: a row is located among the pages before it waits, so that a page meets the rows that
it can hold and no others, and a row whose key is in no page is answered at once. A key whose rows fill several pages
is answered by all of them in one step, or in MeshJoin as they come by.

Every row is answered exactly once: with its matches, or in a left join with nulls. The order of the results is not guaranteed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pyarrow as pa

from papers.hybrid.pending import TIERS, Pending, Tiers, row_bytes
from papers.hybrid.steps import PageSource, Steps
from watersmeet.errors import UsageError
from watersmeet.kernel.emit import OutputColumn
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.lookup import LookupJoin, Page
from watersmeet.kernel.rows import Sorted
from watersmeet.model.pages import pages_of
from watersmeet.schemes.table.buffer import PageBuffer

_SLOT = "__wm_slot"

# Rows that an index nested loop takes in advance. They are not joined together, only located.
AHEAD_ROWS = 1_024


def rows_within(budget_bytes: int, source: PageSource, schema: pa.Schema) -> int:
    """How many stream rows can wait beside the largest page."""
    largest = int(source.index.bytes.max()) if len(source.index) else 0
    return (budget_bytes - largest) // row_bytes(schema)


class HybridJoin(Steps):
    """Section 4.2 and Fig. 5. `capacity` is the size of the hash table in rows, H_t.

    With a buffer, pages that are asked for often are not read again (the paper's future work).
    """

    def __init__(
        self,
        source: PageSource,
        join: LookupJoin,
        schema: pa.Schema,
        capacity: int,
        *,
        table: pa.Schema | None = None,
        buffer: PageBuffer[Page] | None = None,
        tiers: Tiers = TIERS,
    ):
        super().__init__(source, join, schema, table, buffer)
        self._pending = Pending(schema, capacity, len(source.index), tiers)

    @property
    def pending_rows(self) -> int:
        return self._pending.rows

    @property
    def room(self) -> int:
        return self._pending.room

    @property
    def front(self) -> int | None:
        """The stream position of the row that has waited longest."""
        found = self._pending.front()
        return None if found is None else found[1]

    def offer(self, rows: pa.RecordBatch) -> int:
        count = min(rows.num_rows, self.room)
        taken, positions = self.take(rows.slice(0, count))
        self._pending.add(taken.rows, taken.keys, positions)
        return count

    def step(self) -> list[pa.RecordBatch]:
        results = self.take_ready()
        front = self._pending.front()
        if front is None:
            return results
        page, _ = front
        waiting = self._pending.waiting(page)
        self.counters.steps += 1
        results += self.table.answer(page, waiting.pending)
        self._pending.answer(page, self.counters.taken)
        self._pending.free(waiting.slots)
        self.counters.answer(waiting.positions)
        return results


class MeshJoin(Steps):
    """Section 3, after Polyzotis et al. 2008. The queue has a part for each page, of `input_rows` = w rows.

    A row that came in some step meets the pages of that step and of the following ones, until each has been read once.
    """

    def __init__(
        self,
        source: PageSource,
        join: LookupJoin,
        schema: pa.Schema,
        capacity: int,
        *,
        table: pa.Schema | None = None,
        tiers: Tiers = TIERS,
    ):
        super().__init__(source, join, schema, table)
        self.input_rows = capacity // max(1, len(source.index))
        if not self.input_rows:
            raise UsageError(
                f"MESHJOIN needs room for a row for each of the {len(source.index)} pages, and there is room for "
                f"{capacity}: take a larger budget or larger pages"
            )
        self._pending = Pending(schema, capacity, len(source.index), tiers)
        self._matched = np.zeros(capacity, np.bool_)
        self._next_page = 0
        self._staged: list[Indices] = []
        self._staged_rows = 0
        # For each step that rows are still here from: their slots, and the position at which its rows end.
        self._parts: deque[tuple[Indices, int]] = deque()
        # The slot of each match says which rows had one.
        slot = OutputColumn(join.names[0], _SLOT, _SLOT)
        self._matching = replace(join, output=(*join.output, slot), left=False)

    @property
    def pending_rows(self) -> int:
        return self._pending.rows

    @property
    def room(self) -> int:
        return self.input_rows - self._staged_rows

    def offer(self, rows: pa.RecordBatch) -> int:
        count = min(rows.num_rows, self.room)
        taken, positions = self.take(rows.slice(0, count))
        slots = self._pending.add(taken.rows, taken.keys, positions)
        self._matched[slots] = False
        self._staged.append(slots)
        self._staged_rows += count
        return count

    def step(self) -> list[pa.RecordBatch]:
        results = self.take_ready()
        if self.room and not (self.ended and self._pending.rows):
            return results
        self._parts.append((np.concatenate([*self._staged, _NONE]), self.counters.taken))
        self._staged, self._staged_rows = [], 0
        if len(self.table.index):
            results += self._meet(self._next_page)
            self._next_page = (self._next_page + 1) % len(self.table.index)
        if len(self._parts) >= len(self.table.index):
            results += self._expire()
        return results

    def _meet(self, number: int) -> list[pa.RecordBatch]:
        """A page with the rows that are at home in it, and with those of whose key it has the rest."""
        self.counters.steps += 1
        page = self.table.page(number)
        here = self._pending.waiting(number)
        self.counters.answer(here.positions)
        if page.home != number:
            here = self._pending.waiting(page.home).before(here)
        rows = here.pending.rows.append_column(_SLOT, pa.array(here.slots))
        results = []
        for batch in self._matching.results(Sorted(here.pending.keys, rows), [page], self.table.schema):
            self._matched[batch.column(batch.num_columns - 1).to_numpy()] = True
            results.append(batch.select(range(batch.num_columns - 1)))
        return results

    def _expire(self) -> list[pa.RecordBatch]:
        slots, end = self._parts.popleft()
        self._pending.floor = end
        lonely = slots[~self._matched[slots]]
        rows = Sorted(np.zeros(len(lonely), np.uint64), self._pending.gather(lonely))
        self._pending.free(slots)
        return self.table.without_match(rows)


class IndexJoin(Steps):
    """Section 3: for each row its page is read through the index, and nothing else is joined with it."""

    def __init__(
        self,
        source: PageSource,
        join: LookupJoin,
        schema: pa.Schema,
        *,
        table: pa.Schema | None = None,
        ahead_rows: int = AHEAD_ROWS,
    ):
        super().__init__(source, join, schema, table)
        self._ahead_rows = ahead_rows
        self._held = Sorted(np.empty(0, np.uint64), pa.RecordBatch.from_pylist([], schema))
        self._positions = _NONE
        self._at = 0

    @property
    def pending_rows(self) -> int:
        return len(self._held) - self._at

    @property
    def room(self) -> int:
        return 0 if self.pending_rows else self._ahead_rows

    def offer(self, rows: pa.RecordBatch) -> int:
        count = min(rows.num_rows, self.room)
        if count:
            self._held, self._positions = self.take(rows.slice(0, count))
            self._at = 0
        return count

    def step(self) -> list[pa.RecordBatch]:
        results = self.take_ready()
        if not self.pending_rows:
            return results
        here = slice(self._at, self._at + 1)
        row = self._held.slice(here.start, here.stop)
        self.counters.steps += 1
        results += self.table.answer(int(pages_of(row.keys)[0]), row)
        self.counters.answer(self._positions[here], taken=int(self._positions[self._at]) + 1)
        self._at += 1
        return results


_NONE: Indices = np.empty(0, np.int64)
