"""Two drivers on one checkpoint, with the checkpoint file manager of `wm.configure`: the first one must not do harm.

The first driver waits in a batch. The second one takes the query over and ends it. Then the first is let go: it must
fail, and it must change neither results nor any file of the checkpoint and of the sink's log.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.checks import check
from tests.faults.harness import EQUALITY, FILES, Scene, feed
from tests.faults.processes import driver
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


def _committed(scene: Scene) -> dict[Path, bytes]:
    """The logs by which Spark knows what is done."""
    folders = (scene.checkpoint / "offsets", scene.checkpoint / "commits", scene.out / "_spark_metadata")
    return {path: path.read_bytes() for folder in folders for path in folder.iterdir() if path.name[0] != "."}


BEFORE_WRITE, DONE = "before a run is written", "all done, the task not reported"
PLACES = [
    # Its rows are not agreed on yet: its claim is no longer the last one.
    pytest.param(EQUALITY, "run-before-write", "StateInUse", id=BEFORE_WRITE),
    pytest.param(FILES, "run-before-write", "StateInUse", id=f"files: {BEFORE_WRITE}"),
    # It has logged the files of a batch that Spark does not know of: the second driver takes them, and Spark refuses
    # the first one's offset.
    pytest.param(
        FILES, "intake-written", "Multiple streaming jobs|StateInUse", id="files: logged, no offset"
    ),
    # Its results are on their way to the sink, which has those of the second driver.
    pytest.param(EQUALITY, "task-done", "Race while writing batch", id=DONE),
]


@pytest.mark.parametrize(("join", "place", "reason"), PLACES)
def test_a_driver_that_was_overtaken_changes_nothing(tmp_path, join, place, reason):
    scene = Scene(tmp_path, join=join)
    feed(scene, 2)
    late = f"{place}=wait:{scene.go}@{scene.once}"
    common = ("--configured", "--join", join.name)
    arguments = (*common, "--failpoints", late, "--after", "3", "--tasks", "1")
    with driver(tmp_path, *arguments, name="first") as first:
        wait_until(lambda: scene.once.exists(), "the first driver comes to its third batch", 120)
        with driver(tmp_path, *common, name="second") as second:
            assert second.wait() == 0, second.said()
        check(scene)
        before = _committed(scene)
        scene.go.touch()
        assert first.wait() != 0, "the first driver went on as if nothing had happened"
        assert re.search(reason, first.log.read_text())
    assert _committed(scene) == before
    check(scene)
    feed(scene, 2)
    with driver(tmp_path, *common, name="third") as third:
        assert third.wait() == 0, third.said()
    check(scene)
