"""Estimate the work of a batch, key by key, from a sample of its rows.

Rows are drawn from the fresh and from the old runs of every input. A key's draws estimate its rows, and their product
its results. That is too coarse for a key with few draws. Such keys all get the mean results of a row, and only their
fresh rows are known by stretch of the key space. The keys that the sample finds large are then counted exactly
(`census.py`). So the number of searches in each run is small, however many keys there are.
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
from watersmeet.schemes.hypercube.census import Amounts, Counts, KeyCounts, Profile, Stored, among, count_rows
from watersmeet.schemes.scheme import Keys, KeysOf

# A key is frequent from this many draws of one input on. Its work is a product of two draws: with fewer, its error is
# larger than if it had the mean of all rare keys.
FREQUENT_HITS = 8

# A key stands out from this many draws on, of all inputs: of a hundred thousand even keys, a dozen do so by chance.
OUTSTANDING_HITS = 5

# A key seems to have much work from this many draws on, of all inputs, unless all rows are drawn. Two draws of a key
# with few rows are enough for a large product.
SUSPECT_HITS = 3

# So few keys for each task are all taken as frequent: there is no crowd of rare ones.
FEW_KEYS = 32

# The results of rare keys are estimated from the keys that several draws have by chance, if they are this many: their
# mean is then known to 3 %. Otherwise from some keys that are looked up, as many of each input.
MET_BY_CHANCE, LOOKED_UP = 1024, 512

# The fresh rows of each stretch follow from the draws: every run is sorted, so they are off by less than one draw in
# each run. With more runs the rows are counted instead, unless there are more than ROWS_PER_DRAW for each.
MANY_RUNS, ROWS_PER_DRAW = 32, 16

# The key space is cut into at least this many stretches for each task: a range of light keys is then cut to within 3 %.
STRETCHES_PER_TASK = 32

# Odd multipliers whose products mix the bits of a number.
_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows and work of the keys that were drawn, estimated.

    `keys` ascend and were drawn several times, as often as `hits` says, of fresh and old rows of all inputs. `rows` has
    their fresh and their old rows, a line for each input, `probed` the sum of fresh ones, `emitted` their results, and
    `work` both together. One draw stands for as many rows as `weights` says; the sample is `complete` if all rows were
    drawn. One that is not `frequent` only stands for the rest, and so do `rare` keys, which were drawn once, each for
    `rare_rows` fresh rows: one row says nothing about the other keys of its stretch. `mean` has the results of such a
    row, if some were looked up. The key space has `1 << bits` stretches of equal width; `fresh` has all fresh rows of
    each, if they were counted.
    """

    keys: Keys
    hits: Counts
    rows: tuple[Amounts, Amounts]
    weights: tuple[Amounts, Amounts]
    complete: bool
    probed: Amounts
    emitted: Amounts
    work: Amounts
    frequent: npt.NDArray[np.bool_]
    rare: Keys
    rare_rows: Amounts
    mean: float | None
    fresh: Counts | None
    bits: int

    def large(self, rows: float) -> Keys:
        """The keys with about as many live rows."""
        return self.keys[self.live >= rows]

    @property
    def total(self) -> float:
        """The work on all keys."""
        rest = ~self.frequent
        rows = self._rows(rest)
        return float(self.work[self.frequent].sum()) + rows * (1 + self._mean(rest, rows))

    def busy(self, much_work: float, most: int, least_work: float, known: Keys) -> tuple[Keys, Amounts]:
        """The keys that seem to have much work, and about how many old rows, in lines for the inputs.

        Also `most` others that were drawn often enough to stand out, if they may have the least work. Without the
        `known` ones, which ascend.
        """
        much = self.work >= max(much_work, 1.0)
        if not self.complete:
            much &= self.hits >= SUSPECT_HITS
        found = (much | (self.hits >= OUTSTANDING_HITS) & (self.probed > 0)).nonzero()[0]
        found = found[~among(self.keys[found], known)]
        # As if each were drawn once more everywhere: few draws may miss the rows that it meets.
        new, old = (
            rows.take(found, axis=1) + weights for rows, weights in zip(self.rows, self.weights, strict=True)
        )
        sure, keys = much[found], self.keys[found]
        others = (~sure & (KeyCounts(keys, new, old).emitted >= least_work)).nonzero()[0]
        others = others[(-self.hits[found[others]]).argsort(kind="stable")[:most]]
        found = np.concatenate([found[sure], found[others]])
        return self.keys[found], self.rows[1].take(found, axis=1)

    def without(self, known: KeyCounts) -> Profile:
        """The work on all keys but the known ones."""
        left, rare = ~_marked(self.keys, known.keys), ~_marked(self.rare, known.keys)
        own = left & self.frequent
        rest = left ^ own
        if self.fresh is None:
            keys = np.concatenate([self.rare, self.keys[rest]])
            rows = self._by_stretch(keys, np.concatenate([self.rare_rows * rare, self.probed[rest]]))
        else:
            keys = np.concatenate([known.keys, self.keys[own]])
            others = self._by_stretch(keys, np.concatenate([known.probed, self.probed[own]]))
            rows = np.maximum(self.fresh - others, 0.0)
        filled = rows.nonzero()[0]
        keys = np.concatenate([self.keys[own], filled.astype(np.uint64) << self._shift])
        mean = self._mean(rest, self._rows(rest))
        work = np.concatenate([self.work[own], rows[filled] * (1 + mean)])
        order = keys.argsort(kind="stable")
        return Profile(keys[order], work[order])

    def _mean(self, rest: npt.NDArray[np.bool_], rows: float) -> float:
        """The results of a fresh row of the rare keys and these, given the fresh rows of all of them."""
        return self.mean if self.mean is not None else float(self.emitted[rest].sum()) / max(1.0, rows)

    def _rows(self, rest: npt.NDArray[np.bool_]) -> float:
        return float(self.probed[rest].sum()) + float(self.rare_rows.sum())

    def _by_stretch(self, keys: Keys, rows: Amounts) -> Amounts:
        return np.bincount((keys >> self._shift).view(np.int64), rows, 1 << self.bits).astype(np.float64)

    @property
    def live(self) -> Amounts:
        """The rows of each key."""
        live: Amounts = self.probed + self.rows[1].sum(axis=0)
        return live

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(64 - self.bits)


def sample_work(
    stored: Sequence[Stored],
    samples: int,
    old_samples: int,
    tasks: int,
    keys_of: KeysOf,
    met_by_chance: int = MET_BY_CHANCE,
    few_keys: int = FEW_KEYS,
) -> Sample:
    """Sample the work on all keys of the batch, from about `samples` fresh and `old_samples` old rows of each input.

    Of an input with fewer old rows, as many more fresh ones are drawn.
    """
    # In a first batch there are no old rows to draw. A key would then be drawn half as often as later, and of those
    # that have a fifth of a task's work, several would not stand out.
    drawn = [draw_rows(one.new, samples + max(0, old_samples - one.old_rows), keys_of) for one in stored]
    drawn += [draw_rows(one.old, old_samples, keys_of) for one in stored]
    counts, weights = [len(rows) for rows, _ in drawn], np.array([[weight] for _, weight in drawn])
    keys = np.concatenate([rows for rows, _ in drawn])
    # Those of each run ascend, so they only need to be merged.
    order = keys.argsort(kind="stable")
    keys, source = keys[order], np.arange(len(drawn), dtype=np.int8).repeat(counts)[order]
    # Whether a draw, or the end, begins with another key than the draw before.
    begins = np.ones(len(keys) + 1, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:-1])
    # If all rows are drawn, nothing is to be estimated: the mean of rare keys would blur those with few rows.
    complete = all(weight <= 1 for _, weight in drawn)
    few = complete or np.count_nonzero(begins) - 1 <= few_keys * tasks
    alone = np.zeros(len(keys), np.bool_) if few else begins[1:] & begins[:-1]
    inputs = len(stored)
    once = (alone & (source < inputs)).nonzero()[0]
    found, hits = _hits(keys, source, begins[:-1], (~alone).nonzero()[0], len(drawn))
    rows = hits * weights
    estimated = KeyCounts(found, rows[:inputs], rows[inputs:])
    probed, emitted = estimated.probed, estimated.emitted
    frequent = (hits[:inputs].max(axis=0) >= FREQUENT_HITS) | few
    rare, rare_rows = keys[once], weights.reshape(-1)[source[once]]
    mean = None
    if len(rare) and np.count_nonzero(emitted[~frequent]) < met_by_chance:
        mean = _mean_results(stored, rare, rare_rows, source[once], keys_of)
    bits = (STRETCHES_PER_TASK * tasks - 1).bit_length()
    return Sample(
        found,
        hits.sum(axis=0),
        (estimated.new, estimated.old),
        (weights[:inputs], weights[inputs:]),
        complete,
        probed,
        emitted,
        probed + emitted,
        frequent,
        rare,
        rare_rows,
        mean,
        None if few else _fresh_rows(stored, samples, bits, keys_of),
        bits,
    )


def _hits(
    keys: Keys, source: npt.NDArray[Any], begins: npt.NDArray[np.bool_], places: Counts, sources: int
) -> tuple[Keys, Counts]:
    """The distinct keys at some places of ascending keys, and how often each comes from each source, in lines.

    Each key that is at one of the places is there as often as among all keys.
    """
    first = begins[places]
    number = first.cumsum() - 1
    found = keys[places[first]]
    # A line for each source, not for each key: sums over the sources are then sums of whole lines.
    line = np.arange(sources) * len(found)
    hits = np.bincount(line[source[places]] + number, minlength=sources * len(found))
    return found, hits.reshape(sources, len(found))


def _mean_results(
    stored: Sequence[Stored], rare: Keys, rows: Amounts, source: npt.NDArray[Any], keys_of: KeysOf
) -> float:
    """The results of a fresh row of these keys, from some that are looked up. `source` has the input of each."""
    of_input = [np.flatnonzero(source == place) for place in range(len(stored))]
    each = -(-LOOKED_UP // len(stored))
    some = [
        mine[np.arange(count) * len(mine) // count] for mine in of_input for count in [min(each, len(mine))]
    ]
    # All at once: a search for the keys of each input in all others would be many, of few keys each.
    keys = np.unique(rare[np.concatenate(some)])
    found = [(count_rows(one.old, keys, keys_of), count_rows(one.new, keys, keys_of)) for one in stored]
    results = 0.0
    for place, (mine, drawn) in enumerate(zip(of_input, some, strict=True)):
        if len(drawn):
            at = np.searchsorted(keys, rare[drawn])
            others = [(old[at], new[at]) for old, new in (*found[:place], *found[place + 1 :])]
            results += float(rows[mine].sum()) * float(_combinations(others, len(at)).mean())
    return results / float(rows.sum())


def _fresh_rows(stored: Sequence[Stored], samples: int, bits: int, keys_of: KeysOf) -> Counts | None:
    """The fresh rows in each of `1 << bits` stretches, where draws from many small runs would be too coarse."""
    runs = [run for one in stored for run in one.new]
    if len(runs) <= MANY_RUNS or sum(run.rows for run in runs) > ROWS_PER_DRAW * samples * len(stored):
        return None
    keys = np.concatenate([keys_of(run) for run in runs])
    return np.bincount((keys >> np.uint64(64 - bits)).view(np.int64), minlength=1 << bits)


def draw_rows(runs: Sequence[Run], samples: int, keys_of: KeysOf) -> tuple[Keys, float]:
    """Draw at most `samples` rows: their keys, run by run, and the rows that one stands for.

    One is drawn from each stretch of equal length over all runs, small ones included. Its place in the stretch is as
    good as random. If it were fixed, or moved by the same step, runs of a fitting length would be hit at the same
    position each, and a key that begins every run would never be drawn.
    """
    sizes = np.array([run.rows for run in runs], np.int64)
    ends = sizes.cumsum()
    rows = int(ends[-1]) if len(runs) else 0
    count = min(rows, max(1, samples))
    if not count:
        return np.zeros(0, np.uint64), 0.0
    places = (_spread(count) * (rows / count)).astype(np.int64)
    cuts = np.zeros(len(runs) + 1, np.int64)
    cuts[1:] = places.searchsorted(ends)
    places -= (ends - sizes).repeat(cuts[1:] - cuts[:-1])
    drawn = [
        keys_of(run)[places[low:high]]
        for run, (low, high) in zip(runs, itertools.pairwise(cuts.tolist()), strict=True)
        if low < high
    ]
    return np.concatenate(drawn), rows / count


@functools.lru_cache(maxsize=8)
def _spread(count: int) -> Amounts:
    """A place in each of some stretches of length one."""
    numbers = np.arange(count, dtype=np.uint64)
    mixed = numbers * _MIX[0]
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX[1]
    # The first bits are mixed best, and a float holds them exactly.
    places: Amounts = numbers + (mixed >> np.uint64(40)) / (1 << 24)
    places.flags.writeable = False
    return places


def _marked(keys: Keys, known: Keys) -> npt.NDArray[np.bool_]:
    """The same as `among`, for distinct ascending keys that are far more than the known ones."""
    marked = np.zeros(len(keys), np.bool_)
    if len(keys):
        at = np.minimum(keys.searchsorted(known), len(keys) - 1)
        marked[at[keys[at] == known]] = True
    return marked


def _combinations(others: Sequence[tuple[Counts, Counts]], keys: int) -> Amounts:
    """The results of one fresh row, given the old and new rows of its key in each other input.

    A combination of f fresh rows is found from f sides, so each side counts 1 / f of it. The sum over all combinations
    of 1 / f is the integral of the product of (old + t * new) over t from 0 to 1.
    """
    powers: list[Amounts] = [np.ones(keys)]
    for old, new in others:
        shifted = [np.zeros(keys), *(power * new for power in powers)]
        powers = [
            a + b for a, b in zip([*(power * old for power in powers), np.zeros(keys)], shifted, strict=True)
        ]
    return sum((power / (place + 1) for place, power in enumerate(powers)), np.zeros(keys))
