"""When debts are paid on the local driver: in time with `pay_within`, and as there is time with `defer`."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.life import (
    Clock,
    Row,
    ask_duckdb,
    batch_of,
    manifests,
    newest,
    restarted,
    run_batch,
    run_through,
    start,
)
from watersmeet.engine import operator as engine
from watersmeet.engine.payment import Debts
from watersmeet.errors import UsageError
from watersmeet.local.join import LocalJoin
from watersmeet.model.facts import Manifest
from watersmeet.model.limits import Limits
from watersmeet.plan.pushes import owing
from watersmeet.schemes.budget.facts import PAID, BudgetPlan
from watersmeet.schemes.budget.policy import Pushing, PushPolicy

SCHEMA = pa.schema({"k": pa.int64(), "id": pa.int64()})
KEYS = 24
NOTHING: dict[str, Any] = {"l": [], "r": []}


class Life:
    """A join of two streams, its rows and its results. A batch has `copies` rows of each key."""

    def __init__(self, state: Path, keys: int = KEYS, copies: int = 1, **how: Any) -> None:
        self.clock, self.keys, self.copies = Clock(), keys, copies
        self.join: LocalJoin = start(
            SCHEMA,
            state,
            select=["l.id AS l", "r.id AS r"],
            settings={"limits": Limits(min_part_rows=100, clean_every_batches=4, **how.pop("limits", {}))},
            pushing=how.pop("pushing", Pushing(groups=12)),
            clock=self.clock,
            **how,
        )
        self.state = state
        self.results: Counter[Row] = Counter()
        self.rows: list[pa.Table] = []

    def batch(self, later_s: float = 1.0, keys: int | None = None) -> BudgetPlan:
        """Run a batch with rows of all keys, or of some."""
        number = self.join.number
        found = [key for key in range(self.keys if keys is None else keys) for _ in range(self.copies)]
        mine = pa.table([found, [1000 * number + place for place in range(len(found))]], schema=SCHEMA)
        self.rows.append(mine)
        return self._run({"l": [mine], "r": [mine]}, later_s)

    def idle(self, later_s: float = 1.0) -> BudgetPlan:
        """Run a batch without rows, as the source of beats starts it."""
        return self._run(NOTHING, later_s)

    def _run(self, parts: dict[str, Any], later_s: float) -> BudgetPlan:
        self.clock.now += later_s
        self.results += run_batch(self.join, parts)
        plan = newest(self.state).plan.scheme
        assert isinstance(plan, BudgetPlan)
        return plan

    def restart(self, **changes: Any) -> None:
        self.join = restarted(self.join, **changes)

    def everything(self) -> Counter[Row]:
        rows = pa.concat_tables(self.rows)
        return ask_duckdb("SELECT l.id, r.id FROM l, r WHERE l.k = r.k", l=rows, r=rows)

    def touched(self) -> list[int]:
        """The bytes of history that the tasks of the last batch touched."""
        spec = self.join.operator.spec
        tallies = engine._kept(spec, batch_of(self.join), self.clock).tallies
        return [one.touched_bytes for one in tallies.values()]


def owed(plan: BudgetPlan) -> int:
    return sum(load.owed_rows for load in plan.loads)


def paid(manifest: Manifest) -> bool:
    return bool(manifest.plan.payments)


@pytest.mark.parametrize("memory", [1500, 500], ids=["some groups", "less than a group"])
def test_an_idle_stream_pays_what_is_due_within_its_budget(tmp_path, memory):
    life = Life(
        tmp_path,
        keys=12,
        copies=2,
        memory=memory,
        pay_within="10 minutes",
        pushing=Pushing(groups=60 if memory > 500 else 4),
    )
    for _ in range(3):
        plan = life.batch()
    assert owed(plan) and life.results < life.everything()
    # Not due yet. There is no room either: the stream only grows.
    missing = (life.everything() - life.results).total()
    for _ in range(3):
        plan = life.idle(later_s=60)
    assert owed(plan) and (life.everything() - life.results).total() > missing / 2
    due = life.idle(later_s=600)
    assert any(event.what == PAID and "due" in event.why for event in due.events)
    if memory > 500:
        # Groups that are paid as a whole do not stay active.
        assert all(load.active_bytes <= memory for load in due.loads), due.loads
    for _ in range(200):
        assert all(touched <= memory for touched in life.touched()), (life.touched(), memory)
        if life.results == life.everything():
            break
        plan = life.idle()
    assert life.results == life.everything(), "a debt is left"
    # It is over: no batch pays or pushes the same again.
    last = newest(tmp_path).batch.number
    for _ in range(3):
        plan = life.idle(later_s=700)
    later = [one for one in manifests(tmp_path) if one.batch.number > last + 1]
    assert later and not any(paid(one) for one in later), "what is paid is paid again"
    if memory > 500:
        assert all(load.active_bytes <= memory for load in plan.loads)
    # New rows meet what they should: their own generation, and the rest when that is due.
    life.batch()
    for _ in range(200):
        life.idle(later_s=100)
        if life.results == life.everything():
            break
    assert life.results == life.everything()


def test_without_a_time_limit_an_idle_stream_pays_nothing_that_has_no_room(tmp_path):
    life = Life(tmp_path, memory=1500)
    for _ in range(4):
        life.batch()
    before = life.results.copy()
    for _ in range(5):
        plan = life.idle(later_s=1000)
    assert owed(plan) and (life.results - before).total() < (life.everything() - before).total() / 2


def test_a_busy_stream_pays_what_is_due_and_stays_within_its_budget(tmp_path):
    results, oldest_s = [], []
    for pay_within in ("5 minutes", None):
        how: dict[str, Any] = {"memory": 7000, "pay_within": pay_within, "pushing": Pushing(groups=40)}
        life = Life(tmp_path / str(pay_within), keys=40, **how)
        for number in range(24):
            plan = life.batch(later_s=60, keys=None if number < 10 else 4)
            own = sum(run.bytes for run in newest(life.state).fresh)
            assert max(life.touched()) <= 7000 + own
        oldest_s.append(max(life.clock.now - one / 1000 for one in plan.owed_ms if one))
        results.append(life.results.total())
    assert oldest_s[0] <= 7 * 60 < oldest_s[1], oldest_s
    assert results[0] > results[1]


def test_a_key_that_owes_more_than_the_budget_is_paid_on_an_idle_stream(tmp_path):
    life = Life(tmp_path, keys=1, copies=12, memory=4000, pay_within="1 minute", pushing=Pushing(groups=2))
    for _ in range(5):
        life.batch(later_s=0.1)
    assert life.results < life.everything()
    by_cells = []
    for _ in range(60):
        life.idle(later_s=61)
        assert all(touched <= 4000 for touched in life.touched()), life.touched()
        if any(payment.cells is not None for payment in newest(tmp_path).plan.payments):
            by_cells.append(sum(life.touched()))
        if life.results == life.everything():
            break
    assert life.results == life.everything()
    assert len(by_cells) > 1, "no key was paid in parts"
    assert max(by_cells) > 2000, "cells were paid and not counted"


def test_small_ranges_of_the_same_generations_are_paid_in_one_slice(tmp_path, monkeypatch):
    pushing = Pushing(groups=60, policy=PushPolicy.RANDOM, share=0.5)
    life = Life(tmp_path, keys=80, memory=6000, pushing=pushing, tasks=1)
    life.batch()
    while not newest(tmp_path).pushes:
        life.batch()
    ranges = owing(newest(tmp_path).pushes)
    slices: list[int] = []
    pay_slice = Debts._pay_slice

    def counted(self: Debts, ranges: Any, border: Any = None) -> Any:
        slices.append(len(ranges))
        return pay_slice(self, ranges, border)

    monkeypatch.setattr(Debts, "_pay_slice", counted)
    life.join = restarted(life.join, memory=None)
    life.results += run_batch(life.join, NOTHING)
    assert life.results == life.everything()
    assert len(ranges) > 5 and slices == [len(ranges)], (len(ranges), slices)


@pytest.mark.parametrize("groups", [4, 60], ids=["large ranges", "small ranges"])
def test_a_debt_larger_than_a_piece_is_paid_in_slices_that_fit_one(tmp_path, monkeypatch, groups):
    pushing, piece = Pushing(groups=groups, policy=PushPolicy.RANDOM, share=0.9), 40
    life = Life(tmp_path, keys=80, memory=6000, pushing=pushing, tasks=1, limits={"piece_rows": piece})
    life.batch()
    while not newest(tmp_path).pushes:
        life.batch()
    rows: list[int] = []
    pay_slice = Debts._pay_slice

    def counted(self: Debts, ranges: Any, border: Any = None) -> Any:
        found = [part for name in "lr" for mine in self._by_generation(name, ranges) for part in mine]
        rows.append(sum(map(len, found)))
        return pay_slice(self, ranges, border)

    monkeypatch.setattr(Debts, "_pay_slice", counted)
    life.join = restarted(life.join, memory=None)
    life.results += run_batch(life.join, NOTHING)
    assert life.results == life.everything()
    assert max(rows) <= piece and sum(rows) / len(rows) > piece / 2, rows


# --- defer --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_watch(monkeypatch):
    """A task looks at its watch at least twice, and each look takes a hundredth of a second."""
    looks = itertools.count()
    monkeypatch.setattr(engine, "time", SimpleNamespace(perf_counter=lambda: next(looks) / 100))


@pytest.mark.usefixtures("slow_watch")
def test_slow_batches_owe_results_and_quick_ones_pay_them(tmp_path):
    life = Life(tmp_path, defer="1 millisecond")
    for _ in range(5):
        plan = life.batch()
    assert plan.memory == 0 and plan.slow_ms == 1 and owed(plan)
    assert any("more than 1 ms" in event.why for event in plan.events)
    assert life.results < life.everything()
    life.restart(defer="1 hour")
    sizes = []
    for _ in range(30):
        plan = life.batch(keys=1)
        sizes.append(plan.slice_bytes)
        if not any(one.pushes for one in manifests(tmp_path)[-1:]):
            break
    assert life.results == life.everything() and not newest(tmp_path).pushes
    assert any("there is time" in event.why for event in plan.events)
    assert sizes == sorted(sizes)


@pytest.mark.usefixtures("slow_watch")
def test_deferring_pays_little_at_first_and_more_while_it_is_quick(tmp_path, monkeypatch):
    monkeypatch.setattr("watersmeet.schemes.budget.tempo.FIRST_SLICE_BYTES", 300)
    life = Life(tmp_path, defer="1 millisecond")
    for _ in range(5):
        life.batch()
    life.restart(defer="1 hour")
    sizes = [life.batch(keys=1).slice_bytes for _ in range(12)]
    assert sizes == sorted(sizes) and sizes[0] == 300 and sizes[-1] >= 4 * sizes[0]
    batches = [one.batch.number for one in manifests(tmp_path) if paid(one)]
    assert len(batches) > 2, "all was paid at once"


@pytest.mark.usefixtures("slow_watch")
def test_a_start_without_it_pays_all_that_was_deferred(tmp_path):
    life = Life(tmp_path, defer="1 millisecond", pay_within="1 hour")
    for _ in range(5):
        life.batch()
    life.join = restarted(life.join, defer=None)
    life.results += run_batch(life.join, NOTHING)
    assert life.results == life.everything()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"defer": "soon"}, 'or give "auto", which stands for the trigger interval'),
        ({"defer": "auto", "on": "l.k < r.k"}, "defer= needs an equality"),
        ({"pay_within": "10 minutes", "on": "l.k < r.k"}, "pay_within= needs an equality"),
        ({"pay_within": "soon", "memory": 1}, "pay_within must be a duration"),
        ({"defer": "auto", "within": "10 rows"}, "defer= does not go with a window over rows"),
        ({"defer": "auto", "strategy": "hash"}, 'belong to strategy="budget"'),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_what_cannot_be_deferred_or_paid_in_time_is_refused_with_the_reason(tmp_path, how, message):
    with pytest.raises(UsageError, match=message):
        start(SCHEMA, tmp_path, **{"on": "l.k = r.k", **how})


def test_every_pair_of_budget_and_time_is_a_join(tmp_path):
    times = [None, "auto", "1 hour"], [None, "1 hour"], [None, "1 MB"]
    for number, (defer, pay_within, memory) in enumerate(itertools.product(*times)):
        life = start(SCHEMA, tmp_path / str(number), defer=defer, pay_within=pay_within, memory=memory)
        assert (life.operator.spec.scheme.name == "budget") == (defer is not None or memory is not None)


# --- kills and changes between starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["manifest-half-written", "manifest-linked", "result-emitted", "task-done"])
@pytest.mark.parametrize("when", ["pushed", "paying"])
def test_a_kill_after_a_push_or_within_a_payment_loses_and_repeats_nothing(tmp_path, place, when):
    life = Life(tmp_path, keys=12, copies=2, memory=1500, pay_within="1 minute", pushing=Pushing(groups=4))
    for _ in range(3):
        life.batch()
    assert newest(tmp_path).pushes
    rows = pa.table([list(range(12)), list(range(90_000, 90_012))], schema=SCHEMA)
    parts: dict[str, Any] = {"l": [rows], "r": [rows]}
    if when == "pushed":
        life.rows.append(rows)
    else:
        parts, life.clock.now = NOTHING, life.clock.now + 100
    life.join, found = run_through(life.join, parts, place)
    life.results += found
    if when == "paying":
        assert paid(newest(tmp_path)), "the batch pays nothing"
    for _ in range(40):
        life.idle(later_s=61)
        if life.results == life.everything():
            break
    assert life.results == life.everything()


def test_budgets_and_times_may_change_at_every_start(tmp_path):
    life = Life(tmp_path, memory=1500)
    changes: list[dict[str, Any]] = [
        {"memory": 800, "defer": "1 millisecond"},
        {"memory": None},
        {"memory": "1 MB", "defer": None, "pay_within": "10 seconds"},
        {"memory": 1, "pay_within": "1 hour"},
        {"defer": "1 hour", "pay_within": None},
    ]
    for change in changes:
        for _ in range(2):
            life.batch(later_s=20)
        life.restart(**change)
    life.restart(memory=None, defer=None)
    life.results += run_batch(life.join, NOTHING)
    assert life.results == life.everything()
