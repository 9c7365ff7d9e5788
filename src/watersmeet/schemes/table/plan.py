"""A stream against a table: which rows of the stream are joined in a batch, and which task reads which pages.

By default every row is joined in its batch. With a delay rows wait, in the runs that they came in, until their page is
read: because enough rows wait on it, because one has waited long enough, or because too many wait in all. A page is
read for all rows that wait on it. How many are enough follows from measured costs (schemes/table/worth.py).

No row waits beyond a change of the table: a batch that finds another version joins all rows, and the rows of the next
one are located in it. Which rows wait depends on the clock. So a replay must repeat the decisions of an earlier attempt
at its batch, whose results may have reached the sink. Otherwise a sink that is idempotent by batch would lose rows.
Measured costs depend on the clock too, so each plan stores those in force, and the next one starts from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from watersmeet.errors import StateError
from watersmeet.model.facts import Descriptor, Manifest, Run
from watersmeet.model.figures import count, size
from watersmeet.model.pages import page_bounds, pages_of
from watersmeet.model.signature import Order
from watersmeet.schemes.scheme import (
    BatchFacts,
    Keys,
    KeysOf,
    Scheme,
    Serves,
    Share,
    Shown,
    Slice,
    check_ranges,
    share_of,
)
from watersmeet.schemes.table.facts import (
    NEVER,
    Decoding,
    PageCosts,
    PagePlan,
    Reading,
    TableVersion,
    WaitingBatch,
    batches_of,
    stretches_of,
)
from watersmeet.schemes.table.in_place import count_decoding, show_decoding
from watersmeet.schemes.table.pages import (
    OrdersOf,
    PageCounts,
    PagePolicy,
    choose_pages,
    count_pages,
    share_pages,
)
from watersmeet.schemes.table.worth import Measured, bound_worth, choose_worth, estimate_costs, pace_of

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table as a batch finds it: the version that locates its rows, and the bytes of its pages.

    `newest` is the version for the next batch, found at `checked_ms`. With `reads_all` every page is read in every
    batch. `repeated` has the decisions of an earlier attempt at this batch. `measured` is what the process that plans
    has measured of the table; nothing, if it has not joined any rows yet. `copy_folder` is where the sorted copy of
    files that are read in place belongs; empty if there is to be none. With `copy_given_up` it was chosen and cannot be
    made.
    """

    version: TableVersion
    page_bytes: Numbers
    newest: TableVersion
    checked_ms: int
    name: str = ""
    reading: Reading = Reading.HYBRID
    reads_all: bool = False
    repeated: PagePlan | None = None
    measured: Measured = field(default_factory=Measured)
    copy_folder: str = ""
    copy_given_up: bool = False


@dataclass(frozen=True, slots=True)
class TableScheme(Scheme[PagePlan]):
    """Rows of a stream, by the page of a table. Waiting rows take at most about `waiting_bytes`, by their mean size."""

    name: ClassVar[str] = "table"
    plan_type = PagePlan
    serves = Serves.TABLE
    merges: ClassVar[bool] = False
    # What tasks decoded of files that are read in place.
    weighs_tallies: ClassVar[bool] = True
    orders = (Order.PAGE,)

    max_delay_ms: int
    waiting_bytes: int

    def check_located(self, descriptors: Sequence[Descriptor], outside: TableFacts) -> None:
        for descriptor in descriptors:
            if descriptor.table != outside.version.version:
                raise StateError(
                    f"partition {descriptor.partition} of input {descriptor.input} was located in version "
                    f"{descriptor.table} of the table, but the batch is planned with {outside.version.version}. Start "
                    "the query again"
                )

    def carried(
        self, parent: Manifest, live: tuple[Run, ...], keys_of: KeysOf, outside: TableFacts
    ) -> tuple[Run, ...]:
        """The runs that still hold waiting rows."""
        pages = page_plan(parent)
        if pages is None or not pages.waiting_rows:
            return ()
        before = _before(pages, parent.batch.number, outside.version)
        return tuple(run for run in live if waiting_rows(keys_of(run), before, run.batch).any())

    def plan(self, facts: BatchFacts) -> PagePlan:
        table: TableFacts = facts.outside
        parent = facts.plan_before(PagePlan)
        before = _before(parent, facts.batch_before, table.version)
        repeated, arrivals = table.repeated, _arrivals(facts, parent, table.repeated)
        live = (*facts.history, *facts.fresh)
        counts = count_pages(
            (pages[before[pages] < run.batch], arrivals.get(run.batch, 0))
            for run in live
            for pages in [pages_of(facts.keys_of(run))]
        )
        changes = table.newest != table.version
        costs = self._costs(facts, parent)
        policy = self._policy(facts, parent, costs, counts, arrivals, self.waiting_bytes // _row_bytes(live))
        # No row may wait beyond a change of the table, even if a replay brings rows that the attempt did not have.
        if repeated is not None and not changes:
            read = counts.pages[batches_of(repeated.after)[counts.pages] == facts.batch]
        else:
            read = choose_pages(
                counts, policy, now_ms=facts.now_ms, table_pages=table.version.pages, all_due=changes
            )
        chosen = np.isin(counts.pages, read)
        # A page on which no row waits counts as read: then few stretches are stored, however many pages there are.
        after = np.full(len(before), facts.batch, np.int64)
        after[counts.pages[~chosen]] = before[counts.pages[~chosen]]
        waiting = int(counts.rows[~chosen].sum())
        inside = np.arange(table.version.pages) if table.reads_all else read[read < table.version.pages]
        # Also after a restart without a delay: some rows of the old runs have been joined already.
        waits = self.max_delay_ms > 0 or bool(facts.history) or repeated is not None
        # No row of another batch can wait any more. Without this the list would grow with every batch.
        still = {run.batch for run in live} if waiting else set()
        return PagePlan(
            ranges=share_pages(
                counts.at(chosen),
                facts.tasks,
                read_rows=_page_in_rows(costs, facts),
                orders_of=_orders_of(live, before, facts.keys_of),
            ),
            table=table.version,
            next_table=table.newest,
            name=table.name,
            reading=table.reading,
            checked_ms=table.checked_ms,
            before=stretches_of(before) if waits else (),
            after=stretches_of(after) if waits else (),
            arrivals=tuple(
                WaitingBatch(number, at) for number, at in sorted(arrivals.items()) if number in still
            ),
            pages_read=len(inside),
            bytes_read=int(table.page_bytes[inside].sum()),
            waiting_rows=waiting,
            worth_rows=policy.worth_rows or 0,
            costs=costs,
            decoding=_decoding(facts, parent),
        )

    def _costs(self, facts: BatchFacts, parent: PagePlan | None) -> PageCosts | None:
        """The costs in force: those of an attempt that is repeated, or those of the parent with what was measured."""
        table: TableFacts = facts.outside
        if table.repeated is not None:
            return table.repeated.costs
        if self.max_delay_ms <= 0:
            return None
        before = parent.costs if parent else None
        return estimate_costs(table.measured, before, facts.limits.page_read_rows)

    def _policy(
        self,
        facts: BatchFacts,
        parent: PagePlan | None,
        costs: PageCosts | None,
        counts: PageCounts,
        arrivals: dict[int, int],
        budget_rows: int,
    ) -> PagePolicy:
        """The limits of this batch. Until costs are known, a page is worth `page_read_rows` rows."""
        table: TableFacts = facts.outside
        if table.repeated is not None or self.max_delay_ms <= 0:
            worth = table.repeated.worth_rows if table.repeated else 0
            return PagePolicy(self.max_delay_ms, worth or None, budget_rows)
        inside = counts.at(counts.pages < table.version.pages)
        pace = pace_of(
            inside,
            arrivals,
            live_rows=sum(run.rows for run in (*facts.history, *facts.fresh)),
            table_pages=table.version.pages,
            batch=facts.batch,
            now_ms=facts.now_ms,
            delay_ms=self.max_delay_ms,
        )
        if pace is None:
            # No row waits on a page, so the number decides nothing. It is shown.
            worth = (parent.worth_rows if parent else 0) or facts.limits.page_read_rows
        elif costs is None:
            worth = bound_worth(facts.limits.page_read_rows, pace)
        else:
            worth = choose_worth(costs, pace, budget_rows // len(inside.pages))
        return PagePolicy(self.max_delay_ms, max(worth, facts.limits.least_worth_rows), budget_rows)

    def shares(self, plan: PagePlan, inputs: Sequence[str], task: int, tasks: int) -> Iterator[Share]:
        (stream,) = inputs
        yield (share_of(stream, Slice(plan.ranges[task])),)

    @classmethod
    def show(cls, plan: PagePlan, inputs: Sequence[str]) -> Shown:
        """The plan in one line, such as: table p by hybrid: the last batch needed 12 of 888 pages, 6.4 MB."""
        text = f"table {plan.name} by {plan.reading}: the last batch needed {count(plan.pages_read)} of "
        text += f"{count(plan.table.pages)} pages, {size(plan.bytes_read)}"
        if plan.waiting_rows:
            text += f"; {count(plan.waiting_rows)} rows wait"
        if plan.worth_rows:
            text += (
                f"; {count(plan.worth_rows)} waiting rows make a page worth reading ({_shown(plan.costs)})"
            )
        if plan.decoding:
            text += f"; {show_decoding(plan.decoding, plan.table.folder)}"
        return Shown(text)

    def check(self, plan: PagePlan, tasks: int) -> None:
        check_ranges(plan.ranges, tasks)
        for stretches in (plan.before, plan.after):
            pages = sum(stretch.pages for stretch in stretches)
            assert not stretches or pages == plan.table.pages + 1, "a page has no record of its last read"


def page_plan(manifest: Manifest | None) -> PagePlan | None:
    """The plan of a batch of a join with a table; None for any other batch, and for none."""
    plan = manifest.plan.scheme if manifest else None
    return plan if isinstance(plan, PagePlan) else None


def _decoding(facts: BatchFacts, parent: PagePlan | None) -> Decoding | None:
    """The record for this batch of what reading in place has cost; None for a table that never was in place."""
    table: TableFacts = facts.outside
    before = parent.decoding if parent else None
    if before is not None and before.copy_folder == table.version.folder:
        return before
    if not table.copy_folder:
        return None
    counted = count_decoding(
        before,
        facts.tallies,
        copy_folder=table.copy_folder,
        limit_bytes=round(facts.limits.copy_reads * int(table.page_bytes.sum())),
        tasks=facts.tasks,
        batch=facts.batch,
    )
    return replace(counted, is_given_up=counted.is_given_up or table.copy_given_up)


def _shown(costs: PageCosts | None) -> str:
    """
    >>> _shown(PageCosts(1_200.5, 34.0, 0.05, 0.2, 0.01, 500.0))
    'a page costs 1,234 us, a row 0.25 us, waiting for a batch 0.01 us'
    """
    if costs is None:
        return "its cost is not measured yet"
    page, row, wait = (
        f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"
        for cost in (costs.page_us, costs.find_us + costs.row_us, costs.wait_us)
    )
    return f"a page costs {page} us, a row {row} us, waiting for a batch {wait} us"


def _page_in_rows(costs: PageCosts | None, facts: BatchFacts) -> int:
    """The rows that cost as much to join as a page."""
    return round(costs.page_us / (costs.find_us + costs.row_us)) if costs else facts.limits.page_read_rows


def decisions_of(attempt: Manifest | None) -> PagePlan | None:
    """The decisions that a replay must repeat of an earlier attempt at its batch; None if no row can wait."""
    pages = page_plan(attempt)
    return pages if pages and pages.after else None


def table_before(
    parent: Manifest | None, instance: str, given: TableVersion, repeated: PagePlan | None = None
) -> TableVersion:
    """The version that locates the rows of the batch after `parent`.

    A restarted query has checked the table again. But waiting rows are first joined as they were located, and a
    replay uses the version of the attempt that it repeats.
    """
    if repeated is not None:
        return repeated.table
    pages = page_plan(parent)
    if parent is None or pages is None:
        return given
    if parent.instance != instance and not pages.waiting_rows:
        return given
    return pages.next_table


def checked_before(parent: Manifest | None, instance: str) -> int | None:
    """When the table was last looked at, in ms; None if this instance of the join has planned no batch yet."""
    pages = page_plan(parent)
    return pages.checked_ms if pages and parent and parent.instance == instance else None


def tables_used(manifest: Manifest) -> tuple[TableVersion, ...]:
    """The versions of a table that the rows of a batch and of the next one are located in; none without a table."""
    pages = page_plan(manifest)
    return (pages.table, pages.next_table) if pages else ()


def _arrivals(facts: BatchFacts, parent: PagePlan | None, repeated: PagePlan | None) -> dict[int, int]:
    """The planning time of each batch whose rows may still wait."""
    arrivals = {one.batch: one.at_ms for one in parent.arrivals} if parent else {}
    came = {one.batch: one.at_ms for one in repeated.arrivals} if repeated else {}
    arrivals[facts.batch] = came.get(facts.batch, facts.now_ms)
    return arrivals


def waiting_rows(keys: Keys, before: Numbers, batch: int) -> npt.NDArray[np.bool_]:
    """Which rows of a run of this batch, by their order keys, wait on a page that has not been read since."""
    return before[pages_of(keys)] < batch


def _row_bytes(runs: Sequence[Run]) -> int:
    return sum(run.row_bytes for run in runs) // max(1, sum(run.rows for run in runs)) + 1


def _before(parent: PagePlan | None, batch: int | None, table: TableVersion) -> Numbers:
    """For each page, and for keys in no page, the last batch that joined its rows."""
    if parent is None or batch is None:
        return np.full(table.pages + 1, NEVER, np.int64)
    if not parent.after or parent.table != table:
        return np.full(table.pages + 1, batch, np.int64)
    return batches_of(parent.after)


def _orders_of(runs: Sequence[Run], before: Numbers, keys_of: KeysOf) -> OrdersOf:
    def orders(page: int) -> Keys:
        first, last = page_bounds(np.array([page]))
        found = []
        for run in runs:
            keys = keys_of(run)
            low, high = np.searchsorted(keys, first[0]), np.searchsorted(keys, last[0], side="right")
            here = keys[low:high]
            found.append(here[waiting_rows(here, before, run.batch)])
        return np.sort(np.concatenate(found))

    return orders
