"""Real batches of one row of each input, many of them: what grows? (`python -m bench many --only batches`)

Time is noisy where other programs run, so the calls of functions are counted too: they are the same each time. What grows
is the number of sorted sequences that a look-up visits, at most 7 in each tier (plan/merges.py), and the number of tiers
grows with the logarithm of the rows: 1 below 8,192 rows of an input, 4 at a million. That shows in the calls, and hardly
in the time: a look-up in a sequence takes microseconds, and writing files takes most of a batch.

A million batches would take two hours. So the state that they would leave is made by a few batches: as many sequences
of each size. The batches after that are real.
"""

from __future__ import annotations

import cProfile
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.many_state import SCHEMA, SEED, scratch
from bench.report import Finding
from watersmeet.engine.spec import Settings
from watersmeet.local.join import LocalJoin
from watersmeet.log.files import LocalFiles
from watersmeet.log.manifests import list_manifests, read_manifest
from watersmeet.model.facts import BatchSpan

# A batch after many others against one after few, beyond the noise of a shared machine.
MOST_GROWTH = 1.25


# Rows of the sequences that a million rows are merged into, one row at a time: tiers of 524,288, 65,536 and 8,192 rows.
MILLION = (524_288, *[65_536] * 7, *[8_192] * 2, 576)
# Batches whose calls are counted: a round of merges and clean-ups.
COUNTED = 448


@dataclass(frozen=True, slots=True)
class Driven:
    """CPU ms and calls of functions of a batch, after some batches and at the end."""

    early_ms: float
    late_ms: float
    early_calls: float
    late_calls: float
    live_runs: int
    files: dict[str, int]


def one_row_batches(count: int, say: Callable[[str], None]) -> list[Finding]:
    """Real batches of one row of each input on the local driver, and the same on a state of a million such rows."""
    with scratch() as folder:
        few = drive(folder / "few", count)
        grown = drive(folder / "million", min(count, 3_000), MILLION)
    say(
        f"{count:,} real batches of one row of each input, two tasks: {few.live_runs} live runs and "
        f"{few.early_calls:,.0f} calls after the first, {few.late_calls:,.0f} at the end; on a million rows "
        f"{grown.live_runs} live runs and {grown.late_calls:,.0f} calls. Files left: "
        f"{', '.join(f'{name} {number}' for name, number in few.files.items())}"
    )
    last, million = f"the last of {count:,}", "on a state of a million rows"
    return [
        _growth(f"one-row batches: {last}, calls", few.early_calls, few.late_calls, "calls"),
        _growth(f"one-row batches: {last}, time", few.early_ms, few.late_ms, "ms"),
        _growth(f"one-row batches: {million}, time", few.early_ms, grown.late_ms, "ms"),
    ]


def drive(folder: Path, count: int, before: Sequence[int] = ()) -> Driven:
    """Run one-row batches after batches of `before` rows, numbered as if each of their rows had come alone."""
    rows_before = sum(before)
    first, began_s = rows_before - len(before), time.time()
    # The clock runs fast, so that the grace period passes.
    built = False
    join = LocalJoin(
        {"l": SCHEMA, "r": SCHEMA},
        on="l.k = r.k",
        select=["l.x", "r.x AS y"],
        state=str(folder),
        strategy="hash",
        settings=Settings(state=str(folder), tasks=2, accept_gap=(BatchSpan(0, first - 1),) if first else ()),
        number=first,
        clock=lambda: began_s + 10.0 * (join.number - first if built else 0),
    )
    built = True
    keys = np.random.default_rng(SEED).permutation(rows_before)
    for some in np.split(keys, np.cumsum(before)[:-1]) if before else ():
        rows = pa.table({"k": some, "x": some})
        join.batch(l=rows, r=rows)
    numbers = iter(range(rows_before, rows_before + 10 * count))
    window = max(1, min(1_000, count // 4))
    spent = [_timed(join, numbers) for _ in range(2 * window)]
    early_calls = _calls(join, numbers, min(COUNTED, window))
    spent += [_timed(join, numbers) for _ in range(count - 2 * window)]
    late_calls = _calls(join, numbers, min(COUNTED, window))
    state = LocalFiles(folder / "join" / "local")
    folders = ("manifests", "receipts", "starts", "runs/l", "bases", "tallies")
    return Driven(
        statistics.mean(spent[window : 2 * window]),
        statistics.mean(spent[-window:]),
        early_calls,
        late_calls,
        len(read_manifest(state, list_manifests(state)[-1]).live),
        {name: len(state.entries(name)) for name in folders},
    )


def _timed(join: LocalJoin, numbers: Iterator[int]) -> float:
    began = time.process_time()
    _one_row(join, numbers)
    return 1e3 * (time.process_time() - began)


def _calls(join: LocalJoin, numbers: Iterator[int], batches: int) -> float:
    """Calls of functions in a batch, the mean."""
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(batches):
        _one_row(join, numbers)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats()) / batches


def _one_row(join: LocalJoin, numbers: Iterator[int]) -> None:
    number = next(numbers)
    row = pa.table({"k": [number], "x": [number]}, schema=SCHEMA)
    join.batch(l=row, r=row)


def _growth(demand: str, early: float, late: float, unit: str) -> Finding:
    ratio = late / early
    shown = f"{ratio:.2f} ({early:,.2f} and {late:,.2f} {unit})"
    return Finding(demand, f"at most {MOST_GROWTH} times those after 1,000", shown, ratio <= MOST_GROWTH)
