"""Tallies: what the tasks of a batch did, counted.

A task counts while it works (`Tally`) and leaves what it found as a fact (`TaskTally`, log/tallies.py). Tallies are
knowledge, never part of a result: the next plan weighs its decisions by them and the status shows them, and a batch is
joined in the same way if all of them are lost.

*Work* is what a walk through many inputs is measured by: the rows that it looked up and the rows that it bound. Unlike
time it is the same on any machine and in any attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KeyRange


@dataclass(frozen=True, slots=True)
class TermTally:
    """The work of a task in the term of one input, in a join of many inputs on different keys.

    `fresh_rows` of the input were walked. `looked_rows` counts each combination of rows once for every arrangement that
    it was looked up in, and `bound_rows` the combinations that were made.
    """

    start: str
    fresh_rows: int = 0
    looked_rows: int = 0
    bound_rows: int = 0

    @property
    def work(self) -> int:
        return self.looked_rows + self.bound_rows

    def plus(self, other: TermTally) -> TermTally:
        return TermTally(
            self.start,
            self.fresh_rows + other.fresh_rows,
            self.looked_rows + other.looked_rows,
            self.bound_rows + other.bound_rows,
        )


@dataclass(frozen=True, slots=True)
class QueryTally:
    """What one query of a hub did in a task: its answers, and the rows that were looked at for it.

    Steps that queries share count for each of them.
    """

    query: str
    answers: int = 0
    looked_rows: int = 0

    def plus(self, other: QueryTally) -> QueryTally:
        return QueryTally(self.query, self.answers + other.answers, self.looked_rows + other.looked_rows)


@dataclass(frozen=True, slots=True)
class TaskTally:
    """What one task did in one batch.

    `touched_bytes` are the parts of run files that it opened. `reading` is the time to open and verify runs, `probing`
    that to find and build results, `emitting` that while results were taken, `merging` that of its merges. Under a
    budget of memory `groups` are the partition groups that had results, by number, and `group_rows` the results of
    each. `decoded_bytes` are the parts of a table's files that were decoded, if it is read in place. Of a hub `answers`
    counts them, and `queries` are those that answered or cost most.
    """

    batch: int
    task: int
    looked_rows: int
    emitted_rows: int
    touched_bytes: int
    reading_ms: float = 0.0
    probing_ms: float = 0.0
    emitting_ms: float = 0.0
    merging_ms: float = 0.0
    terms: tuple[TermTally, ...] = ()
    groups: tuple[int, ...] = ()
    group_rows: tuple[int, ...] = ()
    decoded_bytes: int = 0
    answers: int = 0
    queries: tuple[QueryTally, ...] = ()


@dataclass(slots=True)
class Work:
    """Counts the work of one walk."""

    looked_rows: int = 0
    bound_rows: int = 0


@dataclass(slots=True)
class Tally:
    """Counts the work of one task in one batch. `probed_rows` are the fresh rows that were looked up."""

    probed_rows: int = 0
    looked_rows: int = 0
    emitted_rows: int = 0
    reading_s: float = 0.0
    probing_s: float = 0.0
    emitting_s: float = 0.0
    merging_s: float = 0.0
    decoded_bytes: int = 0
    # The parts of run files that were opened, by path: shares may open one of them again.
    touched: dict[str, int] = field(default_factory=dict)
    terms: dict[str, TermTally] = field(default_factory=dict)
    # The same where a run is read segment by segment: bytes of each.
    touched_segments: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    # The lowest keys of the partition groups, if results are counted by them, and the results of each.
    group_lows: npt.NDArray[np.uint64] | None = None
    group_rows: npt.NDArray[np.float64] | None = None
    answers: int = 0
    queries: tuple[QueryTally, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether results are counted by their keys."""
        return self.group_lows is not None

    def count_by(self, groups: Sequence[KeyRange]) -> None:
        """Count results by partition group from now on."""
        self.group_lows = np.array([one.low for one in groups], np.uint64)
        self.group_rows = np.zeros(len(groups))

    def count(self, keys: npt.NDArray[np.uint64], rows: npt.NDArray[Any]) -> None:
        """Count results by their keys."""
        assert self.group_lows is not None and self.group_rows is not None
        group = np.searchsorted(self.group_lows, keys, side="right") - 1
        self.group_rows += np.bincount(group, weights=rows, minlength=len(self.group_lows))

    def touch(self, path: str, segments: npt.NDArray[np.int64], size: npt.NDArray[np.int64], of: int) -> None:
        """Record bytes of some segments of a run, of which there are `of`. The same bytes again count once."""
        known = self.touched_segments.setdefault(path, np.zeros(of, np.int64))
        known[segments] = np.maximum(known[segments], size)

    def look_up(self, fresh_rows: int) -> None:
        """Count fresh rows that were looked up once each."""
        self.probed_rows += fresh_rows
        self.looked_rows += fresh_rows

    def add_walk(self, start: str, fresh_rows: int, work: Work) -> None:
        mine = TermTally(start, fresh_rows, work.looked_rows, work.bound_rows)
        self.terms[start] = self.terms[start].plus(mine) if start in self.terms else mine
        self.probed_rows += fresh_rows
        self.looked_rows += work.looked_rows

    @property
    def bound_rows(self) -> int:
        return sum(term.bound_rows for term in self.terms.values())

    def closed(self, batch: int, task: int) -> TaskTally:
        """What was counted, as a fact."""

        def ms(seconds: float) -> float:
            return round(1000 * seconds, 1)

        return TaskTally(
            batch,
            task,
            self.looked_rows,
            self.emitted_rows,
            sum(self.touched.values()) + sum(int(size.sum()) for size in self.touched_segments.values()),
            ms(self.reading_s),
            ms(self.probing_s),
            ms(self.emitting_s),
            ms(self.merging_s),
            tuple(self.terms.values()),
            *self._grouped(),
            decoded_bytes=self.decoded_bytes,
            answers=self.answers,
            queries=self.queries,
        )

    def _grouped(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self.group_rows is None:
            return (), ()
        groups = np.flatnonzero(self.group_rows)
        return tuple(groups.tolist()), tuple(self.group_rows[groups].astype(np.int64).tolist())


def total_terms(tallies: tuple[TaskTally, ...]) -> dict[str, TermTally]:
    """The work of all these tasks together, by term."""
    found: dict[str, TermTally] = {}
    for term in (term for tally in tallies for term in tally.terms):
        found[term.start] = found[term.start].plus(term) if term.start in found else term
    return found
