"""`wm.configure` and `wm.session_settings`: what they set, and that they leave alone what somebody has set."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.spark.settings import JAVA_OPTIONS, SETTINGS, advised

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
SOCKETS = "spark.python.unix.domain.socket.enabled"
JAVA = "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch, tmp_path):
    """A machine on which nobody has set anything, whatever this one has."""
    for variable in ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "MASTER", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))


def configured(*masters: str, **options: str) -> dict[str, str]:
    builder = SparkSession.Builder()
    for master in masters:
        builder = builder.master(master)
    return dict(wm.configure(builder.config(map=dict(options)))._options)


@pytest.mark.parametrize("master", [(), ("local",), ("local[4]",)])
def test_one_machine_gets_all_settings(master):
    assert {one.key: one.value for one in SETTINGS}.items() <= configured(*master).items()


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://there"])
def test_a_cluster_keeps_its_checkpoint_manager_and_its_sockets(master):
    found = configured(master)
    assert MANAGER not in found and SOCKETS not in found
    assert found[ADAPTIVE] == "false"


def test_a_client_of_connect_gets_settings_of_sql_only(monkeypatch):
    builder = SparkSession.Builder().remote("sc://there")
    found = dict(wm.configure(builder)._options)
    assert {key for key in found if not key.startswith("spark.sql.")} == {"spark.remote"}
    assert MANAGER not in found and found[ADAPTIVE] == "false"
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    assert JAVA not in configured()


def by_builder(monkeypatch, folder: Path) -> dict[str, str]:
    return configured(**{ADAPTIVE: "true"})


def by_defaults(monkeypatch, folder: Path) -> dict[str, str]:
    (folder / "spark-defaults.conf").write_text(f"# ours\n\n{ADAPTIVE}   true\nspark.app.name=x\n")
    return {ADAPTIVE: "true", **configured()}


def by_properties(monkeypatch, folder: Path) -> dict[str, str]:
    (folder / "mine.conf").write_text(f"{ADAPTIVE}=true\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {folder}/mine.conf pyspark-shell")
    return {ADAPTIVE: "true", **configured()}


def by_submit(monkeypatch, folder: Path) -> dict[str, str]:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f'--conf "{ADAPTIVE}=true" pyspark-shell')
    return {ADAPTIVE: "true", **configured()}


def by_session(monkeypatch, folder: Path) -> dict[str, str]:
    class Running:
        class conf:  # noqa: N801
            getAll = {ADAPTIVE: "true"}  # noqa: N815, RUF012

    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: Running))
    return {ADAPTIVE: "true", **configured()}


@pytest.mark.parametrize("somebody_sets", [by_builder, by_defaults, by_properties, by_submit, by_session])
def test_what_somebody_has_set_stays(monkeypatch, tmp_path, somebody_sets):
    found = somebody_sets(monkeypatch, tmp_path)
    assert found[ADAPTIVE] == "true"
    assert found[MANAGER], "the others are set"


def test_the_master_of_spark_submit_counts(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://there:7077 pyspark-shell")
    assert MANAGER not in configured()


def test_java_options_are_added_to_those_that_are_there():
    assert configured(**{JAVA: "-Xss4m"})[JAVA] == f"-Xss4m {JAVA_OPTIONS}"
    own = "-Darrow.enable_null_check_for_get=true"
    assert configured(**{JAVA: own})[JAVA] == own


def test_a_long_temporary_folder_gets_no_sockets(monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp/" + "x" * 60)
    assert SOCKETS not in configured()
    assert SOCKETS in configured(**{"spark.python.unix.domain.socket.dir": "/tmp"})


def test_the_settings_as_a_dict():
    assert wm.session_settings() == advised({}, one_machine=False)
    assert wm.session_settings(local=True).keys() - wm.session_settings().keys() == {MANAGER, SOCKETS}


def test_operations_explains_every_setting():
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert [one.key for one in SETTINGS if f"`{one.key}" not in text] == []
