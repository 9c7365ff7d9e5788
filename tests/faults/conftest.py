"""For every Spark that the fault tests start: loopback only, and one Python for drivers and workers."""

from __future__ import annotations

import os
import sys

os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYSPARK_PYTHON"] = sys.executable
