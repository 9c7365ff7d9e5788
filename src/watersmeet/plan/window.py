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

Not guaranteed: that an expired row is gone. A run goes when all its rows are expired and no merge reads it, or when it
is rewritten; expired rows that are still there meet nothing, by the test of each pair (over time) or because they are
masked (over rows).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from watersmeet.errors import StateError
from watersmeet.model.facts import Descriptor, InputTotals, Manifest, Merge, Run
from watersmeet.model.grid import Amount, GridPlan
from watersmeet.model.window import OVER_ROWS, OVER_TIME, Window, over_time

Floors = Mapping[str, int]


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


def amount_of(runs: Iterable[Run]) -> Amount:
    """Rows and their bytes; a file is larger, by a header for each section, and the smaller it is the more."""
    found = list(runs)
    return Amount(sum(run.rows for run in found), sum(run.row_bytes for run in found))


def live_grid(grid: GridPlan, left: Amount, right: Amount) -> GridPlan:
    """A grid that goes by what is stored, not by all that has ever come.

    An input that has shrunk by half since the last decision makes the next one due, as one that has doubled does: what
    was decided then is taken to have been decided on nothing.
    """
    grid = replace(grid, left=left, right=right)
    then = (grid.decided_left, grid.decided_right)
    if all(2 * now.bytes > before.bytes for now, before in zip((left, right), then, strict=True)):
        return grid
    return replace(grid, decided_left=replace(then[0], bytes=0), decided_right=replace(then[1], bytes=0))


def reading_floors(manifest: Manifest) -> dict[str, int]:
    """Of a window over rows, the numbers below which the history must not be read."""
    window = manifest.signature.window
    if window is None or window.kind != OVER_ROWS:
        return {}
    before = rows_of(manifest.totals)
    for run in manifest.fresh:
        before[run.input] -= run.rows
    return floors_of(window, list(before), None, before)


def reachable(manifest: Manifest) -> tuple[Run, ...]:
    """The runs of the history that have a row that some fresh row of the other input may meet, by their times."""
    window = manifest.signature.window
    if window is None:
        return manifest.history
    if window.kind == OVER_ROWS:
        floors = reading_floors(manifest)
        return tuple(run for run in manifest.history if run.times[-1] >= floors.get(run.input, 0))
    facing = _facing(manifest)
    return tuple(
        run
        for run in manifest.history
        if (span := facing[run.input])
        and run.times[-1] + window.width >= span[0]
        and run.times[0] - window.width <= span[1]
    )


def all_within(manifest: Manifest) -> bool:
    """Whether the times of the runs say that every pair of this batch is within the window: no pair needs a test."""
    window = manifest.signature.window
    if window is None or not over_time(window):
        return True
    facing = _facing(manifest)
    return all(
        max(span[1] - run.times[0], run.times[-1] - span[0]) <= window.width
        for run in (*reachable(manifest), *manifest.fresh)
        if (span := facing[run.input])
    )


def _facing(manifest: Manifest) -> dict[str, tuple[int, int] | None]:
    """For each input, the first and the last time of the fresh rows of the other one; None if there are none."""
    left, right = (spec.name for spec in manifest.signature.inputs)
    return {one: _span(manifest.fresh, other) for one, other in ((left, right), (right, left))}


def _span(runs: Iterable[Run], name: str) -> tuple[int, int] | None:
    mine = [run for run in runs if run.input == name]
    return (min(run.times[0] for run in mine), max(run.times[-1] for run in mine)) if mine else None
