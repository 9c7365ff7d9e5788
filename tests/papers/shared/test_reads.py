"""What manifests say of the rows that cells read and hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from papers.adaptive import paper
from papers.adaptive.fluctuation import ratio_of
from papers.shared.arrival import Point, cut, steady
from papers.shared.queries import EQ5, Inputs
from papers.shared.reads import read_batches
from watersmeet.local.join import LocalJoin


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
    assert batches[-1].shape == (2, 4) and ratio_of(batches[-1]) > 1.1


@pytest.mark.parametrize(
    ("mapping", "copies"),
    [
        pytest.param((4, 4), (1, 2), id="a half of the left input and all of the right one"),
        pytest.param((1, 16), (2, 1), id="all of the left input and a half of the right one"),
    ],
)
def test_two_tasks_read_once_what_their_eight_cells_share(mapping, copies, small, tmp_path):
    batches = run_local(small, tmp_path, mapping=mapping, strategy="grid", tasks=2)
    read = sum(batch.by_task.sum() for batch in batches)
    assert read == 200 * copies[0] + 3000 * copies[1]


def test_several_groups_read_fresh_rows_everywhere_and_store_them_once(small, tmp_path):
    batches = run_local(small, tmp_path, cells=5, strategy="grid")
    assert batches[-1].held.sum() < sum(batch.fresh.sum() for batch in batches)


def test_the_adaptive_grid_leaves_the_square_and_stays_near_the_optimum(small, tmp_path):
    batches = run_local(small, tmp_path, cells=16, strategy="grid")
    assert batches[-1].shape in {(1, 16), (2, 8)}
    assert all(1.0 <= ratio_of(batch) <= paper.RATIO_BOUND for batch in batches)
    # The square would not have kept the bound.
    assert max(ratio_of(batch, (4, 4)) for batch in batches) > paper.RATIO_BOUND


def test_hashed_tasks_read_each_row_once(small, tmp_path):
    batches = run_local(small, tmp_path, strategy="hash")
    assert sum(batch.fresh.sum() for batch in batches) == 3200
