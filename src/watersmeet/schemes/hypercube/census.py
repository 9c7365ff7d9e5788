"""Count the rows of some keys exactly, and the work that follows from them.

The work on a key is its fresh rows, which are looked up, and its results: every combination of rows, one of each input,
with at least one fresh row.

Runs are sorted, so the rows of a key are counted by two binary searches a run. Small runs are put together and counted
in one pass: a search in each of hundreds of them would cost more.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Stored:
    """The runs of one input: history and fresh."""

    old: Sequence[Run]
    new: Sequence[Run]

    @property
    def fresh_rows(self) -> int:
        return sum(run.rows for run in self.new)

    def __len__(self) -> int:
        return len(self.old) + len(self.new)

    @property
    def rows(self) -> int:
        return self.old_rows + self.fresh_rows

    @property
    def old_rows(self) -> int:
        return sum(run.rows for run in self.old)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Fresh and old rows of some ascending keys, counted or estimated: a line for each input, a column for each key."""

    keys: Keys
    new: npt.NDArray[Any]
    old: npt.NDArray[Any]

    @property
    def total(self) -> npt.NDArray[Any]:
        return self.new + self.old

    @property
    def probed(self) -> npt.NDArray[Any]:
        totals: npt.NDArray[Any] = self.new.sum(axis=0)
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


def places_among(keys: Keys, known: Keys) -> tuple[Counts, npt.NDArray[np.bool_]]:
    """Where each key is among the known ones, and whether it is. `known` ascends."""
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return at, known[at] == keys


def among(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """Which of the keys are known. `known` ascends."""
    return places_among(keys, known)[1]


def count_rows(runs: Sequence[Run], keys: Keys, keys_of: KeysOf) -> Counts:
    """The rows of each key. `keys` ascend and are distinct."""
    counts = np.zeros(len(keys), np.int64)
    small = []
    for run, low, high in _within(runs, keys):
        if run.rows > ROWS_PER_SEARCH * len(keys):
            _add_rows(counts[low:high], keys[low:high], keys_of(run))
        else:
            small.append(keys_of(run))
    if small:
        counts += _tally(np.concatenate(small), keys)
    return counts


def _within(runs: Sequence[Run], keys: Keys) -> list[tuple[Run, int, int]]:
    """The runs that may hold some of the keys, and which of the keys: from the first place up to the second."""
    first = keys.searchsorted(np.array([run.low for run in runs], np.uint64))
    end = keys.searchsorted(np.array([run.high for run in runs], np.uint64), side="right")
    return [
        (run, low, high)
        for run, low, high in zip(runs, first.tolist(), end.tolist(), strict=True)
        if low < high
    ]


def _add_rows(counts: Counts, keys: Keys, stored: Keys) -> None:
    """Add the rows of each key in a run."""
    counts += stored.searchsorted(keys, side="right")
    counts -= stored.searchsorted(keys)


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
        _add_rows(counts[place], keys, keys_of(runs[place]))
    numbers = np.flatnonzero(small)
    if len(numbers):
        stored = [keys_of(runs[number]) for number in numbers.tolist()]
        places, at = _found(np.concatenate(stored), keys)
        run = np.searchsorted(np.cumsum([len(rows) for rows in stored]), places, side="right")
        np.add.at(counts, (numbers[run], at), 1)
    return counts
