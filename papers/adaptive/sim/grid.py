"""DYNAMIC and the static grids over a whole stream, by a cost model: what section 5 of the paper measures.

Source: Elseidy et al. 2014, 4.2, 4.3.2 and section 5. The mappings are those of schemes/grid/policy.py. A chunk is cut where
a decision falls due (found by bisection) and where a migration ends, so that decisions come row by row while the
work is done chunk by chunk: a run takes as long for a billion rows as for a thousand.

A migration does not stop the stream. While it lasts, each joiner takes two migrated rows for one new one, so it
ends when half as many new rows have come to the last joiner as it must receive; then the next decision may come.
All joiners of a group do the same work; with several groups each takes its own time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from papers.adaptive.sim.arrivals import Arrivals, Floats
from papers.adaptive.sim.costs import CostModel
from papers.adaptive.sim.joiner import MIGRATED_PER_NEW
from papers.adaptive.sim.optimum import least_load
from papers.adaptive.sim.progress import MigrationSpan, Progress, Recorder
from watersmeet.schemes.grid.facts import Amount, GridPlan, Relocation
from watersmeet.schemes.grid.policy import GridPolicy, advance, is_due, start_grid
from watersmeet.schemes.grid.relocation import relocation_per_cell


def run_grid(arrivals: Arrivals, cells: int, policy: GridPolicy, costs: CostModel) -> Progress:
    """The whole stream through a grid that begins with `cells` joiners."""
    run = _Run(arrivals, policy, costs, start_grid(cells, policy))
    for left, right, results in zip(
        arrivals.left_rows.tolist(), arrivals.right_rows.tolist(), arrivals.results.tolist(), strict=True
    ):
        run.take_chunk(left, right, results)
    run.finish_migration_alone()
    return run.recorder.finish(tuple(run.spans))


class _Run:
    """The state of a run. Arrays have one item for each group of joiners, all of which do the same."""

    def __init__(self, arrivals: Arrivals, policy: GridPolicy, costs: CostModel, plan: GridPlan) -> None:
        self.recorder = Recorder()
        self.spans: list[MigrationSpan] = []
        self._arrivals = arrivals
        self._policy = policy
        self._costs = costs
        self._plan = plan
        self._rows = (0, 0)
        # Rows that arrived since the plan last counted them: it does not while a migration lasts.
        self._uncounted = (0, 0)
        self._migrating: MigrationSpan | None = None
        # Migrated rows that a joiner still has to receive.
        self._owed = np.zeros(len(plan.groups))
        self._time = np.zeros(len(plan.groups))

    def take_chunk(self, left: int, right: int, results: float) -> None:
        """Cut a chunk into pieces at the ends of migrations and at decisions, and work through them."""
        total, done = left + right, 0
        while done < total:
            rest = _Rest(left, right, done)
            count = self._rows_until_change(rest)
            self._work(*rest.first(count), results * count / total)
            done += count

    def finish_migration_alone(self) -> None:
        """The stream is over: receive what is still owed without new rows in between."""
        if self._migrating is not None:
            idle = np.zeros(len(self._owed))
            self._time += self._costs.work(idle, idle, self._owed, self._stored())
            self._owed = idle
            self._end_migration(self._migrating)
            self._sample()

    def _rows_until_change(self, rest: _Rest) -> int:
        """How many of the next rows come before a migration ends or a decision is due: at least one."""
        if self._migrating is not None:
            return _bisect(rest.count, lambda count: self._pays(*rest.first(count)))
        if self._policy.adapts:
            return _bisect(rest.count, lambda count: self._makes_due(*rest.first(count)))
        return rest.count

    def _pays(self, left: int, right: int) -> bool:
        return bool(np.all(MIGRATED_PER_NEW * self._received(left, right) >= self._owed))

    def _makes_due(self, left: int, right: int) -> bool:
        more_left, more_right = self._amounts(left, right)
        counted = replace(self._plan, left=self._plan.left + more_left, right=self._plan.right + more_right)
        return is_due(counted, self._policy)

    def _work(self, left: int, right: int, results: float) -> None:
        """Join a piece under the mapping in force; then see what has changed."""
        before = self._stored()
        self._rows = (self._rows[0] + left, self._rows[1] + right)
        self._uncounted = (self._uncounted[0] + left, self._uncounted[1] + right)
        received = self._received(left, right)
        migrated = np.minimum(self._owed, MIGRATED_PER_NEW * received)
        each_results = np.full(len(received), results / self._plan.cells)
        work = self._costs.work(received, each_results, migrated, (before + self._stored()) / 2)
        self._time += work
        self._owed -= migrated
        self._sample()
        if self._migrating is not None and not self._owed.any():
            self._end_migration(self._migrating)
        if self._migrating is None:
            self._decide()

    def _decide(self) -> None:
        """Let the plan count what has arrived; if that changes the mapping, begin to migrate."""
        before = self._plan
        self._plan, event = advance(before, *self._amounts(*self._uncounted), self._policy)
        self._uncounted = (0, 0)
        if event is not None:
            self._begin_migration(before, event)
            self._sample()

    def _begin_migration(self, before: GridPlan, event: Relocation) -> None:
        left, right = (_even(before, rows) for rows in self._rows)
        moved_left = relocation_per_cell(before, self._plan, left, 0 * right)[:, 1]
        moved_right = relocation_per_cell(before, self._plan, 0 * left, right)[:, 1]
        bounds = np.cumsum(self._plan.group_cells)[:-1]
        self._owed = np.array([cells.max() for cells in np.split(moved_left + moved_right, bounds)])
        sums = float(moved_left.sum()), float(moved_right.sum())
        now, rows = float(self._time.max()), sum(self._rows)
        self._migrating = MigrationSpan(
            before=event.before,
            after=event.after,
            reason=event.reason,
            begin_time=now,
            end_time=now,
            begin_rows=rows,
            end_rows=rows,
            moved_rows=sum(sums),
            moved_bytes=sums[0] * self._arrivals.left_row_bytes + sums[1] * self._arrivals.right_row_bytes,
        )

    def _end_migration(self, span: MigrationSpan) -> None:
        self.spans.append(replace(span, end_time=float(self._time.max()), end_rows=sum(self._rows)))
        self._migrating = None

    def _received(self, left: int, right: int) -> Floats:
        """How many of these new rows come to one joiner: its row and its column, of whatever group."""
        return np.array([left / shape.rows + right / shape.cols for shape in self._plan.shapes])

    def _stored(self) -> Floats:
        """The bytes that one joiner stores: its row and its column, of its own group's share."""
        left, right = self._bytes()
        return self._received(left, right) * np.array(self._plan.group_cells) / self._plan.cells

    def _bytes(self) -> tuple[int, int]:
        left, right = self._amounts(*self._rows)
        return left.bytes, right.bytes

    def _amounts(self, left: int, right: int) -> tuple[Amount, Amount]:
        return (
            Amount(left, left * self._arrivals.left_row_bytes),
            Amount(right, right * self._arrivals.right_row_bytes),
        )

    def _sample(self) -> None:
        self.recorder.add(
            *self._rows,
            stored=self._stored(),
            joiners=np.array(self._plan.group_cells, dtype=np.float64),
            optimal=least_load(self._plan.cells, *self._bytes()),
            time=float(self._time.max()),
        )


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of a chunk after `done` rows of it, both inputs evenly mixed."""

    left: int
    right: int
    done: int

    @property
    def count(self) -> int:
        return self.left + self.right - self.done

    def first(self, count: int) -> tuple[int, int]:
        """Left and right rows among the next `count`."""
        total = self.left + self.right
        left = self.left * (self.done + count) // total - self.left * self.done // total
        return left, count - left


def _bisect(most: int, happened: Callable[[int], bool]) -> int:
    """The least count from 1 to `most` at which it has happened, or `most`. Once it has, it stays so."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if happened(middle) else (middle + 1, high)
    return low


def _even(plan: GridPlan, rows: int) -> Floats:
    """Rows in each section, spread evenly."""
    shares = np.array(plan.group_cells) / plan.cells / plan.parts
    return np.repeat(rows * shares, plan.parts)
