"""Real batches of one row of each input, many of them: what grows? (`python -m bench many --only batches`)

Time is noisy where other programs run. So the batches of a young state, of an old one and of one with a million rows
alternate, and the ratio is the median of whole rounds. The calls of functions are counted too: they are the same each
time.

What grows is the number of sorted sequences that a look-up visits: at most 7 in each tier (plan/merges.py). The number
of tiers grows with the logarithm of the rows: 1 below 8,192 rows of an input, 4 at a million. That shows in the calls,
and hardly in the time: a look-up in a sequence takes microseconds, and writing files takes most of a batch.

A million batches would take two hours. So the state that they would leave is made by a few batches: as many sequences
of each size. The batches after that are real.
"""

from __future__ import annotations

import cProfile
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
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

# A batch on a large state against one on a small one, beyond the noise of a shared machine.
MOST_GROWTH = 1.25
# Calls on a million rows against those on a young state, which has a thousand: as their logarithms, 20 bits to 10.
MOST_CALLS_GROWTH = 2.0

# Rows of the sequences that a million rows are merged into, one row at a time: tiers of 524,288, 65,536 and 8,192 rows.
MILLION = (524_288, *[65_536] * 7, *[8_192] * 2, 576)
# Batches of a round: merges and clean-ups come again after this many. Calls are counted over one round.
ROUND = 448
ROUNDS = 5
# Batches before anything is measured: a young state has fewer files than it will ever have again.
WARM = 1_000


@dataclass
class OneRow:
    """One-row batches on one state, after batches of `before` rows, numbered as if each of their rows had come alone."""

    folder: Path
    before: Sequence[int] = ()

    def __post_init__(self) -> None:
        rows_before = sum(self.before)
        first, began_s, built = rows_before - len(self.before), time.time(), False
        gap = (BatchSpan(0, first - 1),) if first else ()
        # The clock runs fast, so that the grace period passes.
        self.join = LocalJoin(
            {"l": SCHEMA, "r": SCHEMA},
            on="l.k = r.k",
            select=["l.x", "r.x AS y"],
            state=str(self.folder),
            strategy="hash",
            settings=Settings(state=str(self.folder), tasks=2, accept_gap=gap),
            number=first,
            clock=lambda: began_s + 10.0 * (self.join.number - first if built else 0),
        )
        built = True
        keys = np.random.default_rng(SEED).permutation(rows_before)
        for some in np.split(keys, np.cumsum(self.before)[:-1]) if self.before else ():
            rows = pa.table({"k": some, "x": some})
            self.join.batch(l=rows, r=rows)
        self.numbers = itertools.count(rows_before)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            number = next(self.numbers)
            row = pa.table({"k": [number], "x": [number]}, schema=SCHEMA)
            self.join.batch(l=row, r=row)

    def timed(self) -> float:
        """CPU seconds of the next batch."""
        began = time.process_time()
        self.run(1)
        return time.process_time() - began

    def calls(self, batches: int) -> float:
        """Calls of functions in a batch, the mean."""
        profile = cProfile.Profile()
        profile.enable()
        self.run(batches)
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats()) / batches

    @property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder / "join" / "local")

    @property
    def live_runs(self) -> int:
        return len(read_manifest(self.files, list_manifests(self.files)[-1]).live)


def one_row_batches(
    count: int, say: Callable[[str], None], size: int = ROUND, rounds: int = ROUNDS
) -> list[Finding]:
    """Real batches of one row of each input on the local driver: on a young state, after `count`, after a million."""
    warm = min(WARM, count)
    with scratch() as folder:
        states = {
            "young": OneRow(folder / "young"),
            "old": OneRow(folder / "old"),
            "million": OneRow(folder / "million", MILLION),
        }
        for name, batches in (("young", warm), ("old", count), ("million", warm)):
            states[name].run(batches)
        spent = in_turn({name: state.timed for name, state in states.items()}, size, rounds)
        calls = {name: state.calls(size) for name, state in states.items()}
        old = states["old"]
        left = {
            name: len(old.files.entries(name))
            for name in ("manifests", "receipts", "starts", "runs/l", "bases", "tallies")
        }
        runs = {name: state.live_runs for name, state in states.items()}
    say(
        f"one row of each input in a batch, two tasks, {rounds} rounds of {size} batches in turn: after {warm:,} batches "
        f"{runs['young']} live runs and {calls['young']:,.0f} calls, after {count:,} {runs['old']} and "
        f"{calls['old']:,.0f}, on a million rows {runs['million']} and {calls['million']:,.0f}. Files left of "
        f"{count:,}: {', '.join(f'{name} {number}' for name, number in left.items())}. Calls grow with the number of live "
        "runs, and that with the logarithm of the rows: a look-up visits each of them. It takes microseconds, so the time hardly grows"
    )
    last, million = f"the last of {count:,}", "on a state of a million rows"
    return [
        _growth(f"one-row batches: {last}, calls", [calls["young"]], [calls["old"]], "calls"),
        _growth(f"one-row batches: {last}, time", spent["young"], spent["old"], "ms"),
        _growth(
            f"one-row batches: {million}, calls, which follow the logarithm of the rows",
            [calls["young"]],
            [calls["million"]],
            "calls",
            MOST_CALLS_GROWTH,
        ),
        _growth(f"one-row batches: {million}, time", spent["young"], spent["million"], "ms"),
    ]


def in_turn(timed: Mapping[str, Callable[[], float]], batches: int, rounds: int) -> dict[str, list[float]]:
    """Mean CPU milliseconds of a batch, by round. Batches of all states alternate, so that others disturb all alike."""
    found: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        sums = dict.fromkeys(timed, 0.0)
        for _ in range(batches):
            for name, one in timed.items():
                sums[name] += one()
        for name, total in sums.items():
            found[name].append(1e3 * total / batches)
    return found


def _growth(
    demand: str, young: Sequence[float], other: Sequence[float], unit: str, most: float = MOST_GROWTH
) -> Finding:
    """The median ratio of the rounds."""
    ratios = [high / low for low, high in zip(young, other, strict=True)]
    ratio = statistics.median(ratios)
    spread = f", rounds {min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else ""
    shown = (
        f"{ratio:.2f} ({statistics.median(young):,.2f} and {statistics.median(other):,.2f} {unit}{spread})"
    )
    return Finding(demand, f"at most {most:g} times those on a young state", shown, ratio <= most)
