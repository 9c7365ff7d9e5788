"""Find the keys that may be heavy, or that have much work, and count them exactly.

A key is suspected if runs list enough rows of it, or if it is large in a sample: a key that is new, or that has a few
rows in each of many small runs, is in no list. Beside those that may be heavy, the keys with most work are counted,
since a sample knows the work of a single key badly.

To find such keys takes many draws, and to count one a search in every old run. But a key with much work in one batch
mostly has much in the next. So a plan names the keys that had most, with their rows (`Watched`). The next plan searches
only its fresh runs for them, and draws fewer rows: what so few draws miss in one batch, they find in one of the next.

Invariant: counts are exact. Those of watched keys hold for the history as long as it has as many rows as the inputs had
then. Only a batch of this scheme adds rows, so no other rows can have taken the place of some that left. With a window,
rows leave in most batches. Nothing is settled then, and the full sample is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.schemes.hypercube.census import (
    Amounts,
    Counts,
    KeyCounts,
    Stored,
    count_rows,
    distinct,
    places_among,
)
from watersmeet.schemes.hypercube.facts import Watched
from watersmeet.schemes.hypercube.hot_keys import Frequent, workers_of
from watersmeet.schemes.hypercube.sample import FEW_KEYS, MET_BY_CHANCE, Sample
from watersmeet.schemes.scheme import Keys, KeysOf

# A key is heavy by its work from this many workers' shares on. The ranges of light keys even out smaller ones.
WORK_WORKERS = 2

# A key is counted exactly from this part on of what makes it heavy, in the lists of runs or by its work.
SUSPECTED = 0.5

# At most as many searches of a key in a run for them: some 20 milliseconds where there are hundreds of tasks and runs.
MOST_SEARCHES = 1 << 17


@dataclass(frozen=True, slots=True)
class Effort:
    """What a batch does to find the keys with most work.

    For each task `fresh` and `old` rows of each input are drawn, of all tasks together at least `least`. `counted` keys
    are counted exactly for each task, beside those that may be heavy, if they may have `counted_work` of a task's work:
    less than that evens out between the keys of a range. Keys that several draws have by chance give the mean results
    of a rare one if they are `met_by_chance`. A key is counted from the `suspected` part on of the rows that make it
    heavy, in the sample, which may be off by as much. Up to `few_keys` keys for each task are all frequent.
    """

    fresh: int
    old: int
    least: int
    counted: int
    counted_work: float
    met_by_chance: int
    suspected: float
    few_keys: int = FEW_KEYS

    def draws(self, tasks: int) -> tuple[int, int]:
        return max(self.least, self.fresh * tasks), max(self.least, self.old * tasks)


# All in one batch. With two thirds of the draws, 48 tasks had busiest / mean up to 1.30 under Zipf 0.5 in eight
# partitions, with these up to 1.21. The least are half a millisecond of look-ups.
FIRST = Effort(
    fresh=192, old=192, least=4096, counted=4, counted_work=1 / 64, met_by_chance=MET_BY_CHANCE, suspected=0.5
)
# With the keys that are watched: a third of the time and, in a dozen batches of Zipf 0.5 and 0.75, the same balance.
# The mean of rare keys is known to 12 %, but most of the work that differs between tasks is on watched ones.
NEXT = Effort(fresh=48, old=32, least=1536, counted=2, counted_work=1 / 32, met_by_chance=64, suspected=0.75)
# The first effort is made while the history has fewer rows than this many such batches: it is then new to the plan.
FIRST_BATCHES = 3


@dataclass(frozen=True, slots=True)
class Settled:
    """Old rows of some ascending keys that need no search: a line for each input, a column for each key.

    `follows`: the plan before knew the whole history.
    """

    keys: Keys
    rows: Counts
    follows: bool


def settle(watched: Watched, stored: Sequence[Stored]) -> Settled:
    """The watched keys with their old rows, or none if rows have left the history."""
    follows = watched.of_rows == tuple(one.old_rows for one in stored)
    if not follows:
        watched = Watched()
    rows = np.array(watched.rows, np.int64).reshape(len(stored), len(watched.keys))
    return Settled(np.array(watched.keys, np.uint64), rows, follows)


def choose_effort(settled: Settled, stored: Sequence[Stored]) -> Effort:
    """Less if the plans before have found the keys with most work."""
    old, fresh = sum(one.old_rows for one in stored), sum(one.fresh_rows for one in stored)
    return NEXT if settled.follows and old >= FIRST_BATCHES * fresh else FIRST


def count_suspects(
    stored: Sequence[Stored],
    sample: Sample,
    seen: Sequence[Frequent],
    settled: Settled,
    were_heavy: Keys,
    tasks: int,
    effort: Effort,
    keys_of: KeysOf,
) -> KeyCounts:
    """Count the keys that may be heavy, those that were, and those with most work."""
    workers = workers_of(tasks)
    rows = sum(one.rows for one in stored) / workers
    most = min(effort.counted * tasks, MOST_SEARCHES // sum(map(len, stored)))
    sure = distinct(
        [
            sample.large(effort.suspected * rows),
            *_listed(seen, SUSPECTED * rows),
            settled.keys,
            were_heavy,
        ]
    )
    total = sample.total
    much, least = SUSPECTED * WORK_WORKERS / workers * total, effort.counted_work / tasks * total
    doubtful, old_about = sample.busy(much, most, least, sure)
    keys = np.concatenate([sure, doubtful])
    order = keys.argsort(kind="stable")
    keys = keys[order]
    new = np.array([count_rows(one.new, keys, keys_of) for one in stored])
    # Their fresh rows are known now. That leaves few to be sought in all old runs.
    kept = order < len(sure)
    if len(doubtful):
        places = (~kept).nonzero()[0]
        doubtful_new = new.take(places, axis=1)
        kept[places] = (_work(doubtful_new, _old_in_step(doubtful_new, stored)) >= least) | (
            _work(doubtful_new, old_about.take(order[places] - len(sure), axis=1)) >= much
        )
        places = kept.nonzero()[0]
        keys, new = keys[places], new.take(places, axis=1)
    at, known = places_among(keys, settled.keys)
    old = np.zeros(new.shape, np.int64)
    if len(settled.keys):
        np.multiply(settled.rows.take(at, axis=1), known, out=old)
    unknown = (~known).nonzero()[0]
    if len(unknown):
        for line, one in zip(old, stored, strict=True):
            line[unknown] = count_rows(one.old, keys[unknown], keys_of)
    return KeyCounts(keys, new, old)


def _listed(seen: Sequence[Frequent], rows: float) -> list[Keys]:
    """The keys of which the runs of some input list at least `rows` divided by the number of inputs."""
    return [one.keys[one.listed >= rows / len(seen)] for one in seen]


def _old_in_step(new: Counts, stored: Sequence[Stored]) -> Amounts:
    """The old rows of keys that have the same part of the history as of the batch."""
    old: Amounts = new * np.array([[one.old_rows / max(1, one.fresh_rows)] for one in stored])
    return old


def _work(new: Counts, old: Amounts) -> Amounts:
    counts = KeyCounts(np.zeros(new.shape[1], np.uint64), new, old)
    return counts.probed + counts.emitted


def choose_watched(
    counts: KeyCounts,
    work: Amounts,
    heavy: npt.NDArray[np.bool_],
    whole: float,
    stored: Sequence[Stored],
    tasks: int,
    effort: Effort,
) -> Watched:
    """The heavy keys, and of the others those with most of the `whole` work and those that may become heavy."""
    most, rows = effort.counted * tasks, sum(one.rows for one in stored)
    suspected = counts.total.sum(axis=0) >= SUSPECTED * rows / workers_of(tasks)
    light = (((work >= effort.counted_work / tasks * whole) | suspected) & ~heavy).nonzero()[0]
    if len(light) > most:
        light = light[np.argsort(-work[light], kind="stable")[:most]]
    chosen = heavy.copy()
    chosen[light] = True
    found = counts.at(chosen.nonzero()[0])
    return Watched(
        tuple(found.keys.tolist()),
        tuple(map(tuple, found.total.tolist())),
        tuple(one.rows for one in stored),
    )
