"""Sales that get the price of their product from a table that is not broadcast: `python examples/sales_products.py`."""

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.testing import products, sales

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

PRODUCTS = 500_000
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

with tempfile.TemporaryDirectory() as folder:
    pq.write_table(products(PRODUCTS), f"{folder}/products.parquet")
    Path(folder, "sales").mkdir()
    # Some sales are of products that the table does not have.
    sold = sales(800, products=PRODUCTS + 50_000)
    for start in range(0, len(sold), 200):
        pq.write_table(sold.slice(start, 200), f"{folder}/sales/{start:05}.parquet")
    stream = spark.readStream.schema("product BIGINT, at TIMESTAMP, quantity INT")

    priced = wm.join(
        {
            "s": stream.option("maxFilesPerTrigger", 1).parquet(f"{folder}/sales"),
            "p": wm.table(f"{folder}/products.parquet", key="id"),
        },
        on="s.product = p.id",
        how="left",
        select=["s.product", "s.quantity * p.price AS amount"],
        state=f"{folder}/state",
    )
    query = priced.writeStream.format("memory").queryName("priced").trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table("priced").collect()
    (join,) = wm.status(f"{folder}/state").joins

unknown = sum(row.amount is None for row in rows)
print(f"{len(rows):,} sales, {unknown} of them of products that the table does not have")
print(f"the last batch needed {join.table.pages_read} of {join.table.pages} pages")
