"""The reproduction of Streaming HyperCube: its example, its data, tasks run one by one, what it says of the paper."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from threading import Event

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from papers.__main__ import app
from papers.hypercube.cases import (
    ALPHA,
    MANY_MANY,
    Case,
    cases_for,
    first_rows,
    one_key_inputs,
    operators_of,
    similar_inputs,
    supplier_inputs,
    zipf_inputs,
)
from papers.hypercube.curves import fig4, fig6, fig7
from papers.hypercube.example import fig3, plan_step
from papers.hypercube.figures import FULL, QUICK, Hypercube
from papers.hypercube.many import TaskRun, fastest, handing_cost, run_tasks
from papers.hypercube.measure import CaseRun
from papers.hypercube.operators import JB, JB1, JB6, JBS, PHJ, READINGS, SHC, TASKS, THREE
from papers.shared.arrival import cut, steady
from papers.shared.queries import Inputs
from papers.shared.reproduction import Session, Stopped
from watersmeet.errors import WatersmeetError

# Figure 3


@pytest.mark.parametrize(
    "rows, output, b1, b2",
    [
        pytest.param({"b1": (100, 100), "b2": (50, 200)}, 20_000, (2, 2), (1, 4), id="before"),
        pytest.param({"b1": (100, 300), "b2": (50, 200)}, 40_000, (2, 4), (1, 4), id="after"),
    ],
)
def test_the_example_is_planned_as_in_the_paper(rows, output, b1, b2):
    before = {"b1": (2, 2), "b2": (1, 4)}
    step = plan_step(rows, before)
    assert step.output == output
    assert step.shapes == {"b1": b1, "b2": b2}
    for key, (left, right) in rows.items():
        scale = math.sqrt(8 / output)
        assert step.desired[key] == pytest.approx((left * scale, right * scale))


def test_all_numbers_of_the_example_agree_but_the_sentence_that_does_not_fit_them():
    verdicts = fig3({}, FULL).verdicts
    assert [v.paper for v in verdicts if not v.agrees] == ["300 more tuples of S(b1) arrive"]
    said = " ".join(v.ours for v in verdicts)
    assert all(number in said for number in ("20,000", "40,000", "1.414 and 4.243", "0.707 and 2.828"))


# Data


def test_a_key_is_heavy_in_both_inputs_of_zipf_and_draws_follow_the_seed():
    inputs, again = zipf_inputs(20_000, 1.5), zipf_inputs(20_000, 1.5)
    assert inputs.rows == (10_000, 10_000)
    heaviest = [np.bincount(inputs.keys(side)).argmax() for side in ("r", "s")]
    assert heaviest[0] == heaviest[1]
    assert all(inputs.tables[side].equals(again.tables[side]) for side in ("r", "s"))
    # 1 / zeta(1.5)
    assert inputs.heaviest_share() == pytest.approx(0.383, abs=0.02)


def test_results_of_zipf_are_counted_as_duckdb_counts_them():
    inputs = zipf_inputs(4000, 1.0)
    with duckdb.connect() as connection:
        for side, table in inputs.tables.items():
            connection.register(side, table)
        found = connection.execute("SELECT count(*) FROM r JOIN s ON r.b = s.b").fetchone()
    assert inputs.count_results() == found[0] > 0


@pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])
def test_every_figure_has_the_points_that_its_statements_need(size):
    assert {MANY_MANY, Case("fig4", size.strongest)} <= set(cases_for("fig4", size))
    assert Case("fig6", ALPHA) in cases_for("fig6", size)
    assert all(len(cases_for(figure, size)) >= 2 for figure in ("fig4", "fig5", "fig6", "fig7"))
    every = {case for figure in ("fig4", "fig5", "fig6", "fig7") for case in cases_for(figure, size)}
    assert size.once <= every and {size.rounds_of(case) for case in size.once} <= {1}
    for figure in ("fig4", "fig5", "fig6", "fig7"):
        for case in cases_for(figure, size):
            # All points of a figure have the same settings of JB, and both readings of the paper's.
            assert set(operators_of(case)) == set(operators_of(cases_for(figure, size)[0]))
            assert {PHJ, SHC, *READINGS.values()} <= set(operators_of(case))


def test_points_meet_themselves_and_larger_buckets_bring_more_of_them_together():
    small, large = (similar_inputs(500, radius) for radius in (0.01, 0.1))
    # Two tables of buckets: every point stands twice in either input, and meets itself in both.
    assert small.rows == (1000, 1000)
    assert 1000 <= small.count_results() < large.count_results() <= 1000 * 1000
    assert small.heaviest_share() < large.heaviest_share()
    left, right = (
        small.tables[side].sort_by([("id", "ascending"), ("bucket", "ascending")]) for side in ("l", "r")
    )
    assert left.equals(right) and not small.tables["l"].equals(small.tables["r"])


def test_every_lineitem_has_one_supplier_and_the_heaviest_has_the_share_of_zipf():
    inputs = supplier_inputs(0.01, 2.0)
    assert inputs.rows == (100, 60_000) and inputs.count_results() == 60_000
    assert np.unique(inputs.keys("s")).size == 100
    # 1 / zeta(2), nearly.
    assert inputs.heaviest_share() == pytest.approx(0.61, abs=0.01)


@pytest.mark.parametrize(
    ("results", "rows", "part"),
    [
        pytest.param(10**9, 10**9, 1.0, id="all of them"),
        pytest.param(10_000, 10**9, 0.1, id="as many as have that many results"),
        pytest.param(10**9, 500, 0.25, id="no more rows than that"),
    ],
)
def test_spark_has_the_first_rows_of_a_case(results, rows, part):
    inputs = one_key_inputs(1000)
    first = first_rows(inputs, results, rows)
    assert first.rows == (1000 * part, 1000 * part)
    assert all(table.equals(inputs.tables[side].slice(0, len(table))) for side, table in first.tables.items())


# Operators


def test_24_is_a_number_of_groups_or_of_the_tasks_in_one():
    groups = [operator.groups for operator in READINGS.values()]
    assert groups == [24, TASKS // 24]


@pytest.mark.parametrize(
    "operator, groups", [(JB, {48: 24, 2: 1}), (JB6, {48: 6, 2: 1}), (JB1, {48: 1, 2: 1})]
)
def test_groups_are_in_proportion_to_the_tasks(operator, groups):
    for tasks, wanted in groups.items():
        assert operator.arguments(tasks) == {"strategy": "biclique", "tasks": tasks, "groups": wanted}
    assert PHJ.arguments(2) == {"strategy": "hash", "tasks": 2}


# Tasks one by one


def task_run(seconds, probed=((1,),), emitted=((1,),), plan_s=(0.0,), shapes=(), handing_s=0.0):
    arrays = (np.array(values, np.float64) for values in (plan_s, seconds, probed, emitted))
    return TaskRun(*arrays, tuple(shapes), handing_s)


def test_parallel_time_is_the_plan_and_the_slowest_task_of_each_batch():
    run = task_run([[1, 3], [5, 2]], [[10, 0], [0, 10]], [[0, 30], [10, 40]], [0.5, 0.25])
    assert run.parallel_s == 0.5 + 3 + 0.25 + 5
    # Work of 20 and 80.
    assert run.balance == pytest.approx(80 / 50)
    assert run.rows_probed == 20


def test_a_worker_also_waits_until_spark_has_its_results():
    run = task_run([[1, 3], [5, 2]], emitted=[[0, 30], [10, 40]], plan_s=[0.5, 0.25], handing_s=0.1)
    # In the second batch it is the one that joins faster.
    assert run.parallel_s == pytest.approx(0.5 + (3 + 3) + 0.25 + max(5 + 1, 2 + 4))
    assert replace(run, handing_s=0.2).parallel_s == pytest.approx(0.5 + (3 + 6) + 0.25 + (2 + 8))
    assert run.join_s == 0.5 + 3 + 0.25 + 5


def test_what_a_result_costs_is_told_by_two_joins_unless_more_took_no_longer():
    assert handing_cost([(100, 1.0), (1100, 3.0)]) == 0.002
    with pytest.raises(WatersmeetError, match="too busy"):
        handing_cost([(100, 1.0), (1100, 0.9)])
    few, many = (one_key_inputs(rows).count_results() for rows in (10, 40))
    assert (few, many) == (100, 1600)


def test_of_several_runs_each_task_counts_with_its_best_time():
    runs = [task_run([[1, 9]], plan_s=[2], handing_s=0.5), task_run([[4, 3]], plan_s=[1], handing_s=0.5)]
    best = fastest(runs)
    assert best.seconds.tolist() == [[1, 3]] and best.plan_s.tolist() == [1] and best.handing_s == 0.5


def tasks_of(operator, inputs, scratch, tasks=6, **more):
    return run_tasks(operator, tasks, inputs, cut(steady(*inputs.rows), 2), scratch / "run", **more)


@pytest.mark.parametrize("operator", [*THREE, JB1], ids=lambda operator: operator.name)
def test_tasks_give_all_results_and_leave_nothing(operator, tmp_path):
    inputs = zipf_inputs(4000, 1.5)
    run = tasks_of(operator, inputs, tmp_path, tasks=TASKS if operator is JB else 6)
    assert run.emitted.sum() == inputs.count_results()
    assert run.seconds.shape == run.emitted.shape == (2, TASKS if operator is JB else 6)
    assert (run.seconds > 0).all() and run.parallel_s >= run.seconds.max(axis=1).sum()
    assert not (tmp_path / "run").exists()


def test_the_same_join_can_run_again_where_the_first_one_was(tmp_path):
    """With many keys, so that statistics are in files of their own, which go with the first run."""
    inputs = zipf_inputs(90_000, 1.0)
    for _ in range(2):
        run = run_tasks(PHJ, 2, inputs, cut(steady(*inputs.rows), 4), tmp_path / "run")
        assert run.emitted.sum() == inputs.count_results()


def test_a_hash_join_looks_up_each_row_once_and_is_held_back_by_one_key(tmp_path):
    inputs = zipf_inputs(4000, 1.5)
    hashed, cubed = (tasks_of(operator, inputs, tmp_path) for operator in (PHJ, SHC))
    assert hashed.rows_probed == 4000 < cubed.rows_probed
    assert hashed.balance > 4 and cubed.balance < 1.5
    assert not hashed.shapes and max(math.prod(shape) for shape in cubed.shapes) > 1


def test_missing_results_are_an_error(tmp_path, monkeypatch):
    inputs = zipf_inputs(1000, 1.0)
    count = inputs.count_results()
    monkeypatch.setattr(Inputs, "count_results", lambda self: count + 1)
    with pytest.raises(WatersmeetError, match=f"PHJ gave {count:,} results of {count + 1:,}"):
        tasks_of(PHJ, inputs, tmp_path)


def test_a_stopped_run_of_tasks_leaves_nothing(tmp_path):
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        tasks_of(PHJ, zipf_inputs(1000, 1.0), tmp_path, stop=stop)
    assert not (tmp_path / "run").exists()


# Statements


def case_run(phj, jbs, shc, heaviest=0.1, shapes=(), spark=(1, 1, 1)):
    """Seconds with 48 tasks: of PHJ, of JB in its settings (24 groups first), of SHC."""
    seconds = {PHJ: phj, **dict(zip(JBS, jbs, strict=True)), SHC: shc}
    tasks = {o: task_run([[s]], shapes=shapes) for o, s in seconds.items()}
    return CaseRun((10, 10), 100, heaviest, (5, 5), 25, dict(zip(THREE, spark, strict=True)), tasks)


EVEN = case_run(1, (1, 1, 1, 1, 1, 1), 1)


def said(exhibit):
    return {v.paper: v for v in exhibit.verdicts}


def fig4_of(last, **others):
    cases = cases_for("fig4", FULL)
    measured = {case: others.get("first", EVEN) if case.x < ALPHA else EVEN for case in cases}
    return said(fig4({**measured, cases[-1]: last}, FULL))


SKEWED = "SHC clearly outperforms {} in execution time, with skew, alpha >= 1"
LESS = "SHC is no worse than {} in execution time, with less skew, alpha < 1"


def test_shc_is_compared_with_the_best_setting_of_jb_at_every_point():
    """Sixteen times as fast as with 24 groups, and half as fast as with two."""
    found = fig4_of(case_run(25, (16, 8, 4, 2, 0.5, 0.7), 1))
    assert found[SKEWED.format("PHJ")].agrees and not found[SKEWED.format("JB")].agrees
    ours = found[SKEWED.format("JB")].ours
    assert "0.50 at alpha = 2 times SHC's time" in ours and "(y = 1, y = 1, y = 2)" in ours
    assert "24 groups of two tasks: 1.00 at alpha = 1, 1.00 at alpha = 1.5, 16.00 at alpha = 2" in ours
    assert "groups of 24 tasks, two of them: 1.00 at alpha = 1, 1.00 at alpha = 1.5, 0.50" in ours
    # JB outperforms PHJ too; PHJ does not outperform JB.
    assert [c.agrees for c in found[SKEWED.format("PHJ")].controls] == [True]
    assert [c.agrees for c in found[SKEWED.format("JB")].controls] == [False]
    clear = fig4_of(case_run(25, (16, 8, 4, 2, 1.5, 1.7), 1))
    assert clear[SKEWED.format("JB")].agrees


def test_without_skew_nothing_is_to_be_won_but_nothing_lost():
    level = fig4_of(EVEN)
    assert level[LESS.format("PHJ")].agrees and level[LESS.format("JB")].agrees
    assert not level[SKEWED.format("PHJ")].agrees
    slower = fig4_of(EVEN, first=case_run(0.9, (2, 2, 2, 2, 0.8, 2), 1))
    assert not slower[LESS.format("PHJ")].agrees and not slower[LESS.format("JB")].agrees


def test_either_reading_of_24_is_asked_for_being_the_best():
    found = fig4_of(case_run(25, (16, 8, 4, 2, 0.5, 0.7), 1))
    as_groups, as_tasks = (found[f"JB's best setting is y = 24, read as {reading}"] for reading in READINGS)
    assert not as_groups.agrees and as_tasks.agrees
    assert "20.00 s with 24 groups" in as_groups.ours and "4.50 s with 2 groups" in as_groups.ours
    # 4.7 s with one group is within what counts as none.
    assert [c.who for c in as_tasks.controls if c.agrees] == ["1 group"]


def test_two_tasks_on_spark_are_shown_and_not_judged():
    measured = dict.fromkeys(cases_for("fig4", FULL), case_run(2, (2,) * 6, 1, spark=(3, 2, 1)))
    exhibit = fig4(measured, FULL)
    assert not any("Spark" in v.ours for v in exhibit.verdicts)
    (spark,) = [table for table in exhibit.tables if "on Spark" in table.title]
    assert not any("Spark" in chart.title for chart in exhibit.charts)
    assert spark.rows[0][1:3] == ["10", "25"] and spark.rows[0][-2:] == ["3.00", "2.00"]


def test_a_figure_says_how_long_phj_takes():
    cases = cases_for("fig4", FULL)
    measured = dict.fromkeys(cases, EVEN) | {cases[-1]: case_run(2.5, (1,) * 6, 1)}
    assert "1.00 to 2.50 s" in fig4(measured, FULL).how


def test_points_at_which_phj_takes_less_than_a_second_are_named():
    cases = cases_for("fig7", FULL)
    measured = dict.fromkeys(cases, EVEN) | {cases[1]: case_run(0.86, (1,) * 6, 1)}
    assert "(0.86 to 1.00 s; less than a second: 0.86 at r = 0.02)" in fig7(measured, FULL).how
    assert "less than a second" not in fig7(dict.fromkeys(cases, EVEN), FULL).how


def test_a_setting_of_jb_is_the_best_only_where_all_of_them_ran():
    def words(figure, run):
        exhibit = figure(dict.fromkeys([*cases_for("fig4", FULL), *cases_for("fig6", FULL)], run), FULL)
        verdicts = [v for v in exhibit.verdicts if "many-to-many" not in v.paper]
        told = [text for v in verdicts for text in (v.paper, v.ours, *(c.who for c in v.controls))]
        return " ".join(
            [*told, *exhibit.tables[0].columns, *(s.name for c in exhibit.charts for s in c.series)]
        )

    three = EVEN.tasks.keys() - {o for o in JBS if o.groups not in (24, 6, 2)}
    some = replace(EVEN, tasks={o: run for o, run in EVEN.tasks.items() if o in three})
    assert "best" not in words(fig6, some) and "the fastest of 3 y" in words(fig6, some)
    assert "JB with its best y" in words(fig4, EVEN) and "fastest of" not in words(fig4, EVEN)


def test_the_reason_speaks_of_the_points_where_the_paper_is_not_confirmed():
    cases = cases_for("fig4", FULL)
    measured = dict.fromkeys(cases, EVEN)
    measured[MANY_MANY] = case_run(1, (2,) * 6, 2)
    measured[cases[-1]] = case_run(4, (4,) * 6, 1)
    reason = said(fig4(measured, FULL))[SKEWED.format("PHJ")].why
    assert reason.startswith("alpha = 1: SHC waits for its plan")


def test_statements_on_keys_of_one_input():
    fig6_cases = cases_for("fig6", FULL)
    measured = dict.fromkeys(fig6_cases, case_run(1, (4, 3, 2, 1.8, 1.5, 1.4), 1.2, shapes=[(1, 8)]))
    strongest = Case("fig4", FULL.strongest)
    measured |= dict.fromkeys((MANY_MANY, strongest), case_run(2, (2,) * 6, 1))
    assert all(v.agrees for v in fig6(measured, FULL).verdicts)
    measured[fig6_cases[-1]] = case_run(9, (4, 6, 9, 10, 20, 20), 1.2, shapes=[(2, 4)])
    assert not any(v.agrees for v in fig6(measured, FULL).verdicts)


# The command


def test_the_command_writes_page_pictures_and_figures(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["hypercube", "--only", "fig3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "7 of 8 statements agree" in done.output
    assert sorted(path.name for path in out.iterdir()) == ["fig3.png", "figures.json", "index.html"]
    page = (out / "index.html").read_text()
    assert "ran one after the other" in page and "Figure 3" in page


def test_an_exhibit_that_is_not_there_is_refused_before_anything_is_done(tmp_path):
    done = CliRunner().invoke(app, ["hypercube", "--only", "fig8", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "there is no such exhibit; use fig3" in " ".join((done.output + done.stderr).split())
    assert not (tmp_path / "out").exists()


def test_figure_3_needs_neither_spark_nor_data():
    class Watch:
        steps = 0

        def step(self, text):
            self.steps += 1

        def batch(self, done, of):
            pass

    reproduction, watch = Hypercube(QUICK), Watch()
    reproduction.run(["fig3"], Session(Path("none"), Path("none"), watch, Event(), lambda: None))
    assert watch.steps == reproduction.count_steps(["fig3"]) == 1
