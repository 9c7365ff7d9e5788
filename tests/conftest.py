"""What all tests share: one Spark session, started by the first test that asks for it; S3 buckets; Hypothesis profiles."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# HYPOTHESIS_PROFILE=thorough make test
# No deadline: on a shared machine the time of one example says nothing about the code.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "thorough",
    deadline=None,
    print_blob=True,
    max_examples=2_000,
    suppress_health_check=[HealthCheck.too_slow],
)
# The same draws in every run: what lands must not depend on luck. Whoever works on it draws others with `make test`.
settings.register_profile("fixed", deadline=None, print_blob=True, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SPARK_SETTINGS = {
    # No port to collide on, and no memory for pages that nobody looks at.
    "spark.ui.enabled": "false",
    # The name of the machine may not resolve in a container.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default of 200 makes each micro-batch of a few rows take seconds.
    "spark.sql.shuffle.partitions": "2",
    # Bounded, so that the JVM leaves room for Python and for other work on the machine.
    "spark.driver.memory": "2g",
    # A batch of a few rows has no use for the second compiler, which takes a core for the first minutes.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Spark's own default, named because predicates mean something else without it (overflow, casts).
    "spark.sql.ansi.enabled": "true",
    # Timestamps in expected results are written in UTC, wherever the tests run.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default for local disks starts a shell for every file of a checkpoint: a third of a small batch. The tests
    # of faults and those that start the command line keep the default.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Tests look at the progress of every batch; the default forgets all but the last 100.
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    # A query that is stopped while it is busy must not hang the suite.
    "spark.sql.streaming.stopTimeout": "60s",
    # Warnings about deleted temporary directories hide what matters in a failed test's output.
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, shared by all tests because starting one takes seconds. Do not stop it."""
    _require_java()
    from pyspark.sql import SparkSession

    # Workers must be the Python of the tests, whatever `python3` is on PATH. Only the variable does that: the
    # setting spark.pyspark.python is read by spark-submit alone.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("watersmeet tests")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    session = (
        # Blocks and tables go where pytest cleans up, not into the working directory.
        builder.config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server in a thread of this process."""
    from tests.s3 import s3_server

    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new bucket, which clients find by the environment."""
    from tests.s3 import environment, make_bucket

    for variable, value in environment(s3_endpoint).items():
        monkeypatch.setenv(variable, value)
    return make_bucket()


def _require_java() -> None:
    """A missing Java fails the tests: a skip would let a suite without any Spark test look green."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        pytest.fail(
            "Spark needs Java 17 or newer: set JAVA_HOME, or run the tests with `make test`", pytrace=False
        )
