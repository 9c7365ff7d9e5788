"""Rows wait for as much company as the measured costs of their table make worth it.

The clock stands still, except while a page is read: so a table is as slow as a test says, and nothing else costs time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.life import Clock, restarted
from watersmeet import table
from watersmeet.engine.operator import _KEPT
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.log.status import read_status
from watersmeet.model.limits import DEFAULT_LIMITS, Limits
from watersmeet.schemes.table.buffer import PageBuffer
from watersmeet.schemes.table.facts import PagePlan
from watersmeet.tables.sorted_copy import OpenSortedCopy

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
PAGES, PAGE_ROWS = 10, 4
DELAY_S = 500.0
FAST_S, SLOW_S = 1e-7, 0.05


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TickingClock:
    """A clock that goes on by `read_s` for each page. No page stays in memory, so each use is a read."""
    clock, read = TickingClock(), OpenSortedCopy.read

    def timed(self, page, columns):
        clock.now += clock.read_s
        return read(self, page, columns)

    monkeypatch.setattr(OpenSortedCopy, "read", timed)
    monkeypatch.setattr(PageBuffer, "put", lambda self, number, page, **_: False)
    return clock


class TickingClock(Clock):
    read_s = 0.0


def start(folder: Path, clock: Clock, limits: Limits = DEFAULT_LIMITS) -> LocalJoin:
    keys = np.arange(PAGES * PAGE_ROWS)
    pq.write_table(pa.table([keys, keys], schema=SCHEMA), folder / "table.parquet")
    return LocalJoin(
        {"s": SCHEMA, "t": table(folder / "table.parquet", key="k", page_rows=PAGE_ROWS, in_place=False)},
        on="s.k = t.k",
        select=["s.x", "t.x AS y"],
        state=str(folder / "state"),
        tasks=1,
        max_delay=DELAY_S,
        settings=Settings(state=str(folder / "state"), tasks=1, limits=limits),
        clock=clock,
    )


def plan_of(join: LocalJoin) -> PagePlan:
    files = LocalFiles(Path(join.state) / join.name / join.query)
    plan = read_manifest(files, list_manifests(files)[-1]).plan.scheme
    assert isinstance(plan, PagePlan)
    return plan


def batch_of(number: int, rows: int = 1) -> pa.Table:
    """Rows for every page."""
    keys = np.repeat(np.arange(PAGES) * PAGE_ROWS, rows)
    return pa.table([keys, number * 1_000 + np.arange(len(keys))], schema=SCHEMA)


def run(join: LocalJoin, clock: Clock, batches: int, first: int = 0) -> list[PagePlan]:
    plans = []
    for number in range(first, first + batches):
        clock.now += 1
        join.batch(s=batch_of(number))
        plans.append(plan_of(join))
    return plans


def test_rows_wait_for_more_company_if_the_table_is_slow(tmp_path, clock):
    settled = {}
    for name, read_s in (("fast", FAST_S), ("slow", SLOW_S)):
        clock.read_s = read_s
        folder = tmp_path / name
        folder.mkdir()
        # Until a page is read nothing is known of the table: 60 rows for each make every page worth a read.
        join = start(folder, clock)
        clock.now += 1
        join.batch(s=batch_of(0, 60))
        plans = run(join, clock, 100, first=1)
        settled[name] = plans[-1].worth_rows, sum(plan.pages_read for plan in plans[20:])
        assert plans[-1].costs is not None
        assert plans[-1].costs.read_us == pytest.approx(1e6 * read_s, rel=0.01)
    (fast_rows, fast_reads), (slow_rows, slow_reads) = settled["fast"], settled["slow"]
    assert fast_rows < DEFAULT_LIMITS.page_read_rows < slow_rows
    assert slow_reads < fast_reads / 2


def test_a_table_that_becomes_slow_is_noticed_in_a_few_batches(tmp_path, clock):
    clock.read_s = FAST_S
    join = start(tmp_path, clock)
    clock.now += 1
    join.batch(s=batch_of(0, 60))
    before = run(join, clock, 30, first=1)[-1]
    clock.read_s = SLOW_S
    after = run(join, clock, 30, first=31)[-1]
    assert after.worth_rows > 2 * before.worth_rows


def test_until_a_page_was_read_the_default_counts(tmp_path, clock):
    clock.read_s = SLOW_S
    join = start(tmp_path, clock)
    (plan,) = run(join, clock, 1)
    assert (plan.worth_rows, plan.costs, plan.waiting_rows) == (DEFAULT_LIMITS.page_read_rows, None, PAGES)
    clock.now += 1
    assert len(join.batch(s=batch_of(1, DEFAULT_LIMITS.page_read_rows))) == PAGES * 51


def test_a_process_that_has_measured_nothing_goes_on_with_the_costs_of_the_plan_before(tmp_path, clock):
    clock.read_s = SLOW_S
    join = start(tmp_path, clock)
    join.batch(s=batch_of(0, 60))
    before = run(join, clock, 20, first=1)[-1]
    assert before.costs is not None
    # Another process has nothing of this one's memory.
    _KEPT.clear()
    again = restarted(join)
    (plan,) = run(again, clock, 1, first=21)
    assert plan.costs == before.costs
    assert plan.worth_rows == pytest.approx(before.worth_rows, abs=1)


def test_a_replay_repeats_its_decisions_whatever_was_measured_since(tmp_path, clock):
    """The first attempt knew a slow table, and made rows wait. The replay knows nothing, and the table is fast."""
    clock.read_s = SLOW_S
    join = start(tmp_path, clock)
    join.batch(s=batch_of(0, 60))
    run(join, clock, 20, first=1)
    rows = batch_of(21, 3)
    clock.now += 1
    first = Counter(join.batch(s=rows).column("x").to_pylist())
    plan = plan_of(join)
    for read_s in (FAST_S, 100 * SLOW_S):
        clock.read_s = read_s
        clock.now += 1
        _KEPT.clear()
        join = restarted(join, at=21)
        assert Counter(join.batch(s=rows).column("x").to_pylist()) == first
        found = plan_of(join)
        assert (found.costs, found.worth_rows, found.after) == (plan.costs, plan.worth_rows, plan.after)


def test_no_row_is_lost_or_repeated_while_costs_change(tmp_path, clock):
    rng = np.random.default_rng(3)
    join = start(tmp_path, clock)
    found: Counter[int] = Counter()
    for number in range(30):
        clock.read_s = 10 ** rng.uniform(-6, 0)
        clock.now += 1
        found += Counter(join.batch(s=batch_of(number, int(rng.integers(0, 30)))).column("x").to_pylist())
    sent = found.total() + plan_of(join).waiting_rows
    clock.now += DELAY_S
    found += Counter(join.batch(s=batch_of(0, 0)).column("x").to_pylist())
    assert plan_of(join).waiting_rows == 0
    assert found.total() == sent and max(found.values()) == 1


@pytest.mark.parametrize("least", [1, 7])
def test_no_page_is_worth_reading_for_fewer_rows_than_the_limit(tmp_path, clock, least):
    """A fast table, and rows that come so seldom that they do not wait for others."""
    clock.read_s = FAST_S
    join = start(tmp_path, clock, replace(DEFAULT_LIMITS, least_worth_rows=least))
    clock.now += 1
    join.batch(s=batch_of(0, 60))
    for number in range(1, 20):
        clock.now += 100
        join.batch(s=batch_of(number).slice(number % PAGES, 1))
    plan = plan_of(join)
    assert plan.worth_rows == least
    assert (plan.waiting_rows > 0) == (least > 1)


def test_a_plan_is_short_where_few_rows_wait(tmp_path, clock):
    """However many pages were read in however many batches."""
    join = start(tmp_path, clock)
    for number in range(12):
        clock.now += 1
        page = 7 * number % PAGES
        rows = pa.table([[page * PAGE_ROWS] * 60, range(60)], schema=SCHEMA)
        assert len(join.batch(s=rows)) == 60
        assert len(plan_of(join).after) == 1
    clock.now += 1
    join.batch(s=pa.table([[4 * PAGE_ROWS], [0]], schema=SCHEMA))
    assert [(one.pages, one.batch) for one in plan_of(join).after] == [(4, 12), (1, 11), (6, 12)]


def test_without_a_delay_nothing_is_stored_of_costs(tmp_path, clock):
    clock.read_s = SLOW_S
    join = replace(start(tmp_path, clock), max_delay=0.0)
    assert [(plan.worth_rows, plan.costs) for plan in run(join, clock, 3)] == 3 * [(0, None)]


def test_the_status_says_what_a_page_costs_and_how_many_rows_make_it_worth_reading(tmp_path, clock):
    clock.read_s = SLOW_S
    join = start(tmp_path, clock)
    join.batch(s=batch_of(0, 3))
    assert "10 pages" in shown(join)
    assert shown(join).endswith(
        "30 rows wait; 50 waiting rows make a page worth reading (its cost is not measured yet)"
    )
    clock.now += 1
    join.batch(s=batch_of(1, 60))
    plan = run(join, clock, 20, first=2)[-1]
    assert plan.costs is not None
    assert f"; {plan.worth_rows:,} waiting rows make a page worth reading (a page costs " in shown(join)
    assert f"a page costs {plan.costs.page_us:,.0f} us, a row " in shown(join)


def shown(join: LocalJoin) -> str:
    (found,) = read_status(join.state).joins
    assert found.shown is not None
    return found.shown.summary
