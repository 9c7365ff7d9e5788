"""kill -9 around a batch of commands of a hub: of a Python worker, and of the driver with all of its processes."""

from __future__ import annotations

import signal

import pytest

from tests.faults.hub_scene import (
    DRIVER_POINTS,
    HUB_POINTS,
    PAST_POINTS,
    HubScene,
    check_hub,
    check_past,
    prepare,
    run_hub,
    strike_past,
)
from tests.faults.processes import driver

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", HUB_POINTS, ids=lambda point: point.says)
def test_a_python_worker_of_a_hub_is_killed(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    prepare(spark, scene, point)
    run_hub(spark, scene, f"{point.name}=kill@{scene.once}")
    check_hub(spark, scene, point)


@pytest.mark.parametrize("point", PAST_POINTS, ids=lambda point: point.says)
def test_a_python_worker_is_killed_in_the_first_batch_of_a_query_over_the_past(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    strike_past(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_past(spark, scene, point)


@pytest.mark.parametrize("point", [*HUB_POINTS, *DRIVER_POINTS], ids=lambda point: point.says)
def test_the_driver_of_a_hub_is_killed(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    prepare(spark, scene, point)
    blow = f"{point.name}=kill-driver:{scene.folder / 'pids'}@{scene.once}"
    with driver(scene.folder, "--join", "hub", "--failpoints", blow) as struck:
        assert struck.wait() == -signal.SIGKILL, struck.said()
    assert scene.committed_batches() < point.before + point.after, "it was killed after all was done"
    # In this process, which another driver would only be slower than.
    run_hub(spark, scene)
    check_hub(spark, scene, point)
