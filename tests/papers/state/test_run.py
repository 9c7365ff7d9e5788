"""Runs of the paper's stream on the operator: exact, repeatable, and under a budget that decides what comes out."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from typer.testing import CliRunner

import papers.state.run as runs
from papers.__main__ import app
from papers.shared.reproduction import Stopped
from papers.state.cases import FULL, HIGH, LOW, RANDOM, UNEVEN, Size, alternating, mixed_ratios
from papers.state.run import UNLIMITED_ROWS, Case, run_case
from papers.state.stream import Stream, even, mixed
from watersmeet.errors import WatersmeetError
from watersmeet.schemes.budget.policy import Pushing

GROUPS = 12


class Watch:
    def __init__(self):
        self.batches = []

    def step(self, text):
        raise AssertionError("a run is one step")

    def batch(self, done, of):
        self.batches.append((done, of))


def case(policy=LOW, memory_rows=900, **changes):
    """3,000 rows of each of three inputs, in 15 batches, a third of it in memory."""
    stream = Stream(mixed((4, 2, 1), GROUPS), 1000, 200)
    pushing = Pushing(groups=GROUPS, policy=policy, balanced_share=0.0)
    return replace(Case(stream, 10, 1, memory_rows, pushing, step_ms=40_000), **changes)


def run(tmp_path, given, name="state"):
    return run_case(given, tmp_path / name, Watch(), Event())


def test_low_output_keeps_the_groups_that_give_results(tmp_path):
    low, high = (run(tmp_path, case(policy), str(policy)) for policy in (LOW, HIGH))
    assert low.full == high.full, "the same stream"
    assert low.total > 1.5 * high.total and low.pushes and high.pushes
    assert sum(low.owed) < sum(high.owed) and min(low.owed_s) > 0


def test_without_a_limit_nothing_is_pushed_and_nothing_is_owed(tmp_path):
    found = run(tmp_path, case(memory_rows=UNLIMITED_ROWS))
    assert found.owed == (0,) and found.pushes == 0 and found.first_push() is None
    assert (np.diff(found.active_rows[:, 0]) > 0).all()
    assert found.first_over(4000) == found.minutes[np.flatnonzero(found.active_rows[:, 0] > 4000)[0]]


def test_a_run_is_repeatable(tmp_path):
    one, two = (run(tmp_path, case(RANDOM), name) for name in ("one", "two"))
    assert (one.results == two.results).all() and one.events == two.events and one.owed == two.owed


def test_time_is_that_of_the_stream(tmp_path):
    watch = Watch()
    found = run_case(case(), tmp_path / "state", watch, Event())
    assert found.minutes[-1] == 10 and watch.batches[-1] == (15, 15)
    first = found.events[0]
    assert found.minute_of(first) == found.minutes[first.batch]
    assert found.at(10) == found.total and found.at(5) == found.results[6]


def test_each_machine_begins_with_its_share_and_cleans_up_its_own(tmp_path):
    given = case(
        memory_rows=500, tasks=3, pushing=Pushing(groups=GROUPS, first_shares=UNEVEN, balanced_share=0.0)
    )
    given = replace(given, stream=replace(given.stream, ratios=even(2, GROUPS)))
    found = run(tmp_path, given)
    assert found.active_rows[0, 0] == pytest.approx(found.active_rows[0, 1:].sum(), rel=0.3)
    assert len(found.owed) == 3 and found.owed[0] > max(found.owed[1:])
    assert found.pushing_tasks[0] == 0


def test_groups_move_if_machines_differ(tmp_path):
    moving = case(
        memory_rows=UNLIMITED_ROWS, tasks=2, pushing=Pushing(groups=GROUPS, first_shares=(0.9, 0.1))
    )
    found, alone = (
        run(tmp_path, replace(moving, pushing=replace(moving.pushing, balanced_share=share)), str(share))
        for share in (0.8, 0.0)
    )
    assert found.moves and not alone.moves and found.total == alone.total
    assert found.active_rows[-1].min() > 0.6 * found.active_rows[-1].max()
    assert alone.active_rows[-1].min() < 0.3 * alone.active_rows[-1].max()


def test_a_run_whose_results_are_not_the_join_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "pay_all", lambda *given: iter(()))
    with pytest.raises(
        WatersmeetError, match=r"the join has [\d,]+ results; [\d,]+ came out and 0 were owed"
    ):
        run(tmp_path, case())


def test_a_run_can_be_stopped(tmp_path):
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        run_case(case(), tmp_path / "state", Watch(), stop)


def test_a_smaller_size_keeps_the_shape():
    given, smaller = mixed_ratios(LOW), Size(rows=0.2, steps=2).sized(mixed_ratios(LOW))
    assert FULL.sized(given) == given
    assert smaller.stream.gap_ms == 5 * given.stream.gap_ms and smaller.batches == given.batches / 2
    assert smaller.memory_rows == given.memory_rows / 5
    assert Size(rows=0.2).sized(alternating(0.9)).memory_rows == UNLIMITED_ROWS


def test_the_command_refuses_an_unknown_figure(tmp_path):
    found = CliRunner().invoke(app, ["state", "--only", "fig8", "--out", str(tmp_path)])
    assert found.exit_code == 2 and "fig8" in found.output and "fig21" in found.output
