"""kill -9 of the driver, its JVM and its Python workers at every dangerous place; then it is started again."""

from __future__ import annotations

import signal

import pytest

from tests.faults.harness import POINTS, Scene, check, check_traces, feed
from tests.faults.processes import driver

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.says)
def test_the_driver_is_killed(tmp_path, point):
    scene = Scene(tmp_path)
    feed(scene, point.before)
    blow = f"{point.name}=kill-driver:{tmp_path / 'pids'}@{scene.once}"
    with driver(tmp_path, "--failpoints", blow, "--after", str(point.after)) as first:
        assert first.wait() == -signal.SIGKILL, first.said()
    assert scene.committed_batches() < point.before + point.after, "it was killed after all was done"
    with driver(tmp_path) as second:
        assert second.wait() == 0, second.said()
    check_traces(scene, point)
    check(scene)
