"""What a template should keep, by the rates of its streams and by what values find in them.

Idreos et al. (2008, section 6) ask nodes for the rates of tuples and choose by them where a rewritten query waits next.
Here the sorted runs of the indexes tell rates and fan-outs, and the constants of the queries how few rows pass. Keeping
some inputs

    costs     the combinations of them that fresh rows make in a batch, once for each edge that leads out of the set
    saves     the lookups by which fresh rows of the other inputs bind them one by one, but for the first

and a template keeps the set that gains most, if that is a fair share of all its lookups. It is an estimate: values of one attribute
are taken to be independent of those of another, and equalities that close a circle to hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from watersmeet.hubs.kept import MOST_KEPT
from watersmeet.hubs.language import Template
from watersmeet.hubs.steps import Attribute
from watersmeet.model.keep import Keep

# To store a combination, announce it and merge it takes as long as so many lookups, with what they find.
LOOKUPS_FOR_A_ROW: Final = 8.0
# Runs and receipts cost a batch some milliseconds, however few rows they have: a hub keeps nothing that saves less.
LEAST_SAVED_LOOKUPS: Final = 100_000.0
# Lookups are shared between templates, more so the first ones, and fan-outs grow with what is stored. Smaller gains than
# this share of a template's lookups were losses: 10,000 random shapes took 1.3 of the time.
LEAST_SHARE: Final = 0.1


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


def is_considered(keep: str, batches: int) -> bool:
    """Whether a template whose first batch was so many `batches` ago is considered in this one.

    In its first batches hardly a row finds another, and streams may not have come yet. So it is looked at again, more
    and more seldom: after 4, 16, 64 batches and so on.
    """
    if keep != Keep.AUTO:
        return keep == Keep.ALWAYS and batches >= 0
    while batches >= 4 and batches % 4 == 0:
        batches //= 4
        if batches == 1:
            return True
    return False


def choose_kept(
    templates: Mapping[int, Template], load: HubLoad, keep: str = Keep.AUTO
) -> dict[int, KeptInputs]:
    """What some templates keep. The others keep nothing."""
    found: dict[int, KeptInputs] = {}
    for number, template in templates.items():
        best = max(_estimates(number, template, load), key=lambda one: one.gain, default=None)
        if best is not None and (keep == Keep.ALWAYS or best.gain > LEAST_SHARE * best.lookups):
            found[number] = best
    if keep == Keep.AUTO and sum(one.gain for one in found.values()) < LEAST_SAVED_LOOKUPS:
        return {}
    return found


def _estimates(number: int, template: Template, load: HubLoad) -> Iterator[KeptInputs]:
    """All sets of inputs that a template could keep."""
    rows = [load.rows.get(stream, 0.0) for stream in template.streams]
    passing = [load.passing(number, input_) for input_ in range(len(template.streams))]
    fans = _fans(template, load)
    every = range(len(rows))
    all_lookups = sum(sum(_walk(start, every, rows, passing, fans, first=every)[0]) for start in every)
    for inputs in connected_sets(template):
        stored = sum(_walk(start, inputs, rows, passing, fans)[1] for start in inputs)
        outside = [one for one in every if one not in inputs]
        edges = {other for one, other in fans if one in outside and other in inputs}
        saved = 0.0
        for start in outside:
            lookups, _ = _walk(start, every, rows, passing, fans, first=inputs)
            saved += sum(lookups[1:])
        yield KeptInputs(inputs, stored * len(edges), saved, all_lookups)


def connected_sets(template: Template) -> Iterator[tuple[int, ...]]:
    """The sets of two or more inputs of a template, but not all, that equalities connect.

    >>> from watersmeet.hubs.language import Equality
    >>> chain = tuple(Equality(one, "a", one + 1, "b") for one in range(3))
    >>> list(connected_sets(Template(tuple("rspq"), tuple("RSPQ"), chain, (), ())))
    [(0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3)]
    """
    inputs = range(len(template.streams))
    near: dict[int, set[int]] = {one: set() for one in inputs}
    for one in template.equalities:
        near[one.left].add(one.right)
        near[one.right].add(one.left)
    for size in range(2, min(MOST_KEPT, len(inputs) - 1) + 1):
        for found in itertools.combinations(inputs, size):
            reached = {found[0]}
            while more := {other for one in reached for other in near[one] if other in found} - reached:
                reached |= more
            if len(reached) == size:
                yield found


def _fans(template: Template, load: HubLoad) -> dict[tuple[int, int], float]:
    """How many rows of an input a row of another finds by an equality: the fewest, if there are several."""
    found: dict[tuple[int, int], float] = {}
    for one in template.equalities:
        left = template.streams[one.left], one.left_column
        right = template.streams[one.right], one.right_column
        for pair, value, sought in (
            ((one.left, one.right), left, right),
            ((one.right, one.left), right, left),
        ):
            if pair[0] != pair[1]:
                found[pair] = min(load.fan_out(value, sought), found.get(pair, float("inf")))
    return found


def _walk(
    start: int,
    among: Collection[int],
    rows: Sequence[float],
    passing: Sequence[float],
    fans: Mapping[tuple[int, int], float],
    first: Collection[int] = (),
) -> tuple[list[float], float]:
    """From the fresh rows of an input, one of some others after the other: the lookups that bind each of those in `first`,
    which are bound as soon as they can be, and the combinations at the end."""
    bound, combinations = [start], rows[start] * passing[start]
    lookups: list[float] = []
    while True:
        near = {
            other: min(fan for (one, to), fan in fans.items() if one in bound and to == other)
            for one, other in fans
            if one in bound and other in among and other not in bound
        }
        if not near:
            return lookups, combinations
        following = min(near, key=lambda one: (one not in first, passing[one] >= 1, one))
        if following in first:
            lookups.append(combinations)
        combinations *= near[following] * passing[following]
        bound.append(following)
