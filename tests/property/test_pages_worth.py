"""When a page is worth reading: the choice against the paper's equations, and costs as they are measured."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.hybrid.equations import CostConstants, Sizes, average_input, service_rate
from watersmeet.schemes.table import worth
from watersmeet.schemes.table.facts import PageCosts
from watersmeet.schemes.table.pages import PageCounts
from watersmeet.schemes.table.worth import Measured, Pace, Step, estimate_costs, pace_of

MOST_ROWS = 300
DEFAULT_PAGE_ROWS = 50


@st.composite
def costs(draw: st.DrawFn) -> PageCosts:
    """Each over several powers of ten, so that the best number of rows is often between the bounds."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    read, probe, find, row = (10 ** rng.uniform(-1, 4) for _ in range(4))
    return PageCosts(read, probe, find, row, 10 ** rng.uniform(-2, 2), 500.0)


@st.composite
def paces(draw: st.DrawFn) -> Pace:
    rng = random.Random(draw(st.integers(0, 2**32)))
    return Pace(10 ** rng.uniform(-2, 2), rng.choice([None, 10 ** rng.uniform(-1, 2)]))


def row_seconds(found: PageCosts, rows: int, pace: Pace) -> float:
    """The time of a row by equations 2 to 4, for a table of a hundred pages with ten rows each.

    All rows that wait are read from their runs in each batch, so c_S is paid for each batch of the wait. By Little's
    law that is the mean queue over the rows that come in a batch. The queue is full when all pages but the last row
    are there (equation 2), and half full on average.
    """
    pages, page_rows = 100, 10
    sizes = Sizes(stream_bytes=1, table_bytes=1, table_rows=pages * page_rows)
    served = float(rows)
    if pace.delay_batches is not None:
        served = min(served, 1 + pace.page_rows * pace.delay_batches)
    queue = (served - 1) * pages
    assert average_input(queue, page_rows, sizes.table_rows, k=1) == pytest.approx(served - 1)
    batches = queue / 2 / (pace.page_rows * pages)
    constants = CostConstants(
        seek_ns=1_000 * found.read_us,
        byte_ns=0,
        probe_ns=1_000 * found.probe_us / page_rows,
        output_ns=1_000 * (found.row_us + found.find_us),
        remove_ns=0,
        stream_ns=1_000 * found.wait_us * batches,
        append_ns=0,
    )
    return 1 / service_rate(constants, page_rows, sizes, served)


@given(costs(), paces(), st.integers(0, MOST_ROWS))
def test_no_number_of_rows_takes_less_time_by_the_equations(found, pace, most):
    chosen = worth.choose_worth(found, pace, most)
    times = {rows: row_seconds(found, rows, pace) for rows in range(1, max(1, most) + 1)}
    assert times[chosen] <= min(times.values()) * (1 + 1e-9)
    # Of equals the fewest: rows do not wait for nothing.
    assert all(times[rows] > times[chosen] * (1 - 1e-9) for rows in range(1, chosen))


@given(costs(), paces(), st.integers(0, MOST_ROWS))
def test_a_page_needs_a_row_and_no_more_than_can_come_or_wait(found, pace, most):
    chosen = worth.choose_worth(found, pace, most)
    assert 1 <= chosen <= max(1, most)
    if pace.delay_batches is not None:
        # One more than comes on average would be left to the delay.
        assert chosen < 2 + pace.page_rows * pace.delay_batches


@given(costs(), paces(), st.floats(1, 1_000))
def test_a_slower_page_is_worth_as_many_rows_or_more(found, pace, factor):
    slower = PageCosts(
        found.read_us * factor, found.probe_us, found.find_us, found.row_us, found.wait_us, found.step_us
    )
    chosen = [worth.choose_worth(one, pace, 1 << 40) for one in (found, slower)]
    assert chosen == sorted(chosen)


def step_of(true: PageCosts, pages: int, rows: int, noise: float = 1.0) -> Step:
    joining = true.step_us + true.probe_us * pages + true.row_us * rows
    return Step(pages, rows, 1e-6 * true.read_us * pages, 1e-6 * true.find_us * rows, 1e-6 * noise * joining)


@given(costs(), st.floats(0, 3), st.floats(-1, 1), st.integers(0, 2**32))
def test_costs_are_found_where_steps_differ(drawn, probe, row, seed):
    """From the defaults, with steps of one row or a thousand for each page and a little noise."""
    true = replace(drawn, probe_us=10**probe, row_us=10**row)
    rng = np.random.default_rng(seed)
    measured, found = Measured(), None
    for _ in range(60):
        pages = int(10 ** rng.uniform(0, 3))
        step = step_of(true, pages, int(pages * 10 ** rng.uniform(0, 3)), rng.uniform(0.98, 1.02))
        measured = measured.with_step(step).with_wait(1_000, 1e-3 * true.wait_us)
        found = estimate_costs(measured, found, DEFAULT_PAGE_ROWS)
    assert found is not None
    for name in ("read_us", "find_us", "wait_us"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.01)
    # What is a small part of every step cannot be told from noise, but then it does not count either.
    for pages, rows in ((10, 10), (10, 1_000), (1_000, 100_000)):
        expected, got = (step_of(one, pages, rows).join_s for one in (true, found))
        assert got == pytest.approx(expected, rel=0.3)


def test_steps_that_are_all_alike_change_what_takes_most_of_their_time():
    """Ten rows for each page, a hundred times slower than before: the division stays open, the sum does not."""
    found: PageCosts | None = PageCosts(10.0, 40.0, 0.001, 1.0, 0.02, 500.0)
    measured = Measured()
    for _ in range(60):
        measured = measured.with_step(Step(100, 1_000, 0.001, 0.0, 0.55))
        found = estimate_costs(measured, found, DEFAULT_PAGE_ROWS)
    assert found is not None
    assert step_of(found, 100, 1_000).join_s == pytest.approx(0.55, rel=0.01)
    assert found.probe_us > 1_000 and found.row_us < 0.1 * found.probe_us


@given(costs(), costs(), st.integers(1, 1_000), st.integers(1, 100_000))
def test_one_measurement_changes_no_cost_beyond_its_bounds(before, other, pages, rows):
    measured = Measured().with_step(step_of(other, pages, rows, 1e6)).with_wait(rows, 1e6)
    after = estimate_costs(measured, before, DEFAULT_PAGE_ROWS)
    assert after is not None
    for name in PageCosts.__dataclass_fields__:
        old, new = getattr(before, name), getattr(after, name)
        assert 0.99 * old / 4 <= new <= 4.04 * max(old, 1.0)


def test_nothing_measured_leaves_the_costs_as_they_were():
    old = PageCosts(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    idle = (
        Measured().with_step(Step(0, 5, 1.0, 0.0, 1.0)).with_step(Step(5, 5, 0.0, 0.0, 0.0)).with_wait(5, 0.0)
    )
    assert idle == Measured()
    assert estimate_costs(idle, old, DEFAULT_PAGE_ROWS) == old
    assert estimate_costs(idle, None, DEFAULT_PAGE_ROWS) is None


@given(
    st.integers(1, 30), st.integers(1, 200), st.integers(1, 40), st.integers(100, 5_000), st.integers(1, 9)
)
def test_a_steady_stream_has_its_own_pace(pages, rows, batches, batch_ms, part):
    """The same rows for each page in each batch, and none joined yet: on all pages of the table, or on part of them."""
    times = {number: 7_000 + number * batch_ms for number in range(batches)}
    counts = PageCounts(np.arange(pages), np.full(pages, rows * batches), np.full(pages, times[0], np.int64))
    pace = pace_of(
        counts,
        times,
        live_rows=pages * rows * batches,
        table_pages=pages * part,
        batch=batches - 1,
        now_ms=times[batches - 1],
        delay_ms=60_000,
    )
    assert pace is not None
    # The first row of each page says nothing of those that follow it, unless rows come to all pages.
    least = rows if part == 1 else rows - 1 / batches
    assert (1 - 1e-9) * least <= pace.page_rows <= (1 + 1e-9) * rows
    assert pace.delay_batches == (None if batches == 1 else pytest.approx(60_000 / batch_ms))
    assert pace.most_rows == (
        math.inf if batches == 1 else pytest.approx(1 + pace.page_rows * 60_000 / batch_ms)
    )


def test_rows_that_seldom_share_a_page_are_not_taken_for_company():
    """A row for one in a hundred pages in each batch: one alone on its page is no sign of another."""
    batches, pages, table_pages = 20, 30, 3_000
    oldest = np.repeat(np.arange(batches) * 1_000, pages)
    counts = PageCounts(np.arange(batches * pages), np.ones(batches * pages, np.int64), oldest)
    pace = pace_of(
        counts,
        {number: number * 1_000 for number in range(batches)},
        live_rows=batches * pages,
        table_pages=table_pages,
        batch=batches - 1,
        now_ms=(batches - 1) * 1_000,
        delay_ms=30_000,
    )
    assert pace == Pace(pytest.approx(0.01), 30.0)
