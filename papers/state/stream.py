"""The paper's stream generator: inputs whose rows find more and more partners.

Source: Liu, Rundensteiner 2005, section 3.4. Two factors control a stream. After every *tuple range* of rows of an input
the rows of each join value have grown by the *join ratio* r. So with three inputs a row finds r^2 partners at the end of
the first range, (2r)^2 at the end of the second, and so on: 4 and then 16 in the paper's example with r = 2. The ratio
belongs to a partition: of the rows of one range, a partition with ratio r has r for each of its join values.

The text leaves open how values and times are drawn. Here each row takes a partition, by the rates of that time, and then
any of its join values, all alike. Rows of a stretch of time are drawn from Poisson's law with the given mean. Partitions
are those of the operator: equal ranges of mixed keys. So join values are whole numbers whose mix lies in the partition.

Everything follows from a seed. Rows of one stretch of time do not depend on those of others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernel.keys import order_keys
from watersmeet.schemes.balance import even_ranges

Values = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

# Whole numbers tried at a time, in the search for join values of each partition.
_TRIED = 1 << 16


@dataclass(frozen=True, slots=True)
class Turns:
    """Some partitions get `times` as many rows as the others: the `first` ones until `begin_ms`, then the others for
    `every_ms`, and so by turns."""

    first: tuple[int, ...]
    times: float
    begin_ms: int
    every_ms: int

    def is_first(self, at_ms: int) -> bool:
        """Whether it is the turn of the first ones."""
        return at_ms < self.begin_ms or (at_ms - self.begin_ms) // self.every_ms % 2 == 1


@dataclass(frozen=True, slots=True)
class Stream:
    """One input: a row every `gap_ms` on average. `ratios` are the join ratios of its partitions, all inputs alike."""

    ratios: tuple[float, ...]
    tuple_range: int
    gap_ms: float
    turns: Turns | None = None
    seed: int = 2005

    @property
    def partitions(self) -> int:
        return len(self.ratios)

    def shares(self, at_ms: int) -> Shares:
        """The share of rows that each partition gets at a time."""
        weights = np.ones(self.partitions)
        if self.turns is not None:
            first = np.isin(np.arange(self.partitions), self.turns.first)
            weights[first == self.turns.is_first(at_ms)] = self.turns.times
        return weights / weights.sum()

    def draw(self, input_: int, begin_ms: int, end_ms: int) -> Values:
        """The join values of the rows that come between two times, during which no turn begins."""
        random = np.random.default_rng((self.seed, input_, begin_ms))
        rows = random.poisson((end_ms - begin_ms) / self.gap_ms)
        values = self._values
        counts = np.diff(values.ends, prepend=0)
        partition = random.choice(self.partitions, rows, p=self.shares(begin_ms))
        place = values.ends[partition] - counts[partition] + random.integers(0, counts[partition])
        found: Values = values.of[place]
        return found

    @property
    def _values(self) -> _Values:
        return _values(distinct_values(self.ratios, self.tuple_range))


@dataclass(frozen=True, slots=True)
class _Values:
    """The join values of all partitions, one partition after the other; `ends` are the places where each ends."""

    of: Values
    ends: Values


def even(ratio: float, partitions: int) -> tuple[float, ...]:
    """One join ratio for all partitions."""
    return (ratio,) * partitions


def mixed(ratios: Sequence[float], partitions: int) -> tuple[float, ...]:
    """Partitions by turns with each of these join ratios, so that every machine has as many of each."""
    return tuple(itertools.islice(itertools.cycle(ratios), partitions))


def distinct_values(ratios: Sequence[float], tuple_range: int) -> tuple[int, ...]:
    """How many join values each partition has.

    >>> distinct_values((4, 2, 1), 30_000)
    (2500, 5000, 10000)
    """
    return tuple(max(1, round(tuple_range / len(ratios) / ratio)) for ratio in ratios)


def partition_of(values: Values, partitions: int) -> Values:
    """The partition of each join value: the group that the operator puts it into."""
    lows = np.array([one.low for one in even_ranges(partitions)], np.uint64)
    found: Values = np.searchsorted(lows, order_keys([pa.array(values)]), side="right") - 1
    return found


@functools.lru_cache(maxsize=8)
def _values(counts: tuple[int, ...]) -> _Values:
    """The first whole numbers that lie in each partition, as many as it has join values."""
    wanted = np.array(counts)
    parts: list[tuple[Values, Values]] = []
    missing, begin = wanted.copy(), 0
    while missing.any():
        tried = np.arange(begin, begin + _TRIED)
        partition = partition_of(tried, len(counts))
        order = np.argsort(partition, kind="stable")
        tried, partition = tried[order], partition[order]
        # The how manieth of its partition each one is.
        rank = np.arange(_TRIED) - np.searchsorted(partition, partition)
        taken = rank < missing[partition]
        parts.append((tried[taken], partition[taken]))
        missing -= np.bincount(partition[taken], minlength=len(counts))
        begin += _TRIED
    values, partition = (np.concatenate(both) for both in zip(*parts, strict=True))
    return _Values(values[np.argsort(partition, kind="stable")], np.cumsum(wanted))


def count_results(inputs: Sequence[Values]) -> int:
    """The combinations of rows of all inputs with one join value: what a join of everything has."""
    values = np.unique(np.concatenate([*inputs, np.zeros(0, np.int64)]))
    counts = [np.bincount(np.searchsorted(values, rows), minlength=len(values)) for rows in inputs]
    return int(np.prod(counts, axis=0).sum())
