"""Bindings of many groups as arrays, and how they are cut into pieces and put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.kernel.keys import Indices


@dataclass(frozen=True, slots=True)
class Bindings:
    """Groups, and the positions of the rows that are bound in each of their steps: a column for each step."""

    group: Indices
    rows: tuple[Indices, ...]

    def __len__(self) -> int:
        return len(self.group)

    def slice(self, low: int, high: int) -> Bindings:
        return Bindings(self.group[low:high], tuple(column[low:high] for column in self.rows))


@dataclass(frozen=True, slots=True)
class Probed:
    """Probes, those of one index behind each other, and the number of bindings that make each in turn."""

    probe: Indices
    bindings: Indices


def chosen_rows(rows: tuple[Indices, ...], depth: Indices) -> Indices:
    """Of each binding the row that is bound at some depth."""
    if len(rows) == 1:
        return rows[0]
    return np.stack(rows)[depth, np.arange(len(depth))]


def grouped(numbers: Indices) -> Indices:
    """The places of equal numbers behind each other. Numbers of 16 bits are sorted by radix, ten times as fast."""
    return np.argsort(
        numbers.astype(np.int16) if numbers.max(initial=0) < 1 << 15 else numbers, kind="stable"
    )


def stretches(*numbers: Indices) -> Iterator[tuple[int, int]]:
    """Where places with equal numbers lie together."""
    if not len(numbers[0]):
        return
    changed = np.zeros(len(numbers[0]) - 1, np.bool_)
    for one in numbers:
        changed |= one[1:] != one[:-1]
    ends = [*(np.flatnonzero(changed) + 1).tolist(), len(numbers[0])]
    yield from zip([0, *ends], ends, strict=False)


def cut(rows: Indices, limit: int) -> Iterator[tuple[int, int]]:
    """Stretches of about `limit` rows, or of one thing that has more; nothing where there are no rows."""
    reached = np.cumsum(rows)
    first = 0
    while first < len(rows) and reached[-1] > (reached[first - 1] if first else 0):
        before = int(reached[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + limit, side="right")))
        yield first, end
        first = end


def together(
    parts: Iterable[tuple[npt.NDArray[Any], ...]], limit: int
) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Columns of several parts behind each other, about `limit` rows at a time. Parts differ in their columns' number."""
    held: dict[int, list[tuple[npt.NDArray[Any], ...]]] = {}
    rows = 0
    for part in parts:
        if len(part[0]):
            held.setdefault(len(part), []).append(part)
            rows += len(part[0])
        if rows >= limit:
            yield from (tuple(map(np.concatenate, zip(*like, strict=True))) for like in held.values())
            held, rows = {}, 0
    yield from (tuple(map(np.concatenate, zip(*like, strict=True))) for like in held.values())
