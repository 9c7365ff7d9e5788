"""The same join on batch DataFrames, and on Arrow tables without Spark: `python examples/batch_join.py`."""

import os
import sys
import tempfile

import pyarrow as pa
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.local.join import LocalJoin

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

views = pa.table({"page": ["/a", "/b", "/a"], "at": [1, 2, 3]})
clicks = pa.table({"page": ["/a", "/b", "/c"], "at": [2, 1, 5]})
on = "v.page = c.page AND c.at >= v.at"
select = ["v.page", "c.at - v.at AS after"]

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()
wm.join({"v": spark.createDataFrame(views), "c": spark.createDataFrame(clicks)}, on=on, select=select).show()

# The streaming operator, driven in this process: for tests and small data.
with tempfile.TemporaryDirectory() as state:
    join = LocalJoin({"v": views.schema, "c": clicks.schema}, on=on, select=select, state=state)
    print(join.batch(v=views).to_pylist())
    print(join.batch(c=clicks).to_pylist())
