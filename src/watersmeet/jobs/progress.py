"""Parse Spark's progress reports: rows in and out of each batch, and the time it took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# The name under which result rows are counted, because most sinks do not report what they wrote.
METRIC = "watersmeet"
ROWS_OUT = "rows_out"


@dataclass(frozen=True, slots=True)
class Batches:
    """One batch, or several consecutive ones combined."""

    first: int
    last: int
    rows_in: int
    rows_out: int
    ms: int

    @property
    def in_per_s(self) -> float:
        return self.rows_in * 1000 / max(1, self.ms)

    @property
    def out_per_s(self) -> float:
        return self.rows_out * 1000 / max(1, self.ms)

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def read_progress(report: Mapping[str, Any]) -> Batches | None:
    """The batch of a report (Spark's JSON); None if Spark only says that it is waiting."""
    times = report["durationMs"]
    if "addBatch" not in times:
        return None
    counted = report.get("observedMetrics", {}).get(METRIC) or {}
    number = int(report["batchId"])
    return Batches(
        first=number,
        last=number,
        rows_in=int(report["numInputRows"]),
        rows_out=int(counted[ROWS_OUT] if ROWS_OUT in counted else max(0, report["sink"]["numOutputRows"])),
        ms=int(times.get("triggerExecution", 0)),
    )


def read_new(reports: Iterable[Mapping[str, Any]], after: int) -> list[Batches]:
    """The batches above number `after`, ascending."""
    found = (read_progress(report) for report in reports)
    return sorted((b for b in found if b is not None and b.first > after), key=lambda b: b.first)


def together(batches: Iterable[Batches]) -> Batches:
    """The sum of one batch or more.

    >>> together([Batches(3, 3, 10, 1, 500), Batches(4, 4, 30, 2, 500)])
    Batches(first=3, last=4, rows_in=40, rows_out=3, ms=1000)
    """
    parts = list(batches)
    return Batches(
        first=min(b.first for b in parts),
        last=max(b.last for b in parts),
        rows_in=sum(b.rows_in for b in parts),
        rows_out=sum(b.rows_out for b in parts),
        ms=sum(b.ms for b in parts),
    )
