"""What a template should keep, by the rates of its streams and by what values find in them.

Idreos et al. (2008, section 6) ask nodes for the rates of tuples and choose by them where a rewritten query waits next.
Here the sorted runs of the indexes tell rates and fan-outs, and the constants of the queries how few rows pass. Keeping
some inputs

    costs     the combinations of them that fresh rows make in a batch, once for each edge that leads out of the set
    saves     the lookups by which fresh rows of the other inputs bind them one by one, but for the first

and a template keeps the set that gains most, if that is a fair share of all its lookups. It is an estimate: values of
one attribute are taken to be independent of those of another, and equalities that close a circle to hold.

A template is considered 4, 16, 64 batches and so on after it came. A batch considers as many as take about 100 ms, first
come, first served. Which ones follows from the catalogue alone: the queue is computed anew in every batch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from watersmeet.hubs.kept import MOST_KEPT
from watersmeet.hubs.language import MOST_INPUTS, Template
from watersmeet.hubs.steps import Attribute
from watersmeet.kernel.keys import Indices
from watersmeet.model.keep import Keep

# To store a combination, announce it and merge it takes as long as so many lookups, with what they find.
LOOKUPS_FOR_A_ROW: Final = 8.0
# Runs and receipts cost a batch some milliseconds, however few rows they have: a hub keeps nothing that saves less.
LEAST_SAVED_LOOKUPS: Final = 100_000.0
# Lookups are shared between templates, more so the first ones, and fan-outs grow with what is stored. Smaller gains than
# this share of a template's lookups were losses: 10,000 random shapes took 1.3 of the time.
LEAST_SHARE: Final = 0.1
# A batch considers templates until their estimates take so many walks. A walk takes 1.5 to 3.5 us, so that is about 100 ms.
MOST_WALKS: Final = 50_000
# To look up how many rows pass the constants of a filter takes as long as so many walks.
WALKS_FOR_A_FILTER: Final = 100
# In its first batches hardly a row finds another, and streams may not have come yet. So a template is considered first
# after so many batches, and each time after so many times as many.
AGE_FACTOR: Final = 4


@dataclass(frozen=True, slots=True)
class HubLoad:
    """What is known of the rows of a batch: how many come, by stream, and how many rows a value finds.

    `passing` says by template and input for how many different constants a row passes, on average.
    """

    rows: Mapping[str, float]
    fan_out: Callable[[Attribute, Attribute], float]
    passing: Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """Inputs that a template may keep, with the combinations that are stored and the lookups that are saved in a batch."""

    inputs: tuple[int, ...]
    stored_rows: float
    saved_lookups: float
    # All lookups of the template in a batch, if it keeps nothing.
    lookups: float = 0.0

    @property
    def gain(self) -> float:
        """The lookups that are saved, less what is stored."""
        return self.saved_lookups - LOOKUPS_FOR_A_ROW * self.stored_rows


@dataclass(frozen=True, slots=True)
class Due:
    """Templates that a batch considers, and for how much they stand of those that came due together with them."""

    templates: Indices
    share: float = 1.0


def estimate_walks(inputs: Indices, filters: Indices) -> Indices:
    """At most how many walks it takes to choose what each template keeps. None for a pair: it has no others to wait for.

    >>> estimate_walks(np.array([2, 3, 8]), np.array([1, 0, 0])).tolist()
    [0, 9, 1232]
    """
    sets = [
        sum(math.comb(size, kept) for kept in range(2, min(MOST_KEPT, size - 1) + 1))
        for size in range(MOST_INPUTS + 1)
    ]
    walks = inputs * np.array(sets, np.int64)[inputs]
    return np.where(walks > 0, walks + WALKS_FOR_A_FILTER * filters, 0)


def due_templates(came: Indices, walks: Indices, undecided: Indices, batch: int, keep: str) -> Due:
    """The templates that a batch considers.

    `came` has the first batch of each template and `walks` what it takes to choose (`estimate_walks`), `undecided` those
    for which it is not chosen yet.
    """
    if keep == Keep.ALWAYS:
        # Each of them is chosen when it is considered, so the others move up.
        waiting = undecided[(came[undecided] <= batch) & (walks[undecided] > 0)]
        return Due(waiting[np.cumsum(walks[waiting]) - walks[waiting] < MOST_WALKS])
    if keep != Keep.AUTO or not len(undecided):
        return Due(undecided[:0])
    # Those that are decided keep their places in the queue, or others behind them would be passed over.
    mine = np.flatnonzero((walks > 0) & (came <= batch - AGE_FACTOR))
    mine = mine[np.argsort(came[mine], kind="stable")]
    firsts, starts = np.unique(came[mine], return_index=True)
    if not len(mine):
        return Due(mine)
    taken = np.concatenate([[0], np.cumsum(walks[mine])])
    ends = np.append(starts[1:], len(mine))
    of, begins = _queue(firsts, taken[ends] - taken[starts], batch)
    low, high = batch * MOST_WALKS, (batch + 1) * MOST_WALKS
    found, served, together = [mine[:0]], 0, 0
    for one, begin in zip(of.tolist(), begins.tolist(), strict=True):
        members = slice(starts[one], ends[one])
        turns = begin + taken[members] - taken[starts[one]]
        if turns[0] >= high or turns[-1] < low:
            continue
        now = mine[members][(low <= turns) & (turns < high)]
        found.append(now)
        served += int(walks[now].sum())
        together += int(taken[ends[one]] - taken[starts[one]])
    due = np.intersect1d(np.concatenate(found), undecided)
    return Due(due, served / together if together else 1.0)


def _queue(firsts: Indices, walks: Indices, batch: int) -> tuple[Indices, Indices]:
    """The queue of templates that came together, by their first batches: which ones, and before which walk they begin.

    Walks are counted from batch 0 on, `MOST_WALKS` for each batch. Those that come due begin when those before them are
    done. Only what may last until this batch is in it.
    """
    ages = [AGE_FACTOR]
    while ages[-1] * AGE_FACTOR <= batch - int(firsts[0]):
        ages.append(ages[-1] * AGE_FACTOR)
    due = firsts[:, None] + np.array(ages)
    is_due = due <= batch
    # The queue was empty at some time since: all walks together do not take longer.
    is_due &= due >= batch - int((walks * is_due.sum(axis=1)).sum()) // MOST_WALKS - 1
    of, at = np.nonzero(is_due)[0], due[is_due]
    order = np.lexsort((of, at))
    of, at = of[order], at[order]
    before = np.cumsum(walks[of]) - walks[of]
    begins = before + np.maximum.accumulate(at * MOST_WALKS - before)
    lasts = begins + walks[of] > batch * MOST_WALKS
    return of[lasts], begins[lasts]


def choose_kept(
    templates: Mapping[int, Template],
    load: HubLoad,
    keep: str = Keep.AUTO,
    *,
    gained: float = 0.0,
    share: float = 1.0,
) -> dict[int, KeptInputs]:
    """What some templates keep. The others keep nothing.

    `gained` is the gain of the templates that keep already. `share` says for how much of the templates that came due
    together these stand: they need not gain more than that of what all must gain.
    """
    found: dict[int, KeptInputs] = {}
    # Templates that differ in their items only, or in constants that pass as many rows, keep the same.
    known: dict[tuple[object, ...], KeptInputs | None] = {}
    for number, template in templates.items():
        passing = tuple(load.passing(number, input_) for input_ in range(len(template.streams)))
        shape = template.streams, template.equalities, passing
        if shape not in known:
            known[shape] = _best(template, passing, load)
        best = known[shape]
        if best is not None and (keep == Keep.ALWAYS or best.gain > LEAST_SHARE * best.lookups):
            found[number] = best
    if keep == Keep.AUTO and gained + sum(one.gain for one in found.values()) < share * LEAST_SAVED_LOOKUPS:
        return {}
    return found


def _best(template: Template, passing: Sequence[float], load: HubLoad) -> KeptInputs | None:
    """The set of inputs that gains most if a template keeps it."""
    return max(_estimates(template, passing, load), key=lambda one: one.gain, default=None)


def _estimates(template: Template, passing: Sequence[float], load: HubLoad) -> Iterator[KeptInputs]:
    """All sets of inputs that a template could keep."""
    walks = _Walks(template, passing, load)
    inputs = range(len(template.streams))
    every = _bits(inputs)
    all_lookups = sum(sum(walks.walk(start, every, every)[0]) for start in inputs)
    for kept in connected_sets(template):
        mine = _bits(kept)
        stored = sum(walks.walk(start, mine, mine)[1] for start in kept)
        outside = [one for one in inputs if not mine >> one & 1]
        # One for each input outside that a look-up in what is kept begins at.
        edges = sum(any(one in walks.fans[other] for other in kept) for one in outside)
        saved = sum((sum(walks.walk(start, every, mine)[0][1:]) for start in outside), 0.0)
        yield KeptInputs(kept, stored * edges, saved, all_lookups)


def connected_sets(template: Template) -> tuple[tuple[int, ...], ...]:
    """The sets of two or more inputs of a template, but not all, that equalities connect.

    >>> from watersmeet.hubs.language import Equality
    >>> chain = tuple(Equality(one, "a", one + 1, "b") for one in range(3))
    >>> connected_sets(Template(tuple("rspq"), tuple("RSPQ"), chain, (), ()))
    ((0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3))
    """
    edges = frozenset((one.left, one.right) for one in template.equalities)
    return _connected_sets(len(template.streams), edges)


@functools.lru_cache(maxsize=1024)
def _connected_sets(size: int, edges: frozenset[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    near = [0] * size
    for left, right in edges:
        near[left] |= 1 << right
        near[right] |= 1 << left
    sets = {1 << one for one in range(size)}
    found: set[int] = set()
    for _ in range(2, min(MOST_KEPT, size - 1) + 1):
        sets = {
            mine | 1 << other
            for mine in sets
            for one in _members(mine, size)
            for other in _members(near[one] & ~mine, size)
        }
        found |= sets
    return tuple(sorted((_members(one, size) for one in found), key=lambda one: (len(one), one)))


class _Walks:
    """Walks from the fresh rows of one input to the others. What lies next to bound inputs is found once for all sets."""

    def __init__(self, template: Template, passing: Sequence[float], load: HubLoad) -> None:
        self.passing = passing
        self.begin = [
            load.rows.get(stream, 0.0) * passes
            for stream, passes in zip(template.streams, passing, strict=True)
        ]
        # How many rows of an input a row of another finds by an equality: the fewest, if there are several.
        self.fans: list[dict[int, float]] = [{} for _ in template.streams]
        for one in template.equalities:
            left = template.streams[one.left], one.left_column
            right = template.streams[one.right], one.right_column
            if one.left != one.right:
                self._add_fan(one.left, one.right, load.fan_out(left, right))
                self._add_fan(one.right, one.left, load.fan_out(right, left))
        self._near: dict[int, list[tuple[int, float]]] = {}

    def _add_fan(self, one: int, other: int, fan: float) -> None:
        self.fans[one][other] = min(fan, self.fans[one].get(other, float("inf")))

    def walk(self, start: int, among: int, first: int) -> tuple[list[float], float]:
        """Bind one input of `among` after the other, those in `first` as soon as they can be, until these are bound.

        The lookups that bind each of those in `first`, and the combinations at the end. Sets of inputs are bits.
        """
        bound, combinations = 1 << start, self.begin[start]
        lookups: list[float] = []
        while first & ~bound:
            following = 0
            times = 1.0
            for bit, grows in self._near.get(bound) or self._next_to(bound):
                if bit & first:
                    lookups.append(combinations)
                    following, times = bit, grows
                    break
                if not following and bit & among:
                    following, times = bit, grows
            if not following:
                break
            combinations *= times
            bound |= following
        return lookups, combinations

    def _next_to(self, bound: int) -> list[tuple[int, float]]:
        """The inputs that equalities join to bound ones, those that a constant narrows first, and how combinations grow."""
        least: dict[int, float] = {}
        for one in _members(bound, len(self.fans)):
            for other, fan in self.fans[one].items():
                if not bound >> other & 1:
                    least[other] = min(fan, least.get(other, float("inf")))
        order = sorted(least, key=lambda one: (self.passing[one] >= 1, one))
        found = [(1 << one, least[one] * self.passing[one]) for one in order]
        self._near[bound] = found
        return found


def _bits(inputs: Iterable[int]) -> int:
    return sum(1 << one for one in inputs)


def _members(bits: int, size: int) -> tuple[int, ...]:
    return tuple(one for one in range(size) if bits >> one & 1)
