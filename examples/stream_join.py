"""A streaming join with a further condition and selected columns: `python examples/stream_join.py`."""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import watersmeet as wm

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

data = Path(__file__).parent / "data"
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()

orders = (
    spark.readStream.schema("id BIGINT, customer STRING, amount DECIMAL(10,2), ordered_at TIMESTAMP")
    .option("header", True)
    .csv(str(data / "orders"))
)
payments = spark.readStream.schema("order_id BIGINT, amount DECIMAL(10,2)").json(str(data / "payments"))

with tempfile.TemporaryDirectory() as folder:
    paid = wm.join(
        {"o": orders, "p": payments},
        on="o.id = p.order_id AND p.amount <= o.amount",
        select=["o.id", "o.customer", "o.amount - p.amount AS open"],
        state=f"{folder}/state",
    )
    # An ordinary streaming DataFrame: any sink and any trigger will do.
    query = (
        paid.writeStream.format("memory")
        .queryName("paid")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.table("paid").orderBy("id", "open").show()

    for join in wm.status(f"{folder}/state").joins:
        for one in join.inputs:
            print(
                f"{one.name}: {one.rows} rows kept in {one.runs} runs, {one.totals.null_rows} dropped for a null key"
            )
