"""Sales that get the price of their product from a table that is not broadcast: `python examples/sales_products.py`."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import watersmeet as wm

# Spark's workers shall be this Python, whatever `python3` is on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

PRODUCTS = 500_000
rng = np.random.default_rng(7)
products = pa.table({"id": np.arange(PRODUCTS), "price": rng.uniform(1, 1000, PRODUCTS).round(2)})
# A few products are sold most of the time (Zipf's law), and some are not in the table.
sold = np.exp(rng.uniform(0, np.log(1.1 * PRODUCTS), 800)).astype(np.int64)
sales = pa.table({"product": sold, "quantity": rng.integers(1, 10, 800, dtype=np.int32)})
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()

with tempfile.TemporaryDirectory() as folder:
    pq.write_table(products, f"{folder}/products.parquet", row_group_size=5_000)
    Path(folder, "sales").mkdir()
    for start in range(0, len(sales), 200):
        pq.write_table(sales.slice(start, 200), f"{folder}/sales/{start:05}.parquet")
    stream = spark.readStream.schema("product BIGINT, quantity INT").option("maxFilesPerTrigger", 1)
    table = wm.table(f"{folder}/products.parquet", key="id")
    priced = wm.join(
        {"s": stream.parquet(f"{folder}/sales"), "p": table},
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
print(f"the last batch needed {join.plan.pages_read} of {join.plan.table.pages} pages")
