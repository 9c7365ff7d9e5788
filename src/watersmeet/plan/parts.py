"""How the rows of a heavy key are cut, and what a task reads of it.

A run holds the rows of a key as one stretch. Part x of n is the x-th n-th of that stretch, turned by an amount that is
drawn from the run's checksum, so that odd rows do not all fall to the same part. Cuts are nested: part x of n is parts
2x and 2x + 1 of 2n. That is the split of Streaming HyperCube's migration (3.2), without a second hash function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from watersmeet.model.cube import HeavyKey
from watersmeet.model.facts import Run


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Cells of one key that lie together: parts of the left rows times parts of the right ones, ends excluded."""

    key: int
    rows: int
    cols: int
    left: tuple[int, int]
    right: tuple[int, int]


def positions(run: Run, count: int, parts: tuple[int, int], of: int) -> tuple[int, int]:
    """Where these parts of a stretch of `count` rows begin and end.

    >>> run = Run("l", "p", "p", 0, 9, 1, 0, 9, "8000000000000000")
    >>> [positions(run, 9, (part, part + 1), 4) for part in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 9)]
    """
    turn = int(run.checksum or "0", 16) * of >> 64
    low, high = ((count * part + turn) // of for part in parts)
    return low, high


def rectangles_of(heavy: Sequence[HeavyKey], task: int) -> list[Rectangle]:
    """The cells of a task in few rectangles: neighbours in a row, and rows that are alike."""
    return [rectangle for one in heavy if task in one.tasks for rectangle in _rectangles(one, task)]


def _rectangles(heavy: HeavyKey, task: int) -> list[Rectangle]:
    rows, cols = heavy.shape.rows, heavy.shape.cols
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    open_: dict[tuple[int, int], int] = {}
    for row in range(rows + 1):
        here = _stretches(heavy.tasks[row * cols : (row + 1) * cols], task) if row < rows else []
        ended = [stretch for stretch in open_ if stretch not in here]
        found += [((open_.pop(stretch), row), stretch) for stretch in ended]
        for stretch in here:
            open_.setdefault(stretch, row)
    return [Rectangle(heavy.key, rows, cols, left, right) for left, right in sorted(found)]


def _stretches(owners: Sequence[int], task: int) -> list[tuple[int, int]]:
    """Where `task` owns cells next to each other, as (first, end)."""
    found: list[tuple[int, int]] = []
    for place, owner in enumerate(owners):
        if owner != task:
            continue
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found
