"""The session of a job: what it leaves to whoever started it."""

from __future__ import annotations

import logging
import signal
from types import SimpleNamespace

import pytest
from pyspark.logger import PySparkLogger

from watersmeet.jobs import session


class Session:
    """A session without a JVM."""

    def __init__(self, context: object) -> None:
        self.context = context

    @staticmethod
    def getActiveSession() -> None:  # noqa: N802
        return None


def take_ctrl_c(**_: object) -> None:
    """As PySpark's context does when it is made."""
    signal.signal(signal.SIGINT, lambda *_: None)


def mine(number: int, frame: object) -> None: ...


@pytest.fixture
def opened(monkeypatch, tmp_path):
    loggers = [logging.getLogger("py4j"), *map(PySparkLogger.getLogger, session.LOUD_LOGGERS)]
    levels, handler = [one.level for one in loggers], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(session, "SparkContext", take_ctrl_c)
    monkeypatch.setattr(session, "SparkSession", Session)
    monkeypatch.setattr(session, "_launch", lambda *_: SimpleNamespace(proc=None))
    signal.signal(signal.SIGINT, mine)
    session.open_session("a", {}, tmp_path / "log")
    yield
    signal.signal(signal.SIGINT, handler)
    for one, level in zip(loggers, levels, strict=True):
        one.setLevel(level)


def test_ctrl_c_stays_with_whoever_had_it(opened):
    """PySpark's own handler calls the JVM in the middle of another call, and prints the traces of both."""
    assert signal.getsignal(signal.SIGINT) is mine


@pytest.mark.parametrize("name", session.LOUD_LOGGERS)
def test_spark_prints_no_trace_of_a_mistake_in_sql(opened, name):
    logger = logging.getLogger(name)
    assert not logger.isEnabledFor(logging.ERROR)
    # As `PySparkException` calls it: a plain logger would not take the keyword.
    assert isinstance(logger, PySparkLogger)
    logger.exception("zz cannot be resolved", errorClass="UNRESOLVED_COLUMN")
