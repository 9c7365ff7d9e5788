"""Attempts that finish after their successor has won: what they write late must have no effect.

On a cluster with speculation the first attempt of a task waits at a failpoint; Spark starts a second one, takes
its result and goes on to the end of the input. Then the first is let go. In the last test a whole start of the
query is late: its driver is dead and the next one has gone on, but one of its Python workers still lives.
"""

from __future__ import annotations

import pytest

from tests.faults.checks import check, run_files
from tests.faults.harness import EQUALITY, PATH, Scene, feed, new_session, python_path, run
from tests.faults.processes import cluster, driver
from tests.waiting import wait_until
from watersmeet.log.manifests import list_manifests

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SPECULATION = {
    "spark.speculation": "true",
    # Also for the only task of a stage, and soon.
    "spark.speculation.task.duration.threshold": "2s",
    "spark.speculation.interval": "100ms",
    # Spark kills the Python worker of an attempt that has lost; here it shall live on.
    "spark.python.task.killTimeout": "200s",
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    settings = {"spark.executor.memory": "600m", "spark.executorEnv.PYTHONPATH": python_path(), **SPECULATION}
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        session = new_session(started.url, tmp_path_factory.mktemp("spark"), **settings)
        yield session
        session.stop()


def _newer(scene: Scene, pattern: str) -> bool:
    """Whether a file of the state was written after the late attempt was let go."""
    since = scene.go.stat().st_mtime
    return any(path.stat().st_mtime > since for path in scene.files.root.glob(pattern))


LATE = [
    pytest.param("run-before-write", lambda scene: _newer(scene, "runs/*/*-p0*.arrow"), id="writes its run"),
    pytest.param("manifest-before-write", lambda scene: scene.lost.exists(), id="publishes its manifest"),
    pytest.param("merge-part", lambda scene: _newer(scene, "receipts/*.json"), id="merges"),
    pytest.param("merge-written", lambda scene: _newer(scene, "receipts/*.json"), id="leaves its receipt"),
]


@pytest.mark.parametrize("join", [EQUALITY, PATH], ids=lambda join: join.name)
@pytest.mark.parametrize(("place", "came"), LATE)
def test_an_attempt_is_late_and(spark, tmp_path, place, came, join):
    scene = Scene(tmp_path, join=join)
    feed(scene, 2)
    run(spark, scene)
    feed(scene, 3)
    run(spark, scene, f"{place}=wait:{scene.go}@{scene.once},manifest-lost=mark@{scene.lost}")
    assert scene.once.exists(), "no attempt was late"
    # Two tasks that run side by side may race for a manifest in the ordinary course of things.
    scene.lost.unlink(missing_ok=True)
    before = run_files(scene)
    check(scene)
    scene.go.touch()
    wait_until(lambda: came(scene), f"the late attempt comes to {place}")
    check(scene)
    feed(scene, 2)
    run(spark, scene)
    check(scene)
    if place == "run-before-write":
        new = {path for path in run_files(scene) - before if "/0000000002-" in path}
        assert not new, f"the late attempt left {new}"


def test_a_whole_start_of_the_query_is_late(tmp_path):
    scene = Scene(tmp_path)
    feed(scene, 2)
    late = f"manifest-before-write=wait:{scene.go}@{scene.once}"
    with driver(tmp_path, "--failpoints", late, "--after", "3", "--tasks", "1") as first:
        wait_until(lambda: scene.once.exists(), "the first driver comes to its third batch", 120)
        first.kill_all_but_workers()
        before = list_manifests(scene.files)
        with driver(tmp_path) as second:
            assert second.wait() == 0, second.said()
        assert first.workers(), "the late worker did not survive its driver"
        check(scene)
        after = list_manifests(scene.files)
        scene.go.touch()
        wait_until(lambda: len(list_manifests(scene.files)) > len(after), "the late worker publishes")
    (late_one,) = set(list_manifests(scene.files)) - set(after)
    assert late_one.batch == 2
    assert late_one.run == before[-1].run or late_one.run not in {name.run for name in after}
    feed(scene, 2)
    with driver(tmp_path) as third:
        assert third.wait() == 0, third.said()
    check(scene)
