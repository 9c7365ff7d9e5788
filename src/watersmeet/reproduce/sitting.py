"""One Spark session for all runs that are compared, the same for every reproduction."""

from __future__ import annotations

from typing import Protocol

CORES = 2
SETTINGS = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(CORES),
    # The same everywhere, like the seed.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.log.level": "ERROR",
}


class Watch(Protocol):
    """Told what is being done, and how far it is."""

    def step(self, text: str) -> None: ...

    def batch(self, done: int, of: int) -> None: ...
