"""kill -9 of a Python worker at every dangerous place. Spark runs the task again; the query never stops."""

from __future__ import annotations

import pytest

from tests.faults.checks import check, check_plans, check_traces
from tests.faults.harness import (
    ARRANGED,
    BAND,
    CLEANED,
    GRID,
    LONG_PATH,
    PATH,
    PLANNED,
    POINTS,
    THREE,
    Scene,
    run_struck,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.says)
def test_a_python_worker_is_killed(spark, tmp_path, point):
    scene = Scene(tmp_path)
    run_struck(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_traces(scene, point)
    check(scene)


@pytest.mark.parametrize("join", [BAND, GRID], ids=lambda join: join.name)
@pytest.mark.parametrize("point", PLANNED, ids=lambda point: point.says)
def test_a_python_worker_is_killed_while_the_plan_changes(spark, tmp_path, join, point):
    scene = Scene(tmp_path, join=join)
    run_struck(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_traces(scene, point)
    check_plans(scene)
    check(scene)


@pytest.mark.parametrize(
    ("join", "point"),
    [
        pytest.param(join, point, id=f"{join.name}-{point.says}")
        for join, points in ((THREE, PLANNED), (PATH, ARRANGED), (LONG_PATH, CLEANED))
        for point in points
    ],
)
def test_a_python_worker_of_many_inputs_is_killed(spark, tmp_path, join, point):
    scene = Scene(tmp_path, join=join)
    run_struck(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_traces(scene, point)
    check(scene)
