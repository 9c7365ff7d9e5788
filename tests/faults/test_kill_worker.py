"""kill -9 of a Python worker at every dangerous place. Spark runs the task again; the query never stops."""

from __future__ import annotations

import pytest

from tests.faults.harness import CLEANING, POINTS, Scene, check, check_traces, new_session, run_struck

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Four attempts a task: plain local mode gives up after the first."""
    session = new_session("local[2,4]", tmp_path_factory.mktemp("spark"), **CLEANING)
    yield session
    session.stop()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.says)
def test_a_python_worker_is_killed(spark, tmp_path, point):
    scene = Scene(tmp_path)
    run_struck(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_traces(scene, point)
    check(scene)
