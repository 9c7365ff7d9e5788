"""The next manifest of a join with a table, as a pure function of the parent's and of what the batch brought.

By default all rows of a batch are answered in it, and nothing is left for the next one. With a delay rows wait, in
the runs that they came in, until their page is read: because enough of them wait on it, because one has waited long
enough, or because too much waits. A page is read for all that wait on it.

Nothing waits beyond a change of the table: a batch that finds another version answers all, and the next one is
located in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.errors import StateError
from watersmeet.model.facts import (
    BatchId,
    Descriptor,
    InputTotals,
    JoinSignature,
    Manifest,
    Plan,
    Run,
)
from watersmeet.model.lookup import NEVER, Arrival, PagePlan, TableVersion, batches_of, stretches_of
from watersmeet.model.pages import PAGE_SHIFT
from watersmeet.plan.batch import count_arrived, gaps_after
from watersmeet.plan.census import Keys, KeysOf
from watersmeet.plan.compatible import check_compatible
from watersmeet.plan.pages import OrdersOf, PagePolicy, choose_pages, count_pages, share_pages

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table as a batch finds it: the version that its rows are located in and the bytes of its pages.

    `newest` is the version that the next batch shall use, looked for at `checked_ms`. `reads_all`: every page is read in
    every batch, needed or not.
    """

    version: TableVersion
    page_bytes: Numbers
    newest: TableVersion
    checked_ms: int
    name: str = ""
    strategy: str = ""
    reads_all: bool = False


def decisions_of(attempt: Manifest | None) -> PagePlan | None:
    """What a replay must repeat of an earlier attempt at its batch: which rows wait depends on the clock.

    Results of the attempt may have reached the sink. If the replay emitted other rows, a sink that is idempotent by
    batch would lose those that only the replay has. Where no row can wait there is nothing to repeat.
    """
    pages = attempt.plan.pages if attempt else None
    return pages if pages is not None and pages.after else None


def table_before(
    parent: Manifest | None, instance: str, given: TableVersion, repeated: PagePlan | None = None
) -> TableVersion:
    """The version that the rows of the batch after `parent` are located in.

    A query that was started again has looked at the table anew; but what waits is first answered as it was located, and
    a replay uses the version of the attempt that it repeats.
    """
    if repeated is not None:
        return repeated.table
    if parent is None or parent.plan.pages is None:
        return given
    if parent.instance != instance and not parent.plan.pages.waiting_rows:
        return given
    return parent.plan.pages.next_table


def plan_lookup(
    batch: BatchId,
    parent: Manifest | None,
    descriptors: Sequence[Descriptor],
    *,
    signature: JoinSignature,
    instance: str,
    run_seq: int,
    table: TableFacts,
    policy: PagePolicy,
    waiting_bytes: int,
    tasks: int,
    now_ms: int,
    keys_of: KeysOf,
    repeated: PagePlan | None = None,
) -> Manifest:
    """Rows that wait take at most `waiting_bytes`, as far as the mean size of a row tells.

    A replay of an attempt that may have reached the sink gets its decisions as `repeated`, and reads the same pages.
    """
    _check_version(descriptors, table.version)
    before = _before(parent, table.version)
    arrivals = (
        {one.batch: one.at_ms for one in parent.plan.pages.arrivals} if parent and parent.plan.pages else {}
    )
    came = {one.batch: one.at_ms for one in repeated.arrivals} if repeated else {}
    arrivals[batch.number] = came.get(batch.number, now_ms)
    history: tuple[Run, ...] = ()
    if parent is not None:
        check_compatible(parent.signature, signature)
        if parent.plan.pages is not None and parent.plan.pages.waiting_rows:
            history = tuple(run for run in parent.live if waiting_rows(keys_of(run), before, run.batch).any())
    fresh = tuple(run for descriptor in descriptors for run in descriptor.runs)
    live = (*history, *fresh)
    counts = count_pages(
        (_page_numbers(keys[waiting_rows(keys, before, run.batch)]), arrivals.get(run.batch, 0))
        for run in live
        for keys in [keys_of(run)]
    )
    changes = table.newest != table.version
    policy = replace(policy, budget_rows=waiting_bytes // _row_bytes(live))
    # Nothing may wait beyond a change of the table, also where a replay brings rows that the attempt did not have.
    if repeated is not None and not changes:
        read = counts.pages[batches_of(repeated.after)[counts.pages] == batch.number]
    else:
        read = choose_pages(counts, policy, now_ms=now_ms, table_pages=table.version.pages, all_due=changes)
    chosen = np.isin(counts.pages, read)
    after = before.copy()
    after[read] = batch.number
    waiting = int(counts.rows[~chosen].sum())
    inside = read[read < table.version.pages]
    if table.reads_all:
        inside = np.arange(table.version.pages)
    # Also where rows wait no longer, since a start without a delay: of the runs that they came in some are answered.
    waits = policy.max_delay_ms > 0 or bool(history) or repeated is not None
    # Of others no row can wait any more; the list would grow with every batch.
    still = {run.batch for run in live}
    pages = PagePlan(
        table=table.version,
        next_table=table.newest,
        name=table.name,
        strategy=table.strategy,
        checked_ms=table.checked_ms,
        before=stretches_of(before) if waits else (),
        after=stretches_of(after) if waits else (),
        arrivals=tuple(Arrival(number, at) for number, at in sorted(arrivals.items()) if number in still)
        if waiting
        else (),
        pages_read=len(inside),
        bytes_read=int(table.page_bytes[inside].sum()),
        waiting_rows=waiting,
    )
    return Manifest(
        batch=batch,
        run_seq=run_seq,
        instance=instance,
        parent=None if parent is None else parent.batch,
        signature=signature,
        history=history,
        fresh=fresh,
        merges=(),
        plan=Plan(
            ranges=share_pages(counts.at(chosen), tasks, orders_of=_orders_of(live, before, keys_of)),
            pages=pages,
        ),
        totals=_totals(parent, descriptors, signature),
        arrived=count_arrived(descriptors),
        gaps=gaps_after(parent, batch),
        written_ms=now_ms,
    )


def waiting_rows(keys: Keys, before: Numbers, batch: int) -> npt.NDArray[np.bool_]:
    """Which rows of a run of this batch, by their order keys, wait on a page that was not read since."""
    return before[_page_numbers(keys)] < batch


def _page_numbers(keys: Keys) -> Numbers:
    return (keys >> np.uint64(PAGE_SHIFT)).astype(np.int64)


def _row_bytes(runs: Sequence[Run]) -> int:
    return sum(run.row_bytes for run in runs) // max(1, sum(run.rows for run in runs)) + 1


def _check_version(descriptors: Sequence[Descriptor], table: TableVersion) -> None:
    for descriptor in descriptors:
        if descriptor.table != table.version:
            raise StateError(
                f"partition {descriptor.partition} of input {descriptor.input} was located in version "
                f"{descriptor.table} of the table, the batch is planned with {table.version}. Start the query again"
            )


def _before(parent: Manifest | None, table: TableVersion) -> Numbers:
    """For each page, and for what is nowhere, the last batch in which it was answered."""
    pages = parent.plan.pages if parent else None
    if parent is None or pages is None:
        return np.full(table.pages + 1, NEVER, np.int64)
    if not pages.after or pages.table != table:
        return np.full(table.pages + 1, parent.batch.number, np.int64)
    return batches_of(pages.after)


def _orders_of(runs: Sequence[Run], before: Numbers, keys_of: KeysOf) -> OrdersOf:
    def orders(page: int) -> Keys:
        bounds = np.array([page << PAGE_SHIFT, ((page + 1) << PAGE_SHIFT) - 1], np.uint64)
        found = []
        for run in runs:
            keys = keys_of(run)
            low, high = np.searchsorted(keys, bounds[0]), np.searchsorted(keys, bounds[1], side="right")
            here = keys[low:high]
            found.append(here[waiting_rows(here, before, run.batch)])
        return np.sort(np.concatenate(found))

    return orders


def _totals(
    parent: Manifest | None, descriptors: Sequence[Descriptor], signature: JoinSignature
) -> dict[str, InputTotals]:
    name = signature.inputs[0].name
    old = (parent.totals if parent else {}).get(name, InputTotals())
    return {
        name: InputTotals(
            rows=old.rows + sum(run.rows for d in descriptors for run in d.runs),
            null_rows=old.null_rows + sum(d.null_rows for d in descriptors),
            absent_rows=old.absent_rows + sum(d.absent_rows for d in descriptors),
        )
    }
