"""Choose the pages of a table to read in a batch, and the task that reads each.

By default a batch joins all its rows: every page that some row waits on is read, once, for all of them. With a delay,
pages that few and young rows wait on are left for later, when more rows will share the read. The oldest rows go first,
as in the queue of HYBRIDJOIN (Naeem, Dobbie, Weber 2010, Fig. 5).

Tasks get ranges of order keys (see `model.pages`). Cuts lie between pages if the balance allows it, since a page that
two tasks need is read twice.

The delay has no guaranteed upper bound: a row is due after `max_delay_ms` and is joined in the next batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange
from watersmeet.model.pages import page_range
from watersmeet.schemes.balance import ranges_between

Numbers = npt.NDArray[np.int64]
# Maps a page to the ascending order keys of the rows that wait on it: all, or an even sample.
OrdersOf = Callable[[int], npt.NDArray[np.uint64]]

# A border may miss a task's fair share by this part of it, to avoid reading a page in two tasks.
_BORDER_SLACK = 1 / 8


@dataclass(frozen=True, slots=True)
class PageCounts:
    """The pages that rows wait on, ascending, with the number of rows and the arrival time in ms of the oldest."""

    pages: Numbers
    rows: Numbers
    oldest: Numbers

    def at(self, chosen: npt.NDArray[np.bool_] | Numbers) -> PageCounts:
        """Select some of the pages, by mask or by position."""
        return PageCounts(self.pages[chosen], self.rows[chosen], self.oldest[chosen])


@dataclass(frozen=True, slots=True)
class PagePolicy:
    """How long rows may wait for others that need the same page.

    With a delay of 0 no row waits. Otherwise a page is read when a row has waited for `max_delay_ms`, when `worth_rows`
    wait on it, or when more than `budget_rows` wait in all. A limit of None does not apply.
    """

    max_delay_ms: int = 0
    worth_rows: int | None = None
    budget_rows: int | None = None


def count_pages(runs: Iterable[tuple[Numbers, int]]) -> PageCounts:
    """Count over runs, each given as the ascending pages of its waiting rows and their arrival time.

    >>> counts = count_pages([(np.array([0, 0, 2]), 100), (np.array([0, 5]), 90)])
    >>> counts.pages.tolist(), counts.rows.tolist(), counts.oldest.tolist()
    ([0, 2, 5], [3, 1, 1], [90, 100, 90])
    """
    found = [(*_counted(pages), at_ms) for pages, at_ms in runs if len(pages)]
    if not found:
        return PageCounts(*np.empty((3, 0), np.int64))
    every, place = np.unique(np.concatenate([pages for pages, _, _ in found]), return_inverse=True)
    rows = np.zeros(len(every), np.int64)
    np.add.at(rows, place, np.concatenate([counts for _, counts, _ in found]))
    oldest = np.full(len(every), np.iinfo(np.int64).max)
    times = [np.full(len(pages), at_ms, np.int64) for pages, _, at_ms in found]
    np.minimum.at(oldest, place, np.concatenate(times))
    return PageCounts(every.astype(np.int64), rows, oldest)


def _counted(pages: Numbers) -> tuple[Numbers, Numbers]:
    """The distinct numbers and their counts. The input ascends, so nothing needs to be sorted."""
    starts = np.flatnonzero(np.diff(pages, prepend=-1))
    return pages[starts], np.diff(starts, append=len(pages))


def choose_pages(
    counts: PageCounts,
    policy: PagePolicy,
    *,
    now_ms: int,
    table_pages: int | None = None,
    all_due: bool = False,
) -> Numbers:
    """The pages to read now, ascending. Keys in no page (`table_pages` or above) cost no read and never wait.

    >>> counts = PageCounts(np.array([1, 4, 7]), np.array([3, 900, 5]), np.array([0, 950, 990]))
    >>> choose_pages(counts, PagePolicy(max_delay_ms=500, worth_rows=100), now_ms=1_000).tolist()
    [1, 4]
    """
    if all_due or policy.max_delay_ms <= 0:
        return counts.pages
    chosen = counts.oldest <= now_ms - policy.max_delay_ms
    if table_pages is not None:
        chosen |= counts.pages >= table_pages
    if policy.worth_rows is not None:
        chosen |= counts.rows >= policy.worth_rows
    if policy.budget_rows is not None:
        left = np.flatnonzero(~chosen)
        # Among equally old pages, those with more rows first.
        left = left[np.lexsort((-counts.rows[left], counts.oldest[left]))]
        staying = counts.rows[left].sum() - np.cumsum(counts.rows[left])
        enough = int(np.searchsorted(-staying, -policy.budget_rows)) + 1
        if counts.rows[left].sum() > policy.budget_rows:
            chosen[left[:enough]] = True
    return counts.pages[chosen]


def share_pages(
    counts: PageCounts,
    tasks: int,
    *,
    read_rows: int,
    orders_of: OrdersOf | None = None,
) -> tuple[KeyRange, ...]:
    """A range of order keys for each task. Together they cover all keys, with about equal work.

    Work is the rows, plus `read_rows` for each page. A page with more rows than fit a task is cut: by `orders_of` if
    given, which can cut even the rows of one key, otherwise as if its rows were even over its order keys.

    >>> counts = PageCounts(np.array([3, 8]), np.array([100, 100]), np.array([0, 0]))
    >>> share_pages(counts, 2, read_rows=50) == (KeyRange(0, 4 << 36), KeyRange(4 << 36, KEY_SPACE))
    True
    """
    work = counts.rows + read_rows
    reached = np.cumsum(work)
    bounds = (_bound(counts, work, reached, task, tasks, orders_of) for task in range(1, tasks))
    return ranges_between(itertools.accumulate(bounds, max))


def _bound(
    counts: PageCounts, work: Numbers, reached: Numbers, task: int, tasks: int, orders_of: OrdersOf | None
) -> int:
    if not len(work):
        return KEY_SPACE
    total = int(reached[-1])
    wanted = total * task / tasks
    place = int(np.searchsorted(reached, wanted))
    page, inside = int(counts.pages[place]), wanted - float(reached[place] - work[place])
    slack = _BORDER_SLACK * total / tasks
    behind, keys = int(work[place]) - inside, page_range(page)
    if min(inside, behind) <= slack:
        return keys.low if inside <= behind else keys.high
    share = inside / int(work[place])
    orders = None if orders_of is None else orders_of(page)
    if orders is None or not len(orders):
        return keys.low + int(share * (keys.high - keys.low))
    return int(orders[min(int(share * len(orders)), len(orders) - 1)])
