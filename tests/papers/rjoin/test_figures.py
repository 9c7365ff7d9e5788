"""The reproduction of RJoin: its cases, its page in small, how it is stopped, and what it says of the paper."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from typer.testing import CliRunner

from papers.__main__ import app
from papers.rjoin import paper
from papers.rjoin.cases import (
    FULL,
    QUICK,
    Size,
    _next,
    fig2_cases,
    fig3_case,
    fig4_cases,
    fig9_cases,
    needed,
    run_all,
)
from papers.rjoin.figures import EXHIBITS, RJoin
from papers.rjoin.growth import expected_working, fig3, fig4
from papers.rjoin.moving import fig9
from papers.rjoin.sim.cases import RANDOM, Case, Found, Snapshot, share_of_busiest
from papers.rjoin.sim.ring import Ring, hashed
from papers.rjoin.sim.run import run_case
from papers.rjoin.strategies import fig2
from papers.shared.plots import draw
from papers.shared.reproduction import Session, Stopped

TINY = Size(
    queries=60,
    nodes=40,
    tuples=16,
    fig2_tuples=(4, 8, 16),
    fig3_tuples=(4, 8, 16, 24),
    fig4_queries=(30, 60, 120),
    thetas=(0.3, 0.9),
    ways=(4, 8),
    windows=(4, 8),
    controls=8,
)


class Watch:
    def __init__(self):
        self.steps = []

    def step(self, text):
        self.steps.append(text)


@pytest.fixture(scope="module")
def tiny():
    return {case: run_case(case) for case in needed(EXHIBITS, TINY)}


def test_all_figures_in_small(tiny, tmp_path):
    """Every figure has statements with controls, tables whose rows fit their columns, and pictures that can be drawn."""
    for name, make in EXHIBITS.items():
        exhibit = make(tiny, TINY)
        assert exhibit.name == name
        assert exhibit.verdicts
        assert all(verdict.controls for verdict in exhibit.verdicts)
        for table in exhibit.tables:
            assert all(len(row) == len(table.columns) for row in table.rows)
    assert len(draw(EXHIBITS["fig2"](tiny, TINY), tmp_path)) == 3


def test_cases_run_in_processes_with_as_many_steps_as_announced(tmp_path, monkeypatch):
    watch, armed = Watch(), []
    size = replace(TINY, windows=(4,), controls=4)
    reproduction = RJoin(size)
    monkeypatch.setitem(EXHIBITS, "fig8", lambda runs, size: len(runs))
    names = ["fig8"]
    # Two of the cases are enough to show that processes give what this one would.
    cases = needed(names, size)[:2]
    monkeypatch.setattr("papers.rjoin.figures.needed", lambda names, size: cases)
    found = reproduction.run(names, Session(tmp_path, tmp_path, watch, Event(), lambda: armed.append(True)))
    assert found == [2]
    assert armed
    assert len(watch.steps) == reproduction.count_steps(names)
    assert watch.steps[0] == cases[0].text


def test_a_run_that_is_stopped_gives_nothing():
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        run_all([Case(snapshots=(100_000,), queries=10, nodes=10, history=0)], Watch(), stop)


def test_two_cases_that_need_gigabytes_do_not_run_at_once():
    large, small = Case(ways=8), Case()
    assert _next([large, small], []) is large
    assert _next([large, small], [large]) is small
    assert _next([large], [replace(large, rule=RANDOM)]) is None


def test_the_sizes_are_those_of_the_paper():
    assert (FULL.nodes, FULL.queries, FULL.tuples) == (1000, 20_000, 1000)
    assert FULL.fig3_tuples[-1] == 2500
    assert {case.theta for case in needed(["fig5"], FULL)} == {0.3, 0.5, 0.7, 0.9}
    assert {case.ways for case in needed(["fig6"], FULL)} == {4, 6, 8}
    assert {case.queries for case in needed(["fig4"], FULL)} == {2000, 4000, 8000, 16_000, 32_000}
    assert needed(["fig7"], FULL) == needed(["fig8"], FULL)
    assert max(case.tuples for case in needed(EXHIBITS, QUICK)) <= 400


def test_an_unknown_figure_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["rjoin", "--only", "fig10", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert "there is no such exhibit; use fig2" in done.output


# What the figures say, of made-up runs


def made(tuples=100, messages=1000, hits=(10, 10), **others) -> Snapshot:
    loads = np.array(hits)
    known = {
        "inserting": 0,
        "inserting_ric": 0,
        "tuple_messages": 0,
        "ric_messages": 0,
        "alone": 1,
        "answers": 1,
        "rewriting": 1,
        "storage": loads,
        "kept": loads,
        "sent": loads,
    }
    return Snapshot(**{**known, "tuples": tuples, "query_messages": messages, "hits": loads, **others})


def one(*snapshots: Snapshot) -> Found:
    ones = np.arange(1, 11)
    return Found(snapshots, ones, ones, 0)


def verdict(exhibit, text):
    (found,) = [verdict for verdict in exhibit.verdicts if text in verdict.paper]
    return found


@pytest.mark.parametrize(("times", "agrees"), [(2.5, False), (4.0, True), (5.0, True), (9.0, False)], ids=str)
def test_random_choices_cost_four_to_five_times_as_much(tiny, times, agrees):
    runs = dict(tiny)
    for rule, case in fig2_cases(TINY).items():
        sent = 1000 * (times if rule == RANDOM else 1)
        runs[case] = one(*(made(tuples, int(sent)) for tuples in TINY.fig2_tuples))
    found = verdict(fig2(runs, TINY), "all candidates")
    assert found.agrees is agrees
    assert [control.agrees for control in found.controls] == [agrees]


@pytest.mark.parametrize(("power", "agrees"), [(0.2, False), (1.0, True), (2.0, False)], ids=str)
def test_a_cost_that_grows_linearly(tiny, power, agrees):
    snapshots = [made(tuples, int(tuples * (5000 + 1000 * tuples**power))) for tuples in TINY.fig3_tuples]
    runs = {**tiny, fig3_case(TINY): one(*snapshots)}
    assert verdict(fig3(runs, TINY), "linearly").agrees is agrees


@pytest.mark.parametrize(("working", "agrees"), [(905, False), (940, True), (1000, False)], ids=str)
def test_how_many_nodes_take_part(tiny, working, agrees):
    loads = np.arange(1000) < working
    runs = {**tiny, fig3_case(TINY): one(*(made(tuples, hits=loads) for tuples in TINY.fig3_tuples))}
    found = verdict(fig3(runs, TINY), "940 of 1,000 nodes")
    assert found.agrees is agrees
    assert agrees or "no more than 910" in found.why


@pytest.mark.parametrize(("power", "agrees"), [(0.5, True), (1.0, False), (1.5, False)], ids=str)
def test_traffic_that_grows_slower_than_the_queries(tiny, power, agrees):
    runs = dict(tiny)
    for queries, case in fig4_cases(TINY).items():
        runs[case] = one(made(messages=int(100_000 * queries**power)))
    assert verdict(fig4(runs, TINY), "slower than the queries").agrees is agrees


@pytest.mark.parametrize(("after", "agrees"), [(1900, True), (2400, True), (2700, False)], ids=str)
def test_a_fullest_node_that_is_halved(tiny, after, agrees):
    still, moving = fig9_cases(TINY).values()
    runs = {**tiny, still: one(made(hits=(4000, 0))), moving: one(made(hits=(after, 4000 - after)))}
    exhibit = fig9(runs, TINY)
    assert verdict(exhibit, "halves").agrees is agrees
    assert verdict(exhibit, "more nodes").agrees
    assert verdict(exhibit, f"{paper.FIG9_FULLEST[0]:,} to").agrees is (after < 2500)


def test_nodes_without_a_key_are_as_many_as_arcs_that_are_too_short():
    found = [
        len(
            set(
                Ring(
                    hashed([f"{seed} {n}" for n in range(200)]), hashed(list(map(str, range(600))))
                ).node_of.tolist()
            )
        )
        for seed in range(20)
    ]
    assert np.mean(found) == pytest.approx(expected_working(600, 200), rel=0.02)


def test_the_share_of_the_busiest_tenth():
    assert share_of_busiest(np.array([5] * 9 + [45])) == pytest.approx(0.5)
    assert share_of_busiest(np.zeros(10)) == 0.0
