"""Divide what a state owes after its last batch into shares of about equal work, each to be paid by itself.

Within a query the scheme decides who pays what. After it has ended anybody may, so debts are divided by work alone. The
key space is cut into *segments*: at the bounds of all pushes, so that all rows of a run in one segment have one
generation, and evenly. Each run is surveyed once: its rows by segment, and its frequent keys. From that follow the
shares:

- *ranges* of keys with about equal rows and results. Order keys are mixed, so light keys are even by their rows;
- *a key* with more results than a share should have is cut into blocks of rows, and the cells of these blocks
  (model/cells.py) into shares;
- *the rest of a payment* that was under way (`Manifest.paying`): its cells that are still to be paid.

All rows that owe are treated as if they were pushed once more, after the last batch. So the cells of a key hold its
current rows too, and every combination that is owed is in exactly one share. `tests/model/test_owed.py` holds that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import Cells, KeyRange, Manifest, Push, Run
from watersmeet.model.generations import NOT_HELD, Generations, generations_of
from watersmeet.model.limits import Limits
from watersmeet.model.ranges import Ranges, joined
from watersmeet.plan.pushes import owing, put_into_force
from watersmeet.schemes.balance import even_ranges
from watersmeet.schemes.budget.census import rows_by
from watersmeet.schemes.hypercube.hot_keys import most_frequent
from watersmeet.schemes.scheme import Decision, Keys

Counts = npt.NDArray[np.int64]

# Even cuts of the key space: enough that the rows of some dozen tasks differ by a few percent, and a survey of a
# thousand runs is still some megabytes.
EVEN_SEGMENTS = 1024

# Shares for each task: one that takes longer than expected is then evened out by the others.
SHARES_PER_TASK = 4

# Cells of a share: blocks end where runs do, and a cell of rows that have met owes nothing, so one or two cells would
# make some shares twice as long as others. Each cell is a call of a kernel.
CELLS_PER_SHARE = 8

# A key with this many rows in one run may have more results than a share. Fewer are not worth a look.
LEAST_LISTED_ROWS = 256


@dataclass(frozen=True, slots=True)
class DebtShare:
    """A part of what is owed. A key that is cut into blocks has `block_rows`, and of its cells this is share `number`
    of `of`. `cells` is the rest of a payment that was under way.
    """

    ranges: Ranges
    work: float = 0.0
    block_rows: int = 0
    number: int = 0
    of: int = 1
    cells: Cells | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one run holds: its rows and different keys by segment, and its frequent keys with their rows; or why it cannot
    be read."""

    path: str
    rows: Counts
    different: Counts
    keys: tuple[int, ...] = ()
    key_rows: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DividedDebts:
    """All that is owed: the shares, the rows in segments that owe, and the most results that they can owe.

    `lost` says which runs cannot be read, with the reason. Their rows take no part. Of `dropped_keys` that are being
    paid, nothing is paid any more: it is not known which cells have rows of a lost run.
    """

    shares: tuple[DebtShare, ...] = ()
    rows: int = 0
    most_results: int = 0
    lost: Mapping[str, str] = field(default_factory=dict)
    dropped_keys: int = 0


def segments_of(manifest: Manifest) -> Generations:
    """The generations of all rows after a batch, by the segments that surveys count."""
    return generations_of(manifest.live, manifest.pushes, even_ranges(EVEN_SEGMENTS))


def owing_runs(manifest: Manifest) -> list[Run]:
    """The runs with rows that may owe something, by their bounds."""
    ranges = owing(manifest.pushes)
    return [run for run in manifest.live if any(one.overlaps(run) for one in ranges)]


def without(manifest: Manifest, lost: Iterable[str]) -> Manifest:
    """The facts without some runs."""
    gone = frozenset(lost)
    if not gone:
        return manifest
    history, fresh = (
        tuple(run for run in runs if run.path not in gone) for runs in (manifest.history, manifest.fresh)
    )
    return replace(manifest, history=history, fresh=fresh)


def once_more(manifest: Manifest) -> tuple[Push, ...]:
    """The pushes as if the payments that are under way were done, and all rows that owe were pushed once more."""
    decision = Decision(
        pushed=owing(manifest.pushes),
        parts=tuple(replace(cells, first=cells.end, end=cells.of) for cells in manifest.paying),
    )
    return put_into_force(
        decision, manifest.pushes, manifest.live, border_after(manifest), manifest.written_ms, manifest.paying
    ).pushes


def border_after(manifest: Manifest) -> int:
    return manifest.batch.number + 1


def survey_run(run: Run, keys: Keys, segments: Generations, limits: Limits) -> Survey:
    """What a run holds; `keys` are its order keys, ascending."""
    floor = min(LEAST_LISTED_ROWS, max(1, limits.debt_work))
    begin, rows, _ = most_frequent(keys, floor, limits.most_listed_keys)
    first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    return Survey(
        run.path,
        rows_by(segments.lows, keys),
        rows_by(segments.lows, keys[first]),
        tuple(keys[begin].tolist()),
        tuple(rows.tolist()),
    )


def plan_debts(
    manifest: Manifest, segments: Generations, surveys: Sequence[Survey], tasks: int, limits: Limits
) -> DividedDebts:
    """Divide what is owed after a batch among the tasks that pay it."""
    lost = {one.path: one.problem for one in surveys if one.problem}
    if not manifest.pushes:
        return DividedDebts(lost=lost)
    names = manifest.signature.names
    found = [one for one in surveys if not one.problem]
    rows = _rows_of(names, segments, found)
    owes = _owing_segments(manifest, segments)
    total, most = _sums(rows[:, :, owes])
    results = _results_by_key(names, manifest, [one for one in found if one.keys])
    work = _work_of(names, segments, rows, found)
    whole = float(work[owes].sum() + sum(results.values()))
    target = max(float(limits.debt_work), whole / (tasks * SHARES_PER_TASK))
    under_way = {cells.range.low for cells in manifest.paying}
    heavy = sorted(key for key in {*results, *under_way} if key in under_way or results[key] > target)
    # The cells of a key are numbered by its blocks, those of lost runs too. Early states do not say how many these have.
    unread = [run for run in manifest.live if run.path in lost]
    readable = [
        cells
        for cells in manifest.paying
        if cells.runs or not any(cells.range.overlaps(run) for run in unread)
    ]
    shares = [
        *_rest_of_payments(readable, target, len(names)),
        *_keys(heavy, results, target, len(names)),
        *_ranges(segments, work, owes, heavy, results, target),
    ]
    dropped = len(manifest.paying) - len(readable)
    return DividedDebts(tuple(sorted(shares, key=lambda one: -one.work)), total, most, lost, dropped)


def _rows_of(names: Sequence[str], segments: Generations, surveys: Sequence[Survey]) -> Counts:
    """The rows by generation, input and segment."""
    rows = np.zeros((segments.current + 1, len(names), len(segments.lows)), np.int64)
    place_of = {run.path: place for place, run in enumerate(segments.runs)}
    for one in surveys:
        place = place_of[one.path]
        of, line = segments.of[place], names.index(segments.runs[place].input)
        here = np.flatnonzero((of != NOT_HELD) & (one.rows > 0))
        np.add.at(rows, (of[here], np.full(len(here), line), here), one.rows[here])
    return rows


def _work_of(
    names: Sequence[str], segments: Generations, rows: Counts, surveys: Sequence[Survey]
) -> npt.NDArray[np.float64]:
    """About the rows and the results of each segment: those that it would have if its keys were equally frequent.

    The results of frequent keys are counted by key, and are left out here.
    """
    of = rows.sum(axis=0)
    light, different = of.copy(), np.ones(of.shape, np.int64)
    input_of = {run.path: run.input for run in segments.runs}
    for one in surveys:
        line = names.index(input_of[one.path])
        at = np.searchsorted(segments.lows, np.array(one.keys, np.uint64), side="right") - 1
        np.subtract.at(light[line], at, np.array(one.key_rows, np.int64))
        different[line] = np.maximum(
            different[line], one.different - np.bincount(at, minlength=len(segments.lows))
        )
    light = np.maximum(light, 0)
    results = light.prod(axis=0, dtype=np.float64) / different.max(axis=0).astype(np.float64) ** (
        len(names) - 1
    )
    work: npt.NDArray[np.float64] = of.sum(axis=0) + results
    return work


def _owing_segments(manifest: Manifest, segments: Generations) -> Counts:
    here = [segments.segments_in(range_) for range_ in owing(manifest.pushes)]
    return np.concatenate(here) if here else np.zeros(0, np.int64)


def _sums(rows: Counts) -> tuple[int, int]:
    """The rows in segments with two generations or more, and the most results that they owe, if all had one key."""
    owes = (rows.sum(axis=1) > 0).sum(axis=0) > 1
    mine = rows[:, :, owes].astype(object)
    together, met = mine.sum(axis=0).prod(axis=0), mine.prod(axis=1).sum(axis=0)
    return int(rows[:, :, owes].sum()), int(sum((together - met).tolist()))


def _results_by_key(names: Sequence[str], manifest: Manifest, surveys: Sequence[Survey]) -> dict[int, float]:
    """About how many combinations each frequent key has, where it may owe some."""
    input_of = {run.path: run.input for run in manifest.live}
    ranges = owing(manifest.pushes)
    rows: dict[int, list[int]] = {}
    for one in surveys:
        line = names.index(input_of[one.path])
        for key, number in zip(one.keys, one.key_rows, strict=True):
            rows.setdefault(key, [0] * len(names))[line] += number
    return {
        key: float(math.prod(max(1, number) for number in found))
        for key, found in rows.items()
        if any(key in range_ for range_ in ranges)
    }


def _rest_of_payments(paying: Iterable[Cells], target: float, inputs: int) -> Iterator[DebtShare]:
    for cells in paying:
        left = cells.of - cells.end
        if left <= 0:
            continue
        work = float(left) * cells.block_rows**inputs
        cuts = _even(left, min(left, math.ceil(work / target)))
        for low, high in itertools.pairwise(cuts):
            part = replace(cells, first=cells.end + low, end=cells.end + high)
            yield DebtShare((cells.range,), work * (high - low) / left, cells=part)


def _keys(
    heavy: Sequence[int], results: Mapping[int, float], target: float, inputs: int
) -> Iterator[DebtShare]:
    block_rows = max(1, round((target / CELLS_PER_SHARE) ** (1 / inputs)))
    for key in heavy:
        work = results.get(key, target)
        shares = max(1, math.ceil(work / target))
        for number in range(shares):
            yield DebtShare((KeyRange(key, key + 1),), work / shares, block_rows, number, shares)


def _ranges(
    segments: Generations,
    work_of: npt.NDArray[np.float64],
    owes: Counts,
    heavy: Sequence[int],
    results: Mapping[int, float],
    target: float,
) -> Iterator[DebtShare]:
    """Neighbouring keys, without the heavy ones, until they have enough rows and results."""
    frequent = {key: work for key, work in results.items() if key not in set(heavy)}
    keys = np.array(sorted(frequent), np.uint64)
    mine: list[KeyRange] = []
    work = 0.0
    for segment in owes.tolist():
        if not work_of[segment]:
            continue
        range_ = segments.range_of(segment)
        low, high = np.searchsorted(keys, np.array([range_.low, range_.high - 1], np.uint64), side="left")
        near = keys[low : high + 1].tolist()
        work += float(work_of[segment]) + sum(frequent[key] for key in near if key in range_)
        mine += _around(range_, heavy)
        if work >= target:
            yield DebtShare(joined(mine), work)
            mine, work = [], 0.0
    if mine:
        yield DebtShare(joined(mine), work)


def _around(range_: KeyRange, keys: Sequence[int]) -> Iterator[KeyRange]:
    """A range without some keys."""
    low = range_.low
    for key in keys:
        if key in range_:
            if low < key:
                yield KeyRange(low, key)
            low = key + 1
    if low < range_.high:
        yield KeyRange(low, range_.high)


def _even(number: int, parts: int) -> list[int]:
    return [number * part // parts for part in range(parts + 1)]
