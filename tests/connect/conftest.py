"""A Spark Connect session. It cannot live in one process with a classic one: this suite has a pytest of its own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import SPARK_SETTINGS, _require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A server on two cores in a JVM of this process, and a client of it. Do not stop it."""
    _require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # PySpark's own switch for a free port: without it the server takes 15002, which may be in use.
    os.environ["SPARK_TESTING"] = "1"
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        **SPARK_SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.memory": "1g",
        # An idle query looks for new files every 10 ms otherwise: several of them would fill both cores.
        "spark.sql.streaming.pollingDelay": "200ms",
    }
    builder = SparkSession.builder.remote("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # The client tries to set once more what the server was started with.
        warnings.simplefilter("ignore", UserWarning)
        session = builder.getOrCreate()
    yield session
    session.stop()
