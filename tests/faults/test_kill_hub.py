"""kill -9 around a batch of commands of a hub: of a Python worker, and of the driver with all of its processes."""

from __future__ import annotations

import signal

import pytest

from tests.faults.harness import feed
from tests.faults.hub_scene import (
    DRIVER_POINTS,
    HUB_POINTS,
    PAST_POINTS,
    HubScene,
    check_hub,
    check_past,
    strike,
    strike_past,
)
from tests.faults.processes import driver

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", HUB_POINTS, ids=lambda point: point.says)
def test_a_python_worker_of_a_hub_is_killed(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    strike(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_hub(spark, scene, point)


@pytest.mark.parametrize("point", PAST_POINTS, ids=lambda point: point.says)
def test_a_python_worker_is_killed_in_the_first_batch_of_a_query_over_the_past(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    strike_past(spark, scene, point, f"{point.name}=kill@{scene.once}")
    check_past(spark, scene, point)


@pytest.mark.parametrize("point", [*HUB_POINTS, *DRIVER_POINTS], ids=lambda point: point.says)
def test_the_driver_of_a_hub_is_killed(spark, tmp_path, point):
    scene = HubScene(tmp_path)
    feed(scene, point.before)
    blow = f"{point.name}=kill-driver:{scene.folder / 'pids'}@{scene.once}"
    hub = ("--join", "hub")
    with driver(scene.folder, *hub, "--failpoints", blow, "--after", str(point.after)) as first:
        assert first.wait() == -signal.SIGKILL, first.said()
    assert scene.committed_batches() < point.before + point.after, "it was killed after all was done"
    with driver(scene.folder, *hub) as second:
        assert second.wait() == 0, second.said()
    check_hub(spark, scene, point)
