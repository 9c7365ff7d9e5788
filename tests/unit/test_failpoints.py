"""Failpoints, each action in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from watersmeet import failpoints

REACH = "from watersmeet import failpoints; print(failpoints.reach({name!r})); print('went on')"


def reach(name: str, points: str, timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    """Reach a failpoint in a fresh Python process."""
    return subprocess.run(
        [sys.executable, "-c", REACH.format(name=name)],
        env={**os.environ, "WATERSMEET_FAILPOINTS": points, "PYTHONPATH": _source()},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _source() -> str:
    return str(Path(failpoints.__file__).parents[1])


def test_nothing_happens_where_none_is_set():
    done = reach("run-written", "")
    assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["False", "went on"])


def test_nothing_happens_at_another_place():
    assert reach("run-written", "merge-part=kill").returncode == 0


def test_kill_is_the_end_of_the_process():
    done = reach("merge-part", "run-written=sleep:9,merge-part=kill")
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == ""


def test_once_means_once_over_all_processes(tmp_path):
    points = f"merge-part=kill@{tmp_path / 'once'}"
    assert reach("merge-part", points).returncode == -signal.SIGKILL
    assert (tmp_path / "once").exists()
    assert reach("merge-part", points).returncode == 0


def test_a_mark_shows_that_the_place_was_reached(tmp_path):
    done = reach("manifest-lost", f"manifest-lost=mark@{tmp_path / 'once'}")
    assert done.returncode == 0
    assert (tmp_path / "once").exists()


def test_a_full_disk_can_be_played():
    done = reach("run-before-write", "run-before-write=raise:28")
    assert "OSError: [Errno 28] No space left on device" in done.stderr


def test_an_unknown_action_is_an_error_and_not_a_test_that_cannot_fail():
    assert "unknown action 'kil'" in reach("merge-part", "merge-part=kil").stderr


def test_where_a_scene_is_to_be_prepared_the_caller_is_told():
    done = reach("run-half-written", "run-half-written=kill")
    assert (done.returncode, done.stdout.split("\n")[:2]) == (0, ["True", "went on"])


def test_wait_lasts_until_the_file_is_there(tmp_path):
    points = f"run-written=wait:{tmp_path / 'go'}@{tmp_path / 'once'}"
    with subprocess.Popen(
        [sys.executable, "-c", REACH.format(name="run-written")],
        env={**os.environ, "WATERSMEET_FAILPOINTS": points, "PYTHONPATH": _source()},
        stdout=subprocess.PIPE,
    ) as waiting:
        wait_until((tmp_path / "once").exists, "the failpoint is reached", 30)
        assert waiting.poll() is None
        (tmp_path / "go").touch()
        assert waiting.wait(30) == 0


def test_kill_driver_takes_the_named_processes_along(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        (tmp_path / "pids").write_text(str(victim.pid))
        done = reach("task-done", f"task-done=kill-driver:{tmp_path / 'pids'}")
        assert done.returncode == -signal.SIGKILL
        assert victim.wait(30) == -signal.SIGKILL


def test_kill_executor_takes_the_grandparent_along():
    """As in Spark: the worker is a child of the Python daemon, which is a child of the JVM."""
    daemon = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {REACH.format(name='merge-part')!r}])"
    )
    jvm = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {daemon!r}]); print('alive')"
    done = subprocess.run(
        [sys.executable, "-c", jvm],
        env={**os.environ, "WATERSMEET_FAILPOINTS": "merge-part=kill-executor", "PYTHONPATH": _source()},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout == b""


@pytest.mark.parametrize("text", ["", ",", " a=kill,b=sleep:1@/x/y"])
def test_the_variable_may_hold_several_points_or_none(text):
    expected = {"a": ("kill", None), "b": ("sleep:1", "/x/y")} if "a=" in text else {}
    assert failpoints._parse(text) == expected
