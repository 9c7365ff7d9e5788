"""The market's feed: a thread that writes Parquet files, as an upstream system would.

A file is written under a name that Spark ignores and then renamed, so Spark sees a whole file or none. The clock
decides how much is written, the seed what.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.cli.demo.market import Market

# Rows a second: well below what two cores join, so that the demo keeps up on a laptop. Each second about 1.3 million
# pairs of one lot are compared, most of them of the few hot lots.
BUYS_PER_S, SELLS_PER_S = 2_000, 4_000
_FILE_EVERY_S = 0.5
# The rate swings by this share, once in this many seconds.
_SWING, _SWING_S = 0.5, 8.0


class Producer:
    """Writes to `folder`/buys and `folder`/sells until stopped."""

    def __init__(self, folder: Path, seed: int):
        self.rows = {"buys": 0, "sells": 0}
        self.error: Exception | None = None
        self._folder = folder
        self._market = Market(seed)
        self._files = 0
        self._stop = Event()
        self._thread = Thread(target=self._produce, name="market", daemon=True)
        for name in self.rows:
            (folder / name).mkdir(parents=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and return when the last file is complete."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _produce(self) -> None:
        started = last = time.monotonic()
        try:
            while not self._stop.wait(_FILE_EVERY_S):
                now = time.monotonic()
                share = (now - last) * (1 + _SWING * math.sin((now - started) * 2 * math.pi / _SWING_S))
                last = now
                self.write(round(BUYS_PER_S * share), round(SELLS_PER_S * share))
        except Exception as error:
            # Kept for the main thread, which then ends the demo.
            self.error = error

    def write(self, buys: int, sells: int) -> None:
        """Write one more file of each kind."""
        tables = dict(zip(self.rows, self._market.next_slice(buys, sells), strict=True))
        for name, table in tables.items():
            _write_whole(table, self._folder / name / f"{self._files:06d}.parquet")
            self.rows[name] += len(table)
        self._files += 1


def _write_whole(table: pa.Table, path: Path) -> None:
    draft = path.with_name(f".{path.name}.draft")
    pq.write_table(table, draft)
    draft.rename(path)
