"""The facts of heavy keys: their rows, and how a batch divides them between tasks.

Source: Qiu, Papadias, Yi: Streaming HyperCube (EDBT 2019), 3.2. A heavy key's rows of all inputs span a matrix with one
axis for each input. The matrix is cut into cells, and each cell belongs to a task. Rows are cut by their position in
the agreed runs. So a cell needs no hash function, no two cells share a combination, and a new shape rewrites no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from watersmeet.model.facts import KeyRange, SchemePlan

Owners = npt.NDArray[np.int64]

# The number of parts of each input's rows, in the order of `CubePlan.inputs`. Empty: the key is light.
Shape = tuple[int, ...]
LIGHT: Shape = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """At least `lower` rows, and at most `upper`."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key whose pairs several tasks share. `tasks` names the owner of each cell, the last axis running fastest.

    `rows` has bounds for each input over its live runs, history and batch together.
    """

    key: int
    label: str
    rows: tuple[Bounds, ...]
    shape: Shape
    tasks: tuple[int, ...]

    @property
    def owners(self) -> Owners:
        return np.array(self.tasks, np.int64).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class CubeChange:
    """A key's shape before and from `batch` on, and the rows that moved.

    A row has moved if some task reads it for this key and would not have read it under the plan before.
    """

    batch: int
    label: str
    before: Shape
    after: Shape
    moved_rows: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Keys that a batch counted exactly and the next one should know, ascending.

    `rows` has a line for each input: the rows of each key, history and batch together. `of_rows` has all rows that each
    input had then. As long as the history has as many, no row has left it, and `rows` are its rows of each key.
    """

    keys: tuple[int, ...] = ()
    rows: tuple[tuple[int, ...], ...] = ()
    of_rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CubePlan(SchemePlan):
    """The range of light keys of each task, and the heavy keys, ascending.

    `watched` are the keys with most work. `epoch` counts the batches that changed the plan's shape. `load` is the
    planned work of the busiest task and `mean` that of an average task, in rows looked up and emitted. `changes` are
    the latest ones, oldest first.
    """

    kind: ClassVar[str] = "hypercube"
    inputs: tuple[str, ...]
    ranges: tuple[KeyRange, ...]
    heavy: tuple[HeavyKey, ...] = ()
    epoch: int = 0
    load: int = 0
    mean: int = 0
    changes: tuple[CubeChange, ...] = ()
    watched: Watched = Watched()


@dataclass(frozen=True, slots=True)
class Box:
    """Adjacent cells of one key: along each axis parts from `low` up to, not including, `high`."""

    key: int
    shape: Shape
    low: tuple[int, ...]
    high: tuple[int, ...]


def boxes_of(heavy: HeavyKey, task: int) -> list[Box]:
    """The cells of a task in few boxes: neighbours along the last axis and equal layers are joined."""
    spans = sorted(_spans(heavy.owners == task))
    return [
        Box(heavy.key, heavy.shape, tuple(low for low, _ in span), tuple(high for _, high in span))
        for span in spans
    ]


def _spans(mine: npt.NDArray[np.bool_]) -> list[tuple[tuple[int, int], ...]]:
    """Boxes as (first, end) along each axis.

    >>> _spans(np.array([[True, True, False], [True, True, True]]))
    [((0, 1), (0, 2)), ((1, 2), (0, 3))]
    """
    if not mine.any():
        return []
    if not mine.ndim:
        return [()]
    found: list[tuple[tuple[int, int], ...]] = []
    open_: dict[tuple[tuple[int, int], ...], int] = {}
    for place in range(len(mine) + 1):
        here = _spans(mine[place]) if place < len(mine) else []
        ended = [inner for inner in open_ if inner not in here]
        found += [((open_.pop(inner), place), *inner) for inner in ended]
        for inner in here:
            open_.setdefault(inner, place)
    return found
