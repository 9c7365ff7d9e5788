"""A grid that grows, and one that decides more often, on Spark: results, and the plan of every batch in its manifest."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from tests.spark.state_helpers import state_files
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import Manifest
from watersmeet.schemes.grid.facts import GridPlan, GridShape, Reason
from watersmeet.testing import StreamScript, assert_same_rows

ROWS = "x int, id int"
EPSILON = "spark.watersmeet.gridEpsilon"


def drawn(rng: random.Random, count: int) -> list[tuple[int, int]]:
    return [(rng.randrange(60), rng.randrange(50)) for _ in range(count)]


def batch_join(spark, rows, on):
    left, right = (spark.createDataFrame(rows[side], ROWS) for side in "lr")
    joined = left.alias("l").join(right.alias("r"), F.expr(on))
    return joined.select(F.struct("l.*").alias("l"), F.struct("r.*").alias("r")).collect()


def manifests(state) -> list[Manifest]:
    files = state_files(state)
    return [read_manifest(files, name) for name in list_manifests(files)]


def plan_of(manifest: Manifest) -> GridPlan:
    plan = manifest.plan.scheme
    assert isinstance(plan, GridPlan)
    return plan


def run(spark, tmp_path, arrivals, on, **how):
    """Run a stream, batch by batch; the manifests, its results, and those of Spark's batch join.

    The query is started anew for each batch: one that runs may see the files of the two inputs in two batches.
    """
    rng, everything = random.Random(5), {"l": [], "r": []}

    def build(l, r):
        return wm.join(
            {"l": l, "r": r}, on=on, strategy="grid", state=str(tmp_path / "state"), tasks=2, **how
        )

    with StreamScript(spark, tmp_path, l=ROWS, r=ROWS) as script:
        for sizes in arrivals:
            rows = {side: drawn(rng, size) for side, size in zip("lr", sizes, strict=True) if size}
            for side, new in rows.items():
                everything[side] += new
            script.add(**rows).start(build).process()
            script.stop()
        results = script.results()
    return manifests(tmp_path / "state"), results, batch_join(spark, everything, on)


@pytest.mark.parametrize(
    "on",
    [
        pytest.param("l.x = r.x", id="equality"),
        pytest.param("abs(l.x - r.x) <= 1", id="band"),
        pytest.param("l.x <> r.x AND (l.id = 7 OR r.id = 7)", id="any condition"),
    ],
)
def test_a_grid_grows_while_the_stream_flows(spark, tmp_path, on):
    """A row has 16 bytes, so a cell is half full with 62 rows: one cell grows to 4, then to 16, the most allowed."""
    arrivals = [(10, 10), (40, 40), (150, 150), (5, 0), (0, 800)]
    options = {"gridCapacityBytes": 2000, "gridMaxCells": 16}
    found, results, want = run(spark, tmp_path, arrivals, on, cells=1, options=options)
    assert len(want) > 500
    assert_same_rows(results, want)

    plans = [plan_of(manifest) for manifest in found]
    assert [plan.cells for plan in plans] == [1, 4, 16, 16, 16]
    assert [plan.epoch for plan in plans] == [0, 1, 2, 2, 3]
    assert {plan.parts for plan in plans} == {16}, "sections are cut for all growth to come"
    assert [plan.shapes for plan in plans[1:]] == [
        (GridShape(2, 2),),
        (GridShape(4, 4),),
        (GridShape(4, 4),),
        (GridShape(2, 8),),
    ]
    changes = plans[-1].relocations
    assert [(change.batch, change.event.reason) for change in changes] == [
        (1, Reason.GROW),
        (2, Reason.GROW),
        (4, Reason.MIGRATE),
    ]
    # Rows that all cells read before and after, over those stored when the change came. A left row is read in every
    # column of the mapping, a right one in every row.
    read = [(10 + 10, 2 * (10 + 10)), (2 * (50 + 50), 4 * (50 + 50)), (4 * (205 + 200), 8 * 205 + 2 * 200)]
    for change, (before, after) in zip(changes, read, strict=True):
        event = change.event
        assert event.exact and event.kept.rows > 0
        assert event.kept.rows + event.discarded.rows == before
        assert event.kept.rows + event.moved.rows == after
    for run_ in found[-1].live:
        assert sum(run_.sections) == run_.rows and len(run_.sections) <= 16
        assert run_.frame is not None, "a section has no checksum of its own"


@pytest.mark.parametrize(
    ("epsilon", "epochs", "decided"),
    [
        pytest.param(None, [0, 0, 1], [(40, 64), (40, 64), (40, 134)], id="default"),
        pytest.param(0.25, [0, 1, 1], [(40, 64), (40, 94), (40, 134)], id="quarter"),
        pytest.param(0.45, [0, 1, 1], [(40, 64), (40, 94), (40, 94)], id="between"),
    ],
)
def test_a_grid_decides_as_often_as_epsilon_says(spark, tmp_path, epsilon, epochs, decided):
    """The right input grows by 47 % and then by 43 %. From 80 rows on, twice the left ones, (1, 4) is the best."""
    arrivals = [(40, 64), (0, 30), (0, 40)]
    on = "l.x = r.x"
    if epsilon is not None:
        spark.conf.set(EPSILON, str(epsilon))
    try:
        found, results, want = run(spark, tmp_path, arrivals, on, cells=4)
    finally:
        spark.conf.unset(EPSILON)
    assert want
    assert_same_rows(results, want)

    plans = [plan_of(manifest) for manifest in found]
    assert [plan.epoch for plan in plans] == epochs
    assert [plan.shapes[0] for plan in plans] == [
        (GridShape(2, 2), GridShape(1, 4))[epoch] for epoch in epochs
    ]
    assert [(plan.decided_left.rows, plan.decided_right.rows) for plan in plans] == decided
    (change,) = plans[-1].relocations
    assert (change.batch, change.event.reason) == (epochs.index(1), Reason.MIGRATE)
    stored = 64 if epochs[1] else 94
    # Halving the rows: each cell keeps its left rows and gains as many, and drops half of its right rows.
    assert change.event.kept.rows + change.event.moved.rows == 4 * 40 + stored
    assert change.event.kept.rows + change.event.discarded.rows == 2 * (40 + stored)
