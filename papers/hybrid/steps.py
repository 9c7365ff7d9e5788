"""What the step machines of `joins.py` share: the protocol, the counters, the table's side, the taking of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import UsageError
from watersmeet.kernel.keys import Indices
from watersmeet.kernel.lookup import LookupJoin, Page, open_page
from watersmeet.kernel.pages import homes, needed_pages, page_orders
from watersmeet.kernel.rows import Sorted, take_rows
from watersmeet.model.pages import PageIndex, pages_of
from watersmeet.schemes.table.buffer import PageBuffer


class PageSource(Protocol):
    """A table in pages."""

    @property
    def index(self) -> PageIndex: ...

    def read(self, page: int) -> pa.RecordBatch: ...


class StepJoin(Protocol):
    """What the three have in common: rows are offered, and steps are made as long as something waits."""

    counters: Counters

    @property
    def pending_rows(self) -> int: ...

    @property
    def room(self) -> int:
        """Rows that would be taken now."""

    def offer(self, rows: pa.RecordBatch) -> int:
        """Take rows from the front of the batch; says how many."""

    def end(self) -> None:
        """No more rows will come."""

    def step(self) -> list[pa.RecordBatch]:
        """One iteration: its results. Without anything to do it does nothing."""


@dataclass
class Counters:
    """`steps` are turns to the table, `reads` pages read, by page. `waited` adds up, over the rows answered, how many
    rows were taken between a row and its answer. `last` are the stream positions of the rows answered last.
    """

    reads: npt.NDArray[np.int64]
    steps: int = 0
    taken: int = 0
    answered: int = 0
    waited: int = 0
    last: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    def answer(self, positions: Indices, taken: int | None = None) -> None:
        """Rows at some positions are answered, when `taken` rows were taken: by default all that were."""
        self.answered += len(positions)
        self.waited += int((self.taken if taken is None else taken) * len(positions) - positions.sum())
        self.last = positions


class TableSide:
    """Pages on demand, counted, and the join of rows with them."""

    def __init__(
        self,
        source: PageSource,
        join: LookupJoin,
        counters: Counters,
        table: pa.Schema | None,
        buffer: PageBuffer[Page] | None,
    ):
        if join.left and table is None:
            raise UsageError("a left join needs the table's schema, for rows without a match")
        by_table = {right: left for left, right in join.verify}
        self.index = source.index
        self.keys = [by_table[key] for key in self.index.keys]
        self.join = join
        self.schema = table if table is not None else pa.schema([])
        self.homes = homes(self.index)
        self._source = source
        self._counters = counters
        self._buffer = buffer
        self._continues = self.index.continues

    def orders(self, rows: pa.RecordBatch, first: int) -> npt.NDArray[np.uint64]:
        places = np.arange(first, first + rows.num_rows, dtype=np.uint64)
        return page_orders(self.index, rows.select(self.keys), places)

    def page(self, number: int) -> Page:
        held = self._buffer.get(number) if self._buffer is not None else None
        if held is not None:
            return held
        self._counters.reads[number] += 1
        page = open_page(number, self._source.read(number), self.index.keys, int(self.homes[number]))
        if self._buffer is not None:
            self._buffer.put(number, page, bytes=page.bytes)
        return page

    def answer(self, page: int, pending: Sorted) -> list[pa.RecordBatch]:
        """All results of rows that are at home in a page."""
        numbers = [page]
        if self._continues[page]:
            numbers = needed_pages(self.index, pending.keys, pending.rows.select(self.keys)).tolist()
        return list(self.join.results(pending, map(self.page, numbers), self.schema))

    def without_match(self, rows: Sorted) -> list[pa.RecordBatch]:
        """The results of rows whose keys are in no page: in a left join they come out with nulls."""
        return list(self.join.results(rows, (), self.schema))


class Steps:
    """What is the same for all: taking rows, and answering at once those whose keys are in no page."""

    def __init__(
        self,
        source: PageSource,
        join: LookupJoin,
        schema: pa.Schema,
        table: pa.Schema | None = None,
        buffer: PageBuffer[Page] | None = None,
    ):
        self.counters = Counters(np.zeros(len(source.index), np.int64))
        self.table = TableSide(source, join, self.counters, table, buffer)
        self.schema = schema
        self.ready: list[pa.RecordBatch] = []
        self.ended = False

    def end(self) -> None:
        self.ended = True

    def take(self, rows: pa.RecordBatch) -> tuple[Sorted, Indices]:
        """Number and locate rows; those that some page can hold, in their order, with their positions."""
        rows = rows.select(self.schema.names).cast(self.schema)
        first = self.counters.taken
        orders = self.table.orders(rows, first)
        self.counters.taken += rows.num_rows
        inside = pages_of(orders) < len(self.table.index)
        if inside.all():
            return Sorted(orders, rows), np.arange(first, first + rows.num_rows)
        outside, kept = np.flatnonzero(~inside), np.flatnonzero(inside)
        self.ready += self.table.without_match(Sorted(orders[outside], take_rows(rows, outside)))
        self.counters.answer(outside + first)
        return Sorted(orders[kept], take_rows(rows, kept)), kept + first

    def take_ready(self) -> list[pa.RecordBatch]:
        ready, self.ready = self.ready, []
        return ready
