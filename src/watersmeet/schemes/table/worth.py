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

Costs are those of the process that plans, smoothed. A task joins many pages in a step, which has a cost of its own,
`step`. The choice needs neither `row` nor `step`, but without them they would be taken for costs of pages.

The model takes all pages as alike. A page that gets more rows than most could wait for more, one that gets fewer for
less. Planning looks at the keys of waiting rows too; that part of `wait` is not measured.
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

# The costs in force before count as much as this many measurements. Without them a step of the same number of rows for
# each page would leave open which of the two costs has changed.
_TRUST = 1.0

# A batch changes a cost at most by this factor, so that one slow disk or one pause cannot decide the next batches.
_MOST_CHANGE = 4.0

# The least cost in microseconds: a clock may be too coarse to see any.
_LEAST_US = 0.001

# Until they are measured: what a row costs by waiting for a batch, and a step beside its pages and rows. Both were
# measured with a sorted copy, with thousands of rows in a batch.
DEFAULT_WAIT_US, DEFAULT_STEP_US = 0.02, 500.0

# Rounds in which costs at their bounds are settled: three unknowns need few.
_ROUNDS = 8

_US = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """What a process has measured of a table: sums over its steps, the latest counting most.

    A step joins the rows that wait on some pages. `products` and `sums` are those of least squares of relative errors,
    over 1, the pages and the rows of a step, each divided by its microseconds.
    """

    products: tuple[float, ...] = (0.0,) * 9
    sums: tuple[float, ...] = (0.0,) * 3
    wait_us: float = 0.0
    wait_rows: float = 0.0

    def with_step(self, pages: int, rows: int, seconds: float) -> Measured:
        """Add a step. One without pages, or too short for the clock, is left out."""
        if pages <= 0 or seconds <= 0:
            return self
        parts = np.array([1, pages, rows]) / (seconds * _US)
        products = _KEPT * np.array(self.products) + np.outer(parts, parts).ravel()
        sums = _KEPT * np.array(self.sums) + parts
        return replace(self, products=tuple(products.tolist()), sums=tuple(sums.tolist()))

    def with_wait(self, rows: int, seconds: float) -> Measured:
        """Add rows of earlier batches that were searched for those that are due."""
        if rows <= 0 or seconds <= 0:
            return self
        return replace(
            self,
            wait_us=_KEPT * self.wait_us + seconds * _US,
            wait_rows=_KEPT * self.wait_rows + rows,
        )


def estimate_costs(measured: Measured, before: PageCosts | None, default_page_rows: int) -> PageCosts | None:
    """The costs in force after a measurement, from those before; None if no step was ever measured.

    Before the first measurement a page is taken to cost as much as `default_page_rows` rows of a microsecond.

    >>> costs, steps = PageCosts(80.0, 1.0, 0.02, 500.0), Measured()
    >>> for pages, rows in ((10, 100), (10, 9_000), (90, 100)):
    ...     steps = steps.with_step(pages, rows, 1e-6 * (500 + 80 * pages + rows))
    >>> estimate_costs(steps, costs, 50) == costs
    True
    """
    if not any(measured.sums):
        return before
    old = before or PageCosts(float(default_page_rows), 1.0, DEFAULT_WAIT_US, DEFAULT_STEP_US)
    step, page, row = _fit(measured, np.array([old.step_us, old.page_us, old.row_us]))
    wait = measured.wait_us / measured.wait_rows if measured.wait_rows else old.wait_us
    return PageCosts(page, row, _changed(old.wait_us, wait / old.wait_us), step)


def _fit(measured: Measured, old: npt.NDArray[np.float64]) -> list[float]:
    """Costs by least squares around the old ones, each within the bounds of a batch.

    The unknowns are the factors by which the costs change. If one is at its bound, the others are the best beside it.
    """
    products = np.array(measured.products).reshape(3, 3) * np.outer(old, old) + _TRUST * np.eye(3)
    sums = np.array(measured.sums) * old + _TRUST
    factors = np.clip(np.linalg.solve(products, sums), 1 / _MOST_CHANGE, _MOST_CHANGE)
    for _ in range(_ROUNDS):
        for one in range(3):
            rest = sums[one] - products[one] @ factors + products[one, one] * factors[one]
            factors[one] = np.clip(rest / products[one, one], 1 / _MOST_CHANGE, _MOST_CHANGE)
    return [_changed(cost, factor) for cost, factor in zip(old.tolist(), factors.tolist(), strict=True)]


def _changed(old_us: float, factor: float) -> float:
    """A cost within the bounds of a batch, to four digits: manifests are read by people."""
    factor = min(max(factor, 1 / _MOST_CHANGE), _MOST_CHANGE)
    return max(_LEAST_US, float(f"{old_us * factor:.4g}"))


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
    counts: PageCounts, arrivals: Mapping[int, int], *, batch: int, now_ms: int, delay_ms: int
) -> Pace | None:
    """The pace at which rows come, from those that wait; None if no row waits. `arrivals` has a time for each batch.

    >>> import numpy as np
    >>> counts = PageCounts(np.array([3, 8]), np.array([6, 4]), np.array([7_000, 9_000]))
    >>> pace_of(counts, {1: 7_000, 3: 9_000}, batch=3, now_ms=9_000, delay_ms=5_000)
    Pace(page_rows=2.5, delay_batches=5.0)
    """
    if not len(counts.pages):
        return None
    rows, first = int(counts.rows.sum()), min(arrivals)
    passed_ms = now_ms - arrivals[first]
    if first >= batch or passed_ms <= 0:
        return Pace(rows / len(counts.pages))
    batch_ms = passed_ms / (batch - first)
    # The batch that brought the oldest row counts too.
    batches = float((now_ms - counts.oldest).clip(0).sum()) / batch_ms + len(counts.pages)
    return Pace(rows / batches, delay_ms / batch_ms)


def time_per_row_us(costs: PageCosts, worth_rows: float, pace: Pace) -> float:
    """Microseconds of a row if a page is read when this many rows wait on it."""
    served = min(worth_rows, pace.most_rows)
    waited_batches = (served - 1) / (2 * pace.page_rows)
    return costs.page_us / served + costs.row_us + costs.wait_us * waited_batches


def choose_worth(costs: PageCosts, pace: Pace, most_rows: int) -> int:
    """The rows that make a page worth reading: the fewest with the least time per row, from 1 to `most_rows`.

    >>> [choose_worth(PageCosts(page_us, 1.0, 0.02, 500.0), Pace(4.0), 10_000) for page_us in (10.0, 1_000.0, 1e9)]
    [63, 632, 10000]
    >>> choose_worth(PageCosts(1_000.0, 1.0, 0.02, 500.0), Pace(4.0, delay_batches=10), 10_000)
    41
    """
    best = math.sqrt(2 * pace.page_rows * costs.page_us / costs.wait_us)
    most = bound_worth(most_rows, pace)
    candidates = {min(max(1, rows), most) for rows in (1, math.floor(best), math.ceil(best), most)}
    return min(sorted(candidates), key=lambda rows: time_per_row_us(costs, rows, pace))


def bound_worth(rows: int, pace: Pace) -> int:
    """At least 1, and no more rows than a page can expect within the delay."""
    return max(1, rows if pace.most_rows >= rows else math.ceil(pace.most_rows))
