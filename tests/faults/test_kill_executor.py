"""kill -9 of an executor of a standalone cluster at every dangerous place.

The JVM takes with it what its finished tasks left for the shuffle, so that Spark runs ingest tasks again whose
runs are in a manifest already. The query never stops: all settings of Spark that matter here are its defaults.
"""

from __future__ import annotations

import pytest

from tests.faults.checks import check, check_traces
from tests.faults.harness import (
    ARRANGED,
    CLEANING,
    PATH,
    POINTS,
    Point,
    Scene,
    new_session,
    python_path,
    run_struck,
)
from tests.faults.processes import cluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def spark(standalone, tmp_path_factory):
    settings = {"spark.executor.memory": "600m", "spark.executorEnv.PYTHONPATH": python_path()}
    session = new_session(standalone.url, tmp_path_factory.mktemp("spark"), **CLEANING, **settings)
    yield session
    session.stop()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.says)
def test_an_executor_is_killed(spark, standalone, tmp_path, point):
    _kill_executor(spark, standalone, Scene(tmp_path), point)


@pytest.mark.parametrize("point", ARRANGED, ids=lambda point: point.says)
def test_an_executor_of_a_path_is_killed(spark, standalone, tmp_path, point):
    """It may have stored an input by one of its keys and not by the other."""
    _kill_executor(spark, standalone, Scene(tmp_path, join=PATH), point)


def _kill_executor(spark, standalone, scene: Scene, point: Point) -> None:
    before = standalone.executors_started()
    run_struck(spark, scene, point, f"{point.name}=kill-executor@{scene.once}")
    assert standalone.executors_started() > before, "no executor was replaced"
    check_traces(scene, point)
    check(scene)
