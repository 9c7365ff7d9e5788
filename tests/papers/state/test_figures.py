"""What is said of the paper: every figure with its statements, and statements that can be wrong.

The runs are made up here: results in a straight line, and a few numbers that a statement is about.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np
import pytest

import papers.state.figures as figures
from papers.shared.load import Load
from papers.shared.reproduction import Session, write
from papers.state.cases import (
    CASES,
    FULL,
    FULL_ROWS,
    HIGH,
    LOW,
    QUICK,
    RANDOM,
    SHARES,
    alternating,
    cases_of,
    mixed_ratios,
    pushed_share,
    six_hours,
    unlike_machines,
)
from papers.state.combined import fig20, fig21
from papers.state.curves import Runs
from papers.state.figures import State
from papers.state.moved import fig14, fig15, fig16
from papers.state.pushed import fig9, fig10, fig11
from papers.state.run import ROW_BYTES, UNLIMITED_ROWS, CaseRun
from watersmeet.schemes.budget.facts import MOVED, PUSHED, Adaptation
from watersmeet.schemes.budget.policy import Disk

POINTS = 40


def made_up(
    tasks=1,
    total=1000,
    owed=0,
    moves=0,
    pushes=0,
    active_rows=10,
    owed_s=1.0,
    why="over the budget",
    seconds=1.0,
):
    line = np.linspace(1, POINTS, POINTS)
    rows = np.full((POINTS, tasks), active_rows)
    what = [MOVED] * moves + [PUSHED] * pushes
    return CaseRun(
        line,
        (line * total / POINTS).astype(int),
        rows,
        rows * ROW_BYTES,
        np.full(tasks, seconds),
        tuple(Adaptation(n, 1_000_000_000, n % tasks, one, 1, 1, 100, why) for n, one in enumerate(what)),
        (owed,) * tasks,
        (owed_s,) * tasks,
    )


def all_runs(**special):
    return {case: made_up(case.tasks) for name in CASES for case in CASES[name]}


def with_runs(changes):
    return Runs(all_runs() | changes, FULL)


def words(exhibit):
    return [verdict.word for verdict in exhibit.verdicts]


def test_every_figure_has_statements_with_controls_and_a_picture(tmp_path, monkeypatch):
    seen = []

    class Watch:
        def step(self, text):
            seen.append(text)

        def batch(self, done, of):
            pass

    def pretended(case, folder, watch, stop):
        folder.mkdir()
        return made_up(case.tasks)

    monkeypatch.setattr(figures, "run_case", pretended)
    state = State(QUICK)
    exhibits = state.run(state.exhibits, Session(tmp_path, tmp_path, Watch(), Event(), lambda: None))
    assert [one.name for one in exhibits] == list(CASES)
    assert all(one.verdicts and one.charts for one in exhibits)
    assert len(seen) == state.count_steps(state.exhibits)
    page = write(exhibits[:2], state, Load(0.0, 0.0), tmp_path)
    assert page.read_text().count("<img") == sum(len(one.charts) for one in exhibits[:2])


def test_a_run_that_two_figures_need_is_made_once():
    assert len(cases_of(["fig9", "fig10"])) == len(cases_of(["fig9"]))
    assert len(cases_of(list(CASES))) < sum(map(len, CASES.values()))


@pytest.mark.parametrize(
    "totals, word", [((900, 800, 700, 600), "agrees"), ((900, 800, 850, 600), "differs")]
)
def test_fig9_needs_results_that_fall(totals, word):
    mine = {pushed_share(share): made_up(total=total) for share, total in zip(SHARES, totals, strict=True)}
    assert words(fig9(with_runs(mine))) == [word]


def test_fig10_needs_memory_within_the_budget_and_fewer_pushes():
    def found(active_rows, pushes):
        mine = {
            pushed_share(share, one): made_up(active_rows=active_rows, pushes=number)
            for one in (RANDOM, LOW)
            for share, number in zip(SHARES, pushes, strict=True)
        }
        over = {pushed_share(0): made_up(active_rows=2 * FULL_ROWS)}
        return fig10(with_runs(mine | over))

    assert words(found(FULL_ROWS, (9, 5, 3, 1))) == ["agrees", "agrees"]
    assert words(found(FULL_ROWS + 1, (9, 5, 5, 1))) == ["differs", "differs"]
    assert [verdict.alike for verdict in found(FULL_ROWS, (9, 5, 3, 1)).verdicts] == [False, True]


def test_fig11_compares_results_and_clean_up_and_asks_random_too():
    def found(low, owed, owed_s):
        return fig11(
            with_runs(
                {
                    mixed_ratios(LOW): made_up(total=low, owed=owed, owed_s=owed_s),
                    mixed_ratios(HIGH): made_up(total=1000, owed=1000, owed_s=10),
                    mixed_ratios(RANDOM): made_up(total=1100, owed=900, owed_s=9),
                }
            )
        )

    good, bad = found(3000, 100, 1.0), found(1100, 900, 9.0)
    assert words(good) == ["agrees"] * 3 and not any(verdict.alike for verdict in good.verdicts)
    assert words(bad) == ["differs"] * 3 and all(verdict.why for verdict in bad.verdicts)


def test_fig14_and_fig15_count_adaptations():
    def found(at50, at90):
        moves = dict.fromkeys((0.5, 0.7), at50) | dict.fromkeys((0.8, 0.9), at90)
        mine = {alternating(share): made_up(2, moves=number) for share, number in moves.items()}
        mine |= {alternating(0.9, 15): made_up(2, moves=31), alternating(0.9, 30): made_up(2, moves=27)}
        runs = with_runs(mine)
        return fig14(runs).verdicts[2].word, fig15(runs).verdicts[2].word

    assert found(2, 24) == ("agrees", "agrees")
    assert found(5, 24) == ("differs", "agrees")
    assert found(2, 11) == ("differs", "differs")


def test_moving_that_costs_much_is_said():
    cheap, dear = (
        fig14(with_runs({alternating(0.9): made_up(2, moves=24, seconds=seconds)})).verdicts[1]
        for seconds in (1.1, 5)
    )
    assert cheap.word == "agrees" and dear.word == "differs" and dear.why


def test_fig16_needs_machines_of_one_size_and_a_control_that_has_not():
    def uneven(shares):
        run = made_up(2)
        rows = np.outer(np.linspace(100, 1000, POINTS), shares).astype(int)
        return replace(run, active_rows=rows)

    def found(mine, none):
        return fig16(
            with_runs({alternating(0.9, 15): uneven(mine), alternating(0.0): uneven(none)})
        ).verdicts[1]

    assert found((1, 0.95), (1, 0.3)).word == "agrees" and not found((1, 0.95), (1, 0.3)).controls[0].agrees
    assert found((1, 0.6), (1, 0.3)).word == "differs"


def test_fig20_takes_the_slowest_machine():
    def found(alone_s, lazy_s):
        mine = {six_hours(0.0): made_up(3, owed_s=alone_s), six_hours(0.8): made_up(3, owed_s=lazy_s)}
        return fig20(with_runs(mine)).verdicts[-1].word

    assert found(4.0, 1.0) == "agrees" and found(1.5, 1.0) == "differs"


def test_fig21_needs_pushes_of_the_machines_with_low_output():
    def found(total, why, pushes):
        active = made_up(3, total=total, pushes=pushes, why=why)
        if pushes:
            active = replace(active, events=active.events[1:])
        return words(fig21(with_runs({unlike_machines(Disk.ACTIVE): active})))

    assert found(1100, "machine 0 had more (active-disk)", 3)[::2] == ["agrees", "agrees"]
    assert found(1000, "over the budget", 3)[::2] == ["differs", "differs"]


def test_a_budget_that_no_run_reaches_is_not_scaled():
    assert all(
        case.memory_rows in (UNLIMITED_ROWS, QUICK.sized(case).memory_rows * 5)
        for case in cases_of(list(CASES))
    )
