"""What a simulated run shows: load, storage and time over the progress of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from papers.adaptive.sim.arrivals import Counts, Floats
from watersmeet.errors import UsageError
from watersmeet.schemes.grid.facts import GridShape


@dataclass(frozen=True, slots=True)
class MigrationSpan:
    """A migration from its decision to its end, in time and in rows arrived; `moved_*` are over all joiners."""

    before: tuple[GridShape, ...]
    after: tuple[GridShape, ...]
    reason: str
    begin_time: float
    end_time: float
    begin_rows: int
    end_rows: int
    moved_rows: float
    moved_bytes: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A sample at the end of each chunk, and for a grid also before and after each change of mapping.

    Bytes are what joiners store: the input-load factor. `optimal_bytes` is that of a fullest joiner under the
    best mapping for what had arrived by then. `time` is when the slowest joiner was done with it.
    """

    left_rows: Counts
    right_rows: Counts
    max_bytes: Floats
    mean_bytes: Floats
    total_bytes: Floats
    optimal_bytes: Floats
    time: Floats
    migrations: tuple[MigrationSpan, ...] = ()

    @property
    def rows(self) -> Counts:
        return self.left_rows + self.right_rows

    @property
    def fraction(self) -> Floats:
        """The share of the stream that has arrived."""
        return self.rows / max(1, int(self.rows[-1]))

    @property
    def ratio(self) -> Floats:
        """The fullest joiner against the best mapping: what Theorem 4.1 bounds."""
        return self.max_bytes / self.optimal_bytes

    @property
    def execution_time(self) -> float:
        return float(self.time[-1])

    @property
    def throughput(self) -> float:
        """Rows of both inputs for each unit of time, over the whole run."""
        return float(self.rows[-1]) / self.execution_time


@dataclass(slots=True)
class Recorder:
    """Gathers samples."""

    samples: list[tuple[float, ...]] = field(default_factory=list)

    def add(
        self,
        left_rows: int,
        right_rows: int,
        stored: Floats,
        joiners: Floats,
        optimal: float,
        time: float,
    ) -> None:
        """`stored` and `joiners`: bytes that each joiner holds, and how many there are of such."""
        total = float(stored @ joiners)
        mean = total / float(joiners.sum())
        self.samples.append((left_rows, right_rows, float(stored.max()), mean, total, optimal, time))

    def finish(self, migrations: tuple[MigrationSpan, ...] = ()) -> Progress:
        if not self.samples:
            raise UsageError("no rows arrived: there is nothing to show")
        columns = np.array(self.samples, dtype=np.float64).T
        left, right, most, mean, total, optimal, time = columns
        return Progress(
            left_rows=left.astype(np.int64),
            right_rows=right.astype(np.int64),
            max_bytes=most,
            mean_bytes=mean,
            total_bytes=total,
            optimal_bytes=optimal,
            time=time,
            migrations=migrations,
        )
