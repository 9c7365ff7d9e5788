"""The source behind `spark/heartbeat.py`: a new offset each second, and never a row.

The offset is the second of the clock. With `availableNow` the source ends at the second in which the query began: it
takes part in the first batch, and Spark cuts the backlog of the other sources by their own limits.

A query that was started with Spark's `rate` source continues from its checkpoint. Spark identifies an offset only by
its place among the sources of a query, and the offset of `rate` is a plain number, the seconds since it began. Nothing
is read between two offsets, so jumping to the clock's second skips nothing.

A beat in every second is not guaranteed: a clock that is set back gives none until it passes the last one.

A driver process that serves only this source loads this module, so it imports nothing of ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

_SECOND = "second"


class BeatSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "watersmeet_heartbeat"

    def schema(self) -> str:
        return "beat timestamp"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Beats()


class _Beats(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self) -> None:
        self._last_s: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_SECOND: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last_s = int(time.time())

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {_SECOND: next_second(start, int(time.time()), self._last_s)}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[()]]:
        return iter(())

    def commit(self, end: Any) -> None: ...


def next_second(start: Any, now_s: int, last_s: int | None = None) -> int:
    """The next offset after one of ours or of `rate`, not beyond `last_s`.

    >>> next_second({"second": 70}, now_s=75), next_second({"second": 70}, now_s=75, last_s=72)
    (75, 72)
    >>> next_second({"second": 70}, now_s=60), next_second(12, now_s=60)
    (70, 60)
    """
    before = start[_SECOND] if isinstance(start, dict) else 0
    return max(before, now_s if last_s is None else min(now_s, last_s))
