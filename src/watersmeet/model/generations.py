"""Which rows of a run belong to which generation, and so which rows a fresh row meets.

Source: Liu, Rundensteiner 2005 (State-intensive queries), sections 4.1 and 4.2. There a partition group that is
pushed to disk leaves memory as a whole, and its later rows begin a new part. Here all rows are on disk and stay where
they are. A push (`model/facts.py`) only names the runs that were there, and the ranges of order keys. So

    generation of a row with key k in run r  =  the first push that names r and whose ranges contain k
                                                the current one, if there is none

and nothing has to be done for a group that is cut in two: both parts inherit the borders. Rows of one generation have
all met each other. Rows of two have not, and owe their combinations.

The key space is cut into *segments* at every bound of a range, so that all rows of a run in a segment have one
generation. Segments in which the same runs are current are a *class*: fresh rows of a class meet the same runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KEY_SPACE, KeyRange, Manifest, Push, Run, ranges_between
from watersmeet.model.ranges import EVERYTHING, Ranges, intersected, joined

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# A run does not hold rows of a segment: they were merged into another run.
NOT_HELD = -1


@dataclass(frozen=True, slots=True)
class Class:
    """Ranges of keys in which the same runs are current, and those runs. `segments` are their numbers."""

    ranges: Ranges
    runs: tuple[Run, ...]
    segments: Numbers


@dataclass(frozen=True, slots=True)
class Generations:
    """The generation of the rows of each run, by segment. `lows` are the lowest keys of the segments, from 0 on.

    `of` has a line for each run: the number of the push that set the rows aside, `current`, or `NOT_HELD`.
    """

    runs: tuple[Run, ...]
    lows: npt.NDArray[np.uint64]
    of: Numbers
    current: int

    @property
    def is_current(self) -> Mask:
        mask: Mask = self.of == self.current
        return mask

    def range_of(self, segment: int) -> KeyRange:
        end = int(self.lows[segment + 1]) if segment + 1 < len(self.lows) else KEY_SPACE
        return KeyRange(int(self.lows[segment]), end)

    def ranges_of(self, segments: Iterable[int]) -> Ranges:
        return joined(self.range_of(segment) for segment in segments)

    def segments_in(self, range_: KeyRange) -> Numbers:
        """The segments that overlap a range; none if it is empty."""
        if range_.low >= range_.high:
            return np.zeros(0, np.int64)
        first = int(np.searchsorted(self.lows, np.uint64(range_.low), side="right")) - 1
        end = (
            len(self.lows)
            if range_.high >= KEY_SPACE
            else int(np.searchsorted(self.lows, np.uint64(range_.high)))
        )
        return np.arange(first, end)

    def classes(self, ranges: Ranges = EVERYTHING) -> list[Class]:
        """The classes of the segments that overlap ascending ranges. Their ranges cover those, and do not overlap."""
        segments = np.unique(np.concatenate([np.zeros(0, np.int64), *map(self.segments_in, ranges)]))
        if not len(segments):
            return []
        if not self.runs:
            return [Class(self.ranges_of(segments.tolist()), (), segments)]
        seen = self.is_current[:, segments]
        _, number = np.unique(np.packbits(seen, axis=0), axis=1, return_inverse=True)
        found = []
        for one in range(int(number.max(initial=-1)) + 1):
            mine = segments[number == one]
            visible = np.flatnonzero(self.is_current[:, mine[0]])
            found.append(
                Class(self.ranges_of(mine.tolist()), tuple(self.runs[place] for place in visible), mine)
            )
        return found

    def size_of(self, run: Run, keys: npt.NDArray[np.uint64], segments: Numbers) -> Numbers:
        """The bytes of a run in some segments. `keys` are order keys of it that ascend, those of these segments all."""
        return self.rows_of(keys, segments) * run.bytes // max(1, run.rows)

    def rows_of(self, keys: npt.NDArray[np.uint64], segments: Numbers) -> Numbers:
        """How many ascending keys lie in some segments."""
        places = np.append(np.searchsorted(keys, self.lows), len(keys))
        rows: Numbers = places[segments + 1] - places[segments]
        return rows

    def held_in(self, segments: Numbers) -> Iterator[Mask]:
        """For each run, which of some segments it may hold rows of, by its first and last key and what it stands for."""
        lows = self.lows[segments]
        lasts = np.append(self.lows[1:] - np.uint64(1), np.uint64(KEY_SPACE - 1))[segments]
        for run, of in zip(self.runs, self.of[:, segments], strict=True):
            yield (of != NOT_HELD) & (lows <= run.high) & (lasts >= run.low)

    def active_runs(self) -> tuple[Run, ...]:
        """The runs that have current rows, if they have any rows there."""
        return tuple(run for run, seen in zip(self.runs, self.is_current, strict=True) if seen.any())


def generations_of(runs: Iterable[Run], pushes: Sequence[Push], cuts: Iterable[KeyRange] = ()) -> Generations:
    """The generations of some runs. The key space is also cut at the bounds of `cuts`."""
    runs = tuple(runs)
    # Most runs that stand for some ranges stand for the same.
    held: dict[tuple[int, ...], list[int]] = {}
    for place, run in enumerate(runs):
        if run.held:
            held.setdefault(run.held, []).append(place)
    bounds = {0}
    for one in (
        *cuts,
        *(r for push in pushes for r in push.ranges),
        *(r for mine in held for r in ranges_between(mine)),
    ):
        bounds.update((one.low, one.high))
    bounds.discard(KEY_SPACE)
    lows = np.array(sorted(bounds), np.uint64)
    of = np.full((len(runs), len(lows)), len(pushes), np.int64)
    place_of = {run.path: place for place, run in enumerate(runs)}
    for number in range(len(pushes) - 1, -1, -1):
        named = np.array([place_of[path] for path in pushes[number].runs if path in place_of], np.int64)
        of[np.ix_(named, np.flatnonzero(_covered(lows, pushes[number].ranges)))] = number
    for mine, places in held.items():
        elsewhere = np.flatnonzero(~_covered(lows, ranges_between(mine)))
        of[np.ix_(np.array(places), elsewhere)] = NOT_HELD
    return Generations(runs, lows, of, len(pushes))


def _covered(lows: npt.NDArray[np.uint64], ranges: Sequence[KeyRange]) -> Mask:
    """Which segments lie in some of the ranges, whose bounds are bounds of segments."""
    change = np.zeros(len(lows) + 1, np.int64)
    np.add.at(change, np.searchsorted(lows, np.array([one.low for one in ranges], np.uint64)), 1)
    ends = [one.high for one in ranges if one.high < KEY_SPACE]
    np.add.at(change, np.searchsorted(lows, np.array(ends, np.uint64)), -1)
    mask: Mask = np.cumsum(change[:-1]) > 0
    return mask


def history_generations(manifest: Manifest, groups: Sequence[KeyRange] = ()) -> Generations | None:
    """The generations of a batch's history as its fresh rows see them; None if all of it is current and whole.

    With partition groups there are always some, cut at their bounds too: a task may have groups in several places.
    """
    whole = not manifest.pushes and not manifest.paid and not any(run.held for run in manifest.history)
    if whole and not groups:
        return None
    return generations_of(manifest.history, manifest.pushes, _cuts(manifest, groups))


@dataclass(frozen=True, slots=True)
class Aside:
    """Runs of the history with rows that fresh rows may not meet: the `whole` run, or a `part` of it."""

    whole: tuple[str, ...] = ()
    part: tuple[str, ...] = ()


def paths_set_aside(manifest: Manifest) -> Aside:
    """The runs of which all rows or some were pushed, or were merged into others."""
    if not manifest.pushes and not any(run.held for run in manifest.history):
        return Aside()
    found = generations_of(manifest.history, manifest.pushes)
    seen = list(zip(found.runs, found.is_current, strict=True))
    return Aside(
        tuple(run.path for run, current in seen if not current.any()),
        tuple(run.path for run, current in seen if current.any() and not current.all()),
    )


def paid_generations(manifest: Manifest, groups: Sequence[KeyRange] = ()) -> Generations:
    """The generations of a batch's history as its payments find them, in the same segments."""
    return generations_of(manifest.history, manifest.paid, _cuts(manifest, groups))


def _cuts(manifest: Manifest, groups: Sequence[KeyRange]) -> Iterator[KeyRange]:
    yield from groups
    yield from (payment.range for payment in manifest.plan.payments)
    yield from (range_ for push in (*manifest.pushes, *manifest.paid) for range_ in push.ranges)


def restricted(pushes: Sequence[Push], ranges: Ranges) -> tuple[Push, ...]:
    """The parts of pushes within some ranges."""
    found = (replace(push, ranges=intersected(push.ranges, ranges)) for push in pushes)
    return tuple(push for push in found if push.ranges)
