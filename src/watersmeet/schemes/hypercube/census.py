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


def count_keys(stored: Sequence[Stored], keys: Keys, keys_of: KeysOf) -> KeyCounts:
    """Count rows exactly. `keys` ascend and are distinct."""
    new, old = (
        np.stack([count_rows(runs, keys, keys_of) for runs in side])
        for side in ([one.new for one in stored], [one.old for one in stored])
    )
    return KeyCounts(keys, new, old)


def among(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """Which of the keys are known. `known` ascends."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    found: npt.NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
    return found


def count_rows(runs: Sequence[Run], keys: Keys, keys_of: KeysOf) -> Counts:
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
    stored, low, high = keys_of(run), 0, len(keys)
    if run.low > int(keys[0]):
        low = int(keys.searchsorted(np.uint64(run.low)))
    if run.high < int(keys[-1]):
        high = int(keys.searchsorted(np.uint64(run.high), side="right"))
    within = keys[low:high]
    counts[low:high] += stored.searchsorted(within, side="right") - stored.searchsorted(within)


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
