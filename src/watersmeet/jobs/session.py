"""A Spark session whose JVM is isolated: its output goes to a log file, and terminal signals do not reach it.

The JVM gets its own Unix session, so that a Ctrl-C in the terminal reaches only this process, which then stops the
query cleanly. Otherwise Spark's Python workers would die in the middle of a batch. The JVM still ends with this
process, because it reads our pipe as its standard input.

A session that is already running (in a notebook, a test) is used as it is and left running.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from watersmeet.errors import WatersmeetError
from watersmeet.jobs.failure import plain_message
from watersmeet.jobs.secrets import looks_secret
from watersmeet.spark.settings import advised, found_settings

# An idle JVM that was told to stop ends within a second.
_JVM_EXIT_S = 10

# Lines of the log in the message if Spark does not start.
_TAIL_LINES = 5

# What Spark's exceptions print to, in full, while they are made.
LOUD_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@dataclass
class Session:
    spark: SparkSession
    gateway: Any = None

    def close(self) -> None:
        """Stop Spark and wait for its JVM to end. A session that was there before us is left alone."""
        if self.gateway is None:
            return
        jvm = self.gateway.proc
        # A JVM that has already ended cannot be told to stop.
        with contextlib.suppress(Py4JError, OSError):
            self.spark.stop()
            self.gateway.shutdown()
        _forget_gateway()
        if jvm is None:
            return
        jvm.stdin.close()
        try:
            jvm.wait(_JVM_EXIT_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()

    def abandon(self) -> None:
        """Kill the JVM. Its batch is repeated at the next start."""
        if self.gateway is not None and self.gateway.proc is not None:
            self.gateway.proc.kill()
            self.gateway.proc.wait()


@contextlib.contextmanager
def spark_session(
    name: str, settings: Mapping[str, str], log: Path, *, show_stdout: bool = False
) -> Iterator[Session]:
    """A session for a block. If the block ends with other than an Exception, the JVM is killed."""
    session = open_session(name, settings, log, show_stdout=show_stdout)
    try:
        yield session
    except Exception:
        session.close()
        raise
    except BaseException:
        session.abandon()
        raise
    session.close()


def open_session(name: str, settings: Mapping[str, str], log: Path, *, show_stdout: bool = False) -> Session:
    """Open a new session with these settings, or return the running one. The console sink needs `show_stdout`."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return Session(running)
    _quiet_python_loggers()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.app.name": name, "spark.ui.showConsoleProgress": "false", **settings}
    settings |= advised({**found_settings(), **settings})
    if "spark.remote" in settings:
        return Session(SparkSession.builder.config(map=dict(settings)).getOrCreate())
    gateway = _launch(settings, log, show_stdout)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=_conf(settings), gateway=gateway)
        if on_interrupt is not None and threading.current_thread() is threading.main_thread():
            # PySpark has installed its own. It calls the JVM, where a call may be under way, and prints three traces.
            signal.signal(signal.SIGINT, on_interrupt)
    except (PySparkException, Py4JJavaError) as error:
        gateway.proc.kill()
        _forget_gateway()
        raise WatersmeetError(f"Spark did not start: {plain_message(error)}. Its log is {log}") from error
    return Session(SparkSession(context), gateway)


def _quiet_python_loggers() -> None:
    # py4j logs errors when the JVM ends first, which is expected.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Each mistake in SQL is printed as JSON with the traces of the JVM and of Python, before our message. It may also
    # hold what that message blanks out. Only their own class of loggers takes the arguments that they are called with.
    for name in LOUD_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _launch(settings: Mapping[str, str], log: Path, show_stdout: bool) -> Any:
    # Every user of the machine can read a command line, so credentials reach the JVM with the context instead.
    public = {key: value for key, value in settings.items() if not looks_secret(key)}
    with log.open("a") as sink:
        output = {"stderr": sink, "stdout": None if show_stdout else sink, "start_new_session": True}
        try:
            return launch_gateway(_conf(public), popen_kwargs=output)
        except (PySparkRuntimeError, OSError) as error:
            raise WatersmeetError(f"Spark did not start. Its log is {log}{_tail(log)}") from error


def _conf(settings: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(settings.items()))


def _tail(log: Path) -> str:
    """The end of the log, without Java stack traces."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    told = [f"  {line.strip()}" for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join([", and ends with:", *told[-_TAIL_LINES:]]) if told else ""


def _forget_gateway() -> None:
    """Let a later session in this process start its own JVM."""
    SparkContext._gateway = None
    SparkContext._jvm = None
