"""A join over a sliding window of event time: what a window is for each competitor, and its workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

SEED = 20_260_101
FIRST_EVENT_US = 1_700_000_000_000_000
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Window:
    """How far apart the times of a result's rows may be, the time column of each input, and how late rows may come.

    Without `bounds` the join's own condition keeps the times as close.
    """

    within: str
    time: dict[str, str]
    lateness: str
    bounds: bool = True

    def condition(self) -> str:
        """The window as a condition, for those who know no other."""
        (one, first), (other, second) = self.time.items()
        span = f"INTERVAL {self.within}"
        return f"{one}.{first} >= {other}.{second} - {span} AND {one}.{first} <= {other}.{second} + {span}"


@dataclass(frozen=True, slots=True)
class WindowWorkload:
    """Two inputs of `rows` rows each; a batch brings a minute of event time, its rows in random order.

    Rows match when their keys are equal and their times at most a minute apart.
    """

    name: str
    rows: int
    keys: int
    batches: int
    heap_gb: int
    seed: int = SEED

    inputs: ClassVar[tuple[str, str]] = ("l", "r")
    streams: ClassVar[tuple[str, ...]] = inputs
    on: ClassVar[str] = "l.k = r.k"
    select: ClassVar[tuple[str, ...]] = ("l.k", "l.id", "l.at", "l.x", "r.id AS rid", "r.at AS rat", "r.y")
    reach: ClassVar[int] = 0
    filters: ClassVar[dict[str, str]] = {}
    # No row is late: a batch's rows are all newer than the watermark that the batch before it leaves.
    window: ClassVar[Window] = Window("1 minute", {"l": "at", "r": "at"}, "10 seconds")

    @property
    def text(self) -> str:
        return (
            f"{self.name} {self.rows:,} x {self.rows:,} rows, {self.keys:,} keys, {self.batches} batches of a minute, "
            f"{self.heap_gb} GB heap"
        )

    @property
    def batch_rows(self) -> int:
        return self.rows // self.batches

    def schema(self, name: str) -> str:
        return f"k bigint, id bigint, at timestamp, {_VALUE[name]} double"

    def facts(self) -> str:
        return f"window,{self.rows},{self.keys},{self.batches},{self.seed}"

    def quick(self) -> WindowWorkload:
        return replace(
            self,
            name=f"{self.name}-quick",
            rows=self.rows // 10,
            keys=self.keys // 10,
            heap_gb=min(self.heap_gb, 4),
        )

    def batches_of(self, number: int) -> Iterator[pa.Table]:
        name, rows = self.inputs[number], self.batch_rows
        rng = np.random.default_rng((self.seed, number))
        minute = 60_000_000
        for batch in range(self.batches):
            # The first row of a batch is its newest: so the watermark is the same for both inputs.
            past = rng.integers(0, minute, rows)
            past[0] = 0
            at = FIRST_EVENT_US + (batch + 1) * minute - 1 - past
            yield pa.table(
                {
                    "k": rng.integers(0, self.keys, rows),
                    "id": np.arange(batch * rows, (batch + 1) * rows),
                    "at": pa.array(at).cast(TIME),
                    _VALUE[name]: rng.random(rows),
                }
            )


_VALUE = {"l": "x", "r": "y"}
# 100,000 rows of each input a minute: a row meets about two of the other input.
MINUTE = WindowWorkload("minute", 2_000_000, 100_000, 20, heap_gb=6)
MINUTE_CHECK = WindowWorkload("minute-check", 200_000, 10_000, 8, heap_gb=4)
