"""Count the rows of some keys exactly, and the work that follows from them.

The work on a key is its fresh rows, which are looked up, and its results: every combination of rows, one of each input,
with at least one fresh row.

Runs are sorted, so the rows of a key are counted by two binary searches a run. Small runs are put together and counted
in one pass: a search in each of hundreds of them would cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, Run
from watersmeet.schemes.scheme import Keys, KeysOf

Counts = npt.NDArray[np.int64]

Amounts = npt.NDArray[np.float64]

# A run with fewer rows for each key that is sought is small: one pass over its rows costs less than the searches.
ROWS_PER_SEARCH = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """The runs of one input: history and fresh. Their rows are added up once: a plan asks for them many times."""

    old: Sequence[Run]
    new: Sequence[Run]
    old_rows: int = field(init=False)
    fresh_rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "old_rows", sum([run.rows for run in self.old]))
        object.__setattr__(self, "fresh_rows", sum([run.rows for run in self.new]))

    def __len__(self) -> int:
        return len(self.old) + len(self.new)

    @property
    def rows(self) -> int:
        return self.old_rows + self.fresh_rows


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
    def emitted(self) -> Amounts:
        """Results of the batch, by the delta rule, as floats: products of large inputs may exceed 64 bits."""
        new, old = self.new.astype(np.float64), self.old.astype(np.float64)
        if len(new) == 2:
            # The same for two inputs, in fewer calls: most joins have two, and a plan asks half a dozen times.
            found: Amounts = new[0] * old[1] + new[1] * (new[0] + old[0])
            return found
        total = new + old
        emitted = np.zeros(new.shape[1])
        for place, fresh in enumerate(new):
            emitted += fresh * total[:place].prod(axis=0) * old[place + 1 :].prod(axis=0)
        return emitted

    def at(self, places: Counts) -> KeyCounts:
        """The counts of the keys at some places."""
        return KeyCounts(self.keys[places], self.new.take(places, axis=1), self.old.take(places, axis=1))


@dataclass(frozen=True, slots=True)
class Profile:
    """Work along the key space, at some ascending keys."""

    keys: Keys
    work: Amounts

    @property
    def total(self) -> float:
        return float(self.work.sum())


def places_among(keys: Keys, known: Keys) -> tuple[Counts, npt.NDArray[np.bool_]]:
    """Where each key is among the known ones, and whether it is. `known` ascends."""
    if not len(known):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
    at = np.minimum(known.searchsorted(keys), len(known) - 1)
    return at, known[at] == keys


def distinct(parts: Sequence[Keys]) -> Keys:
    """The distinct keys of some arrays, ascending."""
    keys = np.concatenate(parts)
    keys.sort(kind="stable")
    begins = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return keys[begins]


def among(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """Which of the keys are known. `known` ascends."""
    return places_among(keys, known)[1]


def count_rows(
    runs: Sequence[Run], keys: Keys, keys_of: KeysOf, rows_per_search: int = ROWS_PER_SEARCH
) -> Counts:
    """The rows of each key. `keys` ascend and are distinct."""
    if not len(keys):
        return np.zeros(0, np.int64)
    first, last = int(keys[0]), int(keys[-1])
    # Most runs span the key space. Of the others, a part of the keys is sought.
    spanning = [run for run in runs if run.low <= first and last <= run.high]
    partial = _within([run for run in runs if run.low > first or last > run.high], keys)
    least = rows_per_search * len(keys)
    sought = _sought(keys)
    ends = np.zeros(sought.shape, np.int64)
    for run in spanning:
        if run.rows > least:
            ends += keys_of(run).searchsorted(sought)
    for run, low, high in partial:
        if run.rows > least:
            ends[:, low:high] += keys_of(run).searchsorted(sought[:, low:high])
    small = [keys_of(run) for run in (*spanning, *(run for run, _, _ in partial)) if run.rows <= least]
    counts: Counts = ends[1] - ends[0]
    if last == KEY_SPACE - 1:
        # They end with the run.
        counts[-1] += sum(run.rows for run in runs if run.rows > least and run.high == last)
    if small:
        counts += _tally(np.concatenate(small), keys)
    return counts


def _within(runs: Sequence[Run], keys: Keys) -> list[tuple[Run, int, int]]:
    """The runs that may hold some of the keys, and which of the keys: from the first place up to the second."""
    if not runs:
        return []
    first = keys.searchsorted(np.array([run.low for run in runs], np.uint64))
    end = keys.searchsorted(np.array([run.high for run in runs], np.uint64), side="right")
    return [
        (run, low, high)
        for run, low, high in zip(runs, first.tolist(), end.tolist(), strict=True)
        if low < high
    ]


def _sought(keys: Keys) -> Keys:
    """Each key and the next number, by which both ends of its rows are found in one call for a run.

    No number follows the greatest key: its next one is 0, so that its rows seem to end at the first row.
    """
    return np.array([keys, keys + np.uint64(1)])


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


def count_by_run(
    runs: Sequence[Run], keys: Keys, keys_of: KeysOf, rows_per_search: int = ROWS_PER_SEARCH
) -> Counts:
    """The rows of each key in each run: a line for each run."""
    counts = np.zeros((len(runs), len(keys)), np.int64)
    small = np.array([run.rows <= rows_per_search * len(keys) for run in runs], np.bool_)
    sought, greatest = _sought(keys), len(keys) > 0 and int(keys[-1]) == KEY_SPACE - 1
    for place in np.flatnonzero(~small).tolist():
        first, end = keys_of(runs[place]).searchsorted(sought)
        np.subtract(end, first, out=counts[place])
        if greatest:
            counts[place, -1] += runs[place].rows
    numbers = np.flatnonzero(small)
    if len(numbers):
        stored = [keys_of(runs[number]) for number in numbers.tolist()]
        places, at = _found(np.concatenate(stored), keys)
        run = np.searchsorted(np.cumsum([len(rows) for rows in stored]), places, side="right")
        np.add.at(counts, (numbers[run], at), 1)
    return counts
