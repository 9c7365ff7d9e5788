"""Three hundred queries of customers over two streams, in one streaming query; one of them is removed while it runs.

    python examples/hub.py

Each customer watches one share: trades above a price, with the news about the share of the last ten minutes. A query is
a row, not a plan: all of them share their work, and texts that differ only in constants are parsed once.
"""

import random
import tempfile

from pyspark.sql import SparkSession

import watersmeet as wm

SHARES, CUSTOMERS, FILES = 100, 300, 3
TRADES, NEWS = "share int, price int", "share int, headline string"
WATCH = "SELECT t.price, n.headline FROM trades t, news n WHERE t.share = n.share AND t.share = {} AND t.price > {}"

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = wm.configure(builder).getOrCreate()
rng = random.Random(1)

with tempfile.TemporaryDirectory() as folder:

    def arrive(number: int) -> None:
        trades = [(rng.randrange(SHARES), rng.randrange(100)) for _ in range(5_000)]
        spark.createDataFrame(trades, TRADES).coalesce(1).write.parquet(f"{folder}/trades/{number}")
        news = [(share, f"news {number} of share {share}") for share in range(SHARES)]
        spark.createDataFrame(news, NEWS).coalesce(1).write.parquet(f"{folder}/news/{number}")

    streams = {
        "trades": spark.readStream.schema(TRADES).parquet(f"{folder}/trades/*"),
        "news": spark.readStream.schema(NEWS).parquet(f"{folder}/news/*"),
    }
    watched = {f"customer {n}": f"{WATCH.format(n % SHARES, 90)} WINDOW 10 MINUTES" for n in range(CUSTOMERS)}
    arrive(0)
    hub = wm.hub(streams, queries=watched, state=f"{folder}/state")
    writer = hub.answers().writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.foreachBatch(hub.deliver(f"{folder}/answers")).start()
    query.processAllAvailable()
    # As `watersmeet hub remove` does. The customer has no answers of later batches.
    hub.remove("customer 7")
    query.processAllAvailable()
    for number in range(1, FILES):
        arrive(number)
        query.processAllAvailable()
    query.stop()
    status, mine = hub.status(), hub.read("customer 8", f"{folder}/answers")
    print(f"{len(status.queries)} live queries of {status.templates} template")
    print(f"customer 8 has {mine.count()} answers, such as {mine.orderBy('batch', 'price').first()}")
    print(f"most answers in the last batch: {status.top_answers[0].query}")
