"""Decide over sliding windows: the watermark, which rows are expired, and which history a batch has to read.

Over time. The watermark of a batch follows from the batches before it alone. It is the smallest of the inputs' newest
times, minus the lateness (as Spark's default for several watermarks, "min"). There is none until every input has had a
time. It never falls, even if a restart brings another lateness. Rows below it are late and are not stored, so a stored
row with time + width below it can match nothing any more: it is expired.

Over rows. The rows of an input are numbered by batch, and within a batch by partition. Each row is matched against the
last `width` rows of each other input from before its batch, so all rows before those are expired.

In both cases each input has a *floor*: stored rows below it are expired. It never falls.

    history of batch b      reads and needs rows from the floor of b on, which the parent of b implies
    merges planned in b     enter the history after b, and drop rows below the floor of b + 1

An expired row is not removed at once. A run is dropped when all its rows are expired and no merge reads it, or when it
is rewritten. Until then expired rows match nothing, because each pair is tested (over time) or they are masked (over
rows).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.errors import StateError
from watersmeet.model.facts import Descriptor, InputTotals, KeyRange, Manifest, Merge, Run
from watersmeet.model.signature import JoinSignature
from watersmeet.model.window import Window, WindowKind, over_time

Floors = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class WindowState:
    """The window of a join between two batches.

    `newest` is the latest time of each input, `rows` the number of rows that each has brought.
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
        """For each input the window time below which its rows are expired, for the next batch."""
        return floors_of(self.window, self.inputs, self.watermark, self.rows)

    def number(self, runs: Iterable[Run]) -> tuple[Run, ...]:
        """The runs of the next batch, with their rows numbered if the window counts rows."""
        fresh = tuple(runs)
        counted = self.window is not None and self.window.kind == WindowKind.ROWS
        return number_runs(fresh, self.rows) if counted else fresh


def advance_window(
    state: WindowState, fresh: Iterable[Run], totals: Mapping[str, InputTotals]
) -> WindowState:
    """The window after a batch."""
    window = state.window
    if window is None:
        return state
    state = replace(state, rows=rows_of(totals))
    if window.kind != WindowKind.TIME:
        return state
    newest = see_newest(state.newest, fresh)
    return replace(
        state, newest=newest, watermark=next_watermark(window, state.inputs, newest, state.watermark)
    )


def see_newest(before: Mapping[str, int], fresh: Iterable[Run]) -> dict[str, int]:
    """The latest time of each input, including this batch's runs."""
    newest = dict(before)
    for run in fresh:
        newest[run.input] = max(run.times[-1], newest.get(run.input, run.times[-1]))
    return newest


def next_watermark(
    window: Window, inputs: Sequence[str], newest: Mapping[str, int], before: int | None
) -> int | None:
    """The watermark for the rows of the next batch; None if some input has had no time yet.

    >>> next_watermark(Window(WindowKind.TIME, 10, lateness=5), ("l", "r"), {"l": 100, "r": 70}, before=60)
    65
    """
    if window.kind != WindowKind.TIME or any(name not in newest for name in inputs):
        return before
    found = min(newest[name] for name in inputs) - window.lateness
    return found if before is None else max(found, before)


def check_watermarks(descriptors: Iterable[Descriptor], watermarks: Mapping[str, int | None]) -> None:
    """Raise if some rows were ingested under another watermark than the agreed parent implies for their input."""
    for descriptor in descriptors:
        watermark = watermarks.get(descriptor.input)
        if descriptor.watermark != watermark:
            raise StateError(
                f"partition {descriptor.partition} of input {descriptor.input} was ingested under the watermark "
                f"{descriptor.watermark}, but the state that this batch builds on implies {watermark}: the state was "
                "changed while the batch ran. Start the query again"
            )


def floors_of(
    window: Window | None, inputs: Sequence[str], watermark: int | None, rows: Mapping[str, int]
) -> dict[str, int]:
    """For each input the window time below which its rows are expired, given this watermark and the `rows` of each
    input so far. An input without a floor has no expired rows.
    """
    if window is None:
        return {}
    if window.kind == WindowKind.ROWS:
        return {name: rows[name] - window.width for name in inputs if rows.get(name, 0) > window.width}
    return {} if watermark is None else dict.fromkeys(inputs, watermark - window.width)


def rows_of(totals: Mapping[str, InputTotals]) -> dict[str, int]:
    return {name: total.rows for name, total in totals.items()}


def number_runs(fresh: Sequence[Run], rows: Mapping[str, int]) -> tuple[Run, ...]:
    """The runs of a batch with their rows numbered, starting after the `rows` that each input has brought before."""
    reached = dict(rows)
    numbered = []
    for run in fresh:
        base = reached.get(run.input, 0)
        numbered.append(replace(run, base=base, times=tuple(time + base for time in run.times)))
        reached[run.input] = base + run.rows
    return tuple(numbered)


def evict(
    history: Sequence[Run], pending: Sequence[Merge], floors: Floors, owe: Sequence[KeyRange] = ()
) -> tuple[tuple[Run, ...], tuple[Merge, ...]]:
    """Drop the runs whose rows are all expired, unless they may hold rows with keys in `owe`, which owe results.

    A run that a merge reads stays until the merge is done, so that all its parts see the same rows. A merge whose runs
    are all expired is dropped with them.
    """
    gone = {
        run.path
        for run in history
        if run.input in floors
        and run.times[-1] < floors[run.input]
        and not any(range_.overlaps(run) for range_ in owe)
    }
    if not gone:
        return tuple(history), tuple(pending)
    kept = tuple(merge for merge in pending if not gone.issuperset(merge.runs))
    read = {path for merge in kept for path in merge.runs}
    return tuple(run for run in history if run.path not in gone or run.path in read), kept


def estimate_expired_rows(run: Run, floor: int) -> float:
    """Estimate the rows below the floor, assuming that times between two marks are even.

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
    """For a window over rows, the numbers below which a batch must not read history. Otherwise empty."""
    if window is None or window.kind != WindowKind.ROWS:
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
    """The history runs that may hold a match for a fresh row of another input, by their times."""
    if window is None:
        return tuple(history)
    if window.kind == WindowKind.ROWS:
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
    """Whether the runs' times prove that every pair of this batch is within the window, so that none needs a test.

    With three or more inputs two old rows meet too, so all runs together must fit the window.
    """
    window = manifest.signature.window
    if window is None or not over_time(window):
        return True
    if len(manifest.signature.names) > 2:
        span = _span((*reachable_history(manifest), *manifest.fresh))
        return span is None or span[1] - span[0] <= window.width
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
