"""TPC-H inputs: skew, counted results, arrival in batches, files in order."""

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

from papers.shared import tpch
from papers.shared.arrival import Point, alternating, cut, steady, write_streams
from papers.shared.queries import B_NCI, EQ5, QUERIES, materialise
from papers.shared.zipf import draw_keys, rank_shares
from watersmeet.errors import UsageError

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
