"""Sliding windows, decided: the watermark, what is expired, and what of the history a batch has to look at.

Over time. The watermark of a batch follows from the batches before it alone: the least of the newest times that the
inputs have shown, minus the lateness (as Spark's default for several watermarks, "min"); there is none until every
input has shown a time. It never falls, also where a restart brings another lateness. Rows below it are late and are
not taken, so a stored row with time + width below it can meet nothing any more: it is expired.

Over rows. The rows of an input are numbered in the order of the batches, and inside one by partition. A row of a batch
meets the last `width` rows of the other input that came before the batch, so all before those are expired.

Both ways there is a *floor* for each input: stored rows below it are expired. It never falls.

    history of batch b      reads and needs rows from the floor of b on, which the parent of b implies
    merges planned in b     enter the history after b, and drop what is below the floor of b + 1

An expired row is not guaranteed to be gone. A run goes when all its rows are expired and no merge reads it, or when it
is rewritten; expired rows that are still there meet nothing, by the test of each pair (over time) or because they are
masked (over rows).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.errors import StateError
from watersmeet.model.facts import Descriptor, InputTotals, JoinSignature, Manifest, Merge, Run
from watersmeet.model.window import OVER_ROWS, OVER_TIME, Window, over_time

Floors = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WindowState:
    """Where the window of a join stands between two batches.

    `newest` is the latest time that each input has shown, `rows` how many rows each has brought.
    """

    window: Window | None
    inputs: tuple[str, ...]
    newest: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def after(cls, parent: Manifest | None, signature: JoinSignature) -> WindowState:
        if parent is None:
            return cls(signature.window, signature.names)
        rows = rows_of(parent.totals)
        return cls(signature.window, signature.names, parent.newest, parent.watermark, rows)

    @property
    def floors(self) -> dict[str, int]:
        """Below which window time the rows of each input are expired, for the rows that come next."""
        return floors_of(self.window, self.inputs, self.watermark, self.rows)

    def number(self, runs: Iterable[Run]) -> tuple[Run, ...]:
        """The runs of the next batch, with their rows numbered if the window counts rows."""
        fresh = tuple(runs)
        counted = self.window is not None and self.window.kind == OVER_ROWS
        return number_runs(fresh, self.rows) if counted else fresh


def advance_window(
    state: WindowState, fresh: Iterable[Run], totals: Mapping[str, InputTotals]
) -> WindowState:
    """Where the window stands after a batch."""
    window = state.window
    if window is None:
        return state
    state = replace(state, rows=rows_of(totals))
    if window.kind != OVER_TIME:
        return state
    newest = see_newest(state.newest, fresh)
    return replace(
        state, newest=newest, watermark=next_watermark(window, state.inputs, newest, state.watermark)
    )


def see_newest(before: Mapping[str, int], fresh: Iterable[Run]) -> dict[str, int]:
    """The latest time of each input, with the runs of this batch."""
    newest = dict(before)
    for run in fresh:
        newest[run.input] = max(run.times[-1], newest.get(run.input, run.times[-1]))
    return newest


def next_watermark(
    window: Window, inputs: Sequence[str], newest: Mapping[str, int], before: int | None
) -> int | None:
    """What the rows of the next batch are judged by; None if some input has not shown a time.

    >>> next_watermark(Window(OVER_TIME, 10, lateness=5), ("l", "r"), {"l": 100, "r": 70}, before=60)
    65
    """
    if window.kind != OVER_TIME or any(name not in newest for name in inputs):
        return before
    found = min(newest[name] for name in inputs) - window.lateness
    return found if before is None else max(found, before)


def check_watermarks(descriptors: Iterable[Descriptor], watermark: int | None) -> None:
    """Raise if some rows were judged by another watermark than the agreed parent implies."""
    for descriptor in descriptors:
        if descriptor.watermark != watermark:
            raise StateError(
                f"partition {descriptor.partition} of input {descriptor.input} was taken in under the watermark "
                f"{descriptor.watermark}, but the state that this batch builds on implies {watermark}: the state was "
                "changed while the batch ran. Start the query again"
            )


def floors_of(
    window: Window | None, inputs: Sequence[str], watermark: int | None, rows: Mapping[str, int]
) -> dict[str, int]:
    """For each input, below which window time its rows are expired, for rows that come under this watermark and
    after so many `rows` of each input. An input without a floor has nothing that is expired.
    """
    if window is None:
        return {}
    if window.kind == OVER_ROWS:
        return {name: rows[name] - window.width for name in inputs if rows.get(name, 0) > window.width}
    return {} if watermark is None else dict.fromkeys(inputs, watermark - window.width)


def rows_of(totals: Mapping[str, InputTotals]) -> dict[str, int]:
    return {name: total.rows for name, total in totals.items()}


def number_runs(fresh: Sequence[Run], rows: Mapping[str, int]) -> tuple[Run, ...]:
    """The runs of a batch with their rows numbered, after so many `rows` that each input has brought before."""
    reached = dict(rows)
    numbered = []
    for run in fresh:
        base = reached.get(run.input, 0)
        numbered.append(replace(run, base=base, times=tuple(time + base for time in run.times)))
        reached[run.input] = base + run.rows
    return tuple(numbered)


def evict(
    history: Sequence[Run], pending: Sequence[Merge], floors: Floors
) -> tuple[tuple[Run, ...], tuple[Merge, ...]]:
    """Leave out the runs whose rows are all expired.

    A run that a merge reads stays until the merge is done, so that all its parts see the same rows; but a merge all
    of whose runs are expired is given up with them.
    """
    gone = {run.path for run in history if run.input in floors and run.times[-1] < floors[run.input]}
    if not gone:
        return tuple(history), tuple(pending)
    kept = tuple(merge for merge in pending if not gone.issuperset(merge.runs))
    read = {path for merge in kept for path in merge.runs}
    return tuple(run for run in history if run.path not in gone or run.path in read), kept


def estimate_expired_rows(run: Run, floor: int) -> float:
    """About how many rows are below the floor, taking times between two marks to be even.

    >>> estimate_expired_rows(Run("l", "p", "p", 0, 80, 1, 0, 9, "", times=(0, 10, 50)), 20)
    50.0
    """
    if floor <= run.times[0]:
        return 0.0
    place = bisect.bisect_left(run.times, floor)
    if place == len(run.times):
        return float(run.rows)
    low, high = run.times[place - 1], run.times[place]
    return run.rows * (place - 1 + (floor - low) / (high - low)) / (len(run.times) - 1)


def reading_floors(
    window: Window | None, fresh: Iterable[Run], totals: Mapping[str, InputTotals]
) -> dict[str, int]:
    """Of a window over rows, the numbers below which the history must not be read in a batch."""
    if window is None or window.kind != OVER_ROWS:
        return {}
    before = rows_of(totals)
    for run in fresh:
        before[run.input] -= run.rows
    return floors_of(window, list(before), None, before)


def reachable(
    window: Window | None,
    inputs: Sequence[str],
    history: Sequence[Run],
    fresh: Sequence[Run],
    totals: Mapping[str, InputTotals],
) -> tuple[Run, ...]:
    """The runs of the history that have a row that some fresh row of another input may meet, by their times."""
    if window is None:
        return tuple(history)
    if window.kind == OVER_ROWS:
        floors = reading_floors(window, fresh, totals)
        return tuple(run for run in history if run.times[-1] >= floors.get(run.input, 0))
    facing = _facing(inputs, fresh)
    return tuple(
        run
        for run in history
        if (span := facing[run.input])
        and run.times[-1] + window.width >= span[0]
        and run.times[0] - window.width <= span[1]
    )


def reachable_history(manifest: Manifest) -> tuple[Run, ...]:
    signature = manifest.signature
    return reachable(signature.window, signature.names, manifest.history, manifest.fresh, manifest.totals)


def all_within(manifest: Manifest) -> bool:
    """Whether the times of the runs say that every pair of this batch is within the window: no pair needs a test."""
    window = manifest.signature.window
    if window is None or not over_time(window):
        return True
    facing = _facing(manifest.signature.names, manifest.fresh)
    return all(
        max(span[1] - run.times[0], run.times[-1] - span[0]) <= window.width
        for run in (*reachable_history(manifest), *manifest.fresh)
        if (span := facing[run.input])
    )


def _facing(inputs: Sequence[str], fresh: Sequence[Run]) -> dict[str, tuple[int, int] | None]:
    """For each input, the first and the last time of the fresh rows of the others; None if there are none."""
    return {name: _span(run for run in fresh if run.input != name) for name in inputs}


def _span(runs: Iterable[Run]) -> tuple[int, int] | None:
    found = list(runs)
    return (min(run.times[0] for run in found), max(run.times[-1] for run in found)) if found else None
