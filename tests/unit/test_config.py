"""Settings: arguments before the session before the default; wrong ones are refused by name."""

from __future__ import annotations

import os

import pytest

from watersmeet.config import read_settings
from watersmeet.errors import ConfigError

PLACE = {"spark.watersmeet.state": "/s"}


def settings(session: dict[str, str] | None = None, **arguments):
    arguments = {"state": None, "tasks": None, **arguments}
    return read_settings({**PLACE, **(session or {})}.get, **arguments)


@pytest.mark.parametrize(
    ("session", "state", "expected"),
    [
        ({}, "/arg", "/arg"),
        ({}, None, "/s"),
        ({"spark.watersmeet.state": "", "spark.sql.streaming.checkpointLocation": "/c"}, None, "/c"),
    ],
)
def test_the_state_comes_from_the_argument_then_the_session(session, state, expected):
    assert settings(session, state=state).state == expected


def test_a_join_without_a_place_for_its_state_is_refused():
    with pytest.raises(ConfigError, match="pass state="):
        read_settings({}.get, state=None, tasks=2)


@pytest.mark.parametrize(
    ("session", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local[3, 4]"}, 3),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "yarn", "spark.executor.instances": "4", "spark.executor.cores": "2"}, 8),
        ({"spark.master": "yarn", "spark.default.parallelism": "12"}, 12),
        ({"spark.master": "yarn", "spark.sql.shuffle.partitions": "40"}, 40),
        ({"spark.master": "local[3]", "spark.watersmeet.tasks": "7"}, 7),
    ],
)
def test_tasks_follow_the_cores(session, tasks):
    assert settings(session).tasks == tasks


@pytest.mark.parametrize("tasks", [0, -1, 2.5, "4", True])
def test_tasks_that_are_no_count_are_refused(tasks):
    with pytest.raises(ConfigError, match="tasks must be"):
        settings(tasks=tasks)


@pytest.mark.parametrize(
    "session",
    [
        {"spark.watersmeet.tasks": "0"},
        {"spark.watersmeet.tasks": "many"},
        {"spark.watersmeet.fsync": "yes"},
        {"spark.watersmeet.runBytes": "64m"},
        {"spark.sql.streaming.minBatchesToRetain": "a lot"},
    ],
)
def test_a_setting_that_cannot_be_read_is_refused(session):
    with pytest.raises(ConfigError, match="must be"):
        settings(session)


def test_an_option_wins_over_the_session():
    session = {"spark.watersmeet.fsync": "false", "spark.watersmeet.runBytes": "5"}
    chosen = settings(session, options={"fsync": True, "graceSeconds": 7})
    assert (chosen.fsync, chosen.run_bytes, chosen.grace_s) == (True, 5, 7.0)


def test_an_unknown_option_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean fsync"):
        settings(options={"fsnc": True})
