"""kill -9 of the driver, its JVM and its Python workers at every dangerous place; then it is started again."""

from __future__ import annotations

import signal

import pytest

from tests.faults.checks import check, check_plans, check_traces
from tests.faults.harness import (
    BAND,
    CLEANED,
    FILE_POINTS,
    FILES,
    GRID,
    LONG_PATH,
    PATH,
    POINTS,
    THREE,
    Point,
    Scene,
    feed,
)
from tests.faults.processes import driver

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.says)
def test_the_driver_is_killed(tmp_path, point):
    _kill_and_restart(Scene(tmp_path), point)


@pytest.mark.parametrize("join", [BAND, GRID], ids=lambda join: join.name)
def test_the_driver_is_killed_while_the_plan_changes(tmp_path, join):
    """The plan is published and the batch is not committed: the next start publishes one of its own."""
    (point,) = (point for point in POINTS if point.name == "manifest-written")
    scene = Scene(tmp_path, join=join)
    _kill_and_restart(scene, point)
    check_plans(scene)


@pytest.mark.parametrize("join", [THREE, PATH], ids=lambda join: join.name)
@pytest.mark.parametrize(
    "point",
    [point for point in POINTS if point.name in ("run-half-written", "manifest-written")],
    ids=lambda point: point.says,
)
def test_the_driver_of_many_inputs_is_killed(tmp_path, join, point):
    """Runs of some inputs are written and of others not, or all are and the batch is not committed."""
    _kill_and_restart(Scene(tmp_path, join=join), point)


@pytest.mark.parametrize(
    ("join", "point"),
    [
        *((PATH, point) for point in POINTS if point.name in ("merge-written", "receipt-half-written")),
        *((LONG_PATH, point) for point in CLEANED),
    ],
    ids=lambda one: one.says if isinstance(one, Point) else one.name,
)
def test_the_driver_of_arranged_inputs_is_killed(tmp_path, join, point):
    """While what is stored of an input for each of its keys is merged, or removed."""
    _kill_and_restart(Scene(tmp_path, join=join), point)


@pytest.mark.parametrize("point", FILE_POINTS, ids=lambda point: point.says)
def test_the_driver_of_file_inputs_is_killed(tmp_path, point):
    """The intake is logged before Spark knows of it, and a batch reads its files again after each of these."""
    _kill_and_restart(Scene(tmp_path, join=FILES), point)


def _kill_and_restart(scene: Scene, point: Point) -> None:
    feed(scene, point.before)
    blow = f"{point.name}=kill-driver:{scene.folder / 'pids'}@{scene.once}"
    join = ("--join", scene.join.name)
    with driver(scene.folder, *join, "--failpoints", blow, "--after", str(point.after)) as first:
        assert first.wait() == -signal.SIGKILL, first.said()
    assert scene.committed_batches() < point.before + point.after, "it was killed after all was done"
    with driver(scene.folder, *join) as second:
        assert second.wait() == 0, second.said()
    check_traces(scene, point)
    check(scene)
