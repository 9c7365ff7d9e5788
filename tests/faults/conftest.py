"""For every Spark that the fault tests start: loopback only, and one Python for drivers and workers."""

from __future__ import annotations

import os
import sys

import pytest

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Four attempts a task: plain local mode gives up after the first."""
    from tests.faults.harness import CLEANING, new_session

    session = new_session("local[2,4]", tmp_path_factory.mktemp("spark"), **CLEANING)
    yield session
    session.stop()
