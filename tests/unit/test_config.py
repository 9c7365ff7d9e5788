"""Settings: arguments before the session before the default; wrong ones are refused by name."""

from __future__ import annotations

import os

import pytest

from watersmeet.config import (
    OPTIONS,
    SqlSettings,
    read_keeping,
    read_session,
    read_settings,
    read_sql_settings,
    session_conf,
)
from watersmeet.errors import ConfigError
from watersmeet.model.facts import BatchSpan

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


def test_a_wrong_setting_hurts_only_the_joins_that_use_it():
    wrong = {"gridEpsilon": 2, "memory": "lots", "stateMode": "9"}
    found = read_session({}.get, state="/s", tasks=2, options=wrong)
    assert found.has_place and found.sql == SqlSettings()
    for read, name in (
        (found.operator, "stateMode"),
        (found.memory, "memory"),
        (found.adapting, "gridEpsilon"),
    ):
        with pytest.raises(ConfigError, match=name):
            read()


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
        ({"spark.master": "yarn", "spark.sql.shuffle.partitions": "auto"}, 200),
        (
            {
                "spark.executor.instances": "",
                "spark.executor.cores": "2",
                "spark.sql.shuffle.partitions": "9",
            },
            9,
        ),
        ({}, 200),
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


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("17", [(17, 17)]),
        ("17-19", [(17, 19)]),
        (" 3, 17 - 19 ", [(3, 3), (17, 19)]),
        ("", []),
        ("false", []),
    ],
)
def test_an_accepted_gap_names_its_batches(text, spans):
    found = settings({"spark.watersmeet.acceptGap": text}).accept_gap
    assert [(span.first, span.last) for span in found] == spans
    assert settings(options={"acceptGap": text}).accept_gap == found


def test_an_accepted_gap_may_be_a_number():
    assert settings(options={"acceptGap": 17}).accept_gap == (BatchSpan(17, 17),)


@pytest.mark.parametrize("text", ["true", True, "19-17", "all", "-3", "1-2-3", "1,,2"])
def test_a_gap_that_names_no_batches_is_refused(text):
    with pytest.raises(
        ConfigError, match="acceptGap must name the batches whose rows may be missing, such as 17"
    ):
        settings(options={"acceptGap": text})


@pytest.mark.parametrize(
    ("given", "size"),
    [(None, None), ("1000", 1000), ("8 GB", 8 << 30), ("512m", 512 << 20), ("1 TiB", 1 << 40)],
)
def test_the_size_of_the_cache_takes_a_unit(given, size):
    session = {} if given is None else {"spark.watersmeet.cacheBytes": given}
    assert settings(session).cache_bytes == size
    assert settings(options=None if given is None else {"cacheBytes": given}).cache_bytes == size
    assert settings(session).storage.cache_bytes == size


@pytest.mark.parametrize("given", ["0", "much", "-1", "8 XB", "1.5 GB", True])
def test_a_size_of_the_cache_that_is_none_is_refused(given):
    with pytest.raises(ConfigError, match=r"spark\.watersmeet\.cacheBytes=.*64 MB"):
        settings(options={"cacheBytes": given})


@pytest.mark.parametrize(
    ("given", "mode"), [(None, 0o700), ("750", 0o750), ("0770", 0o770), ("2770", 0o2770)]
)
def test_the_mode_of_a_new_state_directory(given, mode):
    options = None if given is None else {"stateMode": given}
    assert settings(options=options).state_mode == settings(options=options).storage.mode == mode


@pytest.mark.parametrize("given", ["", "rwx", "0o750", "070", "7", "77777", "500", "780"])
def test_a_mode_that_shuts_the_owner_out_or_is_none_is_refused(given):
    with pytest.raises(ConfigError, match='stateMode must be an octal mode .* such as "750"'):
        settings(options={"stateMode": given})


def test_settings_do_not_show_the_credentials_of_their_state():
    chosen = settings(state="s3://KEY:hunter22@bucket/state")
    assert "hunter22" not in repr(chosen) + repr(chosen.storage) + str(chosen.storage)
    assert chosen.storage.uri == "s3://KEY:hunter22@bucket/state"


class Conf:
    """A session's settings. As Spark's: known ones have a default, which a caller's own default hides."""

    def __init__(self, values: dict[str, str], defaults: dict[str, str], refused: tuple[str, ...] = ()):
        self.values, self.defaults, self.refused = values, defaults, refused

    def get(self, key: str, *default: str | None) -> str | None:
        if key.startswith(self.refused):
            raise RuntimeError(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available")
        if key in self.values:
            return self.values[key]
        return default[0] if default else self.defaults[key]


class Session:
    def __init__(self, values: dict[str, str], defaults: dict[str, str], refused: tuple[str, ...] = ()):
        self.conf = Conf(values, defaults, refused)


def sql(session: Session, **options: object) -> SqlSettings:
    return read_sql_settings(session_conf(session), options)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_what_is_not_set_is_as_this_spark_has_it(ansi):
    """Its default depends on the platform, and on SPARK_ANSI_SQL_MODE."""
    known = {"spark.sql.ansi.enabled": ansi, "spark.sql.caseSensitive": "false"}
    found = sql(Session({}, {**known, "spark.sql.session.timeZone": "Europe/Berlin"}))
    assert found == SqlSettings(ansi=ansi == "true", case_sensitive=False, zone="Europe/Berlin")


def test_what_a_platform_refuses_to_tell_is_as_spark_documents_it():
    refusing = Session({}, {}, refused=("spark.",))
    assert sql(refusing) == SqlSettings(ansi=True, case_sensitive=False, zone="")
    chosen = read_settings(session_conf(refusing), state="/s", tasks=None)
    assert (chosen.tasks, chosen.retain_batches, chosen.fsync) == (200, 100, False)


def test_an_argument_says_what_a_platform_refuses_to_tell():
    refusing = Session({}, {}, refused=("spark.",))
    told = sql(refusing, ansi=False, caseSensitive=True, timeZone="UTC")
    assert told == SqlSettings(ansi=False, case_sensitive=True, zone="UTC")
    options = {"minBatchesToRetain": 7, "fsync": True}
    chosen = read_settings(session_conf(refusing), state="/s", tasks=3, options=options)
    assert (chosen.tasks, chosen.retain_batches, chosen.fsync) == (3, 7, True)


def test_a_setting_without_a_default_that_is_not_set_counts_as_absent():
    conf = session_conf(Session({"spark.watersmeet.fsync": "true"}, {}))
    assert conf("spark.watersmeet.fsync") == "true"
    assert conf("spark.watersmeet.state") is None
    assert conf("spark.sql.shuffle.partitions") is None


def test_every_setting_of_ours_can_be_given_as_an_argument():
    asked: set[str] = set()

    def conf(key: str) -> None:
        asked.add(key)

    read_settings(conf, state="/s", tasks=None)
    read_sql_settings(conf)
    arguments = {"spark.watersmeet.tasks"}
    own = {key for key in asked if key.startswith("spark.watersmeet.")}
    assert own <= {*OPTIONS.values(), *arguments}


def test_whether_a_hub_keeps_steps_is_one_of_three_words():
    assert read_keeping({}.get) == "auto"
    assert read_keeping({}.get, {"keep": "never"}) == "never"
    assert read_keeping({"spark.watersmeet.keep": "always"}.get) == "always"
    with pytest.raises(ConfigError, match="keep must be one of auto, never, always, not 'some'"):
        read_keeping({}.get, {"keep": "some"})
