"""The adaptive paper's operators, simulation, trials and command."""

from __future__ import annotations

from threading import Event

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from papers.__main__ import app
from papers.adaptive import paper
from papers.adaptive.figures import Adaptive
from papers.adaptive.model import ROW_BYTES, ROWS_PER_GB, Cluster, simulate
from papers.adaptive.operators import DYNAMIC, SHJ, STATICMID, STATICOPT, arguments
from papers.adaptive.tasks import GridTasks, run_batch
from papers.adaptive.trials import FULL, QUICK, run_in_tasks, trials_for
from papers.shared import tpch
from papers.shared.arrival import cut, steady
from papers.shared.queries import EQ5, QUERIES, Inputs, materialise
from papers.shared.reproduction import Stopped
from papers.shared.zipf import rank_shares
from watersmeet.local.join import LocalJoin

SCALE = 0.01


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tpch.tables(tmp_path_factory.mktemp("tpch"), SCALE)


@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_inputs_have_the_sizes_that_the_simulation_assumes(home, query):
    assumed = tuple(SCALE * rows for rows in ROWS_PER_GB[query.name])
    # Of 100 suppliers a region or two nations have what chance gives them.
    assert materialise(home, query, 0.0).rows == pytest.approx(
        assumed, rel=0.6 if query.name == "EQ7" else 0.2
    )


def test_operators_are_called_by_their_mappings():
    table = lambda rows: pa.table({"suppkey": range(rows)})  # noqa: E731
    small = Inputs(EQ5, {"s": table(200), "l": table(3000)})
    assert arguments(STATICMID, small, 16) == {"strategy": "grid", "mapping": (4, 4)}
    assert arguments(STATICOPT, small, 16) == {"strategy": "grid", "mapping": (1, 16)}
    assert arguments(DYNAMIC, small, 16) == {"strategy": "grid", "cells": 16}
    assert arguments(SHJ, small, 16) == {"strategy": "hash"}


# Simulation


def test_simulated_loads_are_those_of_the_mappings():
    cluster = Cluster(64)
    left, right = (10 * rows for rows in ROWS_PER_GB["EQ5"])
    mid = simulate(STATICMID, "EQ5", 10, cluster).max_bytes
    best = simulate(STATICOPT, "EQ5", 10, cluster).max_bytes
    assert mid == pytest.approx(ROW_BYTES * (left + right) / 8)
    assert best == pytest.approx(ROW_BYTES * (left + right / 64))
    assert simulate(DYNAMIC, "EQ5", 10, cluster).max_bytes == pytest.approx(best)


def test_the_calibrated_run_takes_what_the_paper_says():
    run = simulate(DYNAMIC, "EQ5", 10, Cluster(16, paper.HEAP_BYTES))
    assert run.seconds == pytest.approx(168, rel=0.01)


def test_skew_loads_one_joiner_of_a_hash_join_with_the_heaviest_key():
    uniform, skewed = (simulate(SHJ, "EQ5", 10, Cluster(64), z) for z in (0.0, 1.0))
    heaviest = rank_shares(100_000, 1.0)[0]
    assert uniform.max_bytes == pytest.approx(uniform.mean_bytes, rel=0.2)
    assert skewed.max_bytes > heaviest * skewed.total_bytes
    assert skewed.total_bytes == pytest.approx(uniform.total_bytes)


# Which runs


def test_exhibits_that_show_spark_name_their_runs():
    # And STATICOPT as a control, at the strongest skew.
    assert len(trials_for("table2", FULL)) == 2 * 5 * 3 + 2
    assert {t.operator for t in trials_for("fig5d", QUICK) if t.query == "B_CI"} == {
        STATICMID,
        DYNAMIC,
        STATICOPT,
    }
    assert trials_for("fig5a", FULL) == []
    assert Adaptive(FULL).count_steps(["fig5a", "fig5b"]) == 2


class Steps:
    def __init__(self):
        self.texts = []

    def step(self, text):
        self.texts.append(text)

    def batch(self, done, of):
        assert 0 < done <= of


def test_grids_run_in_tasks_side_by_side_and_leave_nothing(home, tmp_path):
    inputs, steps = materialise(home, EQ5, 1.0), Steps()
    ends = cut(steady(*inputs.rows), 2)
    found = run_in_tasks(inputs, ends, 16, 2, tmp_path, steps, Event())
    assert set(found) == {STATICMID, STATICOPT, DYNAMIC} and len(steps.texts) == 2
    for grid in found.values():
        assert grid.seconds.shape == (2, 16) and grid.ingest_s.shape == (2,)
        assert grid.join_s == grid.seconds.max(axis=1).sum() > 0
    assert not list(tmp_path.iterdir())


def test_a_stop_ends_tasks_that_run_one_by_one(home, tmp_path):
    inputs, stop = materialise(home, EQ5, 1.0), Event()
    stop.set()
    with pytest.raises(Stopped):
        run_in_tasks(inputs, cut(steady(*inputs.rows), 2), 2, 1, tmp_path, Steps(), stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("tasks", "mid_times"), [(16, 4), (2, 2)])
def test_the_square_reads_more_rows_in_a_task_than_the_best_mapping(home, tmp_path, tasks, mid_times):
    """With one cell for each task four times as many; with two tasks, which read what their cells share once, twice."""
    inputs = materialise(home, EQ5, 0.0)
    schemas = {side: table.schema for side, table in inputs.tables.items()}
    read = {}
    for operator in (STATICMID, STATICOPT):
        join = LocalJoin(
            schemas, on=EQ5.on, state=str(tmp_path / operator), tasks=tasks, **arguments(operator, inputs, 16)
        )
        grid = GridTasks.of(join)
        run_batch([grid], 0, inputs.tables)
        read[operator] = max(grid.rows_read)
        assert grid.results == inputs.count_results()
    assert read[STATICMID] / read[STATICOPT] == pytest.approx(mid_times, rel=0.1)


# Command


def test_the_command_writes_page_pictures_and_figures(tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["adaptive", "--only", "fig5g", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "agrees" in done.output and "statements agree" in done.output
    assert sorted(path.name for path in out.iterdir()) == ["fig5g.png", "figures.json", "index.html"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        pytest.param(
            ["--only", "fig6"], "there is no such exhibit; use table2", id="an exhibit that is not there"
        ),
        pytest.param(["--scale", "0"], "above 0 and at most 10", id="no data"),
        pytest.param(["--scale", "99"], "above 0 and at most 10", id="too much data"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_done(arguments, message, tmp_path):
    done = CliRunner().invoke(app, ["adaptive", *arguments, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in " ".join((done.output + done.stderr).split())
    assert not (tmp_path / "out").exists()
