"""The session settings that make batches short, each with its reason: `wm.configure` and `wm.session_settings`.

None of them changes a result. The figures are of Spark 4.3 on two cores; docs/operations.md ("Faster batches") has
them all. A setting that somebody has made stays as it is, wherever it was made: in the builder, in a session that
already runs, on the command line of spark-submit, or in spark-defaults.conf.

Two settings are for one machine only (a master `local[...]`). The checkpoint file manager: Spark's default starts a
shell for every file of a checkpoint on a local disk. The other one is no less careful there: both ask whether the file
is there and then rename over it, so both leave the same short gap. A second driver of a query is found by its claim of
a start (log/starts.py): the older one is refused when it next plans a batch. A batch that it has planned before has the
same rows as that of the second driver, and a sink that is idempotent by batch takes one of them. Unix domain sockets:
their address has about a hundred characters at most, and the temporary folder of an executor on a cluster is unknown
here.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark names a socket by a UUID below its folder, 43 characters with `.sock` and the slash. Linux allows 107 in all,
# macOS 103.
_MOST_SOCKET_FOLDER_CHARS = 60

JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and why it helps. `one_machine`: only if driver, executors and checkpoints are on one machine."""

    key: str
    value: str
    why: str
    one_machine: bool = False


SETTINGS = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "the default starts a shell for every checkpoint file on a local disk: about 170 ms of every batch",
        one_machine=True,
    ),
    Setting(
        "spark.sql.adaptive.streaming.stateless.enabled",
        "false",
        "replanning between the two stages of a batch takes about 30 ms and finds nothing to improve",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2147483647",
        "with any other limit Spark computes the size of an Arrow batch again for every row",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "bytes between the JVM and Python cost half as much as over loopback",
        one_machine=True,
    ),
    Setting(
        "spark.driver.extraJavaOptions",
        JAVA_OPTIONS,
        "Arrow's Java library checks every value of a result once more, although Spark has checked it",
    ),
    Setting("spark.executor.extraJavaOptions", JAVA_OPTIONS, "the same on executors"),
)

# All others are read when the JVM starts. A server of Spark Connect has started before its clients.
_OF_SQL = "spark.sql."


def advised(given: Mapping[str, str], *, one_machine: bool | None = None) -> dict[str, str]:
    """The settings that help and that `given` leaves open. Java options are added to those that are given.

    Without `one_machine` the master decides. A client of Spark Connect can only change settings of SQL.

    >>> sorted(advised({"spark.remote": "sc://there"}))
    ['spark.sql.adaptive.streaming.stateless.enabled', 'spark.sql.execution.arrow.maxBytesPerBatch']
    >>> advised({"spark.driver.extraJavaOptions": "-Xss4m"})["spark.driver.extraJavaOptions"].split()[0]
    '-Xss4m'
    """
    if one_machine is None:
        # Without any master Spark takes the cores of this machine.
        one_machine = "spark.remote" not in given and given.get("spark.master", "local").startswith("local")
    chosen = {}
    for one in SETTINGS:
        if (one.one_machine and not one_machine) or not _fits(one, given):
            continue
        if one.value == JAVA_OPTIONS:
            had = given.get(one.key, "")
            if "arrow.enable_" not in had:
                chosen[one.key] = f"{had} {JAVA_OPTIONS}".strip()
        elif one.key not in given:
            chosen[one.key] = one.value
    return chosen


def _fits(one: Setting, given: Mapping[str, str]) -> bool:
    if one.key == "spark.python.unix.domain.socket.enabled":
        folder = given.get("spark.python.unix.domain.socket.dir") or tempfile.gettempdir()
        return os.name == "posix" and len(folder) <= _MOST_SOCKET_FOLDER_CHARS
    return "spark.remote" not in given or one.key.startswith(_OF_SQL)


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the advised settings to a builder, except for those that are already made somewhere."""
    options = {key: str(value) for key, value in builder._options.items()}
    return builder.config(map=dict(advised({**found_settings(), **_running(), **options})))


def _running() -> dict[str, str]:
    """The settings of a session, or of a JVM, that already runs: spark-submit starts one before the program."""
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote_only

    session = SparkSession.getActiveSession()
    if session is not None:
        return dict(session.conf.getAll)
    if is_remote_only() or "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def found_settings() -> dict[str, str]:
    """The settings that Spark would find by itself: spark-defaults.conf, and arguments for spark-submit."""
    import pyspark

    found: dict[str, str] = {}
    if "SPARK_REMOTE" in os.environ:
        found["spark.remote"] = os.environ["SPARK_REMOTE"]
    if "MASTER" in os.environ:
        found["spark.master"] = os.environ["MASTER"]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
    for file in [*_values(arguments, "--properties-file")] or [f"{folder}/spark-defaults.conf"]:
        found |= _properties(Path(file))
    for master in _values(arguments, "--master"):
        found["spark.master"] = master
    for text in (*_values(arguments, "--conf"), *_values(arguments, "-c")):
        key, _, value = text.partition("=")
        found[key] = value
    for text in _values(arguments, "--driver-java-options"):
        found["spark.driver.extraJavaOptions"] = text
    return found


def _values(arguments: Sequence[str], name: str) -> Iterator[str]:
    """What follows an argument, as in `--conf a=b` and `--conf=a=b`.

    >>> list(_values(["--conf", "a=b", "--conf=c=d", "pyspark-shell"], "--conf"))
    ['a=b', 'c=d']
    """
    for place, argument in enumerate(arguments):
        if argument == name:
            yield from arguments[place + 1 : place + 2]
        elif argument.startswith(f"{name}="):
            yield argument[len(name) + 1 :]


def _properties(file: Path) -> dict[str, str]:
    """Lines such as `spark.master local[2]`. A file that cannot be read says nothing: Spark will complain of it."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs if pair}
