"""Choose how many waiting rows make a page worth reading, from measured costs.

Source: Naeem, Dobbie, Weber 2010, equations 2 to 4. A read that serves w rows takes (equation 3)

    c_loop = page + w * row            page: c_IO + D_t * c_H      row: c_O + c_E + c_S + c_A

so a row takes c_loop / w, the inverse of the service rate (equation 4). There the memory fixes w (equation 2), and
reading never pauses. Here w is the threshold of the policy, and a row may wait for others. That is not free: the runs
that hold waiting rows are searched again in every batch, which costs `wait` for each row. With `c` rows for a page in a
batch the first of w rows waits (w - 1) / c batches, and the mean row half of that:

    time per row = page / w + row + wait * (w - 1) / 2c            least at w = sqrt(2 * c * page / wait)

The threshold has two bounds. No page may need more rows than it can expect within the delay: then only the delay would
ever empty the queue. Nor more than its part of the queue's memory, H_t * D_t / R_t (equation 2), counted over the pages
on which rows wait: then only the memory would.

Costs are those of the process that plans, smoothed. Reading, look-ups by key and waiting are timed by themselves. The
rest of a step, in which a task joins many pages, is divided between its pages, its rows and the step itself by least
squares. Steps that all have the same number of rows for each page leave that division open: then it stays as it was.

The model takes all pages as alike. A page that gets more rows than most could wait for more, one that gets fewer for
less. Planning looks at the keys of waiting rows too, and a plan lists the pages on which rows wait: that part of `wait`
is not measured. It shows with thousands of pages on which few rows wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.schemes.table.facts import PageCosts
from watersmeet.schemes.table.pages import PageCounts

# The part of all earlier measurements that remains when one is added: about the last twenty count. Fewer would often
# have the same number of rows for each page, which does not tell the cost of a page from that of a row.
_KEPT = 0.95

# In the division of a step's time, the part of the weight that the costs in force before have: that of about one step.
# Without them, steps that are all alike would have no division.
_TRUST = 0.05

# A batch changes a cost at most by this factor, so that one slow disk or one pause cannot decide the next batches. A
# cost below a microsecond may grow to four at once: pages that were all in memory may have to be read again.
_MOST_CHANGE = 4.0
_SMALL_US = 1.0

# The least cost in microseconds: a clock may be too coarse to see any.
_LEAST_US = 0.001

# Before the first measurement: a row that is joined, one that waits for a batch, and a step beside its pages and rows,
# in microseconds. All were measured with a sorted copy, with thousands of rows in a batch.
_FIRST_ROW_US, _FIRST_WAIT_US, _FIRST_STEP_US = 1.0, 0.1, 500.0

# Rounds in which costs at their bounds are settled: three unknowns need few.
_ROUNDS = 8

_US = 1e6

Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """What a task did at once: the pages that some rows wait on, the rows, and the seconds.

    `read_s` and `find_s` are the seconds of reading pages and of looking up rows by key. `join_s` is the rest.
    """

    pages: int
    rows: int
    read_s: float
    find_s: float
    join_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process has measured of a table: sums over its steps and searches, the latest counting most.

    `products` and `sums` are those of least squares of relative errors, over 1, the pages and the rows of a step, each
    divided by the microseconds of its join.
    """

    products: tuple[float, ...] = (0.0,) * 9
    sums: tuple[float, ...] = (0.0,) * 3
    pages: float = 0.0
    rows: float = 0.0
    read_us: float = 0.0
    find_us: float = 0.0
    wait_us: float = 0.0
    wait_rows: float = 0.0

    def with_step(self, step: Step) -> Measured:
        """Add a step. One without pages, or too short for the clock, is left out."""
        if step.pages <= 0 or step.read_s + step.find_s + step.join_s <= 0:
            return self
        parts = np.array([1, step.pages, step.rows]) / max(step.join_s * _US, _LEAST_US * step.rows)
        return replace(
            self,
            products=tuple((_KEPT * np.array(self.products) + np.outer(parts, parts).ravel()).tolist()),
            sums=tuple((_KEPT * np.array(self.sums) + parts).tolist()),
            pages=_KEPT * self.pages + step.pages,
            rows=_KEPT * self.rows + step.rows,
            read_us=_KEPT * self.read_us + _US * step.read_s,
            find_us=_KEPT * self.find_us + _US * step.find_s,
        )

    def with_wait(self, rows: int, seconds: float) -> Measured:
        """Add the search of earlier batches for rows that are due; `rows` of them waited."""
        if rows <= 0 or seconds <= 0:
            return self
        return replace(
            self,
            wait_us=_KEPT * self.wait_us + seconds * _US,
            wait_rows=_KEPT * self.wait_rows + rows,
        )


def estimate_costs(measured: Measured, before: PageCosts | None, default_page_rows: int) -> PageCosts | None:
    """The costs in force after a measurement, from those before; None if no step was ever measured.

    Before the first measurement a page is taken to cost as much as `default_page_rows` rows, half of it for the read.

    >>> costs, measured = PageCosts(30.0, 50.0, 2.0, 1.0, 0.02, 500.0), Measured()
    >>> for pages, rows in ((10, 100), (10, 9_000), (90, 100)):
    ...     step = Step(pages, rows, 30e-6 * pages, 2e-6 * rows, 1e-6 * (500 + 50 * pages + rows))
    ...     measured = measured.with_step(step)
    >>> estimate_costs(measured, costs, 50) == costs
    True
    """
    if not measured.pages:
        return before
    half = default_page_rows * _FIRST_ROW_US / 2
    old = before or PageCosts(half, half, _LEAST_US, _FIRST_ROW_US, _FIRST_WAIT_US, _FIRST_STEP_US)
    step_us, probe_us, row_us = _fit(measured, np.array([old.step_us, old.probe_us, old.row_us]))
    wait_us = measured.wait_us / measured.wait_rows if measured.wait_rows else old.wait_us
    return PageCosts(
        read_us=_changed(old.read_us, measured.read_us / measured.pages),
        probe_us=probe_us,
        find_us=_changed(old.find_us, measured.find_us / measured.rows),
        row_us=row_us,
        wait_us=_changed(old.wait_us, wait_us),
        step_us=step_us,
    )


def _fit(measured: Measured, old: Amounts) -> list[float]:
    """Costs by least squares around the old ones, each within the bounds of a batch.

    The unknowns are the factors by which the costs change. If one is at its bound, the others are the best beside it.
    """
    products = np.array(measured.products).reshape(3, 3) * np.outer(old, old)
    trust = _TRUST * np.trace(products)
    products, sums = products + trust * np.eye(3), np.array(measured.sums) * old + trust
    factors = _bounded(np.linalg.solve(products, sums))
    for _ in range(_ROUNDS):
        for one in range(3):
            rest = sums[one] - products[one] @ factors + products[one, one] * factors[one]
            factors[one] = _bounded(rest / products[one, one])
    return [_rounded(cost) for cost in (factors * old).tolist()]


def _bounded(factors: npt.ArrayLike) -> Amounts:
    return np.clip(np.asarray(factors, np.float64), 1 / _MOST_CHANGE, _MOST_CHANGE)


def _changed(old_us: float, new_us: float) -> float:
    """A new cost within the bounds of a batch."""
    return _rounded(min(max(new_us, old_us / _MOST_CHANGE), _MOST_CHANGE * max(old_us, _SMALL_US)))


def _rounded(cost_us: float) -> float:
    """Four digits: manifests are read by people."""
    return max(_LEAST_US, float(f"{cost_us:.4g}"))


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows that come to a page in a batch, and the batches of the longest delay; None while that is not known."""

    page_rows: float
    delay_batches: float | None = None

    @property
    def most_rows(self) -> float:
        """The rows that a page can expect within the delay, with the one that waits first."""
        return math.inf if self.delay_batches is None else 1 + self.page_rows * self.delay_batches


def pace_of(
    counts: PageCounts,
    arrivals: Mapping[int, int],
    *,
    live_rows: int,
    table_pages: int,
    batch: int,
    now_ms: int,
    delay_ms: int,
) -> Pace | None:
    """The pace at which rows come; None if no row waits on a page.

    `arrivals` has a time for each batch of which rows still wait, and `live_rows` came in all of them. Rows that are
    spread over the table come to a page as equation 2 has it. Rows that are not come to the pages on which others wait:
    those behind the first of each page are counted, over the batches since. The larger of the two counts.

    >>> import numpy as np
    >>> counts = PageCounts(np.array([3, 8]), np.array([7, 4]), np.array([7_000, 9_000]))
    >>> when = {"batch": 3, "now_ms": 9_000, "delay_ms": 5_000}
    >>> pace_of(counts, {1: 7_000, 3: 9_000}, live_rows=12, table_pages=10, **when)
    Pace(page_rows=2.25, delay_batches=5.0)
    """
    if not len(counts.pages):
        return None
    first = min(arrivals)
    spread = live_rows / (batch - first + 1) / table_pages
    behind = int(counts.rows.sum()) - len(counts.pages)
    passed_ms = now_ms - arrivals[first]
    if first >= batch or passed_ms <= 0:
        return Pace(max(spread, behind / len(counts.pages)))
    batch_ms = passed_ms / (batch - first)
    # The batch that brought the first row counts too.
    batches = float((now_ms - counts.oldest).clip(0).sum()) / batch_ms + len(counts.pages)
    return Pace(max(spread, behind / batches), delay_ms / batch_ms)


def time_per_row_us(costs: PageCosts, worth_rows: float, pace: Pace) -> float:
    """Microseconds of a row if a page is read when this many rows wait on it."""
    served = min(worth_rows, pace.most_rows)
    waited_batches = (served - 1) / (2 * pace.page_rows)
    return costs.page_us / served + costs.find_us + costs.row_us + costs.wait_us * waited_batches


def choose_worth(costs: PageCosts, pace: Pace, most_rows: int) -> int:
    """The rows that make a page worth reading: the fewest with the least time per row, from 1 to `most_rows`.

    >>> costs = [PageCosts(read_us, 50.0, 0.0, 1.0, 0.02, 500.0) for read_us in (10.0, 1_000.0, 1e9)]
    >>> [choose_worth(one, Pace(4.0), 10_000) for one in costs]
    [155, 648, 10000]
    >>> [choose_worth(one, Pace(4.0, delay_batches=10), 10_000) for one in costs]
    [41, 41, 41]
    """
    best = math.sqrt(2 * pace.page_rows * costs.page_us / costs.wait_us)
    most = bound_worth(most_rows, pace)
    candidates = {min(max(1, rows), most) for rows in (1, math.floor(best), math.ceil(best), most)}
    return min(sorted(candidates), key=lambda rows: time_per_row_us(costs, rows, pace))


def bound_worth(rows: int, pace: Pace) -> int:
    """At least 1, and no more rows than a page can expect within the delay."""
    return max(1, rows if pace.most_rows >= rows else math.ceil(pace.most_rows))
