"""The reproduction: its data, its arrival, what it reads from manifests, what it simulates, how it is shown."""

from __future__ import annotations

import itertools
import re
import sys

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from papers.__main__ import app
from papers.adaptive import paper
from papers.adaptive.figures import Adaptive
from papers.adaptive.model import ROW_BYTES, ROWS_PER_GB, Cluster, simulate
from papers.adaptive.operators import DYNAMIC, SHJ, STATICMID, STATICOPT, arguments
from papers.adaptive.trials import FULL, QUICK, trials_for
from papers.shared import tpch
from papers.shared.arrival import Point, alternating, cut, steady, write_streams
from papers.shared.exhibit import Bars, Exhibit, Lines, Series, Table, Verdict
from papers.shared.page import write_page
from papers.shared.plots import draw, require_matplotlib
from papers.shared.queries import B_NCI, EQ5, QUERIES, Inputs, materialise
from papers.shared.reads import read_batches
from papers.shared.zipf import draw_keys, rank_shares
from watersmeet.errors import UsageError
from watersmeet.local.join import LocalJoin

SCALE = 0.01


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tpch.tables(tmp_path_factory.mktemp("tpch"), SCALE)


# Data


@pytest.mark.parametrize("z", [0.0, 0.5, 1.0])
def test_keys_are_drawn_as_often_as_zipf_says(z):
    keys = np.arange(100, 200)
    drawn = draw_keys(keys, 200_000, z, np.random.default_rng(1))
    assert set(drawn) <= set(keys)
    shares = np.sort(np.bincount(drawn - 100, minlength=100))[::-1] / 200_000
    assert shares[0] == pytest.approx((1 / 1**z) / sum(1 / rank**z for rank in range(1, 101)), rel=0.15)
    assert shares == pytest.approx(rank_shares(100, z), abs=0.004)


def test_skew_leaves_the_rest_of_the_data_alone_and_follows_the_seed(home):
    plain, skewed, again = (materialise(home, EQ5, z).tables["l"] for z in (0.0, 1.0, 1.0))
    assert skewed.equals(again)
    assert sorted(plain["price"].to_pylist()) == sorted(skewed["price"].to_pylist())
    heaviest = [np.unique(t["suppkey"], return_counts=True)[1].max() / len(t) for t in (plain, skewed)]
    assert heaviest[0] < 0.02 and heaviest[1] > 0.15


@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_inputs_have_the_sizes_that_the_simulation_assumes(home, query):
    assumed = tuple(SCALE * rows for rows in ROWS_PER_GB[query.name])
    # Of 100 suppliers a region or two nations have what chance gives them.
    assert materialise(home, query, 0.0).rows == pytest.approx(
        assumed, rel=0.6 if query.name == "EQ7" else 0.2
    )


@pytest.mark.parametrize("z", [0.0, 1.0])
@pytest.mark.parametrize("query", QUERIES.values(), ids=lambda query: query.name)
def test_results_are_counted_as_duckdb_counts_them(home, query, z):
    inputs = materialise(home, query, z)
    left, right = query.sides
    with duckdb.connect() as connection:
        for side in query.sides:
            connection.register(side, inputs.tables[side])
        found = connection.execute(f"SELECT count(*) FROM {left} JOIN {right} ON {query.on}").fetchone()
    assert inputs.count_results() == found[0] > 0


def test_a_missing_generator_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=re.escape("tpchgen-cli, which is not installed: pip install")):
        tpch.tables(tmp_path / "data", SCALE)


# Arrival


@given(left=st.integers(1, 5000), right=st.integers(1, 5000), k=st.integers(2, 8), start=st.integers(1, 50))
def test_alternating_arrival_turns_at_k_and_ends_with_all_rows(left, right, k, start):
    path = alternating(left, right, k, start)
    assert path[-1] == Point(left, right)
    for before, at in itertools.pairwise(path[1:]):
        assert (before.left == at.left) != (before.right == at.right)
        ends = at.left == left or at.right == right
        assert ends or at.left == k * at.right or at.right == k * at.left


@given(left=st.integers(0, 500), right=st.integers(1, 500), k=st.integers(0, 4), batches=st.integers(1, 40))
def test_batches_take_every_row_once_in_order(left, right, k, batches):
    path = alternating(max(left, 1), right, k, 3) if k > 1 else steady(left, right)
    ends = cut(path, batches)
    steps = [(b.left - a.left, b.right - a.right) for a, b in zip([Point(0, 0), *ends], ends, strict=False)]
    assert len(ends) == batches and ends[-1] == path[-1]
    assert min(min(step) for step in steps) >= 0
    sizes = [sum(step) for step in steps]
    assert max(sizes) - min(sizes) <= 4


def test_stream_files_hold_the_inputs_in_order_of_time(home, tmp_path):
    inputs = materialise(home, B_NCI, 0.0)
    write_streams(inputs, cut(steady(*inputs.rows), 7), tmp_path)
    for side, table in inputs.tables.items():
        files = sorted((tmp_path / side).iterdir(), key=lambda path: path.stat().st_mtime)
        assert len(files) == 7 and [f.name for f in files] == sorted(f.name for f in files)
        assert pa.concat_tables(pq.read_table(f) for f in files).equals(table)


# What manifests say


@pytest.fixture
def small():
    rng = np.random.default_rng(7)
    table = lambda rows: pa.table({"suppkey": rng.integers(0, 50, rows), "nation": np.arange(rows)})  # noqa: E731
    return Inputs(EQ5, {"s": table(200), "l": table(3000)})


def run_local(inputs, state, batches=3, **grid):
    schemas = {side: table.schema for side, table in inputs.tables.items()}
    join = LocalJoin(schemas, on=EQ5.on, state=str(state), name="j", **grid)
    before = Point(0, 0)
    for end in cut(steady(*inputs.rows), batches):
        join.batch(
            s=inputs.tables["s"].slice(before.left, end.left - before.left),
            l=inputs.tables["l"].slice(before.right, end.right - before.right),
        )
        before = end
    return read_batches(state, "j", join.tasks)


def test_a_grid_reads_each_row_in_as_many_cells_as_its_mapping_says(small, tmp_path):
    batches = run_local(small, tmp_path, mapping=(2, 4), strategy="grid")
    assert sum(batch.fresh.sum() for batch in batches) == 200 * 4 + 3000 * 2
    assert batches[-1].held.sum() == 200 * 4 + 3000 * 2
    assert batches[-1].held.max() == pytest.approx(200 / 2 + 3000 / 4, rel=0.15)
    assert batches[-1].shape == (2, 4) and batches[-1].ratio > 1.1


def test_several_groups_read_fresh_rows_everywhere_and_store_them_once(small, tmp_path):
    batches = run_local(small, tmp_path, cells=5, strategy="grid")
    assert batches[-1].held.sum() < sum(batch.fresh.sum() for batch in batches)


def test_the_adaptive_grid_leaves_the_square_and_stays_near_the_optimum(small, tmp_path):
    batches = run_local(small, tmp_path, cells=16, strategy="grid")
    assert batches[-1].shape in {(1, 16), (2, 8)}
    assert all(1.0 <= batch.ratio <= paper.RATIO_BOUND for batch in batches)


def test_hashed_tasks_read_each_row_once(small, tmp_path):
    batches = run_local(small, tmp_path, strategy="hash")
    assert sum(batch.fresh.sum() for batch in batches) == 3200


# Operators


def test_operators_are_called_by_their_mappings(small):
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
    assert len(trials_for("table2", FULL)) == 2 * 5 * 3
    assert {t.operator for t in trials_for("fig5d", QUICK) if t.query == "B_CI"} == {
        STATICMID,
        DYNAMIC,
        STATICOPT,
    }
    assert trials_for("fig5a", FULL) == []
    assert Adaptive(FULL).count_steps(["fig5a", "fig5b"]) == 2


# Showing


@pytest.fixture
def exhibit():
    lines = Lines("t", "x", "y", [Series("a", DYNAMIC, [1, 2], [3, 4])], bound=3.5, bound_name="b")
    bars = Bars(
        "t", "y", ["g"], {DYNAMIC: [2.0], SHJ: [None]}, log_y=True, starred=frozenset({("g", DYNAMIC)})
    )
    table = Table("rows <b>", ["a"], [["1 < 2"]])
    return Exhibit("one", "One: <i>", "how", [table], [Verdict("x & y", "z", False, "why")], [lines, bars])


def test_pictures_are_png_files_that_the_page_holds_inside(exhibit, tmp_path):
    paths = draw(exhibit, tmp_path)
    assert [path.name for path in paths] == ["one-1.png", "one-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    write_page(tmp_path / "page.html", "title & more", ["fact"], [exhibit], {"one": paths})
    page = (tmp_path / "page.html").read_text()
    assert page.count('src="data:image/png;base64,') == 2
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "1 &lt; 2" in page and "<b>" not in page and "x &amp; y" in page and "differs" in page


def test_missing_matplotlib_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=re.escape("matplotlib, which is not installed: pip install")):
        require_matplotlib()


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
