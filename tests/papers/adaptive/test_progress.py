"""Whole streams through the cost model: the bounds hold with migrations that do not stop the stream."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.adaptive.operators import static_mid, static_opt
from papers.adaptive.sim.arrivals import Arrivals, KeyedArrivals, with_equality_results
from papers.adaptive.sim.costs import CostModel
from papers.adaptive.sim.grid import run_grid
from papers.adaptive.sim.hash import run_hash
from watersmeet.schemes.grid.policy import dynamic, start_grid

MANY = settings(max_examples=max(100, settings().max_examples))

# Far above what rounding to whole rows could blur.
MIN_ROWS = 10_000

factors = st.lists(st.tuples(st.floats(0, 8), st.floats(0, 8)), min_size=1, max_size=12)


def growing(script) -> Arrivals:
    """Each chunk brings a multiple of what is there, so that the inputs overtake each other at any size."""
    left, right = [6000], [6000]
    for left_factor, right_factor in script:
        left.append(int(sum(left) * left_factor))
        right.append(int(sum(right) * right_factor))
    return Arrivals(np.array(left), np.array(right))


powers = st.integers(1, 10).map(lambda exponent: 1 << exponent)


def best_loads(cells: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The least load of any mapping, by trying them all: not what the simulation itself takes for the optimum."""
    sides = 1 << np.arange(cells.bit_length())
    return np.min([left / side + right * side / cells for side in sides], axis=0)


@MANY
@given(powers, factors)
def test_theorem_4_4_the_load_stays_within_a_quarter_of_the_optimum(cells, script):
    progress = run_grid(growing(script), cells, dynamic(min_rows=MIN_ROWS), CostModel())
    left, right = progress.left_rows, progress.right_rows
    counts = (progress.rows >= MIN_ROWS) & (left <= cells * right) & (right <= cells * left)
    best = best_loads(cells, left, right)
    assert np.all(progress.max_bytes[counts] <= (1.25 + 0.01) * best[counts])


@given(powers, factors)
def test_the_simulation_takes_the_least_load_of_any_mapping_for_the_optimum(cells, script):
    progress = run_grid(growing(script), cells, dynamic(min_rows=MIN_ROWS), CostModel())
    best = best_loads(cells, progress.left_rows, progress.right_rows)
    assert progress.optimal_bytes == pytest.approx(best)


@MANY
@given(powers, factors)
def test_theorem_4_4_a_joiner_takes_one_new_row_for_two_migrated_ones(cells, script):
    """So a migration ends when half as many new rows have come to a joiner as it must receive."""
    progress = run_grid(growing(script), cells, dynamic(min_rows=MIN_ROWS), CostModel())
    at = {int(rows): place for place, rows in enumerate(progress.rows)}
    for span in progress.migrations:
        if span.end_rows == progress.rows[-1]:
            continue  # the stream may have ended before it
        begin, end = at[span.begin_rows], at[span.end_rows]
        [shape] = span.after
        new_left = progress.left_rows[end] - progress.left_rows[begin]
        new_right = progress.right_rows[end] - progress.right_rows[begin]
        received = new_left / shape.rows + new_right / shape.cols
        assert received == pytest.approx(span.moved_rows / cells / 2, abs=2)


@given(st.integers(1, 300), factors, st.sampled_from([0.1, 0.5, 1.0]))
def test_migrations_follow_one_another(cells, script, epsilon):
    progress = run_grid(growing(script), cells, dynamic(epsilon=epsilon, min_rows=MIN_ROWS), CostModel())
    end_time, end_rows, shapes = 0.0, 0, start_grid(cells, static_mid()).shapes
    for span in progress.migrations:
        assert end_time <= span.begin_time <= span.end_time <= progress.execution_time
        assert end_rows <= span.begin_rows <= span.end_rows <= progress.rows[-1]
        assert shapes == span.before != span.after
        end_time, end_rows, shapes = span.end_time, span.end_rows, span.after
    assert np.all(np.diff(progress.time) >= 0) and np.all(np.diff(progress.rows) >= 0)


@MANY
@given(powers, factors)
def test_time_is_work_and_migrating_is_a_bounded_part_of_it(cells, script):
    """Lemma 4.5 over a whole run: what is moved costs no more than six times what arrives."""
    arrivals = growing(script)
    costs = CostModel()
    progress = run_grid(arrivals, cells, dynamic(min_rows=MIN_ROWS), costs)
    moved = sum(span.moved_rows for span in progress.migrations) / cells
    received = progress.execution_time - moved * costs.migrated_time
    assert 2 * moved <= 6 * received * (1 + 1e-9)


@given(powers, factors)
def test_static_grids_hold_what_their_mapping_says(cells, script):
    arrivals = growing(script)
    left, right = int(arrivals.left_rows.sum()), int(arrivals.right_rows.sum())
    opt = run_grid(arrivals, cells, static_opt(left, right), CostModel())
    assert opt.max_bytes[-1] == pytest.approx(float(best_loads(cells, np.array(left), np.array(right))))
    assert opt.ratio[-1] == pytest.approx(1)
    mid = run_grid(arrivals, cells, static_mid(), CostModel())
    assert mid.max_bytes[-1] >= opt.max_bytes[-1] * (1 - 1e-9)
    assert mid.migrations == opt.migrations == ()


@given(st.lists(st.integers(0, 20), max_size=60), st.lists(st.integers(0, 20), max_size=60), st.data())
def test_a_hash_join_s_results_are_all_pairs_of_equal_keys(left, right, data):
    chunks = data.draw(st.integers(1, 4))
    bounds = np.arange(chunks + 1)
    arrivals = Arrivals(
        np.diff(bounds * len(left) // chunks).astype(np.int64),
        np.diff(bounds * len(right) // chunks).astype(np.int64),
    )
    keyed = KeyedArrivals(arrivals, np.array(left, np.int64), np.array(right, np.int64))
    pairs = sum(x == y for x in left for y in right)
    assert with_equality_results(keyed).arrivals.results.sum() == pairs
    # One joiner does all the work: its time is the rows and the pairs.
    alone = run_hash(keyed, 1, CostModel(output_time=1))
    assert alone.execution_time == len(left) + len(right) + pairs
