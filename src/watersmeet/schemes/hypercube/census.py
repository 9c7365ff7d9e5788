"""Estimate the work of a batch, key by key: exact counts for keys that may be heavy, a sample for the others.

The work on a key is its fresh rows, which are looked up, and its results: every combination of rows, one of each input,
with at least one fresh row. A sample of the fresh rows is drawn. Its most frequent keys are looked up in the other
inputs, and so are some of the rest, for their mean: one row of a key says nothing about the other keys of its range.
How many fresh rows lie in which stretch of the key space is counted. The keys that a run lists or that the sample
finds large are then counted exactly.

Runs are sorted, so the rows of a key are counted by two binary searches a run. Small runs are put together and counted
in one pass: a search in each of hundreds of them would cost more.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import Run
from watersmeet.schemes.scheme import Keys, KeysOf

Counts = npt.NDArray[np.int64]
Work = npt.NDArray[np.float64]

# A run with fewer rows for each key that is sought is small: one pass over its rows costs less than the searches.
ROWS_PER_SEARCH = 8

# Keys of the sample that are looked up, of each input: so many of those drawn several times for each task, the most
# frequent ones, and so many of the rest. A look-up waits for memory, some 0.1 microseconds in each run.
FREQUENT_LOOKED_UP, OTHERS_LOOKED_UP = 32, 256

# The key space is cut into at least this many stretches for each task: a range of light keys is then cut to within 3 %.
STRETCHES_PER_TASK = 32

# Multiples of the golden ratio are spread most evenly between two integers.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Stored:
    """The runs of one input: history and fresh."""

    old: Sequence[Run]
    new: Sequence[Run]

    @property
    def fresh_rows(self) -> int:
        return sum(run.rows for run in self.new)

    @property
    def rows(self) -> int:
        return self.old_rows + self.fresh_rows

    @property
    def old_rows(self) -> int:
        return sum(run.rows for run in self.old)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Fresh and old rows of some ascending keys: a line for each input, a column for each key."""

    keys: Keys
    new: Counts
    old: Counts

    @property
    def total(self) -> Counts:
        return self.new + self.old

    @property
    def probed(self) -> Counts:
        totals: Counts = self.new.sum(axis=0)
        return totals

    @property
    def emitted(self) -> Work:
        """Results of the batch, by the delta rule, as floats: products of large inputs may exceed 64 bits."""
        new, old, total = (counts.astype(np.float64) for counts in (self.new, self.old, self.total))
        inputs = len(new)
        return sum(
            (new[i] * total[:i].prod(axis=0) * old[i + 1 :].prod(axis=0) for i in range(inputs)),
            np.zeros(len(self.keys)),
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> KeyCounts:
        return KeyCounts(self.keys[mask], self.new[:, mask], self.old[:, mask])


@dataclass(frozen=True, slots=True)
class Profile:
    """Work along the key space, at some ascending keys."""

    keys: Keys
    work: Work

    @property
    def total(self) -> float:
        return float(self.work.sum())


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled keys that were looked up, ascending, those of one input distinct; and the fresh rows of all keys.

    `side` says which input a key was drawn from, and `rows` the fresh rows that it stands for. `results` has the results
    of one of its rows, and `met` the rows of the other inputs with this key. A key that is not `frequent` only stands
    for the rest. `fresh` has the fresh rows of each input in each stretch of the key space, which are equally wide.
    """

    keys: Keys
    side: Counts
    rows: Work
    results: Work
    met: Work
    frequent: npt.NDArray[np.bool_]
    fresh: Counts

    def suspects(self, rows: float, work_share: float) -> Keys:
        """The keys with about as many live rows, or such a share of the work.

        Old rows of an input that the sample draws the key from are not counted.
        """
        first = _firsts(self.keys)
        if not len(first):
            return self.keys
        work = np.add.reduceat(self.rows * (1 + self.results), first)
        found = np.maximum.reduceat(self.rows + self.met, first)
        none = np.zeros((len(self.fresh), 0), np.int64)
        whole = self.without(KeyCounts(self.keys[:0], none, none)).total
        return self.keys[first][(found >= rows) | (work >= work_share * whole)]

    def without(self, known: KeyCounts) -> Profile:
        """The work on all keys but the known ones."""
        rest = ~among(self.keys, known.keys)
        own = rest & self.frequent
        keys, work = [self.keys[own]], [(self.rows * (1 + self.results))[own]]
        for side, fresh in enumerate(self.fresh):
            mine = self.side == side
            left = fresh - self._by_stretch(known.keys, known.new[side])
            left = left - self._by_stretch(self.keys[own & mine], self.rows[own & mine])
            like = mine & rest & ~self.frequent
            stretches = np.flatnonzero(left > 0) if like.any() else np.zeros(0, np.int64)
            keys.append(stretches.astype(np.uint64) << self._shift)
            mean = np.average(self.results[like], weights=self.rows[like]) if len(stretches) else 0.0
            work.append(left[stretches] * (1 + mean))
        every = np.concatenate(keys)
        order = np.argsort(every, kind="stable")
        return Profile(every[order], np.concatenate(work)[order])

    def _by_stretch(self, keys: Keys, rows: npt.NDArray[Any]) -> Work:
        found = np.bincount((keys >> self._shift).view(np.int64), rows, self.fresh.shape[1])
        return found.astype(np.float64)

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(65 - self.fresh.shape[1].bit_length())


def count_keys(stored: Sequence[Stored], keys: Keys, keys_of: KeysOf) -> KeyCounts:
    """Count rows exactly. `keys` ascend and are distinct."""
    new, old = (
        np.stack([_count(runs, keys, keys_of) for runs in side])
        for side in ([one.new for one in stored], [one.old for one in stored])
    )
    return KeyCounts(keys, new, old)


def sample_work(stored: Sequence[Stored], samples: int, tasks: int, keys_of: KeysOf) -> Sample:
    """Sample the work on all keys of the batch, from about `samples` fresh rows of each input."""
    most = FREQUENT_LOOKED_UP * tasks
    drawn = [
        _look_up(side, mine, [other for other in stored if other is not mine], samples, most, keys_of)
        for side, mine in enumerate(stored)
    ]
    keys, side, rows, results, met, frequent = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    order = np.argsort(keys, kind="stable")
    bits = (STRETCHES_PER_TASK * tasks - 1).bit_length()
    fresh = np.stack([_fresh_rows(one.new, bits, keys_of) for one in stored])
    return Sample(keys[order], side[order], rows[order], results[order], met[order], frequent[order], fresh)


def _look_up(
    side: int, mine: Stored, others: Sequence[Stored], samples: int, most: int, keys_of: KeysOf
) -> tuple[npt.NDArray[Any], ...]:
    """Sample one input: the columns of `Sample`."""
    keys, hits, weight = draw_rows(mine.new, samples, keys_of)
    frequent = np.ones(len(keys), np.bool_)
    if len(keys) > most + OTHERS_LOOKED_UP:
        by_hits = np.argsort(-hits, kind="stable")
        most = min(most, int(np.count_nonzero(hits > 1)))
        rest = np.sort(by_hits[most:])
        frequent[rest] = False
        spread = rest[np.arange(OTHERS_LOOKED_UP) * len(rest) // OTHERS_LOOKED_UP]
        chosen = np.sort(np.concatenate([by_hits[:most], spread]))
        keys, hits, frequent = keys[chosen], hits[chosen], frequent[chosen]
    found = [(_count(other.old, keys, keys_of), _count(other.new, keys, keys_of)) for other in others]
    met = sum((old + new for old, new in found), np.zeros(len(keys), np.int64))
    return (
        keys,
        np.full(len(keys), side),
        hits * weight,
        _combinations(found, len(keys)),
        met.astype(np.float64),
        frequent,
    )


def _fresh_rows(runs: Sequence[Run], bits: int, keys_of: KeysOf) -> Counts:
    """The rows in each of `1 << bits` stretches of the key space."""
    stretches, shift = 1 << bits, np.uint64(64 - bits)
    rows = np.zeros(stretches, np.int64)
    small = []
    for run in runs:
        if run.rows > ROWS_PER_SEARCH * stretches:
            begin = np.searchsorted(keys_of(run), np.arange(stretches, dtype=np.uint64) << shift)
            rows += np.diff(begin, append=run.rows)
        else:
            small.append(keys_of(run))
    if small:
        rows += np.bincount((np.concatenate(small) >> shift).view(np.int64), minlength=stretches)
    return rows


def add_up(keys: Sequence[Keys], amounts: Sequence[Work]) -> tuple[Keys, Work]:
    """Put lists of ascending keys together: the distinct keys, ascending, and the sum of the amounts of each."""
    every = np.concatenate(keys)
    order = np.argsort(every, kind="stable")
    every = every[order]
    first = _firsts(every)
    if not len(first):
        return every, np.zeros(0)
    return every[first], np.add.reduceat(np.concatenate(amounts)[order], first)


def draw_rows(runs: Sequence[Run], samples: int, keys_of: KeysOf) -> tuple[Keys, Counts, float]:
    """Draw at most `samples` rows: their distinct keys, ascending, how often each, and the rows that one stands for.

    One is drawn from each stretch of equal length over all runs, small ones included. Its place in the stretch moves by
    the golden ratio: a fixed place might hit the same position of every sorted run.
    """
    ends = np.cumsum([run.rows for run in runs], dtype=np.int64)
    rows = int(ends[-1]) if len(runs) else 0
    count = min(rows, max(1, samples))
    if not count:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64), 0.0
    numbers = np.arange(count)
    places = ((numbers + numbers * _GOLDEN % 1) * (rows / count)).astype(np.int64)
    cuts = np.searchsorted(places, [0, *ends]).tolist()
    drawn = [
        keys_of(run)[places[low:high] - (end - run.rows)]
        for run, end, (low, high) in zip(runs, ends.tolist(), itertools.pairwise(cuts), strict=True)
        if low < high
    ]
    # Those of each run ascend, so they only need to be merged.
    keys = np.sort(np.concatenate(drawn), kind="stable")
    first = _firsts(keys)
    return keys[first], np.diff(first, append=count), rows / count


def _firsts(keys: Keys) -> Counts:
    """Where each distinct key begins. `keys` ascend."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), np.bool_), keys[1:] != keys[:-1]]))


def among(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """Which of the keys are known. `known` ascends."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    found: npt.NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
    return found


def _combinations(others: Sequence[tuple[Counts, Counts]], keys: int) -> Work:
    """The results of one fresh row, given the old and new rows of its key in each other input.

    A combination of f fresh rows is found from f sides, so each side counts 1 / f of it. The sum over all combinations
    of 1 / f is the integral of the product of (old + t * new) over t from 0 to 1.
    """
    powers: list[Work] = [np.ones(keys)]
    for old, new in others:
        shifted = [np.zeros(keys), *(power * new for power in powers)]
        powers = [
            a + b for a, b in zip([*(power * old for power in powers), np.zeros(keys)], shifted, strict=True)
        ]
    return sum((power / (place + 1) for place, power in enumerate(powers)), np.zeros(keys))


def _count(runs: Sequence[Run], keys: Keys, keys_of: KeysOf) -> Counts:
    """The rows of each key. `keys` ascend and are distinct."""
    counts = np.zeros(len(keys), np.int64)
    if not len(keys):
        return counts
    first, last, most = int(keys[0]), int(keys[-1]), ROWS_PER_SEARCH * len(keys)
    small = []
    for run in runs:
        if run.low <= last and first <= run.high:
            if run.rows > most:
                _add_rows(counts, keys, run, keys_of)
            else:
                small.append(keys_of(run))
    if small:
        counts += _tally(np.concatenate(small), keys)
    return counts


def _add_rows(counts: Counts, keys: Keys, run: Run, keys_of: KeysOf) -> None:
    """Add the rows of each key in a run."""
    low = np.searchsorted(keys, np.uint64(run.low))
    high = np.searchsorted(keys, np.uint64(run.high), side="right")
    within, stored = keys[low:high], keys_of(run)
    counts[low:high] += np.searchsorted(stored, within, side="right") - np.searchsorted(stored, within)


def _tally(rows: Keys, keys: Keys) -> Counts:
    """How many of the rows have each key. Rows need no order."""
    return np.bincount(_found(rows, keys)[1], minlength=len(keys))


def _found(rows: Keys, keys: Keys) -> tuple[Counts, Counts]:
    """The positions of the rows that have one of the keys, and which key."""
    # Order keys are mixed, so a table by their first bits tells most others apart.
    bits = (ROWS_PER_SEARCH * len(keys)).bit_length()
    shift = np.uint64(64 - bits)
    near = np.zeros(1 << bits, np.bool_)
    near[(keys >> shift).view(np.int64)] = True
    places = np.flatnonzero(near[(rows >> shift).view(np.int64)])
    at = np.searchsorted(keys, rows[places])
    at[at == len(keys)] = 0
    same = keys[at] == rows[places]
    return places[same], at[same]


def count_by_run(runs: Sequence[Run], keys: Keys, keys_of: KeysOf) -> Counts:
    """The rows of each key in each run: a line for each run."""
    counts = np.zeros((len(runs), len(keys)), np.int64)
    small = np.array([run.rows <= ROWS_PER_SEARCH * len(keys) for run in runs], np.bool_)
    for place in np.flatnonzero(~small).tolist():
        _add_rows(counts[place], keys, runs[place], keys_of)
    numbers = np.flatnonzero(small)
    if len(numbers):
        stored = [keys_of(runs[number]) for number in numbers.tolist()]
        places, at = _found(np.concatenate(stored), keys)
        run = np.searchsorted(np.cumsum([len(rows) for rows in stored]), places, side="right")
        np.add.at(counts, (numbers[run], at), 1)
    return counts


def rows_of_parts(counts: Counts, turns: Keys, of: int) -> Counts:
    """The rows in each of `of` parts, a power of two, of a key with so many rows in each run, all runs together.

    `turns` are the checksums of the runs, by which `RowPart` rotates the cut.
    """
    turn = (
        (turns >> np.uint64(65 - of.bit_length())).view(np.int64)
        if of > 1
        else np.zeros(len(turns), np.int64)
    )
    cuts = (counts[:, None] * np.arange(of + 1) + turn[:, None]) // of
    rows: Counts = np.diff(cuts, axis=1).sum(axis=0)
    return rows


def work_of_cells(old: Sequence[Counts], new: Sequence[Counts]) -> Work:
    """The work of every cell, the last axis running fastest, from the rows of each part of each input."""
    whole = [a + b for a, b in zip(old, new, strict=True)]
    every, before = (
        functools.reduce(np.multiply.outer, [one.astype(np.float64) for one in side]) for side in (whole, old)
    )
    probed = functools.reduce(np.add.outer, new)
    work: Work = (every - before + probed).reshape(-1)
    return work


def turns_of(runs: Sequence[Run]) -> Keys:
    return np.array([int(run.checksum or "0", 16) for run in runs], np.uint64)
